//! [`LineLog`]: a private text file that only grows, turned over before it is too long.

use super::private;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Lines in a file; earlier ones in `NAME.1` (the newest of them), `NAME.2` and so on.
#[derive(Debug)]
pub struct LineLog {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    kept: u32,
}

impl LineLog {
    /// Goes on in the file at `path`, or begins it. Before more than `bytes_max` is in it, it is put aside; `kept` of those remain.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(path: &Path, bytes_max: u64, kept: u32) -> io::Result<Self> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes, bytes_max, kept })
    }

    /// Appends lines, in one write. They are with the system then, not on the disk yet.
    ///
    /// # Errors
    /// As the system says.
    pub fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + lines.len() as u64 > self.bytes_max {
            self.turn_over()?;
        }
        self.file.write_all(lines.as_bytes())?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    fn aside(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn turn_over(&mut self) -> io::Result<()> {
        for number in (1..self.kept).rev() {
            match fs::rename(self.aside(number), self.aside(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => (),
            }
        }
        fs::rename(&self.path, self.aside(1))?;
        (self.file, self.bytes) = (open(&self.path)?, 0);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    private::options().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_private_goes_on_and_is_turned_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        for nth in 0..6 {
            let mut log = LineLog::open(&path, 8, 2).expect("a file");
            log.append(&format!("{nth}..\n")).expect("room");
        }
        assert_eq!(
            (text("audit.log"), text("audit.log.1")),
            ("4..\n5..\n".to_owned(), "2..\n3..\n".to_owned())
        );
        assert_eq!((text("audit.log.2"), text("audit.log.3")), ("0..\n1..\n".to_owned(), String::new()));
        LineLog::open(&path, 8, 2).expect("a file").append("6..\n").expect("room");
        assert_eq!((text("audit.log.2"), text("audit.log.3")), ("2..\n3..\n".to_owned(), String::new()));
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, private::FILE_MODE);
    }
}
