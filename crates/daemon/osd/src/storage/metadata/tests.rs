//! The journal of metadata in files: made, found, refused. What is on devices is tested in `tool/store`.

use super::*;
use crate::storage::{DeviceDirs, mkfs};
use nacre_kv::{Durability, KvBatch, journal_file_bytes};
use nacre_types::Uuid;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

const DEVICE_BYTES: u64 = 8 << 20;
const HALF_BYTES: u64 = 64 << 10;

struct Folder {
    _temporary: TempDir,
    path: PathBuf,
    place: MetadataPlace,
}

/// A new store; as a program of before made it, without a journal, if asked for.
fn store(is_older: bool, dirs: impl Fn(&Path) -> DeviceDirs) -> Folder {
    let temporary = TempDir::with_prefix("nacre-journal").expect("a writable temporary folder");
    let path = temporary.path().join("osd.0");
    mkfs(&path, Uuid([5; 16]), (DEVICE_BYTES, 1), &dirs(temporary.path()), None)
        .expect("a store can be made");
    let place = MetadataPlace::in_folder(&path, 0, None);
    if is_older {
        let (tree, journal) = (path.join(META_FILE), path.join(JOURNAL_FILE));
        let mut pairs = opened(&place, None).kv.scan_prefix(b"").expect("healthy");
        std::fs::remove_file(journal.canonicalize().expect("it is there")).expect("a writable folder");
        std::fs::remove_file(tree.canonicalize().expect("it is there")).expect("a writable folder");
        let _not_a_link = std::fs::remove_file(journal);
        let mut kv = RedbKv::open(&tree).expect("a new file");
        let mut batch = KvBatch::default();
        for (key, value) in &mut pairs {
            let mut value = value.to_vec();
            if key.as_ref() == b"s" {
                value[..2].copy_from_slice(&[4, 4]);
            }
            batch.put(key.clone(), value);
        }
        kv.commit(&batch, Durability::Durable).expect("healthy");
    }
    Folder { _temporary: temporary, path, place }
}

fn in_one_folder(_: &Path) -> DeviceDirs {
    DeviceDirs::default()
}

fn elsewhere(folder: &Path) -> DeviceDirs {
    DeviceDirs { log: None, meta: Some(folder.join("fast")) }
}

fn opened(place: &MetadataPlace, half_bytes: Option<u64>) -> Metadata {
    place.open_with(KvOptions::default(), half_bytes).expect("it opens")
}

fn refusal(place: &MetadataPlace) -> String {
    place.open_with(KvOptions::default(), None).map(drop).expect_err("it is refused").to_string()
}

fn put(kv: &mut (dyn KvStore + Send), key: &str) {
    let mut batch = KvBatch::default();
    batch.put(key.to_owned(), vec![7; 3000]);
    kv.commit(&batch, Durability::Durable).expect("healthy");
}

fn keys(kv: &(dyn KvStore + Send)) -> Vec<String> {
    let pairs = kv.scan_prefix(b"").expect("healthy").into_iter();
    pairs.map(|(key, _)| String::from_utf8_lossy(&key).into_owned()).collect()
}

/// What programs of before look at first: which of them can read the state.
fn state_compat(folder: &Folder) -> u8 {
    let tree = RedbKv::open(&folder.path.join(META_FILE)).expect("a database");
    tree.get(b"s").expect("healthy").expect("a store")[1]
}

#[test]
fn a_new_store_has_a_journal_that_is_a_small_part_of_it_and_ours_alone() {
    let folder = store(false, in_one_folder);
    let found = std::fs::metadata(folder.path.join(JOURNAL_FILE)).expect("it is there");
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    assert_eq!(found.len(), journal_file_bytes(DEVICE_BYTES / 64));
    assert_eq!(folder.place.used_bytes().expect("files").1, found.len());
    assert_eq!(opened(&folder.place, None).half_bytes, DEVICE_BYTES / 64);
    assert_eq!(state_compat(&folder), 5);
}

#[test]
fn a_store_of_before_has_none_until_an_osd_opens_it_and_is_refused_by_programs_of_before_from_then_on() {
    for dirs in [in_one_folder, elsewhere] {
        let folder = store(true, dirs);
        let mut metadata = opened(&folder.place, None);
        put(metadata.kv.as_mut(), "before");
        assert_eq!(metadata.half_bytes, 0);
        drop(metadata);
        assert_eq!(state_compat(&folder), 4);
        let mut metadata = opened(&folder.place, Some(HALF_BYTES));
        assert_eq!(metadata.half_bytes, HALF_BYTES);
        assert_eq!(metadata.kv.wake_fds().len(), 3);
        put(metadata.kv.as_mut(), "in the journal");
        drop(metadata);
        assert_eq!(state_compat(&folder), 5);
        let tree = RedbKv::open(&folder.path.join(META_FILE)).expect("a database");
        assert!(tree.get(b"in the journal").expect("healthy").is_none());
        drop(tree);
        assert_eq!(keys(opened(&folder.place, None).kv.as_ref()), ["before", "in the journal", "s"]);
    }
}

#[test]
fn the_journal_is_beside_the_tree_wherever_a_link_leads() {
    for is_older in [true, false] {
        let folder = store(is_older, elsewhere);
        drop(opened(&folder.place, Some(HALF_BYTES)));
        let tree = folder.path.join(META_FILE);
        let target = std::fs::read_link(folder.path.join(JOURNAL_FILE)).expect("a link");
        assert_eq!(target.parent(), std::fs::read_link(&tree).expect("a link").parent());
        assert_eq!(target.file_name().and_then(|name| name.to_str()), Some("osd.0.meta.journal"));
    }
    // The tree alone was elsewhere.
    let folder = store(true, in_one_folder);
    let (tree, target) = (folder.path.join(META_FILE), folder.path.join("../moved.redb"));
    std::fs::rename(&tree, &target).expect("a writable folder");
    std::os::unix::fs::symlink(&target, &tree).expect("a writable folder");
    drop(opened(&folder.place, Some(HALF_BYTES)));
    let journal = folder.path.join(JOURNAL_FILE).canonicalize().expect("it is there");
    assert_eq!(journal, target.canonicalize().expect("it is there").with_extension("journal"));
}

#[test]
fn a_journal_that_is_missing_or_damaged_or_another_stores_is_an_error_that_says_what_to_do() {
    let (folder, other) = (store(false, in_one_folder), store(false, in_one_folder));
    let journal = folder.path.join(JOURNAL_FILE);
    let content = std::fs::read(&journal).expect("a file");
    std::fs::remove_file(&journal).expect("a writable folder");
    let said = refusal(&folder.place);
    assert!(said.contains("meta.journal is missing") && said.contains("recover from the others"), "{said}");
    assert!(!journal.exists(), "it must not be made anew");
    std::fs::write(&journal, []).expect("a writable folder");
    let said = refusal(&folder.place);
    assert!(said.contains("is empty, and the store has had one: put the right one back"), "{said}");
    std::fs::write(&journal, vec![0xa5; 100_000]).expect("a writable folder");
    let said = refusal(&folder.place);
    assert!(said.contains("both heads"), "{said}");
    std::fs::write(&journal, &content).expect("a writable folder");
    let held = opened(&folder.place, None);
    let said = refusal(&folder.place);
    assert!(said.contains("in use by another process"), "{said}");
    drop(held);
    // One of before in place of that of an older store.
    let mut metadata = opened(&other.place, None);
    put(metadata.kv.as_mut(), "a");
    drop(metadata);
    let older = store(true, in_one_folder);
    std::fs::copy(other.path.join(JOURNAL_FILE), older.path.join(JOURNAL_FILE)).expect("a writable folder");
    let refused = older.place.open_with(KvOptions::default(), Some(HALF_BYTES)).map(drop);
    let said = refused.expect_err("it is refused").to_string();
    assert!(said.contains("the store is one of before"), "{said}");
}

#[test]
fn an_osd_with_another_target_makes_the_journal_smaller_or_larger_and_a_tool_leaves_it() {
    let folder = store(false, in_one_folder);
    for half_bytes in [HALF_BYTES, 16 << 10, 256 << 10] {
        let mut metadata = opened(&folder.place, Some(half_bytes));
        put(metadata.kv.as_mut(), &half_bytes.to_string());
        assert_eq!(metadata.half_bytes, half_bytes);
        drop(metadata);
        assert_eq!(opened(&folder.place, None).half_bytes, half_bytes);
    }
    assert_eq!(keys(opened(&folder.place, Some(0)).kv.as_ref()), ["16384", "262144", "65536", "s"]);
}

#[test]
fn a_compaction_empties_the_journal() {
    let folder = store(false, in_one_folder);
    let mut metadata = opened(&folder.place, None);
    put(metadata.kv.as_mut(), "a");
    drop(metadata);
    folder.place.compact().expect("healthy");
    let tree = RedbKv::open(&folder.path.join(META_FILE)).expect("a database");
    assert!(tree.get(b"a").expect("healthy").is_some());
    drop(tree);
    assert_eq!(keys(opened(&folder.place, None).kv.as_ref()), ["a", "s"]);
}

#[test]
fn a_device_without_a_region_for_it_goes_on_without_a_journal_and_one_with_gets_it() {
    const MIB: u64 = 1 << 20;
    let folder = store(true, in_one_folder);
    let state = opened(&folder.place, None).kv.get(b"s").expect("healthy").expect("a store");
    let device = folder.path.join("device");
    let file = nacre_kv::create_file(&device).expect("a writable folder");
    file.set_length(80 * MIB).expect("room");
    let region = nacre_kv::RegionPlace { offset: 2 * MIB, length: 70 * MIB, owner: [5; 16] };
    let tree = Arc::new(RegionFile::create(Arc::clone(&file), region).expect("room"));
    let place = |journal| MetadataPlace::Regions { device: device.clone(), tree: Arc::clone(&tree), journal };
    let mut batch = KvBatch::default();
    batch.put("s", state);
    opened(&place(None), None).kv.commit(&batch, Durability::Durable).expect("healthy");
    let mut metadata = opened(&place(None), Some(HALF_BYTES));
    put(metadata.kv.as_mut(), "a");
    assert_eq!((metadata.half_bytes, metadata.kv.wake_fds().len()), (0, 2));
    drop(metadata);
    let part = Arc::new(DevicePart::new(Arc::clone(&file), MIB, 256 << 10));
    let place_with = place(Some((part, 256 << 10)));
    let mut metadata = opened(&place_with, Some(MIB));
    assert_eq!(metadata.half_bytes, 124 << 10, "no more than the region has");
    put(metadata.kv.as_mut(), "b");
    drop(metadata);
    let said = refusal(&place(None));
    assert!(said.contains("no region for the Journal"), "{said}");
    assert_eq!(keys(opened(&place_with, None).kv.as_ref()), ["a", "b", "s"]);
    place_with.compact().expect("healthy");
    assert_eq!(keys(opened(&place_with, None).kv.as_ref()), ["a", "b", "s"]);
}
