//! The `rbd-mirror` daemons of a pool, and which of them works on which image.

use crate::keys::{all, input, output, page, page_input, remove, remove_of_existing};
use crate::method::done;
use crate::{ClassCx, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Reader;
use nacre_types::UTime;

const INSTANCE: &str = "instance_";
const MAP: &str = "image_map_";

pub(in crate::rbd) fn list(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let ids: Vec<ByteStr> = all(cx, INSTANCE).into_iter().map(|(id, _)| id).collect();
    output(|w| w.put(&ids))
}

pub(in crate::rbd) fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    cx.omap_set(vec![(format!("{INSTANCE}{id}").into(), Bytes::new())]);
    done()
}

pub(in crate::rbd) fn remove_instance(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    remove_of_existing(cx, format!("{INSTANCE}{id}"))?;
    done()
}

/// `str after, u64 max` -> `map<str global_id, cls::rbd::MirrorImageMap>`
pub(in crate::rbd) fn list_map(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let found = page(cx, MAP, &after, count_max);
    output(|w| {
        w.count(found.len());
        for (id, map) in &found {
            w.put(id);
            w.raw(map);
        }
    })
}

/// `str global_id, ENV{ str instance, utime, blob }`, kept as it came.
pub(in crate::rbd) fn update_map(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (id, map) = (r.str()?, r.rest());
    r.envelope("MirrorImageMap", 1, |_, r| Ok((r.str()?, r.get::<UTime>()?, r.blob()?)))?;
    cx.omap_set(vec![(format!("{MAP}{id}").into(), map)]);
    done()
}

pub(in crate::rbd) fn remove_map(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    remove(cx, format!("{MAP}{id}"));
    done()
}
