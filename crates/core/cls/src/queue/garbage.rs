//! Class `rgw_gc`: a queue of chains of objects that are to be removed. Chains that are put off keep their place in it; the
//! head, and where that has no room an attribute, says until when.

use super::SPILL_ATTR;
use super::ring::Ring;
use crate::keys::input;
use crate::method::{Method, done, fail, read, write};
use crate::rgw::garbage::{Chain, LISTED_USUAL, ListOp, chain_input, list_output};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};
use std::collections::BTreeMap;

pub(crate) static METHODS: &[Method] = &[
    write("rgw_gc_queue_init", init),
    write("rgw_gc_queue_enqueue", enqueue),
    read("rgw_gc_queue_list_entries", list_entries),
    write("rgw_gc_queue_remove_entries", remove_entries),
    write("rgw_gc_queue_update_entry", update_entry),
];

/// Bytes for deferred chains in the head: `rgw_gc_max_deferred_entries_size`.
const DEFERRED_BYTES_MAX: u64 = 3072;

type Times = BTreeMap<ByteStr, UTime>;

/// `cls_rgw_gc_urgent_data`. In what order the times are stored means nothing.
#[derive(Default)]
struct Deferred {
    /// New time by tag.
    times: Times,
    count_max: u32,
    count_in_head: u32,
    count_spilled: u32,
}

impl Encode for Deferred {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.times);
            w.u32(self.count_max);
            w.u32(self.count_in_head);
            w.u32(self.count_spilled);
        });
    }
}

impl Decode for Deferred {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_gc_urgent_data", 1, |_, r| {
            Ok(Self {
                times: r.get()?,
                count_max: r.u32()?,
                count_in_head: r.u32()?,
                count_spilled: r.u32()?,
            })
        })
    }
}

/// The times that did not fit into the head.
fn spilled(cx: &dyn ClassCx) -> Result<Option<Times>, Fault> {
    Ok(cx.attr(SPILL_ATTR.as_bytes()).map(Times::from_bytes).transpose()?)
}

fn spill(cx: &mut dyn ClassCx, times: &Times) {
    cx.set_attr(ByteStr::from_static(SPILL_ATTR), times.to_bytes());
}

impl Deferred {
    fn load(ring: &Ring) -> Result<Self, Fault> {
        if ring.user_data.is_empty() { Ok(Self::default()) } else { input(ring.user_data.clone()) }
    }

    /// Both kinds of times, as they are read.
    fn all(&self, cx: &dyn ClassCx) -> Result<Times, Fault> {
        let mut all = if self.count_spilled > 0 { spilled(cx)?.unwrap_or_default() } else { Times::new() };
        all.extend(self.times.iter().map(|(tag, time)| (tag.clone(), *time)));
        Ok(all)
    }

    /// Forgets a chain that goes from the queue.
    fn forget(&mut self, tag: &ByteStr) {
        if self.times.remove(tag).is_some() {
            self.count_in_head = self.count_in_head.wrapping_sub(1);
        } else {
            self.count_spilled = self.count_spilled.wrapping_sub(1);
        }
    }
}

/// `u64 bytes, u64 deferred_max`
fn init(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (room, deferred_max) =
        Reader::new(bytes).envelope("cls_rgw_gc_queue_init_op", 1, |_, r| Ok((r.u64()?, r.u64()?)))?;
    #[expect(clippy::cast_possible_truncation, reason = "as Ceph keeps it")]
    let deferred = Deferred { count_max: deferred_max as u32, ..Deferred::default() };
    Ring::create(cx, room, DEFERRED_BYTES_MAX, deferred.to_bytes())?;
    done()
}

/// `u32 seconds, chain`
fn enqueue(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let chain = chain_input(cx, bytes)?;
    let mut ring = Ring::load(cx)?;
    ring.enqueue(cx, vec![chain.to_bytes()])?;
    ring.save(cx);
    done()
}

/// Chains that are not deferred; with `expired_only` those of them whose time has come, out of as many.
fn list_entries(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let op: ListOp = input(bytes)?;
    let ring = Ring::load(cx)?;
    let deferred = Deferred::load(&ring)?.all(cx)?;
    let (mut from, mut left) = (op.after, u64::from(op.count_max));
    let mut chains = Vec::new();
    loop {
        let page = ring.list(cx, &from, left)?;
        from = page.next.to_text();
        for entry in &page.entries {
            let chain: Chain = input(entry.data.clone())?;
            if deferred.get(&chain.tag).is_some_and(|time| *time > chain.time) {
                continue;
            }
            left -= 1;
            if !op.expired_only || chain.time <= cx.now() {
                chains.push(chain);
            }
        }
        if left == 0 || !page.more || page.entries.is_empty() {
            let marker = if page.more { from } else { ByteStr::EMPTY };
            return list_output(&chains, &marker, page.more);
        }
    }
}

/// `u64 count`: removes the oldest chains, so many without those that are deferred, and the deferred ones among them.
fn remove_entries(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let count = Reader::new(bytes).envelope("cls_rgw_gc_queue_remove_entries_op", 1, |_, r| r.u64())?;
    let mut ring = Ring::load(cx)?;
    let mut deferred = Deferred::load(&ring)?;
    let times = deferred.all(cx)?;
    // The one behind them says where they end.
    let mut left = if count == 0 { LISTED_USUAL.into() } else { count }.saturating_add(1);
    let mut from = ByteStr::EMPTY;
    let end = loop {
        let page = ring.list(cx, &from, left)?;
        from = page.next.to_text();
        for entry in &page.entries {
            let chain: Chain = input(entry.data.clone())?;
            match times.get(&chain.tag) {
                Some(time) if *time > chain.time => continue,
                Some(time) if *time == chain.time => deferred.forget(&chain.tag),
                _ => {}
            }
            left -= 1;
        }
        let Some(last) = page.entries.last() else { break None };
        if left == 0 {
            break Some(last.marker.to_text());
        }
        if !page.more {
            break Some(from);
        }
    };
    if let Some(end) = end {
        ring.remove(cx, &end)?;
    }
    ring.user_data = deferred.to_bytes();
    ring.save(cx);
    done()
}

/// `u32 seconds, chain`: defers a chain.
fn update_entry(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let Chain { tag, time, .. } = chain_input(cx, bytes)?;
    let mut ring = Ring::load(cx)?;
    let mut deferred = Deferred::from_bytes(ring.user_data.clone())?;
    if let Some(old) = deferred.times.get_mut(&tag) {
        *old = time;
    } else {
        let mut others = spilled(cx)?.unwrap_or_default();
        if let Some(old) = others.get_mut(&tag) {
            *old = time;
            spill(cx, &others);
        } else {
            deferred.times.insert(tag.clone(), time);
            deferred.count_in_head = deferred.count_in_head.wrapping_add(1);
            if deferred.to_bytes().len() as u64 > ring.user_bytes_max {
                deferred.times.remove(&tag);
                deferred.count_in_head = deferred.count_in_head.wrapping_sub(1);
                deferred.count_spilled = deferred.count_spilled.wrapping_add(1);
                others.insert(tag, time);
                spill(cx, &others);
            }
        }
    }
    if deferred.count_in_head.wrapping_add(deferred.count_spilled) > deferred.count_max {
        return fail(Errno::ENOSPC);
    }
    ring.user_data = deferred.to_bytes();
    ring.save(cx);
    done()
}
