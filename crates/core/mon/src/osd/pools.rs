//! Pools: creation, deletion, renaming, PG creation and the limits on all of it.

use super::OsdMaps;
use crate::batch::Batch;
use crate::config::ConfigDb;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_ec::{Code, PARITY_CEPH, PARITY_KEY, ProfileError, is_marked};
use nacre_maps::{AutoscaleMode, OsdMap, Pool, PoolKind, flags};
use nacre_msg::peer::PeerVersions;
use nacre_types::{Epoch, Errno, IntervalSet, OsdId, PgId, PoolId, UTime};

const CREATING_PREFIX: &str = "osd-creating";

/// Longest pool name.
pub const POOL_NAME_BYTES_MAX: usize = 1024;

/// A pool that is to be made. `None` leaves a value to the options.
#[derive(Debug, Clone, Default)]
pub struct PoolSpec {
    /// Name of the pool.
    pub name: String,
    /// Copies or shards.
    pub kind: PoolKind,
    /// Number of PGs.
    pub pg_num: Option<u32>,
    /// Number of PGs for placement, `pg_num` unless given.
    pub pgp_num: Option<u32>,
    /// Copies; taken from the profile for erasure-coded pools.
    pub size: Option<u8>,
    /// Copies that must be up.
    pub min_size: Option<u8>,
    /// Rule that places it.
    pub crush_rule: Option<u8>,
    /// Name of the erasure-code profile; empty for a replicated pool.
    pub erasure_code_profile: String,
    /// What the autoscaler may do.
    pub autoscale_mode: Option<AutoscaleMode>,
}

/// Why a pool cannot be made or changed so. The texts are what clients show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The name is empty or too long.
    #[error("pool name is empty or longer than {POOL_NAME_BYTES_MAX} bytes")]
    Name,
    /// The name is taken.
    #[error("pool '{0}' already exists")]
    Exists(String),
    /// No such pool.
    #[error("unrecognized pool '{0}'")]
    NoPool(String),
    /// `pg_num` is out of bounds.
    #[error("pg_num is 1 to {max} (mon_max_pool_pg_num)")]
    PgNum {
        /// Most that is allowed.
        max: u32,
    },
    /// `pgp_num` is out of bounds.
    #[error("pgp_num is 1 to pg_num, which is {pg_num}")]
    PgpNum {
        /// The pool's `pg_num`.
        pg_num: u32,
    },
    /// The OSDs would have too many PGs.
    #[error(
        "pg_num {pg_num} size {size} would mean {projected} total pgs, which exceeds max {max} (mon_max_pg_per_osd {per_osd} * num_in_osds {osds})"
    )]
    TooManyPgs {
        /// Number of PGs that was wanted.
        pg_num: u32,
        /// Copies of each.
        size: u32,
        /// PG copies of the whole cluster then.
        projected: u64,
        /// Most that the OSDs may have.
        max: u64,
        /// Most per OSD.
        per_osd: u64,
        /// OSDs that are in.
        osds: u64,
    },
    /// No such rule.
    #[error("specified rule doesn't exist")]
    Rule,
    /// There is no rule that such a pool could use.
    #[error("no suitable CRUSH rule exists, check 'osd pool default crush *' config options")]
    NoRule,
    /// No such profile.
    #[error("unknown erasure code profile '{0}'")]
    Profile(String),
    /// The profile makes no code.
    #[error(transparent)]
    Code(#[from] ProfileError),
    /// An OSD would give chunks other bytes than the others.
    #[error(
        "osd.{0} is up and runs a program that does not know the codes of Ceph's plugins; upgrade it first"
    )]
    OldOsd(OsdId),
    /// The size is out of bounds.
    #[error("a pool has 1 to 10 copies")]
    Size,
    /// Copies that must be up: out of bounds.
    #[error("min_size is 1 to the pool's size, which is {size}")]
    MinSize {
        /// The pool's size.
        size: u8,
    },
    /// The pool carries the `nodelete` flag.
    #[error("the pool's flag nodelete forbids that")]
    NoDelete,
    /// The monitor does not allow deletion.
    #[error("pools are not deleted here: ceph config set mon mon_allow_pool_delete true allows it")]
    DeletionDisabled,
    /// Pool snapshots and self-managed ones exclude each other.
    #[error("pool {0} is in the other snapshot mode")]
    SnapMode(String),
    /// No such snapshot, or one that clients cannot delete.
    #[error("no such snapshot")]
    NoSnap,
    /// A snapshot of that name exists.
    #[error("pool {pool} snap {snap} already exists")]
    SnapExists {
        /// Name of the pool.
        pool: String,
        /// Name of the snapshot.
        snap: String,
    },
}

impl From<&PoolError> for Errno {
    fn from(error: &PoolError) -> Self {
        match error {
            PoolError::Exists(_) | PoolError::SnapExists { .. } => Self::EEXIST,
            PoolError::NoPool(_) | PoolError::Rule | PoolError::NoRule | PoolError::NoSnap => Self::ENOENT,
            PoolError::PgNum { .. } | PoolError::TooManyPgs { .. } => Self::ERANGE,
            PoolError::NoDelete | PoolError::DeletionDisabled | PoolError::OldOsd(_) => Self::EPERM,
            PoolError::Name
            | PoolError::PgpNum { .. }
            | PoolError::Profile(_)
            | PoolError::Code(_)
            | PoolError::Size
            | PoolError::MinSize { .. }
            | PoolError::SnapMode(_) => Self::EINVAL,
        }
    }
}

/// PGs of a new pool that no OSD has made yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Creating {
    pub(super) epoch: Epoch,
    pub(super) stamp: UTime,
    pub(super) seeds: IntervalSet,
}

impl Encode for Creating {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.epoch);
            w.put(&self.stamp);
            w.put(&self.seeds);
        });
    }
}

impl Decode for Creating {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("creating PGs", 1, |_, r| Ok(Self { epoch: r.u32()?, stamp: r.get()?, seeds: r.get()? }))
    }
}

pub(super) fn read_creating(
    snapshot: &dyn crate::batch::Snapshot,
) -> Result<std::collections::BTreeMap<PoolId, Creating>, DecodeError> {
    let pairs = snapshot.scan(CREATING_PREFIX).into_iter();
    pairs
        .filter_map(|(pool, value)| Some((pool.parse().ok()?, value)))
        .map(|(pool, value)| Ok((pool, Creating::from_bytes(value)?)))
        .collect()
}

pub(super) fn write_creating(pool: PoolId, creating: &Creating, changes: &mut Batch) {
    if creating.seeds.is_empty() {
        changes.delete(CREATING_PREFIX, pool.to_string());
    } else {
        changes.put(CREATING_PREFIX, pool.to_string(), creating.to_bytes());
    }
}

/// Id of the pool of this name.
#[must_use]
pub fn pool_by_name(map: &OsdMap, name: &str) -> Option<PoolId> {
    map.pool_names.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
}

fn whole(config: &ConfigDb, name: &str, fallback: u32) -> u32 {
    config.of_monitor(name).and_then(|text| text.parse().ok()).unwrap_or(fallback)
}

impl OsdMaps {
    /// Makes a pool and returns its id.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn create_pool(
        &mut self,
        spec: &PoolSpec,
        wall: UTime,
        config: &ConfigDb,
    ) -> Result<PoolId, PoolError> {
        let mut pool = self.plan_pool(spec, config)?;
        if spec.kind == PoolKind::Erasure {
            self.settle_code(&spec.erasure_code_profile)?;
        }
        let map = self.upcoming();
        let id = PoolId::from(map.pool_max.max(0)) + 1;
        let epoch = self.pending().incremental.epoch;
        pool.create_time = wall;
        pool.last_change = epoch;
        pool.flags |= flags::pool::CREATING;
        let seeds = IntervalSet::of(0, pool.pg_num.into());
        let change = self.change();
        change.new_pool_max = id;
        change.new_pools.insert(id, pool);
        change.new_pool_names.insert(id, spec.name.clone());
        let creating = Creating { epoch, stamp: wall, seeds };
        write_creating(id, &creating, &mut self.changes);
        self.creating.insert(id, creating);
        Ok(id)
    }

    fn plan_pool(&mut self, spec: &PoolSpec, config: &ConfigDb) -> Result<Pool, PoolError> {
        if spec.name.is_empty() || spec.name.len() > POOL_NAME_BYTES_MAX {
            return Err(PoolError::Name);
        }
        if pool_by_name(self.upcoming(), &spec.name).is_some() {
            return Err(PoolError::Exists(spec.name.clone()));
        }
        let (size, min_size, stripe_width) = match spec.kind {
            PoolKind::Replicated => replicated_shape(spec, config)?,
            PoolKind::Erasure => self.erasure_shape(spec)?,
        };
        let pg_num_max = whole(config, "mon_max_pool_pg_num", nacre_maps::POOL_PGS_MAX);
        let pg_num = spec.pg_num.unwrap_or_else(|| whole(config, "osd_pool_default_pg_num", 32));
        if pg_num == 0 || pg_num > pg_num_max {
            return Err(PoolError::PgNum { max: pg_num_max });
        }
        let pgp_default =
            Some(whole(config, "osd_pool_default_pgp_num", 0)).filter(|_| spec.pg_num.is_none());
        let pgp_num = spec.pgp_num.or(pgp_default).filter(|given| *given != 0).unwrap_or(pg_num);
        if pgp_num > pg_num {
            return Err(PoolError::PgpNum { pg_num });
        }
        if let Err(error) = self.check_pg_count(None, pg_num, size.into(), config) {
            if spec.pg_num.is_some() || spec.pgp_num.is_some() || pg_num == 1 {
                return Err(error);
            }
            // The command has no number: one PG, where Ceph's autoscaler would begin as well.
            return self.plan_pool(&PoolSpec { pg_num: Some(1), ..spec.clone() }, config);
        }
        Ok(Pool {
            kind: spec.kind,
            size,
            min_size,
            crush_rule: self.pool_rule(spec, config)?,
            flags: Pool::default().flags | default_flags(config),
            pg_num,
            pgp_num,
            pg_num_target: pg_num,
            pgp_num_target: pgp_num,
            pg_num_pending: pg_num,
            stripe_width,
            erasure_code_profile: spec.erasure_code_profile.clone(),
            pg_autoscale_mode: spec.autoscale_mode.unwrap_or_else(|| default_autoscale_mode(config)),
            ..Pool::default()
        })
    }

    fn erasure_shape(&mut self, spec: &PoolSpec) -> Result<(u8, u8, u32), PoolError> {
        let name = &spec.erasure_code_profile;
        let profile = self.upcoming().erasure_code_profiles.get(name);
        let code = Code::of_profile(profile.ok_or_else(|| PoolError::Profile(name.clone()))?)?;
        let min_size = spec.min_size.unwrap_or(code.k() + (code.m() - 1).min(1));
        Ok((code.size(), min_size, code.stripe_bytes()))
    }

    /// Sees to it that a pool of this profile gets chunks with the bytes of Ceph's plugins, as the profile says from then on. Where
    /// pools use it that an older program made, and which are coded otherwise, the new one is coded like those.
    fn settle_code(&mut self, name: &str) -> Result<(), PoolError> {
        let map = self.upcoming();
        let Some(profile) = map.erasure_code_profiles.get(name) else { return Ok(()) };
        let in_use = map.pools.values().any(|pool| pool.erasure_code_profile == name);
        if in_use && !is_marked(profile) {
            return Ok(());
        }
        let mut marked = profile.clone();
        let is_new = marked.insert(PARITY_KEY.to_owned(), PARITY_CEPH.to_owned()).is_none();
        if let Some(osd) = self.older_than(PeerVersions::CODES_OF_PLUGINS) {
            return Err(PoolError::OldOsd(osd));
        }
        if is_new {
            self.change().new_erasure_code_profiles.insert(name.to_owned(), marked);
        }
        Ok(())
    }

    /// The rule asked for, or the first one made for this kind of pool.
    fn pool_rule(&mut self, spec: &PoolSpec, config: &ConfigDb) -> Result<u8, PoolError> {
        let kind = spec.kind as u8;
        let crush = &self.upcoming().crush;
        let rule = |id: u8| crush.rules.get(usize::from(id)).and_then(Option::as_ref);
        if let Some(wanted) = spec.crush_rule {
            return rule(wanted).map(|_| wanted).ok_or(PoolError::Rule);
        }
        let default = config.of_monitor("osd_pool_default_crush_rule").and_then(|text| text.parse().ok());
        if let Some(wanted) = default.filter(|_| spec.kind == PoolKind::Replicated) {
            return rule(wanted).map(|_| wanted).ok_or(PoolError::Rule);
        }
        (0..=u8::MAX).find(|id| rule(*id).is_some_and(|rule| rule.kind.0 == kind)).ok_or(PoolError::NoRule)
    }

    /// Refuses more PGs than the OSDs that are in may have; `pool` is the one that changes, if it exists.
    ///
    /// # Errors
    /// [`PoolError::TooManyPgs`].
    pub fn check_pg_count(
        &mut self,
        pool: Option<PoolId>,
        pg_num: u32,
        size: u32,
        config: &ConfigDb,
    ) -> Result<(), PoolError> {
        let per_osd = u64::from(whole(config, "mon_max_pg_per_osd", 250));
        let map = self.upcoming();
        // A cluster whose OSDs are yet to come is judged as if it had three.
        let osds = (map.osds().filter(|osd| map.weight(*osd) > 0).count() as u64).max(3);
        let others = map.pools.iter().filter(|(id, _)| Some(**id) != pool);
        let existing: u64 =
            others.map(|(_, pool)| u64::from(pool.pg_num_target) * u64::from(pool.size)).sum();
        let projected = existing + u64::from(pg_num) * u64::from(size);
        let max = per_osd * osds;
        if projected > max {
            return Err(PoolError::TooManyPgs { pg_num, size, projected, max, per_osd, osds });
        }
        Ok(())
    }

    /// Deletes a pool and everything that the map says of its PGs.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn delete_pool(&mut self, id: PoolId, config: &ConfigDb) -> Result<(), PoolError> {
        let map = self.upcoming();
        let pool = map.pools.get(&id).ok_or_else(|| PoolError::NoPool(id.to_string()))?;
        if !config.flag_of_monitor("mon_allow_pool_delete") {
            return Err(PoolError::DeletionDisabled);
        }
        if pool.has_flag(flags::pool::NODELETE) {
            return Err(PoolError::NoDelete);
        }
        let of_pool = |pg: &&PgId| pg.pool == id;
        let temps: Vec<PgId> = map.pg_temp.keys().filter(of_pool).copied().collect();
        let primaries: Vec<PgId> = map.primary_temp.keys().filter(of_pool).copied().collect();
        let upmaps: Vec<PgId> = map.pg_upmap.keys().filter(of_pool).copied().collect();
        let items: Vec<PgId> = map.pg_upmap_items.keys().filter(of_pool).copied().collect();
        let change = self.change();
        change.new_pools.remove(&id);
        change.new_pool_names.remove(&id);
        change.new_removed_snaps.remove(&id);
        change.new_purged_snaps.remove(&id);
        change.old_pools.insert(id);
        change.new_pg_temp.extend(temps.into_iter().map(|pg| (pg, Vec::new())));
        change.new_primary_temp.extend(primaries.into_iter().map(|pg| (pg, nacre_maps::OSD_NONE)));
        change.new_pg_upmap.retain(|pg, _| pg.pool != id);
        change.new_pg_upmap_items.retain(|pg, _| pg.pool != id);
        change.old_pg_upmap.extend(upmaps);
        change.old_pg_upmap_items.extend(items);
        if let Some(mut creating) = self.creating.remove(&id) {
            creating.seeds = IntervalSet::new();
            write_creating(id, &creating, &mut self.changes);
        }
        self.forget_recreating(|pg| pg.pool == id);
        self.forget_snaps(id);
        Ok(())
    }

    /// Gives a pool another name.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn rename_pool(&mut self, id: PoolId, name: &str) -> Result<(), PoolError> {
        if name.is_empty() || name.len() > POOL_NAME_BYTES_MAX {
            return Err(PoolError::Name);
        }
        if pool_by_name(self.upcoming(), name).is_some_and(|other| other != id) {
            return Err(PoolError::Exists(name.to_owned()));
        }
        self.change_pool(id).ok_or_else(|| PoolError::NoPool(id.to_string()))?;
        self.change().new_pool_names.insert(id, name.to_owned());
        Ok(())
    }

    /// A primary has made this PG. The last one takes the pool's `creating` flag away.
    pub(crate) fn pg_created(&mut self, pg: PgId) {
        self.forget_recreating(|known| known == pg);
        let Some(creating) = self.creating.get_mut(&pg.pool) else { return };
        if !creating.seeds.contains(pg.seed.into()) {
            return;
        }
        creating.seeds.remove(pg.seed.into(), 1);
        write_creating(pg.pool, creating, &mut self.changes);
        if creating.seeds.is_empty() {
            self.creating.remove(&pg.pool);
            if let Some(pool) = self.change_pool(pg.pool) {
                pool.flags &= !flags::pool::CREATING;
            }
            self.grow_pool(pg.pool);
        }
    }

    /// Gives a pool the PGs that it is to have, once all that it has are made. Those come about by splits, and an
    /// OSD that makes a PG on our order may begin with a map behind the split: no OSD would make what is split
    /// off. We cannot order that either, as the PG may serve already, with objects that belong to the new one.
    pub(crate) fn grow_pool(&mut self, id: PoolId) {
        let numbers = |pool: &Pool| (pool.pg_num, pool.pg_num_pending, pool.pgp_num);
        let Some(pool) = self.upcoming().pool(id) else { return };
        let goal = (pool.pg_num_target, pool.pg_num_target, pool.pgp_num_target.min(pool.pg_num_target));
        let waits = pool.has_flag(flags::pool::CREATING) || pool.pg_num_target < pool.pg_num;
        if waits || numbers(pool) == goal {
            return;
        }
        let epoch = self.pending().incremental.epoch;
        let Some(pool) = self.change_pool(id) else { return };
        (pool.pg_num, pool.pg_num_pending, pool.pgp_num) = goal;
        // Clients send what is in flight again: its PG may have split. They all follow the newest of the three.
        pool.last_force_op_resend_preluminous = epoch;
    }

    /// PGs that no OSD has made yet, with the epoch and time of their creation: their pool's, or of the order to make them anew.
    pub fn creating(&self) -> impl Iterator<Item = (PgId, Epoch, UTime)> + '_ {
        let of_pools = self.creating.iter().flat_map(|(pool, creating)| {
            let seeds = creating.seeds.iter().flat_map(|(start, length)| start..start + length);
            let seeds = seeds.filter_map(|seed| u32::try_from(seed).ok());
            seeds.map(|seed| (PgId::new(*pool, seed), creating.epoch, creating.stamp))
        });
        let anew = self.recreating.iter().map(|(pg, (epoch, stamp))| (*pg, *epoch, *stamp));
        of_pools.filter(|(pg, ..)| !self.recreating.contains_key(pg)).chain(anew)
    }
}

fn replicated_shape(spec: &PoolSpec, config: &ConfigDb) -> Result<(u8, u8, u32), PoolError> {
    let default = u8::try_from(whole(config, "osd_pool_default_size", 3)).unwrap_or(3);
    let size = spec.size.filter(|size| *size != 0).unwrap_or(default);
    if size == 0 || size > 10 {
        return Err(PoolError::Size);
    }
    let configured = u8::try_from(whole(config, "osd_pool_default_min_size", 0)).unwrap_or(0);
    let default = if configured == 0 { size - size / 2 } else { configured.min(size) };
    let min_size = spec.min_size.filter(|min_size| *min_size != 0).unwrap_or(default);
    if min_size > size {
        return Err(PoolError::MinSize { size });
    }
    Ok((size, min_size, 0))
}

fn default_autoscale_mode(config: &ConfigDb) -> AutoscaleMode {
    match config.of_monitor("osd_pool_default_pg_autoscale_mode") {
        Some("off") => AutoscaleMode::Off,
        Some("warn") => AutoscaleMode::Warn,
        _ => AutoscaleMode::On,
    }
}

/// Flags that options give to new pools.
fn default_flags(config: &ConfigDb) -> u64 {
    let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    flag(config.flag_of_monitor("osd_pool_default_flag_nodelete"), flags::pool::NODELETE)
        | flag(config.flag_of_monitor("osd_pool_default_flag_nopgchange"), flags::pool::NOPGCHANGE)
        | flag(config.flag_of_monitor("osd_pool_default_flag_nosizechange"), flags::pool::NOSIZECHANGE)
        | flag(config.flag_of_monitor("osd_pool_default_flag_bulk"), flags::pool::BULK)
}
