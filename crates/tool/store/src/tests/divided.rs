//! Stores that are divided between partitions: each command is about all of them, or finds the one that has the PG.

use super::content::{self, Folder, PG, fill_store, submit};
use super::devices::{DATA_BYTES, LOG_BYTES, META_BYTES, alone, device, make, owner, refusal};
use super::moves::{link, to};
use super::{exported, kinds, repair_options, spoil, stopped};
use crate::moves::carry_out;
use crate::repair::{self, repair};
use crate::{check, compact, dump, import, trim};
use nacre_osd::WrappingKey;
use nacre_osd::storage::{self, DeviceDirs, Devices, MoveTo, Moved};
use nacre_store::ObjectStore;
use nacre_txn::{Op, Transaction};
use nacre_types::{PgId, SpgId, Uuid};
use std::path::Path;

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
    fill(&folder);
    folder
}

fn fill(folder: &Folder) {
    let mut stores = folder.target().open_all().expect("the store opens");
    let [(first, _), (second, _)] = &mut stores[..] else { panic!("two partitions") };
    content::put_map(first, content::FSID, content::EPOCH);
    let ops = vec![Op::CreateCollection, Op::MetaSet { key: "info".into(), value: vec![1; 9000].into() }];
    submit(first, Transaction { collection: OTHER, ops });
    fill_store(second);
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

/// Metadata and journals of all partitions share a region each; the log may have a device of its own.
#[test]
fn a_device_is_divided_as_well() {
    let (disks, folder) = (Folder::empty("divided-disks"), Folder::empty("divided-device"));
    let log = device(&disks, "log", LOG_BYTES);
    let devices = |partitions| Devices { partitions, force: true, ..alone(disks.path().join("data")) };
    device(&disks, "data", DATA_BYTES);
    let said = make(&folder, owner(1, 1), &devices(3)).expect_err("too small").to_string();
    assert!(said.contains("has room for those of 2 shards, and not of 3: a larger --meta-size"), "{said}");
    make(&folder, owner(1, 1), &devices(2)).expect("a device");
    fill(&folder);
    is_as_filled(&folder);
    carry_out(&folder.target(), Moved::Log, &to(&log)).expect("it can be moved");
    is_as_filled(&folder);
    carry_out(&folder.target(), Moved::Log, &MoveTo::Back).expect("it can be moved");
    let before = compact::compact(&folder.target()).expect("can be compacted");
    assert!(before.after > 0 && before.journal > 0);
    trim::trim(&folder.target()).expect("can be trimmed");
    is_as_filled(&folder);
}

/// Log and metadata of all partitions, on devices of their own from the beginning or moved there, and back.
#[test]
fn what_a_divided_device_has_elsewhere_moves_as_one() {
    let (disks, folder) = (Folder::empty("apart-disks"), Folder::empty("apart-device"));
    let data = device(&disks, "data", DATA_BYTES);
    make(&folder, owner(1, 1), &Devices { partitions: 2, ..alone(data) }).expect("a device");
    fill(&folder);
    let small = device(&disks, "small", META_BYTES);
    let said = refusal(carry_out(&folder.target(), Moved::Metadata, &to(&small)));
    assert!(said.contains("has room for those of 1 shards, and not of 2"), "{said}");
    let (log, meta) = (device(&disks, "log", LOG_BYTES), device(&disks, "meta", 3 * META_BYTES));
    for (what, device) in [(Moved::Metadata, &meta), (Moved::Log, &log)] {
        carry_out(&folder.target(), what, &to(device)).expect("it can be moved");
        is_as_filled(&folder);
        assert_eq!(storage::label_of(device).expect("a label").partitions, 2);
    }
    for what in [Moved::Metadata, Moved::Log] {
        carry_out(&folder.target(), what, &MoveTo::Back).expect("it can be moved");
        is_as_filled(&folder);
    }
    assert!(storage::label_of(&meta).is_err() && storage::label_of(&log).is_err(), "they are given free");
    let apart = Folder::empty("apart-made");
    let (next, log) = (device(&disks, "next", DATA_BYTES), Some(log));
    let devices = Devices { log, metadata: Some(meta), partitions: 2, ..alone(next) };
    make(&apart, owner(2, 2), &devices).expect("devices that were given free");
    fill(&apart);
    is_as_filled(&apart);
}

/// Of a store with as many partitions as the superblocks say, and no other number.
#[test]
fn a_label_with_another_number_of_partitions_is_refused() {
    let (disks, folder) = (Folder::empty("odd-disks"), Folder::empty("odd-device"));
    let (data, meta) = (device(&disks, "data", DATA_BYTES), device(&disks, "meta", 3 * META_BYTES));
    let devices = Devices { metadata: Some(meta.clone()), partitions: 2, ..alone(data.clone()) };
    make(&folder, owner(1, 1), &devices).expect("empty devices");
    let said = || refusal(folder.target().look_at_all());
    let relabel = |path: &Path, partitions| {
        let label = nacre_device::Label { partitions, ..storage::label_of(path).expect("a label") };
        let device = nacre_env::real::HeldDevice::open(path).expect("nobody has it");
        nacre_device::write_label(&device.view().expect("it opens"), &label).expect("healthy");
    };
    relabel(&meta, 1);
    assert!(said().contains("for 1 shards, and it was made for 2"), "{}", said());
    relabel(&data, 1);
    assert!(
        said().contains("block leads to a device") && said().contains("for 1 shards, and it was made for 2")
    );
    [&meta, &data].into_iter().for_each(|path| relabel(path, 3));
    assert!(said().contains("for 3 shards, and it was made for 2"), "{}", said());
    [&meta, &data].into_iter().for_each(|path| relabel(path, 2));
    is_sound(&folder);
}

/// One key for the store, from which each partition's metadata have their own, wherever they are.
#[test]
fn a_divided_device_is_encrypted_and_moves() {
    let key = WrappingKey::from_text(&"k".repeat(64)).expect("a key");
    let (disks, folder) = (Folder::empty("secret-disks"), Folder::empty("secret-device"));
    let path = disks.path().join("key");
    super::encrypted::write_key(&path, &"k".repeat(64));
    let (data, meta) = (device(&disks, "data", DATA_BYTES), device(&disks, "meta", 3 * META_BYTES));
    std::fs::write(folder.path().join("fsid"), format!("{}\n", owner(1, 1).osd_uuid)).expect("a folder");
    let devices = Devices { partitions: 2, ..alone(data.clone()) };
    storage::mkfs_on_devices(folder.path(), owner(1, 1), &devices, Some(&key)).expect("a device");
    let target = crate::target::Target::new(folder.path().to_owned(), vec![path]);
    let mut stores = target.open_all().expect("the store opens");
    fill_store(&mut stores[HOME].0);
    submit(&mut stores[0].0, Transaction { collection: OTHER, ops: vec![Op::CreateCollection] });
    drop(stores);
    let label = storage::label_of(&data).expect("a label");
    assert!(label.is_encrypted && label.partitions == 2);
    let heads = [0, 1].map(|partition| {
        let at = label.part(nacre_device::RegionKind::Metadata, partition).expect("a part").offset;
        let mut head = vec![0; 4096];
        std::os::unix::fs::FileExt::read_exact_at(
            &std::fs::File::open(&data).expect("a file"),
            &mut head,
            at,
        )
        .expect("within the device");
        head
    });
    assert!(heads[0] != heads[1] && heads.iter().all(|head| !head.starts_with(b"NacreREG")));
    for to in [to(&meta), MoveTo::Back] {
        carry_out(&target, Moved::Metadata, &to).expect("it can be moved");
        let findings = check::examine(&target, true).expect("can be checked");
        assert!(findings.is_sound(), "{:?}", findings.problems);
        let mut stores = target.look_at_all().expect("the store opens");
        let mut original = stopped("original").target().look().expect("the store opens").0;
        content::same(&mut original, &mut stores[HOME].0);
    }
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
