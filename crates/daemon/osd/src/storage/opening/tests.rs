//! Partitions of one shard; what is found about devices.

use super::*;
use crate::storage::{DeviceDirs, device_facts, mkfs};
use nacre_buf::BufList;
use nacre_env::Clock;
use nacre_store::StoreError;
use nacre_txn::{Op, Transaction};
use nacre_types::{HObject, PgId, SpgId, Uuid};
use std::collections::BTreeMap;
use std::time::Duration;
use tempfile::TempDir;

const STORE_BYTES: u64 = 32 << 20;
const OBJECT_BYTES: usize = 256 << 10;
const MEMORY_BYTES: usize = 256 << 20;

fn object(nth: u32) -> HObject {
    HObject::head(2, "".into(), "".into(), format!("object.{nth}").into())
}

fn submit(store: &mut dyn ObjectStore, at: SpgId, ops: Vec<Op>) -> Result<(), StoreError> {
    store.submit(Transaction { collection: at, ops }, StoreToken::without_pg(1))
}

fn write(store: &mut dyn ObjectStore, at: SpgId, nth: u32) -> Result<(), StoreError> {
    let data = BufList::from(vec![7; OBJECT_BYTES]);
    submit(store, at, vec![Op::Write { object: object(nth), offset: 0, data }])
}

/// The only thread has no turn for the one that could give, while the other one waits.
#[test]
fn a_partition_gets_what_another_one_of_its_shard_can_spare_within_a_write() {
    let temporary = TempDir::with_prefix("nacre-shares").expect("a writable temporary folder");
    let folder = temporary.path().join("osd.0");
    mkfs(&folder, Uuid([5; 16]), (STORE_BYTES, 2), &DeviceDirs::default(), None).expect("can be made");
    let config = StoreConfig::File { folder, memory_bytes: MEMORY_BYTES, key: None };
    let nets = [RealNet::new().expect("an epoll")];
    let mut stores = HeldStore::hold(&config).and_then(|held| held.open(&nets)).expect("it opens");
    let [store] = &mut stores[..] else { panic!("one shard") };
    assert_eq!(store.partitions(), 2);
    let [filled, beside] = [0, 1].map(|seed| SpgId::replicated(PgId::new(2, seed)));
    for (partition, at) in [filled, beside].into_iter().enumerate() {
        assert!(store.place(&at, partition));
        submit(store.as_mut(), at, vec![Op::CreateCollection]).expect("room");
    }
    let mut count = 0;
    while write(store.as_mut(), filled, count).is_ok() {
        store.drain(&mut Vec::new());
        count += 1;
    }
    assert!(count as usize * OBJECT_BYTES > 16 << 20, "{count} objects");
    let removals = (0..count).map(|nth| Op::Remove(object(nth))).collect();
    submit(store.as_mut(), filled, removals).expect("a removal needs no room");
    let clock = RealClock::start();
    let before = clock.now();
    for nth in 0..count * 3 / 4 {
        write(store.as_mut(), beside, nth).unwrap_or_else(|error| panic!("object {nth} of {count}: {error}"));
    }
    assert!(clock.now().since(before) < Duration::from_secs(2), "it waited");
    assert_eq!(store.list(&beside, &HObject::MIN, usize::MAX).len(), count as usize * 3 / 4);
}

/// Both devices are measured, and nothing of the one is said of the other.
#[test]
fn what_is_known_of_each_device_has_names_of_its_own() {
    let temporary = TempDir::with_prefix("nacre-devices").expect("a writable temporary folder");
    let facts = |name: &str, dirs: &DeviceDirs| {
        let folder = temporary.path().join(name);
        mkfs(&folder, Uuid([5; 16]), (STORE_BYTES, 1), dirs, None).expect("can be made");
        let config = StoreConfig::File { folder: folder.clone(), memory_bytes: MEMORY_BYTES, key: None };
        let nets = [RealNet::new().expect("an epoll")];
        drop(HeldStore::hold(&config).and_then(|held| held.open(&nets)).expect("it opens"));
        device_facts(&folder)
    };
    let has = |facts: &BTreeMap<String, String>, role: &str, names: &[&str]| {
        names.iter().all(|name| facts.contains_key(&format!("{role}_{name}")))
    };
    let costs = ["cached_write_us", "durable_write_us", "flush", "flush_us", "read_us"];
    let fast = Some(temporary.path().join("fast"));
    let apart = facts("osd.0", &DeviceDirs { log: fast.clone(), meta: fast });
    for role in ["nacre_bdev", "nacre_log"] {
        assert!(has(&apart, role, &costs), "{role} in {apart:?}");
    }
    for role in ["nacre_bdev", "nacre_log", "nacre_meta"] {
        assert!(has(&apart, role, &["rotational", "volatile_cache"]), "{role} in {apart:?}");
    }
    assert!(!has(&apart, "nacre_meta", &costs[..1]), "metadata are not measured");
    let together = facts("osd.1", &DeviceDirs::default());
    assert!(has(&together, "nacre_bdev", &costs), "{together:?}");
    let of_log = together.keys().filter(|name| name.starts_with("nacre_log_"));
    assert_eq!(of_log.collect::<Vec<_>>(), ["nacre_log_apart"]);
}
