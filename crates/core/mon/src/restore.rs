//! What a monitor begins with when a cluster begins anew from a recovery snapshot.

use crate::auth::AuthDb;
use crate::batch::{Batch, MemorySnapshot, Snapshot};
use crate::osd::{NewestMap, OsdMapsError};
use crate::recovery::{DatedKey, OpenedSnapshot};
use crate::state::{OpenError, State};
use nacre_auth::RecoveryKey;
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{FsMap, MgrMap, OsdMap};
use nacre_msg::ServiceMap;
use nacre_types::{AddrVec, Epoch, UTime, Uuid};

/// Maps whose epochs only the lost monitors knew go on so much behind those of the snapshot: subscribers wait for a greater one than they
/// have.
const EPOCHS_SKIPPED: Epoch = 10_000;
/// Global ids that were given out since the snapshot are not given out again: a thousand grants.
const GLOBAL_IDS_SKIPPED: u64 = 1000 * nacre_auth::GLOBAL_IDS_PER_GRANT;

/// Why nothing can be begun from a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A map of an OSD is of another cluster than the snapshot.
    #[error(
        "the snapshot is of cluster {snapshot}, and an OSD's map of {map}: these are OSDs of two clusters"
    )]
    OtherCluster {
        /// Cluster of the snapshot.
        snapshot: Uuid,
        /// Cluster of the map.
        map: Uuid,
    },
    /// Its map cannot be used.
    #[error("the snapshot's tables cannot be used: {0}")]
    Map(#[from] OsdMapsError),
    /// Something else in it cannot be used.
    #[error("the snapshot's tables cannot be used: {0}")]
    Decode(#[from] DecodeError),
    /// A monitor could not begin with it.
    #[error("the snapshot's tables cannot be used: {0}")]
    Open(#[from] OpenError),
}

/// What an empty store is filled with.
#[derive(Debug)]
pub struct Restored {
    /// All tables, in an order in which they may be written.
    pub tables: Batch,
    /// Which member of the log the only monitor is.
    pub id: u64,
    /// Epoch of the OSD map that the cluster goes on from.
    pub osdmap: Epoch,
}

/// The tables of a cluster that begins anew from a snapshot with one monitor, as `name` at `addrs`. It goes on from `newest`, the newest map
/// that is found in OSDs, where the snapshot has an older one: else OSDs would see the history go back. The key is the one that opened it.
///
/// # Errors
/// [`RestoreError`].
pub fn restore(
    opened: &OpenedSnapshot,
    key: &RecoveryKey,
    newest: Option<&OsdMap>,
    (name, addrs): (&str, AddrVec),
    wall: UTime,
) -> Result<Restored, RestoreError> {
    if let Some(map) = newest.filter(|map| map.fsid != opened.fsid) {
        return Err(RestoreError::OtherCluster { snapshot: opened.fsid, map: map.fsid });
    }
    let mut memory = MemorySnapshot::default();
    memory.apply(&opened.tables);
    let own = NewestMap::read(&memory)?;
    let mut batch = Batch::default();
    let osdmap = match newest.filter(|map| map.epoch > own.epoch) {
        None => own.epoch,
        Some(map) => {
            NewestMap { epoch: map.epoch, full: map.to_bytes() }.store(&mut batch);
            // Which PGs were to be made by then is not known, and a primary that is another since would make them anew.
            for (pool, _) in memory.scan("osd-creating") {
                batch.delete("osd-creating", pool);
            }
            own.remove(&mut batch);
            map.epoch
        }
    };
    skip_epochs(&memory, &mut batch)?;
    AuthDb::skip_ids(&memory, GLOBAL_IDS_SKIPPED, &mut batch)?;
    DatedKey { key: key.clone(), made: opened.made.max(wall) }.store(&mut batch);
    memory.apply(&batch);
    let (mut anew, id) =
        crate::seed::recover(&memory, name, addrs, wall)?.ok_or(OpenError::NotInitialised)?;
    memory.apply(&anew);
    State::open(&memory, name, wall)?;
    let mut tables = opened.tables.clone();
    tables.append(&mut batch);
    tables.append(&mut anew);
    Ok(Restored { tables, id, osdmap })
}

fn skip_epochs(memory: &MemorySnapshot, batch: &mut Batch) -> Result<(), DecodeError> {
    const KEY: &str = crate::stored_map::KEY;
    if let Some(map) = memory.get("mgrmap", KEY) {
        let mut map = MgrMap::from_bytes(map)?;
        map.epoch = map.epoch.saturating_add(EPOCHS_SKIPPED);
        batch.put("mgrmap", KEY, map.to_bytes());
    }
    if let Some(map) = memory.get("fsmap", KEY) {
        let mut map = FsMap::from_bytes(map)?;
        map.epoch = map.epoch.saturating_add(EPOCHS_SKIPPED);
        batch.put("fsmap", KEY, map.to_bytes());
    }
    if let Some(map) = memory.get("servicemap", KEY) {
        let mut map = ServiceMap::from_bytes(map)?;
        map.epoch = map.epoch.saturating_add(EPOCHS_SKIPPED);
        batch.put("servicemap", KEY, map.to_bytes());
    }
    Ok(())
}
