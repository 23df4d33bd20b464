//! [`next_map`]: taking OSD maps in, one epoch at a time, for everybody who follows them.

use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError};
use nacre_maps::{ApplyError, Incremental, OsdMap};
use nacre_types::{Epoch, Uuid};
use std::sync::Arc;

/// Why a message with maps brought nothing more.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A map of another cluster.
    #[error("map of cluster {found}, we belong to {own}")]
    Foreign {
        /// The map's cluster.
        found: Uuid,
        /// Ours.
        own: Uuid,
    },
    /// Bytes that are no map.
    #[error("map of epoch {epoch}: {source}")]
    Malformed {
        /// The epoch that the message names.
        epoch: Epoch,
        /// What is wrong.
        source: DecodeError,
    },
    /// An incremental that does not fit the map before it.
    #[error("incremental of epoch {epoch}: {source}")]
    Apply {
        /// The epoch that it leads to.
        epoch: Epoch,
        /// What is wrong.
        source: ApplyError,
    },
}

/// The next map of a message.
#[derive(Clone, Debug)]
pub struct NextMap {
    /// The map, newer than the one before.
    pub map: Arc<OsdMap>,
    /// The bytes of the increment that led to it; none if the message held the map whole.
    pub incremental: Option<Bytes>,
    /// Whether epochs between the map before and this one were never seen.
    pub skipped: bool,
}

/// The oldest map in `message` that is newer than `have`: by its increment if that follows `have`, else whole. A
/// `have` of epoch 0 is no map yet, but its cluster counts unless it is nil. None when nothing newer can be had.
///
/// # Errors
/// [`MapError`]; `have` is as true as before.
pub fn next_map(have: &Arc<OsdMap>, message: &nacre_msg::OsdMap) -> Result<Option<NextMap>, MapError> {
    if have.fsid != Uuid::default() && message.fsid != have.fsid {
        return Err(MapError::Foreign { found: message.fsid, own: have.fsid });
    }
    let next = have.epoch.saturating_add(1);
    if let Some(bytes) = message.incrementals.get(&next).filter(|_| have.epoch > 0) {
        let map = applied(have, next, bytes)?;
        return Ok(Some(NextMap { map, incremental: Some(bytes.clone()), skipped: false }));
    }
    let Some((epoch, bytes)) = message.full.range(next..).next() else { return Ok(None) };
    let epoch = *epoch;
    let map = OsdMap::from_bytes(bytes.clone()).map_err(|source| MapError::Malformed { epoch, source })?;
    Ok(Some(NextMap { map: Arc::new(map), incremental: None, skipped: epoch != next }))
}

fn applied(have: &OsdMap, epoch: Epoch, bytes: &Bytes) -> Result<Arc<OsdMap>, MapError> {
    let inc =
        Incremental::from_bytes(bytes.clone()).map_err(|source| MapError::Malformed { epoch, source })?;
    let mut map = have.clone();
    map.apply(&inc).map_err(|source| MapError::Apply { epoch, source })?;
    Ok(Arc::new(map))
}
