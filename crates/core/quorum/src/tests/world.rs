//! [`World`]: members, their disks, the messages between them, and the judge of what they do.

use crate::{
    Effect, HardState, LogEntry, LogPosition, LogWrite, Members, MembersStep, Membership, NodeId,
    PeerMessage, Proposal, Quorum, Settings, Stored,
};
use nacre_buf::Bytes;
use nacre_denc::{Decode, Encode};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::collections::{BTreeMap, BTreeSet};

/// Steps of 10 ms between ticks.
const TICK_STEPS: u64 = 5;

/// A mistake that the judge must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planted {
    Nothing,
    /// A write counts as done before it is on the device.
    AckBeforeAppend,
    /// The vote is not stored.
    VoteNotStored,
    /// The tables are stored without the position that they have come to.
    ApplyTwice,
    /// A member without its disk comes back under its id.
    IdReused,
}

/// What a disk holds. The tables are the list of all changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    hard_state: HardState,
    members: Members,
    applied: LogPosition,
    trimmed: LogPosition,
    log: BTreeMap<u64, LogEntry>,
    pub(super) tables: Vec<(LogPosition, Bytes)>,
}

impl Disk {
    fn first(members: Members) -> Self {
        let Stored { hard_state, members, applied, trimmed, .. } = Stored::bootstrap(members);
        Self { hard_state, members, applied, trimmed, ..Self::default() }
    }

    fn stored(&self) -> Stored {
        let entries = self.log.values().cloned().collect();
        let (hard_state, members) = (self.hard_state, self.members.clone());
        Stored { hard_state, members, applied: self.applied, trimmed: self.trimmed, entries }
    }

    fn write(&mut self, write: &LogWrite, tables: Option<Vec<(LogPosition, Bytes)>>) {
        if let Some((position, members)) = &write.snapshot {
            self.log.clear();
            (self.applied, self.trimmed, self.members) = (*position, *position, members.clone());
            self.tables = tables.expect("a snapshot comes with tables");
        }
        if let Some(first) = write.entries.first() {
            self.log.split_off(&first.position.index);
        }
        for entry in &write.entries {
            self.log.insert(
                entry.position.index,
                LogEntry::from_bytes(entry.to_bytes()).expect("its own encoding"),
            );
        }
        (self.hard_state, self.trimmed) = (write.hard_state, write.trimmed);
        self.log = self.log.split_off(&(self.trimmed.index + 1));
    }
}

/// One place for a member.
pub(super) struct Slot {
    pub(super) id: NodeId,
    pub(super) quorum: Option<Quorum>,
    membership: Membership,
    pub(super) disk: Disk,
    synced: Disk,
    frozen_until: u64,
    /// Tables that came with a snapshot's message.
    arrived: Option<Vec<(LogPosition, Bytes)>>,
}

struct InTransit {
    due: u64,
    from: NodeId,
    to: NodeId,
    message: Bytes,
    tables: Option<Vec<(LogPosition, Bytes)>>,
}

/// All of it.
pub(super) struct World {
    pub(super) rng: SeededEntropy,
    pub(super) now: u64,
    pub(super) slots: Vec<Slot>,
    network: Vec<InTransit>,
    /// From whom nothing arrives at whom.
    pub(super) cut: BTreeSet<(usize, usize)>,
    planted: Planted,
    next_id: u64,
    next_proposal: u64,
    /// Changes that were acknowledged, and the terms of their entries.
    pub(super) acked: BTreeMap<u64, u64>,
    /// Reads under way: what was acknowledged when they began.
    reads: BTreeMap<u64, BTreeSet<u64>>,
    pub(super) reads_done: usize,
    leaders: BTreeMap<u64, NodeId>,
    log: BTreeMap<u64, (u64, Bytes)>,
    /// The first rule that was broken.
    pub(super) broken: Option<String>,
    pub(super) snapshots: usize,
    pub(super) late_one_in: u64,
}

fn settings(id: NodeId, rank: usize) -> Settings {
    Settings { id, rank, proposal_bytes_max: 1 << 20, kept_entries_max: 20, kept_bytes_max: 1 << 20 }
}

/// The members that are wanted, as a change of the tables: longer than a number.
fn encode_wanted(ids: &[NodeId]) -> Bytes {
    let mut out = vec![0];
    ids.iter().for_each(|id| out.extend(id.0.to_le_bytes()));
    out.into()
}

fn decode_wanted(data: &Bytes) -> Option<Vec<NodeId>> {
    let ids = data.strip_prefix(&[0])?.chunks_exact(8);
    let ids: Vec<NodeId> =
        ids.filter_map(|id| Some(NodeId(u64::from_le_bytes(id.try_into().ok()?)))).collect();
    (data.len() == 1 + 8 * ids.len() && !ids.is_empty()).then_some(ids)
}

fn number(data: &Bytes) -> Option<u64> {
    <[u8; 8]>::try_from(data.as_ref()).ok().map(u64::from_le_bytes)
}

impl World {
    pub(super) fn new(seed: u64, members: u64, planted: Planted) -> Self {
        let voters = Members::voting((1..=members).map(NodeId));
        let slots = (1..=members).map(|id| {
            let disk = Disk::first(voters.clone());
            let membership = Membership::default();
            let (id, synced) = (NodeId(id), disk.clone());
            Slot { id, quorum: None, membership, synced, disk, frozen_until: 0, arrived: None }
        });
        let mut world = Self {
            rng: SeededEntropy(seed),
            now: 0,
            slots: slots.collect(),
            network: Vec::new(),
            cut: BTreeSet::new(),
            planted,
            next_id: members + 1,
            next_proposal: 0,
            acked: BTreeMap::new(),
            reads: BTreeMap::new(),
            reads_done: 0,
            leaders: BTreeMap::new(),
            log: BTreeMap::new(),
            broken: None,
            snapshots: 0,
            late_one_in: 20,
        };
        (0..world.slots.len()).for_each(|at| world.start(at));
        world
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.rng.u64() % below
    }

    fn fails(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub(super) fn start(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if slot.quorum.is_some() {
            return;
        }
        match Quorum::open(settings(slot.id, at), slot.disk.stored()) {
            Ok(quorum) => slot.quorum = Some(quorum),
            Err(error) => self.fails(format!("{error}")),
        }
        self.carry_out(at);
    }

    /// The process ends; what was not synced may be lost.
    pub(super) fn crash(&mut self, at: usize) {
        let keeps_all = self.random(2) == 0;
        let slot = &mut self.slots[at];
        if !keeps_all {
            slot.disk = slot.synced.clone();
        }
        slot.synced = slot.disk.clone();
        (slot.quorum, slot.arrived) = (None, None);
        slot.membership = Membership::default();
    }

    /// A member's disk is lost: it comes back as another one, and the tables are to name that in its place.
    pub(super) fn wipe(&mut self, at: usize) {
        self.slots[at].quorum = None;
        if self.planted != Planted::IdReused {
            self.slots[at].id = NodeId(self.next_id);
            self.next_id += 1;
        }
        let members = self.slots[at].disk.members.clone();
        self.slots[at].disk = Disk::default();
        if self.planted == Planted::IdReused {
            self.slots[at].disk = Disk::first(members);
        }
        self.slots[at].synced = self.slots[at].disk.clone();
        self.start(at);
        self.replace_lost_members();
    }

    /// True when all places' members, and nobody else, vote.
    pub(super) fn is_complete(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let Some(quorum) = &self.slots[leader].quorum else { return false };
        let mut voters = quorum.members().voters;
        voters.sort();
        let mut ids: Vec<NodeId> = self.slots.iter().map(|slot| slot.id).collect();
        ids.sort();
        voters == ids && quorum.members().voters_outgoing.is_empty()
    }

    /// The members that the tables of a place name.
    fn wanted(&self, at: usize) -> Vec<NodeId> {
        let named = self.slots[at].disk.tables.iter().rev().find_map(|(_, data)| decode_wanted(data));
        named.unwrap_or_else(|| (1..=self.slots.len() as u64).map(NodeId).collect())
    }

    /// Asks for the members that are there in place of those that are not any more.
    pub(super) fn replace_lost_members(&mut self) {
        let Some(leader) = self.leader() else { return };
        let ids: Vec<NodeId> = self.slots.iter().map(|slot| slot.id).collect();
        if self.wanted(leader) != ids {
            self.name_members(leader, &ids);
        }
    }

    /// Has a leader propose the members that the tables are to name.
    pub(super) fn name_members(&mut self, leader: usize, ids: &[NodeId]) {
        let proposal = self.proposal();
        if let Some(quorum) = &mut self.slots[leader].quorum {
            quorum.propose(proposal, encode_wanted(ids)).unwrap_or_default();
        }
        self.carry_out(leader);
    }

    /// Brings the members of a leader closer to those that its tables name.
    fn change_members(&mut self, at: usize) {
        let (wanted, proposal) = (self.wanted(at), self.proposal());
        let slot = &mut self.slots[at];
        let Some(quorum) = &mut slot.quorum else { return };
        match slot.membership.next(&wanted, |_| true, quorum) {
            Some(MembersStep::Change(change)) => quorum.change_members(proposal, &change).unwrap_or_default(),
            Some(MembersStep::HandOver(to)) => quorum.hand_over(to),
            None => (),
        }
        self.carry_out(at);
    }

    pub(super) fn freeze(&mut self, at: usize, steps: u64) {
        self.slots[at].frozen_until = self.now + steps;
    }

    /// The place of the leader of the newest term.
    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |slot: &Slot| slot.quorum.as_ref().filter(|quorum| quorum.leads()).map(Quorum::term);
        let leaders = self.slots.iter().enumerate().filter_map(|(at, slot)| Some((leads(slot)?, at)));
        leaders.max().map(|(_, at)| at)
    }

    fn proposal(&mut self) -> Proposal {
        self.next_proposal += 1;
        Proposal(self.next_proposal)
    }

    /// A client proposes to a member; true if that took it.
    pub(super) fn propose(&mut self, at: usize) -> bool {
        let proposal = self.proposal();
        let data = Bytes::copy_from_slice(&proposal.0.to_le_bytes());
        let taken =
            self.slots[at].quorum.as_mut().is_some_and(|quorum| quorum.propose(proposal, data).is_ok());
        self.carry_out(at);
        taken
    }

    /// Tells a member that its leader refuses connections, be it true or not.
    pub(super) fn hear_of_death(&mut self, at: usize) {
        if let Some(quorum) = &mut self.slots[at].quorum {
            quorum.leader_is_dead();
            self.carry_out(at);
        }
    }

    pub(super) fn read(&mut self, at: usize) {
        let read = self.proposal();
        if self.slots[at].quorum.as_mut().is_some_and(|quorum| quorum.read(read).is_ok()) {
            self.reads.insert(read.0, self.acked.keys().copied().collect());
        }
        self.carry_out(at);
    }

    pub(super) fn step(&mut self) {
        self.now += 1;
        let due: Vec<InTransit> = self.network.extract_if(.., |sent| sent.due <= self.now).collect();
        for sent in due {
            self.deliver(sent);
        }
        for at in 0..self.slots.len() {
            let ticks = (self.now + at as u64).is_multiple_of(TICK_STEPS);
            if ticks
                && !self.is_frozen(at)
                && let Some(quorum) = &mut self.slots[at].quorum
            {
                quorum.tick();
                self.carry_out(at);
                self.change_members(at);
            }
        }
    }

    fn is_frozen(&self, at: usize) -> bool {
        self.slots[at].frozen_until > self.now
    }

    fn deliver(&mut self, mut sent: InTransit) {
        let place = |id| self.slots.iter().position(|slot| slot.id == id);
        let (from, to) = (place(sent.from), place(sent.to));
        if let Some(to) = to.filter(|to| self.is_frozen(*to) && self.slots[*to].quorum.is_some()) {
            let is_cut = from.is_some_and(|from| self.cut.contains(&(from, to)));
            if !is_cut {
                sent.due = self.now + 1; // its kernel has it
                self.network.push(sent);
                return;
            }
        }
        let (is_snapshot, receiver) = (sent.tables.is_some(), sent.to);
        let arrived = self.arrives(from, to, sent);
        // The end of a session, or its other end's word: snapshots alone are waited for.
        if is_snapshot
            && let Some(from) = from
            && let Some(quorum) = &mut self.slots[from].quorum
        {
            quorum.snapshot_sent(receiver, arrived);
            self.carry_out(from);
        }
    }

    fn arrives(&mut self, from: Option<usize>, to: Option<usize>, sent: InTransit) -> bool {
        let (Some(from), Some(to)) = (from, to) else { return false };
        let slot = &mut self.slots[to];
        let Some(quorum) = slot.quorum.as_mut().filter(|_| !self.cut.contains(&(from, to))) else {
            return false;
        };
        slot.arrived = sent.tables;
        let message = PeerMessage::from_bytes(sent.message).expect("its own encoding");
        if let Err(error) = quorum.step(sent.from, message) {
            // What one tells another is never at fault, but after a mistake of ours.
            self.fails(format!("{error}"));
        }
        self.carry_out(to);
        true
    }

    pub(super) fn carry_out(&mut self, at: usize) {
        let mut effects = Vec::new();
        loop {
            let Some(quorum) = &mut self.slots[at].quorum else { return };
            quorum.drain(&mut effects);
            if effects.is_empty() {
                return;
            }
            for effect in effects.drain(..) {
                self.carry_out_one(at, effect);
            }
        }
    }

    fn carry_out_one(&mut self, at: usize, effect: Effect) {
        let id = self.slots[at].id;
        match effect {
            Effect::Send { to, message } => self.send(at, to, message),
            Effect::Persist(write) => self.persist(at, &write),
            Effect::Apply { position, data, members, proposal } => {
                self.apply(at, position, data, members, proposal)
            }
            Effect::BecameLeader { term } => {
                self.note_leader(term, id);
                // One that was frozen may lead a term that is over already.
                let before = self.acked.iter().filter(|(_, acked_in)| **acked_in < term);
                let acked = before.map(|(number, _)| *number).collect();
                self.check_has(at, &acked, "a leader");
            }
            Effect::BecameFollower { term, leader } => {
                leader.into_iter().for_each(|leader| self.note_leader(term, leader))
            }
            Effect::ReadReady(read) => {
                if let Some(acked) = self.reads.remove(&read.0) {
                    self.reads_done += 1;
                    self.check_has(at, &acked, "a read");
                }
            }
        }
    }

    fn note_leader(&mut self, term: u64, id: NodeId) {
        if self.leaders.insert(term, id).is_some_and(|other| other != id) {
            self.fails(format!("two leaders of term {term}"));
        }
    }

    fn send(&mut self, at: usize, to: NodeId, mut message: PeerMessage) {
        let lost = self.random(50) == 0;
        let due = self.now + 1 + if self.random(self.late_one_in) == 0 { self.random(30) } else { 0 };
        let is_snapshot = message.snapshot().is_some();
        let tables = is_snapshot.then(|| self.slots[at].disk.tables.clone());
        self.snapshots += usize::from(is_snapshot);
        if is_snapshot {
            let disk = &self.slots[at].disk;
            message.set_snapshot(disk.applied, &disk.members);
        }
        if lost {
            if is_snapshot && let Some(quorum) = &mut self.slots[at].quorum {
                quorum.snapshot_sent(to, false);
            }
            return;
        }
        self.network.push(InTransit {
            due,
            from: self.slots[at].id,
            to,
            message: message.to_bytes(),
            tables,
        });
    }

    fn persist(&mut self, at: usize, write: &LogWrite) {
        let mut stored = write.clone();
        if self.planted == Planted::VoteNotStored {
            stored.hard_state.vote = 0;
        }
        let slot = &mut self.slots[at];
        slot.disk.write(&stored, slot.arrived.clone());
        if stored.must_sync && self.planted != Planted::AckBeforeAppend {
            slot.synced = slot.disk.clone();
        }
        if let Some(quorum) = &mut slot.quorum {
            quorum.persisted(write.number);
        }
    }

    fn apply(
        &mut self,
        at: usize,
        position: LogPosition,
        data: Bytes,
        members: Members,
        proposal: Option<Proposal>,
    ) {
        let known = self.log.entry(position.index).or_insert_with(|| (position.term, data.clone()));
        if *known != (position.term, data.clone()) {
            self.fails(format!("entry {} differs between members", position.index));
        }
        let is_twice = self.planted == Planted::ApplyTwice;
        let slot = &mut self.slots[at];
        let disk = &mut slot.disk;
        if disk.applied.index + 1 != position.index {
            let applied = disk.applied.index;
            self.broken.get_or_insert(format!("entry {} is applied behind {applied}", position.index));
        }
        disk.tables.push((position, data.clone()));
        disk.applied = position;
        disk.members = members;
        if is_twice {
            slot.synced.tables.clone_from(&disk.tables);
        }
        if let Some(quorum) = &mut slot.quorum {
            quorum.applied(position);
        }
        if let (Some(proposal), Some(number)) = (proposal, number(&data)) {
            if proposal.0 != number {
                self.fails(format!("proposal {} is told of {number}", proposal.0));
            }
            self.acked.insert(number, position.term);
        }
    }

    pub(super) fn check_has(&mut self, at: usize, acked: &BTreeSet<u64>, who: &str) {
        let all: Vec<u64> = self.slots[at].disk.tables.iter().filter_map(|(_, data)| number(data)).collect();
        let has: BTreeSet<u64> = all.iter().copied().collect();
        if let Some(lost) = acked.difference(&has).next() {
            self.fails(format!("{who} does not have {lost}, which was acknowledged"));
        }
        if all.len() != has.len() {
            self.fails(format!("{who} has a change twice"));
        }
    }
}
