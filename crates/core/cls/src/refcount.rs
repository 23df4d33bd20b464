//! Class `refcount`: an object that goes away with its last reference.
//! Formats: Ceph `src/cls/refcount/cls_refcount_ops.h`, v16.2.15.

use crate::keys::{output, stored};
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) static METHODS: &[Method] =
    &[write("get", get), write("put", put), write("set", set), read("read", read_refs)];

const ATTR: &str = "refcount";

/// `obj_refcount`: tags that refer to the object, and tags that did and must not count again.
#[derive(Default)]
struct Refs {
    tags: BTreeMap<ByteStr, bool>,
    retired: BTreeSet<ByteStr>,
}

impl Encode for Refs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.tags);
            w.put(&self.retired);
        });
    }
}

impl Decode for Refs {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("obj_refcount", 2, |version, r| {
            let tags = r.get()?;
            Ok(Self { tags, retired: if version >= 2 { r.get()? } else { BTreeSet::new() } })
        })
    }
}

/// An object that was never counted has, with `implicit`, one reference under the empty tag.
///
/// # Errors
/// `ENOENT` without the object: counting never makes one.
fn load(cx: &dyn ClassCx, implicit: bool) -> Result<Refs, Fault> {
    if !cx.exists() {
        return fail(Errno::ENOENT);
    }
    match cx.attr(ATTR.as_bytes()) {
        Some(value) => stored(value),
        None if implicit => Ok(Refs { tags: [(ByteStr::EMPTY, true)].into(), ..Refs::default() }),
        None => Ok(Refs::default()),
    }
}

fn save(cx: &mut dyn ClassCx, refs: &Refs) {
    cx.set_attr(ByteStr::from_static(ATTR), refs.to_bytes());
}

fn tag_input(bytes: Bytes) -> Result<(ByteStr, bool), Fault> {
    Ok(Reader::new(bytes).envelope("cls_refcount_op", 1, |_, r| Ok((r.str()?, r.bool()?)))?)
}

fn get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (tag, implicit) = tag_input(bytes)?;
    let mut refs = load(cx, implicit)?;
    refs.tags.insert(tag, true);
    save(cx, &refs);
    done()
}

fn put(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (tag, implicit) = tag_input(bytes)?;
    let mut refs = load(cx, implicit)?;
    if refs.tags.is_empty() {
        return fail(Errno::EINVAL);
    }
    if refs.retired.contains(&tag) {
        return done();
    }
    let mut found = refs.tags.remove(&tag).is_some();
    if !found && implicit {
        // The reference that was there before anybody counted.
        found = refs.tags.remove(&ByteStr::EMPTY).is_some();
    }
    if !found {
        return done();
    }
    refs.retired.insert(tag);
    if refs.tags.is_empty() {
        cx.remove();
    } else {
        save(cx, &refs);
    }
    done()
}

fn set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let tags: Vec<ByteStr> = Reader::new(bytes).envelope("cls_refcount_set_op", 1, |_, r| r.get())?;
    if tags.is_empty() {
        load(cx, false)?;
        cx.remove();
        return done();
    }
    save(cx, &Refs { tags: tags.into_iter().map(|tag| (tag, true)).collect(), retired: BTreeSet::new() });
    done()
}

fn read_refs(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let implicit = Reader::new(bytes).envelope("cls_refcount_read_op", 1, |_, r| r.bool())?;
    let tags: Vec<ByteStr> = load(cx, implicit)?.tags.into_keys().collect();
    output(|w| w.envelope(1, 1, |w| w.put(&tags)))
}
