//! Bytes of a pool. Ceph `pg_pool_t::encode`, version 29 (what 16.2 writes outside of stretch mode).

use crate::{AutoscaleMode, PgMerge, Pool, PoolKind, PoolOption, PoolSnap};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::SnapId;
use std::collections::BTreeMap;

const VERSION: u8 = 29;

impl Encode for PoolSnap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.put(&self.id);
            w.put(&self.stamp);
            w.str(&self.name);
        });
    }
}

impl Decode for PoolSnap {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("pool_snap_info_t", 2, |_, r| Ok(Self { id: r.get()?, stamp: r.get()?, name: r.text()? }))
    }
}

impl Encode for PoolOption {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Text(text) => {
                w.i32(0);
                w.str(text);
            }
            Self::Int(value) => {
                w.i32(1);
                w.i64(*value);
            }
            Self::Float(value) => {
                w.i32(2);
                w.put(value);
            }
        }
    }
}

impl Decode for PoolOption {
    const MIN_BYTES: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.i32()? {
            0 => Ok(Self::Text(r.text()?)),
            1 => Ok(Self::Int(r.i64()?)),
            2 => Ok(Self::Float(r.get()?)),
            kind => {
                Err(DecodeError::Invalid { what: "pool_opts_t kind", value: i64::from(kind).cast_unsigned() })
            }
        }
    }
}

impl Encode for PgMerge {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.source);
            w.u32(self.ready_epoch);
            w.u32(self.last_epoch_started);
            w.u32(self.last_epoch_clean);
            w.put(&self.source_version);
            w.put(&self.target_version);
        });
    }
}

impl Decode for PgMerge {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("pg_merge_meta_t", 1, |_, r| {
            Ok(Self {
                source: r.get()?,
                ready_epoch: r.u32()?,
                last_epoch_started: r.u32()?,
                last_epoch_clean: r.u32()?,
                source_version: r.get()?,
                target_version: r.get()?,
            })
        })
    }
}

impl Encode for Pool {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, 5, |w| {
            self.encode_placement(w);
            self.encode_cache(w);
            self.encode_late(w);
        });
    }
}

impl Pool {
    /// Up to the hit sets: fields of version 14 and before.
    fn encode_placement(&self, w: &mut Writer) {
        w.u8(self.kind as u8);
        w.u8(self.size);
        w.u8(self.crush_rule);
        w.u8(self.object_hash);
        w.u32(self.pg_num);
        w.u32(self.pgp_num);
        w.u32(0); // lpg_num
        w.u32(0); // lpgp_num
        w.u32(self.last_change);
        w.put(&self.snap_seq);
        w.u32(self.snap_epoch);
        w.put(&self.snaps);
        w.put(&self.removed_snaps);
        w.u64(self.auid);
        w.u64(self.flags);
        w.u32(0); // crash_replay_interval
        w.u8(self.min_size);
        w.u64(self.quota_max_bytes);
        w.u64(self.quota_max_objects);
        w.put(&self.tiers);
        w.i64(self.tier_of);
        w.u8(self.cache_mode);
        w.i64(self.read_tier);
        w.i64(self.write_tier);
        w.put(&self.properties);
    }

    /// Cache tiering and what came along with it.
    fn encode_cache(&self, w: &mut Writer) {
        w.raw(&self.hit_set_params);
        w.u32(self.hit_set_period);
        w.u32(self.hit_set_count);
        w.u32(self.stripe_width);
        w.u64(self.target_max_bytes);
        w.u64(self.target_max_objects);
        w.u32(self.cache_target_dirty_ratio_micro);
        w.u32(self.cache_target_full_ratio_micro);
        w.u32(self.cache_min_flush_age);
        w.u32(self.cache_min_evict_age);
        w.str(&self.erasure_code_profile);
        w.u32(self.last_force_op_resend_preluminous);
        w.u32(self.min_read_recency_for_promote);
        w.u64(self.expected_num_objects);
        w.u32(self.cache_target_dirty_high_ratio_micro);
        w.u32(self.min_write_recency_for_promote);
        w.bool(self.use_gmt_hitset);
        w.bool(self.fast_read);
        w.u32(self.hit_set_grade_decay_rate);
        w.u32(self.hit_set_search_last_n);
    }

    /// Versions 24 to 29.
    fn encode_late(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| w.put(&self.options));
        w.u32(self.last_force_op_resend_prenautilus);
        w.put(&self.application_metadata);
        w.put(&self.create_time);
        w.u32(self.pg_num_target);
        w.u32(self.pgp_num_target);
        w.u32(self.pg_num_pending);
        w.u32(0); // pg_num_dec_last_epoch_started
        w.u32(0); // pg_num_dec_last_epoch_clean
        w.u32(self.last_force_op_resend);
        w.u8(self.pg_autoscale_mode as u8);
        w.put(&self.last_pg_merge);
    }

    fn decode_placement(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        self.kind = PoolKind::from_wire(r.u8()?)?;
        self.size = r.u8()?;
        self.crush_rule = r.u8()?;
        self.object_hash = r.u8()?;
        self.pg_num = pg_count(r)?;
        self.pgp_num = pg_count(r)?;
        r.skip(8)?; // lpg_num, lpgp_num
        self.last_change = r.u32()?;
        self.snap_seq = r.get()?;
        self.snap_epoch = r.u32()?;
        self.snaps = r.get::<BTreeMap<SnapId, PoolSnap>>()?;
        self.removed_snaps = r.get()?;
        self.auid = r.u64()?;
        self.flags = r.u64()?;
        r.skip(4)?; // crash_replay_interval
        self.min_size = r.u8()?;
        self.quota_max_bytes = r.u64()?;
        self.quota_max_objects = r.u64()?;
        self.tiers = r.get()?;
        self.tier_of = r.i64()?;
        self.cache_mode = r.u8()?;
        self.read_tier = r.i64()?;
        self.write_tier = r.i64()?;
        self.properties = r.get()?;
        Ok(())
    }

    fn decode_cache(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        let mut ahead = r.clone();
        ahead.envelope("HitSet::Params", 1, |_, _| Ok(()))?;
        self.hit_set_params = r.take(ahead.offset() - r.offset())?;
        self.hit_set_period = r.u32()?;
        self.hit_set_count = r.u32()?;
        self.stripe_width = r.u32()?;
        self.target_max_bytes = r.u64()?;
        self.target_max_objects = r.u64()?;
        self.cache_target_dirty_ratio_micro = r.u32()?;
        self.cache_target_full_ratio_micro = r.u32()?;
        self.cache_min_flush_age = r.u32()?;
        self.cache_min_evict_age = r.u32()?;
        self.erasure_code_profile = r.text()?;
        self.last_force_op_resend_preluminous = r.u32()?;
        self.min_read_recency_for_promote = r.u32()?;
        self.expected_num_objects = r.u64()?;
        self.cache_target_dirty_high_ratio_micro = r.u32()?;
        self.min_write_recency_for_promote = r.u32()?;
        self.use_gmt_hitset = r.bool()?;
        self.fast_read = r.bool()?;
        self.hit_set_grade_decay_rate = r.u32()?;
        self.hit_set_search_last_n = r.u32()?;
        Ok(())
    }

    fn decode_late(&mut self, r: &mut Reader) -> Result<(), DecodeError> {
        self.options = r.envelope("pool_opts_t", 2, |_, r| r.get())?;
        self.last_force_op_resend_prenautilus = r.u32()?;
        self.application_metadata = r.get()?;
        self.create_time = r.get()?;
        self.pg_num_target = r.u32()?;
        self.pgp_num_target = r.u32()?;
        self.pg_num_pending = r.u32()?;
        r.skip(8)?; // pg_num_dec_last_epoch_started, pg_num_dec_last_epoch_clean
        self.last_force_op_resend = r.u32()?;
        self.pg_autoscale_mode = AutoscaleMode::from_wire(r.u8()?)?;
        self.last_pg_merge = r.get()?;
        Ok(())
    }
}

impl Decode for Pool {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("pg_pool_t", VERSION, |version, r| {
            // Older versions are written for older peers only, and every peer of ours has all features.
            if version < VERSION {
                return Err(DecodeError::Invalid { what: "pg_pool_t version", value: version.into() });
            }
            let mut pool = Self::default();
            pool.decode_placement(r)?;
            pool.decode_cache(r)?;
            pool.decode_late(r)?;
            Ok(pool)
        })
    }
}

/// A PG count that loops over PGs can afford.
fn pg_count(r: &mut Reader) -> Result<u32, DecodeError> {
    let count = r.u32()?;
    if count > crate::POOL_PGS_MAX {
        return Err(DecodeError::Invalid { what: "pg_pool_t.pg_num", value: count.into() });
    }
    Ok(count)
}

impl PoolKind {
    fn from_wire(value: u8) -> Result<Self, DecodeError> {
        match value {
            1 => Ok(Self::Replicated),
            3 => Ok(Self::Erasure),
            value => Err(DecodeError::Invalid { what: "pg_pool_t.type", value: value.into() }),
        }
    }
}

impl AutoscaleMode {
    fn from_wire(value: u8) -> Result<Self, DecodeError> {
        match value {
            0 => Ok(Self::Off),
            1 => Ok(Self::Warn),
            2 => Ok(Self::On),
            value => Err(DecodeError::Invalid { what: "pg_pool_t.pg_autoscale_mode", value: value.into() }),
        }
    }
}
