//! `bucket_list`: a page of a bucket's listing.
//! Formats: Ceph `src/cls/rgw/cls_rgw_ops.h`; behaviour measured at v16.2.15.

use super::changes::{at, oldest};
use super::entry::{DirEntry, Key, flag};
use super::header::Header;
use super::index_keys::{SPECIAL, instance_key, is_special, list_key, listed_name};
use crate::keys::{input, output, values};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Reader};
use nacre_types::Errno;
use std::collections::BTreeMap;

/// Pages of the omap that one call looks at. A bucket may hold many entries that a listing does not show; the answer says
/// then where to go on.
const PAGES_MAX: usize = 8;
/// No name in UTF-8 has this byte, so it comes behind all names that begin as what stands before it.
const BEHIND: u8 = 0xff;

/// `rgw_cls_list_op`
struct ListOp {
    count_max: usize,
    prefix: ByteStr,
    /// The listing begins behind it.
    start: Key,
    versions: bool,
    delimiter: ByteStr,
}

impl Decode for ListOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_cls_list_op", 6, |version, r| {
            oldest("rgw_cls_list_op", version, 4)?;
            let count_max = r.u32()? as usize;
            let (prefix, start) = (r.get()?, r.get()?);
            let versions = version >= 5 && r.bool()?;
            let delimiter = if version >= 6 { r.get()? } else { ByteStr::EMPTY };
            Ok(Self { count_max, prefix, start, versions, delimiter })
        })
    }
}

impl ListOp {
    /// The common prefix that stands for a name, if one does.
    fn common_prefix(&self, name: &ByteStr) -> Option<ByteStr> {
        let from = self.prefix.len();
        let rest = name.get(from..).filter(|_| !self.delimiter.is_empty())?;
        let at = rest.windows(self.delimiter.len()).position(|part| part == self.delimiter.as_bytes())?;
        Some(ByteStr::from(name.to_shared().slice(..from + at + self.delimiter.len())))
    }

    /// The omap key that the listing begins behind.
    fn start_key(&self, cx: &dyn ClassCx) -> ByteStr {
        let key = start_key(cx, &self.start).unwrap_or_default();
        let is_prefix = !self.delimiter.is_empty() && key > self.prefix && key.ends_with(&self.delimiter);
        if is_prefix { behind(&key) } else { key }
    }

    /// Listings without versions show what readers see, and not what they go on behind.
    fn shows(&self, entry: &DirEntry, name: &ByteStr) -> bool {
        !entry.has(flag::PLACEHOLDER) && (self.versions || (entry.is_visible() && *name != self.start.name))
    }
}

/// The omap key of a place in a listing.
fn start_key(cx: &dyn ClassCx, start: &Key) -> Result<ByteStr, Fault> {
    if start.instance.is_empty() {
        return Ok(start.name.clone());
    }
    let mut key = start.clone();
    if *key.instance == *b"null" {
        key.instance = ByteStr::EMPTY;
    }
    let found: Option<DirEntry> = at(cx, &instance_key(&key, false))?;
    // A version that is gone: behind the object itself, before its versions.
    Ok(found.map_or_else(|| ByteStr::from([start.name.as_bytes(), &[1]].concat()), |entry| list_key(&entry)))
}

fn behind(prefix: &ByteStr) -> ByteStr {
    ByteStr::from([prefix.as_bytes(), &[BEHIND]].concat())
}

/// A page of omap entries, without those under special keys, which lie between the names in ASCII and others.
fn listed_page(
    cx: &dyn ClassCx,
    after: &[u8],
    prefix: &[u8],
    count_max: usize,
) -> (Vec<(ByteStr, Bytes)>, bool) {
    let (mut found, more) = values(cx, after, prefix, count_max as u64);
    let is_beside = |entry: Option<&(ByteStr, Bytes)>, beyond: fn(&u8, &u8) -> bool| {
        entry.is_none_or(|(key, _)| key.first().is_none_or(|byte| beyond(byte, &SPECIAL)))
    };
    if is_beside(found.last(), u8::lt) || is_beside(found.first(), u8::gt) {
        return (found, more);
    }
    found.retain(|(key, _)| !is_special(key));
    if found.len() == count_max || !more {
        return (found, more);
    }
    let beyond = ByteStr::from(&[SPECIAL + 1][..]);
    let from = found.last().map(|(key, _)| key.clone()).filter(|key| *key > beyond).unwrap_or(beyond);
    let (rest, more) = values(cx, &from, prefix, (count_max - found.len()) as u64);
    found.extend(rest);
    (found, more)
}

/// What was found so far.
#[derive(Default)]
struct Listing {
    /// By omap key, or by common prefix.
    entries: BTreeMap<ByteStr, DirEntry>,
    /// The next page begins behind this key, ...
    after: ByteStr,
    /// ... which the client knows as this.
    marker: Key,
    last_prefix: ByteStr,
}

impl Listing {
    /// Takes one page of the omap.
    fn take(&mut self, op: &ListOp, page: Vec<(ByteStr, Bytes)>) -> Result<(), Fault> {
        // Behind a common prefix its names are skipped.
        let mut skipped_to = ByteStr::EMPTY;
        for (key, value) in page {
            if key < skipped_to {
                continue;
            }
            let entry: DirEntry = input(value)?;
            (self.after, self.marker) = (key.clone(), entry.key.clone());
            let Some(name) = listed_name(&key).filter(|name| op.shows(&entry, name)) else { continue };
            if let Some(prefix) = op.common_prefix(&name) {
                if prefix != self.last_prefix {
                    self.take_prefix(op, prefix);
                    skipped_to = self.after.clone();
                }
            } else if self.entries.len() < op.count_max {
                self.entries.insert(key, entry);
            }
        }
        Ok(())
    }

    fn take_prefix(&mut self, op: &ListOp, prefix: ByteStr) {
        self.last_prefix = prefix.clone();
        if self.entries.len() < op.count_max {
            let key = Key::plain(prefix.clone());
            let entry = DirEntry { key, flags: flag::COMMON_PREFIX, ..DirEntry::default() };
            self.entries.insert(prefix.clone(), entry);
        }
        self.after = behind(&prefix);
        self.marker = Key::plain(self.after.clone());
    }
}

pub(super) fn bucket_list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: ListOp = input(bytes)?;
    let header = Header::load(cx)?;
    let mut listing = Listing::default();
    let (mut more, mut done) = (false, true);
    if op.count_max > 0 {
        listing.after = op.start_key(cx);
        for _ in 0..PAGES_MAX {
            let wanted = op.count_max - listing.entries.len();
            let (page, follow) = listed_page(cx, &listing.after, &op.prefix, wanted);
            (more, done) = (follow, page.is_empty());
            listing.take(&op, page)?;
            if !more || done || listing.entries.len() == op.count_max {
                break;
            }
        }
    }
    let truncated = more && !done;
    let marker = if truncated { listing.marker } else { Key::default() };
    let found = output(|w| {
        w.envelope(4, 2, |w| {
            w.envelope(2, 2, |w| {
                w.put(&header);
                w.put(&listing.entries);
            });
            w.bool(truncated);
            w.put(&marker);
        });
    })?;
    if truncated && listing.entries.is_empty() {
        // Clients go on behind the marker.
        return Err(Fault::Told { errno: Errno::EFBIG, output: found });
    }
    Ok(found)
}
