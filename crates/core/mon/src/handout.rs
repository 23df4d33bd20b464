//! [`Handout`]: which OSD gets a recovery snapshot when, a part at a time.
//!
//! An OSD subscribes behind the snapshot that it has; it does so again when it has kept another. One that has none gets one at once, also
//! when it has one of an earlier key; else it gets one after a change that is to reach it, but not more often than every ten minutes. OSDs
//! are served one after the other, with so much in each second, so that neither links between monitors nor this one's memory feel it.

use crate::event::SessionId;
use crate::recovery::SealedSnapshot;
use nacre_types::{OsdId, UTime};
use std::collections::BTreeMap;

/// Seconds between two snapshots for one OSD.
pub(crate) const PERIOD_SECONDS: u64 = 600;
/// A snapshot that was made so many seconds ago serves other OSDs, too.
const FRESH_SECONDS: u64 = 60;
/// Bytes that are sent in one second.
pub(crate) const BYTES_PER_TICK_MAX: usize = 4 << 20;

/// What the leader has in hand.
#[derive(Debug, Default)]
pub(crate) struct Handout {
    /// When something changed last that is to reach the OSDs, in seconds since 1970. A new leader does not know, and takes it for now.
    changed: u64,
    /// When each OSD was handed its last one, whether it has said so or not.
    pub(crate) handed: BTreeMap<OsdId, u64>,
    pub(crate) sealed: Option<SealedSnapshot>,
    /// A new one has been asked for.
    pub(crate) is_asked: bool,
    /// It could not be made; tried again from then on.
    pub(crate) not_before: u64,
    pub(crate) current: Option<Sending>,
}

/// A snapshot on its way.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) session: SessionId,
    pub(crate) osd: OsdId,
    pub(crate) snapshot: SealedSnapshot,
    pub(crate) next: u32,
}

pub(crate) fn seconds(wall: UTime) -> u64 {
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
    pub(crate) fn is_due(&self, osd: OsdId, held: u64, keyed: u64, now: u64) -> bool {
        let handed = self.handed.get(&osd).copied().unwrap_or(0);
        let is_outdated = held <= keyed || held > now + PERIOD_SECONDS;
        let since = |moment: u64| now.saturating_sub(moment) >= PERIOD_SECONDS;
        if is_outdated {
            return handed <= keyed || since(handed);
        }
        held <= self.changed && since(held) && since(handed)
    }

    /// True when what is sealed already has all that an OSD is to have.
    pub(crate) fn is_fresh(&self, keyed: u64, now: u64) -> bool {
        self.sealed.as_ref().map(|sealed| seconds(sealed.made)).is_some_and(|made| {
            made > keyed && made <= now && (made > self.changed || now - made < FRESH_SECONDS)
        })
    }
}
