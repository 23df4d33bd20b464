//! Any mix of operations, reopened at any point, compared with the model.

use super::model::{Model, Sizes, drain, random_txn};
use super::rig::{Rig, tiny};
use nacre_store::{ObjectStore, SubmitHint};
use nacre_txn::StoreToken;
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

/// Transactions in a normal run; `NACRE_STORE_TRANSACTIONS` asks for more.
const TRANSACTIONS: u64 = 6000;
/// Transactions per store.
const PER_SEED: u64 = 500;

fn run(seed: u64) {
    is_a_model_of(seed, Rig::new(seed, 8 << 20, tiny(seed)));
}

pub(super) fn is_a_model_of(seed: u64, mut rig: Rig) {
    let mut rng = SeededEntropy(seed);
    let sizes = Sizes { object_bytes_max: 120_000, write_bytes_max: 60_000 };
    let mut store = rig.open();
    let (mut model, mut acknowledged) = (Model::default(), Vec::new());
    for number in 1..=PER_SEED {
        let txn = random_txn(&mut rng, number, sizes);
        model.apply(&txn);
        store.set_submit_hint(if number.is_multiple_of(2) { SubmitHint::Now } else { SubmitHint::Batch });
        store.submit(txn, StoreToken::without_pg(number)).expect("room");
        let chance = rng.u64() % 100;
        if chance < 70 {
            drain(&mut store, &mut acknowledged);
        }
        if chance < 5 {
            model.compare(&mut store, &mut acknowledged, &format!("seed {seed}, transaction {number}"));
            let report = store.check(false);
            assert!(report.inconsistencies.is_empty(), "seed {seed}, {number}: {:?}", report.inconsistencies);
        }
        if chance == 6 {
            store.idle_trim();
        }
        if chance == 7 {
            while store.waiting() > 0 {
                drain(&mut store, &mut acknowledged);
            }
            drop(store);
            store = rig.open();
            model.compare(&mut store, &mut acknowledged, &format!("seed {seed}, reopened at {number}"));
        }
    }
    while store.waiting() > 0 {
        drain(&mut store, &mut acknowledged);
    }
    assert!(
        acknowledged.iter().copied().eq((1..=PER_SEED).map(StoreToken::without_pg)),
        "seed {seed}: acknowledgements out of order"
    );
    model.compare(&mut store, &mut acknowledged, &format!("seed {seed}, at the end"));
}

#[test]
fn agrees_with_a_model() {
    let asked = std::env::var("NACRE_STORE_TRANSACTIONS").ok().and_then(|text| text.parse().ok());
    let first: u64 = std::env::var("NACRE_STORE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    (first..first + asked.unwrap_or(TRANSACTIONS).div_ceil(PER_SEED)).for_each(run);
}
