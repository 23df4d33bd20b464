//! Backfill: bringing a copy up to date whose log does not reach ours, by comparing it with this one, some objects at a time.
//!
//! ```text
//!   objects in order   . . . . . . . . . . . . . . . . . . . . . . . . . . . .
//!                      |  as on any other copy  |  compared  |  unknown
//!                      MIN                      last_backfill  compared     MAX
//!
//!   primary                                            target
//!     --- Scan(compared) ---------------------------->
//!     <-- ScanReply(objects, next) -------------------
//!   own list of the same range; what differs is missing there, and is pushed
//!     --- Push ... ---------------------------------->
//!     --- Progress(last_backfill) ------------------->  keeps it: a later interval goes on from there
//! ```
//! What is done with a write depends on where its object is: before `last_backfill` and in the compared range it goes to the
//! target as to all others, unless the target lacks the object (`Peer::deferred_by_backfill`). Behind that the target gets the log
//! entry alone: the comparison comes to the object later, and finds what all writes until then made of it. Ceph's
//! `PrimaryLogPG::recover_backfill` and `should_send_op`.
//!
//! A comparison is right because both lists are of one moment in the order of writes: those that the target had not seen when
//! it made its list changed nothing there in the range that is compared.

use super::{Recovery, RecoveryOutcome};
use crate::Cx;
use crate::log::Missing;
use crate::peer::{Backfill, Peer};
use crate::state::PgState;
use nacre_msg::peer::{Scan, ScanReply, ScannedObject};
use nacre_types::{Eversion, HObject, OsdId, SnapId, Stamp};
use std::collections::BTreeMap;

/// What a comparison costs, in bytes of data.
const SCAN_COST_BYTES: u64 = 128 << 10;

impl PgState {
    /// Lists a part of this copy for the primary.
    pub(crate) fn answer_scan(&mut self, cx: &mut Cx<'_>, from: OsdId, scan: Scan) {
        let (list, next) = self.own_list(cx, &scan.from);
        let objects = list.into_iter().map(|(object, version)| ScannedObject { object, version }).collect();
        self.send(cx, from, ScanReply { header: self.header(), from: scan.from, objects, next });
    }

    /// Some objects of this copy from `from` on, and where the list goes on.
    fn own_list(&self, cx: &Cx<'_>, from: &HObject) -> (Vec<(HObject, Eversion)>, HObject) {
        let mut objects = cx.view.list(&self.spg, from, self.scan_objects + 1);
        let next = if objects.len() > self.scan_objects { objects.pop() } else { None };
        let versioned = |object: HObject| {
            let version = self.copy_version(cx.view, &object).unwrap_or_default();
            (object, version)
        };
        let list = objects.into_iter().filter(|object| !self.is_hidden(object)).map(versioned).collect();
        (list, next.unwrap_or_else(HObject::max_value))
    }

    /// Some copy has not been compared to its end.
    pub(super) fn has_more_to_compare(&self) -> bool {
        self.peers.values().any(|peer| peer.activated && !peer.is_compared())
    }

    /// All lists that were asked for are there, and wait for an event that has submitted nothing, so that all shows in our own.
    pub(crate) fn has_lists(&self) -> bool {
        let mut asked = self.peers.values().filter_map(|peer| peer.backfill.as_ref());
        let mut asked = asked.by_ref().filter(|backfill| backfill.asked).peekable();
        asked.peek().is_some() && asked.all(|backfill| backfill.list.is_some())
    }
}

impl Recovery {
    /// Since when it waits for the list of a copy, and moves no object meanwhile.
    pub(crate) fn waits_for_list_since(&self, state: &PgState) -> Option<Stamp> {
        let is_asked = |peer: &Peer| peer.backfill.as_ref().is_some_and(|backfill| backfill.asked);
        let waits = !self.is_busy() && state.peers.values().any(is_asked);
        waits.then(|| self.moved_at())
    }

    /// Has the next objects listed when few are left to push of those that were compared. All copies go on together, so that
    /// an object is read once for all of them.
    pub(super) fn compare_on(&mut self, state: &mut PgState, cx: &mut Cx<'_>, is_allowed: bool) {
        let unfound = self.unfound_count();
        // Some are left when the next comparison begins, so that pushing does not stop for it.
        let left_max = state.scan_objects / 4;
        let is_busy = |peer: &Peer| {
            let asked = peer.backfill.as_ref().is_some_and(|backfill| backfill.asked);
            asked || peer.missing.len().saturating_sub(unfound) > left_max
        };
        let mut backfills = state.peers.values().filter(|peer| peer.activated && peer.backfill.is_some());
        if !is_allowed || !state.has_more_to_compare() || backfills.any(is_busy) {
            return;
        }
        self.resume_at = cx.throttle.begins_at(cx.now);
        if self.resume_at.is_some() {
            return;
        }
        let header = state.header();
        let mut scans = Vec::new();
        for (osd, peer) in state.peers.iter_mut().filter(|(_, peer)| peer.activated && !peer.is_compared()) {
            if let Some(backfill) = &mut peer.backfill {
                cx.throttle.take(cx.now, SCAN_COST_BYTES);
                self.moves(cx.now);
                backfill.asked = true;
                scans.push((*osd, Scan { header, from: backfill.compared.clone() }));
            }
        }
        for (osd, scan) in scans {
            state.send(cx, osd, scan);
        }
    }

    /// A part of a copy's list.
    pub(crate) fn on_scan(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        reply: ScanReply,
    ) -> Option<RecoveryOutcome> {
        let backfill = state.peers.get_mut(&from).and_then(|peer| peer.backfill.as_mut());
        let awaited = |backfill: &&mut Backfill| {
            backfill.asked && backfill.list.is_none() && backfill.compared == reply.from
        };
        let backfill = backfill.filter(awaited)?;
        backfill.list = Some(reply);
        self.compare_lists(state, cx)
    }

    /// Compares the lists that came with this copy.
    pub(crate) fn compare_lists(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<RecoveryOutcome> {
        if state.view_is_stale || !state.has_lists() {
            return None;
        }
        let listed = state
            .peers
            .iter_mut()
            .filter_map(|(osd, peer)| Some((*osd, peer.backfill.as_mut()?.list.take()?)));
        let lists: Vec<(OsdId, ScanReply)> = listed.collect();
        let compared: Vec<OsdId> = lists.iter().map(|(osd, _)| *osd).collect();
        for (osd, list) in lists {
            self.compare(state, cx, osd, list);
        }
        for osd in compared {
            let Some(peer) = state.peers.get_mut(&osd) else { continue };
            if peer.advance_backfill() {
                state.send_progress(cx, osd);
            }
        }
        Some(RecoveryOutcome::Compared)
    }

    fn compare(&mut self, state: &mut PgState, cx: &Cx<'_>, osd: OsdId, reply: ScanReply) {
        let ScanReply { from, objects, next, .. } = reply;
        let (own, own_next) = state.own_list(cx, &from);
        // A list that does not go on is taken for complete: the same question would get the same answer.
        let next = if next > from { next } else { HObject::max_value() };
        let until = next.min(own_next).detached();
        let expected = patched(own, &state.missing, &from, &until);
        let listed: BTreeMap<HObject, Eversion> = objects
            .into_iter()
            .filter(|listed| from <= listed.object && listed.object < until)
            .map(|listed| (listed.object.detached(), listed.version))
            .collect();
        let missing = difference(&listed, &expected);
        if let Some((first, _)) = missing.iter().next() {
            self.look_again_at(first);
        }
        let Some(peer) = state.peers.get_mut(&osd) else { return };
        missing.iter().for_each(|(object, need)| peer.missing.insert(object.clone(), need));
        peer.backfill = Some(Backfill::from(until));
    }
}

impl Peer {
    /// Raises `last_backfill` to the first object that the copy lacks; true when that changed it.
    ///
    /// It stays in front of all clones of an object, one of which is lacking: a write to the object adds entries for several of
    /// them, and of those before `last_backfill` the copy would have to note itself that it lacks them.
    fn advance_backfill(&mut self) -> bool {
        let Some(backfill) = &self.backfill else { return false };
        let reached = self.missing.next_from(&self.info.last_backfill).unwrap_or(&backfill.compared);
        let reached = if reached.max { reached.clone() } else { reached.with_snap(SnapId(0)) };
        let advanced = reached > self.info.last_backfill && !reached.max;
        if advanced {
            self.info.last_backfill = reached;
        }
        advanced
    }
}

/// What this copy's list would be from `from` until `until` if nothing were missing.
fn patched(
    own: Vec<(HObject, Eversion)>,
    missing: &Missing,
    from: &HObject,
    until: &HObject,
) -> BTreeMap<HObject, Eversion> {
    let mut list: BTreeMap<_, _> = own.into_iter().filter(|(object, _)| object < until).collect();
    for (object, need) in missing.between(from, until) {
        if need == Eversion::ZERO {
            list.remove(object);
        } else {
            list.insert(object.clone(), need);
        }
    }
    list
}

/// What a copy lacks to be as `expected`.
fn difference(list: &BTreeMap<HObject, Eversion>, expected: &BTreeMap<HObject, Eversion>) -> Missing {
    let mut missing = Missing::default();
    for (object, need) in expected.iter().filter(|(object, need)| list.get(*object) != Some(*need)) {
        missing.insert(object.clone(), *need);
    }
    for object in list.keys().filter(|object| !expected.contains_key(*object)) {
        missing.insert(object.clone(), Eversion::ZERO);
    }
    missing
}
