//! Pool operations of librados, snapshots of metadata servers, and questions about usage.

use crate::answers::{Again, Request, RequestKind};
use crate::command::Output;
use crate::event::SessionId;
use crate::mon::{Cx, Mon};
use crate::osd::{PoolError, PoolSpec};
use nacre_auth::{OsdCaps, Rwx};
use nacre_buf::Bytes;
use nacre_denc::Encode;
use nacre_maps::{OsdMap, PoolKind};
use nacre_mgr::pgmap::pool_usage;
use nacre_msg::stats::{ObjStatColl, PoolStat};
use nacre_msg::{
    GetPoolStats, GetPoolStatsReply, PoolOp, PoolOpReply, RemoveSnaps, Statfs, StatfsReply, pool_op_code,
};
use nacre_types::{EntityKind, Errno, PoolId};
use std::collections::BTreeMap;

/// Pools named in one question.
const POOLS_PER_MESSAGE_MAX: usize = 4096;

fn errno(error: &PoolError) -> Errno {
    Errno::from(error)
}

impl Mon {
    pub(crate) fn pool_op(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, op: &PoolOp) {
        if !self.is_ours(op.fsid) {
            return;
        }
        let parts =
            [&op.pool.to_le_bytes()[..], &op.op.to_le_bytes(), &op.snap.0.to_le_bytes(), op.name.as_bytes()];
        let identity = self.identity_of(session);
        let request = identity.and_then(|identity| Request::new(identity, RequestKind::PoolOp, tid, &parts));
        let answered = request.as_ref().and_then(|request| self.state.answers.find(request));
        let (result, response) = match answered {
            Some(Again::Output(output)) => (output.code, Some(output.data).filter(|data| !data.is_empty())),
            _ => self.run_pool_op(cx, session, op, request.as_ref()),
        };
        let epoch = self.state.osd.next_epoch();
        let version = epoch.into();
        self.send(session, tid, PoolOpReply { version, fsid: self.state.fsid, result, epoch, response });
    }

    fn run_pool_op(
        &mut self,
        cx: &mut Cx<'_>,
        session: SessionId,
        op: &PoolOp,
        request: Option<&Request>,
    ) -> (i32, Option<Bytes>) {
        if !self.may_pool_op(session, op) {
            return (Errno::EPERM.negated(), None);
        }
        let (code, response) = match self.apply_pool_op(cx, op) {
            Ok(response) => (0, response),
            Err(errno) => (errno.negated(), None),
        };
        if let Some(request) = request.filter(|_| code == 0) {
            let data = response.clone().unwrap_or_default();
            self.state.answers.note(request, &Output { code, data, ..Output::default() }, false);
        }
        (code, response)
    }

    /// Snapshots of clients may also be made by a client that may write objects of the pool, by its OSD caps.
    fn may_pool_op(&self, session: SessionId, op: &PoolOp) -> bool {
        if self.allows(session, "osd", Rwx::W) {
            return true;
        }
        if !matches!(op.op, pool_op_code::CREATE_UNMANAGED_SNAP | pool_op_code::DELETE_UNMANAGED_SNAP) {
            return false;
        }
        let Some(identity) = self.identity_of(session) else { return false };
        let map = self.state.osd.map();
        let id = PoolId::from(op.pool);
        let Some(name) = map.pool_name(id) else { return false };
        let args = BTreeMap::from([("poolname".to_owned(), name.to_owned())]);
        if identity.caps.allows_command("osd", "osd pool op unmanaged-snap", &args, Rwx::W) {
            return true;
        }
        let text = self.state.auth.keys().caps_of(&identity.auth_name, EntityKind::OSD).unwrap_or_default();
        let Ok(caps) = OsdCaps::parse(text) else { return false };
        caps.at(identity.seen_at).may_write_pool(name)
    }

    fn apply_pool_op(&mut self, cx: &mut Cx<'_>, op: &PoolOp) -> Result<Option<Bytes>, Errno> {
        let pool = PoolId::from(op.pool);
        let is_used = self.state.fs.map().user_of_pool(pool).is_some();
        let osd = &mut self.state.osd;
        let outcome = match op.op {
            pool_op_code::CREATE => return self.create_pool(cx, op),
            // File systems make snapshots of directories, by ids of their own.
            pool_op_code::CREATE_SNAP | pool_op_code::CREATE_UNMANAGED_SNAP if is_used => {
                return Err(Errno::EOPNOTSUPP);
            }
            pool_op_code::DELETE if is_used => return Err(Errno::EBUSY),
            pool_op_code::DELETE => match osd.delete_pool(pool, &self.state.config) {
                // A repeated request finds its work done.
                Err(PoolError::NoPool(_)) if op.pool != 0 && i64::from(osd.map().pool_max) >= pool => Ok(()),
                outcome => outcome,
            },
            pool_op_code::AUID_CHANGE => Ok(()),
            pool_op_code::CREATE_SNAP => osd.create_pool_snap(pool, &op.name, cx.wall).map(drop),
            pool_op_code::DELETE_SNAP => osd.remove_pool_snap(pool, &op.name),
            pool_op_code::CREATE_UNMANAGED_SNAP => {
                let snap = osd.create_self_managed_snap(pool).map_err(|error| errno(&error))?;
                return Ok(Some(snap.to_bytes()));
            }
            pool_op_code::DELETE_UNMANAGED_SNAP => osd.remove_self_managed_snap(pool, op.snap),
            _ => return Err(Errno::EINVAL),
        };
        outcome.map(|()| None).map_err(|error| errno(&error))
    }

    fn create_pool(&mut self, cx: &Cx<'_>, op: &PoolOp) -> Result<Option<Bytes>, Errno> {
        let spec = PoolSpec {
            name: op.name.clone(),
            kind: PoolKind::Replicated,
            crush_rule: u8::try_from(op.crush_rule).ok(),
            ..PoolSpec::default()
        };
        match self.state.osd.create_pool(&spec, cx.wall, &self.state.config) {
            Ok(_) => Ok(None),
            Err(error) => Err(errno(&error)),
        }
    }

    pub(crate) fn remove_snaps(&mut self, session: SessionId, tid: u64, ask: RemoveSnaps) {
        if !self.allows(session, "osd", Rwx::R | Rwx::W) {
            return;
        }
        for (pool, snaps) in &ask.snaps {
            self.state.osd.remove_snaps(PoolId::from(*pool), snaps);
        }
        let version = self.state.osd.next_epoch().into();
        self.send(session, tid, RemoveSnaps { version, snaps: ask.snaps });
    }

    /// Usage is told whoever may read `pg`, as in Ceph. The answers have no field for a refusal.
    fn may_read_usage(&self, session: SessionId) -> bool {
        self.allows(session, "pg", Rwx::R)
    }

    pub(crate) fn statfs(&mut self, session: SessionId, tid: u64, ask: &Statfs) {
        if !self.is_ours(ask.fsid) || !self.may_read_usage(session) {
            return;
        }
        let map = std::sync::Arc::clone(self.state.osd.map());
        let pgs = self.state.shown_pgs();
        let digest = pgs.digest(&map);
        let kib = |bytes: i64| u64::try_from(bytes).unwrap_or(0) / 1024;
        let whole = || {
            let statfs = &digest.osd_sum.statfs;
            let (kb, kb_avail) = (kib(statfs.total), kib(statfs.available));
            (kb, kib(statfs.used_raw()), kb_avail, &digest.sum.stats)
        };
        let of_pool = |id: PoolId| {
            let (pool, sum) = (map.pool(id)?, digest.pools.get(&id)?);
            let usage = pool_usage(pgs, &map, pool, sum);
            let (used, avail) = (usage.stored_data / 1024, usage.max_avail / 1024);
            Some((used + avail, used, avail, &sum.stats))
        };
        let (kb, kb_used, kb_avail, stats) = ask.data_pool.and_then(of_pool).unwrap_or_else(whole);
        let num_objects = u64::try_from(stats.num_objects).unwrap_or(0);
        let (fsid, version) = (self.state.fsid, pgs.version);
        self.send(session, tid, StatfsReply { fsid, version, kb, kb_used, kb_avail, num_objects });
    }

    pub(crate) fn pool_stats(&mut self, session: SessionId, tid: u64, ask: &GetPoolStats) {
        if !self.is_ours(ask.fsid) || !self.may_read_usage(session) {
            return;
        }
        let map = std::sync::Arc::clone(self.state.osd.map());
        let pgs = self.state.shown_pgs();
        let digest = pgs.digest(&map);
        let per_pool_stats =
            digest.sum.store_count > 0 || digest.pools.values().any(|sum| sum.store_count > 0);
        let named = ask.pools.iter().take(POOLS_PER_MESSAGE_MAX);
        let pool_stats =
            named.filter_map(|name| Some((name.clone(), pool_stat(&map, &digest, name)?))).collect();
        let (fsid, version) = (self.state.fsid, pgs.version);
        self.send(session, tid, GetPoolStatsReply { version, fsid, pool_stats, per_pool_stats });
    }
}

fn pool_stat(map: &OsdMap, digest: &nacre_mgr::pgmap::Digest, name: &str) -> Option<PoolStat> {
    let sum = digest.pools.get(&map.pool_by_name(name)?)?;
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    Some(PoolStat {
        stats: ObjStatColl { sum: sum.stats.clone() },
        log_size: sum.log_size,
        ondisk_log_size: sum.ondisk_log_size,
        up: count(sum.up),
        acting: count(sum.acting),
        store_stats: sum.store.clone(),
        num_store_stats: u32::try_from(sum.store_count).unwrap_or(u32::MAX),
    })
}
