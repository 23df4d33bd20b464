//! What shards of one OSD tell each other, and the post that carries it.

use crate::lead::Order;
use crate::walk::Past;
use nacre_auth::RotatingKeys;
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_mgr::options::Values;
use nacre_msg::peer::PeerMessage;
use nacre_msg::stats::PgStat;
use nacre_msg::{Command, OsdMap as MapMessage, RawMessage};
use nacre_msgr::Config as MsgrConfig;
use nacre_pg::{Birth, ClientOp, Permit, RecoveryKind, Session, SessionId, Trace};
use nacre_service::{MailboxFull, Mailman};
use nacre_types::{OsdId, PgId, PoolId, SpgId, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One shard to another. Everything inside is owned or shared for reading only.
#[derive(Debug)]
pub(crate) enum Letter {
    /// The lead has received maps.
    Maps(Arc<MapMessage>),
    /// Secrets of the service, to check tickets with.
    Keys(Arc<RotatingKeys>),
    /// A client's message for a group of yours.
    Op(SpgId, ClientOp),
    /// A message for a client of yours.
    ToSession(SessionId, RawMessage),
    /// A client of mine is gone.
    SessionClosed(SessionId),
    /// A peer's message for a group of yours.
    Peer(OsdId, Box<PeerMessage>),
    /// Messages to and from this peer may be lost, although neither has ended.
    PeerReset(OsdId),
    /// To the lead: send this to a peer.
    ToPeer(OsdId, RawMessage),
    /// To the lead: tell the monitor.
    Order(Order),
    /// The monitor wants this group to exist.
    Create(SpgId, Box<Birth>),
    /// To the lead: who served this group?
    Past(SpgId, Past),
    /// To the lead: what the groups of a shard say of themselves.
    Stats(ShardReport),
    /// The manager wants this group scrubbed, and perhaps what differs mended.
    Scrub { spg: SpgId, deep: bool, repair: bool },
    /// The manager wants this group recovered before others, or in turn again.
    Force { spg: SpgId, kind: RecoveryKind, forced: bool },
    /// A client of mine holds its messages as your group told it to.
    BackoffAck { spg: SpgId, session: SessionId, id: u64 },
    /// A client of mine asks about a group of yours, or orders a scrub of it.
    Ask(Box<Question>),
    /// To the lead: a client of mine gives a command.
    Command(Arc<Session>, u64, Box<Command>),
    /// Options have changed.
    Options(Arc<Values>),
    /// What other OSDs promise has changed.
    Leases(Arc<Leases>),
    /// Clients know us by another name from now on.
    Renamed(Arc<MsgrConfig>),
    /// To the lead: take leave of the monitor, and then let all shards end.
    Leave,
    /// End.
    Stop,
}

/// What one shard has to report to the manager.
#[derive(Debug, Default, Clone)]
pub(crate) struct ShardReport {
    pub(crate) shard: usize,
    /// Groups that it leads.
    pub(crate) groups: Vec<(PgId, PgStat)>,
    /// Bytes of data and of omap in all its copies, by pool.
    pub(crate) pools: BTreeMap<PoolId, (i64, i64)>,
    pub(crate) group_count: u32,
    /// OSDs that serve any of its copies with it.
    pub(crate) sharers: BTreeSet<OsdId>,
    /// Copies that began anew because their records were damaged, and are not whole yet.
    pub(crate) lost: Vec<PgId>,
    pub(crate) usage: nacre_store::StoreUsage,
    /// Writes of clients that were answered since the report before, and the nanoseconds that the device took for
    /// them all.
    pub(crate) commits: (u64, u64),
    /// Clients that exhaust what they may have.
    pub(crate) throttled: Vec<String>,
}

/// A `tell` command about one group.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) session: SessionId,
    pub(crate) tid: u64,
    pub(crate) spg: SpgId,
    pub(crate) kind: QuestionKind,
}

/// What is wanted of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QuestionKind {
    /// `query`
    Query,
    /// `scrub`, `deep-scrub`
    Scrub { deep: bool },
    /// `list_unfound`, `list_missing`: behind this object.
    List { unfound: bool, from: nacre_types::HObject },
    /// `mark_unfound_lost`
    MarkLost(nacre_pg::Lost),
}

/// A shard's access to the others and to itself.
pub(crate) struct Post {
    pub(crate) me: usize,
    mailmen: Vec<Mailman<Letter>>,
    /// Letters to oneself, read within the same turn.
    local: VecDeque<Letter>,
    /// Letters that found a full mailbox, in order per receiver; while there are any, clients are not read.
    stuck: VecDeque<(usize, Letter)>,
    /// How many groups each pool had when this OSD first heard of it.
    origins: BTreeMap<PoolId, u32>,
}

impl Post {
    pub(crate) fn new(me: usize, mailmen: Vec<Mailman<Letter>>) -> Self {
        Self { me, mailmen, local: VecDeque::new(), stuck: VecDeque::new(), origins: BTreeMap::new() }
    }

    /// Shards of this OSD.
    pub(crate) fn shard_count(&self) -> usize {
        self.mailmen.len()
    }

    /// What an earlier life of this OSD knew of pools.
    pub(crate) fn remember(&mut self, origins: BTreeMap<PoolId, u32>) {
        self.origins = origins;
    }

    /// How many groups each pool had when this OSD first heard of it.
    pub(crate) fn origins(&self) -> &BTreeMap<PoolId, u32> {
        &self.origins
    }

    /// A map came; true when it has pools that are new to us. All shards see the same maps, so all find the
    /// same homes.
    pub(crate) fn learn_map(&mut self, map: &OsdMap) -> bool {
        self.origins.retain(|pool, _| map.pools.contains_key(pool));
        let known = self.origins.len();
        for (id, pool) in &map.pools {
            self.origins.entry(*id).or_insert(pool.pg_num);
        }
        self.origins.len() > known
    }

    /// Which shard a group lives on: that of the group which it was split off, whose objects are in that
    /// shard's store.
    pub(crate) fn home(&self, spg: &SpgId) -> usize {
        if self.shard_count() == 1 {
            return self.me;
        }
        let origin = self.origins.get(&spg.pg.pool).filter(|pg_num| **pg_num > 0);
        let seed = origin.map_or(spg.pg.seed, |pg_num| nacre_types::hash::stable_mod(spg.pg.seed, *pg_num));
        let spread = spg.pg.pool.unsigned_abs().wrapping_add(seed.into());
        (spread % self.mailmen.len() as u64) as usize
    }

    pub(crate) fn send(&mut self, to: usize, letter: Letter) {
        if to == self.me {
            self.local.push_back(letter);
        } else if self.stuck.iter().any(|(other, _)| *other == to) {
            self.stuck.push_back((to, letter));
        } else if let Err(MailboxFull(letter)) = self.mailmen[to].try_send(letter) {
            self.stuck.push_back((to, letter));
        }
    }

    /// To every other shard.
    pub(crate) fn send_others(&mut self, letter: impl Fn() -> Letter) {
        for to in (0..self.shard_count()).filter(|to| *to != self.me).collect::<Vec<_>>() {
            self.send(to, letter());
        }
    }

    pub(crate) fn next_local(&mut self) -> Option<Letter> {
        self.local.pop_front()
    }

    pub(crate) fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Tries again what found a full mailbox.
    pub(crate) fn retry(&mut self) {
        for (to, letter) in std::mem::take(&mut self.stuck) {
            self.send(to, letter);
        }
    }

    pub(crate) fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }
}

/// Names sessions so that each shard finds the owner of one: the shard in the high bits, a count below.
pub(crate) mod session_id {
    use nacre_pg::SessionId;

    const SHARD_SHIFT: u32 = 48;

    pub(crate) fn make(shard: usize, count: u64) -> SessionId {
        SessionId((shard as u64) << SHARD_SHIFT | count)
    }

    pub(crate) fn shard(id: SessionId) -> usize {
        (id.0 >> SHARD_SHIFT) as usize
    }
}

/// A client's message from the wire to its group.
pub(crate) fn client_op(
    session: Arc<Session>,
    tid: u64,
    op: Box<nacre_msg::OsdOp>,
    received: Stamp,
    permit: Permit,
) -> ClientOp {
    let input_bytes = op.ops.iter().map(|sub| sub.indata.len() as u64).sum();
    let trace = Trace { received, input_bytes, ..Trace::default() };
    ClientOp { session, tid, op, trace, permit, is_beyond_room: false }
}
