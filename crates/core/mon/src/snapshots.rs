//! Recovery snapshots go out: what the leader does each second about [`Handout`](crate::handout::Handout).

use crate::event::Effect;
use crate::handout::{BYTES_PER_TICK_MAX, PERIOD_SECONDS, Sending, seconds};
use crate::mon::Mon;
use crate::recovery::{SealedSnapshot, SnapshotError};
use nacre_msg::RecoverySnapshotPart;
use nacre_types::{OsdId, UTime};

impl Mon {
    /// Sends what this second has room for.
    pub(crate) fn hand_out_snapshots(&mut self, wall: UTime) {
        let Some(keyed) = self.state.recovery.key().map(|key| seconds(key.made)) else { return };
        let (now, mut room) = (seconds(wall), BYTES_PER_TICK_MAX);
        // One that is made in the second of its key would be taken for one of before.
        if now <= keyed || now < self.handout.not_before {
            return;
        }
        while room >= RecoverySnapshotPart::BYTES_MAX {
            if self.handout.current.is_none() && !self.begin_handout(keyed, now) {
                return;
            }
            room -= RecoverySnapshotPart::BYTES_MAX;
            self.send_part(now);
        }
    }

    /// Chooses whom to serve next; false when there is nobody, or a snapshot has to be made first.
    fn begin_handout(&mut self, keyed: u64, now: u64) -> bool {
        let held = |osd: &OsdId| self.state.recovery.held.get(osd).copied();
        let is_up = |osd: &OsdId| self.state.osd.published().is_up(*osd);
        let due = self.osd_sessions.iter().find(|(osd, _)| {
            let held = held(osd).filter(|_| is_up(osd));
            held.is_some_and(|held| self.handout.is_due(**osd, held, keyed, now))
        });
        let Some((osd, session)) = due.map(|(osd, session)| (*osd, *session)) else {
            self.handout.sealed = None;
            return false;
        };
        match self.handout.sealed.clone().filter(|_| self.handout.is_fresh(keyed, now)) {
            Some(snapshot) => {
                self.handout.current = Some(Sending { session, osd, snapshot, next: 0 });
                true
            }
            None => {
                if !std::mem::replace(&mut self.handout.is_asked, true) {
                    self.hold(Effect::TakeSnapshot);
                }
                false
            }
        }
    }

    fn send_part(&mut self, now: u64) {
        let Some(sending) = &mut self.handout.current else { return };
        let part = sending.snapshot.part(sending.next);
        sending.next += 1;
        let (session, osd) = (sending.session, sending.osd);
        let is_last = part.as_ref().is_none_or(|part| part.index + 1 >= part.count);
        if let Some(part) = part {
            self.send(session, 0, part);
        }
        if is_last {
            self.handout.handed.insert(osd, now);
            self.handout.current = None;
        }
    }

    /// A snapshot was made, or could not be: then health says why.
    pub(crate) fn snapshot_taken(
        &mut self,
        taken: Result<Option<Box<SealedSnapshot>>, SnapshotError>,
        wall: UTime,
    ) {
        self.handout.is_asked = false;
        self.state.recovery.failure = taken.as_ref().err().map(ToString::to_string);
        self.handout.sealed = taken.ok().flatten().map(|sealed| *sealed);
        if self.handout.sealed.is_none() {
            self.handout.not_before = seconds(wall) + PERIOD_SECONDS;
        }
        self.hand_out_snapshots(wall);
    }

    /// An OSD says which snapshot it has, as it subscribes.
    pub(crate) fn note_held_snapshot(&mut self, osd: OsdId, start: u64) {
        self.state.recovery.held.insert(osd, start.saturating_sub(1));
    }
}
