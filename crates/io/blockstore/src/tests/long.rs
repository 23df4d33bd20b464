//! Transactions longer than any record of the log: a checkpoint makes them durable.

use super::faults::write;
use super::model::{drain, object, pg, read};
use super::rig::{Rig, tiny};
use crate::BlockStore;
use nacre_buf::Bytes;
use nacre_store::ObjectStore;
use nacre_txn::{ObjectView, Op, StoreToken, Transaction};

/// Keys of 16 KiB: twice as long together as the log of [`crate::Options::tiny`].
const KEYS: usize = 32;
const VALUE_BYTES: usize = 16 << 10;

fn long_omap(nth: u64, fill: u8) -> Transaction {
    let value = Bytes::from(vec![fill; VALUE_BYTES]);
    let entries = (0..KEYS).map(|key| (format!("{key:02}").as_str().into(), value.clone())).collect();
    Transaction { collection: pg(), ops: vec![Op::OmapSet { object: object(nth), entries }] }
}

/// Small pieces all of which travel in the record, more than it may hold.
fn long_inline(nth: u64) -> Transaction {
    let piece = |at: u64| write(nth, at * 8192, vec![at.to_le_bytes()[0]; 4000]).ops;
    Transaction { collection: pg(), ops: (0..64).flat_map(piece).collect() }
}

fn value(store: &BlockStore, nth: u64, key: usize) -> Option<u8> {
    let value = store.omap_value(&pg(), &object(nth), format!("{key:02}").as_bytes())?;
    (value.len() == VALUE_BYTES).then(|| value[0])
}

#[test]
fn what_no_record_holds_is_taken_in_order_and_survives() {
    for seed in 0..20 {
        let mut rig = Rig::new(seed, 16 << 20, tiny(seed));
        let mut store = rig.open();
        let mut acknowledged = Vec::new();
        let mut token = 0;
        let mut submit = |store: &mut BlockStore, txn: Transaction| {
            token += 1;
            store.submit(txn, StoreToken::without_pg(token)).expect("a transaction of any length is taken");
            token
        };
        for round in 0..3_u8 {
            submit(&mut store, write(1, 0, vec![round; 3000]));
            submit(&mut store, long_omap(2, round));
            submit(&mut store, write(1, 0, vec![round + 10; 3000]));
            submit(&mut store, long_inline(3));
            submit(&mut store, long_omap(2, round + 10));
            let last = submit(&mut store, write(4, 0, vec![round; 10]));
            // Some rounds end before all of it is durable.
            while (seed + u64::from(round)) % 3 != 0 && store.waiting() > 0 {
                drain(&mut store, &mut acknowledged);
            }
            if store.waiting() == 0 {
                assert_eq!(acknowledged.last(), Some(&StoreToken::without_pg(last)), "in order");
            }
        }
        while store.waiting() > 0 {
            drain(&mut store, &mut acknowledged);
        }
        assert!(acknowledged.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: in order");
        drop(store);
        rig.crash(0);
        let mut store = rig.open();
        assert!((0..KEYS).all(|key| value(&store, 2, key) == Some(12)), "seed {seed}: long values survive");
        let data = |store: &mut BlockStore, nth, at| {
            read(store, &object(nth), at, 10, &mut Vec::new()).map(|data| data[0])
        };
        assert_eq!((data(&mut store, 1, 0), data(&mut store, 4, 0)), (Ok(12), Ok(2)), "seed {seed}");
        assert!((0..64).all(|at| data(&mut store, 3, at * 8192) == Ok(u64::to_le_bytes(at)[0])));
        assert!(store.check(true).inconsistencies.is_empty());
    }
}

/// Power goes at any moment: what was acknowledged is there, and a long transaction is there as a whole or not at all.
#[test]
fn a_crash_finds_all_of_a_long_transaction_or_nothing() {
    for seed in 0..60_u64 {
        let mut rig = Rig::new(seed, 16 << 20, tiny(seed));
        let mut store = rig.open();
        let mut acknowledged = Vec::new();
        for round in 1..=4_u8 {
            store.submit(long_omap(2, round), StoreToken::without_pg(round.into())).expect("taken");
            (0..seed).for_each(|_| drop(drain(&mut store, &mut acknowledged)));
        }
        drop(store);
        rig.crash(usize::from(seed.is_multiple_of(2)));
        let store = rig.open();
        let found = value(&store, 2, 0);
        assert!((0..KEYS).all(|key| value(&store, 2, key) == found), "seed {seed}: half of a transaction");
        let least = acknowledged.last().map_or(0, |token| token.token.0);
        assert!(u64::from(found.unwrap_or(0)) >= least, "seed {seed}: {found:?}, {least} was acknowledged");
    }
}
