//! [`Partitions`]: a store that is divided, so that several threads can have a part each. The parts are [`BlockStore`]s with logs and metadata
//! of their own beside each other on one device; what they share is which of them has which slab of the data area (`slabs.rs`).

use crate::error::OpenError;
use crate::kv_schema::PartitionRecord;
use crate::leases;
use crate::mount::{self, MountReport, OnGap, Seat};
use crate::options::Options;
use crate::slabs::{SlabLedger, Slabs};
use crate::store::BlockStore;
use crate::superblock::Superblock;
use nacre_env::disk::Disk;
use nacre_kv::KvStore;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The partitions of one store, to be opened. Owns what they share.
#[derive(Debug)]
pub struct Partitions {
    superblock: Superblock,
    ledger: Arc<SlabLedger>,
    opened: BTreeSet<u32>,
}

impl Partitions {
    /// Makes a store of as many partitions as there are metadata, overwriting what is on `disk`; of one, the store that
    /// [`BlockStore::mkfs`] makes. The log, [`Options::wal_bytes`] of it, is divided evenly; the data area goes to whoever needs it, in slabs
    /// of [`Options::slab_blocks`].
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::Indivisible`] when the device is too small for so many.
    pub fn mkfs(
        disk: &mut dyn Disk,
        metadata: &mut [&mut dyn KvStore],
        id: [u8; 16],
        options: &Options,
    ) -> Result<(), OpenError> {
        mount::mkfs(disk, metadata, id, options)
    }

    /// How many partitions the store on `disk` has: 1 when it is not divided.
    ///
    /// # Errors
    /// [`OpenError`] when there is no store, or the device fails.
    pub fn count(disk: &mut dyn Disk) -> Result<u32, OpenError> {
        Ok(mount::read_superblock(disk)?.division.partitions)
    }

    /// Reads which partition has which slab. `metadata` are those of all partitions, in order. Of a store that is not divided there is nothing
    /// to read: open it by [`BlockStore::open`].
    ///
    /// # Errors
    /// [`OpenError::ForeignMetadata`] when metadata are missing, too many or not in their place; [`OpenError::SlabLeasedTwice`].
    pub fn read(disk: &mut dyn Disk, metadata: &[&dyn KvStore]) -> Result<Self, OpenError> {
        let superblock = mount::read_superblock(disk)?;
        let division = superblock.division;
        if division.partitions == 1 || division.partitions as usize != metadata.len() {
            return Err(OpenError::ForeignMetadata);
        }
        let slabs = Slabs::new(superblock.data, division.slab_blocks);
        let ledger = SlabLedger::new(slabs, division.partitions);
        for (number, kv) in (0..).zip(metadata) {
            let record = PartitionRecord::load(*kv)?;
            let is_this = |record: &PartitionRecord| {
                (record.number, record.partitions) == (number, division.partitions)
            };
            let record = record.filter(is_this).ok_or(OpenError::ForeignMetadata)?;
            for slab in record.slabs {
                ledger.adopt(slab, number).map_err(|other| match other {
                    Some(other) => OpenError::SlabLeasedTwice { slab, partitions: (other, number) },
                    None => {
                        OpenError::Inconsistent { what: "slab outside the data area", value: slab.into() }
                    }
                })?;
            }
        }
        Ok(Self { superblock, ledger: Arc::new(ledger), opened: BTreeSet::new() })
    }

    /// Opens a partition, as [`BlockStore::open`] does a whole store. `disk` is a hold of its own on the store's device, `kv` its metadata, which
    /// nobody has changed since [`Partitions::read`]. Another thread may open another partition meanwhile, or have it open.
    ///
    /// # Errors
    /// [`OpenError`]; the store is as it was.
    ///
    /// # Panics
    /// When that partition was opened before: what it shares with others is as it was when all of them were read.
    pub fn open(
        &mut self,
        number: u32,
        disk: Box<dyn Disk>,
        kv: Box<dyn KvStore + Send>,
        options: Options,
    ) -> Result<(BlockStore, MountReport), OpenError> {
        assert!(number < self.ledger.partitions(), "partition {number} of {}", self.ledger.partitions());
        assert!(self.opened.insert(number), "partition {number} is open, or was");
        let record = PartitionRecord::load(kv.as_ref())?;
        let leases = leases::leases_of(&self.ledger, number, record)?;
        let seat = Seat { superblock: self.superblock, number, leases };
        mount::open(disk, kv, options, OnGap::Refuse, Some(seat))
    }
}
