//! [`Partitions`]: a store that is divided, so that several threads can have a part each. The parts are [`BlockStore`]s with logs and metadata
//! of their own beside each other on one device; what they share is which of them has which slab of the data area (`slabs.rs`).

use crate::error::{LogGap, OpenError};
use crate::kv_schema::PartitionRecord;
use crate::mount::{self, MountReport, OnGap, Seat};
use crate::options::Options;
use crate::slabs::{SlabLedger, Slabs};
use crate::store::BlockStore;
use crate::superblock::{Division, Superblock};
use crate::trim::TrimReport;
use crate::{BLOCK, gap, leases};
use nacre_env::disk::{Disk, blocking};
use nacre_kv::KvStore;
use nacre_types::SpgId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The partitions of one store, to be opened. Owns what they share. A store that is not divided has one.
#[derive(Debug)]
pub struct Partitions {
    superblock: Superblock,
    /// `None` of a store that is not divided.
    ledger: Option<Arc<SlabLedger>>,
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
    ) -> Result<u64, OpenError> {
        mount::mkfs(disk, metadata, id, options)
    }

    /// How many partitions the store has whose data are on `disk`, wherever its log is: 1 when it is not divided.
    ///
    /// # Errors
    /// [`OpenError`] when there is no store, or the device fails.
    pub fn count(disk: &mut dyn Disk) -> Result<u32, OpenError> {
        Ok(mount::read_copies(disk, u64::MAX)?.division.partitions)
    }

    /// Reads which partition has which slab. `metadata` are those of all partitions, in order.
    ///
    /// # Errors
    /// [`OpenError::ForeignMetadata`] when metadata are missing, too many or not in their place; [`OpenError::SlabLeasedTwice`].
    pub fn read(disk: &mut dyn Disk, metadata: &[&dyn KvStore]) -> Result<Self, OpenError> {
        let superblock = mount::read_superblock(disk)?;
        let division = superblock.division;
        if division.partitions as usize != metadata.len() {
            return Err(OpenError::ForeignMetadata);
        }
        if division == Division::NONE {
            return Ok(Self { superblock, ledger: None, opened: BTreeSet::new() });
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
        Ok(Self { superblock, ledger: Some(Arc::new(ledger)), opened: BTreeSet::new() })
    }

    /// The seat of a partition, which is taken from then on; `None` where the store is not divided.
    fn seat(&mut self, number: u32, kv: &dyn KvStore) -> Result<Option<Seat>, OpenError> {
        let partitions = self.superblock.division.partitions;
        assert!(number < partitions, "partition {number} of {partitions}");
        assert!(self.opened.insert(number), "partition {number} is open, or was");
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let leases = leases::leases_of(ledger, number, PartitionRecord::load(kv)?)?;
        Ok(Some(Seat { superblock: self.superblock, number, leases }))
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
        let seat = self.seat(number, kv.as_ref())?;
        mount::open(disk, kv, options, OnGap::Refuse, seat)
    }

    /// Opens a partition as it was before the gap in its log, if that has one. For looking at it, over a disk and metadata that keep changes
    /// to themselves: what it shows may be older than what was acknowledged.
    ///
    /// # Errors
    /// [`OpenError`]; the store is as it was.
    ///
    /// # Panics
    /// As [`Partitions::open`].
    pub fn open_before_gap(
        &mut self,
        number: u32,
        disk: Box<dyn Disk>,
        kv: Box<dyn KvStore + Send>,
        options: Options,
    ) -> Result<(BlockStore, MountReport), OpenError> {
        let seat = self.seat(number, kv.as_ref())?;
        mount::open(disk, kv, options, OnGap::Cut, seat)
    }

    /// As [`crate::log_gap`], of a partition.
    ///
    /// # Errors
    /// [`OpenError`] when the store does not open for another reason.
    ///
    /// # Panics
    /// As [`Partitions::open`].
    pub fn log_gap(
        &mut self,
        number: u32,
        disk: Box<dyn Disk>,
        kv: Box<dyn KvStore + Send>,
        options: Options,
    ) -> Result<Option<LogGap>, OpenError> {
        let seat = self.seat(number, kv.as_ref())?;
        gap::log_gap_of(disk, kv, options, seat)
    }

    /// As [`crate::give_up_groups`], of a partition: what others have stays.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::Inconsistent`] also when there is no gap: then nothing is given up.
    ///
    /// # Panics
    /// As [`Partitions::open`].
    pub fn give_up_groups(
        &mut self,
        number: u32,
        disk: Box<dyn Disk>,
        kv: Box<dyn KvStore + Send>,
        options: Options,
        keep: &SpgId,
    ) -> Result<Vec<SpgId>, OpenError> {
        let seat = self.seat(number, kv.as_ref())?;
        gap::give_up_groups_of(disk, kv, options, keep, seat)
    }

    /// Discards all slabs that were nobody's when this was read. For tools: no partition is open.
    #[must_use]
    pub fn trim_free_slabs(&self, disk: &mut dyn Disk) -> TrimReport {
        let mut report = TrimReport::default();
        let Some(ledger) = &self.ledger else { return report };
        for slab in (0..ledger.slabs().count()).filter(|slab| ledger.holder(*slab).is_none()) {
            let run = ledger.slabs().run(slab);
            let bytes = run.count * BLOCK as u64;
            report.free_bytes += bytes;
            if report.refused.is_some() {
                continue;
            }
            match blocking::discard(disk, BlockStore::offset(run.start), bytes) {
                Ok(()) => report.discarded_bytes += bytes,
                Err(error) => report.refused = Some(error),
            }
        }
        report
    }
}
