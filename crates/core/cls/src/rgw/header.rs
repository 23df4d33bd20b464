//! [`Header`]: what a shard of a bucket index counts and how far it is; it lies in the omap header.
//! Formats: Ceph `src/cls/rgw/cls_rgw_types.h`, versions as v16.2.15 writes them.

use super::entry::{DirEntry, Meta};
use crate::keys::stored;
use crate::{ClassCx, Fault};
use nacre_buf::ByteStr;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Sizes are also counted rounded up to this, as if each object took whole blocks.
const BLOCK_BYTES: u64 = 4096;

/// `rgw_bucket_category_stats`
#[derive(Clone, Copy, Default)]
pub(super) struct Stats {
    /// Bytes that clients see.
    pub(super) bytes: u64,
    pub(super) bytes_rounded: u64,
    pub(super) entries: u64,
    /// Bytes that are stored.
    pub(super) bytes_stored: u64,
}

impl Stats {
    fn of(meta: &Meta) -> Self {
        let bytes = meta.accounted_size;
        let bytes_rounded = bytes.wrapping_add(BLOCK_BYTES - 1) & !(BLOCK_BYTES - 1);
        Self { bytes, bytes_rounded, entries: 1, bytes_stored: meta.size }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.bytes_rounded = self.bytes_rounded.wrapping_add(other.bytes_rounded);
        self.entries = self.entries.wrapping_add(other.entries);
        self.bytes_stored = self.bytes_stored.wrapping_add(other.bytes_stored);
    }

    fn subtract(&mut self, other: Self) {
        self.bytes = self.bytes.wrapping_sub(other.bytes);
        self.bytes_rounded = self.bytes_rounded.wrapping_sub(other.bytes_rounded);
        self.entries = self.entries.wrapping_sub(other.entries);
        self.bytes_stored = self.bytes_stored.wrapping_sub(other.bytes_stored);
    }
}

impl Encode for Stats {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.u64(self.bytes);
            w.u64(self.bytes_rounded);
            w.u64(self.entries);
            w.u64(self.bytes_stored);
        });
    }
}

impl Decode for Stats {
    const MIN_BYTES: usize = 30;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_category_stats", 3, |version, r| {
            let (bytes, bytes_rounded, entries) = (r.u64()?, r.u64()?, r.u64()?);
            let bytes_stored = if version >= 3 { r.u64()? } else { bytes };
            Ok(Self { bytes, bytes_rounded, entries, bytes_stored })
        })
    }
}

/// `cls_rgw_bucket_instance_entry`: whether the bucket gets another number of shards, and where.
#[derive(Clone)]
pub(super) struct Resharding {
    /// 0 no, 1 in progress, 2 done.
    pub(super) status: u8,
    pub(super) new_instance: ByteStr,
    /// Shards of the new instance, -1 when not known.
    pub(super) shards: i32,
}

impl Default for Resharding {
    fn default() -> Self {
        Self { status: 0, new_instance: ByteStr::EMPTY, shards: -1 }
    }
}

impl Encode for Resharding {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(self.status);
            w.put(&self.new_instance);
            w.i32(self.shards);
        });
    }
}

impl Decode for Resharding {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_bucket_instance_entry", 1, |_, r| {
            Ok(Self { status: r.u8()?, new_instance: r.get()?, shards: r.i32()? })
        })
    }
}

/// `rgw_bucket_dir_header`
#[derive(Clone, Default)]
pub(super) struct Header {
    /// What is counted, by category of objects.
    pub(super) stats: BTreeMap<u8, Stats>,
    /// Seconds after which an announced change counts as given up; 0 for the default.
    pub(super) tag_timeout_s: u64,
    /// Raised with each write of the header.
    pub(super) version: u64,
    pub(super) master_version: u64,
    /// Largest id in the bucket's log.
    pub(super) marker_max: ByteStr,
    pub(super) resharding: Resharding,
    /// The bucket's log takes no entries.
    pub(super) log_stopped: bool,
}

impl Header {
    /// The stored one; a default one where none was written.
    ///
    /// # Errors
    /// `EIO` when it is damaged.
    pub(super) fn load(cx: &dyn ClassCx) -> Result<Self, Fault> {
        let bytes = cx.omap_header();
        if bytes.is_empty() { Ok(Self::default()) } else { stored(bytes) }
    }

    /// Stores it under its next version.
    pub(super) fn save(mut self, cx: &mut dyn ClassCx) {
        self.version = self.version.wrapping_add(1);
        cx.omap_set_header(self.to_bytes());
    }

    /// Counts an object.
    pub(super) fn account(&mut self, meta: &Meta) {
        self.stats.entry(meta.category).or_default().add(Stats::of(meta));
    }

    /// Counts an object no longer, if it was counted.
    pub(super) fn unaccount(&mut self, entry: &DirEntry) {
        if entry.exists {
            self.stats.entry(entry.meta.category).or_default().subtract(Stats::of(&entry.meta));
        }
    }
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 2, |w| {
            w.put(&self.stats);
            w.u64(self.tag_timeout_s);
            w.u64(self.version);
            w.u64(self.master_version);
            w.put(&self.marker_max);
            w.put(&self.resharding);
            w.bool(self.log_stopped);
        });
    }
}

impl Decode for Header {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_dir_header", 6, |version, r| {
            let mut header = Self { stats: r.get()?, ..Self::default() };
            if version > 2 {
                header.tag_timeout_s = r.u64()?;
            }
            if version >= 4 {
                (header.version, header.master_version) = (r.u64()?, r.u64()?);
            }
            if version >= 5 {
                header.marker_max = r.get()?;
            }
            if version >= 6 {
                header.resharding = r.get()?;
            }
            if version >= 7 {
                header.log_stopped = r.bool()?;
            }
            Ok(header)
        })
    }
}
