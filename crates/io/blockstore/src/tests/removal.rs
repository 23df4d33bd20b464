//! Collections that are removed while the store goes down again and again.

use super::rig::{Rig, tiny};
use crate::BlockStore;
use nacre_store::ObjectStore;
use nacre_txn::{ObjectView, Op, StoreToken, Transaction};
use nacre_types::{HObject, PgId, SpgId};

const OBJECTS: usize = 400;

fn at(seed: u32) -> SpgId {
    SpgId::replicated(PgId::new(1, seed))
}

fn object(n: usize) -> HObject {
    HObject::head(1, "".into(), "".into(), format!("o{n}").into())
}

fn submit(store: &mut BlockStore, collection: SpgId, ops: Vec<Op>) {
    store.submit(Transaction { collection, ops }, StoreToken::without_pg(0)).expect("room");
    while store.waiting() > 0 {
        store.drain(&mut Vec::new());
    }
}

fn fill(store: &mut BlockStore, text: &'static str) {
    for n in 0..OBJECTS {
        let data = text.as_bytes().to_vec().into();
        let value = text.as_bytes().to_vec().into();
        let ops = vec![
            Op::Write { object: object(n), offset: 0, data },
            Op::MetaSet { key: format!("v{n}").into(), value },
        ];
        submit(store, at(0), ops);
    }
}

/// What was removed stays so, and its blocks come back; another collection may have taken the place of the first one, and its
/// removal be under way as well.
#[test]
fn a_removal_goes_on_after_a_crash() {
    for seed in 0..12 {
        let mut rig = Rig::new(seed, 32 << 20, tiny(seed));
        let mut store = rig.open();
        fill(&mut store, "old");
        submit(&mut store, at(0), vec![Op::RemoveCollection, Op::CreateCollection]);
        fill(&mut store, "newer");
        submit(&mut store, at(0), vec![Op::RemoveCollection]);
        let last = Op::Write { object: object(3), offset: 0, data: b"newest".to_vec().into() };
        submit(&mut store, at(0), vec![last]);
        for turns in [0, 3, 40, 200] {
            (0..turns).for_each(|_| store.drain(&mut Vec::new()));
            drop(store);
            rig.crash(usize::try_from(seed).expect("small"));
            store = rig.open();
            assert_eq!(store.list(&at(0), &HObject::MIN, usize::MAX), [object(3)], "seed {seed}");
            assert!(store.pg_meta(&at(0), b"").is_empty(), "seed {seed}");
            let report = store.check(false);
            assert_eq!(report.inconsistencies, Vec::<String>::new(), "seed {seed}");
        }
        while store.idle_trim() || store.waiting() > 0 {
            store.drain(&mut Vec::new());
        }
        assert_eq!(store.check(true).objects, 1, "seed {seed}");
        assert_eq!(store.usage().allocated_bytes, 4096, "seed {seed}");
        drop(store);
        rig.kill();
        let bad = crate::bad_metadata(&mut rig.device.open(), &rig.kv, 0).expect("readable metadata");
        assert_eq!(bad, [], "seed {seed}");
    }
}
