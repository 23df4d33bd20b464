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

/// All tables at once.
fn read_tables(replica: &mut Replica) -> (Vec<Pair>, LogPosition, Members) {
    let (mut tables, position, members) = replica.all_tables().expect("the device is well");
    let mut parts = Vec::new();
    while parts.last().is_none_or(|part: &Vec<Pair>| !part.is_empty()) {
        parts.push(tables.read(100).expect("the device is well"));
    }
    (parts.concat(), position, members)
}

#[test]
fn tables_that_are_received_take_the_place_of_all_that_was_there() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut source = only(made(&folder, &["a"]), 10);
    commit(&mut source, 1, "new");
    let (pairs, position, members) = read_tables(&mut source);
    assert!(pairs.is_sorted() && !pairs.iter().any(|(key, _)| key.starts_with(RAFT)));
    let mut target = only(made(&other, &["a"]), 10);
    let mut batch = Batch::default();
    batch.put("gone", "key", "x");
    target.commit(&batch, Token(1)).expect("the only member decides");
    settle(&mut target);
    // Those of another position, which came with them, stay out of it; and without any nothing is replaced.
    let elsewhere = LogPosition { index: position.index + 1, ..position };
    target.received = BTreeMap::from([(position.index, pairs.clone()), (elsewhere.index + 1, Vec::new())]);
    assert!(matches!(target.stage_tables(elsewhere, &members), Err(ReplicaError::OtherTables(_))));
    target.stage_tables(position, &members).expect("the device is well");
    let (now, at, _) = read_tables(&mut target);
    assert_eq!((now, at), (pairs, position));
    assert!(target.store.scan_prefix(LOG).expect("the device is well").is_empty());
}

fn addr(port: u16) -> AddrVec {
    AddrVec::of(EntityAddr::parse(&format!("v2:127.0.0.1:{port}/0")).expect("an address"))
}

/// A store that joins: it follows whoever sends it tables, whatever it was told before, and is none of a new log.
#[test]
fn a_store_that_joins_waits_for_its_tables() {
    let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut source = only(made(&folder, &["a"]), 10);
    commit(&mut source, 1, "x");
    let seed = store::read(source.tables().expect("the device is well"), |tables| {
        nacre_mon::recover(tables, "b", addr(2), UTime::default()).expect("its own encoding")
    });
    let (tables, id) = seed.expect("the device is well").expect("a cluster");
    let mut kv = open(&other);
    begin_to_join(&mut kv, &tables, id).expect("the device is well");
    let mut joins = Replica::open(Box::new(kv), "b", 10).expect("a seed");
    (0..100).for_each(|_| joins.tick().expect("nothing is proposed"));
    let events = settle(&mut joins);
    assert!(!events.iter().any(|event| matches!(event, ReplicaEvent::BecameLeader(_))), "{events:?}");
    drop(joins);
    // The term that it has seen is kept, and is no log.
    let mut kv = open(&other);
    let mut batch = KvBatch::default();
    let hard_state = HardState { term: 9, vote: 1, commit: 0 };
    batch.put(STATE, state_bytes(hard_state, LogPosition::default()));
    kv.commit(&batch, Durability::Durable).expect("the device is well");
    let mut joins = Replica::open(Box::new(kv), "b", 10).expect("a seed and a term");
    assert_eq!((joins.quorum().term(), joins.quorum().id()), (9, NodeId(id)));
    // The tables come, and it is as any other.
    let (pairs, position, _) = read_tables(&mut source);
    joins.received = BTreeMap::from([(position.index, pairs)]);
    joins.stage_tables(position, &Members::voting([NodeId(id)])).expect("the device is well");
    joins.flush().expect("the device is well");
    assert_eq!(joins.store.get(JOINS).expect("the device is well"), None);
}

#[test]
fn a_cluster_begins_anew_with_all_that_one_store_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut lost = only(made(&folder, &["a"]), 10);
    commit(&mut lost, 1, "in the tables");
    commit(&mut lost, 2, "in the log alone");
    drop(lost);
    let mut kv = open(&folder);
    assert_eq!(value(&kv), Some(Bytes::from_static(b"in the tables")));
    let before = load(&kv).expect("the device is well").expect("a log");
    recover(&mut kv, "north", addr(9), UTime { sec: 5, nsec: 0 }).expect("the device is well");
    let monitors = Monitors::read(&kv).expect("its own encoding");
    assert_eq!((monitors.map.ranks.join(","), monitors.incarnation()), ("north".to_owned(), 1));
    assert!(monitors.is_gone(NodeId(1)), "the member of before is none any more");
    assert!(matches!(Replica::open(Box::new(copy_of(&kv)), "a", 10), Err(ReplicaError::Unknown(_))));
    let mut replica = Replica::open(Box::new(kv), "north", 10).expect("a log of its own");
    let events = settle(&mut replica);
    assert!(matches!(events.last(), Some(ReplicaEvent::BecameLeader(_))), "{events:?}");
    assert!(replica.quorum().term() > before.hard_state.term, "no term is had twice");
    assert_eq!(
        value(replica.tables().expect("the device is well")),
        Some(Bytes::from_static(b"in the log alone"))
    );
    commit(&mut replica, 3, "goes on");
    // There must be something to begin with.
    let mut empty = MemoryKv::new();
    assert!(matches!(recover(&mut empty, "a", addr(9), UTime::default()), Err(ReplicaError::NoTables)));
}

#[test]
fn addresses_change_in_a_store_that_nobody_uses() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut kv = made(&folder, &["a", "b"]);
    let unknown = set_addrs(&mut kv, &[("c".to_owned(), addr(9))]);
    assert!(matches!(unknown, Err(ReplicaError::Unknown(name)) if name == "c"));
    let mut twin = copy_of(&kv);
    for store in [&mut kv as &mut dyn KvStore, &mut twin] {
        set_addrs(store, &[("b".to_owned(), addr(9))]).expect("the device is well");
    }
    let all = |kv: &dyn KvStore| kv.scan_prefix(b"").expect("the device is well");
    assert_eq!(all(&kv), all(&twin), "the stores of a quorum stay alike");
    let map = Monitors::read(&kv).expect("its own encoding").map;
    assert_eq!((map.epoch, map.mons["b"].addrs.clone(), map.mons["a"].addrs.clone()), (2, addr(9), addr(1)));
}

/// A change of the map that is in the log alone would undo what is changed in the tables.
#[test]
fn addresses_do_not_change_while_the_map_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut replica = only(made(&folder, &["a"]), 10);
    let tables = replica.tables().expect("the device is well");
    let moved = store::read(tables, |tables| nacre_mon::set_addrs(tables, &[("a".to_owned(), addr(7))]));
    let batch = moved.expect("the device is well").expect("its own encoding").expect("a cluster");
    replica.commit(&batch, Token(1)).expect("the only member decides");
    settle(&mut replica);
    drop(replica);
    let refused = set_addrs(&mut open(&folder), &[("a".to_owned(), addr(9))]);
    assert!(matches!(refused, Err(ReplicaError::MapUnderWay)), "{refused:?}");
}

#[test]
fn a_monitor_that_was_removed_does_not_start_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut replica = Replica::open(Box::new(made(&folder, &["a", "b"])), "b", 10).expect("a new cluster's");
    replica.note_gone().expect("the device is well");
    drop(replica);
    let refused = Replica::open(Box::new(open(&folder)), "b", 10).err();
    assert!(matches!(refused, Some(ReplicaError::Removed(name)) if name == "b"));
}

/// From its first tick on, not only after the next change of the monitors' map.
#[test]
fn a_witness_that_starts_stands_for_election_behind_the_others() {
    const MONMAP: &[u8] = b"monmap\0current";
    let patience = |disallowed: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kv = made(&folder, &["a", "b"]);
        let stored = kv.get(MONMAP).expect("the device is well").expect("a map");
        let mut map = nacre_maps::MonMap::from_bytes(stored).expect("our own");
        map.strategy = nacre_maps::STRATEGY_DISALLOW;
        map.disallowed_leaders.insert(disallowed.to_owned());
        let mut batch = KvBatch::default();
        batch.put(MONMAP.to_vec(), map.to_bytes());
        kv.commit(&batch, Durability::Durable).expect("the device is well");
        let mut replica = Replica::open(Box::new(kv), "a", 10).expect("its own store");
        settle(&mut replica);
        (1..).find(|_| {
            replica.tick().expect("the device is well");
            settle(&mut replica).iter().any(|event| matches!(event, ReplicaEvent::Send(..)))
        })
    };
    assert_eq!([patience("b"), patience("a")], [Some(20), Some(22)]);
}
