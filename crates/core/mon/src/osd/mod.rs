//! OSDs, pools and placement: the OSDMap, its history, and everything that changes it.
//!
//! Every change edits one [`Incremental`]; closing it makes the next epoch, whose full and incremental
//! encodings are stored together with whatever else the batch holds.

mod blocklist;
mod boot;
pub mod crush_edit;
mod failure;
mod full;
mod history;
mod merge;
mod pace;
mod pools;
mod recreate;
mod snaps;
mod status;
mod temp;
pub(crate) mod view;

pub use boot::{BootOutcome, BootRefusal, BootRequest};
pub use crush_edit::{CrushPlace, LocationError};
pub use failure::FailureReport;
pub(crate) use history::NewestMap;
pub use history::{EPOCHS_COUNT_MIN, History};
pub(crate) use pace::has_its_pg_num;
pub use pools::{POOL_NAME_BYTES_MAX, PoolError, PoolSpec, pool_by_name};
pub use status::OsdStatus;
pub(crate) use status::{TimedOut, has_osd_flag, share};

use crate::batch::{Batch, Snapshot};
use failure::Failures;
use nacre_buf::Bytes;
use nacre_crush::CrushMap;
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{ApplyError, Incremental, OsdMap, flags};
use nacre_types::{Epoch, IntervalSet, OsdId, PgId, PoolId, UTime};
use pools::Creating;
use std::collections::BTreeMap;
use std::sync::Arc;

const METADATA_PREFIX: &str = "osd-metadata";

/// The OSDMap and its history.
///
/// Three moments of the map: `published` is durable and known to subscribers, `map` is the newest closed epoch
/// (perhaps still being committed), `upcoming` has the changes that the next epoch will bring.
#[derive(Debug)]
pub struct OsdMaps {
    published: Arc<OsdMap>,
    published_full: Bytes,
    latest: Arc<OsdMap>,
    latest_full: Bytes,
    pending: Option<Pending>,
    /// Why changes were taken back.
    refused: Option<ApplyError>,
    history: History,
    /// What each OSD said of itself when it booted.
    metadata: BTreeMap<OsdId, Arc<BTreeMap<String, String>>>,
    /// What we know of OSDs beyond the map; not durable.
    status: BTreeMap<OsdId, OsdStatus>,
    /// The newest epoch in which a PG is known to have been clean, by its primary's beacons since our start.
    clean: BTreeMap<PgId, Epoch>,
    /// OSDs that had newer maps than we, and the newest epoch that each spoke of.
    ahead: BTreeMap<OsdId, Epoch>,
    /// Why an OSD that tries to boot was refused last.
    pub(crate) refused_boots: BTreeMap<OsdId, BootRefusal>,
    failures: Failures,
    /// Pools whose PGs are not all created yet.
    creating: BTreeMap<PoolId, Creating>,
    /// Pools whose next merge waits for room in a divided store of this OSD.
    merges_without_room: BTreeMap<PoolId, OsdId>,
    /// PGs that are to be made anew.
    recreating: recreate::Recreating,
    /// Every snapshot ever removed, by pool.
    removed_snaps: BTreeMap<PoolId, IntervalSet>,
    changes: Batch,
}

/// Changes collected for the next epoch.
#[derive(Debug)]
struct Pending {
    incremental: Incremental,
    crush: Option<CrushMap>,
    /// The map with these changes, while they have not been edited since.
    upcoming: Option<OsdMap>,
    /// The changes, without CRUSH, as they were when last they followed the map.
    sound: Incremental,
}

impl Pending {
    /// The changes with the CRUSH map encoded into them, as they follow `latest`.
    fn complete(&self, latest: &OsdMap) -> Incremental {
        let mut incremental = self.applicable(latest);
        if let Some(crush) = &self.crush {
            incremental.crush = crush.to_bytes();
        }
        incremental
    }

    /// The changes, without CRUSH, as maps apply them. Weights come before state bits there, and bring an OSD into being that has
    /// one: the flip that says the same would take it away. It stays among the changes themselves, for the weight may be taken
    /// back. No entry is 0: that would flip `up`.
    fn applicable(&self, latest: &OsdMap) -> Incremental {
        let mut incremental = self.incremental.clone();
        let Incremental { new_weight, new_state, .. } = &mut incremental;
        new_state.retain(|osd, bits| {
            if new_weight.get(osd).is_some_and(|weight| *weight > 0) && !latest.exists(*osd) {
                *bits &= !flags::osd::EXISTS;
            }
            *bits != 0
        });
        incremental
    }

    /// Brings `upcoming` up to date. Changes that cannot follow `latest` are taken back to what last could.
    fn refresh(&mut self, latest: &OsdMap) -> Result<(), ApplyError> {
        if self.upcoming.is_some() {
            return Ok(());
        }
        self.incremental.new_state.retain(|_, bits| *bits != 0); // what flips twice does not change
        let mut map = OsdMap::clone(latest);
        let outcome = map.apply(&self.applicable(latest));
        match outcome {
            Ok(()) => self.sound.clone_from(&self.incremental),
            Err(_) => {
                self.incremental.clone_from(&self.sound);
                map = OsdMap::clone(latest);
                map.apply(&self.applicable(latest))?;
            }
        }
        if let Some(crush) = &self.crush {
            map.crush = Arc::new(crush.clone());
        }
        self.upcoming = Some(map);
        outcome
    }

    fn is_empty(&self) -> bool {
        self.crush.is_none()
            && self.incremental == Incremental::new(self.incremental.fsid, self.incremental.epoch)
    }
}

/// Why the stored maps cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OsdMapsError {
    /// No map at all: the store was never initialised.
    #[error("no OSD map is stored")]
    Missing,
    /// An epoch between the oldest and the newest is not there.
    #[error("OSD map epoch {0} is missing")]
    Gap(Epoch),
    /// The newest map is not the one that its change leads to.
    #[error("the stored OSD map of epoch {0} is not the one that its incremental says")]
    Torn(Epoch),
    /// A stored map does not decode.
    #[error("stored OSD map: {0}")]
    Decode(#[from] DecodeError),
}

impl OsdMaps {
    /// Stores the first map of a cluster.
    pub(crate) fn create(map: &OsdMap, batch: &mut Batch) {
        History::create(map.epoch, &map.to_bytes(), batch);
    }

    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, OsdMapsError> {
        let (history, newest) = History::open(snapshot)?;
        let latest = Arc::new(OsdMap::from_bytes(newest.clone())?);
        let metadata = snapshot
            .scan(METADATA_PREFIX)
            .into_iter()
            .filter_map(|(id, value)| Some((id.parse().ok()?, Arc::new(BTreeMap::from_bytes(value).ok()?))));
        Ok(Self {
            published: Arc::clone(&latest),
            published_full: newest.clone(),
            latest,
            latest_full: newest,
            pending: None,
            refused: None,
            history,
            metadata: metadata.collect(),
            status: BTreeMap::new(),
            clean: BTreeMap::new(),
            ahead: BTreeMap::new(),
            refused_boots: BTreeMap::new(),
            failures: Failures::default(),
            creating: pools::read_creating(snapshot)?,
            merges_without_room: BTreeMap::new(),
            recreating: recreate::read(snapshot)?,
            removed_snaps: snaps::read_removed(snapshot)?,
            changes: Batch::default(),
        })
    }

    /// The newest closed epoch: what read-only commands show.
    #[must_use]
    pub fn map(&self) -> &Arc<OsdMap> {
        &self.latest
    }

    /// The newest durable epoch: what subscribers have.
    #[must_use]
    pub fn published(&self) -> &Arc<OsdMap> {
        &self.published
    }

    /// Encoded full map of the newest durable epoch.
    #[must_use]
    pub fn published_full(&self) -> &Bytes {
        &self.published_full
    }

    /// The epoch that holds, or will hold, everything changed so far.
    #[must_use]
    pub fn next_epoch(&self) -> Epoch {
        let changes = self.pending.as_ref().is_some_and(|pending| !pending.is_empty());
        self.latest.epoch + Epoch::from(changes)
    }

    fn pending(&mut self) -> &mut Pending {
        let latest = &self.latest;
        self.pending.get_or_insert_with(|| Pending {
            incremental: Incremental::new(latest.fsid, latest.epoch + 1),
            crush: None,
            upcoming: None,
            sound: Incremental::new(latest.fsid, latest.epoch + 1),
        })
    }

    /// The map as the next epoch will have it: what changes are checked against. A change that cannot follow
    /// the map, such as one that names an OSD beyond `max_osd`, is taken back: see [`OsdMaps::check_changes`].
    pub fn upcoming(&mut self) -> &OsdMap {
        let latest = &self.latest;
        if let Some(Err(error)) = self.pending.as_mut().map(|pending| pending.refresh(latest)) {
            self.refused = Some(error);
        }
        self.pending.as_ref().and_then(|pending| pending.upcoming.as_ref()).unwrap_or(latest)
    }

    /// Says whether the changes since the last call can be made; those that cannot are taken back.
    ///
    /// # Errors
    /// [`ApplyError`] of the first one that cannot: our own mistake, which no other change shall suffer from.
    pub fn check_changes(&mut self) -> Result<(), ApplyError> {
        self.upcoming();
        self.refused.take().map_or(Ok(()), Err)
    }

    /// The next epoch's changes, to add to. Epoch, stamps and checksums are filled in when it is closed.
    pub fn change(&mut self) -> &mut Incremental {
        let pending = self.pending();
        pending.upcoming = None;
        &mut pending.incremental
    }

    /// The next epoch's CRUSH map, to edit.
    fn change_crush(&mut self) -> &mut CrushMap {
        let crush = Arc::clone(&self.latest.crush);
        let pending = self.pending();
        pending.upcoming = None;
        pending.crush.get_or_insert_with(|| CrushMap::clone(&crush))
    }

    /// A pool of the next epoch, to edit; `None` when there is no such pool.
    pub fn change_pool(&mut self, pool: PoolId) -> Option<&mut nacre_maps::Pool> {
        let mut edited = self.upcoming().pools.get(&pool)?.clone();
        let pending = self.pending();
        pending.upcoming = None;
        edited.last_change = pending.incremental.epoch;
        let entry = pending.incremental.new_pools.entry(pool);
        Some(entry.insert_entry(edited).into_mut())
    }

    /// Encoded full map of a kept, closed epoch.
    #[must_use]
    pub fn full_map(&self, epoch: Epoch) -> Option<Bytes> {
        if epoch == self.latest.epoch {
            return Some(self.latest_full.clone());
        }
        self.history.full(epoch)
    }

    /// Encoded change that made a kept epoch.
    #[must_use]
    pub fn incremental(&self, epoch: Epoch) -> Option<&Bytes> {
        self.history.incremental(epoch)
    }

    /// Oldest epoch that is kept.
    #[must_use]
    pub fn oldest(&self) -> Epoch {
        self.history.oldest()
    }

    /// What an OSD said of itself when it booted (`osd metadata`).
    #[must_use]
    pub fn metadata(&self, osd: OsdId) -> Option<&BTreeMap<String, String>> {
        self.metadata.get(&osd).map(AsRef::as_ref)
    }

    /// The same, to be handed on.
    #[must_use]
    pub fn shared_metadata(&self, osd: OsdId) -> Option<&Arc<BTreeMap<String, String>>> {
        self.metadata.get(&osd)
    }

    fn set_metadata(&mut self, osd: OsdId, metadata: BTreeMap<String, String>) {
        if self.metadata(osd) != Some(&metadata) {
            self.changes.put(METADATA_PREFIX, osd.to_string(), metadata.to_bytes());
            self.metadata.insert(osd, Arc::new(metadata));
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty() || self.pending.as_ref().is_some_and(|pending| !pending.is_empty())
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    /// Closes the next epoch, if anything changes, and adds everything unsaved to `batch`.
    pub(crate) fn flush(&mut self, wall: UTime, batch: &mut Batch) {
        self.upcoming(); // takes back what cannot be
        if let Some(pending) = self.pending.take()
            && !pending.is_empty()
            && let Err(error) = self.close(&pending, wall)
        {
            self.refused = Some(error);
        }
        batch.append(&mut self.changes);
    }

    fn close(&mut self, pending: &Pending, wall: UTime) -> Result<(), ApplyError> {
        let mut incremental = pending.complete(&self.latest);
        incremental.modified = wall;
        self.stamp_changes(&mut incremental, wall);
        let mut map = OsdMap::clone(&self.latest);
        map.apply(&incremental)?;
        self.clean_temps(&mut map, &mut incremental);
        let (full, crc) = map.to_bytes_and_crc();
        incremental.full_crc = crc;
        let encoded = incremental.to_bytes();
        self.history.append(map.epoch, encoded, full.clone(), &mut self.changes);
        self.latest_full = full;
        self.latest = Arc::new(map);
        Ok(())
    }

    /// Stamps of the last up/down and in/out change.
    fn stamp_changes(&self, incremental: &mut Incremental, wall: UTime) {
        let up = flags::osd::UP;
        let went_down = incremental.new_state.values().any(|bits| *bits == 0 || bits & up != 0);
        if went_down || !incremental.new_up_client.is_empty() {
            incremental.new_last_up_change = wall;
        }
        if !incremental.new_weight.is_empty() {
            incremental.new_last_in_change = wall;
        }
    }

    /// The batch that held the newest epoch is durable.
    pub(crate) fn committed(&mut self, epoch: Epoch) {
        debug_assert!(epoch >= self.published.epoch && epoch <= self.latest.epoch);
        if epoch == self.latest.epoch {
            self.published = Arc::clone(&self.latest);
            self.published_full = self.latest_full.clone();
        }
    }
}
