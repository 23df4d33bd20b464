//! Statistics of PGs and pools.
//!
//! Source: Ceph `pg_stat_t` and `pool_stat_t` in `src/osd/osd_types.h`, v16.2.15.

use super::{ObjStatColl, StoreStatfs};
use crate::body::fields;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, Eversion, IntervalSet, OsdId, PgId, UTime};
use std::collections::{BTreeMap, BTreeSet};

/// Bits of [`PgStat::state`]. Ceph `PG_STATE_*`.
pub mod pg_state {
    macro_rules! states {
        ($($name:ident $bit:literal $text:literal;)*) => {
            $(#[doc = concat!("`", $text, "`")] pub const $name: u64 = 1 << $bit;)*

            /// Bits and names in the order in which Ceph prints them.
            pub const NAMES: &[(u64, &str)] = &[$(($name, $text)),*];
        };
    }

    // The order is that of Ceph's `pg_state_string`.
    states! {
        STALE 17 "stale";
        CREATING 0 "creating";
        ACTIVE 1 "active";
        ACTIVATING 24 "activating";
        CLEAN 2 "clean";
        RECOVERY_WAIT 22 "recovery_wait";
        RECOVERY_TOOFULL 28 "recovery_toofull";
        RECOVERING 14 "recovering";
        FORCED_RECOVERY 31 "forced_recovery";
        DOWN 4 "down";
        RECOVERY_UNFOUND 5 "recovery_unfound";
        BACKFILL_UNFOUND 6 "backfill_unfound";
        UNDERSIZED 23 "undersized";
        DEGRADED 10 "degraded";
        REMAPPED 18 "remapped";
        PREMERGE 7 "premerge";
        SCRUBBING 8 "scrubbing";
        DEEP_SCRUB 19 "deep";
        INCONSISTENT 11 "inconsistent";
        PEERING 12 "peering";
        REPAIR 13 "repair";
        BACKFILL_WAIT 15 "backfill_wait";
        BACKFILLING 20 "backfilling";
        FORCED_BACKFILL 30 "forced_backfill";
        BACKFILL_TOOFULL 21 "backfill_toofull";
        INCOMPLETE 16 "incomplete";
        PEERED 25 "peered";
        SNAPTRIM 26 "snaptrim";
        SNAPTRIM_WAIT 27 "snaptrim_wait";
        SNAPTRIM_ERROR 29 "snaptrim_error";
        FAILED_REPAIR 32 "failed_repair";
        LAGGY 33 "laggy";
        WAIT 34 "wait";
    }

    /// The names of all bits joined by `+`, such as `active+clean`; `unknown` when there are none.
    #[must_use]
    pub fn text(state: u64) -> String {
        let names: Vec<&str> =
            NAMES.iter().filter(|(bit, _)| state & bit != 0).map(|(_, name)| *name).collect();
        if names.is_empty() { "unknown".to_owned() } else { names.join("+") }
    }
}

/// What an OSD says about a PG of which it is the primary. Ceph `pg_stat_t`, version 26, compat 22.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PgStat {
    /// Newest log entry.
    pub version: Eversion,
    /// Counts reports within `reported_epoch`.
    pub reported_seq: u64,
    /// Epoch of the report.
    pub reported_epoch: Epoch,
    /// See [`pg_state`].
    pub state: u64,
    /// Behind which the log begins.
    pub log_start: Eversion,
    /// The same on disk.
    pub ondisk_log_start: Eversion,
    /// Epoch of the PG's creation.
    pub created: Epoch,
    /// Last epoch in which it was clean.
    pub last_epoch_clean: Epoch,
    /// PG that it was split from.
    pub parent: PgId,
    /// Bits of the split.
    pub parent_split_bits: u32,
    /// Newest entry at the last scrub.
    pub last_scrub: Eversion,
    /// When it was last scrubbed.
    pub last_scrub_stamp: UTime,
    /// Sums over its objects.
    pub stats: ObjStatColl,
    /// Entries in the log.
    pub log_size: i64,
    /// The same on disk.
    pub ondisk_log_size: i64,
    /// OSDs that CRUSH and upmaps choose, the primary first.
    pub up: Vec<OsdId>,
    /// OSDs that serve: the up set, or its `pg_temp`.
    pub acting: Vec<OsdId>,
    /// When the PG reported last.
    pub last_fresh: UTime,
    /// Last change of state.
    pub last_change: UTime,
    /// Last time seen active.
    pub last_active: UTime,
    /// Last time seen clean.
    pub last_clean: UTime,
    /// Last time seen not stale.
    pub last_unstale: UTime,
    /// Epoch of the mapping.
    pub mapping_epoch: Epoch,
    /// Newest entry at the last deep scrub.
    pub last_deep_scrub: Eversion,
    /// When it was last scrubbed deeply.
    pub last_deep_scrub_stamp: UTime,
    /// The sums are only roughly right.
    pub stats_invalid: bool,
    /// Last scrub without errors.
    pub last_clean_scrub_stamp: UTime,
    /// Last time it became active.
    pub last_became_active: UTime,
    /// The sums of dirty objects are only roughly right.
    pub dirty_stats_invalid: bool,
    /// First of the up set that may be primary.
    pub up_primary: OsdId,
    /// Number of the OSD that leads the PG.
    pub acting_primary: OsdId,
    /// The sums of objects with omap are only roughly right.
    pub omap_stats_invalid: bool,
    /// The sums of hit sets are only roughly right.
    pub hitset_stats_invalid: bool,
    /// OSDs that peering waits for.
    pub blocked_by: Vec<OsdId>,
    /// Last time seen undegraded.
    pub last_undegraded: UTime,
    /// Last time seen with enough copies.
    pub last_fullsized: UTime,
    /// The sums of hit sets' bytes are only roughly right.
    pub hitset_bytes_stats_invalid: bool,
    /// Last time seen peered.
    pub last_peered: UTime,
    /// Last time it became peered.
    pub last_became_peered: UTime,
    /// The sums of pinned objects are only roughly right.
    pub pin_stats_invalid: bool,
    /// Snapshots yet to be trimmed.
    pub snaptrimq_len: u32,
    /// Snapshots trimmed, not yet reported to the monitor.
    pub purged_snaps: IntervalSet,
    /// The sums of manifest objects are only roughly right.
    pub manifest_stats_invalid: bool,
    /// OSDs that have all objects.
    pub avail_no_missing: Vec<PgShard>,
    /// Objects by the set of OSDs that have them.
    pub object_location_counts: BTreeMap<BTreeSet<PgShard>, i32>,
}

impl Encode for PgStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(26, 22, |w| {
            self.encode_log(w);
            self.encode_stamps(w);
            self.encode_tail(w);
        });
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the state is written as two halves")]
impl PgStat {
    fn encode_log(&self, w: &mut Writer) {
        w.put(&self.version);
        w.u64(self.reported_seq);
        w.u32(self.reported_epoch);
        w.u32(self.state as u32);
        w.put(&self.log_start);
        w.put(&self.ondisk_log_start);
        w.u32(self.created);
        w.u32(self.last_epoch_clean);
        w.put(&self.parent);
        w.u32(self.parent_split_bits);
        w.put(&self.last_scrub);
        w.put(&self.last_scrub_stamp);
        w.put(&self.stats);
        w.i64(self.log_size);
        w.i64(self.ondisk_log_size);
        w.put(&self.up);
        w.put(&self.acting);
    }

    fn encode_stamps(&self, w: &mut Writer) {
        w.put(&self.last_fresh);
        w.put(&self.last_change);
        w.put(&self.last_active);
        w.put(&self.last_clean);
        w.put(&self.last_unstale);
        w.u32(self.mapping_epoch);
        w.put(&self.last_deep_scrub);
        w.put(&self.last_deep_scrub_stamp);
        w.bool(self.stats_invalid);
        w.put(&self.last_clean_scrub_stamp);
        w.put(&self.last_became_active);
        w.bool(self.dirty_stats_invalid);
        w.i32(self.up_primary);
        w.i32(self.acting_primary);
    }

    fn encode_tail(&self, w: &mut Writer) {
        w.bool(self.omap_stats_invalid);
        w.bool(self.hitset_stats_invalid);
        w.put(&self.blocked_by);
        w.put(&self.last_undegraded);
        w.put(&self.last_fullsized);
        w.bool(self.hitset_bytes_stats_invalid);
        w.put(&self.last_peered);
        w.put(&self.last_became_peered);
        w.bool(self.pin_stats_invalid);
        w.u32(self.snaptrimq_len);
        w.u32((self.state >> 32) as u32);
        w.put(&self.purged_snaps);
        w.bool(self.manifest_stats_invalid);
        w.put(&self.avail_no_missing);
        w.put(&self.object_location_counts);
    }

    fn decode_fields(r: &mut Reader) -> Result<Self, DecodeError> {
        let (version, reported_seq, reported_epoch) = (r.get()?, r.u64()?, r.u32()?);
        let state_low = r.u32()?;
        let mut stat = Self {
            version,
            reported_seq,
            reported_epoch,
            log_start: r.get()?,
            ondisk_log_start: r.get()?,
            created: r.u32()?,
            last_epoch_clean: r.u32()?,
            parent: r.get()?,
            parent_split_bits: r.u32()?,
            last_scrub: r.get()?,
            last_scrub_stamp: r.get()?,
            stats: r.get()?,
            log_size: r.i64()?,
            ondisk_log_size: r.i64()?,
            up: r.get()?,
            acting: r.get()?,
            ..Self::default()
        };
        stat.decode_stamps(r)?;
        stat.decode_tail(r, state_low)?;
        Ok(stat)
    }

    fn decode_stamps(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        self.last_fresh = r.get()?;
        self.last_change = r.get()?;
        self.last_active = r.get()?;
        self.last_clean = r.get()?;
        self.last_unstale = r.get()?;
        self.mapping_epoch = r.u32()?;
        self.last_deep_scrub = r.get()?;
        self.last_deep_scrub_stamp = r.get()?;
        self.stats_invalid = r.bool()?;
        self.last_clean_scrub_stamp = r.get()?;
        self.last_became_active = r.get()?;
        self.dirty_stats_invalid = r.bool()?;
        self.up_primary = r.i32()?;
        self.acting_primary = r.i32()?;
        Ok(())
    }

    fn decode_tail(&mut self, r: &mut Reader, state_low: u32) -> Result<(), DecodeError> {
        self.omap_stats_invalid = r.bool()?;
        self.hitset_stats_invalid = r.bool()?;
        self.blocked_by = r.get()?;
        self.last_undegraded = r.get()?;
        self.last_fullsized = r.get()?;
        self.hitset_bytes_stats_invalid = r.bool()?;
        self.last_peered = r.get()?;
        self.last_became_peered = r.get()?;
        self.pin_stats_invalid = r.bool()?;
        self.snaptrimq_len = r.u32()?;
        self.state = u64::from(state_low) | u64::from(r.u32()?) << 32;
        self.purged_snaps = r.get()?;
        self.manifest_stats_invalid = r.bool()?;
        self.avail_no_missing = r.get()?;
        self.object_location_counts = r.get()?;
        Ok(())
    }
}

impl Decode for PgStat {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("pg_stat_t", 26, |version, r| match version {
            0..26 => Err(DecodeError::Invalid { what: "pg_stat_t version", value: version.into() }),
            _ => Self::decode_fields(r),
        })
    }
}

/// One member of an acting set. Ceph `pg_shard_t`, version 1, compat 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PgShard {
    /// Number of the OSD.
    pub osd: OsdId,
    /// Its index in an erasure-coded set, or [`nacre_types::SHARD_NONE`].
    pub shard: i8,
}
fields!(PgShard, "pg_shard_t", 1, 1; osd, shard);

/// Sums over a pool. Ceph `pool_stat_t`, version 7, compat 5.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PoolStat {
    /// Sums over its objects.
    pub stats: ObjStatColl,
    /// Entries of the PGs' logs.
    pub log_size: i64,
    /// The same on disk.
    pub ondisk_log_size: i64,
    /// Members of up sets.
    pub up: i32,
    /// Members of acting sets.
    pub acting: i32,
    /// Capacity that it uses.
    pub store_stats: StoreStatfs,
    /// OSDs that reported capacity by pool.
    pub num_store_stats: u32,
}
fields!(PoolStat, "pool_stat_t", 7, 5;
    stats, log_size, ondisk_log_size; 6 => up, acting; 7 => store_stats, num_store_stats);
