//! Class `cas`: chunks that are stored once, with a count of the objects that refer to them.
//! Formats: Ceph `src/cls/cas/cls_cas_ops.h`, behaviour of v16.2.15. How the references are stored is ours.

use crate::keys::stored;
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Reader};
use nacre_types::{Errno, HObject};
use std::collections::BTreeMap;

pub(crate) static METHODS: &[Method] = &[
    write("chunk_create_or_get_ref", create_or_get_ref).taking_data(),
    write("chunk_get_ref", get_ref),
    write("chunk_put_ref", put_ref),
    read("references_chunk", references_chunk),
];

const ATTR: &str = "chunk_refs";
/// With this flag an existing chunk must have just the given data.
const VERIFY: u64 = 1;
/// Objects that may refer to one chunk: as many as an attribute can hold.
const SOURCES_MAX: usize = 1 << 16;
const ENOMSG: Errno = Errno(42);
const ENOLINK: Errno = Errno(67);

/// How often each object refers to the chunk.
type Refs = BTreeMap<HObject, u64>;

fn load(cx: &dyn ClassCx) -> Result<Refs, Fault> {
    if !cx.exists() {
        return fail(Errno::ENOENT);
    }
    cx.attr(ATTR.as_bytes()).map_or_else(|| Ok(Refs::new()), stored)
}

fn save(cx: &mut dyn ClassCx, refs: &Refs) {
    cx.set_attr(ByteStr::from_static(ATTR), refs.to_bytes());
}

fn add_ref(cx: &mut dyn ClassCx, mut refs: Refs, source: HObject) -> MethodResult {
    *refs.entry(source).or_default() += 1;
    if refs.len() > SOURCES_MAX {
        return fail(Errno::EFBIG);
    }
    save(cx, &refs);
    done()
}

fn create_or_get_ref(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (source, flags, data) =
        Reader::new(bytes).envelope("cls_cas_chunk_create_or_get_ref_op", 1, |_, r| {
            Ok((r.get::<HObject>()?, r.u64()?, r.blob()?))
        })?;
    if !cx.exists() {
        cx.write_full(data.into());
        return add_ref(cx, Refs::new(), source);
    }
    if flags & VERIFY != 0 && cx.read(0, cx.size())? != data {
        return fail(ENOMSG);
    }
    let refs = load(cx)?;
    add_ref(cx, refs, source)
}

fn source_input(bytes: Bytes) -> Result<HObject, Fault> {
    Ok(Reader::new(bytes).envelope("cls_cas_chunk_get_ref_op", 1, |_, r| r.get())?)
}

fn get_ref(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let source = source_input(bytes)?;
    let refs = load(cx)?;
    add_ref(cx, refs, source)
}

/// Drops one reference, and the chunk with the last.
fn put_ref(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let source = source_input(bytes)?;
    let mut refs = load(cx)?;
    let Some(count) = refs.get_mut(&source) else { return fail(ENOLINK) };
    *count -= 1;
    if *count == 0 {
        refs.remove(&source);
    }
    if refs.is_empty() {
        cx.remove();
    } else {
        save(cx, &refs);
    }
    done()
}

/// Whether this object's manifest points at the chunk: we keep no manifests.
fn references_chunk(_: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Reader::new(bytes).str()?;
    fail(ENOLINK)
}
