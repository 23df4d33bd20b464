//! What tools ask of an open store beyond [`nacre_store::ObjectStore`]: where things lie, and waiting until all is
//! durable. A serving shard uses none of it.

use crate::BLOCK;
use crate::blob::Blob;
use crate::device::DeviceBlock;
use crate::device::Numbers;
use crate::slot::Slot;
use crate::store::BlockStore;
use crate::superblock::{Superblock, VERSION, VERSION_WIDE};
use nacre_buf::Bytes;
use nacre_store::{ObjectStore, StoreError};
use nacre_types::{CompressionAlgorithm, Eversion, HObject, SpgId};

/// Identity and geometry of a store, as its superblock has them. Areas are in blocks of 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Format of device and metadata.
    pub version: u32,
    /// Id of the store.
    pub id: [u8; 16],
    /// First block of the log.
    pub log_first: u64,
    /// Blocks of the log.
    pub log_count: u64,
    /// First block of the data area.
    pub data_first: u64,
    /// Blocks of the data area.
    pub data_count: u64,
}

impl From<Superblock> for Layout {
    fn from(superblock: Superblock) -> Self {
        let Superblock { id, wal, data, .. } = superblock;
        Self {
            version: if superblock.numbers() == Numbers::Wide { VERSION_WIDE } else { VERSION },
            id,
            log_first: wal.start,
            log_count: wal.count,
            data_first: data.start,
            data_count: data.count,
        }
    }
}

/// Bytes of an object that lie side by side in the object and on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceExtent {
    /// First byte in the object.
    pub offset: u64,
    /// First byte on the device.
    pub device_offset: u64,
    /// CRC-32C of each block of 4 KiB.
    pub crcs: Vec<u32>,
}

/// How an object is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectShape {
    /// Its number in this store.
    pub number: u64,
    /// Length of its data in bytes.
    pub size_bytes: u64,
    /// What is on the device as it is, in order of offsets; what lies between is compressed, holes, or not written home yet.
    pub extents: Vec<DeviceExtent>,
    /// What is compressed on the device, in order of offsets.
    pub packed: Vec<PackedExtent>,
    /// Blocks of 4 KiB that only log and memory have so far.
    pub blocks_in_log: u64,
}

/// Blocks of an object that are side by side in a blob: together compressed, perhaps with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedExtent {
    /// First byte within the object.
    pub offset: u64,
    /// Blocks of 4 KiB.
    pub blocks: u64,
    /// Blocks of the object that the blob has before them.
    pub blocks_before: u64,
    /// By what they are compressed.
    pub algorithm: CompressionAlgorithm,
    /// Length of the blob.
    pub packed_bytes: u64,
    /// Where it is on the device, block by block.
    pub device_offsets: Vec<u64>,
}

fn add_packed(out: &mut Vec<PackedExtent>, index: u32, blob: &Blob, nth: u8) {
    let (offset, blocks_before) = (BlockStore::offset(index.into()), u64::from(nth));
    let blocks = blob.stored().iter().map(|device| device.block);
    let device_offsets: Vec<u64> = blocks.map(BlockStore::offset).collect();
    match out.last_mut() {
        Some(last)
            if last.offset + last.blocks * BLOCK as u64 == offset
                && last.blocks_before + last.blocks == blocks_before
                && last.device_offsets == device_offsets =>
        {
            last.blocks += 1;
        }
        _ => out.push(PackedExtent {
            offset,
            blocks: 1,
            blocks_before,
            algorithm: blob.algorithm,
            packed_bytes: blob.bytes().into(),
            device_offsets,
        }),
    }
}

/// What is free on the device and in which pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeSpace {
    /// Bytes that may be taken now.
    pub bytes: u64,
    /// Those of them in pieces of 1 MiB and more.
    pub long_bytes: u64,
    /// Runs of neighbouring blocks that they make.
    pub pieces: u64,
}

fn extents(blocks: impl Iterator<Item = (u32, DeviceBlock)>) -> Vec<DeviceExtent> {
    let mut out: Vec<DeviceExtent> = Vec::new();
    for (index, device) in blocks {
        let (offset, device_offset) = (BlockStore::offset(index.into()), BlockStore::offset(device.block));
        match out.last_mut() {
            Some(last)
                if last.offset + (last.crcs.len() * BLOCK) as u64 == offset
                    && last.device_offset + (last.crcs.len() * BLOCK) as u64 == device_offset =>
            {
                last.crcs.push(device.crc);
            }
            _ => out.push(DeviceExtent { offset, device_offset, crcs: vec![device.crc] }),
        }
    }
    out
}

impl BlockStore {
    /// Identity and geometry.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.superblock.into()
    }

    /// Blocks of the log, and those of them that replay would need now.
    #[must_use]
    pub fn log_usage(&self) -> (u64, u64) {
        self.wal.usage()
    }

    /// What is free, and in which pieces.
    #[must_use]
    pub fn free_space(&self) -> FreeSpace {
        let free = self.table.space.alloc.free();
        let bytes = |blocks: u64| blocks * BLOCK as u64;
        FreeSpace { bytes: bytes(free.blocks()), long_bytes: bytes(free.long_blocks()), pieces: free.runs() }
    }

    /// How an object is kept; `None` when it does not exist.
    #[must_use]
    pub fn shape(&self, at: &SpgId, name: &HObject) -> Option<ObjectShape> {
        let onode = self.table.object(at, name)?;
        let (mut at_home, mut packed) = (Vec::new(), Vec::new());
        self.table.pages_of(onode.id).each(&onode.blocks, |index, slot| match slot {
            Slot::Device(device) => at_home.push((index, *device)),
            Slot::Blob(blob, nth) => add_packed(&mut packed, index, blob, *nth),
            Slot::Memory(_) => (),
        });
        let blocks_in_log = onode.blocks.in_memory().count();
        Some(ObjectShape {
            number: onode.id,
            size_bytes: onode.size,
            extents: extents(at_home.into_iter()),
            packed,
            blocks_in_log: blocks_in_log as u64,
        })
    }

    /// The log of a PG, oldest first.
    #[must_use]
    pub fn log_entries(&self, at: &SpgId) -> Vec<(Eversion, Bytes)> {
        self.table.log_entries(at)
    }

    /// Waits until the device or the metadata has finished something, if anything is on its way.
    pub fn wait(&mut self) {
        if !self.has_work {
            self.wait_for_anything();
        }
    }

    /// Waits until all that was submitted is durable, and drops the completions.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when the device failed.
    pub fn settle(&mut self) -> Result<(), StoreError> {
        let mut nobody_waits = Vec::new();
        loop {
            // Also what a checkpoint has made durable already.
            self.drain(&mut nobody_waits);
            nobody_waits.clear();
            self.refuse_failed()?;
            if self.waiting() == 0 {
                return Ok(());
            }
            self.wait();
        }
    }

    /// Makes a whole checkpoint and waits for it: the metadata then has all that was submitted.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when the device or the metadata failed.
    pub fn checkpoint_now(&mut self) -> Result<(), StoreError> {
        self.finish_checkpoint();
        self.settle()
    }

    fn refuse_failed(&self) -> Result<(), StoreError> {
        match self.failure() {
            Some(reason) => Err(StoreError::Failed { reason: reason.to_owned() }),
            None => Ok(()),
        }
    }
}
