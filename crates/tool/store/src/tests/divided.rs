//! Stores that are divided between partitions: each command is about all of them, or finds the one that has the PG.

use super::content::{self, Folder, PG, fill_store, submit};
use super::devices::refusal;
use super::moves::{link, to};
use super::{exported, kinds, repair_options, spoil, stopped};
use crate::moves::carry_out;
use crate::repair::{self, repair};
use crate::{check, compact, dump, import, trim};
use nacre_osd::WrappingKey;
use nacre_osd::storage::{self, DeviceDirs, MoveTo, Moved};
use nacre_store::ObjectStore;
use nacre_txn::{Op, Transaction};
use nacre_types::{PgId, SpgId, Uuid};

const DEVICE_BYTES: u64 = 16 << 20;
/// A PG of the first of two partitions, and of the second: [`PG`].
const OTHER: SpgId = SpgId::replicated(PgId::new(2, 0x1e));
const HOME: usize = 1;

fn made(name: &str, partitions: u32, key: Option<&WrappingKey>) -> Folder {
    let folder = Folder::empty(name);
    let size = (DEVICE_BYTES, partitions);
    storage::mkfs(folder.path(), Uuid([5; 16]), size, &DeviceDirs::default(), key)
        .expect("a store can be made");
    folder
}

/// With a map in each partition, a PG with little in the first, and the usual content in the second.
fn filled(name: &str) -> Folder {
    let folder = made(name, 2, None);
    let mut stores = folder.target().open_all().expect("the store opens");
    let [(first, _), (second, _)] = &mut stores[..] else { panic!("two partitions") };
    content::put_map(first, content::FSID, content::EPOCH);
    let ops = vec![Op::CreateCollection, Op::MetaSet { key: "info".into(), value: vec![1; 9000].into() }];
    submit(first, Transaction { collection: OTHER, ops });
    fill_store(second);
    folder
}

fn is_sound(folder: &Folder) -> check::Findings {
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
    findings
}

fn is_as_filled(folder: &Folder) {
    is_sound(folder);
    let mut original = stopped("original").target().look().expect("the store opens").0;
    let mut stores = folder.target().look_at_all().expect("the store opens");
    assert!(stores[0].0.collections().contains(&OTHER) && !stores[0].0.collections().contains(&PG));
    content::same(&mut original, &mut stores[HOME].0);
}

#[test]
fn a_check_looks_at_all_partitions_and_says_which_one_is_damaged() {
    let folder = filled("divided-check");
    let block = || std::fs::read(folder.path().join("block")).expect("readable");
    let before = block();
    is_as_filled(&folder);
    assert!(before == block(), "a check wrote to the device");
    let mut stores = folder.target().look_at_all().expect("the store opens");
    let all = dump::overview(&mut stores).expect("an overview");
    let shown = all["placement_groups"].as_array().expect("a list").iter().map(|pg| pg["pgid"].as_str());
    assert_eq!(shown.collect::<Vec<_>>(), [Some("2.1e"), Some("2.1f")]);
    let shape = stores[HOME].0.shape(&PG, &content::large()).expect("an object");
    drop(stores);
    spoil(&folder, shape.extents[0].device_offset);
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    assert_eq!(kinds(&findings), ["data"], "{:?}", findings.problems);
    let said = findings.problems[0]["what"].as_str().expect("a text");
    assert!(said.starts_with("partition 1: 2.1f "), "{said}");
}

#[test]
fn a_partition_without_metadata_or_with_those_of_another_is_named() {
    let folder = filled("divided-metadata");
    let files = |name: &str| folder.path().join(name);
    for [one, other] in [["meta.redb", "meta.1.redb"], ["meta.journal", "meta.1.journal"]] {
        std::fs::rename(files(one), files("aside")).expect("a writable folder");
        std::fs::rename(files(other), files(one)).expect("a writable folder");
        std::fs::rename(files("aside"), files(other)).expect("a writable folder");
    }
    let findings = check::examine(&folder.target(), false).expect("can be checked");
    assert_eq!(kinds(&findings), ["metadata", "metadata"]);
    let said = findings.problems[1]["what"].as_str().expect("a text");
    assert_eq!(said, "partition 1: the metadata does not belong to this device");
    std::fs::remove_file(files("meta.1.redb")).expect("a writable folder");
    let findings = check::examine(&folder.target(), false).expect("can be checked");
    let said = findings.problems[1]["what"].as_str().expect("a text");
    assert!(said.contains("meta.1.redb is missing"), "{said}");
    assert!(refusal(folder.target().open_all()).contains("meta.1.redb is missing"));
}

#[test]
fn a_gap_in_one_log_costs_the_groups_of_one_partition() {
    let folder = made("divided-gap", 2, None);
    let mut stores = folder.target().open_all().expect("the store opens");
    content::put_map(&mut stores[0].0, content::FSID, content::EPOCH);
    submit(&mut stores[0].0, Transaction { collection: OTHER, ops: vec![Op::CreateCollection] });
    let before = stores[HOME].0.layout();
    content::fill_one_by_one(&mut stores[HOME].0);
    drop(stores);
    let first = before.log_first * 4096;
    // The opening has a record of its own, then come the map and eight others.
    spoil(&folder, first + 6 * 4096 + 100);
    let findings = check::examine(&folder.target(), false).expect("can be checked");
    assert_eq!(kinds(&findings), ["open"], "{:?}", findings.problems);
    let done = repair(&repair_options(folder.target(), false)).expect("can be looked at");
    assert!(matches!(&done[..], [line] if line.contains("--give-up-groups")), "{done:?}");
    assert!(folder.target().open_all().is_err());
    let stores = folder.target().look_before_gap().expect("can be looked at");
    assert!(stores[0].1.gap.is_none() && stores[HOME].1.gap.is_some());
    drop(stores);
    let options = repair::Options { give_up_groups: true, ..repair_options(folder.target(), false) };
    let done = repair(&options).expect("can be repaired");
    assert!(done[0].contains(&format!("removed 1 placement groups: {PG}")), "{done:?}");
    is_sound(&folder);
    let stores = folder.target().look_at_all().expect("the store opens");
    assert_eq!(stores[0].0.collections(), [storage::OWN_COLLECTION, OTHER]);
    assert_eq!(stores[HOME].0.collections(), [storage::OWN_COLLECTION]);
}

#[test]
fn free_space_that_was_counted_wrong_is_counted_anew_in_the_partition() {
    let folder = filled("divided-repair");
    let mut pieces = folder.target().pieces().expect("the metadata");
    let kv = &mut pieces[HOME].kv;
    let mut batch = nacre_kv::KvBatch::default();
    batch.delete_prefix(vec![b'f']);
    kv.commit(&batch, nacre_kv::Durability::Durable).expect("a healthy file");
    drop(pieces);
    assert!(!check::examine(&folder.target(), false).expect("can be checked").is_sound());
    let done = repair(&repair_options(folder.target(), false)).expect("can be repaired");
    assert!(done[0].contains("counted free space anew"), "{done:?}");
    is_as_filled(&folder);
}

/// Where an OSD looks for it, whatever the number of partitions.
#[test]
fn an_imported_group_is_in_its_partition() {
    let file = exported(&stopped("divided-source"));
    for (partitions, home) in [(2, HOME), (3, 0), (4, 1)] {
        let folder = made("divided-import", partitions, None);
        let mut stores = folder.target().open_all().expect("the store opens");
        stores.iter_mut().for_each(|(store, _)| content::put_map(store, content::FSID, content::EPOCH));
        import::read(&mut stores, &file[..], false).expect("can be imported");
        for (nth, (store, _)) in stores.iter().enumerate() {
            assert_eq!(store.collections().contains(&PG), nth == home, "{nth} of {partitions}");
        }
        drop(stores);
        is_sound(&folder);
        let at = crate::target::partition_with(&mut folder.target().look_at_all().expect("opens"), &PG)
            .map(|store| crate::export::write(store, &PG, Vec::new()).expect("can be exported").0.objects);
        assert_eq!(at, Some(content::OBJECTS));
    }
}

/// Its shard may have no maps but those of its partition.
#[test]
fn a_group_from_the_future_of_its_partition_is_not_imported() {
    let (file, folder) = (exported(&stopped("divided-source")), made("divided-future", 2, None));
    let mut stores = folder.target().open_all().expect("the store opens");
    content::put_map(&mut stores[0].0, content::FSID, content::EPOCH);
    content::put_map(&mut stores[HOME].0, content::FSID, content::EPOCH - 1);
    let said = refusal(import::read(&mut stores, &file[..], false));
    assert!(said.contains("so that it catches up"), "{said}");
    content::put_map(&mut stores[HOME].0, content::FSID, content::EPOCH);
    import::read(&mut stores, &file[..], false).expect("it has caught up");
}

#[test]
fn free_space_of_all_partitions_and_of_none_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = filled("divided-trim");
    let taken = || folder.path().join("block").metadata().expect("a file").blocks() * 512;
    assert!(taken() >= DEVICE_BYTES);
    let report = trim::trim(&folder.target()).expect("can be trimmed");
    assert!(report.refused.is_none() && report.discarded_bytes <= report.free_bytes, "{report:?}");
    let stores = folder.target().look_at_all().expect("the store opens");
    let layout = stores[0].0.layout();
    let log_bytes = 2 * 4096 * layout.log_count;
    let used: u64 = stores.iter().map(|(store, _)| store.usage().allocated_bytes).sum();
    drop(stores);
    // Slabs that are nobody's are most of it.
    assert!(taken() < log_bytes + used + (1 << 20), "{} bytes, {used} used, {log_bytes} of logs", taken());
    is_as_filled(&folder);
}

#[test]
fn metadata_of_all_partitions_are_compacted_and_move_together() {
    let (folder, fast) = (filled("divided-moves"), Folder::empty("divided-fast"));
    let compact::Compacted { journal, .. } = compact::compact(&folder.target()).expect("can be compacted");
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).expect("a file").len();
    assert_eq!(journal, size("meta.journal") + size("meta.1.journal"));
    let names = ["meta.redb", "meta.journal", "meta.1.redb", "meta.1.journal"];
    for what in [Moved::Metadata, Moved::Log] {
        carry_out(&folder.target(), what, &to(fast.path())).expect("it can be moved");
        is_as_filled(&folder);
    }
    assert!(names.iter().chain(&["log"]).all(|name| link(&folder, name).is_some()));
    for what in [Moved::Log, Moved::Metadata] {
        carry_out(&folder.target(), what, &MoveTo::Back).expect("it can be moved");
        is_as_filled(&folder);
    }
    assert!(names.iter().chain(&["log"]).all(|name| link(&folder, name).is_none()));
}

/// Each partition's metadata are encrypted for themselves: equal content looks different.
#[test]
fn a_divided_store_is_encrypted() {
    let key = WrappingKey::from_text(&"k".repeat(64)).expect("a key");
    let (folder, keys) = (made("divided-encrypted", 2, Some(&key)), Folder::empty("divided-keys"));
    let path = keys.path().join("key");
    super::encrypted::write_key(&path, &"k".repeat(64));
    let target = crate::target::Target::new(folder.path().to_owned(), vec![path]);
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("readable");
    assert!(read("meta.redb")[..4096] != read("meta.1.redb")[..4096]);
    let mut stores = target.open_all().expect("the store opens");
    fill_store(&mut stores[HOME].0);
    drop(stores);
    let findings = check::examine(&target, true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
}

#[test]
fn what_an_attempt_with_more_partitions_left_is_gone() {
    let folder = made("divided-again", 3, None);
    let fast = Folder::empty("divided-again-fast");
    let dirs = DeviceDirs { log: None, meta: Some(fast.path().to_owned()) };
    storage::mkfs(folder.path(), Uuid([6; 16]), (DEVICE_BYTES, 3), &dirs, None).expect("a store can be made");
    storage::mkfs(folder.path(), Uuid([7; 16]), (DEVICE_BYTES, 1), &DeviceDirs::default(), None)
        .expect("a store can be made");
    let left = |name: &str| folder.path().join(name).symlink_metadata().is_ok();
    assert!(!["meta.1.redb", "meta.1.journal", "meta.2.redb", "meta.2.journal"].into_iter().any(left));
    assert_eq!(std::fs::read_dir(fast.path()).expect("a folder").count(), 0);
    assert_eq!(folder.target().look_at_all().expect("the store opens").len(), 1);
}
