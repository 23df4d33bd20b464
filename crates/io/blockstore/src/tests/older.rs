//! Stores of format 2: objects are converted as they are changed, and no crash finds one by half.

use super::crash::{run_on, seeds};
use super::rig::{Rig, tiny};
use crate::kv_schema::{State, prefix, state_key};
use crate::objects;
use nacre_kv::{KvBatch, KvStore, MemoryKv, Pair};
use std::ops::Bound;

/// The same metadata as a program wrote them that knew format 2: all blocks of an object in its record.
fn to_format_2(pairs: &[Pair]) -> Vec<Pair> {
    let mut kv = MemoryKv::new();
    let mut batch = KvBatch::default();
    pairs.iter().for_each(|(key, value)| batch.put(key.clone(), value.clone()));
    kv.commit(&batch, nacre_kv::Durability::Durable).expect("memory");
    let mut batch = KvBatch::default();
    batch.delete_prefix(vec![prefix::OBJECT]);
    objects::each::<nacre_kv::KvError>(&kv, |records| {
        let onode = records.decode().expect("our own records").onode;
        batch.put(crate::kv_schema::object_key(onode.id), onode.encode_format_2());
        Ok(())
    })
    .expect("memory");
    let state = kv.get(&state_key()).expect("memory").expect("a store");
    let has_copies = pairs.iter().any(|(key, _)| key.first() == Some(&prefix::COPY));
    let mut state = State::decode(state).expect("our own").state.encode().to_vec();
    let version = if has_copies { 3 } else { 2 };
    state[..2].copy_from_slice(&[version, version]);
    batch.put(state_key(), state);
    kv.commit(&batch, nacre_kv::Durability::Durable).expect("memory");
    kv.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).expect("memory")
}

#[test]
fn a_store_of_format_2_is_converted_as_it_changes_whenever_power_goes() {
    for seed in seeds().map(|seed| seed + 50_000) {
        let rig = Rig::new(seed, 4 << 20, tiny(seed));
        let older = |rig: &Rig| rig.restore_metadata(&to_format_2(&rig.copy_metadata()));
        run_on(seed, rig, older).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Only what is changed is.
#[test]
fn what_is_not_changed_stays_as_it_was() {
    use super::faults::write;
    use super::model::{drain, object, read};
    use crate::onode::OwnRecord;
    use nacre_store::ObjectStore;
    use nacre_txn::StoreToken;
    let mut rig = Rig::new(1, 16 << 20, tiny(1));
    let mut store = rig.open();
    let settle = |store: &mut crate::BlockStore, nth, at, fill: u8, token| {
        let txn = write(nth, at, vec![fill; 40_000]);
        store.submit(txn, StoreToken::without_pg(token)).expect("room");
        while store.waiting() > 0 {
            drain(store, &mut Vec::new());
        }
        store.finish_checkpoint();
    };
    settle(&mut store, 1, 0, 1, 1);
    settle(&mut store, 2, 0, 2, 2);
    drop(store);
    rig.crash(0);
    rig.restore_metadata(&to_format_2(&rig.copy_metadata()));
    let mut store = rig.open();
    settle(&mut store, 2, 60_000, 3, 3);
    let bytes =
        |store: &mut _, nth, at| read(store, &object(nth), at, 1, &mut Vec::new()).map(|data| data[0]);
    assert_eq!((bytes(&mut store, 1, 39_999), bytes(&mut store, 2, 39_999)), (Ok(1), Ok(2)));
    assert_eq!((bytes(&mut store, 2, 50_000), bytes(&mut store, 2, 99_999)), (Ok(0), Ok(3)));
    assert!(store.check(true).inconsistencies.is_empty());
    drop(store);
    rig.crash(0);
    let kept = rig.copy_metadata();
    let own = kept.iter().filter(|(key, _)| crate::kv_schema::is_object_key(key));
    let paged: Vec<bool> =
        own.map(|(_, value)| OwnRecord::decode(0, value.clone()).expect("our own").is_paged()).collect();
    assert_eq!(paged, [false, true]);
}
