//! [`MapCache`]: the OSD maps that an OSD has, for itself and to hand on to clients that are behind.

use nacre_buf::Bytes;
use nacre_denc::Encode;
use nacre_maps::OsdMap;
use nacre_monc::{MapError, NextMap, next_map};
use nacre_msg::OsdMap as MapMessage;
use nacre_types::{Epoch, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Incrementals kept for clients that are behind; one that is further behind gets a full map.
const INCREMENTALS_MAX: usize = 200;
/// Incrementals in one message, Ceph's `osd_map_message_max`.
const MESSAGE_MAPS_MAX: usize = 40;

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

    /// Takes the maps of a message that are newer than ours, oldest first, into `learned`.
    ///
    /// # Errors
    /// [`MapError`]; what came before the bad map is taken in and stands in `learned`.
    pub(crate) fn learn(
        &mut self,
        message: &MapMessage,
        learned: &mut Vec<Arc<OsdMap>>,
    ) -> Result<(), MapError> {
        while let Some(next) = next_map(&self.newest, message)? {
            self.follow(&next);
            learned.push(next.map);
        }
        Ok(())
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
