//! Queues: class `queue` is one; class `2pc_queue` one whose room is reserved first, as bucket notifications use it; class
//! `rgw_gc` one of garbage.
//!
//! Formats: Ceph `src/cls/queue/`, `src/cls/2pc_queue/`, `src/cls/rgw_gc/`; behaviour measured at v16.2.15.

mod garbage;
mod reserved;
mod ring;

pub(crate) use garbage::METHODS as GARBAGE_METHODS;
pub(crate) use reserved::METHODS as RESERVED_METHODS;

use crate::keys::output;
use crate::method::{Method, done, read, write, write_only};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Reader;
use ring::Ring;

pub(crate) static METHODS: &[Method] = &[
    write_only("queue_init", init),
    read("queue_get_capacity", get_capacity),
    write("queue_enqueue", enqueue).taking_data(),
    read("queue_list_entries", list_entries),
    write("queue_remove_entries", remove_entries),
];

/// The attribute for what does not fit into the head any more.
const SPILL_ATTR: &str = "cls_queue_urgent_data";

/// `u64 bytes, u64 user_bytes_max, blob user_data`
fn init_input(bytes: Bytes) -> Result<(u64, u64, Bytes), Fault> {
    Ok(Reader::new(bytes).envelope("cls_queue_init_op", 1, |_, r| Ok((r.u64()?, r.u64()?, r.blob()?)))?)
}

fn init(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (room, user_bytes_max, user_data) = init_input(bytes)?;
    Ring::create(cx, room, user_bytes_max, user_data)?;
    done()
}

fn get_capacity(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let ring = Ring::load(cx)?;
    output(|w| w.envelope(1, 1, |w| w.u64(ring.capacity())))
}

/// `vec<blob>`
fn enqueue(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let entries: Vec<Bytes> = Reader::new(bytes).envelope("cls_queue_enqueue_op", 1, |_, r| r.get())?;
    let mut ring = Ring::load(cx)?;
    ring.enqueue(cx, entries)?;
    ring.save(cx);
    done()
}

/// `u64 max, str from`
fn list_entries(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (count_max, from): (u64, ByteStr) =
        Reader::new(bytes).envelope("cls_queue_list_op", 1, |_, r| Ok((r.u64()?, r.str()?)))?;
    let page = Ring::load(cx)?.list(cx, &from, count_max)?;
    output(|w| {
        w.envelope(1, 1, |w| {
            w.bool(page.more);
            w.put(&page.next.to_text());
            w.count(page.entries.len());
            for entry in &page.entries {
                w.envelope(1, 1, |w| {
                    w.put(&entry.data);
                    w.put(&entry.marker.to_text());
                });
            }
        });
    })
}

/// `str end`
fn remove_entries(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let end = Reader::new(bytes).envelope("cls_queue_remove_op", 1, |_, r| r.str())?;
    let mut ring = Ring::load(cx)?;
    ring.remove(cx, &end)?;
    ring.save(cx);
    done()
}
