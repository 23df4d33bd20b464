//! Which member holds which shard, and how a write reaches each with its own part.

use crate::coding::Ec;
use crate::log::Missing;
use crate::peer::Peer;
use crate::phase::Phase;
use crate::state::PgState;
use crate::tokens::OnDurable;
use crate::{Cx, Effect, interval, storage};
use nacre_msg::peer::{ChunkMapping, LogEntry, PgInfo, RepOp, Shards};
use nacre_txn::{Op, Transaction};
use nacre_types::{Eversion, HObject, OsdId, SHARD_NONE, SpgId};
use smallvec::smallvec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Gives every member of `set` a shard: a member that has one keeps it, the others get those that are free. If two have the same,
/// one of them gets another one only if it `may_change`. `shards` says what is given out already.
fn assign<'a>(
    shards: &mut BTreeMap<OsdId, u8>,
    set: &[OsdId],
    size: u8,
    me: OsdId,
    may_change: bool,
    info: impl Fn(OsdId) -> Option<&'a PgInfo>,
) {
    let mut taken: BTreeSet<u8> = set.iter().filter_map(|osd| shards.get(osd)).copied().collect();
    let mut left: Vec<OsdId> = set.iter().copied().filter(|osd| !shards.contains_key(osd)).collect();
    left.sort_by_key(|osd| {
        let info = info(*osd);
        let complete = info.is_some_and(|info| !info.is_incomplete());
        let update = info.map_or(Eversion::ZERO, |info| info.last_update);
        (Reverse(complete), *osd != me, Reverse(update), *osd)
    });
    left.retain(|osd| {
        let held = info(*osd).and_then(|info| info.shard).filter(|shard| *shard < size);
        let keeps = held.filter(|shard| taken.insert(*shard) || !may_change);
        shards.extend(keeps.map(|shard| (*osd, shard)));
        keeps.is_none()
    });
    // In the order of the set: a new PG's shards are numbered as its places.
    for osd in set.iter().filter(|osd| left.contains(osd)) {
        let free = (0..size).find(|shard| !taken.contains(shard));
        if let Some(shard) = free {
            taken.insert(shard);
            shards.insert(*osd, shard);
        }
    }
}

impl PgState {
    /// Chunks that are needed to read an object; `None` where every copy is whole.
    pub(crate) fn chunks_needed(&self) -> Option<usize> {
        self.ec.as_ref().map(Ec::k)
    }

    /// Chunks of an object; `None` where every copy is whole.
    pub(crate) fn chunk_count(&self) -> Option<usize> {
        self.ec.as_ref().map(|ec| ec.coding.codec.shards())
    }

    /// The PG as clients call it: in erasure-coded pools with the primary's place in the acting set.
    pub(crate) fn named_by_clients(&self) -> SpgId {
        if self.ec.is_none() {
            return self.spg;
        }
        let placed = self.map.pg_to_up_acting(self.spg.pg);
        let place = placed.acting.iter().position(|osd| *osd == placed.acting_primary);
        let shard = place.and_then(|place| i8::try_from(place).ok()).unwrap_or(SHARD_NONE);
        SpgId { shard, ..self.spg }
    }

    /// Length of the data that a copy stores of an object of `size` bytes.
    pub(crate) fn stored_bytes(&self, size: u64) -> u64 {
        self.ec.as_ref().map_or(size, |ec| ec.coding.layout.chunk_bytes(size))
    }

    /// Says which member holds which shard in this interval. First those that serve, then those that are to.
    pub(crate) fn assign_shards(&mut self) {
        let Some(ec) = &self.ec else { return };
        let size = u8::try_from(ec.coding.codec.shards()).unwrap_or(u8::MAX);
        let info = |osd: OsdId| {
            if osd == self.whoami { Some(&self.info) } else { self.peers.get(&osd).map(|peer| &peer.info) }
        };
        let mut shards = BTreeMap::new();
        if !self.interval.acting.contains(&self.whoami) {
            // A primary by order: it keeps what it holds, which some member may hold as well.
            shards.insert(self.whoami, self.info.shard.unwrap_or(0));
        }
        let may_change = ec.may_change;
        assign(&mut shards, &self.interval.acting, size, self.whoami, may_change, info);
        assign(&mut shards, &self.interval.up, size, self.whoami, may_change, info);
        if let Some(ec) = &mut self.ec {
            (ec.shards, ec.told_safe, ec.may_change) = (shards, Eversion::ZERO, false);
        }
    }

    /// Two members that should hold different chunks hold the same: one came back that another had replaced. Either
    /// may have what no other does, so both keep theirs until no copy lacks anything.
    pub(crate) fn has_twins(&self) -> bool {
        let shards =
            |set: &[OsdId]| set.iter().filter_map(|osd| self.shard_of(*osd)).collect::<BTreeSet<u8>>();
        let twins = |set: &[OsdId]| shards(set).len() < set.len();
        self.ec.is_some() && (twins(&self.interval.acting) || twins(&self.interval.up))
    }

    /// The shard that a member holds in this interval.
    pub(crate) fn shard_of(&self, osd: OsdId) -> Option<u8> {
        self.ec.as_ref().and_then(|ec| ec.shards.get(&osd)).copied()
    }

    /// What members must know of each other before this PG can be merged with another: nothing unless it is to be. One that is away for
    /// a moment is still among them.
    pub(crate) fn shards_to_merge(&self) -> Shards {
        let Some(ec) = self.ec.as_ref().filter(|_| self.merge_role.is_some()) else { return Shards::new() };
        let serves = |osd: &OsdId| self.interval.acting.contains(osd);
        let now: Shards =
            ec.shards.iter().filter(|(osd, _)| serves(osd)).map(|(osd, at)| (*osd, *at)).collect();
        let told = &self.info.merge_shards;
        let agrees = now.iter().all(|(osd, shard)| told.get(osd) == Some(shard));
        if agrees { told.clone() } else { now }
    }

    /// Every chunk is on one member, as all of them know.
    pub(crate) fn can_be_merged(&self) -> bool {
        let numbers: BTreeSet<u8> = self.info.merge_shards.values().copied().collect();
        self.chunk_count().is_none_or(|count| numbers.len() == count && self.info.merge_shards.len() == count)
    }

    /// The mapping by which the PG goes on: that of most copies that have taken part in the newest activation. Another one is of a copy
    /// that was not there when the PG was merged, of which nobody knows what it holds, or whose device has forgotten something.
    pub(crate) fn agreed_mapping(&self) -> Option<ChunkMapping> {
        let count = self.chunk_count()?;
        let up = self
            .peers
            .iter()
            .filter(|(osd, _)| interval::is_up(&self.map, **osd))
            .map(|(_, peer)| &peer.info);
        let infos: Vec<&PgInfo> = up.chain([&self.info]).collect();
        let newest = infos.iter().map(|info| info.history.last_epoch_started).max().unwrap_or(0);
        let counts =
            |info: &&PgInfo| info.shard.is_some() && !info.is_incomplete() && info.mapping.fits(count);
        let votes: Vec<&PgInfo> =
            infos.into_iter().filter(counts).filter(|info| info.last_epoch_started >= newest).collect();
        let rank = |info: &&PgInfo| {
            let alike = votes.iter().filter(|other| other.mapping == info.mapping).count();
            (alike, info.last_update)
        };
        votes.iter().copied().max_by_key(rank).map(|info| info.mapping.clone())
    }

    /// Which chunk of `object` a member holds in this interval.
    pub(crate) fn chunk_of(&self, osd: OsdId, object: &HObject) -> Option<u8> {
        self.shard_of(osd).map(|shard| self.info.mapping.chunk_of(object.hash, shard))
    }

    /// A peer's copy holds other chunks than it is to hold now: they are of no use.
    pub(crate) fn changes_shard(&self, osd: OsdId) -> bool {
        let Some(info) = self.peers.get(&osd).map(|peer| &peer.info) else { return false };
        let changes = self.shard_of(osd).is_some_and(|wanted| info.shard != Some(wanted));
        info.mapping.is_unknown() || info.shard.is_some() && (changes || info.mapping != self.info.mapping)
    }

    /// This copy is to hold the chunks of `shard` under `mapping`; others that it has are removed with all else.
    pub(crate) fn become_shard(&mut self, txn: &mut Transaction, shard: Option<u8>, mapping: &ChunkMapping) {
        let held = std::mem::replace(&mut self.info.shard, shard);
        let mapped = std::mem::replace(&mut self.info.mapping, mapping.clone());
        let is_new = held.is_none() && !mapped.is_unknown();
        if is_new || held == shard && mapped == *mapping {
            return;
        }
        txn.ops.extend([Op::RemoveCollection, Op::CreateCollection]);
        txn.ops.extend(self.log.iter().map(|entry| storage::log_append(&entry)));
        (self.missing, self.recorded) = (Missing::default(), BTreeSet::new());
        self.info.last_backfill = HObject::MIN;
        if let Some(ec) = &mut self.ec {
            ec.rollback_gens.clear();
        }
    }

    /// Turns the changes of a write into those of this OSD's shard, and sends the others theirs; `message` is what
    /// they all get beside.
    pub(crate) fn send_shards(
        &mut self,
        cx: &mut Cx<'_>,
        txn: &mut Transaction,
        entries: &[LogEntry],
        osds: &[OsdId],
        message: impl Fn(Transaction) -> RepOp,
    ) {
        let Some(ec) = &self.ec else { return };
        let kept = self.keep_replaced(cx.view, entries);
        let by_shard = ec.coding.encode_shards(std::mem::take(&mut txn.ops), entries, &self.info.mapping);
        let log: Vec<Op> = entries.iter().map(storage::log_append).collect();
        let part = |osd: OsdId| -> Vec<Op> {
            let shard = self.shard_of(osd);
            let of_shard = shard.and_then(|shard| Some((kept(shard), by_shard.get(usize::from(shard))?)));
            let (mut ops, changes) = of_shard.expect("a member has a shard");
            ops.extend(changes.iter().chain(&log).cloned());
            ops
        };
        for osd in osds {
            let message = message(Transaction { collection: self.spg, ops: part(*osd) });
            cx.effects.push(Effect::Peers { osds: smallvec![*osd], message: message.encode() });
        }
        let own = part(self.whoami);
        drop(kept);
        txn.ops = own;
        self.note_rollback_gens(&txn.ops, entries);
    }

    /// Members that can give a chunk of `object` in the version `need`, by chunk: members that are known to have it are the surest;
    /// any other one (`strays`) only says no if it has another version.
    pub(crate) fn chunk_sources(
        &self,
        object: &HObject,
        need: Eversion,
        absent: &BTreeSet<OsdId>,
        strays: bool,
    ) -> BTreeMap<u8, OsdId> {
        let mut sources = BTreeMap::new();
        let sure = |peer: &Peer| peer.activated && peer.has(object);
        let mapping = &self.info.mapping;
        let usable = |osd: &OsdId, peer: &Peer| {
            interval::is_up(&self.map, *osd)
                && peer.info.mapping == *mapping
                && !absent.contains(osd)
                && peer.missing.need(object).is_none()
                && (sure(peer) || strays && (peer.activated || peer.info.last_update >= need))
        };
        let (members, others): (Vec<_>, Vec<_>) =
            self.peers.iter().filter(|(osd, peer)| usable(osd, peer)).partition(|(_, peer)| sure(peer));
        if self.missing.need(object).is_none() && !absent.contains(&self.whoami) {
            sources.extend(self.info.shard.map(|shard| (mapping.chunk_of(object.hash, shard), self.whoami)));
        }
        for (osd, peer) in members.into_iter().chain(others) {
            if let Some(shard) = peer.info.shard {
                sources.entry(mapping.chunk_of(object.hash, shard)).or_insert(*osd);
            }
        }
        sources
    }

    /// True when members lack so many chunks of `head` or a clone of it that it cannot be read.
    pub(crate) fn has_too_few_chunks(&self, head: &HObject) -> bool {
        let Some(k) = self.chunks_needed() else { return false };
        let holds = |peer: &&Peer| peer.activated && peer.has_family(head);
        let peers = self.peers.values().filter(holds).filter_map(|peer| peer.info.shard);
        let shards: BTreeSet<u8> = peers.chain(self.info.shard).collect();
        shards.len() < k
    }

    /// Tells members up to where all writes are durable everywhere, if no write has told them: should this OSD's device forget the last of
    /// these, the others know that it was acknowledged. Call it when the last write is complete, for no next one may come to say so, and with
    /// each tick, for a member may hold up those that are in flight.
    pub(crate) fn tell_safe(&mut self, cx: &mut Cx<'_>) {
        let committed_to = self.committed_to;
        let due = self.phase.is_serving();
        let Some(ec) = self.ec.as_mut().filter(|ec| due && ec.told_safe < committed_to) else { return };
        ec.told_safe = committed_to;
        let (header, previous) = (self.header(), self.log.head());
        for osd in self.others() {
            let (trim_to, txn) = (Eversion::ZERO, Transaction::new(self.spg));
            let message = RepOp { header, tid: 0, previous, entries: Vec::new(), trim_to, committed_to, txn };
            self.send(cx, osd, message);
        }
    }

    /// Writes down that all writes are durable everywhere, if nothing else is written: what they replaced need not be kept. Call it
    /// when no write is in flight.
    pub(crate) fn release_rollback_gens(&mut self, cx: &mut Cx<'_>) {
        let committed_to = self.committed_to;
        let due = self.phase.is_serving() || matches!(self.phase, Phase::Replica);
        let Some(ec) = self.ec.as_mut().filter(|ec| due && ec.kept_safe < committed_to) else { return };
        ec.kept_safe = committed_to;
        let mut txn = Transaction::new(self.spg);
        self.drop_rollback_gens(&mut txn, committed_to);
        self.note_safe();
        self.save_info(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::peer::PgHistory;

    fn copy(shard: Option<u8>, update: u64, complete: bool) -> PgInfo {
        let mut info = PgInfo::empty(PgHistory::default());
        (info.shard, info.last_update) = (shard, Eversion::new(1, update));
        if !complete {
            info.last_backfill = HObject::MIN;
        }
        info
    }

    fn assigned(infos: &[PgInfo], acting: &[OsdId], up: &[OsdId]) -> Vec<(OsdId, u8)> {
        assigned_if(true, infos, acting, up)
    }

    fn assigned_if(may_change: bool, infos: &[PgInfo], acting: &[OsdId], up: &[OsdId]) -> Vec<(OsdId, u8)> {
        let mut shards = BTreeMap::new();
        let info = |osd: OsdId| usize::try_from(osd).ok().and_then(|at| infos.get(at));
        assign(&mut shards, acting, 3, 0, may_change, info);
        assign(&mut shards, up, 3, 0, may_change, info);
        shards.into_iter().collect()
    }

    #[test]
    fn shards_stay_where_they_are() {
        let empty = || copy(None, 0, true);
        assert_eq!(assigned(&[empty(), empty(), empty()], &[2, 0, 1], &[2, 0, 1]), [(0, 1), (1, 2), (2, 0)]);
        let held = [copy(Some(2), 5, true), copy(Some(0), 5, true), copy(Some(1), 5, true), empty()];
        assert_eq!(assigned(&held, &[0, 1, 2], &[0, 1, 2]), [(0, 2), (1, 0), (2, 1)]);
        assert_eq!(assigned(&held, &[0, 3, 2], &[0, 3, 2]), [(0, 2), (2, 1), (3, 0)]);
        // The successor takes the shard of the one that it replaces, while that one still serves.
        assert_eq!(assigned(&held, &[0, 1, 2], &[0, 1, 3]), [(0, 2), (1, 0), (2, 1), (3, 1)]);
    }

    #[test]
    fn of_two_copies_of_a_shard_the_better_one_counts() {
        let copies = |first: PgInfo, second: PgInfo| [copy(Some(0), 9, true), first, second];
        let all = &[0, 1, 2];
        let twins = copies(copy(Some(1), 3, true), copy(Some(1), 9, true));
        assert_eq!(
            assigned_if(false, &twins, all, all),
            [(0, 0), (1, 1), (2, 1)],
            "nothing is thrown away yet"
        );
        assert_eq!(
            assigned(&copies(copy(Some(1), 3, true), copy(Some(1), 9, true)), all, all),
            [(0, 0), (1, 2), (2, 1)]
        );
        assert_eq!(
            assigned(&copies(copy(Some(1), 3, true), copy(Some(1), 9, false)), all, all),
            [(0, 0), (1, 1), (2, 2)]
        );
        assert_eq!(
            assigned(&copies(copy(Some(0), 9, true), copy(Some(2), 9, true)), all, all),
            [(0, 0), (1, 1), (2, 2)]
        );
    }
}
