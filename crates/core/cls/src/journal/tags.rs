//! Tags of a journal: each marks which client wrote the entries that carry it. Tags of one origin share a class.

use super::client::Client;
use super::{NEXT_TAG_CLASS, NEXT_TAG_TID};
use crate::keys::{all, get, input, output, remove, set, stored};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;
use std::collections::BTreeMap;

const PREFIX: &str = "tag_";
/// Instead of a class: give the tag a new one.
const CLASS_NEW: u64 = u64::MAX;

/// `cls::journal::Tag`
struct Tag {
    tid: u64,
    class: u64,
    data: Bytes,
}

impl Encode for Tag {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.tid);
            w.u64(self.class);
            w.put(&self.data);
        });
    }
}

impl Decode for Tag {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Tag", 1, |_, r| Ok(Self { tid: r.u64()?, class: r.u64()?, data: r.get()? }))
    }
}

fn key(tid: u64) -> String {
    format!("{PREFIX}{tid:016x}")
}

/// All tags, ascending by tid.
fn load_all(cx: &dyn ClassCx) -> Result<Vec<Tag>, Fault> {
    all(cx, PREFIX).into_iter().map(|(_, value)| stored(value)).collect()
}

/// Per class the tag that was in force at `tid`: older ones of the class are over.
fn in_force(tags: &[Tag], tid: u64) -> BTreeMap<u64, u64> {
    let first_behind = tags.iter().position(|tag| tag.tid >= tid);
    let seen = first_behind.map_or(tags, |index| &tags[..=index]);
    seen.iter().map(|tag| (tag.class, tag.tid)).collect()
}

/// Removes tags that no client needs, `leaving` no longer being one.
pub(super) fn expire(cx: &mut dyn ClassCx, leaving: Option<&ByteStr>) -> Result<(), Fault> {
    let mut least = u64::MAX;
    for client in Client::all(cx)? {
        if leaving == Some(&client.id) || client.is_disconnected() {
            continue;
        }
        // One that has not committed anything yet may need every tag.
        let Some(tid) = client.committed().iter().map(|position| position.tag_tid).min() else {
            return Ok(());
        };
        least = least.min(tid);
    }
    if least == u64::MAX {
        return Ok(());
    }
    let tags = load_all(cx)?;
    let needed = in_force(&tags, least);
    for tag in tags.iter().take_while(|tag| tag.tid < least) {
        if needed.get(&tag.class).is_some_and(|first| tag.tid < *first) {
            remove(cx, key(tag.tid));
        }
    }
    Ok(())
}

pub(super) fn get_next_tag_tid(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let tid: u64 = get(cx, NEXT_TAG_TID)?;
    output(|w| w.u64(tid))
}

pub(super) fn get_tag(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Ok(get::<Tag>(cx, &key(input(bytes)?))?.to_bytes())
}

/// `u64 tid, u64 class, blob data`; the tid must be the next one.
pub(super) fn create(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (tid, wanted_class, data) = (r.u64()?, r.u64()?, r.blob()?);
    if cx.omap_value(key(tid).as_bytes()).is_some() {
        return fail(Errno::EEXIST);
    }
    if tid != get::<u64>(cx, NEXT_TAG_TID)? {
        return fail(Errno::ESTALE);
    }
    let next_class: u64 = get(cx, NEXT_TAG_CLASS)?;
    let class = if wanted_class == CLASS_NEW { next_class } else { wanted_class };
    if wanted_class == CLASS_NEW {
        set(cx, NEXT_TAG_CLASS, &next_class.wrapping_add(1));
    } else if class >= next_class {
        return fail(Errno::EINVAL);
    }
    expire(cx, None)?;
    set(cx, NEXT_TAG_TID, &tid.wrapping_add(1));
    set(cx, key(tid), &Tag { tid, class, data });
    done()
}

/// `u64 after (0: from the start), u64 max, str client, opt<u64> class`: the tags that this client still needs.
pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (after, count_max, id) = (r.u64()?, r.u64()?, r.str()?);
    let class: Option<u64> = r.get()?;
    let client = Client::load(cx, &id)?;
    let least = client.committed().iter().map(|position| position.tag_tid).min();
    let tags = load_all(cx)?;
    let needed = least.map(|tid| in_force(&tags, tid)).unwrap_or_default();
    let mut found: Vec<&Tag> = Vec::new();
    for tag in tags.iter().filter(|tag| after == 0 || tag.tid > after) {
        let first = needed.get(&tag.class).copied().unwrap_or(0);
        if tag.tid >= first && class.is_none_or(|class| class == tag.class) {
            found.push(tag);
        }
        if found.len() as u64 >= count_max {
            break;
        }
    }
    output(|w| {
        w.count(found.len());
        found.iter().for_each(|tag| w.put(*tag));
    })
}
