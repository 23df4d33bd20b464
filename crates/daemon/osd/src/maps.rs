//! [`MapCache`]: the OSD maps that an OSD has, for itself and to hand on to clients that are behind.

use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_maps::{ApplyError, Incremental, OsdMap};
use nacre_msg::OsdMap as MapMessage;
use nacre_types::{Epoch, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Incrementals kept for clients that are behind; one that is further behind gets a full map.
const INCREMENTALS_MAX: usize = 200;
/// Incrementals in one message, Ceph's `osd_map_message_max`.
const MESSAGE_MAPS_MAX: usize = 40;

/// Why a map message brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A map of another cluster.
    #[error("map of cluster {found}, this OSD belongs to {own}")]
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

/// The newest map, and the incrementals that led to it.
#[derive(Debug)]
pub(crate) struct MapCache {
    fsid: Uuid,
    newest: Arc<OsdMap>,
    incrementals: BTreeMap<Epoch, Bytes>,
}

impl MapCache {
    /// Goes on from `newest`, the map that the store holds, if any.
    pub(crate) fn new(fsid: Uuid, newest: Option<Arc<OsdMap>>) -> Self {
        let newest = newest.unwrap_or_else(|| Arc::new(OsdMap { fsid, ..OsdMap::default() }));
        Self { fsid, newest, incrementals: BTreeMap::new() }
    }

    pub(crate) fn newest(&self) -> &Arc<OsdMap> {
        &self.newest
    }

    /// Takes the maps of a message that are newer than ours and yields them, oldest first.
    pub(crate) fn learn(&mut self, message: &MapMessage) -> Result<Vec<Arc<OsdMap>>, MapError> {
        if message.fsid != self.fsid {
            return Err(MapError::Foreign { found: message.fsid, own: self.fsid });
        }
        let mut learned = Vec::new();
        let epochs: BTreeSet<Epoch> =
            message.full.keys().chain(message.incrementals.keys()).copied().collect();
        for epoch in epochs {
            if epoch <= self.newest.epoch {
                continue;
            }
            let inc = message.incrementals.get(&epoch).filter(|_| epoch == self.newest.epoch + 1);
            match (inc, message.full.get(&epoch)) {
                (Some(bytes), _) => self.advance(epoch, bytes)?,
                (None, Some(bytes)) => self.jump(epoch, bytes)?,
                (None, None) => continue,
            }
            learned.push(Arc::clone(&self.newest));
        }
        Ok(learned)
    }

    fn advance(&mut self, epoch: Epoch, bytes: &Bytes) -> Result<(), MapError> {
        let inc =
            Incremental::from_bytes(bytes.clone()).map_err(|source| MapError::Malformed { epoch, source })?;
        let mut next = OsdMap::clone(&self.newest);
        next.apply(&inc).map_err(|source| MapError::Apply { epoch, source })?;
        self.newest = Arc::new(next);
        self.incrementals.insert(epoch, bytes.clone());
        if self.incrementals.len() > INCREMENTALS_MAX {
            self.incrementals.pop_first();
        }
        Ok(())
    }

    fn jump(&mut self, epoch: Epoch, bytes: &Bytes) -> Result<(), MapError> {
        let map =
            OsdMap::from_bytes(bytes.clone()).map_err(|source| MapError::Malformed { epoch, source })?;
        self.newest = Arc::new(map);
        self.incrementals.clear();
        Ok(())
    }

    /// What brings a client from `since` to the present: the incrementals if we have them all and they are
    /// few, else the full map.
    pub(crate) fn message_since(&self, since: Epoch) -> MapMessage {
        let newest = self.newest.epoch;
        let mut message = MapMessage { fsid: self.fsid, oldest: 1, newest, ..MapMessage::default() };
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
