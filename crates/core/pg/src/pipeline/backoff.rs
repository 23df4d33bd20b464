//! [`Backoffs`]: clients told to hold what could only wait here.
//!
//! A PG that cannot serve for as long as some OSD stays away, or lacks an object that no copy has, keeps no
//! messages for that time: it drops them, and tells each client that can (`RADOS_BACKOFF`) to hold its
//! messages on a range of objects and to send them again when told to.
//!
//! ```text
//!  client                          PG
//!     --- op 1, op 2 ------------>
//!     <-- BLOCK(id, range) -------  op 1 dropped; so is op 2, which the client sent before it knew
//!     --- ACK_BLOCK(id) --------->  nothing of the range comes from here on
//!     <-- UNBLOCK(id) ------------  the PG serves again
//!     --- op 1, op 2 ------------>
//! ```
//! When UNBLOCK goes out before the acknowledgement has come, what comes before that is dropped all the same: it
//! was sent before, and would overtake what was dropped. Ceph `PG::add_backoff`, `release_backoffs` and
//! `doc/dev/osd_internals/backoff.rst`.
//!
//! A PG holds one backoff per session and range: the PG, and each object that was asked for and that
//! no copy has. Names are drawn at random, since PGs of several threads share a session.

use crate::phase::Phase;
use crate::state::PgState;
use crate::{ClientOp, Cx, Effect, SessionId};
use nacre_msg::{OsdBackoff, backoff_op};
use nacre_types::{HObject, PgId, SnapId};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Backoff {
    begin: HObject,
    /// Equal to `begin` for that object alone.
    end: HObject,
    /// The client holds its messages.
    acked: bool,
    /// It was told to go on.
    released: bool,
}

impl Backoff {
    fn covers(&self, object: &HObject) -> bool {
        *object == self.begin || (self.begin < *object && *object < self.end)
    }

    fn is_of_object(&self) -> bool {
        self.begin == self.end
    }
}

/// The backoffs of one PG.
#[derive(Debug, Default)]
pub(crate) struct Backoffs {
    list: BTreeMap<(SessionId, u64), Backoff>,
}

impl Backoffs {
    fn cover(&self, session: SessionId, object: &HObject) -> bool {
        let of_session = self.list.range((session, 0)..=(session, u64::MAX));
        { of_session }.any(|(_, backoff)| backoff.covers(object))
    }

    /// The session is gone, and its client has forgotten it, too.
    pub(super) fn drop_session(&mut self, session: SessionId) {
        self.list.retain(|(of, _), _| *of != session);
    }

    /// The client holds its messages.
    pub(crate) fn acknowledged(&mut self, session: SessionId, id: u64) {
        let Some(backoff) = self.list.get_mut(&(session, id)) else { return };
        backoff.acked = true;
        if backoff.released {
            self.list.remove(&(session, id));
        }
    }
}

/// Names and objects of a PG, from the first to behind the last: one run of reversed hashes.
fn range_of(pg: PgId, pg_num: u32) -> (HObject, HObject) {
    // Ceph `pg_t::get_split_bits`: how many bits of the hash all objects of the PG share.
    let bits = match pg_num {
        0 | 1 => 0,
        _ => {
            let bits = u32::BITS - pg_num.leading_zeros();
            let half = 1_u32 << (bits - 1);
            if pg.seed % half < pg_num % half { bits } else { bits - 1 }
        }
    };
    let at = |reversed: u32| HObject {
        hash: reversed.reverse_bits(),
        snap: SnapId(0),
        pool: pg.pool,
        ..HObject::MIN
    };
    let first = pg.seed.reverse_bits();
    let last = first | u32::MAX.checked_shr(bits).unwrap_or(0);
    (at(first), last.checked_add(1).map_or_else(HObject::max_value, at))
}

/// What a message is about, as clients compare it with a range.
fn target_of(op: &ClientOp) -> HObject {
    if op.op.name.is_empty() {
        let pg = op.op.spg.pg;
        return HObject { hash: pg.seed, snap: SnapId::HEAD, pool: pg.pool, ..HObject::MIN };
    }
    crate::ops::head_of(&op.op)
}

impl PgState {
    /// The PG will not serve before something happens that may take long.
    pub(super) fn is_stuck(&self) -> bool {
        let active = matches!(self.phase, Phase::Active { .. });
        matches!(self.phase, Phase::Down { .. } | Phase::Incomplete) || (active && !self.is_active())
    }

    fn tell(&self, cx: &mut Cx<'_>, session: SessionId, id: u64, backoff: &Backoff, op: u8) {
        let (spg, map_epoch) = (self.named_by_clients(), self.map.epoch);
        let (begin, end) = (backoff.begin.clone(), backoff.end.clone());
        let message = Box::new(OsdBackoff { spg, map_epoch, op, id, begin, end });
        cx.effects.push(Effect::Backoff { session, message });
    }
}

impl Backoffs {
    /// True for a message that its client sent before it learned to hold it, and will send again.
    pub(crate) fn hold(&self, op: &ClientOp) -> bool {
        !self.list.is_empty() && self.cover(op.session.id, &target_of(op))
    }

    /// Drops a message; its client sends it again when the PG serves.
    pub(super) fn back_off_pg(&mut self, state: &PgState, cx: &mut Cx<'_>, op: &ClientOp) {
        let range = range_of(state.spg.pg, state.interval.pg_num);
        self.back_off(state, cx, op, range);
    }

    /// Drops a message; its client sends it again when a copy that is up has the object.
    pub(super) fn back_off_object(&mut self, state: &PgState, cx: &mut Cx<'_>, op: &ClientOp, head: HObject) {
        self.back_off(state, cx, op, (head.clone(), head));
    }

    fn back_off(
        &mut self,
        state: &PgState,
        cx: &mut Cx<'_>,
        op: &ClientOp,
        (begin, end): (HObject, HObject),
    ) {
        if self.hold(op) {
            return;
        }
        let (session, id) = (op.session.id, cx.entropy.u64());
        let backoff = Backoff { begin, end, acked: false, released: false };
        state.tell(cx, session, id, &backoff, backoff_op::BLOCK);
        self.list.insert((session, id), backoff);
    }

    /// The PG serves again.
    pub(crate) fn release_pg(&mut self, state: &PgState, cx: &mut Cx<'_>) {
        self.release(state, cx, |backoff| !backoff.is_of_object());
    }

    /// The object is there, or there is no more waiting for it.
    pub(crate) fn release_object(&mut self, state: &PgState, cx: &mut Cx<'_>, head: &HObject) {
        self.release(state, cx, |backoff| backoff.is_of_object() && backoff.begin == *head);
    }

    /// Peering begins: which objects no copy has will be found out anew.
    pub(crate) fn release_objects(&mut self, state: &PgState, cx: &mut Cx<'_>) {
        self.release(state, cx, Backoff::is_of_object);
    }

    /// Another interval: ranges and answers may be others.
    pub(crate) fn release_all(&mut self, state: &PgState, cx: &mut Cx<'_>) {
        self.release(state, cx, |_| true);
    }

    fn release(&mut self, state: &PgState, cx: &mut Cx<'_>, which: impl Fn(&Backoff) -> bool) {
        if self.list.is_empty() {
            return;
        }
        let mut list = std::mem::take(&mut self.list);
        list.retain(|(session, id), backoff| {
            if backoff.released || !which(backoff) {
                return true;
            }
            state.tell(cx, *session, *id, backoff, backoff_op::UNBLOCK);
            backoff.released = true;
            !backoff.acked
        });
        self.list = list;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_pg_holds_its_objects_and_no_others() {
        for pg_num in [1, 2, 3, 5, 8, 12, 13, 64] {
            let ranges: Vec<_> = (0..pg_num).map(|seed| range_of(PgId::new(3, seed), pg_num)).collect();
            for n in 0..500 {
                let object = HObject::head(3, "".into(), "".into(), format!("o{n}").as_str().into());
                let of: Vec<u32> = (0..pg_num)
                    .zip(&ranges)
                    .filter(|(_, (begin, end))| *begin <= object && object < *end)
                    .map(|(seed, _)| seed)
                    .collect();
                assert_eq!(of, [object.pg(pg_num).seed], "of {pg_num}");
            }
        }
    }
}
