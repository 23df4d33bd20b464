//! What the OSD asks a PG, without an event: where it stands, what waits in it, and what it lacks.

use crate::phase::Phase;
use crate::recovery::{LostError, MissingObject};
use crate::stats::Activity;
use crate::{ClientOp, Lost, OpInFlight, OpStage, Pg, ScrubDue, ScrubIntervals};
use nacre_maps::OsdMap;
use nacre_msg::peer::PgInfo;
use nacre_msg::stats::PgStat;
use nacre_txn::ObjectView;
use nacre_types::{Epoch, HObject, OsdId, SpgId, Stamp, UTime};

impl Pg {
    /// True when this copy leads the PG in this interval.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.state.is_primary()
    }

    /// The OSDs that serve this PG, in order.
    #[must_use]
    pub fn acting(&self) -> &[OsdId] {
        &self.state.interval.acting
    }

    /// The OSDs that serve this PG, or are to: its up and acting sets.
    pub fn members(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.state.members()
    }

    /// True when clients are served, and anything may change.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.is_active()
    }

    /// True when the members have agreed on a log, whether or not there are enough of them to serve.
    #[must_use]
    pub fn is_activated(&self) -> bool {
        self.state.is_activated()
    }

    /// Which PG this is.
    #[must_use]
    pub fn spg(&self) -> SpgId {
        self.state.spg
    }

    /// The map epoch that this copy has come to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.state.map.epoch
    }

    /// What this copy says of itself.
    #[must_use]
    pub fn info(&self) -> &PgInfo {
        &self.state.info
    }

    /// Name of the peering state, as Ceph calls it.
    #[must_use]
    pub fn phase_name(&self) -> &'static str {
        self.state.phase.name()
    }

    /// When [`crate::Event::Tick`] is due; `None` when a tick about once a second is enough.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        let own = [self.watches.next_deadline(), self.moves.due(), self.snaptrim.due()];
        own.into_iter().flatten().chain(self.recovery.resume_at()).min()
    }

    /// How many clients' messages wait at which stage.
    pub fn waiting(&self) -> impl Iterator<Item = (OpStage, usize)> + '_ {
        self.pipeline.waiting().chain([(OpStage::Commit, self.replication.len())])
    }

    /// Objects that the primary or a copy that it recovers by the log lacks, in order behind `from`, at most
    /// `count_max`; and whether there are more. `unfound`: only those that no OSD that is up has.
    #[must_use]
    pub fn missing_objects(
        &self,
        view: &dyn ObjectView,
        from: &HObject,
        unfound: bool,
        count_max: usize,
    ) -> (Vec<MissingObject>, bool) {
        self.recovery.missing_objects(&self.state, view, from, unfound, count_max)
    }

    /// How many objects this copy lacks, and how many no copy has.
    #[must_use]
    pub fn missing_counts(&self) -> (usize, usize) {
        (self.state.missing.len(), self.recovery.unfound_count())
    }

    /// How many objects [`crate::Event::MarkLost`] would give up.
    ///
    /// # Errors
    /// [`LostError`]
    pub fn can_mark_lost(&self, view: &dyn ObjectView, lost: Lost) -> Result<usize, LostError> {
        self.recovery.can_mark_lost(&self.state, view, lost)
    }

    /// How many objects of this copy were damaged and brought anew, since the OSD has it or started.
    #[must_use]
    pub fn repaired_objects(&self) -> u64 {
        self.state.stamps.repaired_objects
    }

    /// True while copies are compared, or are to be once the PG is clean.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        self.scrub.is_wanted(&self.state)
    }

    /// The scrub that it is time for without an order. `None` if there is none: too soon, not clean, held by `noscrub` or `nodeep-scrub`.
    #[must_use]
    pub fn scrub_due(&self, wall: UTime, intervals: &ScrubIntervals) -> Option<ScrubDue> {
        self.scrub.due(&self.state, wall, intervals)
    }

    /// Objects move, and nothing is served.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moves.is_moving()
    }

    /// This copy is, or was when it was stored, about to hand objects over to `spg`, which has no records of its own before
    /// that is done; or it will in one of the maps that wait until its objects have moved.
    #[must_use]
    pub fn is_splitting_off(&self, spg: &SpgId) -> bool {
        self.moves.is_splitting_off(&self.state, spg)
    }

    /// Whether the map of `epoch`, or a newer one, has come.
    #[must_use]
    pub fn has_seen(&self, epoch: Epoch) -> bool {
        self.moves.newest_seen(&self.state).0 >= epoch
    }

    /// The PGs that this one takes in when `map` comes; none if it has come already, or it has taken them in.
    #[must_use]
    pub fn sources_in(&self, map: &OsdMap) -> Vec<SpgId> {
        self.moves.sources_in(&self.state, map)
    }

    /// The OSDs that keep the PG down, and what was lost there through which epoch: 0 of one that is away.
    #[must_use]
    pub fn blockers(&self) -> Vec<(OsdId, Epoch)> {
        self.state.blockers()
    }

    /// About the bytes of memory that the log takes.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.state.log_bytes()
    }

    /// The state bits, as `ceph pg ls` shows them.
    #[must_use]
    pub fn state(&self) -> u64 {
        self.state.report_bits(&self.activity())
    }

    /// The report for the manager; `None` where another OSD is primary.
    pub fn stat(&mut self, wall: UTime) -> Option<PgStat> {
        if !self.is_primary() {
            return None;
        }
        let activity = self.activity();
        Some(self.state.report(wall, &activity))
    }

    fn activity(&self) -> Activity {
        let is_active = matches!(self.state.phase, Phase::Active { .. });
        let due = if is_active { self.recovery.due(&self.state) } else { None };
        let may_recover = due.is_some_and(|kind| self.reservations.allow(kind));
        Activity {
            is_moving: self.moves.is_moving(),
            due,
            is_recovering: may_recover || self.recovery.is_busy(),
            unfound: self.recovery.unfound_count(),
            forced_recovery: self.reservations.forced_recovery,
            forced_backfill: self.reservations.forced_backfill,
            trims_queued: self.snaptrim.queued(),
            has_trim_failed: self.snaptrim.has_failed(),
            is_trimming: self.snaptrim.is_busy(),
            is_scrubbing: self.scrub.is_running(),
            is_deep_scrub: self.scrub.is_deep(),
            is_repairing: self.scrub.is_repairing(),
        }
    }

    /// The messages of clients that are here and not answered yet.
    pub fn ops_in_flight(&self) -> impl Iterator<Item = OpInFlight<'_>> + '_ {
        self.pipeline.ops_in_flight().chain(self.replication.ops_in_flight())
    }

    /// True for a message that its client sent before it learned to hold it, and will send again.
    #[must_use]
    pub fn is_held_by_client(&self, op: &ClientOp) -> bool {
        self.pipeline.backoffs.hold(op)
    }

    /// True for a message that goes no further than the checks at its arrival: of map, blocklist, caps and sizes. It is refused, or its
    /// client sends it again.
    #[must_use]
    pub fn turns_away(&self, op: &ClientOp) -> bool {
        self.state.turns_away(op)
    }

    /// OSDs that may have objects that no other has, and have not told what they have: not up, or asked just now. Those that were marked
    /// lost since they were up last do not count. Ceph's `might_have_unfound`, but for those already queried.
    #[must_use]
    pub fn unprobed(&self) -> Vec<OsdId> {
        self.state.unprobed()
    }
}
