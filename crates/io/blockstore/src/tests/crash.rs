//! Power goes at any moment: all that was acknowledged is there, nothing by half, and the store opens.

use super::model::{Model, Sizes, drain, newest, object, random_txn, read};
use super::rig::{Rig, tiny};
use crate::options::Planted;
use crate::{BlockStore, Options};
use nacre_store::{DiscardPolicy, ObjectStore, SubmitHint};
use nacre_txn::StoreToken;
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

/// Crashes in a normal run; `NACRE_STORE_CRASHES` asks for more.
const CRASHES: u64 = 400;
/// Crashes per store.
pub(super) const PER_SEED: u64 = 20;
/// Transactions between two crashes at most.
const TRANSACTIONS_MAX: u64 = 40;

/// States of the model after each transaction since the last one that is known to be there.
pub(super) struct History {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) states: Vec<Model>,
}

impl History {
    pub(super) fn newest(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }

    fn push(&mut self, state: Model) {
        self.states.push(state);
    }

    fn state(&self, number: u64) -> Option<&Model> {
        self.states.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

pub(super) fn work(
    store: &mut BlockStore,
    rng: &mut SeededEntropy,
    history: &mut History,
    acknowledged: &mut Vec<StoreToken>,
) -> Result<(), nacre_store::StoreError> {
    let sizes = Sizes { object_bytes_max: 100_000, write_bytes_max: 50_000 };
    for _ in 0..rng.u64() % TRANSACTIONS_MAX {
        let number = history.newest() + 1;
        let txn = random_txn(rng, number, sizes);
        let mut state = history.states.last().cloned().unwrap_or_default();
        state.apply(&txn);
        store.set_submit_hint(if number.is_multiple_of(2) { SubmitHint::Now } else { SubmitHint::Batch });
        let outcome = store.submit(txn, StoreToken::without_pg(number));
        // A store that fails in it may have logged it.
        history.push(state);
        outcome?;
        for _ in 0..rng.u64() % 6 {
            drain(store, acknowledged);
        }
        if rng.u64().is_multiple_of(16) {
            let _any_answer = read(store, &object(rng.u64() % 6), rng.u64() % 50_000, 9000, acknowledged);
        }
    }
    Ok(())
}

/// What the store must show after a restart: one of the states since the last acknowledgement.
pub(super) fn verify(
    store: &mut BlockStore,
    history: &mut History,
    acknowledged: u64,
    context: &str,
) -> Result<(), String> {
    let found = newest(store);
    if found < acknowledged || found > history.newest() {
        return Err(format!(
            "{context}: shows {found}, acknowledged {acknowledged}, submitted {}",
            history.newest()
        ));
    }
    let state =
        history.state(found).ok_or_else(|| format!("{context}: {found} is before what was there"))?.clone();
    state.compare(store, &mut Vec::new(), context);
    let report = store.check(false);
    assert!(report.inconsistencies.is_empty(), "{context}: {:?}", report.inconsistencies);
    *history = History { first: found, states: vec![state] };
    Ok(())
}

fn run(seed: u64, options: Options) -> Result<(), String> {
    run_on(seed, Rig::new(seed, 4 << 20, options), |_| ())
}

/// `away` has what happens to the metadata while the store is not open.
pub(super) fn run_on(seed: u64, mut rig: Rig, away: impl Fn(&Rig)) -> Result<(), String> {
    let mut rng = SeededEntropy(seed);
    let mut history = History { first: 0, states: vec![Model::default()] };
    for crash in 0..PER_SEED {
        let context = format!("seed {seed}, crash {crash}");
        let (mut store, _) = rig.try_open().map_err(|error| format!("{context}: {error}"))?;
        let first = history.first;
        verify(&mut store, &mut history, first, &context)?;
        let mut acknowledged = Vec::new();
        work(&mut store, &mut rng, &mut history, &mut acknowledged)
            .map_err(|error| format!("{context}: {error}"))?;
        if rng.u64().is_multiple_of(4) {
            (0..rng.u64() % 40).for_each(|_| drop(drain(&mut store, &mut acknowledged)));
        }
        rig.crash(usize::try_from(rng.u64() % 3).unwrap_or_default());
        away(&rig);
        let last = acknowledged.last().map_or(history.first, |token| token.token.0);
        drop(store);
        // Sometimes power goes again while the store opens; it must not matter.
        if rng.u64().is_multiple_of(4) {
            drop(rig.try_open().map_err(|error| format!("{context}, again: {error}"))?);
            rig.crash(0);
        }
        let (mut store, _) = rig.try_open().map_err(|error| format!("{context}: {error}"))?;
        verify(&mut store, &mut history, last, &context)?;
        drop(store);
        rig.crash(0);
        away(&rig);
    }
    let is_discarding = rig.options.discards == DiscardPolicy::Devices;
    assert_eq!(is_discarding, rig.device.counters().discards > 0, "seed {seed}: discards");
    Ok(())
}

pub(super) fn seeds() -> std::ops::Range<u64> {
    let asked: Option<u64> = std::env::var("NACRE_STORE_CRASHES").ok().and_then(|text| text.parse().ok());
    let first: u64 = std::env::var("NACRE_STORE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    first..first + asked.unwrap_or(CRASHES).div_ceil(PER_SEED)
}

#[test]
fn every_crash_keeps_what_was_acknowledged() {
    for seed in seeds() {
        run(seed, tiny(seed)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_store_that_is_told_so_begins_before_it_is_drained() {
    let sizes = Sizes { object_bytes_max: 100_000, write_bytes_max: 4000 };
    let survives = |hint: SubmitHint, seed: u64| {
        let mut rig = Rig::new(seed, 4 << 20, Options::tiny());
        let mut store = rig.open();
        store.set_submit_hint(hint);
        let txn = random_txn(&mut SeededEntropy(seed), 1, sizes);
        store.submit(txn, StoreToken::without_pg(1)).expect("room");
        rig.crash(1);
        drop(store);
        newest(&rig.open()) == 1
    };
    assert!(
        (0..40).any(|seed| survives(SubmitHint::Now, seed)),
        "none of 40 was with the device when power went"
    );
    assert!(
        !(0..40).any(|seed| survives(SubmitHint::Batch, seed)),
        "nothing begins before it is drained otherwise"
    );
}

/// Each device keeps and loses what it likes.
#[test]
fn every_crash_keeps_what_was_acknowledged_with_the_log_on_a_device_of_its_own() {
    for seed in seeds() {
        // Made so, or moved there.
        let make = if seed.is_multiple_of(2) { Rig::split } else { Rig::moved };
        let rig = make(seed, 4 << 20, tiny(seed));
        run_on(seed, rig, |_| ()).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A torn write leaves of an encrypted device what it leaves of another one.
#[test]
fn every_crash_keeps_what_was_acknowledged_on_encrypted_devices() {
    for seed in seeds() {
        let rig = Rig::encrypted(seed, 4 << 20, tiny(seed));
        run_on(seed, rig, |_| ()).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The same test with a mistake built in must fail: else it proves nothing.
fn finds(planted: Planted) -> bool {
    let options = Options { planted, discards: DiscardPolicy::Devices, ..Options::tiny() };
    (0..40).any(|seed| {
        let options = options.clone();
        std::panic::catch_unwind(move || run(seed, options)).map_or(true, |outcome| outcome.is_err())
    })
}

#[test]
fn acknowledging_before_the_log_is_written_is_found() {
    assert!(finds(Planted::EarlyAcknowledgement));
}

#[test]
fn using_freed_blocks_before_the_checkpoint_is_found() {
    assert!(finds(Planted::EarlyReuse));
}

#[test]
fn letting_the_log_go_before_the_checkpoint_is_committed_is_found() {
    assert!(finds(Planted::EarlyTrim));
}

#[test]
fn discarding_before_the_checkpoint_is_found() {
    assert!(finds(Planted::EarlyDiscard));
}

#[test]
fn writing_to_what_is_being_discarded_is_found() {
    assert!(finds(Planted::UnheldDiscard));
}

#[test]
fn changing_an_omap_below_its_clone_is_found() {
    assert!(finds(Planted::SharedChange));
}

#[test]
fn letting_a_changed_page_go_is_found() {
    assert!(finds(Planted::ChangedPage));
}

/// A process that is killed leaves what can be read and is not durable. The next process acknowledges more on top of it.
#[test]
fn what_a_killed_process_left_is_durable_before_more_is_built_on_it() {
    let sizes = Sizes { object_bytes_max: 100_000, write_bytes_max: 50_000 };
    for seed in 0..40 {
        let mut rng = SeededEntropy(seed);
        let mut rig = Rig::new(seed, 4 << 20, tiny(seed));
        let mut history = History { first: 0, states: vec![Model::default()] };
        for round in 0..10 {
            let context = format!("seed {seed}, round {round}");
            let (mut store, _) = rig.try_open().unwrap_or_else(|error| panic!("{context}: {error}"));
            let first = history.first;
            verify(&mut store, &mut history, first, &context).unwrap_or_else(|error| panic!("{error}"));
            let mut acknowledged = Vec::new();
            work(&mut store, &mut rng, &mut history, &mut acknowledged).expect("room");
            // Submitted, and mostly not complete.
            let number = history.newest() + 1;
            let txn = random_txn(&mut rng, number, sizes);
            let mut state = history.states.last().cloned().unwrap_or_default();
            state.apply(&txn);
            history.push(state);
            store.set_submit_hint(SubmitHint::Now);
            store.submit(txn, StoreToken::without_pg(number)).expect("room");
            rig.kill();
            drop(store);
            let mut last = acknowledged.last().map_or(history.first, |token| token.token.0);
            if round % 2 == 0 {
                // What is shown now is read by clients, and tells peering what this copy has.
                let (store, _) = rig.try_open().unwrap_or_else(|error| panic!("{context}: {error}"));
                last = last.max(newest(&store));
                drop(store);
            }
            rig.crash(0);
            let (mut store, _) = rig.try_open().unwrap_or_else(|error| panic!("{context}: {error}"));
            verify(&mut store, &mut history, last, &context).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
