//! Log and metadata moved to other devices, for which files stand here, and to other folders. Losses of power are among the tests of
//! `daemon/osd`; block devices, and tools that are killed, among those of `test/interop`.

use super::content::{Folder, change, fill, is_twin, twin};
use super::devices::{DATA_BYTES, LOG_BYTES, META_BYTES, alone, device, is_sound, make, owner, refusal};
use crate::moves::carry_out;
use nacre_osd::storage::{
    self, Devices, MoveError, MoveOutcome, MoveTo, Moved, Onlooker, Progress, Stopped, move_part, settle_move,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub(super) fn to(path: &Path) -> MoveTo {
    MoveTo::Elsewhere { path: path.to_owned(), metadata_bytes: None, force: false }
}

/// The tool, to the end.
fn moved(folder: &Folder, what: Moved, place: &MoveTo) {
    carry_out(&folder.target(), what, place).expect("it can be moved");
    is_sound(folder);
}

fn said(folder: &Folder, what: Moved, place: &MoveTo) -> String {
    refusal(carry_out(&folder.target(), what, place))
}

/// Ends as a tool that was killed does, before the link changes; or finds fault.
pub(super) enum Fateful {
    Killed,
    Fault,
}

impl Onlooker for Fateful {
    fn progress(&mut self, _: Progress) {}

    fn look(&mut self, _: Stopped) -> Vec<String> {
        match self {
            Self::Killed => std::panic::resume_unwind(Box::new("killed")),
            Self::Fault => vec!["a fault".to_owned()],
        }
    }
}

fn killed(folder: &Folder, what: Moved, place: &MoveTo) {
    let outcome =
        catch_unwind(AssertUnwindSafe(|| move_part(folder.path(), None, what, place, &mut Fateful::Killed)));
    assert!(outcome.is_err() && folder.path().join("move").exists(), "{:?}", outcome.ok());
}

fn faulty(folder: &Folder, what: Moved, place: &MoveTo) {
    let outcome = move_part(folder.path(), None, what, place, &mut Fateful::Fault);
    assert!(matches!(outcome, Err(MoveError::Unsound { .. })), "{outcome:?}");
    assert!(!folder.path().join("move").exists(), "undone");
}

pub(super) fn link(folder: &Folder, name: &str) -> Option<PathBuf> {
    std::fs::read_link(folder.path().join(name)).ok()
}

#[test]
fn log_and_metadata_go_to_other_devices_and_back() {
    let (disks, folder, twin) = (Folder::empty("disks"), Folder::empty("to-and-fro"), twin());
    let (one, two) = (device(&disks, "one", 300 << 20), device(&disks, "two", 2 * META_BYTES));
    make(&folder, owner(1, 1), &alone(device(&disks, "data", DATA_BYTES))).expect("an empty device");
    fill(&folder);
    moved(&folder, Moved::Log, &to(&one));
    assert_eq!(storage::label_of(&one).expect("a label").role, nacre_device::Role::Log);
    change(&folder);
    is_twin(&folder.target(), &twin);
    let sized =
        MoveTo::Elsewhere { path: two.clone(), metadata_bytes: Some(META_BYTES + 4096), force: false };
    moved(&folder, Moved::Metadata, &sized);
    let region = storage::label_of(&two).expect("a label").region(nacre_device::RegionKind::Metadata);
    assert_eq!(region.map(|region| region.length), Some(META_BYTES + 4096));
    is_twin(&folder.target(), &twin);
    // Said again, it is there already, and as large as it is.
    moved(&folder, Moved::Metadata, &sized);
    let larger =
        MoveTo::Elsewhere { path: two.clone(), metadata_bytes: Some(META_BYTES + 8192), force: false };
    assert!(said(&folder, Moved::Metadata, &larger).contains("which do not change there"));
    moved(&folder, Moved::Log, &to(&one));
    for what in [Moved::Log, Moved::Metadata] {
        moved(&folder, what, &MoveTo::Back);
    }
    moved(&folder, Moved::Metadata, &MoveTo::Back);
    is_twin(&folder.target(), &twin);
    assert_eq!((link(&folder, "log"), link(&folder, "meta")), (None, None));
    for device in [&one, &two] {
        assert!(refusal(storage::label_of(device)).contains("no label of an OSD"));
    }
    moved(&folder, Moved::Log, &to(&two));
    // A log that is lost is not taken for the one that is still beside the data.
    std::fs::remove_file(folder.path().join("log")).expect("a link");
    assert!(refusal(folder.target().look()).contains("both must be given"));
}

#[test]
fn what_was_made_apart_goes_to_other_devices_only() {
    let (disks, folder, twin) = (Folder::empty("disks"), Folder::empty("apart"), twin());
    let devices = Devices {
        log: Some(device(&disks, "log", LOG_BYTES)),
        metadata: Some(device(&disks, "meta", META_BYTES)),
        ..alone(device(&disks, "data", DATA_BYTES))
    };
    make(&folder, owner(3, 3), &devices).expect("empty devices");
    fill(&folder);
    for what in [Moved::Log, Moved::Metadata] {
        assert!(said(&folder, what, &MoveTo::Back).contains(&format!("has no place for the {what}")));
        let next = device(&disks, &format!("next-{what}"), 2 * META_BYTES);
        moved(&folder, what, &to(&next));
        assert_eq!(link(&folder, if what == Moved::Log { "log" } else { "meta" }), Some(next));
    }
    change(&folder);
    is_twin(&folder.target(), &twin);
    for old in [devices.log, devices.metadata].into_iter().flatten() {
        assert!(refusal(storage::label_of(&old)).contains("no label of an OSD"));
        moved(&folder, Moved::Log, &to(&old));
    }
    is_twin(&folder.target(), &twin);
}

#[test]
fn targets_that_do_not_fit_are_refused_and_nothing_changes() {
    let (disks, folder) = (Folder::empty("disks"), Folder::empty("no-fit"));
    let data = device(&disks, "data", DATA_BYTES);
    make(&folder, owner(1, 1), &alone(data.clone())).expect("an empty device");
    fill(&folder);
    let meta = |path: &Path, bytes| MoveTo::Elsewhere {
        path: path.to_owned(),
        metadata_bytes: Some(bytes),
        force: false,
    };
    let other = device(&disks, "other", 2 * META_BYTES);
    assert!(said(&folder, Moved::Log, &to(&data)).contains("is the device with the data; say --back"));
    let small = device(&disks, "small", 1 << 20);
    assert!(said(&folder, Moved::Log, &to(&small)).contains("needs 67108864"));
    assert!(said(&folder, Moved::Metadata, &meta(&other, 1 << 20)).contains("--meta-size of 1048576"));
    assert!(said(&folder, Moved::Metadata, &meta(&other, 1 << 40)).contains("--meta-size of"));
    super::devices::spoil(&other, 5000);
    assert!(said(&folder, Moved::Log, &to(&other)).contains("at byte 5000"));
    is_sound(&folder);
    assert!(!folder.path().join("move").exists());
    let forced = MoveTo::Elsewhere { path: other.clone(), metadata_bytes: None, force: true };
    moved(&folder, Moved::Log, &forced);
    let said = said(&folder, Moved::Metadata, &to(&other));
    assert!(said.contains("in use by another process"), "{said}");
}

#[test]
fn a_move_that_was_killed_or_finds_fault_leaves_the_store_as_it_was() {
    let (disks, folder, twin) = (Folder::empty("disks"), Folder::empty("killed"), twin());
    let (one, two) = (device(&disks, "one", 2 * META_BYTES), device(&disks, "two", 2 * META_BYTES));
    make(&folder, owner(1, 1), &alone(device(&disks, "data", DATA_BYTES))).expect("an empty device");
    fill(&folder);
    change(&folder);
    for what in [Moved::Log, Moved::Metadata] {
        for place in [to(&one), to(&two), MoveTo::Back] {
            faulty(&folder, what, &place);
            is_twin(&folder.target(), &twin);
            killed(&folder, what, &place);
            is_sound(&folder);
            is_twin(&folder.target(), &twin);
            let settled = settle_move(folder.path(), None).expect("can be undone").expect("was interrupted");
            assert!(!settled.is_done && settled.what == what, "{settled:?}");
            killed(&folder, what, &place);
            moved(&folder, what, &place);
            is_twin(&folder.target(), &twin);
        }
    }
    for device in [one, two] {
        assert!(refusal(storage::label_of(&device)).contains("no label of an OSD"));
    }
    assert_eq!(settle_move(folder.path(), None).expect("nothing"), None);
}

#[test]
fn a_link_that_somebody_changed_meanwhile_ends_nothing() {
    let (disks, folder) = (Folder::empty("disks"), Folder::empty("changed"));
    let one = device(&disks, "one", 2 * META_BYTES);
    make(&folder, owner(1, 1), &alone(device(&disks, "data", DATA_BYTES))).expect("an empty device");
    moved(&folder, Moved::Log, &to(&one));
    let note = "what log\nlink log\nfrom /nowhere/a\nto /nowhere/b\n";
    std::fs::write(folder.path().join("move"), note).expect("writable");
    let said = said(&folder, Moved::Log, &MoveTo::Back);
    assert!(
        said.contains("from /nowhere/a to /nowhere/b was interrupted") && said.contains("neither"),
        "{said}"
    );
    // The old device is gone for good: the move ends without it.
    let one = one.canonicalize().expect("there");
    let note = format!("what log\nlink log\nfrom /nowhere/a\nto {}\n", one.display());
    std::fs::write(folder.path().join("move"), note).expect("writable");
    let settled = settle_move(folder.path(), None).expect("can be finished").expect("was interrupted");
    assert!(settled.is_done && settled.left.is_some(), "{settled:?}");
    is_sound(&folder);
}

#[test]
fn parts_of_a_store_in_files_go_to_other_folders_and_back() {
    let (root, twin) = (Folder::empty("files"), twin());
    let (fast, other) = (root.path().join("fast"), root.path().join("other"));
    let folder = Folder::new("in-files");
    fill(&folder);
    change(&folder);
    let owner = folder.path().file_name().expect("a name").to_string_lossy().into_owned();
    let names: [(Moved, &[&str]); 2] =
        [(Moved::Log, &["log"]), (Moved::Metadata, &["meta.redb", "meta.journal"])];
    for (what, names) in names {
        for place in [Some(&fast), Some(&other), None] {
            let target = place.map_or(MoveTo::Back, |place| to(place));
            faulty(&folder, what, &target);
            killed(&folder, what, &target);
            is_twin(&folder.target(), &twin);
            moved_and_there(&folder, what, &target);
            is_twin(&folder.target(), &twin);
            for name in names {
                let wanted = place.map(|place| place.join(format!("{owner}.{name}")));
                assert_eq!(link(&folder, name), wanted, "{name}");
            }
            let left = |folder: &PathBuf| std::fs::read_dir(folder).map_or(0, Iterator::count);
            let expected = |folder: &PathBuf| if place == Some(folder) { names.len() } else { 0 };
            for folder in [&fast, &other] {
                assert_eq!(left(folder), expected(folder), "{}", folder.display());
            }
        }
    }
    let mut left: Vec<String> = std::fs::read_dir(folder.path())
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["block", "meta.journal", "meta.redb"]);
    let sized = MoveTo::Elsewhere { path: fast.clone(), metadata_bytes: Some(META_BYTES), force: false };
    assert!(said(&folder, Moved::Metadata, &sized).contains("are for devices"));
    assert!(said(&folder, Moved::Log, &to(&folder.path().join("block"))).contains("is no folder"));
    std::fs::create_dir_all(&fast).expect("made");
    std::fs::write(fast.join(format!("{owner}.log")), "somebody else's").expect("writable");
    assert!(said(&folder, Moved::Log, &to(&fast)).contains("belongs to another store"));
    is_twin(&folder.target(), &twin);
}

/// Through the tool, which ends what was interrupted first.
fn moved_and_there(folder: &Folder, what: Moved, target: &MoveTo) {
    carry_out(&folder.target(), what, target).expect("it can be moved");
    is_sound(folder);
    let mut nobody = Fateful::Fault;
    let outcome = move_part(folder.path(), None, what, target, &mut nobody).expect("it is there");
    assert_eq!(outcome, MoveOutcome::WasThere);
}
