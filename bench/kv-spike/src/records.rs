//! Keys and values as a `BlockStore` makes them (`docs/formats/blockstore.md`): an object has a name and an onode, and one of some has a
//! second page of blocks.
//!
//! | record | key | value |
//! | --- | --- | --- |
//! | name | `n`, PG, reversed hash, the name twice: 128 bytes | number, name: 83 bytes |
//! | onode | `o`, number: 9 bytes | 200 bytes of object info, an attribute, a page with 32 checksums: 384 bytes |
//! | page | `o`, number, page: 13 bytes | 32 checksums: 144 bytes |
//!
//! What a change makes new is filled with random bytes: checksums and places do not compress either.

use bytes::Bytes;
use nacre_denc::Writer;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, HObject, SpgId};

/// PGs of the pool.
const PGS: u32 = 64;
const POOL: i64 = 1;
const ONODE_BYTES: usize = 384;
const PAGE_BYTES: usize = 144;
/// Under which names are.
pub(crate) const NAMES: u8 = b'n';
/// Under which onodes and pages are.
pub(crate) const OBJECTS: u8 = b'o';

/// The name of the object with this number.
pub(crate) fn name_of(object: u64) -> HObject {
    HObject::head(POOL, "".into(), "".into(), format!("rbd_data.1234567890.{object:016x}").into())
}

fn ascending(w: &mut Writer, number: u64) {
    w.u64(number.swap_bytes());
}

fn ordered(w: &mut Writer, text: &[u8]) {
    w.raw(text);
    w.raw(&[0, 0]);
}

/// Where the name of an object leads to its number. Names sort as objects are listed.
pub(crate) fn name_key(name: &HObject) -> Bytes {
    let mut w = Writer::with_capacity(160);
    w.u8(NAMES);
    w.put(&SpgId::replicated(name.pg(PGS)));
    w.u8(0);
    ascending(&mut w, name.pool.cast_unsigned() ^ (1 << 63));
    ascending(&mut w, name.bitwise_key().into());
    ordered(&mut w, &name.namespace);
    ordered(&mut w, &name.name);
    ordered(&mut w, &name.name);
    ascending(&mut w, name.snap.0);
    w.finish()
}

/// What is under a name.
pub(crate) fn name_value(object: u64, name: &HObject) -> Bytes {
    let mut w = Writer::with_capacity(128);
    w.u64(object);
    w.put(name);
    w.finish()
}

/// Where an object's onode is.
pub(crate) fn onode_key(object: u64) -> Bytes {
    let mut w = Writer::with_capacity(9);
    w.u8(OBJECTS);
    ascending(&mut w, object);
    w.finish()
}

/// Where an object's second page of blocks is.
pub(crate) fn page_key(object: u64) -> Bytes {
    let mut w = Writer::with_capacity(13);
    w.u8(OBJECTS);
    ascending(&mut w, object);
    w.u32(1_u32.swap_bytes());
    w.finish()
}

/// An onode with the next state of its object.
pub(crate) fn onode_value(random: &mut SeededEntropy) -> Bytes {
    value(ONODE_BYTES, random)
}

/// A page of blocks, likewise.
pub(crate) fn page_value(random: &mut SeededEntropy) -> Bytes {
    value(PAGE_BYTES, random)
}

fn value(length: usize, random: &mut SeededEntropy) -> Bytes {
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes.into()
}
