//! Live migration: where an image comes from or goes to.

use super::header::{FEATURES, feature};
use crate::keys::{find, get as stored_get, input, remove as stored_remove, set as stored_set};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;
use std::collections::BTreeMap;

const KEY: &str = "migration";

/// `cls::rbd::MigrationSpec`
struct MigrationSpec {
    header_kind: u8,
    pool: i64,
    namespace: ByteStr,
    image_name: ByteStr,
    image_id: ByteStr,
    snap_seqs: BTreeMap<u64, u64>,
    overlap: u64,
    flatten: bool,
    mirroring: bool,
    state: u8,
    description: ByteStr,
    mirror_mode: u8,
    source_spec: ByteStr,
}

impl Encode for MigrationSpec {
    fn encode(&self, w: &mut Writer) {
        // A client that does not know source specs must not take the image for one of this cluster.
        let compat = if self.source_spec.is_empty() { 1 } else { 3 };
        w.envelope(3, compat, |w| {
            w.u8(self.header_kind);
            w.i64(self.pool);
            w.put(&self.namespace);
            w.put(&self.image_name);
            w.put(&self.image_id);
            w.put(&self.snap_seqs);
            w.u64(self.overlap);
            w.bool(self.flatten);
            w.bool(self.mirroring);
            w.u8(self.state);
            w.put(&self.description);
            w.u8(self.mirror_mode);
            w.put(&self.source_spec);
        });
    }
}

impl Decode for MigrationSpec {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MigrationSpec", 3, |version, r| {
            Ok(Self {
                header_kind: r.u8()?,
                pool: r.i64()?,
                namespace: r.get()?,
                image_name: r.get()?,
                image_id: r.get()?,
                snap_seqs: r.get()?,
                overlap: r.u64()?,
                flatten: r.bool()?,
                mirroring: r.bool()?,
                state: r.u8()?,
                description: r.get()?,
                mirror_mode: if version >= 2 { r.u8()? } else { 0 },
                source_spec: if version >= 3 { r.get()? } else { ByteStr::EMPTY },
            })
        })
    }
}

/// Which end of a migration carries the spec: the target may have been marked when it was created.
const TARGET: u8 = 2;

/// The features of the header.
///
/// # Errors
/// `ENXIO` for what is none. (Ceph would look for a header of format 1, which we have not got.)
fn features(cx: &dyn ClassCx) -> Result<u64, Fault> {
    find(cx, FEATURES)?.ok_or(Fault::Errno(Errno::ENXIO))
}

fn load(cx: &dyn ClassCx) -> Result<MigrationSpec, Fault> {
    if features(cx)? & feature::MIGRATING == 0 {
        return fail(Errno::EINVAL);
    }
    stored_get(cx, KEY)
}

pub(super) fn set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let spec: MigrationSpec = input(bytes)?;
    if cx.omap_value(KEY.as_bytes()).is_some() {
        return fail(Errno::EEXIST);
    }
    let features = features(cx)?;
    if features & feature::MIGRATING != 0 && spec.header_kind != TARGET {
        return fail(Errno::EEXIST);
    }
    stored_set(cx, FEATURES, &(features | feature::MIGRATING));
    stored_set(cx, KEY, &spec);
    done()
}

pub(super) fn set_state(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (state, description): (u8, ByteStr) = input(bytes)?;
    let mut spec = load(cx)?;
    spec.state = state;
    spec.description = description;
    stored_set(cx, KEY, &spec);
    done()
}

pub(super) fn get(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    Ok(load(cx)?.to_bytes())
}

pub(super) fn remove(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let features = features(cx)?;
    stored_remove(cx, KEY);
    if features & feature::MIGRATING != 0 {
        stored_set(cx, FEATURES, &(features & !feature::MIGRATING));
    }
    done()
}
