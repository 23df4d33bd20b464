//! [`BlockStore`]: objects, logs and metadata of one OSD on a file or block device, durable in one device write.
//!
//! A transaction is applied to the table in memory, encoded into a record of the write-ahead log, and acknowledged when
//! the record and the data of large writes, which goes to fresh blocks beside it, are on the device. Checkpoints write
//! dirty blocks home and changed metadata to a KV store, in the background. Formats, and what survives which crash:
//! `docs/formats/blockstore.md`.
//!
//! ```text
//! let options = Options::default();
//! if new {
//!     BlockStore::mkfs(disk.as_mut(), kv.as_mut(), id, &options)?; // zeroes the log, so it takes a moment
//! }
//! let (mut store, report) = BlockStore::open(disk, kv, options)?;
//! tracing::info!(?report, "opened");
//! // In the shard's turn: submit and fetch as orders come, then drain until nothing comes. `drain` never waits; it also
//! // starts what is queued, so call it once after the last submit of a turn. A completed request
//! // makes the disk's `wake_fd` readable, or the KV store's: hand both to `RealNet::watch` before they go into the
//! // store, and the shard's poll returns, its turn drains, and so on. While its state is `HasWork`, do not sleep.
//! let mut completions = Vec::new();
//! store.drain(&mut completions);
//! ```
//!
//! A store can be divided into [`Partitions`], each a [`BlockStore`] that a thread of its own may have: they share the device and, by slabs,
//! its data area.
//!
//! Memory is bounded by a target, [`Options::for_memory`]: clean objects, pages of their blocks, omaps and logs are read from the KV store
//! when they are asked for, and go when others need the room. Layer: io; uses base and the seams of env, kv and store.

#![warn(clippy::indexing_slicing)]

mod alloc;
mod blob;
mod block_page;
mod blocks;
mod cache;
mod check;
mod checkpoint;
mod checkpointing;
mod clean_records;
mod clock_cache;
mod codec;
mod device;
mod device_io;
mod dirty;
mod discards;
mod error;
mod failure;
mod fetch;
mod free_bitmap;
mod freemap;
mod gap;
mod held;
mod inspect;
mod kv_schema;
mod latencies;
mod leases;
mod leasing;
mod log_home;
mod memtable;
mod mount;
mod object_pages;
mod objects;
mod offline;
mod onode;
mod options;
mod packed_sums;
mod page;
mod page_set;
mod partitions;
mod probe;
mod reads;
mod references;
mod requests;
mod reserve;
mod run_tree;
mod segment_bits;
mod shared_blocks;
mod slabs;
mod slot;
mod store;
mod superblock;
mod table;
mod throttle;
mod trim;
mod unpacked;
mod unpacking;
mod upgrade;
mod view;
mod wal;
mod wal_device;
mod warming;
mod warmings;
mod writers;

#[cfg(test)]
mod tests;

pub use check::CheckReport;
pub use error::{LogGap, OpenError};
pub use gap::{give_up_groups, log_gap};
pub use inspect::{
    BadRecord, bad_metadata, journal_mark, recount_free_space, remove_metadata, restore_superblocks,
    superblock_copies,
};
pub use leases::SlabCounts;
pub use log_home::{LogHome, refuse_without_log};
pub use mount::MountReport;
pub use offline::{DeviceExtent, FreeSpace, Layout, ObjectShape, PackedExtent};
pub use options::{Options, Planted};
pub use partitions::Partitions;
pub use probe::{KnownDevice, KnownDevices, log_bytes, probe};
pub use store::BlockStore;
pub use trim::TrimReport;
pub use wal_device::SplitDisk;

/// Unit of allocation and of checksums: the device's own.
pub(crate) const BLOCK: usize = nacre_env::disk::BLOCK_BYTES;
// Otherwise the checksums that come with data would be of other pieces than those on the device.
const _: () = assert!(BLOCK == nacre_buf::crc::BLOCK_BYTES);

/// Blocks of a page of an object's blocks: 128 KiB. Unit tests have small objects, which are to have several pages.
pub(crate) const PAGE_BLOCKS: u32 = if cfg!(test) { 4 } else { 32 };

/// Copies slices to the front of `target`; gives what is left of it.
pub(crate) fn gather(mut target: &mut [u8], slices: impl IntoIterator<Item = impl AsRef<[u8]>>) -> &mut [u8] {
    for slice in slices {
        let slice = slice.as_ref();
        let (part, rest) = target.split_at_mut(slice.len());
        part.copy_from_slice(slice);
        target = rest;
    }
    target
}
