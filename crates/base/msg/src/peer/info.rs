//! [`PgInfo`]: what one OSD knows of its copy of a PG. Our own form of Ceph's `pg_info_t`.

use super::{ChunkMapping, Shards};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Epoch, Eversion, HObject, IntervalSet, UTime};

/// Sums over a PG's objects and its client I/O. Ceph `object_stat_sum_t`, reduced to what is reported.
///
/// Also a difference of two such sums: one log entry carries what it added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Heads and clones.
    pub objects: i64,
    /// Bytes of object data, as `stat` shows sizes.
    pub bytes: i64,
    /// Clones among the objects.
    pub clones: i64,
    /// Heads that only carry clones.
    pub whiteouts: i64,
    /// Objects with omap entries.
    pub omap_objects: i64,
    /// Bytes of omap keys and values.
    pub omap_bytes: i64,
    /// Keys of all omaps.
    pub omap_keys: i64,
    /// Read operations since the PG exists.
    pub reads: i64,
    /// Bytes read since the PG exists.
    pub read_bytes: i64,
    /// Write operations since the PG exists.
    pub writes: i64,
    /// Bytes written since the PG exists.
    pub write_bytes: i64,
    /// Errors that the last scrub found.
    pub scrub_errors: i64,
}

macro_rules! counter_fields {
    ($($field:ident),*) => {
        impl Counters {
            const COUNT: usize = [$(stringify!($field)),*].len();

            fn to_array(self) -> [i64; Self::COUNT] {
                [$(self.$field),*]
            }

            fn of_array([$($field),*]: [i64; Self::COUNT]) -> Self {
                Self { $($field),* }
            }

            /// Adds `other`, field by field.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }

            /// Takes `other` away, field by field.
            pub fn subtract(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_sub(other.$field);)*
            }
        }
    };
}
counter_fields!(
    objects,
    bytes,
    clones,
    whiteouts,
    omap_objects,
    omap_bytes,
    omap_keys,
    reads,
    read_bytes,
    writes,
    write_bytes,
    scrub_errors
);

/// A bit per field that is not zero, then those fields: most log entries change two or three.
impl Encode for Counters {
    fn encode(&self, w: &mut Writer) {
        let fields = self.to_array();
        let bits = fields
            .iter()
            .enumerate()
            .filter(|(_, value)| **value != 0)
            .fold(0, |bits, (at, _)| bits | 1 << at);
        w.u16(bits);
        fields.iter().filter(|value| **value != 0).for_each(|value| w.i64(*value));
    }
}

impl Decode for Counters {
    const MIN_BYTES: usize = 2;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let bits = r.u16()?;
        let mut fields = [0; Self::COUNT];
        for (at, field) in fields.iter_mut().enumerate() {
            if bits & (1 << at) != 0 {
                *field = r.i64()?;
            }
        }
        Ok(Self::of_array(fields))
    }
}

/// What the members of a PG agree on about its past. Ceph `pg_history_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgHistory {
    /// Epoch in which the PG was created (or split off).
    pub epoch_created: Epoch,
    /// An interval in which the PG went active; no older interval can hold unseen writes.
    pub last_epoch_started: Epoch,
    /// First epoch of that interval.
    pub last_interval_started: Epoch,
    /// Last epoch in which all members had all objects.
    pub last_epoch_clean: Epoch,
    /// First epoch of the interval that was clean.
    pub last_interval_clean: Epoch,
    /// Version when last scrubbed.
    pub last_scrub: Eversion,
    /// When it was last scrubbed.
    pub last_scrub_stamp: UTime,
    /// Version when last scrubbed deeply.
    pub last_deep_scrub: Eversion,
    /// When it was last scrubbed deeply.
    pub last_deep_scrub_stamp: UTime,
    /// When it was last found without errors.
    pub last_clean_scrub_stamp: UTime,
    /// Objects with large omaps that the last deep scrub found. Since version 2, with which a history is written that has any; a program
    /// that knows version 1 passes over it.
    pub large_omap_objects: u64,
}

const PG_HISTORY_VERSION: u8 = 2;

impl Encode for PgHistory {
    fn encode(&self, w: &mut Writer) {
        let version = if self.large_omap_objects > 0 { PG_HISTORY_VERSION } else { 1 };
        w.envelope(version, 1, |w| {
            w.u32(self.epoch_created);
            w.u32(self.last_epoch_started);
            w.u32(self.last_interval_started);
            w.u32(self.last_epoch_clean);
            w.u32(self.last_interval_clean);
            w.put(&self.last_scrub);
            w.put(&self.last_scrub_stamp);
            w.put(&self.last_deep_scrub);
            w.put(&self.last_deep_scrub_stamp);
            w.put(&self.last_clean_scrub_stamp);
            if version >= 2 {
                w.u64(self.large_omap_objects);
            }
        });
    }
}

impl Decode for PgHistory {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("peer pg history", PG_HISTORY_VERSION, |version, r| {
            Ok(Self {
                epoch_created: r.u32()?,
                last_epoch_started: r.u32()?,
                last_interval_started: r.u32()?,
                last_epoch_clean: r.u32()?,
                last_interval_clean: r.u32()?,
                last_scrub: r.get()?,
                last_scrub_stamp: r.get()?,
                last_deep_scrub: r.get()?,
                last_deep_scrub_stamp: r.get()?,
                last_clean_scrub_stamp: r.get()?,
                large_omap_objects: if version >= 2 { r.u64()? } else { 0 },
            })
        })
    }
}

impl PgHistory {
    /// Takes over whatever `other` knows better; true when something changed.
    pub fn merge(&mut self, other: &Self) -> bool {
        let before = *self;
        self.epoch_created = self.epoch_created.max(other.epoch_created);
        self.last_epoch_started = self.last_epoch_started.max(other.last_epoch_started);
        self.last_interval_started = self.last_interval_started.max(other.last_interval_started);
        self.last_epoch_clean = self.last_epoch_clean.max(other.last_epoch_clean);
        self.last_interval_clean = self.last_interval_clean.max(other.last_interval_clean);
        if other.last_scrub_stamp > self.last_scrub_stamp {
            (self.last_scrub, self.last_scrub_stamp) = (other.last_scrub, other.last_scrub_stamp);
        }
        if other.last_deep_scrub_stamp > self.last_deep_scrub_stamp {
            self.last_deep_scrub = other.last_deep_scrub;
            self.last_deep_scrub_stamp = other.last_deep_scrub_stamp;
            self.large_omap_objects = other.large_omap_objects;
        } else if other.last_deep_scrub_stamp == self.last_deep_scrub_stamp {
            // Of one scrub, by a program that does not know it there are none.
            self.large_omap_objects = self.large_omap_objects.max(other.large_omap_objects);
        }
        self.last_clean_scrub_stamp = self.last_clean_scrub_stamp.max(other.last_clean_scrub_stamp);
        *self != before
    }
}

/// One OSD's copy of a PG. Ceph `pg_info_t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgInfo {
    /// Newest log entry.
    pub last_update: Eversion,
    /// Up to here no object is missing.
    pub last_complete: Eversion,
    /// The log holds the entries above this.
    pub log_tail: Eversion,
    /// Largest user version given out.
    pub last_user_version: u64,
    /// The last interval in which this copy went active (the history's may be newer).
    pub last_epoch_started: Epoch,
    /// First epoch of that interval.
    pub last_interval_started: Epoch,
    /// Of objects before this the log tells whether the copy lacks them; of those from here on only a comparison
    /// with another copy can (a backfill is under way). [`HObject::max_value`] in a copy that the log tells all of,
    /// [`HObject::MIN`] when it tells nothing. Ceph's counts the object itself among the former.
    pub last_backfill: HObject,
    /// What the members agree on.
    pub history: PgHistory,
    /// Snapshots whose clones are trimmed.
    pub purged_snaps: IntervalSet,
    /// Sums over objects and I/O as of `last_update`.
    pub counters: Counters,
    /// Which chunk of each object it holds, in an erasure-coded pool. Since version 2, which only such copies write.
    pub shard: Option<u8>,
    /// What this OSD stored of the PG under maps up to this one is gone, for the records of its copy were damaged; 0 when
    /// they never were. Since version 3, which only such copies write.
    pub lost_through: Epoch,
    /// All members of the pool's chunks had this durably: a copy that took part and does not reach it has lost something, and its
    /// log counts for nothing. Since version 4, which only copies that know of it write; a program that knows version 3 passes over it.
    pub safe_to: Eversion,
    /// Which chunks the shards hold, in an erasure-coded pool. Since version 5, with which a copy is written whose shards do not hold the
    /// chunks of their own numbers, or that has `merge_shards`.
    pub mapping: ChunkMapping,
    /// While the PG stands still to be merged with another: which member holds which shard, as they all know. Since version 5.
    pub merge_shards: Shards,
}

const PG_INFO_VERSION: u8 = 5;

impl Encode for PgInfo {
    fn encode(&self, w: &mut Writer) {
        let (version, compat) = match self.shard {
            _ if !self.mapping.is_plain() || !self.merge_shards.is_empty() => (PG_INFO_VERSION, 5),
            _ if self.safe_to > Eversion::ZERO => (4, 3),
            _ if self.lost_through > 0 => (3, 3),
            Some(_) => (2, 2),
            None => (1, 1),
        };
        w.envelope(version, compat, |w| {
            w.put(&self.last_update);
            w.put(&self.last_complete);
            w.put(&self.log_tail);
            w.u64(self.last_user_version);
            w.u32(self.last_epoch_started);
            w.u32(self.last_interval_started);
            w.put(&self.last_backfill);
            w.put(&self.history);
            w.put(&self.purged_snaps);
            w.put(&self.counters);
            match self.shard {
                _ if version >= 3 => w.put(&self.shard),
                Some(shard) => w.u8(shard),
                None => (),
            }
            if version >= 3 {
                w.u32(self.lost_through);
            }
            if version >= 4 {
                w.put(&self.safe_to);
            }
            if version >= 5 {
                w.put(&self.mapping);
                w.put(&self.merge_shards);
            }
        });
    }
}

impl Decode for PgInfo {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("peer pg info", PG_INFO_VERSION, |version, r| {
            Ok(Self {
                last_update: r.get()?,
                last_complete: r.get()?,
                log_tail: r.get()?,
                last_user_version: r.u64()?,
                last_epoch_started: r.u32()?,
                last_interval_started: r.u32()?,
                last_backfill: r.get()?,
                history: r.get()?,
                purged_snaps: r.get()?,
                counters: r.get()?,
                shard: match version {
                    1 => None,
                    2 => Some(r.u8()?),
                    _ => r.get()?,
                },
                lost_through: if version >= 3 { r.u32()? } else { 0 },
                safe_to: if version >= 4 { r.get()? } else { Eversion::ZERO },
                mapping: if version >= 5 { r.get()? } else { ChunkMapping::default() },
                merge_shards: if version >= 5 { r.get()? } else { Shards::new() },
            })
        })
    }
}

impl PgInfo {
    /// An empty copy.
    #[must_use]
    pub fn empty(history: PgHistory) -> Self {
        Self {
            last_update: Eversion::ZERO,
            last_complete: Eversion::ZERO,
            log_tail: Eversion::ZERO,
            last_user_version: 0,
            last_epoch_started: 0,
            last_interval_started: 0,
            last_backfill: HObject::max_value(),
            history,
            purged_snaps: IntervalSet::new(),
            counters: Counters::default(),
            shard: None,
            lost_through: 0,
            safe_to: Eversion::ZERO,
            mapping: ChunkMapping::default(),
            merge_shards: Shards::new(),
        }
    }

    /// The log ends at `head` from now on, whatever it held before.
    pub fn set_head(&mut self, head: Eversion) {
        self.last_update = head;
        self.safe_to = self.safe_to.min(head);
    }

    /// The log tells whether this copy lacks `object`.
    #[must_use]
    pub fn covers(&self, object: &HObject) -> bool {
        *object < self.last_backfill
    }

    /// True when only a comparison can tell all that this copy misses.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        !self.last_backfill.max
    }

    /// True when nothing was ever written here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last_update == Eversion::ZERO
    }
}
