//! [`Pool`]: how one pool places and keeps its objects. Ceph `pg_pool_t`, written as version 29.

use nacre_buf::Bytes;
use nacre_types::{Epoch, Eversion, IntervalSet, PgId, PoolId, SnapId, UTime};
use std::collections::{BTreeMap, BTreeSet};

/// How a pool keeps its objects; the value is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PoolKind {
    /// Whole copies of each object.
    #[default]
    Replicated = 1,
    /// Shards of each object by an erasure code.
    Erasure = 3,
}

impl PoolKind {
    /// `replicated` or `erasure`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Erasure => "erasure",
        }
    }
}

/// A snapshot of a whole pool. Ceph `pool_snap_info_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSnap {
    /// Id of the snapshot.
    pub id: SnapId,
    /// When it was made.
    pub stamp: UTime,
    /// Name of the snapshot.
    pub name: String,
}

/// Value of an optional pool setting. Ceph `pool_opts_t::value_t`.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolOption {
    /// A value of text.
    Text(String),
    /// A value that is an integer.
    Int(i64),
    /// A value in floating point.
    Float(f64),
}

/// What the PG autoscaler may do with the pool; the value is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AutoscaleMode {
    /// `pg_num` is left alone, and nobody is told.
    Off = 0,
    /// Raise a health warning.
    Warn = 1,
    /// `pg_num` is changed as the data grow.
    #[default]
    On = 2,
}

impl AutoscaleMode {
    /// `off`, `warn`, `on`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::On => "on",
        }
    }
}

/// The last merge of two PGs. Ceph `pg_merge_meta_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgMerge {
    /// The PG that was folded into its parent.
    pub source: PgId,
    /// Epoch in which both were ready.
    pub ready_epoch: Epoch,
    /// Of both, the target's `last_epoch_started`.
    pub last_epoch_started: Epoch,
    /// Of both, the target's `last_epoch_clean`.
    pub last_epoch_clean: Epoch,
    /// Version of the source.
    pub source_version: Eversion,
    /// Version of the target.
    pub target_version: Eversion,
}

/// One pool. Ceph `pg_pool_t`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Copies or shards.
    pub kind: PoolKind,
    /// Wanted number of copies, or of all shards (k + m).
    pub size: u8,
    /// Rule that places its PGs.
    pub crush_rule: u8,
    /// Hash of object names: 2 = rjenkins, the only one in use.
    pub object_hash: u8,
    /// Number of PGs.
    pub pg_num: u32,
    /// Number of PGs for placement: below `pg_num` while a split's halves stay together.
    pub pgp_num: u32,
    /// Epoch of the last change.
    pub last_change: Epoch,
    /// Largest snapshot id given out.
    pub snap_seq: SnapId,
    /// Epoch of the last snapshot change.
    pub snap_epoch: Epoch,
    /// Snapshots of the whole pool, by id.
    pub snaps: BTreeMap<SnapId, PoolSnap>,
    /// Removed self-managed snapshots (historic; empty since Octopus).
    pub removed_snaps: IntervalSet,
    /// Owner (historic, 0).
    pub auid: u64,
    /// [`crate::flags::pool`] bits.
    pub flags: u64,
    /// Copies that must be up for I/O.
    pub min_size: u8,
    /// Quota in bytes, 0 = none.
    pub quota_max_bytes: u64,
    /// Quota in objects, 0 = none.
    pub quota_max_objects: u64,
    /// Cache pools over this one.
    pub tiers: BTreeSet<PoolId>,
    /// The pool that this one caches, or -1.
    pub tier_of: PoolId,
    /// Cache mode, 0 = none.
    pub cache_mode: u8,
    /// Pool to read from instead, or -1.
    pub read_tier: PoolId,
    /// Pool to write to instead, or -1.
    pub write_tier: PoolId,
    /// Properties of the pool, which are historic.
    pub properties: BTreeMap<String, String>,
    /// Hit set parameters as they stand on the wire (cache tiers only).
    pub hit_set_params: Bytes,
    /// Seconds per hit set.
    pub hit_set_period: u32,
    /// Hit sets kept.
    pub hit_set_count: u32,
    /// Bytes per stripe of an erasure-coded pool (k * chunk), 0 when replicated.
    pub stripe_width: u32,
    /// Cache size target in bytes.
    pub target_max_bytes: u64,
    /// Cache size target in objects.
    pub target_max_objects: u64,
    /// Cache tuning, millionths.
    pub cache_target_dirty_ratio_micro: u32,
    /// Cache tuning, millionths.
    pub cache_target_full_ratio_micro: u32,
    /// Cache tuning, seconds.
    pub cache_min_flush_age: u32,
    /// Cache tuning, seconds.
    pub cache_min_evict_age: u32,
    /// Name of the erasure-code profile, empty when replicated.
    pub erasure_code_profile: String,
    /// Epoch from which clients before Luminous resend.
    pub last_force_op_resend_preluminous: Epoch,
    /// Tunes cache tiers, which we do not have; kept as it came.
    pub min_read_recency_for_promote: u32,
    /// Objects that the pool is expected to hold, 0 = unknown.
    pub expected_num_objects: u64,
    /// Cache tuning, millionths.
    pub cache_target_dirty_high_ratio_micro: u32,
    /// Tunes cache tiers, which we do not have; kept as it came.
    pub min_write_recency_for_promote: u32,
    /// Hit set stamps are in UTC.
    pub use_gmt_hitset: bool,
    /// Erasure-coded reads ask all shards.
    pub fast_read: bool,
    /// Tunes cache tiers, which we do not have; kept as it came.
    pub hit_set_grade_decay_rate: u32,
    /// Tunes cache tiers, which we do not have; kept as it came.
    pub hit_set_search_last_n: u32,
    /// Optional settings by key (`pool_opts_t`).
    pub options: BTreeMap<i32, PoolOption>,
    /// Epoch from which clients before Nautilus resend.
    pub last_force_op_resend_prenautilus: Epoch,
    /// Application to its keys and values.
    pub application_metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// When the pool was made.
    pub create_time: UTime,
    /// `pg_num` to reach.
    pub pg_num_target: u32,
    /// `pgp_num` to reach.
    pub pgp_num_target: u32,
    /// `pg_num` that a merge under way leads to.
    pub pg_num_pending: u32,
    /// Epoch from which clients resend.
    pub last_force_op_resend: Epoch,
    /// What the autoscaler may do.
    pub pg_autoscale_mode: AutoscaleMode,
    /// The last merge.
    pub last_pg_merge: PgMerge,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            kind: PoolKind::Replicated,
            size: 3,
            crush_rule: 0,
            object_hash: 2,
            pg_num: 0,
            pgp_num: 0,
            last_change: 0,
            snap_seq: SnapId(0),
            snap_epoch: 0,
            snaps: BTreeMap::new(),
            removed_snaps: IntervalSet::new(),
            auid: 0,
            flags: crate::flags::pool::HASHPSPOOL,
            min_size: 2,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: -1,
            cache_mode: 0,
            read_tier: -1,
            write_tier: -1,
            properties: BTreeMap::new(),
            hit_set_params: Bytes::from_static(&[1, 1, 1, 0, 0, 0, 0]),
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_full_ratio_micro: 800_000,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend_preluminous: 0,
            min_read_recency_for_promote: 0,
            expected_num_objects: 0,
            cache_target_dirty_high_ratio_micro: 600_000,
            min_write_recency_for_promote: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            options: BTreeMap::new(),
            last_force_op_resend_prenautilus: 0,
            application_metadata: BTreeMap::new(),
            create_time: UTime::ZERO,
            pg_num_target: 0,
            pgp_num_target: 0,
            pg_num_pending: 0,
            last_force_op_resend: 0,
            pg_autoscale_mode: AutoscaleMode::On,
            last_pg_merge: PgMerge::default(),
        }
    }
}

impl Pool {
    /// True for whole copies: holes close up, shards have no number.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.kind == PoolKind::Replicated
    }

    /// True when all bits of `flag` are set.
    #[must_use]
    pub fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag == flag
    }
}
