//! Locks of folders: whatever runs in one holds its lock.

use anyhow::{Context, Result, bail};
use nacre_env::real::private;
use nacre_env::{Clock, RealClock};
use nacre_types::Stamp;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// A process that was killed just now may still hold its locks for a moment.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(3);
const LOCK_POLL: Duration = Duration::from_millis(20);

/// The right to run a cluster or a daemon, until it is dropped or the process ends in whatever way.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock file in `folder`, which exists.
pub(crate) fn lock_within(folder: &Path, patience: Duration) -> Result<Lock> {
    let path = folder.join("lock");
    let file = private::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| path.display().to_string())?;
    let start = RealClock::start();
    while file.try_lock().is_err() {
        if start.now().since(Stamp::default()) >= patience {
            bail!(
                "{} is in use by another nacre process; stop that one or choose another --dir",
                folder.display()
            );
        }
        std::thread::sleep(LOCK_POLL);
    }
    Ok(Lock { _file: file })
}

/// True while a process holds the lock in `folder`.
pub(crate) fn is_locked(folder: &Path) -> bool {
    File::open(folder.join("lock")).is_ok_and(|file| file.try_lock().is_err())
}

/// The right to use a folder of a daemon, which need not be one of ours.
pub(crate) fn lock_other(folder: &Path) -> Result<Lock> {
    lock_within(folder, LOCK_WAIT)
}
