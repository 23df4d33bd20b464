//! redb's errors as [`KvError`]s.

use crate::KvError;
use redb::{DatabaseError, StorageError};

/// redb reports a file without its magic number as an I/O error of this kind.
pub(crate) fn of_io(error: std::io::Error) -> KvError {
    match error.kind() {
        std::io::ErrorKind::InvalidData => KvError::Damaged(error.to_string()),
        _ => error.into(),
    }
}

impl From<StorageError> for KvError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Io(error) => of_io(error),
            StorageError::PreviousIo => Self::Fenced,
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<DatabaseError> for KvError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse,
            DatabaseError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<redb::Error> for KvError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => of_io(error),
            redb::Error::PreviousIo => Self::Fenced,
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            other => Self::Damaged(other.to_string()),
        }
    }
}
