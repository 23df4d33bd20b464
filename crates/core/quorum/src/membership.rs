//! [`Membership`]: which change of the members comes next, so that they become those that the tables name.
//!
//! The tables name the members that are wanted; a change of that list is an ordinary entry. The leader compares it with the members that the
//! log has and proposes what is missing, one change at a time. A crash between the two entries loses nothing: the next leader compares again.

use crate::quorum::Quorum;
use crate::wire::{Members, MembersChange, NodeId};
use std::collections::BTreeMap;

/// Entries by which a learner may be behind to become a voter.
const CAUGHT_UP_ENTRIES_MAX: u64 = 100;
/// For how long it must have been so: 2 s.
const CAUGHT_UP_TICKS: u64 = 40;
/// A member that was not heard for longer does not count as there: 1 s.
const SILENT_TICKS_MAX: u64 = 20;
/// The same of those that must be a majority when another one goes: two heartbeats of the leader.
const SILENT_BESIDE_REMOVAL_TICKS_MAX: u64 = 4;

/// What a leader does next about its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembersStep {
    /// Propose this change; refused, it comes again.
    Change(MembersChange),
    /// Hand the lead to this voter ([`Quorum::hand_over`]): the leader itself is to go, and its successor will see to that; or it may not lead.
    HandOver(NodeId),
}

/// Watches how far learners are while this member leads.
#[derive(Debug, Default)]
pub struct Membership {
    /// Ticks since when each learner is near the log's end without a break.
    near_since: BTreeMap<NodeId, u64>,
    /// Since when a voter is to go.
    removal_since: Option<u64>,
}

impl Membership {
    /// What to do so that the members become `wanted`, and one of those that `may_lead` leads. To be called about once per tick; nothing comes where
    /// this member does not lead.
    pub fn next(
        &mut self,
        wanted: &[NodeId],
        may_lead: impl Fn(NodeId) -> bool,
        quorum: &Quorum,
    ) -> Option<MembersStep> {
        if !quorum.leads() {
            *self = Self::default();
            return None;
        }
        let (members, now) = (quorum.members(), quorum.ticks());
        let is_here = |id: NodeId| quorum.silence_of(id).is_some_and(|ticks| ticks <= SILENT_TICKS_MAX);
        let is_near =
            |id: NodeId| is_here(id) && quorum.lag_of(id).is_some_and(|lag| lag < CAUGHT_UP_ENTRIES_MAX);
        let near = members.learners.iter().copied().filter(|id| is_near(*id));
        self.near_since = near.map(|id| (id, self.near_since.get(&id).copied().unwrap_or(now))).collect();
        let is_caught_up = |id| self.near_since.get(&id).is_some_and(|since| now - since >= CAUGHT_UP_TICKS);
        let is_removal = members.voters.iter().any(|id| !wanted.contains(id));
        self.removal_since = is_removal.then(|| self.removal_since.unwrap_or(now));
        // What was heard before the order says nothing of a member that was lost before the order.
        let answers = |ticks: u64| {
            ticks <= SILENT_BESIDE_REMOVAL_TICKS_MAX
                && self.removal_since.is_some_and(|since| now - ticks > since)
        };
        let stays = |id: NodeId| id == quorum.id() || quorum.silence_of(id).is_some_and(answers);
        let step = next_step(wanted, &members, quorum.id(), is_caught_up, (is_here, stays), &may_lead);
        step.or_else(|| {
            let is_ready = |id: &NodeId| may_lead(*id) && is_near(*id);
            let successor = members.voters.iter().copied().find(is_ready);
            successor.filter(|_| !may_lead(quorum.id())).map(MembersStep::HandOver)
        })
    }
}

/// The next step towards the wanted members, given those that the log has. First a place for new ones, which only listen; then one that is
/// to go, while a majority of those that are left answers (`stays`) and one of them stays; then a vote for a learner that has caught up.
fn next_step(
    wanted: &[NodeId],
    members: &Members,
    leader: NodeId,
    is_caught_up: impl Fn(NodeId) -> bool,
    (is_here, stays): (impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool),
    may_lead: impl Fn(NodeId) -> bool,
) -> Option<MembersStep> {
    if !members.voters_outgoing.is_empty() {
        return None; // a change is under way
    }
    let Members { voters, learners, .. } = members;
    let change = |change| Some(MembersStep::Change(change));
    let is_new = |id: &&NodeId| !voters.contains(id) && !learners.contains(id);
    if let Some(new) = wanted.iter().find(is_new) {
        return change(MembersChange { learners: vec![*new], ..MembersChange::default() });
    }
    let goes = |id: &&NodeId| !wanted.contains(id);
    if let Some(gone) = learners.iter().find(goes) {
        return change(MembersChange { removed: vec![*gone], ..MembersChange::default() });
    }
    // Whatever an operator wants: those that are left must be able to go on. Else it waits for others to be there, or to go first.
    let can_go = |gone: &NodeId| {
        let left = voters.iter().filter(|id| *id != gone);
        let here = left.clone().filter(|id| stays(**id)).count();
        left.clone().any(|id| wanted.contains(id)) && here * 2 > left.count()
    };
    if let Some(gone) = voters.iter().find(|id| goes(id) && **id != leader && can_go(id)) {
        return change(MembersChange { removed: vec![*gone], ..MembersChange::default() });
    }
    let others_are_to_go = voters.iter().any(|id| goes(&id) && *id != leader);
    let takes_over = |id: &&NodeId| wanted.contains(id) && **id != leader && is_here(**id) && may_lead(**id);
    let successor = voters.iter().find(takes_over);
    if !wanted.contains(&leader)
        && !others_are_to_go
        && let Some(successor) = successor
    {
        return Some(MembersStep::HandOver(*successor));
    }
    promotion(learners, is_caught_up)
}

fn promotion(learners: &[NodeId], is_caught_up: impl Fn(NodeId) -> bool) -> Option<MembersStep> {
    let ready = learners.iter().find(|id| is_caught_up(**id))?;
    Some(MembersStep::Change(MembersChange { voters: vec![*ready], ..MembersChange::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u64]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    fn members(voters: &[u64], learners: &[u64]) -> Members {
        Members { voters: ids(voters), learners: ids(learners), ..Members::default() }
    }

    /// The step of leader 1: `ready` have caught up, `here` are heard.
    fn step(wanted: &[u64], members: &Members, ready: &[u64], here: &[u64]) -> Option<MembersStep> {
        let (ready, here) = (ids(ready), ids(here));
        let witness = NodeId(9);
        let is_caught_up = |id| ready.contains(&id);
        let is_here = |id| here.contains(&id);
        next_step(&ids(wanted), members, NodeId(1), is_caught_up, (&is_here, &is_here), |id| id != witness)
    }

    fn change(voters: &[u64], learners: &[u64], removed: &[u64]) -> Option<MembersStep> {
        let (voters, learners, removed) = (ids(voters), ids(learners), ids(removed));
        Some(MembersStep::Change(MembersChange { voters, learners, removed }))
    }

    #[test]
    fn a_new_member_listens_until_it_has_caught_up() {
        assert_eq!(step(&[1, 2], &members(&[1], &[]), &[], &[1]), change(&[], &[2], &[]));
        assert_eq!(step(&[1, 2], &members(&[1], &[2]), &[], &[1, 2]), None, "it is behind");
        assert_eq!(step(&[1, 2], &members(&[1], &[2]), &[2], &[1, 2]), change(&[2], &[], &[]));
        assert_eq!(step(&[1, 2], &members(&[1, 2], &[]), &[], &[1, 2]), None);
    }

    #[test]
    fn what_the_tables_do_not_name_goes_one_at_a_time() {
        assert_eq!(step(&[1], &members(&[1, 2, 3], &[4]), &[4], &[1, 2, 3]), change(&[], &[], &[4]));
        assert_eq!(step(&[1], &members(&[1, 2, 3], &[]), &[], &[1, 2, 3]), change(&[], &[], &[2]));
        assert_eq!(step(&[1], &members(&[1, 3], &[]), &[], &[1, 3]), change(&[], &[], &[3]));
        let under_way = Members { voters_outgoing: ids(&[1, 2]), ..members(&[1, 2, 3], &[]) };
        assert_eq!(step(&[1], &under_way, &[], &[1, 2, 3]), None);
    }

    #[test]
    fn a_monitor_that_lost_its_store_is_replaced_under_its_new_id() {
        assert_eq!(step(&[1, 4, 3], &members(&[1, 2, 3], &[]), &[], &[1, 3]), change(&[], &[4], &[]));
        assert_eq!(step(&[1, 4, 3], &members(&[1, 2, 3], &[4]), &[], &[1, 3, 4]), change(&[], &[], &[2]));
        assert_eq!(step(&[1, 4, 3], &members(&[1, 3], &[4]), &[4], &[1, 3, 4]), change(&[4], &[], &[]));
    }

    #[test]
    fn nobody_goes_without_whom_the_others_could_not_go_on() {
        let all = members(&[1, 2, 3], &[]);
        assert_eq!(step(&[1, 3], &all, &[], &[1, 2]), None, "3 is away: 1 alone would be no majority");
        assert_eq!(step(&[1, 3], &all, &[], &[1, 2, 3]), change(&[], &[], &[2]));
        assert_eq!(step(&[1, 2], &all, &[], &[1, 2]), change(&[], &[], &[3]), "what is away may go");
        // The one that is away goes first, whatever the order.
        assert_eq!(step(&[1], &all, &[], &[1, 2]), change(&[], &[], &[3]));
        assert_eq!(step(&[1, 3, 4], &members(&[1, 2, 3], &[4]), &[4], &[1, 2, 4]), change(&[4], &[], &[]));
    }

    #[test]
    fn a_leader_that_is_to_go_hands_over_to_one_that_is_there() {
        let all = members(&[1, 2, 3], &[]);
        assert_eq!(step(&[2, 3], &all, &[], &[1, 3]), Some(MembersStep::HandOver(NodeId(3))));
        assert_eq!(step(&[2, 3], &all, &[], &[1]), None, "nobody would take the lead");
        let with_witness = members(&[1, 3, 9], &[]);
        assert_eq!(step(&[3, 9], &with_witness, &[], &[1, 9]), None, "nor would the witness");
    }

    #[test]
    fn the_last_voter_that_stays_is_waited_for() {
        assert_eq!(step(&[5], &members(&[1, 2], &[5]), &[], &[1, 2, 5]), None);
        assert_eq!(step(&[5], &members(&[1, 2], &[5]), &[5], &[1, 2, 5]), change(&[5], &[], &[]));
        assert_eq!(step(&[], &members(&[1], &[]), &[], &[1]), None);
    }
}
