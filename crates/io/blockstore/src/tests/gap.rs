//! A log that ends too early: what was acknowledged must not be forgotten because the device forgot it.

use super::faults::write;
use super::model::{drain, object, pg, read};
use super::rig::Rig;
use crate::{BLOCK, BlockStore, MountReport, OpenError, Options};
use nacre_buf::AlignedBuf;
use nacre_env::disk::{Durability, blocking};
use nacre_store::{ObjectStore, SubmitHint};
use nacre_txn::{ObjectView, Op, StoreToken, Transaction};
use nacre_types::{HObject, PgId, SpgId};

/// What a device may do to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    Rot,
    Lost,
    Unreadable,
}

const DAMAGES: [Damage; 3] = [Damage::Rot, Damage::Lost, Damage::Unreadable];

/// One that is a record by itself, as long as a block but for a few bytes.
fn submit(store: &mut BlockStore, nth: u64) {
    store.submit(write(nth, 0, vec![7; 3700]), StoreToken::without_pg(nth)).expect("room");
}

fn submit_and_wait(store: &mut BlockStore, nth: u64) {
    submit(store, nth);
    while store.waiting() > 0 {
        drain(store, &mut Vec::new());
    }
}

/// Device offsets of the records of the log, by sequence number: all are one block long.
fn records(rig: &Rig) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = (2..66)
        .filter_map(|block| {
            let bytes = rig.device.peek(block * BLOCK as u64, BLOCK);
            let seq = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes"));
            bytes.starts_with(b"NacreWAL").then_some((seq, block * BLOCK as u64))
        })
        .collect();
    found.sort_unstable();
    found
}

fn damage(rig: &Rig, offset: u64, damage: Damage) {
    match damage {
        // Not in the zeros behind the record.
        Damage::Rot => {
            let mut bytes = rig.device.peek(offset, BLOCK);
            bytes[50] ^= 4;
            overwrite(rig, offset, &bytes);
        }
        Damage::Unreadable => rig.device.fail_reads_at(offset),
        Damage::Lost => overwrite(rig, offset, &[0; BLOCK]),
    }
}

fn overwrite(rig: &Rig, offset: u64, bytes: &[u8]) {
    let mut content = AlignedBuf::with_len(BLOCK);
    content.copy_from_slice(bytes);
    let content = content.freeze().into();
    blocking::write(&mut rig.device.open(), offset, content, Durability::Durable).expect("healthy");
}

fn written(seed: u64, count: u64) -> Rig {
    let mut rig = Rig::new(seed, 8 << 20, Options::tiny());
    let mut store = rig.open();
    (1..=count).for_each(|nth| submit_and_wait(&mut store, nth));
    assert_eq!(store.checkpoints(), 0);
    drop(store);
    rig
}

fn refusal(rig: &mut Rig) -> OpenError {
    match rig.try_open() {
        Ok((_, report)) => panic!("opened: {report:?}"),
        Err(error) => error,
    }
}

#[test]
fn a_store_whose_acknowledged_record_is_damaged_is_refused_and_the_gap_is_named() {
    for (seed, how) in (0..).zip(DAMAGES) {
        // The last one looks like one that never was.
        for nth in 0..8 {
            let mut rig = written(seed, 8);
            let (seq, offset) = records(&rig)[nth];
            damage(&rig, offset, how);
            match refusal(&mut rig) {
                OpenError::LogGap(gap) => {
                    let found = (gap.seq, gap.block * BLOCK as u64, gap.later, gap.last);
                    assert_eq!(found, (seq, offset, 8 - nth as u64, 9), "{how:?}");
                    assert_eq!(gap.unreadable.is_some(), how == Damage::Unreadable);
                }
                error => panic!("{how:?}: {error}"),
            }
            // Nothing was changed: it is refused for as long as it is damaged.
            let text = refusal(&mut rig).to_string();
            assert!(text.contains(&format!("record {seq} of the log")), "{text}");
        }
    }
}

/// What lies beside a torn record was under way with it.
#[test]
fn records_that_were_under_way_behind_a_torn_one_do_not_prevent_opening() {
    let mut rig = Rig::new(3, 8 << 20, Options::tiny());
    let mut store = rig.open();
    submit_and_wait(&mut store, 1);
    store.set_submit_hint(SubmitHint::Now);
    (2..=3).for_each(|nth| submit(&mut store, nth));
    drop(store);
    let all = records(&rig);
    damage(&rig, all[2].1, Damage::Lost);
    let (mut store, report) = rig.try_open().expect("nothing says that it was durable");
    assert_eq!((report.records, report.gap), (2, None));
    assert_eq!(store.list(&pg(), &HObject::MIN, 9), [object(1)]);
    // What lay behind it is of an earlier mount now, and may be as whole as it likes.
    (4..9).for_each(|nth| submit_and_wait(&mut store, nth));
    drop(store);
    let store = rig.open();
    assert_eq!(store.list(&pg(), &HObject::MIN, 9).len(), 6);
}

/// A record of an earlier mount is as much a part of the log as one of the last.
#[test]
fn damage_before_the_last_opening_is_found() {
    let mut rig = written(4, 3);
    let mut store = rig.open();
    submit_and_wait(&mut store, 4);
    drop(store);
    for nth in [0, 3] {
        let offset = records(&rig)[nth].1;
        let before = rig.device.peek(offset, BLOCK);
        damage(&rig, offset, Damage::Lost);
        assert!(matches!(refusal(&mut rig), OpenError::LogGap(gap) if gap.later == 5 - nth as u64));
        overwrite(&rig, offset, &before);
    }
    assert_eq!(rig.open().list(&pg(), &HObject::MIN, 9).len(), 4);
}

#[test]
fn a_bad_sector_in_the_unused_log_does_not_matter() {
    let mut rig = written(5, 3);
    let unused = records(&rig)[3].1 + 10 * BLOCK as u64;
    damage(&rig, unused, Damage::Unreadable);
    let (mut store, report) = rig.try_open().expect("nothing is lost");
    assert_eq!((report.log_blocks_unreadable, report.records, report.gap), (1, 4, None));
    (4..40).for_each(|nth| submit_and_wait(&mut store, nth));
    drop(store);
    let (store, report) = rig.try_open().expect("a healthy device");
    assert_eq!(report.log_blocks_unreadable, 0, "it was written");
    assert_eq!(store.list(&pg(), &HObject::MIN, 99).len(), 39);
}

fn another() -> SpgId {
    SpgId::replicated(PgId::new(9, 0))
}

fn with_two_collections() -> Rig {
    let mut rig = Rig::new(6, 8 << 20, Options::tiny());
    let mut store = rig.open();
    let name = HObject::head(9, "".into(), "".into(), "kept".into());
    let ops = vec![Op::Write { object: name, offset: 0, data: vec![5; 9000].into() }];
    store.submit(Transaction { collection: another(), ops }, StoreToken::without_pg(0)).expect("room");
    store.finish_checkpoint();
    (1..=4).for_each(|nth| submit_and_wait(&mut store, nth));
    store.finish_checkpoint();
    (5..=9).for_each(|nth| submit_and_wait(&mut store, nth));
    drop(store);
    let all = records(&rig);
    damage(&rig, all[all.len() - 4].1, Damage::Rot);
    rig
}

fn give_up(rig: &Rig) -> Result<Vec<SpgId>, OpenError> {
    let (disk, kv) = (Box::new(rig.device.open()), Box::new(rig.kv.clone()));
    crate::give_up_groups(disk, kv, rig.options.clone(), &another())
}

#[test]
fn a_store_with_a_gap_can_be_looked_at_and_gives_up_what_may_have_lost_writes() {
    let mut rig = with_two_collections();
    let (disk, kv) = (Box::new(rig.device.open()), Box::new(rig.kv.clone()));
    let gap = crate::log_gap(disk, kv, rig.options.clone()).expect("healthy").expect("a gap");
    assert!(matches!(refusal(&mut rig), OpenError::LogGap(found) if found == gap));
    assert_eq!(give_up(&rig).expect("healthy"), [pg()]);
    let (mut store, report): (_, MountReport) = rig.try_open().expect("the gap is gone");
    assert_eq!((report.gap, report.collections, report.objects), (None, 1, 1));
    assert_eq!(store.collections(), [another()]);
    let report = store.check(true);
    assert!(report.inconsistencies.is_empty() && report.damaged.is_empty(), "{report:?}");
    submit_and_wait(&mut store, 1);
    drop(store);
    assert_eq!(read(&mut rig.open(), &object(1), 0, 10, &mut Vec::new()).expect("there").len(), 10);
    assert!(matches!(give_up(&rig), Err(OpenError::Inconsistent { .. })), "there is nothing to give up");
}

/// Whenever it ends, the store is refused or has given up all of it.
#[test]
fn giving_up_may_be_interrupted() {
    let mut done = 0;
    for requests in 0..60 {
        let mut rig = with_two_collections();
        rig.device.fail_after(requests, nacre_simdisk::Failing::FromThenOn);
        let outcome = give_up(&rig);
        rig.device.heal();
        rig.crash(0);
        match rig.try_open() {
            Ok((store, _)) => {
                assert_eq!(store.collections(), [another()], "{requests}: {outcome:?}");
                done += 1;
            }
            Err(OpenError::LogGap(_)) => {
                give_up(&rig).unwrap_or_else(|error| panic!("{requests}: {error}"));
                assert_eq!(rig.open().collections(), [another()]);
            }
            Err(error) => panic!("{requests}: {error}"),
        }
    }
    assert!((1..60).contains(&done), "{done} of 60 were done");
}

/// Metadata of before: what the log does not have any more would be forgotten, blocks would belong to two.
#[test]
fn metadata_older_than_the_device_are_refused() {
    for more in [1, 5, 60, 200] {
        let mut rig = Rig::new(8, 8 << 20, Options::tiny());
        let mut store = rig.open();
        (1..=5).for_each(|nth| submit_and_wait(&mut store, nth));
        store.finish_checkpoint();
        drop(store);
        let copy = rig.copy_metadata();
        let mut store = rig.open();
        (6..=9).for_each(|nth| submit_and_wait(&mut store, nth));
        store.finish_checkpoint();
        let newest = rig.copy_metadata();
        (0..more).for_each(|nth| submit_and_wait(&mut store, nth % 20));
        let newest = if store.checkpoints() > 1 { rig.copy_metadata() } else { newest };
        drop(store);
        rig.restore_metadata(&copy);
        assert!(matches!(refusal(&mut rig), OpenError::StaleMetadata { .. }), "{more}");
        rig.restore_metadata(&newest);
        assert!(read(&mut rig.open(), &object(9), 0, 10, &mut Vec::new()).is_ok());
    }
}

/// As long as the log still has all of it, and nothing was written over what the older state refers to, that is the same store.
#[test]
fn metadata_whose_whole_log_is_still_there_are_as_good_as_the_newest() {
    let mut rig = Rig::new(9, 8 << 20, Options::tiny());
    let mut store = rig.open();
    (1..=5).for_each(|nth| submit_and_wait(&mut store, nth));
    let copy = rig.copy_metadata();
    store.finish_checkpoint();
    drop(store);
    rig.restore_metadata(&copy);
    let mut store = rig.open();
    assert_eq!(store.list(&pg(), &HObject::MIN, 9).len(), 5);
    let report = store.check(true);
    assert!(report.inconsistencies.is_empty() && report.damaged.is_empty(), "{report:?}");
}

/// A checkpoint that carries what the log had no room for says so on the device as well.
#[test]
fn a_checkpoint_with_transactions_without_a_record_makes_older_metadata_stale() {
    let mut rig = Rig::new(10, 8 << 20, Options::tiny());
    let mut store = rig.open();
    let copy = rig.copy_metadata();
    rig.commits_take(1);
    // More than the log takes, before anything of it is written.
    (1..=80).for_each(|nth| submit(&mut store, nth));
    store.start_checkpoint();
    while store.waiting() > 0 {
        drain(&mut store, &mut Vec::new());
    }
    (0..20).for_each(|_| drop(drain(&mut store, &mut Vec::new())));
    assert_eq!(store.checkpoints(), 1);
    drop(store);
    assert_eq!(rig.open().list(&pg(), &HObject::MIN, 99).len(), 80);
    rig.restore_metadata(&copy);
    assert!(matches!(refusal(&mut rig), OpenError::StaleMetadata { .. }));
}

#[test]
fn a_device_older_than_its_metadata_is_refused() {
    let mut rig = written(11, 3);
    let log: Vec<Vec<u8>> = (2..66).map(|block| rig.device.peek(block * BLOCK as u64, BLOCK)).collect();
    let mut store = rig.open();
    (4..=9).for_each(|nth| submit_and_wait(&mut store, nth));
    store.finish_checkpoint();
    drop(store);
    (2..).zip(&log).for_each(|(block, bytes)| overwrite(&rig, block * BLOCK as u64, bytes));
    assert!(matches!(refusal(&mut rig), OpenError::StaleDevice { .. }));
}
