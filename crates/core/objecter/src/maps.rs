//! Taking in maps.

use nacre_denc::{Decode, DecodeError};
use nacre_maps::{ApplyError, Incremental, OsdMap};
use nacre_types::{Epoch, Uuid};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a message with maps brought nothing more.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A map of another cluster.
    #[error("map of cluster {found}, this client belongs to {own}")]
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

/// The next map that a message holds behind `have`, and whether epochs were skipped before it.
pub(crate) fn next(
    have: &Arc<OsdMap>,
    message: &nacre_msg::OsdMap,
) -> Result<Option<(Arc<OsdMap>, bool)>, MapError> {
    if have.epoch > 0 && message.fsid != have.fsid {
        return Err(MapError::Foreign { found: message.fsid, own: have.fsid });
    }
    let epochs: BTreeSet<Epoch> = message.full.keys().chain(message.incrementals.keys()).copied().collect();
    for epoch in epochs.range(have.epoch + 1..) {
        let epoch = *epoch;
        let inc = message.incrementals.get(&epoch).filter(|_| have.epoch > 0 && epoch == have.epoch + 1);
        if let Some(bytes) = inc {
            let inc = Incremental::from_bytes(bytes.clone())
                .map_err(|source| MapError::Malformed { epoch, source })?;
            let mut map = OsdMap::clone(have);
            map.apply(&inc).map_err(|source| MapError::Apply { epoch, source })?;
            return Ok(Some((Arc::new(map), false)));
        }
        if let Some(bytes) = message.full.get(&epoch) {
            let map =
                OsdMap::from_bytes(bytes.clone()).map_err(|source| MapError::Malformed { epoch, source })?;
            return Ok(Some((Arc::new(map), epoch != have.epoch + 1)));
        }
    }
    Ok(None)
}
