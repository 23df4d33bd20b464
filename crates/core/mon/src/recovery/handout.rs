//! [`Handout`]: which OSD gets a recovery snapshot when, a part at a time.
//!
//! An OSD subscribes behind the snapshot that it has; it does so again when it has kept another. One that has none gets one at once, also
//! when it has one of an earlier key; else it gets one after a change that is to reach it, but not more often than every ten minutes. OSDs
//! are served one after the other, with so much in each second, so that neither links between monitors nor this one's memory feel it.

use super::SealedSnapshot;
use crate::event::{Effect, SessionId};
use crate::mon::Mon;
use nacre_msg::RecoverySnapshotPart;
use nacre_types::{OsdId, UTime};
use std::collections::BTreeMap;

/// Seconds between two snapshots for one OSD.
const PERIOD_SECONDS: u64 = 600;
/// A snapshot that was made so many seconds ago serves other OSDs, too.
const FRESH_SECONDS: u64 = 60;
/// Bytes that are sent in one second.
const BYTES_PER_TICK_MAX: usize = 4 << 20;

/// What the leader has in hand.
#[derive(Debug, Default)]
pub(crate) struct Handout {
    /// When something changed last that is to reach the OSDs, in seconds since 1970. A new leader does not know, and takes it for now.
    changed: u64,
    /// When each OSD was handed its last one, whether it has said so or not.
    handed: BTreeMap<OsdId, u64>,
    sealed: Option<SealedSnapshot>,
    /// A new one has been asked for.
    is_asked: bool,
    /// It could not be made; tried again from then on.
    not_before: u64,
    current: Option<Sending>,
}

/// A snapshot on its way.
#[derive(Debug)]
struct Sending {
    session: SessionId,
    osd: OsdId,
    snapshot: SealedSnapshot,
    next: u32,
}

fn seconds(wall: UTime) -> u64 {
    wall.sec.into()
}

impl Handout {
    /// Its monitor begins to lead.
    pub(crate) fn begin(&mut self, wall: UTime) {
        *self = Self { changed: seconds(wall), ..Self::default() };
    }

    /// Something changed that is to reach the OSDs.
    pub(crate) fn changed(&mut self, wall: UTime) {
        self.changed = seconds(wall);
    }

    /// A session ended.
    pub(crate) fn closed(&mut self, session: SessionId) {
        self.current.take_if(|sending| sending.session == session);
    }

    /// Whether an OSD that has a snapshot that was made at `held` is to get another one. `keyed` is when the key was made.
    fn is_due(&self, osd: OsdId, held: u64, keyed: u64, now: u64) -> bool {
        let handed = self.handed.get(&osd).copied().unwrap_or(0);
        let is_outdated = held <= keyed || held > now + PERIOD_SECONDS;
        let since = |moment: u64| now.saturating_sub(moment) >= PERIOD_SECONDS;
        if is_outdated {
            return handed <= keyed || since(handed);
        }
        held <= self.changed && since(held) && since(handed)
    }

    /// True when what is sealed already has all that an OSD is to have.
    fn is_fresh(&self, keyed: u64, now: u64) -> bool {
        self.sealed.as_ref().map(|sealed| seconds(sealed.made)).is_some_and(|made| {
            made > keyed && made <= now && (made > self.changed || now - made < FRESH_SECONDS)
        })
    }
}

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

    /// A snapshot was made, or could not be.
    pub(crate) fn snapshot_taken(&mut self, snapshot: Option<SealedSnapshot>, wall: UTime) {
        self.handout.is_asked = false;
        if snapshot.is_none() {
            self.handout.not_before = seconds(wall) + PERIOD_SECONDS;
        }
        self.handout.sealed = snapshot;
        self.hand_out_snapshots(wall);
    }

    /// An OSD says which snapshot it has, as it subscribes.
    pub(crate) fn note_held_snapshot(&mut self, osd: OsdId, start: u64) {
        self.state.recovery.held.insert(osd, start.saturating_sub(1));
    }
}
