//! What server-side copies fetch: an object's content, in parts.
//!
//! The PG fetches the source of a `copy-from`, here or from another OSD, part by part with [`extract`]; Ceph's OSDs do the same with the
//! op `copy-get`. Of an object that is more than one write should carry, most is in a temporary one by then ([`Staged`]), which
//! takes the target's place.

use crate::object::ObjectContext;
use crate::storage::together;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_txn::{ObjectView, Op, ReadError};
use nacre_types::{Errno, HObject, OsdId, SpgId, UTime};
use std::collections::BTreeMap;

/// Room for the encoding of an attribute, entry or extent, beside its bytes.
const ENTRY_BYTES: usize = 16;
/// Omap entries in one part, which is read, and written, in one turn.
const PART_ENTRIES_MAX: usize = 8 << 10;
/// Bytes of a source that are fetched at a time.
pub(crate) const PART_BYTES_MAX: usize = 4 << 20;
/// Bytes that a copy collects in memory where there is enough; with more, they go to a temporary object.
pub(super) const COLLECTED_BYTES_MAX: usize = 16 << 20;
/// The same of omap entries: what one write should have at most.
const COLLECTED_ENTRIES_MAX: usize = 2 * PART_ENTRIES_MAX;

/// What a `copy-from` copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySource {
    /// The object; its `snap` says as of when.
    pub object: HObject,
    /// User version that it must have, 0 for any.
    pub version: u64,
}

/// A temporary object that has what came of a source first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Name of the temporary object.
    pub object: HObject,
    /// The members that have it durably, ascending.
    pub members: Vec<OsdId>,
    /// It has an omap header or entries.
    pub has_omap: bool,
}

/// The source of one `copy-from`, fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct Copied {
    /// Index of the operation in the message.
    pub op_index: usize,
    /// The content, or why it could not be had (`ENOENT`).
    pub result: Result<Box<CopiedObject>, Errno>,
}

impl Copied {
    /// The temporary object that has a part of it.
    #[must_use]
    pub fn staged(&self) -> Option<&Staged> {
        self.result.as_ref().ok()?.staged.as_deref()
    }

    /// About the bytes of it that are in memory.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.result.as_ref().map_or(0, |object| object.size_bytes())
    }
}

/// An object's whole content, or a part of it. Ceph `object_copy_data_t`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CopiedObject {
    /// Length of the data in bytes.
    pub size: u64,
    /// Modification time; the copy keeps it.
    pub mtime: UTime,
    /// User version; the copy keeps it.
    pub user_version: u64,
    /// The file system's newest truncation.
    pub truncate_seq: u32,
    /// Its size in bytes.
    pub truncate_size: u64,
    /// The attributes that clients see, by name.
    pub attrs: BTreeMap<ByteStr, Bytes>,
    /// The omap header.
    pub omap_header: Bytes,
    /// Omap entries, in key order.
    pub omap: Vec<(ByteStr, Bytes)>,
    /// Data by offset, ascending; gaps are zeros.
    pub data: Vec<(u64, BufList)>,
    /// Where the rest of it is; never sent.
    pub staged: Option<Box<Staged>>,
}

impl CopiedObject {
    /// Adds the next part behind this one.
    ///
    /// # Errors
    /// `EAGAIN` when the object changed in between: begin anew.
    pub fn append(&mut self, part: Self) -> Result<(), Errno> {
        if part.user_version != self.user_version || part.size != self.size {
            return Err(Errno::EAGAIN);
        }
        self.data.extend(part.data);
        self.omap.extend(part.omap);
        Ok(())
    }

    /// About the bytes of a transaction that makes the object.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let pair = |key: &ByteStr, value: &Bytes| key.len() + value.len() + ENTRY_BYTES;
        let attrs: usize = self.attrs.iter().map(|(name, value)| pair(name, value)).sum();
        let omap: usize = self.omap.iter().map(|(key, value)| pair(key, value)).sum();
        let data: usize = self.data.iter().map(|(_, data)| data.len() + ENTRY_BYTES).sum();
        attrs + omap + self.omap_header.len() + data
    }

    /// True when it is to be taken to a temporary object before more comes: what is in memory has more than `bytes_max`.
    #[must_use]
    pub fn is_large(&self, bytes_max: usize) -> bool {
        self.size_bytes() > bytes_max || self.omap.len() > COLLECTED_ENTRIES_MAX
    }

    /// True when any of it belongs to an omap.
    #[must_use]
    pub fn has_omap(&self) -> bool {
        !self.omap.is_empty()
            || !self.omap_header.is_empty()
            || self.staged.as_ref().is_some_and(|staged| staged.has_omap)
    }

    /// Takes the content out, as changes that add it to `target`.
    pub fn take_content(&mut self, target: &HObject) -> Vec<Op> {
        let object = || target.clone();
        let mut ops = Vec::new();
        let attrs = std::mem::take(&mut self.attrs).into_iter();
        ops.extend(attrs.map(|(name, value)| Op::SetAttr { object: object(), name, value }));
        let header = std::mem::take(&mut self.omap_header);
        if !header.is_empty() {
            ops.push(Op::OmapSetHeader { object: object(), header });
        }
        let entries = std::mem::take(&mut self.omap);
        if !entries.is_empty() {
            ops.push(Op::OmapSet { object: object(), entries });
        }
        let data = std::mem::take(&mut self.data).into_iter();
        ops.extend(data.map(|(offset, data)| Op::Write { object: object(), offset, data }));
        ops
    }

    /// All data in one piece, holes as zeros.
    pub(super) fn whole_data(&self) -> BufList {
        let mut whole = BufList::new();
        let fill = |whole: &mut BufList, to: u64| {
            let gap = usize::try_from(to).unwrap_or(usize::MAX).saturating_sub(whole.len());
            whole.push(Bytes::from(vec![0; gap]));
        };
        for (offset, data) in &self.data {
            fill(&mut whole, *offset);
            whole.append(data.clone());
        }
        fill(&mut whole, self.size);
        whole
    }
}

/// Where the next part of a copy begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyCursor {
    /// First byte of data.
    pub offset: u64,
    /// First omap key.
    pub omap_from: ByteStr,
    /// All data has been copied; omap is next.
    pub data_done: bool,
}

impl Encode for CopyCursor {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.offset);
        w.put(&self.omap_from);
        w.bool(self.data_done);
    }
}

impl Decode for CopyCursor {
    const MIN_BYTES: usize = 13;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { offset: r.u64()?, omap_from: r.get()?, data_done: r.bool()? })
    }
}

/// A part of an object's content.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CopyPart {
    /// What is in it; attributes and omap header come with the first part.
    pub object: CopiedObject,
    /// Where the next part begins; `None` with the last one.
    pub next: Option<CopyCursor>,
}

impl CopyPart {
    /// Appends the encoding without the data, which is returned by reference.
    #[must_use]
    pub fn encode_parts(&self, w: &mut Writer) -> BufList {
        let object = &self.object;
        let mut data = BufList::new();
        w.envelope(1, 1, |w| {
            w.u64(object.size);
            w.put(&object.mtime);
            w.u64(object.user_version);
            w.u32(object.truncate_seq);
            w.u64(object.truncate_size);
            w.put(&object.attrs);
            w.put(&object.omap_header);
            w.put(&object.omap);
            w.count(object.data.len());
            for (offset, part) in &object.data {
                w.u64(*offset);
                w.u64(part.len() as u64);
                data.append(part.clone());
            }
            w.put(&self.next);
        });
        data
    }

    /// Reads what [`CopyPart::encode_parts`] made.
    ///
    /// # Errors
    /// [`DecodeError`], also when `data` is not as long as the encoding says.
    pub fn decode_parts(r: &mut Reader, data: &BufList) -> Result<Self, DecodeError> {
        r.envelope("copy part", 1, |_, r| {
            let object = CopiedObject {
                size: r.u64()?,
                mtime: r.get()?,
                user_version: r.u64()?,
                truncate_seq: r.u32()?,
                truncate_size: r.u64()?,
                attrs: r.get()?,
                omap_header: r.get()?,
                omap: r.get()?,
                data: cut(r.get()?, data)?,
                staged: None,
            };
            Ok(Self { object, next: r.get()? })
        })
    }
}

fn cut(extents: Vec<(u64, u64)>, data: &BufList) -> Result<Vec<(u64, BufList)>, DecodeError> {
    let mut start = 0;
    let mut take = |(offset, length): (u64, u64)| {
        let left = data.len() - start;
        let length = usize::try_from(length).ok().filter(|length| *length <= left);
        let length = length.ok_or(DecodeError::Invalid { what: "copy part extent", value: offset })?;
        let part = data.slice(start, length);
        start += length;
        Ok((offset, part))
    };
    extents.into_iter().map(&mut take).collect()
}

/// Reads the part of `object`, a head or a clone, that begins at `cursor` and has about `bytes_max` bytes.
/// `None` when there is no such object.
///
/// # Errors
/// [`ReadError`] when data must come from the device first, or is damaged.
pub fn extract(
    view: &dyn ObjectView,
    collection: &SpgId,
    object: &HObject,
    cursor: &CopyCursor,
    bytes_max: usize,
) -> Result<Option<CopyPart>, ReadError> {
    let context = ObjectContext::load(view, collection, object).ok().filter(ObjectContext::is_visible);
    let Some(ObjectContext { info, .. }) = context else { return Ok(None) };
    let mut part = CopiedObject {
        size: info.size,
        mtime: info.mtime,
        user_version: info.user_version,
        truncate_seq: info.truncate_seq,
        truncate_size: info.truncate_size,
        ..CopiedObject::default()
    };
    if *cursor == CopyCursor::default() {
        part.attrs = view.attrs(collection, object);
        part.omap_header = view.omap_header(collection, object);
    }
    let source = PartSource { view, collection, object };
    let mut next = cursor.clone();
    let left = source.add_data(&mut part, &mut next, bytes_max.max(1))?;
    let done = next.data_done && left > 0 && source.add_omap(&mut part, &mut next, left);
    Ok(Some(CopyPart { object: part, next: (!done).then_some(next) }))
}

struct PartSource<'a> {
    view: &'a dyn ObjectView,
    collection: &'a SpgId,
    object: &'a HObject,
}

impl PartSource<'_> {
    /// Adds data from the cursor on, and moves it; returns how many bytes the part may still take.
    fn add_data(
        &self,
        part: &mut CopiedObject,
        next: &mut CopyCursor,
        room: usize,
    ) -> Result<usize, ReadError> {
        if next.data_done {
            return Ok(room);
        }
        let mut left = room;
        let length = part.size.saturating_sub(next.offset).min(room as u64);
        for (offset, piece) in self.view.extents(self.collection, self.object, next.offset, length) {
            let data = self.view.read(self.collection, self.object, offset, piece);
            let data = data.map_err(|error| together(error, next.offset, length))?;
            left = left.saturating_sub(data.len());
            part.data.push((offset, data));
        }
        next.offset += length;
        next.data_done = next.offset >= part.size;
        Ok(left)
    }

    /// Adds omap entries from the cursor on, and moves it; true when these were the last.
    fn add_omap(&self, part: &mut CopiedObject, next: &mut CopyCursor, room: usize) -> bool {
        let page = self.view.omap_page(self.collection, self.object, &next.omap_from, PART_ENTRIES_MAX, room);
        part.omap = page.entries;
        let last = part.omap.last().filter(|_| page.more);
        if let Some((last, _)) = last {
            // The least key above the last one.
            next.omap_from = [&last[..], &[0]].concat().into();
        }
        last.is_none()
    }
}
