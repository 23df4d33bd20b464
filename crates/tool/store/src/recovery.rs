//! [`ControlState`]: what a stopped OSD knows of its cluster's control state, for `nacre mon recover`.

use crate::target::{Target, newest_map_of_all};
use anyhow::{Result, bail};
use nacre_buf::Bytes;
use nacre_maps::OsdMap;
use nacre_osd::storage;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the store of an OSD holds beside its PGs.
#[derive(Debug)]
pub struct ControlState {
    /// The newest OSD map; `None` in a store that no OSD has used yet.
    pub newest_map: Option<Arc<OsdMap>>,
    /// The recovery snapshot, sealed; `None` where the monitors have handed out none yet.
    pub snapshot: Option<Bytes>,
}

/// Reads the store in an OSD's folder without a byte of it being changed. An encrypted one is opened by the key in one of the files.
///
/// # Errors
/// When there is none, or an OSD runs on it; the text says what to do.
pub fn control_state(folder: &Path, key_files: &[PathBuf]) -> Result<ControlState> {
    if !storage::is_made(folder) {
        bail!("{} holds no OSD's store; give folders of OSDs, such as nacre-data/osd.0", folder.display());
    }
    let is_encrypted = storage::store_keys(folder)?.is_some();
    // Of several OSDs some may need none.
    let key_files = if is_encrypted { key_files.to_vec() } else { Vec::new() };
    let target = Target::new(folder.to_owned(), key_files);
    let stores = target.look_at_all()?;
    // The first partition's thread has OSD control, which keeps it.
    let snapshot = stores.first().and_then(|(store, _)| storage::stored_snapshot(store));
    Ok(ControlState { newest_map: newest_map_of_all(&stores), snapshot })
}
