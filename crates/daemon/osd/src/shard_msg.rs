//! [`ShardMsg`]: messages between the shards of one OSD; [`ShardRouter`]: which shard a PG is on, and the way there.

use crate::bill::BillSample;
use crate::command_reply::Failure;
use crate::dynamic_perf_stats::PerfSamples;
use crate::gather::Shown;
use crate::link_counts::LinkCounts;
use crate::own_collection::{ancestors, partition_of};
use crate::peer_links::Counterpart;
use crate::perf_counters::PerfSums;
use crate::relocation_msg::RelocationMsg;
use nacre_auth::{RotatingKeys, ServiceAccess};
use nacre_heartbeat::Leases;
use nacre_maps::OsdMap;
use nacre_msg::peer::PeerMessage;
use nacre_msg::stats::{PgStat, SlowOps};
use nacre_msg::{Command, DeviceHealthReport, MOsdMap, PerfQueries, RawMessage, SlowRequest};
use nacre_msgr::Config as MsgrConfig;
use nacre_options::Values;
use nacre_osd_core::Past;
use nacre_pg::{ClientOp, MergeState, Permit, PgCreateInfo, RecoveryKind, Session, SessionId, Trace};
use nacre_service::{AdminRequest, MailboxFull, MailboxSender};
use nacre_types::{DeviceLatencies, Epoch, OsdId, PgId, PoolId, SpgId, Stamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What one shard tells another, the receiver. Everything inside is owned or shared for reading only.
#[derive(Debug)]
pub(crate) enum ShardMsg {
    /// Maps that OSD control has received.
    Maps(Arc<MOsdMap>),
    /// Secrets of the service, to check tickets with.
    Keys(Arc<RotatingKeys>),
    /// A client's message for a PG of the receiver.
    Op(SpgId, ClientOp),
    /// A message for a client of the receiver.
    ToSession(SessionId, RawMessage),
    /// A client of the sender is gone.
    SessionClosed(SessionId),
    /// A peer's message for a PG of the receiver.
    Peer(OsdId, Box<PeerMessage>),
    /// Messages to and from this peer may be lost, although neither has ended.
    PeerReset(OsdId),
    /// Send this to a peer by the receiver's link.
    ToPeer(OsdId, RawMessage),
    /// How the receiver reaches its counterpart in an OSD.
    Counterpart(OsdId, Counterpart),
    /// What opens connections to other OSDs.
    PeerAccess(Arc<ServiceAccess>),
    /// To OSD control: that was refused.
    PeerAccessRefused(Arc<ServiceAccess>),
    /// Links to other OSDs follow this map.
    FollowPeers(Arc<OsdMap>),
    /// To OSD control: an OSD said what the sender cannot read.
    Misunderstood(OsdId, String),
    /// To OSD control: tell the monitor.
    MonRequest(MonRequest),
    /// The monitor wants this PG to exist.
    Create(SpgId, Box<PgCreateInfo>),
    /// To OSD control: which OSDs served this PG?
    Past(SpgId, Past),
    /// To OSD control: what the PGs of a shard say of themselves.
    Stats(Box<ShardReport>),
    /// The manager wants this PG scrubbed, and perhaps what differs repaired.
    Scrub { spg: SpgId, deep: bool, repair: bool },
    /// The manager wants this PG recovered before others, or in turn again.
    Force { spg: SpgId, kind: RecoveryKind, forced: bool },
    /// A client of the sender holds its messages as a PG of the receiver told it to.
    BackoffAck { spg: SpgId, session: SessionId, id: u64 },
    /// A client of the sender asks about a PG of the receiver, or orders a scrub of it.
    Ask(Box<Question>),
    /// To OSD control: a client of the sender gives a command.
    Command(Arc<Session>, u64, Box<Command>),
    /// To OSD control: somebody asks at the admin socket.
    Admin(AdminRequest),
    /// To OSD control: what came of asking a device for the monitor.
    DeviceHealth(Box<DeviceHealthReport>),
    /// What a manager wants counted.
    PerfQueries(Arc<PerfQueries>),
    /// Options have changed.
    Options(Arc<Values>),
    /// What other OSDs promise has changed.
    Leases(Arc<Leases>),
    /// The OSD goes on under these addresses towards clients and towards other OSDs, with a new nonce.
    Rebound { public: Arc<MsgrConfig>, cluster: Arc<MsgrConfig> },
    /// To OSD control: ask the monitor to mark this OSD down, and then let all shards end.
    Leave,
    /// Show this of yourself, for the command of that number.
    Show(u64, Shown),
    /// To OSD control: what the shard of this number shows.
    Part(u64, usize, Box<Result<serde_json::Value, Failure>>),
    /// A PG changes its partition.
    Relocation(SpgId, RelocationMsg),
    /// The shard ends.
    Stop,
}

/// Something that a PG wants the monitor to know.
#[derive(Debug, Clone)]
pub(crate) enum MonRequest {
    /// Raise our `up_thru`.
    UpThru(Epoch),
    /// Let these serve the PG for now.
    PgTemp(PgId, Vec<OsdId>),
    /// The PG has come to life.
    Created(PgId),
    /// How far a PG is that is to be merged, and whether it has one store with the other.
    Merge { state: MergeState, same_store: bool },
}

/// What one shard has to report to the manager.
#[derive(Debug, Default, Clone)]
pub(crate) struct ShardReport {
    pub(crate) shard: usize,
    /// PGs that it leads.
    pub(crate) pgs: Vec<(PgId, PgStat)>,
    /// Bytes of data and of omap in all its copies, by pool.
    pub(crate) pools: BTreeMap<PoolId, (i64, i64)>,
    pub(crate) pg_count: u32,
    /// OSDs that serve any of its copies with it.
    pub(crate) sharers: BTreeSet<OsdId>,
    /// Copies that began anew because their records were damaged, and are not whole yet.
    pub(crate) lost: Vec<PgId>,
    /// Objects of its copies that were damaged and brought anew.
    pub(crate) repaired: u64,
    pub(crate) usage: nacre_store::StoreUsage,
    /// Of it what is compressed, by pool.
    pub(crate) packed: BTreeMap<PoolId, nacre_store::PackedUsage>,
    /// Partitions of the OSD's store that this is of.
    pub(crate) partitions: u64,
    /// Writes of clients that were answered since the report before, and the nanoseconds that the device took for
    /// them all.
    pub(crate) commits: (u64, u64),
    /// Of a shard beside the first one: its connections with other OSDs.
    pub(crate) links: BTreeMap<OsdId, LinkCounts>,
    /// Clients that exhaust what they may have.
    pub(crate) throttled: Vec<String>,
    /// What its counters have come to since its start.
    pub(crate) sums: PerfSums,
    /// Messages of clients that take longer than `osd_op_complaint_time`.
    pub(crate) slow_ops: SlowOps,
    /// The oldest of them.
    pub(crate) slow_requests: Vec<SlowRequest>,
    /// What it has counted for a manager's queries since the report before.
    pub(crate) perf_samples: PerfSamples,
    /// Requests to its device since the report before.
    pub(crate) latencies: DeviceLatencies,
    /// what clients it has worked for since the report before, where that is counted.
    pub(crate) bill: Option<BillSample>,
}

/// A `tell` command about one PG.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) session: SessionId,
    pub(crate) tid: u64,
    pub(crate) spg: SpgId,
    pub(crate) kind: QuestionKind,
}

/// What is wanted of the PG.
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
pub(crate) struct ShardRouter {
    pub(crate) me: usize,
    senders: Vec<MailboxSender<ShardMsg>>,
    /// Partitions of the OSD's store; a shard has one, or several.
    partitions: usize,
    /// Messages to oneself, read within the same turn.
    local: VecDeque<ShardMsg>,
    /// Messages that found a full mailbox, in order per receiver; while there are any, clients are not read.
    stuck: VecDeque<(usize, ShardMsg)>,
    /// How many PGs each pool had when this OSD first heard of it, or fewer, that it had or was about to have since.
    initial_pg_num: BTreeMap<PoolId, u32>,
    /// The shard's store has something else of that, perhaps.
    is_unsaved: bool,
    /// Epoch of the newest map of which an earlier life of this OSD took in the pools, on any shard.
    remembered_epoch: Epoch,
    /// PGs that another partition has from the newest map on.
    moved: Vec<MovedPg>,
    /// Those of them that were this shard's: what still comes for them goes on to their new one.
    left: BTreeSet<SpgId>,
    /// The shard that had each of them first, in this life of the OSD.
    first_shards: BTreeMap<SpgId, usize>,
}

/// A PG that changes its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MovedPg {
    pub(crate) spg: SpgId,
    /// Where it was, and where it is to be.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Where a message for a PG is to go that came to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is this shard's.
    Here,
    /// The PG has gone to that shard.
    Forward(usize),
    /// Its sender knows a newer map: by that the PG is this shard's.
    Hold,
}

impl ShardRouter {
    pub(crate) fn new(me: usize, senders: Vec<MailboxSender<ShardMsg>>, partitions: usize) -> Self {
        Self {
            me,
            senders,
            partitions,
            local: VecDeque::new(),
            stuck: VecDeque::new(),
            initial_pg_num: BTreeMap::new(),
            is_unsaved: false,
            remembered_epoch: 0,
            moved: Vec::new(),
            left: BTreeSet::new(),
            first_shards: BTreeMap::new(),
        }
    }

    /// Shards of this OSD.
    pub(crate) fn shard_count(&self) -> usize {
        self.senders.len()
    }

    /// What an earlier life of this OSD knew of pools, up to the map of `epoch`.
    pub(crate) fn remember(&mut self, initial_pg_num: BTreeMap<PoolId, u32>, epoch: Epoch) {
        (self.initial_pg_num, self.remembered_epoch) = (initial_pg_num, epoch);
        // Another shard may have been ahead.
        self.is_unsaved = true;
    }

    /// How many PGs each pool had when this OSD first heard of it.
    pub(crate) fn initial_pg_num(&self) -> &BTreeMap<PoolId, u32> {
        &self.initial_pg_num
    }

    /// A map came; true when it has pools that are new to us, or fewer PGs than were known of one, or nothing was stored yet of what an
    /// earlier life knew. All shards see the same maps, so all find the same homes.
    pub(crate) fn learn_map(&mut self, map: &OsdMap) -> bool {
        // A shard that is behind others meets maps from before pools that are known already.
        if map.epoch > self.remembered_epoch {
            self.initial_pg_num.retain(|pool, _| map.pools.contains_key(pool));
            self.left.retain(|spg| map.pools.contains_key(&spg.pg.pool));
            self.first_shards.retain(|spg, _| map.pools.contains_key(&spg.pg.pool));
        }
        let mut has_changed = std::mem::take(&mut self.is_unsaved);
        for (id, pool) in &map.pools {
            // A PG that is about to be merged belongs where the one is that takes it in.
            let pending = (pool.pg_num_pending > 0).then_some(pool.pg_num_pending);
            let least = pending.unwrap_or(pool.pg_num).min(pool.pg_num);
            match self.initial_pg_num.get(id).copied() {
                Some(known) if least >= known => continue,
                Some(known) => self.lower(*id, known, least),
                None => drop(self.initial_pg_num.insert(*id, pool.pg_num)),
            }
            has_changed = true;
        }
        has_changed
    }

    /// A pool has fewer PGs, or is about to, than were known so far: some change their partition.
    fn lower(&mut self, pool: PoolId, known: u32, least: u32) {
        let pgs: Vec<SpgId> = (least..known).map(|seed| SpgId::replicated(PgId::new(pool, seed))).collect();
        let before: Vec<usize> = pgs.iter().map(|spg| self.partition_of(spg)).collect();
        self.initial_pg_num.insert(pool, least);
        for (spg, from) in pgs.into_iter().zip(before) {
            let to = self.partition_of(&spg);
            if from != to {
                self.moved.push(MovedPg { spg, from, to });
                let shard = self.shard_with(from);
                self.first_shards.entry(spg).or_insert(shard);
                if shard == self.me {
                    self.left.insert(spg);
                }
            }
        }
    }

    /// The PGs that another partition has from the newest map on.
    pub(crate) fn take_moved(&mut self) -> Vec<MovedPg> {
        std::mem::take(&mut self.moved)
    }

    /// The shard that has a partition.
    pub(crate) fn shard_with(&self, partition: usize) -> usize {
        if self.shard_count() == 0 { self.me } else { partition % self.shard_count() }
    }

    /// Where a message that came here for a PG is to go.
    pub(crate) fn way_of(&self, spg: &SpgId) -> Way {
        match self.shard_of(spg) {
            shard if shard == self.me => Way::Here,
            // So has what is split off it in its new place.
            shard if ancestors(spg.pg).any(|pg| self.left.contains(&SpgId::replicated(pg))) => {
                Way::Forward(shard)
            }
            // Its pool is gone.
            _ if !self.initial_pg_num.contains_key(&spg.pg.pool) => Way::Here,
            _ => Way::Hold,
        }
    }

    /// In which partition of the OSD's store a PG is.
    pub(crate) fn partition_of(&self, spg: &SpgId) -> usize {
        partition_of(&self.initial_pg_num, spg, self.partitions)
    }

    /// How many partitions this shard has.
    pub(crate) fn own_partitions(&self) -> usize {
        (self.me..self.partitions).step_by(self.shard_count().max(1)).count()
    }

    /// Which shard a PG lives on: the one that has the partition that it is in.
    pub(crate) fn shard_of(&self, spg: &SpgId) -> usize {
        if self.shard_count() == 1 {
            return self.me;
        }
        self.partition_of(spg) % self.shard_count()
    }

    /// The shard to which messages for a PG go that come from outside. Those for a PG that has changed its shard take the way that they
    /// took before, and its first shard forwards them: what a client sent before the shard of its session knew of that is not overtaken.
    pub(crate) fn entry_of(&self, spg: &SpgId) -> usize {
        if self.first_shards.is_empty() {
            return self.shard_of(spg);
        }
        let first = ancestors(spg.pg).find_map(|pg| self.first_shards.get(&SpgId::replicated(pg)));
        first.copied().unwrap_or_else(|| self.shard_of(spg))
    }

    pub(crate) fn send(&mut self, to: usize, msg: ShardMsg) {
        if to == self.me {
            self.local.push_back(msg);
        } else if self.stuck.iter().any(|(other, _)| *other == to) {
            self.stuck.push_back((to, msg));
        } else if let Err(MailboxFull(msg)) = self.senders[to].try_send(msg) {
            self.stuck.push_back((to, msg));
        }
    }

    /// To every other shard.
    pub(crate) fn send_others(&mut self, msg: impl Fn() -> ShardMsg) {
        for to in (0..self.shard_count()).filter(|to| *to != self.me).collect::<Vec<_>>() {
            self.send(to, msg());
        }
    }

    /// How another thread reaches this shard.
    pub(crate) fn own_sender(&self) -> MailboxSender<ShardMsg> {
        self.senders[self.me].clone()
    }

    pub(crate) fn next_local(&mut self) -> Option<ShardMsg> {
        self.local.pop_front()
    }

    pub(crate) fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Tries again what found a full mailbox.
    pub(crate) fn retry(&mut self) {
        for (to, msg) in std::mem::take(&mut self.stuck) {
            self.send(to, msg);
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

    /// Of the first shard, and of none of its connections.
    const OF_ADMIN: u64 = 1 << 47;

    /// The `count`th that asks at the admin socket.
    pub(crate) fn of_admin(count: u64) -> SessionId {
        make(0, OF_ADMIN | count)
    }

    pub(crate) fn shard(id: SessionId) -> usize {
        (id.0 >> SHARD_SHIFT) as usize
    }
}

/// A client's message from the wire to its PG.
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

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::real::RealNet;
    use nacre_maps::Pool;

    fn map(epoch: Epoch, pools: &[(PoolId, u32)]) -> OsdMap {
        let pools = pools.iter().map(|(id, pg_num)| (*id, Pool { pg_num: *pg_num, ..Pool::default() }));
        OsdMap { epoch, pools: pools.collect(), ..OsdMap::default() }
    }

    #[test]
    fn a_shard_that_is_behind_keeps_what_is_known_of_pools_that_come_later() {
        let mut router = ShardRouter::new(1, Vec::new(), 2);
        router.remember([(7, 1)].into(), 124);
        assert!(router.learn_map(&map(3, &[])), "it is stored once");
        assert!(!router.learn_map(&map(120, &[(7, 4)])), "the maps between were trimmed");
        assert_eq!(router.initial_pg_num(), &[(7, 1)].into());
        assert!(router.learn_map(&map(125, &[(8, 2)])));
        assert_eq!(router.initial_pg_num(), &[(8, 2)].into(), "the pool is gone");
    }

    /// Pool 7 has two PGs on two shards, 7.1 on the first one, and goes to the second one, and so does 7.3 when it is split off there.
    #[test]
    fn what_comes_for_a_pg_that_has_changed_its_shard_goes_by_the_first_one_and_so_does_what_comes_for_its_children()
     {
        let spg = |seed| SpgId::replicated(PgId::new(7, seed));
        let senders = || {
            (0..2)
                .map(|_| nacre_service::mailbox(RealNet::new().expect("an epoll").waker()).0)
                .collect::<Vec<_>>()
        };
        let mut routers = [0, 1].map(|me| ShardRouter::new(me, senders(), 2));
        for router in &mut routers {
            router.learn_map(&map(1, &[(7, 2)]));
            let mut pending = map(2, &[(7, 2)]);
            pending.pools.values_mut().for_each(|pool| pool.pg_num_pending = 1);
            let before = router.shard_of(&spg(1));
            assert_eq!((before, router.entry_of(&spg(1))), (0, 0));
            router.learn_map(&pending);
            for seed in [1, 3] {
                assert_eq!((router.shard_of(&spg(seed)), router.entry_of(&spg(seed))), (1, 0), "{seed}");
            }
            assert_eq!(router.entry_of(&spg(0)), 1);
        }
        for seed in [1, 3] {
            assert_eq!(routers[0].way_of(&spg(seed)), Way::Forward(1), "{seed}");
            assert_eq!(routers[1].way_of(&spg(seed)), Way::Here, "{seed}");
        }
        for router in &mut routers {
            router.learn_map(&map(3, &[]));
            assert!(
                router.first_shards.is_empty() && router.left.is_empty(),
                "with the pool that is forgotten"
            );
        }
    }
}
