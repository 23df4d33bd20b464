//! Class `2pc_queue`: a queue in which room is reserved before the work whose notification it will take.

use super::ring::{OVERHEAD_BYTES, Ring};
use super::{SPILL_ATTR, get_capacity, init_input, list_entries, remove_entries};
use crate::keys::output;
use crate::method::{Method, done, fail, read, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime};
use std::collections::BTreeMap;

pub(crate) static METHODS: &[Method] = &[
    write("2pc_queue_init", init),
    read("2pc_queue_get_capacity", get_capacity),
    write("2pc_queue_reserve", reserve),
    write("2pc_queue_commit", commit).taking_data(),
    write("2pc_queue_abort", abort),
    read("2pc_queue_list_reservations", list_reservations),
    read("2pc_queue_list_entries", list_entries),
    write("2pc_queue_remove_entries", remove_entries),
    write("2pc_queue_expire_reservations", expire_reservations),
];

/// Bytes for reservations in the head: some thousand.
const RESERVATIONS_BYTES_MAX: u64 = 23552;

/// `cls_2pc_reservation`
#[derive(Clone, Copy)]
struct Reservation {
    bytes: u64,
    since: UTime,
}

impl Encode for Reservation {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.bytes);
            w.put(&self.since);
        });
    }
}

impl Decode for Reservation {
    const MIN_BYTES: usize = 22;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_2pc_reservation", 1, |_, r| Ok(Self { bytes: r.u64()?, since: r.get()? }))
    }
}

type Reservations = BTreeMap<u32, Reservation>;

/// `cls_2pc_urgent_data`. In what order reservations are stored means nothing.
#[derive(Default)]
struct State {
    bytes_reserved: u64,
    last_id: u32,
    reservations: Reservations,
    /// There may be more in the attribute.
    spilled: bool,
}

impl Encode for State {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.bytes_reserved);
            w.u32(self.last_id);
            w.put(&self.reservations);
            w.bool(self.spilled);
        });
    }
}

impl Decode for State {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_2pc_urgent_data", 1, |_, r| {
            Ok(Self {
                bytes_reserved: r.u64()?,
                last_id: r.u32()?,
                reservations: r.get()?,
                spilled: r.bool()?,
            })
        })
    }
}

/// A queue with its reservations.
struct Queue {
    ring: Ring,
    state: State,
}

impl Queue {
    fn load(cx: &dyn ClassCx) -> Result<Self, Fault> {
        let ring = Ring::load(cx)?;
        let state = State::from_bytes(ring.user_data.clone())?;
        Ok(Self { ring, state })
    }

    fn save(mut self, cx: &mut dyn ClassCx) {
        self.ring.user_data = self.state.to_bytes();
        self.ring.save(cx);
    }

    /// The reservations that did not fit into the head.
    fn spilled(&self, cx: &dyn ClassCx) -> Result<Reservations, Fault> {
        let value = if self.state.spilled { cx.attr(SPILL_ATTR.as_bytes()) } else { None };
        Ok(value.map(Reservations::from_bytes).transpose()?.unwrap_or_default())
    }

    /// Takes a reservation away; none when there is none of this id.
    fn take(&mut self, cx: &mut dyn ClassCx, id: u32) -> Result<Option<Reservation>, Fault> {
        if let Some(found) = self.state.reservations.remove(&id) {
            return Ok(Some(found));
        }
        let mut spilled = self.spilled(cx)?;
        let found = spilled.remove(&id);
        if found.is_some() {
            spill(cx, &spilled);
        }
        Ok(found)
    }
}

fn spill(cx: &mut dyn ClassCx, reservations: &Reservations) {
    cx.set_attr(ByteStr::from_static(SPILL_ATTR), reservations.to_bytes());
}

fn init(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (room, _, _) = init_input(bytes)?;
    Ring::create(cx, room, RESERVATIONS_BYTES_MAX, State::default().to_bytes())?;
    done()
}

/// `u64 bytes, u32 entries` -> `u32 id`
fn reserve(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (wanted, entries) =
        Reader::new(bytes).envelope("cls_2pc_queue_reserve_op", 1, |_, r| Ok((r.u64()?, r.u32()?)))?;
    if wanted == 0 || entries == 0 {
        return fail(Errno::EINVAL);
    }
    let mut queue = Queue::load(cx)?;
    let overhead = u64::from(entries) * OVERHEAD_BYTES;
    let reserved = wanted.saturating_add(queue.state.bytes_reserved).saturating_add(overhead);
    if reserved > queue.ring.free() {
        return fail(Errno::ENOSPC);
    }
    let state = &mut queue.state;
    state.bytes_reserved = reserved;
    state.last_id = state.last_id.wrapping_add(1);
    let (id, reservation) = (state.last_id, Reservation { bytes: wanted, since: cx.now() });
    if state.reservations.contains_key(&id) {
        return fail(Errno::EAGAIN); // of four thousand million before
    }
    state.reservations.insert(id, reservation);
    if state.to_bytes().len() as u64 > queue.ring.user_bytes_max {
        state.reservations.remove(&id);
        state.spilled = true;
        let mut spilled = queue.spilled(cx)?;
        if spilled.insert(id, reservation).is_some() {
            return fail(Errno::EAGAIN);
        }
        spill(cx, &spilled);
    }
    queue.save(cx);
    output(|w| w.envelope(1, 1, |w| w.u32(id)))
}

/// `u32 id, vec<blob>`
fn commit(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, entries) = Reader::new(bytes)
        .envelope("cls_2pc_queue_commit_op", 1, |_, r| Ok((r.u32()?, r.get::<Vec<Bytes>>()?)))?;
    let mut queue = Queue::load(cx)?;
    let Some(reservation) = queue.take(cx, id)? else { return fail(Errno::ENOENT) };
    let size: u64 = entries.iter().map(|entry| entry.len() as u64).sum();
    if size > reservation.bytes {
        return fail(Errno::EINVAL);
    }
    queue.ring.enqueue(cx, entries)?;
    queue.state.bytes_reserved = queue.state.bytes_reserved.wrapping_sub(reservation.bytes);
    queue.save(cx);
    done()
}

/// `u32 id`
fn abort(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id = Reader::new(bytes).envelope("cls_2pc_queue_abort_op", 1, |_, r| r.u32())?;
    let mut queue = Queue::load(cx)?;
    if let Some(reservation) = queue.take(cx, id)? {
        queue.state.bytes_reserved = queue.state.bytes_reserved.wrapping_sub(reservation.bytes);
        queue.save(cx);
    }
    done()
}

fn list_reservations(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let queue = Queue::load(cx)?;
    let mut all = queue.spilled(cx)?;
    all.extend(queue.state.reservations);
    output(|w| w.envelope(1, 1, |w| w.put(&all)))
}

/// `utime`: gives up all reservations that are older.
fn expire_reservations(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let oldest: UTime = Reader::new(bytes).envelope("cls_2pc_queue_expire_op", 1, |_, r| r.get())?;
    let mut queue = Queue::load(cx)?;
    let mut spilled = queue.spilled(cx)?;
    let mut freed = 0_u64;
    let mut keep = |_: &u32, reservation: &mut Reservation| {
        let is_kept = reservation.since >= oldest;
        freed = freed.wrapping_add(if is_kept { 0 } else { reservation.bytes });
        is_kept
    };
    let count = spilled.len();
    queue.state.reservations.retain(&mut keep);
    spilled.retain(&mut keep);
    if spilled.len() < count {
        spill(cx, &spilled);
    }
    if freed > 0 {
        queue.state.bytes_reserved = queue.state.bytes_reserved.wrapping_sub(freed);
        queue.save(cx);
    }
    done()
}
