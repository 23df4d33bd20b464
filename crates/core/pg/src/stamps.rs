//! [`Stamps`]: since when the PG is active, clean, undersized and so on, for its reports (`pg_stat_t`).

use nacre_msg::stats::pg_state;
use nacre_txn::Op;
use nacre_types::{Epoch, UTime};

/// When the PG last was what, by the calendar clock; and counts that only this copy's memory has.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    pub(crate) state: u64,
    pub(crate) change: UTime,
    pub(crate) active: UTime,
    pub(crate) clean: UTime,
    pub(crate) peered: UTime,
    pub(crate) undegraded: UTime,
    pub(crate) full_size: UTime,
    pub(crate) became_active: UTime,
    pub(crate) became_peered: UTime,
    pub(crate) reported_seq: u64,
    pub(crate) reported_epoch: Epoch,
    /// Copies of objects, or chunks, that were brought to where they belong.
    pub(crate) recovered_objects: u64,
    /// Bytes of data of copies that were sent, fetched or rebuilt for that, also of those that did not come to their end.
    pub(crate) recovered_bytes: u64,
    /// Likewise entries of omaps.
    pub(crate) recovered_keys: u64,
    /// Objects of this copy that were damaged, and brought anew.
    pub(crate) repaired_objects: u64,
}

impl Stamps {
    /// The PG exists from now on.
    pub(crate) fn became(&mut self, wall: UTime) {
        (self.change, self.active, self.clean, self.peered) = (wall, wall, wall, wall);
        (self.undegraded, self.full_size) = (wall, wall);
    }

    /// Notes that recovery has moved a part of an object, made of `ops`, to `copies` OSDs.
    pub(crate) fn moved(&mut self, ops: &[Op], copies: usize) {
        for op in ops {
            match op {
                Op::Write { data, .. } => self.recovered_bytes += (data.len() * copies) as u64,
                Op::OmapSet { entries, .. } => self.recovered_keys += (entries.len() * copies) as u64,
                _ => (),
            }
        }
    }

    /// Notes that peering has ended.
    pub(crate) fn activated(&mut self, wall: UTime, serving: bool) {
        self.became_peered = wall;
        if serving {
            self.became_active = wall;
        }
    }

    /// The PG reports these state bits: notes since when each of them holds, and when it last did.
    pub(crate) fn refresh(&mut self, wall: UTime, state: u64) {
        if state != self.state {
            (self.state, self.change) = (state, wall);
        }
        let has = |bit: u64| state & bit != 0;
        let marks = [
            (has(pg_state::ACTIVE), &mut self.active),
            (has(pg_state::CLEAN), &mut self.clean),
            (has(pg_state::ACTIVE) || has(pg_state::PEERED), &mut self.peered),
            (!has(pg_state::DEGRADED), &mut self.undegraded),
            (!has(pg_state::UNDERSIZED), &mut self.full_size),
        ];
        for (now, stamp) in marks {
            if now {
                *stamp = wall;
            }
        }
    }
}
