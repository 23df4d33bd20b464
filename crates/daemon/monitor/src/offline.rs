//! What is done to stores of monitors that do not run: one that joins a cluster begins, one takes a cluster over that has lost the others,
//! and all of them learn of new addresses.

use crate::members::Monitors;
use crate::monitor::{Monitor, STORE_FILE, StartError, open_store};
use crate::replica;
use nacre_auth::CryptoKey;
use nacre_env::real::private;
use nacre_kv::KvStore;
use nacre_maps::MonMap;
use nacre_mon::{MONITOR_VERSION, MONITOR_VERSION_MIN, Seed};
use nacre_types::{AddrVec, UTime};
use std::fs;
use std::path::{Path, PathBuf};

/// Makes an empty store that of the monitor `name`, which joins the cluster of the seed. It gets all tables when it runs.
///
/// # Errors
/// [`StartError::Program`], [`StartError::Unknown`], or [`StartError::Store`] without a path.
pub fn join(store: &mut dyn KvStore, seed: &Seed, key: CryptoKey, name: &str) -> Result<(), StartError> {
    if seed.version < MONITOR_VERSION_MIN || seed.version_min > MONITOR_VERSION {
        return Err(StartError::Program { theirs: seed.version, ours: MONITOR_VERSION });
    }
    let id = seed.members.id_of(name).ok_or_else(|| StartError::Unknown(name.to_owned()))?;
    replica::begin_to_join(store, &seed.tables(key), id)
        .map_err(|source| StartError::Store { path: PathBuf::new(), source })
}

impl Monitor {
    /// Makes `folder` the store of a monitor that joins the cluster of a seed, see [`join`].
    ///
    /// # Errors
    /// [`StartError`], among others when the folder holds a store already.
    pub fn join(folder: &Path, seed: &Seed, key: CryptoKey, name: &str) -> Result<(), StartError> {
        make(folder, |draft| {
            let mut kv = open_store(draft)?;
            join(&mut kv, seed, key, name).map_err(|error| at(draft, error))
        })
    }

    /// Makes `folder` the store of the only monitor of a cluster, `name` at `addrs`, from the store that another one, or the same, has left in
    /// the folder `from`, which stays as it is. All other monitors are of an earlier incarnation from then on. Yields the monitors' map.
    ///
    /// # Errors
    /// [`StartError`], among others when `folder` holds a store already, or `from` none.
    pub fn recover(
        from: &Path,
        folder: &Path,
        name: &str,
        addrs: AddrVec,
        wall: UTime,
    ) -> Result<MonMap, StartError> {
        let source = from.join(STORE_FILE);
        make(folder, |draft| {
            let target = draft.join(STORE_FILE);
            fs::copy(&source, &target)
                .map_err(|error| StartError::Folder { path: source.clone(), source: error })?;
            let log = |source| StartError::Log { path: target.clone(), source };
            let mut kv = open_store(draft)?;
            replica::recover(&mut kv, name, addrs, wall).map_err(log)?;
            Ok(Monitors::read(&kv).map_err(|error| log(error.into()))?.map)
        })
    }

    /// Gives monitors other addresses in the store of one that does not run; to be done to all of them alike. Yields the monitors' map.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn set_addrs(folder: &Path, addrs: &[(String, AddrVec)]) -> Result<MonMap, StartError> {
        let path = folder.join(STORE_FILE);
        let log = |source| StartError::Log { path: path.clone(), source };
        let mut kv = open_store(folder)?;
        replica::set_addrs(&mut kv, addrs).map_err(log)?;
        Ok(Monitors::read(&kv).map_err(|error| log(error.into()))?.map)
    }
}

/// Makes a store beside the folder's place for it and puts it there when it is whole: what a crash leaves is no store.
pub(crate) fn make<T>(
    folder: &Path,
    work: impl FnOnce(&Path) -> Result<T, StartError>,
) -> Result<T, StartError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| StartError::Folder { path, source }
    };
    let (place, draft) = (folder.join(STORE_FILE), folder.join("draft"));
    if place.exists() {
        return Err(StartError::Exists(folder.to_owned()));
    }
    private::make_folder(folder).map_err(io(folder))?;
    if draft.exists() {
        fs::remove_dir_all(&draft).map_err(io(&draft))?;
    }
    private::make_folder(&draft).map_err(io(&draft))?;
    let made = work(&draft)?;
    private::tighten(&draft)?;
    fs::rename(draft.join(STORE_FILE), &place).map_err(io(&place))?;
    fs::remove_dir_all(&draft).map_err(io(&draft))?;
    Ok(made)
}

pub(crate) fn at(folder: &Path, error: StartError) -> StartError {
    match error {
        StartError::Store { source, .. } => StartError::Store { path: folder.join(STORE_FILE), source },
        error => error,
    }
}
