//! [`newer_maps`]: the OSD maps that a message brings, in the order in which they are taken in. The one way for OSDs and clients alike.

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
        /// The cluster that we belong to.
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

/// A map of a message.
#[derive(Clone, Debug)]
pub struct NextMap {
    /// The map, newer than the one before.
    pub map: Arc<OsdMap>,
    /// The bytes of the increment that led to it; none if the message held the map whole.
    pub incremental: Option<Bytes>,
    /// Whether epochs between the map before and this one were never seen.
    pub skipped: bool,
}

/// The maps in `message` that are newer than `have`, oldest first: by its increment where that follows the map before, else whole. A
/// `have` of epoch 0 is no map yet, but its cluster counts unless it is nil.
///
/// # Errors
/// [`MapError`], once and at the end; the maps before it are good. On [`MapError::Apply`] a whole map helps; if the message has it, it is
/// taken from there.
pub fn newer_maps<'a>(
    have: &Arc<OsdMap>,
    message: &'a MOsdMap,
) -> impl Iterator<Item = Result<NextMap, MapError>> + use<'a> {
    let mut newest = Some(Arc::clone(have));
    std::iter::from_fn(move || {
        let next = next_map(newest.as_ref()?, message).transpose();
        newest = match &next {
            Some(Ok(next)) => Some(Arc::clone(&next.map)),
            Some(Err(_)) | None => None,
        };
        next
    })
}

/// The oldest map in `message` that is newer than `have`, if there is one.
fn next_map(have: &Arc<OsdMap>, message: &MOsdMap) -> Result<Option<NextMap>, MapError> {
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
    // A map that is a little other than the monitor's would place PGs elsewhere than all others do.
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

    #[test]
    fn maps_come_in_order_and_end_with_the_first_that_is_bad() {
        let whole = |epoch| (epoch, OsdMap { epoch, ..OsdMap::default() }.to_bytes());
        let (map, message) = step(true);
        let mut message = MOsdMap { full: [whole(4), whole(7), whole(9)].into(), ..message };
        let epochs = |message: &MOsdMap| -> Vec<_> {
            let found = newer_maps(&map, message).map(|next| next.map(|next| (next.map.epoch, next.skipped)));
            found
                .map(|next| next.map_err(|error| matches!(error, MapError::Malformed { epoch: 8, .. })))
                .collect()
        };
        assert_eq!(epochs(&message), [Ok((6, false)), Ok((7, false)), Ok((9, true))]);
        message.full.insert(8, Bytes::new());
        assert_eq!(epochs(&message), [Ok((6, false)), Ok((7, false)), Err(true)]);
        message.fsid = Uuid::from_random([7; 16]);
        assert_eq!(epochs(&message).len(), 3, "a map without a cluster takes those of any");
    }
}
