//! [`LogHome`]: where the log of a store is that is not open, and moving it to a device of its own and back.
//!
//! The log's area has the same bytes on either: a move copies it, and nothing else changes its place. A store that was made with its log
//! beside its data keeps that place when the log leaves, so that it can come back; one whose log was on a device of its own from the
//! beginning has none.
//!
//! Which of the two is the store's log, the caller decides in one step of its own, behind [`LogHome::sign_log`] or [`LogHome::sign_data`].
//! Until then the store opens as before, with the one device or with both, from then on as after. See [`crate::SplitDisk`].

use crate::error::OpenError;
use crate::store::BlockStore;
use crate::superblock::{COPIES, Part, Superblock};
use crate::wal_device::SplitDisk;
use crate::{BLOCK, mount};
use nacre_buf::Bytes;
use nacre_env::File;
use nacre_env::disk::Disk;
use std::io;

/// Bytes copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// See the module's documentation. Read from the device with the data; files are the store's parts of devices, from their superblocks on.
#[derive(Debug, Clone, Copy)]
pub struct LogHome {
    superblock: Superblock,
}

impl LogHome {
    /// What the store's data device says.
    ///
    /// # Errors
    /// [`OpenError`] when it has no superblock, or fails.
    pub fn read(store: &dyn File) -> Result<Self, OpenError> {
        let mut first = None;
        for copy in 0..COPIES {
            let mut block = vec![0; BLOCK];
            let found = store.read(BlockStore::offset(copy.into()), &mut block).map_err(OpenError::from);
            match found.and_then(|()| Superblock::decode(&Bytes::from(block), u64::MAX)) {
                Ok(superblock) => return Ok(Self { superblock }),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(OpenError::NoSuperblock { reason: "no copies" }))
    }

    /// Whether the data device has a place for the log, whether it is there or not.
    #[must_use]
    pub fn has_place(&self) -> bool {
        matches!(self.superblock.part, Part::Whole | Part::DataInPlace)
    }

    /// Bytes that a device for the log needs.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        SplitDisk::HEAD_BYTES + self.log_bytes()
    }

    /// Bytes of the log.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.superblock.wal.count * BLOCK as u64
    }

    /// First byte of the log's area, on whichever device it is, and its bytes.
    #[must_use]
    pub fn area(&self) -> (u64, u64) {
        (SplitDisk::HEAD_BYTES, self.log_bytes())
    }

    /// Copies the log's area from where it is to where it will be. Tells how many bytes are copied. Not durable before the next sync.
    ///
    /// # Errors
    /// What a device says.
    pub fn copy(&self, from: &dyn File, to: &dyn File, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
        let (mut at, end) = (SplitDisk::HEAD_BYTES, self.device_bytes());
        while at < end {
            let length = PIECE_BYTES.min(end - at);
            let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
            from.read(at, &mut piece)?;
            to.write(at, &piece)?;
            at += length;
            progress(at - SplitDisk::HEAD_BYTES);
        }
        Ok(())
    }

    /// Writes on a device for the log which part of the store it is. Durable.
    ///
    /// # Errors
    /// What the device says.
    pub fn sign_log(&self, log: &dyn File) -> io::Result<()> {
        let part = if self.has_place() { Part::LogMoved } else { Part::Log };
        self.write(log, part)
    }

    /// Writes on the data device whether its place for the log is in use. Durable. Does nothing where there is none.
    ///
    /// # Errors
    /// What the device says.
    pub fn sign_data(&self, store: &dyn File, is_in_use: bool) -> io::Result<()> {
        if !self.has_place() {
            return Ok(());
        }
        self.write(store, if is_in_use { Part::Whole } else { Part::DataInPlace })
    }

    /// One copy is whole at any moment: as it was or as it will be.
    fn write(&self, device: &dyn File, part: Part) -> io::Result<()> {
        let block = Superblock { part, ..self.superblock }.encode();
        for copy in 0..COPIES {
            device.write(BlockStore::offset(copy.into()), &block)?;
            device.sync()?;
        }
        Ok(())
    }
}

/// Refuses a data device whose log was moved away and is not given with it: the place that it left holds a log of before.
///
/// # Errors
/// [`OpenError::LogElsewhere`]. What else is wrong, opening the store says.
pub fn refuse_without_log(data: &mut dyn Disk) -> Result<(), OpenError> {
    match mount::read_copies(data, u64::MAX) {
        Ok(Superblock { part: Part::DataInPlace, .. }) => Err(OpenError::LogElsewhere),
        _ => Ok(()),
    }
}
