//! Checksums for the file of an older program: its pages are copied to a new file that has them.

use crate::KvError;
use crate::real_file::RealFile;
use crate::redb_error::of_io;
use crate::sums::{Kind, Summed, kind_of};
use nacre_env::File;
use nacre_env::real::private;
use redb::{DatabaseError, StorageError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory for pages of the old file while its checksums are tried.
const CACHE_BYTES: usize = 16 << 20;
/// What redb keeps at the beginning of a file, and the page that it is in.
const HEADER_BYTES: usize = 320;
const HEADER_PAGE_BYTES: u64 = 4096;
/// Bytes of an older file that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Gives the store at `path` checksums, if an older program made it: its pages are copied to a new file, which takes its place.
/// redb's own checksums prove first that what is copied is what was written. Without room for two it stays as it is.
pub(crate) fn add_sums(path: &Path) -> Result<(), KvError> {
    let file = match RealFile::open_as(path, private::options().read(true).write(true)) {
        Ok(file) => file,
        Err(DatabaseError::Storage(StorageError::Io(error)))
            if error.kind() == std::io::ErrorKind::NotFound =>
        {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if kind_of(&file).map_err(of_io)? != Kind::Plain {
        return Ok(());
    }
    drop(file);
    // What the link points to is replaced, not the link.
    let path = path.canonicalize()?;
    let mut old = redb::Builder::new().set_cache_size(CACHE_BYTES).open(&path)?;
    old.check_integrity()?;
    drop(old);
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let draft = PathBuf::from(name);
    match copy_with_sums(&path, &draft) {
        Ok(()) => {
            std::fs::rename(&draft, &path)?;
            Ok(sync_parent(&path)?)
        }
        Err(error) => {
            let _best_effort = std::fs::remove_file(&draft);
            if error.kind() == std::io::ErrorKind::StorageFull { Ok(()) } else { Err(of_io(error)) }
        }
    }
}

fn copy_with_sums(path: &Path, draft: &Path) -> std::io::Result<()> {
    let as_io = |error: DatabaseError| match error {
        DatabaseError::Storage(StorageError::Io(error)) => error,
        other => std::io::Error::other(other.to_string()),
    };
    let old = RealFile::open_as(path, private::options().read(true).write(true)).map_err(as_io)?;
    let how = &mut private::options();
    let how = how.read(true).write(true).create(true).truncate(true);
    let new = Summed::create(Arc::new(RealFile::open_as(draft, how).map_err(as_io)?))?;
    let len = old.length()?;
    new.set_len(len)?;
    let mut piece = vec![0; COPY_BYTES];
    let mut at = HEADER_PAGE_BYTES;
    while at < len {
        let count = piece.len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
        let piece = piece.get_mut(..count).unwrap_or_default();
        old.read(at, piece)?;
        new.write(at, piece)?;
        at += count as u64;
    }
    let mut header = [0; HEADER_BYTES];
    old.read(0, &mut header)?;
    new.write(0, &header)?;
    new.sync_data()
}

/// A new file survives a power failure only with its folder's entry.
pub(crate) fn sync_parent(path: &Path) -> Result<(), std::io::Error> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => std::fs::OpenOptions::new().read(true).open(parent)?.sync_all(),
        None => Ok(()),
    }
}
