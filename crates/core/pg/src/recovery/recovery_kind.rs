//! [`RecoveryKind`]: whether recovery by the log or backfill is next, and whether the cluster's flags allow it.

use super::{Kind, Recovery};
use crate::log::Missing;
use crate::peer::Peer;
use crate::state::PgState;
use nacre_maps::flags;
use nacre_types::OsdId;

impl Kind {
    /// `peer` lacks something that comes there in this way.
    pub(super) fn is_due_at(self, peer: &Peer) -> bool {
        peer.activated && !peer.is_complete() && peer.backfill.is_some() == (self == Self::Backfill)
    }
}

impl PgState {
    /// No copy that this one knows of lacks anything.
    pub(super) fn is_whole_everywhere(&self) -> bool {
        self.missing.is_empty()
            && self.peers.values().all(|peer| peer.missing.is_empty() && peer.is_compared())
    }

    /// What copies lack that are brought up to date in this way.
    pub(super) fn missing_of(&self, kind: Kind) -> impl Iterator<Item = &Missing> + '_ {
        let backfill = kind == Kind::Backfill;
        let own = (!backfill).then_some(&self.missing);
        let fits = move |peer: &&Peer| peer.activated && peer.backfill.is_some() == backfill;
        own.into_iter().chain(self.peers.values().filter(fits).map(|peer| &peer.missing))
    }

    /// The operator lets such work go on. `norecover` stops both kinds, as in Ceph; none of the flags stops
    /// the recovery of an object that a client waits for.
    pub(crate) fn is_permitted(&self, kind: Kind) -> bool {
        let has = |flag| self.map.has_flag(flag);
        let held = match kind {
            Kind::Recovery => false,
            Kind::Backfill => {
                has(flags::osdmap::NOBACKFILL) || has(flags::osdmap::NOREBALANCE) && !self.is_degraded()
            }
        };
        !held && !has(flags::osdmap::NORECOVER) && !self.is_too_full(kind)
    }

    /// An OSD that is to be brought up to date in this way has no room for it, as the map says. `backfillfull` keeps the
    /// rest of an OSD for what its PGs already hold there, so only `full` stops recovery.
    pub(crate) fn is_too_full(&self, kind: Kind) -> bool {
        let bits = match kind {
            Kind::Recovery => flags::osd::FULL,
            Kind::Backfill => flags::osd::FULL | flags::osd::BACKFILLFULL,
        };
        self.lacking(kind).any(|osd| self.map.state(osd) & bits != 0)
    }

    /// Whose copies lack something that is brought there in this way.
    fn lacking(&self, kind: Kind) -> impl Iterator<Item = OsdId> + '_ {
        let own = (kind == Kind::Recovery && !self.missing.is_empty()).then_some(self.whoami);
        own.into_iter()
            .chain(self.peers.iter().filter(move |(_, peer)| kind.is_due_at(peer)).map(|(osd, _)| *osd))
    }
}

impl Recovery {
    /// What some copy lacks and somebody has; recovery comes before backfill.
    pub(crate) fn due(&self, state: &PgState) -> Option<Kind> {
        if state.is_whole_everywhere() {
            return None;
        }
        let is_due = |kind: &Kind| {
            state
                .missing_of(*kind)
                .any(|missing| missing.iter().any(|(object, _)| !self.unfound.contains(object)))
        };
        match is_due(&Kind::Recovery) {
            true => Some(Kind::Recovery),
            false => (state.has_more_to_compare() || is_due(&Kind::Backfill)).then_some(Kind::Backfill),
        }
    }
}
