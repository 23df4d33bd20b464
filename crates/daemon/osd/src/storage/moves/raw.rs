//! Moves on real devices.

use super::folder::{Folder, Links, Note};
use super::steps::{Job, Place, Planted, free_device, free_on_data, log_home, needless, to_be_freed};
use super::{MoveError, MoveOutcome, MoveTo, Moved, Onlooker, SettledMove, data_key, look};
use crate::storage::devices::{
    Linked, LinkedDevices, check_parts, layout_error, metadata_place, metadata_place_on, region_disk,
};
use crate::storage::metadata::MetadataPlace;
use crate::storage::{BLOCK_FILE, Stopped, StoppedPartition, StorageError, file_error, join};
use nacre_blockstore::Options;
use nacre_crypt::{DataKey, WrappingKey};
use nacre_device::{Claimed, Label, RegionKind, System, claim, log_region, metadata_regions};
use nacre_env::File;
use nacre_env::disk::BLOCK_BYTES;
use nacre_env::real::{DeviceView, HeldDevice};
use nacre_kv::{KvOptions, journal_file_bytes, journal_half_bytes, journal_used_bytes};
use std::path::Path;
use std::sync::Arc;

/// What a region of metadata has beside what is in it: heads, and room to begin with.
const BESIDE_BYTES: u64 = 4 << 20;
/// The part of a region that an OSD keeps free, and at most: see [`MetadataPlace::options`].
const KEPT_DIVISOR: u64 = 8;
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of one discard.
const DISCARD_BYTES: u64 = 1 << 30;

/// The devices of a stopped OSD.
pub(super) struct Raw<'a> {
    folder: &'a Path,
    linked: LinkedDevices,
    key: Option<DataKey>,
}

impl<'a> Raw<'a> {
    /// With the key of an encrypted store.
    pub(super) fn new(
        folder: &'a Path,
        linked: LinkedDevices,
        key: Option<&WrappingKey>,
    ) -> Result<Self, MoveError> {
        for label in linked.labels() {
            if let Some(complaint) = label.complaint() {
                return Err(StorageError::Overwritten { complaint }.into());
            }
        }
        let key = data_key(folder, linked.data.keys()?, key)?;
        Ok(Self { folder, linked, key })
    }

    fn place(&self, name: &str, linked: &Linked) -> Result<Place, MoveError> {
        let name = Folder(self.folder).link(name)?.unwrap_or_else(|| linked.link.clone());
        let file = Arc::clone(&linked.view) as Arc<dyn File>;
        Ok(Place { name, file, label: linked.found.label.clone(), key: self.key.clone() })
    }

    fn data(&self) -> Result<Place, MoveError> {
        self.place(BLOCK_FILE, &self.linked.data)
    }

    /// The device on which it is.
    fn view(&self, what: Moved) -> Arc<DeviceView> {
        let LinkedDevices { data, log, metadata } = &self.linked;
        let own = match what {
            Moved::Log => log.as_ref(),
            Moved::Metadata => metadata.as_ref(),
        };
        Arc::clone(&own.unwrap_or(data).view)
    }

    /// The device of its own that it has now.
    fn own(&self, what: Moved) -> Result<Option<Place>, MoveError> {
        let linked = match what {
            Moved::Log => self.linked.log.as_ref(),
            Moved::Metadata => self.linked.metadata.as_ref(),
        };
        linked.map(|linked| self.place(what.link(), linked)).transpose()
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Ends the move that a note tells of: what the OSD's link does not lead to is given free.
pub(super) fn finish(raw: Raw<'_>, note: &Note) -> Result<SettledMove, MoveError> {
    let current = raw.own(note.what)?.map(|place| place.name);
    let is_current = |place: Option<&Path>| match (place, &current) {
        (Some(place), Some(current)) => is_same(place, current),
        (place, current) => place.is_none() && current.is_none(),
    };
    let freed = to_be_freed(note, is_current).ok_or_else(|| note.unclear(raw.folder, "the data device"))?;
    let left = match &freed {
        None => free_on_data(note.what, &raw.data()?).map(|()| None)?,
        Some(path) => free_path(note.what, &raw, path)?,
    };
    Folder(raw.folder).remove_note()?;
    Ok(SettledMove { what: note.what, is_done: freed == note.from, freed, left })
}

/// Gives a device free that the store does not use; says why, if it cannot be opened. One that somebody uses stays as it is.
fn free_path(what: Moved, raw: &Raw<'_>, path: &Path) -> Result<Option<String>, MoveError> {
    let held = match HeldDevice::open(path) {
        Ok(held) => held,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let view = held.view().map_err(file_error(path))?;
    free_device(what, raw.linked.data.found.label.owner, path, &view)?;
    Ok(None)
}

/// As [`super::move_part`].
pub(super) fn move_part(
    raw: Raw<'_>,
    what: Moved,
    to: &MoveTo,
    onlooker: &mut dyn Onlooker,
) -> Result<MoveOutcome, MoveError> {
    let (data, from) = (raw.data()?, raw.own(what)?);
    let (held, to) = match to {
        MoveTo::Back if from.is_none() => return Ok(MoveOutcome::WasThere),
        MoveTo::Back => {
            check_place(what, &data)?;
            (None, None)
        }
        MoveTo::Elsewhere { path, .. } if is_same(path, &data.name) => {
            return Err(MoveError::DataDevice { device: path.clone(), what });
        }
        MoveTo::Elsewhere { path, metadata_bytes, .. }
            if from.as_ref().is_some_and(|from| is_same(path, &from.name)) =>
        {
            let has_bytes = from.as_ref().map_or(0, |from| region_bytes(from, RegionKind::Metadata));
            return match metadata_bytes {
                Some(asked) if asked.next_multiple_of(BLOCK_BYTES as u64) != has_bytes => {
                    Err(MoveError::SizeInPlace { device: path.clone(), has_bytes })
                }
                _ => Ok(MoveOutcome::WasThere),
            };
        }
        MoveTo::Elsewhere { path, metadata_bytes, force } => {
            let claimed = claim(&System::default(), path, *force).map_err(StorageError::from)?;
            let (held, place) = plan(what, &data, claimed, *metadata_bytes)?;
            (Some(held), Some(place))
        }
    };
    if what == Moved::Metadata {
        raw.make_fit(to.as_ref().unwrap_or(&data))?;
    }
    let (links, old) = (Folder(raw.folder), raw.view(what));
    let job = Job { what, data: &data, from: from.as_ref(), to: to.as_ref(), planted: Planted::Nothing };
    let copied = job.copy(&links, &mut |progress| onlooker.progress(progress));
    let looked = copied.and_then(|()| look(raw.copied(&job, held)?, onlooker));
    if let Err(error) = looked {
        if let Err(error) = job.undo(&links) {
            tracing::warn!(%error, "what was copied is still there: the next move clears it away");
        }
        return Err(error);
    }
    job.switch(&links)?;
    discard(&old, &needless(&job)?);
    job.free(&links)?;
    Ok(MoveOutcome::Moved)
}

/// What nobody needs is discarded, where the device takes that.
fn discard(device: &DeviceView, ranges: &[(u64, u64)]) {
    for (offset, length) in ranges {
        let mut at = *offset;
        while at < offset + length {
            let piece = DISCARD_BYTES.min(offset + length - at);
            if let Err(error) = device.discard(at, piece) {
                tracing::info!(%error, "what was moved is not discarded in its old place");
                return;
            }
            at += piece;
        }
    }
}

/// Refuses a data device that has no place for it.
fn check_place(what: Moved, data: &Place) -> Result<(), MoveError> {
    let has_place = match what {
        Moved::Log => log_home(data)?.has_place(),
        Moved::Metadata => data.label.region(RegionKind::Metadata).is_some(),
    };
    let no_place = || MoveError::NoPlace { device: data.name.clone(), what };
    has_place.then_some(()).ok_or_else(no_place)
}

/// Divides a new device.
fn plan(
    what: Moved,
    data: &Place,
    claimed: Claimed,
    metadata_bytes: Option<u64>,
) -> Result<(HeldDevice, Place), MoveError> {
    let device_bytes = claimed.held.size_bytes();
    let regions = match what {
        Moved::Log => {
            let needed_bytes = log_home(data)?.device_bytes();
            let region = log_region(device_bytes, needed_bytes).map_err(layout_error(&claimed))?;
            fits(what, &claimed.name, region.length, needed_bytes)?;
            vec![region]
        }
        Moved::Metadata => {
            let journal_bytes = journal_file_bytes(Options::JOURNAL_HALF_BYTES_MAX);
            metadata_regions(device_bytes, metadata_bytes, journal_bytes).map_err(layout_error(&claimed))?
        }
    };
    let Claimed { held, name } = claimed;
    let file = Arc::new(held.view().map_err(file_error(&name))?);
    let owner = data.label.owner;
    let key = data.key.clone();
    let (role, is_encrypted, partitions) = (what.role(), key.is_some(), data.label.partitions);
    let label = Label { owner, role, device_bytes, regions, is_encrypted, partitions };
    if what == Moved::Metadata {
        check_parts(&label, &name)?;
    }
    Ok((held, Place { name, file, label, key }))
}

fn fits(what: Moved, device: &Path, has_bytes: u64, needed_bytes: u64) -> Result<(), MoveError> {
    if has_bytes >= needed_bytes {
        return Ok(());
    }
    Err(MoveError::TooSmall { device: device.to_owned(), what, has_bytes, needed_bytes })
}

fn region_bytes(place: &Place, kind: RegionKind) -> u64 {
    place.label.region(kind).map_or(0, |region| region.length)
}

impl Raw<'_> {
    /// Whether the metadata have room in their new place, each partition's in its part. A journal that has not becomes smaller, as an OSD
    /// with another memory target makes it.
    fn make_fit(&self, target: &Place) -> Result<(), MoveError> {
        (0..self.linked.partitions()).try_for_each(|partition| self.make_part_fit(target, partition))
    }

    fn make_part_fit(&self, target: &Place, partition: u32) -> Result<(), MoveError> {
        let linked = self.linked.metadata.as_ref().unwrap_or(&self.linked.data);
        let source = metadata_place(linked, self.key.as_ref(), partition)?;
        let bytes = |kind| target.label.part(kind, partition).map_or(0, |part| part.length);
        let room_bytes = bytes(RegionKind::Journal);
        if journal_bytes(&source)? > room_bytes {
            let half_bytes = journal_half_bytes(room_bytes);
            if half_bytes > 0 {
                drop(source.open_with(KvOptions::default(), Some(half_bytes))?);
            }
            if journal_bytes(&source)? > room_bytes {
                return Err(MoveError::NoJournalPlace { device: target.name.clone() });
            }
        }
        let (used_bytes, _) = source.used_bytes()?;
        let has_bytes = bytes(RegionKind::Metadata);
        let kept_bytes = KEPT_BYTES_MAX.min(has_bytes / KEPT_DIVISOR);
        // As somebody would make a device or a region for it: all parts are as large as the one that needs most.
        let of_all = |bytes: u64| bytes * u64::from(self.linked.partitions());
        let needed_bytes = used_bytes + BESIDE_BYTES + kept_bytes;
        fits(Moved::Metadata, &target.name, of_all(has_bytes), of_all(needed_bytes))
    }

    /// The store as it will be when the job is done.
    fn copied(self, job: &Job<'_>, held: Option<HeldDevice>) -> Result<Stopped, MoveError> {
        let count = self.linked.partitions();
        let (LinkedDevices { data, log, metadata }, key) = (self.linked, self.key.as_ref());
        let target = job.to.unwrap_or(job.data);
        let partition = |number| -> Result<StoppedPartition, MoveError> {
            let metadata = match job.what {
                Moved::Metadata => {
                    metadata_place_on((&target.name, &target.label), &target.file, key, number)?
                }
                Moved::Log => metadata_place(metadata.as_ref().unwrap_or(&data), key, number)?,
            };
            let log = match (job.what, &held) {
                (Moved::Log, Some(held)) => {
                    let on = (target.name.as_path(), &target.label);
                    Some(region_disk(held, on, RegionKind::Log, key, number)?)
                }
                (Moved::Log, None) => None,
                (Moved::Metadata, _) => {
                    log.as_ref().map(|log| log.disk(RegionKind::Log, key, number)).transpose()?
                }
            };
            let disk = join(data.disk(RegionKind::Store, key, number)?, log, self.folder)?;
            Ok(StoppedPartition { disk, metadata })
        };
        let partitions = (0..count).map(partition).collect::<Result<_, MoveError>>()?;
        Ok(Stopped { partitions, labels: Vec::new(), keys: None })
    }
}

fn journal_bytes(place: &MetadataPlace) -> Result<u64, MoveError> {
    let MetadataPlace::Regions { device, journal: Some((part, _)), .. } = place else { return Ok(0) };
    let failed = |source| StorageError::Meta { path: device.clone(), source };
    Ok(journal_used_bytes(part.as_ref()).map_err(failed)?)
}
