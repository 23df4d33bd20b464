//! Files and folders that only their owner may read: keys, stores, logs, whatever a daemon keeps.
//!
//! Made so from the start: a file that is tightened after it was made has been readable for a moment. What an operator, a
//! backup or an older program left more open is tightened when a daemon opens its folder ([`tighten`]).

use std::fs::{DirBuilder, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Mode of a private file.
pub const FILE_MODE: u32 = 0o600;
/// Mode of a private folder.
pub const FOLDER_MODE: u32 = 0o700;
/// What a mode grants to the group and to everybody else.
pub const OF_OTHERS: u32 = 0o077;
/// What a mode grants to everybody else.
const OF_EVERYBODY: u32 = 0o007;
/// Everybody may write.
const WRITE_OF_EVERYBODY: u32 = 0o002;
/// In a folder: a user that may write may still not remove what belongs to others.
const STICKY: u32 = 0o1000;

/// Somebody else may read or change what is to be private, and that could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// The system refused.
    #[error("{}: {source}", path.display())]
    System {
        /// What was looked at.
        path: PathBuf,
        /// Why it could not be.
        source: io::Error,
    },
    /// Its mode could not be changed.
    #[error(
        "{} has mode {mode:04o}, so others may use it, and that cannot be changed ({source}); give it to the user that runs the \
         daemon, or run `chmod go= {}` as its owner",
        path.display(), path.display()
    )]
    Open {
        /// Which file or folder.
        path: PathBuf,
        /// Permissions of the file, as of `chmod`.
        mode: u32,
        /// Why they could not be changed.
        source: io::Error,
    },
    /// A block device's mode is the system's, not ours to change.
    #[error(
        "the device behind {} has mode {mode:04o}, so that everybody may use it; take that right away (a udev rule with \
         MODE=\"0660\")",
        path.display()
    )]
    OpenDevice {
        /// The device, or the link to it.
        path: PathBuf,
        /// Permissions of the device, as of `chmod`.
        mode: u32,
    },
    /// Everybody may put other files in place of ours.
    #[error("everybody may write to {} (mode {mode:04o}); run `chmod o-w {}`", path.display(), path.display())]
    WritableFolder {
        /// Folder that it is about.
        path: PathBuf,
        /// Permissions of the folder, as of `chmod`.
        mode: u32,
    },
}

/// How a private file is opened: if it is made, then with [`FILE_MODE`].
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Makes a folder and those above it that are missing, all private. One that is there already stays as it is.
///
/// # Errors
/// As `create_dir_all`.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)
}

/// Writes a private file, replacing what it held.
///
/// # Errors
/// As `std::fs::write`.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    options().create(true).truncate(true).write(true).open(path)?.write_all(bytes)
}

/// As [`write()`]; a loss of power leaves what the file held before, or all of `bytes`, and these once the call has returned.
///
/// # Errors
/// As `std::fs::write`.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = options().create(true).truncate(true).write(true).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// The names in a folder survive a loss of power.
///
/// # Errors
/// What the system says.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    OpenOptions::new().read(true).open(path)?.sync_all()
}

/// Takes away what others may do with a folder that is ours alone and with what is directly in it. Yields what was more open. A
/// link's target counts as what it links to: a store's metadata or log may be elsewhere. What a folder in it holds is not
/// looked at: nobody else gets that far.
///
/// # Errors
/// [`PrivateError`].
pub fn tighten(folder: &Path) -> Result<Vec<PathBuf>, PrivateError> {
    let mut tightened = Vec::new();
    tighten_one(folder, &mut tightened)?;
    let system = |source| PrivateError::System { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(system)? {
        tighten_one(&entry.map_err(system)?.path(), &mut tightened)?;
    }
    Ok(tightened)
}

/// The same for single files and folders; those that do not exist are left out.
///
/// # Errors
/// [`PrivateError`].
pub fn tighten_each(paths: impl IntoIterator<Item = PathBuf>) -> Result<Vec<PathBuf>, PrivateError> {
    let mut tightened = Vec::new();
    paths.into_iter().try_for_each(|path| tighten_one(&path, &mut tightened))?;
    Ok(tightened)
}

/// Refuses a folder that is not ours alone, but holds what is ours, when everybody may replace that.
///
/// # Errors
/// [`PrivateError`].
pub fn check_parent(folder: &Path) -> Result<(), PrivateError> {
    let found = std::fs::metadata(folder)
        .map_err(|source| PrivateError::System { path: folder.to_owned(), source })?;
    let mode = permissions(&found);
    if mode & WRITE_OF_EVERYBODY != 0 && mode & STICKY == 0 {
        return Err(PrivateError::WritableFolder { path: folder.to_owned(), mode });
    }
    Ok(())
}

fn permissions(metadata: &Metadata) -> u32 {
    metadata.mode() & 0o7777
}

fn tighten_one(path: &Path, tightened: &mut Vec<PathBuf>) -> Result<(), PrivateError> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        // Also a link to nowhere, of which whoever opens it says more; or a file that another thread has just renamed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(PrivateError::System { path: path.to_owned(), source }),
    };
    let mode = permissions(&found);
    if found.file_type().is_block_device() {
        let is_open = mode & OF_EVERYBODY != 0;
        return if is_open { Err(PrivateError::OpenDevice { path: path.to_owned(), mode }) } else { Ok(()) };
    }
    if mode & OF_OTHERS == 0 || !(found.is_file() || found.is_dir()) {
        return Ok(());
    }
    match std::fs::set_permissions(path, Permissions::from_mode(mode & !OF_OTHERS)) {
        Ok(()) => tightened.push(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(source) => return Err(PrivateError::Open { path: path.to_owned(), mode, source }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    fn new_folder() -> TempDir {
        let folder = TempDir::with_prefix("nacre-private").expect("a writable temporary folder");
        make_folder(folder.path()).expect("it is ours");
        open_up(&folder, "", FOLDER_MODE);
        folder
    }

    fn mode(folder: &TempDir, name: &str) -> u32 {
        permissions(&std::fs::metadata(folder.path().join(name)).expect("a file"))
    }

    fn open_up(folder: &TempDir, name: &str, mode: u32) {
        std::fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).expect("our file");
    }

    #[test]
    fn what_is_made_is_private_from_the_start() {
        let folder = new_folder();
        make_folder(&folder.path().join("a/b")).expect("made");
        write(&folder.path().join("a/b/c"), b"secret").expect("written");
        assert_eq!([mode(&folder, ""), mode(&folder, "a"), mode(&folder, "a/b")], [FOLDER_MODE; 3]);
        assert_eq!(mode(&folder, "a/b/c"), FILE_MODE);
    }

    #[test]
    fn what_was_left_open_is_tightened_also_behind_links_and_said() {
        let (folder, elsewhere) = (new_folder(), new_folder());
        write(&folder.path().join("key"), b"secret").expect("written");
        write(&folder.path().join("fine"), b"secret").expect("written");
        write(&elsewhere.path().join("meta"), b"secret").expect("written");
        symlink(elsewhere.path().join("meta"), folder.path().join("link")).expect("a link");
        symlink(elsewhere.path().join("nothing"), folder.path().join("dangling")).expect("a link");
        open_up(&folder, "key", 0o644);
        open_up(&elsewhere, "meta", 0o604);
        open_up(&elsewhere, "", 0o755);
        open_up(&folder, "", 0o755);
        let mut tightened = tighten(folder.path()).expect("ours");
        tightened.sort();
        assert_eq!(
            tightened,
            ["", "key", "link"].map(|name| folder.path().join(name)).map(|path| {
                // `join("")` ends in a slash, which is the same path.
                path.components().collect::<PathBuf>()
            })
        );
        assert_eq!([mode(&folder, "key"), mode(&folder, "fine"), mode(&elsewhere, "meta")], [FILE_MODE; 3]);
        assert_eq!((mode(&folder, ""), mode(&elsewhere, "")), (FOLDER_MODE, 0o755));
        assert_eq!(tighten(folder.path()).expect("ours"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_folder_that_everybody_may_write_to_is_refused() {
        let folder = new_folder();
        for (mode, is_fine) in [(0o755, true), (0o1777, true), (0o775, true), (0o777, false), (0o702, false)]
        {
            open_up(&folder, "", mode);
            assert_eq!(check_parent(folder.path()).is_ok(), is_fine, "{mode:o}");
        }
        let error = check_parent(folder.path()).expect_err("open").to_string();
        assert!(error.contains("0702") && error.contains("chmod o-w"), "{error}");
    }
}
