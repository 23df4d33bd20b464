//! The trash: images on their way out, or kept until later.

use super::names::{id_key, is_valid_id};
use crate::keys::{find, get as stored_get, input, output, page, page_input, remove as stored_remove, set};
use crate::method::{done, fail};
use crate::{ClassCx, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};

/// `cls::rbd::TrashImageSpec`
struct TrashSpec {
    source: u8,
    name: ByteStr,
    deleted: UTime,
    deferment_end: UTime,
    state: u8,
}

impl Encode for TrashSpec {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.u8(self.source);
            w.put(&self.name);
            w.put(&self.deleted);
            w.put(&self.deferment_end);
            w.u8(self.state);
        });
    }
}

impl Decode for TrashSpec {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("TrashImageSpec", 2, |version, r| {
            Ok(Self {
                source: r.u8()?,
                name: r.get()?,
                deleted: r.get()?,
                deferment_end: r.get()?,
                state: if version >= 2 { r.u8()? } else { 0 },
            })
        })
    }
}

pub(super) fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (id, spec): (ByteStr, TrashSpec) = (r.get()?, r.get()?);
    if !is_valid_id(&id) {
        return fail(Errno::EINVAL);
    }
    if find::<TrashSpec>(cx, &id_key(&id))?.is_some() {
        return fail(Errno::EEXIST);
    }
    set(cx, id_key(&id), &spec);
    done()
}

pub(super) fn remove(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    stored_get::<TrashSpec>(cx, &id_key(&id))?;
    stored_remove(cx, id_key(&id));
    done()
}

pub(super) fn get(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    Ok(stored_get::<TrashSpec>(cx, &id_key(&id))?.to_bytes())
}

pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let found = page(cx, "id_", &after, count_max);
    output(|w| {
        w.count(found.len());
        for (id, spec) in &found {
            w.put(id);
            w.raw(spec);
        }
    })
}

pub(super) fn state_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (id, state, expected) = (r.str()?, r.u8()?, r.u8()?);
    let mut spec: TrashSpec = stored_get(cx, &id_key(&id))?;
    if spec.state == expected {
        spec.state = state;
        set(cx, id_key(&id), &spec);
    } else if spec.state != state {
        return fail(Errno::ESTALE);
    }
    done()
}
