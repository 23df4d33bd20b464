//! Files in a file system of this machine, as a journal has one.

use crate::KvError;
use crate::add_sums::sync_parent;
use crate::real_file::RealFile;
use nacre_env::File;
use nacre_env::real::private;
use std::path::Path;
use std::sync::Arc;

/// Opens a file that is there, for this process alone.
///
/// # Errors
/// [`KvError::InUse`], or what the system says.
pub fn open_file(path: &Path) -> Result<Arc<dyn File>, KvError> {
    let how = &mut private::options();
    Ok(Arc::new(RealFile::open_as(path, how.read(true).write(true))?))
}

/// The same of one that is made if it is not there; that it is survives a loss of power.
///
/// # Errors
/// As [`open_file`].
pub fn create_file(path: &Path) -> Result<Arc<dyn File>, KvError> {
    let file = RealFile::open(path)?;
    // Of the link, which may be new, and of what it leads to.
    sync_parent(path)?;
    sync_parent(&path.canonicalize()?)?;
    Ok(Arc::new(file))
}
