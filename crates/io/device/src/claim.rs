//! [`claim`]: a device that nobody uses and on which nothing is, held for whoever makes an OSD of it.

use crate::content::{Content, content};
use crate::label::Label;
use crate::name::stable_name;
use crate::usage::{System, usage};
use nacre_env::real::{HeldDevice, OpenError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `blkid` may be, which is not on every user's path.
const BLKID: [&str; 3] = ["blkid", "/usr/sbin/blkid", "/sbin/blkid"];

/// Why a device is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It cannot be looked at.
    #[error("{path}: {source}")]
    System {
        /// Which device or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It cannot be opened, or somebody has it open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Somebody has it.
    #[error("{path} is in use: {by}")]
    InUse {
        /// Which device or file.
        path: PathBuf,
        /// Who has it, and what to do.
        by: String,
    },
    /// An OSD's is on it.
    #[error(
        "{path} is {label}. If that OSD is gone for good, `nacre store wipe {path} --osd {}` gives the device free", label.owner.osd
    )]
    Labelled {
        /// Which device or file.
        path: PathBuf,
        /// What stands on it.
        label: Box<Label>,
    },
    /// An OSD's was on it, or is.
    #[error(
        "{path} was a device of an OSD: {reason}. If nobody needs it, clear it with `blkdiscard {path}`, or with zeros over its first and \
         last MiB"
    )]
    BadLabel {
        /// Which device or file.
        path: PathBuf,
        /// What is wrong with its label.
        reason: String,
    },
    /// Something is on it.
    #[error(
        "{path} holds {what}. If nobody needs it, clear it with `wipefs -a {path}` or `blkdiscard {path}`"
    )]
    Known {
        /// Which device or file.
        path: PathBuf,
        /// What is on it.
        what: String,
    },
    /// Something is on it, nobody knows what.
    #[error(
        "{path} is not empty: there is something at byte {at}, of no known kind. If nobody needs it, say --force, or clear it with \
         `blkdiscard {path}`"
    )]
    Unknown {
        /// Which device or file.
        path: PathBuf,
        /// The first byte that is not zero.
        at: u64,
    },
}

/// A device for an OSD.
#[derive(Debug)]
pub struct Claimed {
    /// The device, held.
    pub held: HeldDevice,
    /// The name by which it is found again.
    pub name: PathBuf,
}

/// Takes hold of the block device or file at `path` if nobody uses it and nothing is on it. With `force`, bytes of no known kind are taken
/// for refuse: what has a known signature is never taken.
///
/// # Errors
/// [`Refusal`], which says what was found and what to do.
pub fn claim(system: &System, path: &Path, force: bool) -> Result<Claimed, Refusal> {
    let failed = |source| Refusal::System { path: path.to_owned(), source };
    let known = |what| Refusal::Known { path: path.to_owned(), what };
    if let Some(by) = usage(system, path).map_err(failed)? {
        return Err(Refusal::InUse { path: path.to_owned(), by });
    }
    let name = stable_name(system, path).map_err(failed)?;
    let held = HeldDevice::open(path)?;
    let view = held.view().map_err(failed)?;
    match content(&view, held.size_bytes()).map_err(failed)? {
        Content::Labelled(label) => return Err(Refusal::Labelled { path: path.to_owned(), label }),
        Content::BadLabel(reason) => return Err(Refusal::BadLabel { path: path.to_owned(), reason }),
        Content::Known(what, at) => return Err(known(format!("{what} (signature at byte {at})"))),
        Content::Unknown(at) if !force => return Err(Refusal::Unknown { path: path.to_owned(), at }),
        Content::Unknown(_) | Content::Nothing => (),
    }
    match blkid(path).map_err(failed)? {
        Some(what) => Err(known(what)),
        None => Ok(Claimed { held, name }),
    }
}

/// What `blkid` finds, where it is installed.
fn blkid(path: &Path) -> io::Result<Option<String>> {
    let ask =
        |program: &&str| Command::new(program).args(["-p", "-o", "export", "--"]).arg(path).output().ok();
    let Some(output) = BLKID.iter().find_map(ask) else { return Ok(None) };
    match output.status.code() {
        Some(0) => Ok(kind_of(&String::from_utf8_lossy(&output.stdout))),
        // It knows nothing that is there.
        Some(2) => Ok(None),
        // 8: of several things it does not know which; others: it failed.
        _ => Err(io::Error::other(format!(
            "blkid -p cannot tell what is on it ({}); clear it with `wipefs -a` if nobody needs it",
            output.status
        ))),
    }
}

/// The kind of content that a device has, by `blkid -p -o export`.
fn kind_of(text: &str) -> Option<String> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let kind = value("TYPE").map(|kind| format!("{kind}, says blkid"));
    kind.or_else(|| value("PTTYPE").map(|kind| format!("a partition table of type {kind}, says blkid")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_env::File;

    #[test]
    fn blkid_is_understood() {
        assert_eq!(kind_of(""), None);
        assert_eq!(kind_of("DEVNAME=/dev/sda1\nPART_ENTRY_TYPE=x\nPART_ENTRY_SCHEME=gpt\n"), None);
        assert_eq!(kind_of("DEVNAME=/dev/a\nTYPE=ext4\nUSAGE=filesystem\n"), Some("ext4, says blkid".into()));
        let table = kind_of("DEVNAME=/dev/a\nPTTYPE=dos\n").expect("a table");
        assert!(table.starts_with("a partition table of type dos"), "{table}");
    }

    /// A file is taken like a device.
    #[test]
    fn what_is_empty_is_taken_and_what_is_not_is_named() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("image");
        std::fs::write(&path, vec![0; 4 << 20]).expect("written");
        let system = System::default();
        let put = |at: u64, bytes: &[u8]| {
            let held = HeldDevice::open(&path).expect("free");
            held.view().expect("a file").write(at, bytes).expect("there");
        };
        let refused = |force| claim(&system, &path, force).expect_err("refused").to_string();
        let claimed = claim(&system, &path, false).expect("empty");
        assert_eq!(claimed.name, path.canonicalize().expect("there"));
        let said = refused(false);
        assert!(said.contains("in use by another process"), "{said}");
        drop(claimed);
        put(100, &[1]);
        let said = refused(false);
        assert!(said.contains("at byte 100") && said.contains("--force"), "{said}");
        claim(&system, &path, true).expect("forced");
        put(1080, b"\x53\xef");
        let said = refused(true);
        assert!(said.contains("ext4") && said.contains("wipefs -a"), "never forced: {said}");
    }
}
