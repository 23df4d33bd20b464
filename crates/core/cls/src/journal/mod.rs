//! Class `journal`: the header of a journal (clients, tags, the range of live objects) and appends to its
//! data objects. librbd keeps one journal per image that has the feature "journaling".
//!
//! Facts: Ceph `src/cls/journal/cls_journal.cc` and `cls_journal_types.cc`, v16.2.15. Omap keys carry Ceph's names.

mod client;
mod clients;
mod tags;
#[cfg(test)]
mod tests;

use crate::keys::{get, input, output, set};
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, MethodResult};
use nacre_buf::Bytes;
use nacre_denc::Reader;
use nacre_types::Errno;

pub(crate) static METHODS: &[Method] = &[
    write("create", create),
    read("get_order", get_order),
    read("get_splay_width", get_splay_width),
    read("get_pool_id", get_pool_id),
    read("get_minimum_set", get_minimum_set),
    write("set_minimum_set", set_minimum_set),
    read("get_active_set", get_active_set),
    write("set_active_set", set_active_set),
    read("get_client", clients::get_client),
    write("client_register", clients::register),
    write("client_update_data", clients::update_data),
    write("client_update_state", clients::update_state),
    write("client_unregister", clients::unregister),
    write("client_commit", clients::commit),
    read("client_list", clients::list),
    read("get_next_tag_tid", tags::get_next_tag_tid),
    read("get_tag", tags::get_tag),
    write("tag_create", tags::create),
    read("tag_list", tags::list),
    write("guard_append", guard_append),
    write("append", append),
];

const ORDER: &str = "order";
const SPLAY_WIDTH: &str = "splay_width";
const POOL_ID: &str = "pool_id";
const MINIMUM_SET: &str = "minimum_set";
const ACTIVE_SET: &str = "active_set";
const NEXT_TAG_TID: &str = "next_tag_tid";
const NEXT_TAG_CLASS: &str = "next_tag_class";

/// `u8 order, u8 splay_width, s64 pool`
fn create(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (order, splay_width, pool) = (r.u8()?, r.u8()?, r.i64()?);
    if cx.omap_value(ORDER.as_bytes()).is_some() {
        return fail(Errno::EEXIST);
    }
    set(cx, ORDER, &order);
    set(cx, SPLAY_WIDTH, &splay_width);
    set(cx, POOL_ID, &pool);
    for counter in [ACTIVE_SET, MINIMUM_SET, NEXT_TAG_TID, NEXT_TAG_CLASS] {
        set(cx, counter, &0_u64);
    }
    done()
}

fn get_order(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let order: u8 = get(cx, ORDER)?;
    output(|w| w.u8(order))
}

fn get_splay_width(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let width: u8 = get(cx, SPLAY_WIDTH)?;
    output(|w| w.u8(width))
}

fn get_pool_id(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let pool: i64 = get(cx, POOL_ID)?;
    output(|w| w.i64(pool))
}

fn get_minimum_set(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let set: u64 = get(cx, MINIMUM_SET)?;
    output(|w| w.u64(set))
}

fn get_active_set(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let set: u64 = get(cx, ACTIVE_SET)?;
    output(|w| w.u64(set))
}

/// The minimum moves up, at most to the active set.
fn set_minimum_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: u64 = input(bytes)?;
    if wanted > get::<u64>(cx, ACTIVE_SET)? {
        return fail(Errno::EINVAL);
    }
    raise(cx, MINIMUM_SET, wanted)
}

/// The active set moves up, and starts at the minimum.
fn set_active_set(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let wanted: u64 = input(bytes)?;
    if wanted < get::<u64>(cx, MINIMUM_SET)? {
        return fail(Errno::EINVAL);
    }
    raise(cx, ACTIVE_SET, wanted)
}

fn raise(cx: &mut dyn ClassCx, key: &str, wanted: u64) -> MethodResult {
    if wanted < get::<u64>(cx, key)? {
        return fail(Errno::ESTALE);
    }
    set(cx, key, &wanted);
    done()
}

/// Refuses an append that follows in the same message once the data object has its size.
fn guard_append(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let size_max: u64 = input(bytes)?;
    if cx.exists() && cx.size() >= size_max { fail(Errno::EOVERFLOW) } else { done() }
}

/// `u64 soft_max, blob data`: appends unless the object has its size; the last append may go over it.
fn append(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (size_max, data) = (r.u64()?, r.blob()?);
    let size = if cx.exists() { cx.size() } else { 0 };
    if size >= size_max {
        return fail(Errno::EOVERFLOW);
    }
    cx.write(size, data.into());
    done()
}
