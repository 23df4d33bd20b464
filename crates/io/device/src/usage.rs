//! Who has a block device, as the kernel tells. What only another namespace sees, opening with `O_EXCL` finds.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the kernel tells it.
#[derive(Debug, Clone)]
pub struct System {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

/// Who has the device or file at `path`, and what to do about it; `None` when nobody is known to.
///
/// # Errors
/// When there is nothing at `path`.
pub fn usage(system: &System, path: &Path) -> std::io::Result<Option<String>> {
    let metadata = fs::metadata(path)?;
    if !metadata.file_type().is_block_device() {
        return Ok(looped(system, path));
    }
    let number = numbered(metadata.rdev());
    let folder = fs::canonicalize(system.sys.join("dev/block").join(&number)).unwrap_or_default();
    Ok(mounted(system, &number)
        .or_else(|| swap(system, metadata.rdev()))
        .or_else(|| held(&folder))
        .or_else(|| divided(&folder)))
}

fn numbered(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

fn mounted(system: &System, number: &str) -> Option<String> {
    // proc_pid_mountinfo(5): the third field is the device, the fifth where it is mounted.
    let text = fs::read_to_string(system.proc.join("self/mountinfo")).ok()?;
    let mut lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let place = lines.find_map(|fields| match fields[..] {
        [_, _, device, _, place, ..] if device == number => Some(place.to_owned()),
        _ => None,
    })?;
    Some(format!("it is mounted at {place}; umount it if nobody needs what is there"))
}

fn swap(system: &System, device: u64) -> Option<String> {
    let text = fs::read_to_string(system.proc.join("swaps")).ok()?;
    let mut names = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let is_it = |name: &&str| {
        fs::metadata(name).is_ok_and(|found| found.file_type().is_block_device() && found.rdev() == device)
    };
    let name = names.find(is_it)?;
    Some(format!("it is swap space; `swapoff {name}` ends that"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn held(folder: &Path) -> Option<String> {
    let holders = names(&folder.join("holders"));
    let what = "a mapping, volume or array over it; remove that first, if nobody needs what is there";
    (!holders.is_empty()).then(|| format!("{} holds it: {what}", holders.join(", ")))
}

fn divided(folder: &Path) -> Option<String> {
    let is_part = |name: &String| folder.join(name).join("partition").exists();
    let parts: Vec<String> = names(folder).into_iter().filter(is_part).collect();
    let what = "name one of them, or remove them if nobody needs what is there (`wipefs -a` of each and of the disk)";
    (!parts.is_empty()).then(|| format!("it has partitions ({}): {what}", parts.join(", ")))
}

/// A file that is a loop device already.
fn looped(system: &System, path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let block = system.sys.join("block");
    let backs = |name: &String| {
        let backing = fs::read_to_string(block.join(name).join("loop/backing_file")).unwrap_or_default();
        Path::new(backing.trim_end_matches('\n')) == path
    };
    let name = names(&block).into_iter().find(backs)?;
    Some(format!("/dev/{name} is a loop device over it; name that, or `losetup -d /dev/{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn what_the_kernel_tells_of_a_device_is_read() {
        let root = tempfile::tempdir().expect("a folder");
        let system = System {
            sys: root.path().join("sys"),
            proc: root.path().join("proc"),
            dev: root.path().join("dev"),
        };
        let sda = root.path().join("sys/devices/sda");
        assert_eq!(held(&sda).or_else(|| divided(&sda)), None);
        put(&sda.join("sda2/partition"), "2\n");
        put(&sda.join("sda1/partition"), "1\n");
        put(&sda.join("queue/rotational"), "1\n");
        assert!(divided(&sda).is_some_and(|text| text.contains("(sda1, sda2)")));
        assert_eq!(divided(&sda.join("sda1")), None);
        put(&sda.join("holders/dm-0"), "");
        assert!(held(&sda).is_some_and(|text| text.starts_with("dm-0 holds it")));
        let mounts =
            "22 1 254:1 / / rw - ext4 /dev/vda1 rw\n40 22 8:16 / /mnt/a rw shared:1 - xfs /dev/sdb rw\n";
        put(&system.proc.join("self/mountinfo"), mounts);
        assert!(mounted(&system, "8:16").is_some_and(|text| text.contains("mounted at /mnt/a")));
        assert_eq!(mounted(&system, "8:1"), None);
        put(&system.proc.join("swaps"), "Filename Type Size Used Priority\n/nonsense partition 1 0 -2\n");
        assert_eq!(swap(&system, 2048), None);
        let file = root.path().join("image");
        put(&file, "");
        assert_eq!(usage(&system, &file).expect("a file"), None);
        put(&system.sys.join("block/loop7/loop/backing_file"), &format!("{}\n", file.display()));
        let said = usage(&system, &file).expect("a file").expect("it is one");
        assert!(said.contains("/dev/loop7 is a loop device over it"), "{said}");
        assert!(usage(&system, &root.path().join("nothing")).is_err());
    }
}
