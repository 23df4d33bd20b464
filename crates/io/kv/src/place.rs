//! [`Place`]: where a store's file is, and how it is opened.

use crate::real_file::RealFile;
use nacre_env::File;
use redb::DatabaseError;
use std::path::PathBuf;
use std::sync::Arc;

type OpenFile = dyn Fn() -> std::io::Result<Arc<dyn File>> + Send + Sync;

/// What a file is given to the database through.
pub(crate) type Through = dyn Fn(Arc<dyn File>) -> Arc<dyn File> + Send + Sync;

/// An open file, and what locks it if it is a real one.
type OpenedFile = (Arc<dyn File>, Option<Arc<RealFile>>);

/// Where a store's file is.
pub(crate) enum Place {
    Path(PathBuf),
    /// A real file, which only what it is given through can read.
    Through(PathBuf, Box<Through>),
    /// Somebody opens it for us, at the beginning and anew at every idle trim.
    Given(Box<OpenFile>),
}

impl Place {
    pub(crate) fn open(&self) -> Result<OpenedFile, DatabaseError> {
        match self {
            Self::Path(path) => {
                let file = Arc::new(RealFile::open(path)?);
                Ok((Arc::clone(&file) as Arc<dyn File>, Some(file)))
            }
            Self::Through(path, through) => {
                let file = Arc::new(RealFile::open(path)?);
                Ok((through(Arc::clone(&file) as Arc<dyn File>), Some(file)))
            }
            Self::Given(open) => Ok((open()?, None)),
        }
    }
}
