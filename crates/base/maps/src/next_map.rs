//! [`next_map`]: the OSD map that a message brings next, for OSDs and clients alike.

use crate::{ApplyError, Incremental, OsdMap};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError};
use nacre_msg::MOsdMap;
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
/// [`MapError`]; `have` is as true as before. On [`MapError::Apply`] a whole map helps, and is taken from the same message
/// if it is there.
pub fn next_map(have: &Arc<OsdMap>, message: &MOsdMap) -> Result<Option<NextMap>, MapError> {
    if have.fsid != Uuid::default() && message.fsid != have.fsid {
        return Err(MapError::Foreign { found: message.fsid, own: have.fsid });
    }
    let next = have.epoch.saturating_add(1);
    if let Some(bytes) = message.incrementals.get(&next).filter(|_| have.epoch > 0) {
        match applied(have, next, bytes) {
            Ok(map) => return Ok(Some(NextMap { map, incremental: Some(bytes.clone()), skipped: false })),
            Err(error) if !message.full.contains_key(&next) => return Err(error),
            Err(_) => (),
        }
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
    // A map that is a little other than the monitor's would place PGs elsewhere than everybody else does.
    map.apply_verified(&inc).map_err(|source| MapError::Apply { epoch, source })?;
    Ok(Arc::new(map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_denc::Encode;

    /// A map of epoch 5, and the message that leads to the next; `sound` when the checksum in it is right.
    fn step(sound: bool) -> (Arc<OsdMap>, MOsdMap) {
        let map = OsdMap { epoch: 5, ..OsdMap::default() };
        let mut inc = Incremental::new(map.fsid, 6);
        inc.new_flags = 3;
        let mut next = map.clone();
        next.apply(&inc).expect("it follows");
        inc.full_crc = next.to_bytes_and_crc().1 ^ u32::from(!sound);
        let incrementals = [(6, inc.to_bytes())].into();
        (Arc::new(map), MOsdMap { incrementals, newest: 6, ..Default::default() })
    }

    #[test]
    fn an_increment_must_lead_to_the_map_that_its_sender_has() {
        let (map, message) = step(true);
        assert_eq!(next_map(&map, &message).expect("good").expect("newer").map.flags, 3);
        let (map, mut message) = step(false);
        let refused = next_map(&map, &message);
        assert!(matches!(refused, Err(MapError::Apply { epoch: 6, source: ApplyError::Checksum { .. } })));
        let whole = OsdMap { epoch: 6, flags: 9, ..OsdMap::default() };
        message.full.insert(6, whole.to_bytes());
        let next = next_map(&map, &message).expect("good").expect("newer");
        assert_eq!((next.map.flags, next.skipped), (9, false), "the whole map counts");
    }
}
