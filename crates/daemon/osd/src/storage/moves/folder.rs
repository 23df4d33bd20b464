//! [`Links`]: the names in an OSD's folder that say where its log and metadata are, and the note of a move that has not ended.

use super::{MoveError, Moved};
use crate::storage::file_error;
use crate::storage::{NOTE_FILE, StorageError, remove};
use nacre_env::real::private;
use std::io;
use std::path::{Path, PathBuf};

/// A move that began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::storage) struct Note {
    pub(in crate::storage) what: Moved,
    /// The link that says where it is.
    pub(in crate::storage) link: String,
    /// Where it was; `None`: with the data.
    pub(in crate::storage) from: Option<PathBuf>,
    /// Where it will be.
    pub(in crate::storage) to: Option<PathBuf>,
}

impl Note {
    /// A name and a value in each line.
    fn to_text(&self) -> String {
        let place = |name: &str, place: &Option<PathBuf>| {
            place.as_ref().map_or_else(String::new, |path| format!("{name} {}\n", path.display()))
        };
        format!(
            "what {}\nlink {}\n{}{}",
            self.what,
            self.link,
            place("from", &self.from),
            place("to", &self.to)
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let what =
            [Moved::Log, Moved::Metadata].into_iter().find(|what| value("what") == Some(what.name()))?;
        let (link, from, to) = (value("link")?, value("from"), value("to"));
        Some(Self { what, link: link.to_owned(), from: from.map(PathBuf::from), to: to.map(PathBuf::from) })
    }

    /// The link leads to neither place.
    pub(in crate::storage) fn unclear(&self, folder: &Path, beside: &str) -> MoveError {
        let shown = |place: &Option<PathBuf>| {
            place.as_ref().map_or_else(|| beside.to_owned(), |path| path.display().to_string())
        };
        let (from, to) = (shown(&self.from), shown(&self.to));
        MoveError::Unclear { what: self.what, from, to, link: folder.join(&self.link) }
    }
}

/// Each change is there for good when its call returns, and all of it or nothing after a loss of power.
pub(in crate::storage) trait Links {
    fn link(&self, name: &str) -> Result<Option<PathBuf>, StorageError>;
    fn set_link(&self, name: &str, target: &Path) -> Result<(), StorageError>;
    fn remove_link(&self, name: &str) -> Result<(), StorageError>;
    fn note(&self) -> Result<Option<Note>, StorageError>;
    fn set_note(&self, note: &Note) -> Result<(), StorageError>;
    fn remove_note(&self) -> Result<(), StorageError>;
}

/// A real folder.
pub(in crate::storage) struct Folder<'a>(pub(in crate::storage) &'a Path);

impl Folder<'_> {
    fn sync(&self) -> Result<(), StorageError> {
        private::sync_folder(self.0).map_err(file_error(self.0))
    }
}

impl Links for Folder<'_> {
    fn link(&self, name: &str) -> Result<Option<PathBuf>, StorageError> {
        let path = self.0.join(name);
        match std::fs::read_link(&path) {
            Ok(target) => Ok(Some(target)),
            // A file of its own, where a link may be.
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::InvalidInput].contains(&error.kind()) => {
                Ok(None)
            }
            Err(error) => Err(file_error(&path)(error)),
        }
    }

    fn set_link(&self, name: &str, target: &Path) -> Result<(), StorageError> {
        let (path, draft) = (self.0.join(name), self.0.join(format!("{name}.link")));
        remove(&draft)?;
        std::os::unix::fs::symlink(target, &draft).map_err(file_error(&draft))?;
        std::fs::rename(&draft, &path).map_err(file_error(&path))?;
        self.sync()
    }

    fn remove_link(&self, name: &str) -> Result<(), StorageError> {
        remove(&self.0.join(name))?;
        self.sync()
    }

    fn note(&self) -> Result<Option<Note>, StorageError> {
        let path = self.0.join(NOTE_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error(&path)(error)),
        };
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "this is no note of a move");
        Note::parse(&text).map(Some).ok_or_else(|| file_error(&path)(unknown()))
    }

    fn set_note(&self, note: &Note) -> Result<(), StorageError> {
        let path = self.0.join(NOTE_FILE);
        private::replace(&path, note.to_text().as_bytes()).map_err(file_error(&path))
    }

    fn remove_note(&self) -> Result<(), StorageError> {
        self.remove_link(NOTE_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_notes_are_found_again() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = Folder(root.path());
        assert_eq!(folder.link("log").expect("readable"), None);
        for target in ["/dev/one", "/dev/two"] {
            folder.set_link("log", Path::new(target)).expect("writable");
            assert_eq!(folder.link("log").expect("readable"), Some(target.into()));
        }
        folder.remove_link("log").expect("writable");
        assert_eq!(folder.link("log").expect("readable"), None);
        assert_eq!(folder.note().expect("readable"), None);
        for note in [
            Note { what: Moved::Log, link: "log".into(), from: None, to: Some("/dev/disk/by-id/a b".into()) },
            Note { what: Moved::Metadata, link: "meta".into(), from: Some("/dev/two".into()), to: None },
        ] {
            folder.set_note(&note).expect("writable");
            assert_eq!(folder.note().expect("readable"), Some(note));
        }
        std::fs::write(root.path().join(NOTE_FILE), "what else\n").expect("writable");
        assert!(folder.note().expect_err("nonsense").to_string().contains("no note of a move"));
        folder.remove_note().expect("writable");
        assert_eq!(folder.note().expect("readable"), None);
    }
}
