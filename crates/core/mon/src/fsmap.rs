//! File systems: none yet, but subscribers get empty maps.

use nacre_maps::{FsMap, MdsMap};
use nacre_msg::FsMapUserBody;

/// The file-system map.
#[derive(Debug)]
pub struct FsMaps {
    map: FsMap,
}

impl FsMaps {
    pub(crate) fn open() -> Self {
        Self { map: FsMap::empty(1) }
    }

    /// The current map.
    #[must_use]
    pub fn map(&self) -> &FsMap {
        &self.map
    }

    /// The names of the file systems.
    #[must_use]
    pub fn user_map(&self) -> FsMapUserBody {
        FsMapUserBody {
            epoch: self.map.epoch,
            legacy_fscid: self.map.legacy_client_fscid,
            filesystems: Vec::new(),
        }
    }

    /// What a client that mounts sees: a file system that is not enabled.
    #[must_use]
    pub fn mds_map(&self) -> MdsMap {
        MdsMap { epoch: self.map.epoch, ..MdsMap::default() }
    }
}
