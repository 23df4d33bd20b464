//! One monitor's log and tables in a store of its own.

use super::*;
use nacre_kv::{MemoryKv, RedbKv};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AddrVec, EntityAddr, UTime, Uuid};
use tempfile::TempDir;

fn open(folder: &TempDir) -> RedbKv {
    RedbKv::open(&folder.path().join("store")).expect("a folder of our own")
}

fn put(value: &str) -> Batch {
    let mut batch = Batch::default();
    batch.put("table", "key", Bytes::copy_from_slice(value.as_bytes()));
    batch
}

fn copy_of(kv: &RedbKv) -> MemoryKv {
    let (mut copy, mut batch) = (MemoryKv::new(), KvBatch::default());
    for (key, value) in kv.scan_prefix(b"").expect("the device is well") {
        batch.put(key.to_vec(), value);
    }
    copy.commit(&batch, Durability::Durable).expect("memory does not fail");
    copy
}

fn value(kv: &dyn KvStore) -> Option<Bytes> {
    kv.get(b"table\0key").expect("the device is well")
}

fn options(names: &[&str]) -> MkfsOptions {
    let addr = |port| EntityAddr::parse(&format!("v2:127.0.0.1:{port}/0")).expect("an address");
    let mons = names.iter().zip(1..).map(|(name, port)| ((*name).to_owned(), AddrVec::of(addr(port))));
    MkfsOptions::new(Uuid::from_random([7; 16]), mons.collect(), UTime::default(), &mut SeededEntropy(7))
}

/// A store of a new cluster of these monitors.
fn made(folder: &TempDir, names: &[&str]) -> RedbKv {
    let (mut kv, options) = (open(folder), options(names));
    let tables = nacre_mon::mkfs(&options, UTime::default()).expect("valid options");
    bootstrap(&mut kv, &tables, &options).expect("the device is well");
    kv
}

/// Lets the replica do all that it can by itself.
fn settle(replica: &mut Replica) -> Vec<ReplicaEvent> {
    let mut events = Vec::new();
    loop {
        replica.drain(&mut events).expect("the device is well");
        if !replica.must_write() {
            return events;
        }
        replica.write(&mut events).expect("the device is well");
    }
}

/// The only monitor's replica, which leads.
fn only(kv: RedbKv, kept_entries_max: usize) -> Replica {
    let mut replica = Replica::open(Box::new(kv), "a", kept_entries_max).expect("its own store");
    let events = settle(&mut replica);
    assert!(matches!(events.last(), Some(ReplicaEvent::BecameLeader(_))), "{events:?}");
    replica
}

fn commit(replica: &mut Replica, token: u64, value: &str) {
    replica.commit(&put(value), Token(token)).expect("the only member decides");
    let events = settle(replica);
    assert!(
        matches!(&events[..], [ReplicaEvent::Applied(batch), ReplicaEvent::Committed(Token(done))]
            if *batch == put(value) && *done == token),
        "{events:?}"
    );
    replica.confirm(Token(token));
    let events = settle(replica);
    assert!(matches!(&events[..], [ReplicaEvent::Confirmed(Token(done))] if *done == token), "{events:?}");
}

#[test]
fn what_is_committed_is_there_after_a_kill_though_it_was_not_flushed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut replica = only(made(&folder, &["a"]), 10);
    commit(&mut replica, 1, "a");
    commit(&mut replica, 2, "b");
    drop(replica);
    let kv = open(&folder);
    assert_eq!(value(&kv), Some(Bytes::from_static(b"a")), "the last change is in the log alone");
    let mut replica = only(kv, 10);
    assert_eq!(value(replica.tables().expect("the device is well")), Some(Bytes::from_static(b"b")));
}

#[test]
fn a_store_of_a_program_before_the_log_is_taken_over_by_its_only_monitor() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut kv = made(&folder, &["a"]);
    let mut batch = KvBatch::default();
    for (key, _) in kv.scan_prefix(RAFT).expect("the device is well") {
        batch.delete(key);
    }
    kv.commit(&batch, Durability::Durable).expect("the device is well");
    commit(&mut only(kv, 10), 1, "a");
}

#[test]
fn the_log_does_not_grow_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut replica = only(made(&folder, &["a"]), 10);
    (0..30).for_each(|token| commit(&mut replica, token, "x"));
    replica.flush().expect("the device is well");
    drop(replica);
    let kv = open(&folder);
    let count = kv.scan_prefix(LOG).expect("the device is well").len();
    assert!((9..=12).contains(&count), "{count}");
    only(kv, 10);
}

/// A store of which somebody has put back a part, or of which a part is lost: it says what is wrong and what to do, in one line.
#[test]
fn a_log_of_which_a_part_is_lost_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut replica = only(made(&folder, &["a"]), 10);
    (0..5).for_each(|token| commit(&mut replica, token, "x"));
    replica.flush().expect("the device is well");
    drop(replica);
    let mut kv = open(&folder);
    let entries = kv.scan_prefix(LOG).expect("the device is well");
    let without = |kv: &mut RedbKv, key: &[u8]| {
        let before = kv.get(key).expect("the device is well").expect("a value");
        let mut batch = KvBatch::default();
        batch.delete(key.to_vec());
        kv.commit(&batch, Durability::Durable).expect("the device is well");
        let refused = Replica::open(Box::new(copy_of(kv)), "a", 10).err().expect("a part is missing");
        let mut batch = KvBatch::default();
        batch.put(key.to_vec(), before);
        kv.commit(&batch, Durability::Durable).expect("the device is well");
        refused.to_string()
    };
    let (newest, _) = entries.last().expect("an entry");
    let text = without(&mut kv, newest);
    assert!(text.contains("ends with entry") && text.contains("restore a backup"), "{text}");
    for key in [STATE, APPLIED] {
        let text = without(&mut kv, key);
        assert!(text.contains("a part of its log is missing; restore a backup"), "{text}");
    }
    Replica::open(Box::new(kv), "a", 10).expect("all of it is there");
}

#[test]
fn stores_that_are_made_alike_are_those_of_one_quorum_in_which_nobody_leads_alone() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (kv, twin) = (made(&folder, &["a", "b"]), made(&other, &["a", "b"]));
    let all = |kv: &RedbKv| kv.scan_prefix(b"").expect("the device is well");
    assert_eq!(all(&kv), all(&twin));
    let mut a = Replica::open(Box::new(kv), "a", 10).expect("the store of a new cluster");
    let b = Replica::open(Box::new(twin), "b", 10).expect("the store of a new cluster");
    assert_eq!((a.quorum().id(), b.quorum().id()), (NodeId(1), NodeId(2)));
    (0..100).for_each(|_| a.tick().expect("nothing is proposed"));
    let events = settle(&mut a);
    assert!(!events.iter().any(|event| matches!(event, ReplicaEvent::BecameLeader(_))), "{events:?}");
}

#[test]
fn a_store_that_was_replaced_is_refused_and_one_of_another_monitor() {
    let folder = tempfile::tempdir().expect("a folder");
    let kv = made(&folder, &["a", "b"]);
    assert!(matches!(Replica::open(Box::new(kv), "c", 10), Err(ReplicaError::Unknown(name)) if name == "c"));
    drop(Replica::open(Box::new(open(&folder)), "b", 10).expect("the store of a new cluster"));
    let error = Replica::open(Box::new(open(&folder)), "a", 10).err();
    assert!(matches!(error, Some(ReplicaError::Replaced { own: 2, .. })), "{error:?}");
}

#[test]
fn tables_that_are_received_take_the_place_of_all_that_was_there() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut source = only(made(&folder, &["a"]), 10);
    commit(&mut source, 1, "new");
    let (pairs, position, members) = source.all_tables().expect("the device is well");
    let mut target = only(made(&other, &["a"]), 10);
    let mut batch = Batch::default();
    batch.put("gone", "key", "x");
    target.commit(&batch, Token(1)).expect("the only member decides");
    settle(&mut target);
    target.received = pairs.clone();
    target.stage_tables(position, &members).expect("the device is well");
    let (now, at, _) = target.all_tables().expect("the device is well");
    assert_eq!((now, at), (pairs, position));
    assert!(target.store.scan_prefix(LOG).expect("the device is well").is_empty());
}
