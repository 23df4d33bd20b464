//! [`MapCache`]: the OSD maps that an OSD has, for itself and to hand on to clients that are behind; which maps of a message it takes.

use nacre_buf::Bytes;
use nacre_denc::Encode;
use nacre_maps::{MapError, NextMap, OsdMap, newer_maps};
use nacre_msg::MOsdMap;
use nacre_types::{Epoch, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Incrementals kept for clients that are behind; one that is further behind gets a full map.
const INCREMENTALS_MAX: usize = 200;
/// Incrementals in one message, Ceph's `osd_map_message_max`.
const MESSAGE_MAPS_MAX: usize = 40;

/// Where a message with maps came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapSource {
    /// A monitor: what it no longer keeps nobody needs.
    Monitor,
    /// Another OSD, which keeps the newest only.
    Peer,
    /// OSD control, which has taken all of it in.
    OsdControl,
}

/// Why maps that came are of no use as they are.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// They begin behind the epoch after ours. Which OSDs served in those between must be known, so they are asked for.
    #[error("maps from epoch {found} on, but those behind {own} are missing")]
    Gap {
        /// Epoch of our newest map.
        own: Epoch,
        /// The oldest that came.
        found: Epoch,
    },
    /// The increment does not lead to the map that the monitor has.
    #[error(transparent)]
    Increment(MapError),
    /// The monitor has another map of the epoch that we have: its history is not the one that we followed.
    #[error("the monitor's map of epoch {epoch} has checksum {found:#010x}, ours {own:#010x}")]
    Forked {
        /// Epoch that both have.
        epoch: Epoch,
        /// Checksum of our map.
        own: u32,
        /// Checksum of the monitor's.
        found: u32,
    },
    /// The map does not decode, or is of another cluster.
    #[error(transparent)]
    Bad(MapError),
}

/// The newest map, and the incrementals that led to it.
#[derive(Debug)]
pub struct MapCache {
    fsid: Uuid,
    newest: Arc<OsdMap>,
    incrementals: BTreeMap<Epoch, Bytes>,
    /// A mistake built in on purpose: see [`nacre_pg::Planted`].
    takes_gaps: bool,
}

impl MapCache {
    /// Goes on from `newest`, the map that the store holds, if any.
    #[must_use]
    pub fn new(fsid: Uuid, newest: Option<Arc<OsdMap>>) -> Self {
        let newest = newest.unwrap_or_else(|| Arc::new(OsdMap { fsid, ..OsdMap::default() }));
        Self { fsid, newest, incrementals: BTreeMap::new(), takes_gaps: false }
    }

    /// Plants a mistake: see [`nacre_pg::Planted::MapGapAccepted`].
    pub fn take_gaps(&mut self) {
        self.takes_gaps = true;
    }

    /// The newest map; of epoch 0 before the first.
    #[must_use]
    pub fn newest(&self) -> &Arc<OsdMap> {
        &self.newest
    }

    /// Takes the maps of a message that follow ours, epoch by epoch, into `learned`. Epochs are passed over only where
    /// nobody needs them: by an OSD that has no map yet, and where the monitor has trimmed what came before.
    ///
    /// # Errors
    /// [`LearnError`]; what came before the bad map is taken in and stands in `learned`.
    pub fn learn(
        &mut self,
        message: &MOsdMap,
        source: MapSource,
        learned: &mut Vec<Arc<OsdMap>>,
    ) -> Result<(), LearnError> {
        if source == MapSource::Monitor {
            self.compare(message)?;
        }
        for next in newer_maps(&self.newest, message) {
            let own = self.newest.epoch;
            let next = next.map_err(|error| match error {
                MapError::Apply { .. } => LearnError::Increment(error),
                error => LearnError::Bad(error),
            })?;
            let found = next.map.epoch;
            let trimmed = source == MapSource::Monitor && own.saturating_add(1) < message.oldest;
            let may_skip =
                own == 0 || source == MapSource::OsdControl || (trimmed && found == message.oldest);
            if next.skipped && !may_skip && !self.takes_gaps {
                return Err(LearnError::Gap { own, found });
            }
            self.follow(&next);
            learned.push(next.map);
        }
        let own = self.newest.epoch;
        match message.incrementals.range(own.saturating_add(1)..).next() {
            Some((found, _)) => Err(LearnError::Gap { own, found: *found }),
            None => Ok(()),
        }
    }

    /// Whether the monitor has the map that we have, where it tells.
    fn compare(&self, message: &MOsdMap) -> Result<(), LearnError> {
        let epoch = self.newest.epoch;
        let Some(theirs) = message.full.get(&epoch) else { return Ok(()) };
        let found = theirs.last_chunk().map_or(0, |tail| u32::from_le_bytes(*tail));
        let (_, own) = self.newest.to_bytes_and_crc();
        if own == found { Ok(()) } else { Err(LearnError::Forked { epoch, own, found }) }
    }

    fn follow(&mut self, next: &NextMap) {
        self.newest = Arc::clone(&next.map);
        match &next.incremental {
            Some(bytes) => drop(self.incrementals.insert(self.newest.epoch, bytes.clone())),
            None => self.incrementals.clear(),
        }
        if self.incrementals.len() > INCREMENTALS_MAX {
            self.incrementals.pop_first();
        }
    }

    /// What brings an OSD further that has come to `since`: the epochs behind it, if we have them. It takes no others.
    #[must_use]
    pub fn message_for_osd(&self, since: Epoch) -> Option<MOsdMap> {
        if self.takes_gaps {
            return Some(self.message_since(since));
        }
        let first = since.saturating_add(1);
        let wanted = self.incrementals.range(first..).take(MESSAGE_MAPS_MAX);
        let incrementals: BTreeMap<_, _> = wanted.map(|(epoch, bytes)| (*epoch, bytes.clone())).collect();
        let newest = self.newest.epoch;
        let message = MOsdMap { fsid: self.fsid, oldest: 1, newest, incrementals, ..MOsdMap::default() };
        message.incrementals.contains_key(&first).then_some(message)
    }

    /// What brings a client from `since` to the present: the incrementals if we have them all and they are
    /// few, else the full map.
    #[must_use]
    pub fn message_since(&self, since: Epoch) -> MOsdMap {
        let newest = self.newest.epoch;
        let mut message = MOsdMap { fsid: self.fsid, oldest: 1, newest, ..MOsdMap::default() };
        let wanted = self.incrementals.range(since.saturating_add(1)..);
        let complete = self.incrementals.contains_key(&since.saturating_add(1));
        if since > 0 && complete && newest - since <= MESSAGE_MAPS_MAX as u32 {
            message.incrementals = wanted.map(|(epoch, bytes)| (*epoch, bytes.clone())).collect();
        } else if since < newest {
            message.full.insert(newest, self.newest.to_bytes());
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(epoch: Epoch) -> OsdMap {
        OsdMap { epoch, flags: epoch, ..OsdMap::default() }
    }

    fn full(epochs: &[Epoch], oldest: Epoch) -> MOsdMap {
        let full = epochs.iter().map(|epoch| (*epoch, map(*epoch).to_bytes())).collect();
        MOsdMap { full, oldest, newest: 99, ..MOsdMap::default() }
    }

    fn at(epoch: Epoch) -> MapCache {
        MapCache::new(Uuid::default(), (epoch > 0).then(|| Arc::new(map(epoch))))
    }

    fn learn(cache: &mut MapCache, message: &MOsdMap, source: MapSource) -> Result<Vec<Epoch>, LearnError> {
        let mut learned = Vec::new();
        cache.learn(message, source, &mut learned)?;
        Ok(learned.iter().map(|map| map.epoch).collect())
    }

    #[test]
    fn epochs_are_passed_over_only_where_the_monitor_has_trimmed_them() {
        for source in [MapSource::Peer, MapSource::Monitor] {
            let gap = learn(&mut at(5), &full(&[7, 8], 1), source);
            assert!(matches!(gap, Err(LearnError::Gap { own: 5, found: 7 })), "{source:?} {gap:?}");
        }
        let trimmed = full(&[7, 8], 7);
        assert!(learn(&mut at(5), &trimmed, MapSource::Peer).is_err(), "what an OSD keeps says nothing");
        assert_eq!(learn(&mut at(5), &trimmed, MapSource::Monitor).expect("nobody needs 6"), [7, 8]);
        assert!(learn(&mut at(5), &full(&[9], 7), MapSource::Monitor).is_err(), "7 and 8 are kept");
        assert_eq!(learn(&mut at(0), &full(&[7], 1), MapSource::Monitor).expect("a new OSD"), [7]);
        assert_eq!(learn(&mut at(5), &full(&[6, 7], 1), MapSource::Peer).expect("no gap"), [6, 7]);
    }

    #[test]
    fn a_message_that_begins_behind_a_gap_tells_of_it() {
        let incrementals = [(8, Bytes::new())].into();
        let message = MOsdMap { incrementals, newest: 8, ..full(&[6], 1) };
        let mut cache = at(5);
        let gap = learn(&mut cache, &message, MapSource::Monitor);
        assert!(matches!(gap, Err(LearnError::Gap { own: 6, found: 8 })), "{gap:?}");
        assert_eq!(cache.newest().epoch, 6);
    }

    #[test]
    fn a_monitor_with_another_map_of_our_epoch_is_not_followed() {
        let mut message = full(&[5, 6], 1);
        assert_eq!(learn(&mut at(5), &message, MapSource::Monitor).expect("the same history"), [6]);
        message.full.insert(5, OsdMap { flags: 77, ..map(5) }.to_bytes());
        let forked = learn(&mut at(5), &message, MapSource::Monitor);
        assert!(matches!(forked, Err(LearnError::Forked { epoch: 5, .. })), "{forked:?}");
    }
}
