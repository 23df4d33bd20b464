//! The commands on real files.

mod content;
mod devices;
mod encrypted;
mod encrypted_moves;
mod image;
mod moves;

use crate::repair::{self, repair};
use crate::target::{Target, each_object};
use crate::{check, compact, dump, export, import, trim};
use content::{Folder, PG, fill, same, submit};
use nacre_osd::storage;
use nacre_store::ObjectStore;
use nacre_txn::{ObjectView, Op, Transaction};
use std::os::unix::fs::FileExt;

/// A store with content, closed. What was written last is only in its log.
fn stopped(name: &str) -> Folder {
    let folder = Folder::new(name);
    fill(&folder);
    folder
}

fn block_file(folder: &Folder) -> std::fs::File {
    let path = folder.path().join("block");
    std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the store's device")
}

/// Turns the bits of a byte of the device around.
fn spoil(folder: &Folder, offset: u64) {
    let (file, mut byte) = (block_file(folder), [0]);
    file.read_exact_at(&mut byte, offset).expect("within the device");
    file.write_all_at(&[!byte[0]], offset).expect("within the device");
}

fn kinds(findings: &check::Findings) -> Vec<String> {
    findings.problems.iter().map(|problem| problem["kind"].as_str().expect("a text").to_owned()).collect()
}

fn repair_options(target: Target, remove_unreadable: bool) -> repair::Options {
    repair::Options { target, remove_unreadable, give_up_groups: false, json: false }
}

#[test]
fn a_check_finds_a_healthy_store_sound_and_changes_nothing() {
    let folder = stopped("sound");
    let content = || std::fs::read(folder.path().join("block")).expect("readable");
    let before = content();
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
    assert!(before == content(), "a check wrote to the device");
}

/// What is free goes back to the file system below, and nothing else.
#[test]
fn a_trim_gives_free_space_back() {
    use std::os::unix::fs::MetadataExt;
    let (folder, other) = (stopped("trim"), stopped("trim-other"));
    let taken = || block_file(&folder).metadata().expect("a file").blocks() * 512;
    let before = taken();
    let report = match trim::trim(&folder.target()) {
        Ok(report) => report,
        // Nor do all file systems.
        Err(error) => return assert!(error.to_string().contains("does not discard"), "{error:#}"),
    };
    assert!(report.discarded_bytes > report.free_bytes / 10 * 9, "{report:?}");
    assert!(before - taken() > report.discarded_bytes / 10 * 9, "{before} bytes before, {} after", taken());
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
    let (mut a, _) = folder.target().look().expect("the store opens");
    let (mut b, _) = other.target().look().expect("the store opens");
    same(&mut a, &mut b);
}

#[test]
fn a_store_in_use_is_refused() {
    let folder = stopped("in-use");
    let _running = folder.target().open().expect("the store opens");
    for refused in [
        check::examine(&folder.target(), false).map(drop),
        repair(&repair_options(folder.target(), false)).map(drop),
        compact::compact(&folder.target()).map(drop),
        trim::trim(&folder.target()).map(drop),
        folder.target().look().map(drop),
    ] {
        let said = format!("{:#}", refused.expect_err("the store is in use"));
        assert!(said.contains("in use by a running OSD"), "{said}");
    }
}

#[test]
fn a_spoilt_superblock_is_written_again_from_the_other() {
    for copy in 0..2 {
        let folder = stopped("superblock");
        spoil(&folder, copy * 4096 + 17);
        let findings = check::examine(&folder.target(), true).expect("can be checked");
        assert_eq!(kinds(&findings), ["superblock"]);
        let done = repair(&repair_options(folder.target(), false)).expect("can be repaired");
        assert!(done[0].contains(&format!("copy {copy}")), "{done:?}");
        assert!(check::examine(&folder.target(), true).expect("can be checked").is_sound());
    }
    let folder = stopped("superblocks");
    spoil(&folder, 17);
    spoil(&folder, 4096 + 17);
    assert_eq!(
        kinds(&check::examine(&folder.target(), false).expect("can be checked"))[..2],
        ["superblock"; 2]
    );
    assert!(repair(&repair_options(folder.target(), false)).is_err());
}

#[test]
fn rotten_data_is_found_by_a_deep_check_only() {
    let folder = stopped("rot");
    let (store, _) = folder.target().look().expect("the store opens");
    let shape = store.shape(&PG, &content::large()).expect("an object");
    let (offset, at) = (shape.extents[0].offset, shape.extents[0].device_offset);
    drop(store);
    spoil(&folder, at + 100);
    assert!(check::examine(&folder.target(), false).expect("can be checked").is_sound());
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    // A clone shares the block.
    assert!(kinds(&findings).iter().all(|kind| kind == "data") && !findings.is_sound());
    let what = findings.problems[0]["what"].as_str().expect("a text").to_owned();
    assert!(what.contains(&format!("at byte {offset}: checksum")), "{what}");
}

#[test]
fn a_free_map_that_contradicts_the_objects_is_made_anew() {
    let folder = stopped("free-map");
    let mut kv = folder.target().parts().expect("the metadata").1;
    let (key, value) = kv.scan_prefix(b"f").expect("a healthy file").swap_remove(0);
    let mut wrong = value.to_vec();
    // Behind the envelope, bits of blocks 0 to 32767: the superblocks and the log are none of them.
    let used = (6..4102).find(|at| wrong[*at] != 0).expect("something is used");
    wrong[used] = 0;
    let mut batch = nacre_kv::KvBatch::default();
    batch.put(key, wrong);
    kv.commit(&batch, nacre_kv::Durability::Durable).expect("a healthy file");
    drop(kv);
    assert!(!check::examine(&folder.target(), false).expect("can be checked").is_sound());
    let done = repair(&repair_options(folder.target(), false)).expect("can be repaired");
    assert!(done[0].contains("counted free space anew"), "{done:?}");
    assert!(check::examine(&folder.target(), true).expect("can be checked").is_sound());
    let again = repair(&repair_options(folder.target(), false)).expect("can be repaired");
    assert_eq!(again, ["nothing to repair"]);
}

/// Offsets of the records of the log that replay needs, oldest first: one after the other.
fn log_records(folder: &Folder) -> Vec<u64> {
    let (file, mut block) = (block_file(folder), vec![0; 4096]);
    let blocks = (2..).map(|block| block * 4096).take_while(|offset| {
        file.read_exact_at(&mut block, *offset).is_ok() && block.starts_with(b"NacreWAL")
    });
    blocks.collect()
}

#[test]
fn a_log_with_a_gap_is_named_and_groups_are_given_up_only_when_asked() {
    let folder = Folder::new("gap");
    content::fill_one_by_one(&folder);
    let offsets = log_records(&folder);
    assert!(offsets.len() > 5, "{offsets:?}");
    spoil(&folder, offsets[offsets.len() - 4] + 100);
    let findings = check::examine(&folder.target(), false).expect("can be checked");
    assert_eq!(kinds(&findings), ["open"]);
    let gap = "is damaged, and 3 behind it are whole";
    assert!(findings.problems[0]["what"].as_str().expect("a text").contains(gap), "{:?}", findings.problems);
    let done = repair(&repair_options(folder.target(), false)).expect("can be looked at");
    assert!(
        matches!(&done[..], [line] if line.contains(gap) && line.contains("--give-up-groups")),
        "{done:?}"
    );
    assert!(folder.target().look().is_err());
    let (mut store, mount) = folder.target().look_before_gap().expect("can be looked at");
    assert!(mount.gap.is_some() && store.collections().contains(&PG));
    export::write(&mut store, &PG, Vec::new()).expect("can be exported");
    drop(store);
    let options = repair::Options { give_up_groups: true, ..repair_options(folder.target(), false) };
    let done = repair(&options).expect("can be repaired");
    assert!(done[0].contains(&format!("removed 1 placement groups: {PG}")), "{done:?}");
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
    let (store, _) = folder.target().look().expect("the store opens");
    assert_eq!(store.collections(), [storage::OWN_COLLECTION]);
    assert!(crate::target::newest_map(&store).is_some(), "the OSD keeps what it knows of the cluster");
}

#[test]
fn unreadable_metadata_is_removed_only_when_asked() {
    let folder = stopped("metadata");
    let (store, _) = folder.target().look().expect("the store opens");
    let number = store.shape(&PG, &content::large()).expect("an object").number;
    drop(store);
    let key = [b"o", &number.to_be_bytes()[..]].concat();
    let mut kv = folder.target().parts().expect("the metadata").1;
    let value = kv.get(&key).expect("a healthy file").expect("written home");
    let mut batch = nacre_kv::KvBatch::default();
    batch.put(key, value.slice(..value.len() - 5));
    kv.commit(&batch, nacre_kv::Durability::Durable).expect("a healthy file");
    drop(kv);

    let findings = check::examine(&folder.target(), false).expect("can be checked");
    assert_eq!(kinds(&findings), ["object"]);
    let done = repair(&repair_options(folder.target(), false)).expect("can be looked at");
    assert!(done[0].contains("--remove-unreadable"), "{done:?}");
    assert!(!check::examine(&folder.target(), false).expect("can be checked").is_sound());
    repair(&repair_options(folder.target(), true)).expect("can be repaired");
    let findings = check::examine(&folder.target(), true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
    let (mut store, _) = folder.target().look().expect("the store opens");
    assert!(store.shape(&PG, &content::large()).is_none());
    assert_eq!(each_object(&mut store, &PG, |_, _| Ok(())).expect("a list"), content::OBJECTS - 1);
}

#[test]
fn a_compaction_keeps_everything_and_gives_space_back() {
    let folder = stopped("compact");
    let (mut store, _) = folder.target().open().expect("the store opens");
    for round in 0..60_u32 {
        let entries = (0..40).map(|nth| (format!("{round}-{nth}").into(), vec![7; 900].into())).collect();
        let object = content::small(round);
        submit(&mut store, Transaction { collection: PG, ops: vec![Op::OmapSet { object, entries }] });
    }
    store.checkpoint_now().expect("a healthy device");
    for round in 0..60 {
        let object = content::small(round);
        submit(&mut store, Transaction { collection: PG, ops: vec![Op::OmapClear(object)] });
    }
    store.checkpoint_now().expect("a healthy device");
    drop(store);
    let compact::Compacted { before, after, journal } =
        compact::compact(&folder.target()).expect("can be compacted");
    assert_eq!(journal, std::fs::metadata(folder.path().join("meta.journal")).expect("a file").len());
    assert!(after * 2 < before, "{before} bytes became {after}");
    assert!(check::examine(&folder.target(), true).expect("can be checked").is_sound());
}

#[test]
fn a_dump_shows_groups_and_objects() {
    let folder = stopped("dump");
    let (mut store, _) = folder.target().look().expect("the store opens");
    let all = dump::overview(&mut store).expect("an overview");
    assert_eq!(all["placement_groups"][0]["pgid"], "2.1f");
    assert_eq!(all["placement_groups"][0]["objects"], content::OBJECTS);
    let one = dump::object(&store, &PG, &content::large()).expect("an object");
    assert_eq!(one["attrs"]["colour"], "blue\\xff");
    assert_eq!(one["omap"]["key-000"], "value 0");
    assert_eq!(one["size_bytes"], content::LARGE_BYTES);
    assert!(one["extents"][0]["crcs"][0].as_str().is_some_and(|crc| crc.len() == 8));
    let text = dump::hexdump(&mut store, &PG, &content::large(), (0, 20)).expect("data");
    assert_eq!(text.lines().count(), 2);
    assert!(text.starts_with("00000000  "), "{text}");
}

/// The file of the exported PG of a store.
fn exported(folder: &Folder) -> Vec<u8> {
    let (mut store, _) = folder.target().look().expect("the store opens");
    export::write(&mut store, &PG, Vec::new()).expect("can be exported").1
}

#[test]
fn an_exported_group_is_the_same_in_another_store() {
    let (source, target) = (stopped("export"), Folder::new("import"));
    content::only_map(&target);
    let file = exported(&source);
    let (mut store, _) = target.target().open().expect("the store opens");
    let (header, totals) = import::read(&mut store, &file[..], false).expect("can be imported");
    assert_eq!((header.pg, totals.objects), (PG, content::OBJECTS));
    let (mut original, _) = source.target().look().expect("the store opens");
    same(&mut original, &mut store);
    let again = import::read(&mut store, &file[..], false).expect_err("it is there");
    assert!(again.to_string().contains("--force"), "{again}");
    import::read(&mut store, &file[..], true).expect("replaces it");
    same(&mut original, &mut store);
    drop(store);
    let findings = check::examine(&target.target(), true).expect("can be checked");
    assert!(findings.is_sound(), "{:?}", findings.problems);
}

#[test]
fn a_cut_or_spoilt_file_leaves_nothing_behind() {
    let (source, target) = (stopped("cut"), Folder::new("cut-target"));
    content::only_map(&target);
    let file = exported(&source);
    let (mut store, _) = target.target().open().expect("the store opens");
    for length in [0, 10, 40, 500, file.len() / 2, file.len() - 1] {
        import::read(&mut store, &file[..length], false).expect_err("the file is cut off");
        assert!(!store.collections().contains(&PG), "cut to {length}");
    }
    for at in (0..file.len()).step_by(file.len() / 60 + 1) {
        let mut spoilt = file.clone();
        spoilt[at] ^= 0x10;
        import::read(&mut store, &spoilt[..], false).expect_err("a byte is wrong");
        assert!(!store.collections().contains(&PG), "byte {at}");
    }
    assert!(store.pg_meta(&PG, b"").is_empty());
}

#[test]
fn a_group_of_another_cluster_or_the_future_is_refused() {
    let source = stopped("foreign");
    let file = exported(&source);
    for (name, fsid, epoch, forced) in
        [("foreign-fsid", [9; 16], 40, true), ("foreign-old", content::FSID, 20, false)]
    {
        let target = Folder::new(name);
        content::map(&target, fsid, epoch);
        let (mut store, _) = target.target().open().expect("the store opens");
        import::read(&mut store, &file[..], false).expect_err("refused");
        assert_eq!(import::read(&mut store, &file[..], true).is_ok(), forced, "{name}");
    }
    assert!(storage::stored_maps(&source.target().look().expect("the store opens").0).len() == 1);
}

#[test]
fn log_and_metadata_may_be_elsewhere_and_must_belong_to_the_store() {
    let elsewhere = Folder::empty("elsewhere");
    let device_dirs = storage::DeviceDirs {
        log: Some(elsewhere.path().join("logs")),
        meta: Some(elsewhere.path().join("metas")),
    };
    let (one, other) = (
        Folder::with_device_dirs("device_dirs-one", &device_dirs),
        Folder::with_device_dirs("device_dirs-other", &device_dirs),
    );
    for folder in [&one, &other] {
        fill(folder);
        let findings = check::examine(&folder.target(), true).expect("can be checked");
        assert!(findings.is_sound(), "{:?}", findings.problems);
    }
    let (mut a, _) = one.target().look().expect("the store opens");
    let (mut b, _) = other.target().look().expect("the store opens");
    same(&mut a, &mut b);
    drop((a, b));
    let repair = repair(&repair_options(one.target(), false)).expect("can be repaired");
    assert_eq!(repair, ["nothing to repair"]);
    // Both have the same id here; a log that is none, or missing, is told apart all the same.
    let log = one.path().join("log");
    let file = std::fs::read_link(&log).expect("a link");
    std::fs::rename(&file, file.with_extension("away")).expect("a writable folder");
    assert!(one.target().look().is_err(), "the link leads nowhere");
    std::fs::copy(other.path().join("block"), &file).expect("a writable folder");
    let said = format!("{:#}", one.target().look().map(drop).expect_err("another store's data as log"));
    assert!(said.contains("does not belong to this store"), "{said}");
    std::fs::remove_file(&log).expect("a writable folder");
    let said = format!("{:#}", one.target().look().map(drop).expect_err("no log"));
    assert!(said.contains("on a device of its own"), "{said}");
}
