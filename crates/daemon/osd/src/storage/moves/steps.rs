//! The steps of a move, over devices as files. One step decides: the link in the OSD's folder.
//!
//! ```text
//!  1 note     in the folder: what goes from where to where
//!  2 label    on the new device
//!  3 copy     all of it, durable; then it is looked at as a store
//!  4 link     from here on the OSD opens the new place
//!  5 free     the old place is given up
//!  6 note     goes
//! ```
//!
//! Before step 4 the store is as before, whatever of 1 to 3 is there; from then on it is as after. What a move that was interrupted has
//! left is in the place that the link does not lead to, and the note names both: giving that one up finishes or undoes the move.

use super::folder::{Links, Note};
use super::{MoveError, Moved, Progress};
use crate::storage::devices::{journal_of, new_journal, partition_key, place_of, region_of};
use crate::storage::encryption::{part_of, through};
use crate::storage::{StorageError, file_error};
use nacre_blockstore::LogHome;
use nacre_crypt::DataKey;
use nacre_device::{Label, LabelError, Owner, RegionKind, erase, read_label, write_label};
use nacre_env::File;
use nacre_kv::{DevicePart, RegionFile, journal_used_bytes};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes copied at a time; zeros of a piece that is nothing else are not written. Chunks of regions are multiples of it.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes at the front of each partition's part of a region that are cleared when it is given up: heads, and beginnings of what they speak of.
const CLEARED_BYTES: u64 = 4 << 20;
/// Of which regions each partition has a part.
const METADATA_KINDS: [RegionKind; 2] = [RegionKind::Metadata, RegionKind::Journal];

/// A device of the store, all of it.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Place {
    /// The name by which a link leads to it.
    pub(in crate::storage) name: PathBuf,
    pub(in crate::storage) file: Arc<dyn File>,
    /// What is on it, or will be.
    pub(in crate::storage) label: Label,
    /// What its regions are encrypted with, if they are.
    pub(in crate::storage) key: Option<DataKey>,
}

impl Place {
    /// The region of store or log, decrypted. The log's area has another cipher in either, so what moves is encrypted anew.
    fn part(&self, kind: RegionKind) -> Result<Arc<dyn File>, MoveError> {
        let region = region_of(&self.label, kind, &self.name)?;
        let part = DevicePart::new(Arc::clone(&self.file), region.offset, region.length);
        Ok(through(Arc::new(part), self.key.as_ref(), part_of(kind)))
    }

    /// What a partition's metadata lie in: the whole device, decrypted by its key. Regions lie elsewhere on each device, and so do tweaks.
    fn below_metadata(&self, partition: u32) -> Arc<dyn File> {
        let key = partition_key(self.key.as_ref(), partition);
        through(Arc::clone(&self.file), key.as_ref(), part_of(RegionKind::Metadata))
    }

    fn tree(&self, partition: u32) -> Result<RegionFile, MoveError> {
        let place = place_of(&self.label, &self.name, partition)?;
        RegionFile::open(self.below_metadata(partition), place).map_err(self.failed())
    }

    fn journal(&self, partition: u32) -> Option<(Arc<DevicePart>, u64)> {
        journal_of(&self.label, &self.file, self.key.as_ref(), partition)
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> MoveError + use<> {
        let failed = file_error(&self.name);
        move |source| MoveError::Storage(failed(source))
    }
}

/// A mistake built in on purpose, to prove that the crash test would find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::storage) enum Planted {
    /// No mistake is built in.
    #[default]
    Nothing,
    /// The link leads to the new place before what is there is durable.
    #[cfg(test)]
    EarlySwitch,
    /// The old place is given up before the link leads to the new one.
    #[cfg(test)]
    EarlyFree,
}

/// What is to be moved from where to where. `None`: it is with the data.
pub(in crate::storage) struct Job<'a> {
    pub(in crate::storage) what: Moved,
    pub(in crate::storage) data: &'a Place,
    pub(in crate::storage) from: Option<&'a Place>,
    pub(in crate::storage) to: Option<&'a Place>,
    pub(in crate::storage) planted: Planted,
}

impl Job<'_> {
    fn target(&self) -> &Place {
        self.to.unwrap_or(self.data)
    }

    fn source(&self) -> &Place {
        self.from.unwrap_or(self.data)
    }

    fn note(&self) -> Note {
        let name = |place: Option<&Place>| place.map(|place| place.name.clone());
        Note { what: self.what, link: self.what.link().to_owned(), from: name(self.from), to: name(self.to) }
    }

    /// Steps 1 to 3, without the looking.
    pub(in crate::storage) fn copy(
        &self,
        links: &dyn Links,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), MoveError> {
        links.set_note(&self.note())?;
        if let Some(to) = self.to {
            write_label(to.file.as_ref(), &to.label).map_err(to.failed())?;
        }
        match self.planted {
            Planted::Nothing => (),
            #[cfg(test)]
            Planted::EarlySwitch => self.switch(links)?,
            #[cfg(test)]
            Planted::EarlyFree => self.free_old()?,
        }
        match self.what {
            Moved::Log => self.copy_log(progress),
            Moved::Metadata => self.copy_metadata(progress),
        }
    }

    fn copy_log(&self, progress: &mut dyn FnMut(Progress)) -> Result<(), MoveError> {
        let home = log_home(self.data)?;
        let part = |place: Option<&Place>| match place {
            Some(place) => place.part(RegionKind::Log),
            None => self.data.part(RegionKind::Store),
        };
        let (from, to) = (part(self.from)?, part(self.to)?);
        let total_bytes = home.log_bytes();
        let mut told = |done_bytes| progress(Progress { done_bytes, total_bytes });
        home.copy(from.as_ref(), to.as_ref(), &mut told).map_err(self.target().failed())?;
        to.sync().map_err(self.target().failed())?;
        let signed = match self.to {
            Some(_) => home.sign_log(to.as_ref()),
            None => home.sign_data(to.as_ref(), true),
        };
        signed.map_err(self.target().failed())
    }

    fn copy_metadata(&self, progress: &mut dyn FnMut(Progress)) -> Result<(), MoveError> {
        let (source, target) = (self.source(), self.target());
        let trees = (0..self.data.label.partitions).map(|partition| source.tree(partition));
        let trees: Vec<RegionFile> = trees.collect::<Result<_, MoveError>>()?;
        let used_bytes = |tree: &RegionFile| tree.room().map(|room| room.used_bytes);
        let used_bytes = trees.iter().map(used_bytes).collect::<std::io::Result<Vec<u64>>>();
        let used_bytes = used_bytes.map_err(source.failed())?;
        let (mut before_bytes, total_bytes) = (0, used_bytes.iter().sum());
        for ((partition, tree), used_bytes) in (0..).zip(&trees).zip(used_bytes) {
            let place = place_of(&target.label, &target.name, partition)?;
            let to = RegionFile::create(target.below_metadata(partition), place).map_err(target.failed())?;
            let mut told = |of_tree: Progress| {
                progress(Progress { done_bytes: before_bytes + of_tree.done_bytes, total_bytes });
            };
            copy_file(tree, &to, &mut told).map_err(target.failed())?;
            before_bytes += used_bytes;
            self.copy_journal(partition)?;
            // The first one makes the head durable, the second its other copy.
            to.sync().and_then(|()| target.file.sync()).map_err(target.failed())?;
        }
        Ok(())
    }

    fn copy_journal(&self, partition: u32) -> Result<(), MoveError> {
        let (source, target) = (self.source(), self.target());
        let (from, to) = (source.journal(partition), target.journal(partition));
        let used_bytes = match &from {
            Some((part, _)) => journal_used_bytes(part.as_ref()).map_err(meta_error(source))?,
            None => 0,
        };
        match (from, to) {
            (Some((from, _)), Some((to, room_bytes))) if used_bytes > 0 && used_bytes <= room_bytes => {
                copy_bytes(from.as_ref(), to.as_ref(), used_bytes).map_err(target.failed())
            }
            (_, to) if used_bytes == 0 => {
                to.map_or(Ok(()), |(part, _)| new_journal(part.as_ref())).map_err(target.failed())
            }
            _ => Err(MoveError::NoJournalPlace { device: target.name.clone() }),
        }
    }

    /// Step 4: the link leads to the new place, where all is durable before.
    pub(in crate::storage) fn switch(&self, links: &dyn Links) -> Result<(), MoveError> {
        // Looking at the copy may have written to it.
        self.target().file.sync().map_err(self.target().failed())?;
        match self.to {
            Some(to) => links.set_link(self.what.link(), &to.name)?,
            None => links.remove_link(self.what.link())?,
        }
        Ok(())
    }

    /// Steps 5 and 6.
    pub(in crate::storage) fn free(&self, links: &dyn Links) -> Result<(), MoveError> {
        self.free_old()?;
        Ok(links.remove_note()?)
    }

    /// Instead of step 4: the new place is given up.
    pub(in crate::storage) fn undo(&self, links: &dyn Links) -> Result<(), MoveError> {
        match self.to {
            Some(to) => erase(to.file.as_ref(), &to.label).map_err(to.failed())?,
            None => free_on_data(self.what, self.data)?,
        }
        Ok(links.remove_note()?)
    }

    fn free_old(&self) -> Result<(), MoveError> {
        match self.from {
            Some(from) => erase(from.file.as_ref(), &from.label).map_err(from.failed()),
            None => free_on_data(self.what, self.data),
        }
    }
}

/// Which place the note speaks of is not the store's: `Some(None)` is that with the data. `None` when the link leads to neither.
pub(in crate::storage) fn to_be_freed(
    note: &Note,
    is_current: impl Fn(Option<&Path>) -> bool,
) -> Option<Option<PathBuf>> {
    match (is_current(note.from.as_deref()), is_current(note.to.as_deref())) {
        (true, false) => Some(note.to.clone()),
        (false, true) => Some(note.from.clone()),
        _ => None,
    }
}

/// Ranges of a device whose content nobody needs once it has been given up: offset and bytes.
pub(in crate::storage) fn needless(job: &Job<'_>) -> Result<Vec<(u64, u64)>, MoveError> {
    if let Some(from) = job.from {
        return Ok(from.label.regions.iter().map(|region| (region.offset, region.length)).collect());
    }
    match job.what {
        Moved::Log => {
            let store = region_of(&job.data.label, RegionKind::Store, &job.data.name)?;
            let (offset, length) = log_home(job.data)?.area();
            Ok(vec![(store.offset + offset, length)])
        }
        Moved::Metadata => Ok(metadata_ranges(job.data).collect()),
    }
}

/// Of a device with the data.
fn metadata_ranges(data: &Place) -> impl Iterator<Item = (u64, u64)> + '_ {
    let regions = METADATA_KINDS.into_iter().filter_map(move |kind| data.label.region(kind));
    regions.map(|region| (region.offset, region.length))
}

/// Gives up the place beside the data, which the store does not use.
pub(in crate::storage) fn free_on_data(what: Moved, data: &Place) -> Result<(), MoveError> {
    match what {
        Moved::Log => {
            let part = data.part(RegionKind::Store)?;
            log_home(data)?.sign_data(part.as_ref(), false).map_err(data.failed())
        }
        Moved::Metadata => {
            let parts = (0..data.label.partitions).flat_map(|partition| {
                METADATA_KINDS.into_iter().filter_map(move |kind| data.label.part(kind, partition))
            });
            for part in parts {
                let cleared = usize::try_from(part.length.min(CLEARED_BYTES)).unwrap_or(0);
                // As they are, also on a device that is encrypted, where they read as zeros.
                data.file.write(part.offset, &vec![0; cleared]).map_err(data.failed())?;
            }
            data.file.sync().map_err(data.failed())
        }
    }
}

/// Gives up a device that the store does not use, if it is this store's and in that role, or was about to be. False: it is somebody's else,
/// or nobody's.
pub(in crate::storage) fn free_device(
    what: Moved,
    owner: Owner,
    name: &Path,
    file: &dyn File,
) -> Result<bool, MoveError> {
    let device_bytes = file.length().map_err(file_error(name))?;
    let device_bytes = device_bytes - device_bytes % 4096;
    let ours = |label: &Label| label.owner == owner && label.role == what.role();
    let label = match read_label(file, device_bytes) {
        Ok(found) if ours(&found.label) => found.label,
        // Power went as it got its label, or lost it.
        Err(LabelError::Damaged { .. }) => {
            let (role, regions) = (what.role(), Vec::new());
            Label { owner, role, device_bytes, regions, is_encrypted: false, partitions: 1 }
        }
        Err(LabelError::Device(source)) => return Err(file_error(name)(source).into()),
        _ => return Ok(false),
    };
    erase(file, &label).map_err(file_error(name))?;
    Ok(true)
}

pub(in crate::storage) fn log_home(data: &Place) -> Result<LogHome, MoveError> {
    let block_error = |source| StorageError::Block { path: data.name.clone(), source };
    Ok(LogHome::read(data.part(RegionKind::Store)?.as_ref()).map_err(block_error)?)
}

fn meta_error(place: &Place) -> impl FnOnce(nacre_kv::KvError) -> MoveError + use<> {
    let path = place.name.clone();
    move |source| MoveError::Storage(StorageError::Meta { path, source })
}

/// What a file holds becomes what an empty one holds.
pub(in crate::storage) fn copy_file(
    from: &dyn File,
    to: &dyn File,
    progress: &mut dyn FnMut(Progress),
) -> std::io::Result<()> {
    let total_bytes = from.room()?.used_bytes;
    let (mut at, end, mut done_bytes) = (0, from.length()?, 0);
    let mut piece = vec![0; usize::try_from(PIECE_BYTES).unwrap_or(0)];
    while at < end {
        let length = PIECE_BYTES.min(end - at);
        let piece = piece.get_mut(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
        from.read(at, piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            to.write(at, piece)?;
            done_bytes = total_bytes.min(done_bytes + length);
            progress(Progress { done_bytes, total_bytes });
        }
        at += length;
    }
    to.set_length(end)
}

pub(in crate::storage) fn copy_bytes(from: &dyn File, to: &dyn File, bytes: u64) -> std::io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let length = PIECE_BYTES.min(bytes - at);
        let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
        from.read(at, &mut piece)?;
        to.write(at, &piece)?;
        at += length;
    }
    Ok(())
}
