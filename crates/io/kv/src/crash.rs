//! Power goes at any moment of a store in a simulated file: what was durable is there, a batch wholly or not at all, and the store
//! opens.

use crate::{Durability, KvBatch, KvCompletion, KvError, KvOptions, KvStore, KvTag, RedbKv};
use bytes::Bytes;
use nacre_env::File;
use nacre_simdisk::{SimFile, Syncs};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeMap;
use std::sync::Arc;

const SEEDS: u64 = 60;
const CRASHES: u64 = 12;

type Content = BTreeMap<Bytes, Bytes>;

fn open(file: &SimFile) -> Result<RedbKv, KvError> {
    let file = file.clone();
    let options = KvOptions { cache_bytes: 64 << 10, ..KvOptions::default() };
    RedbKv::open_on(move || Ok(Arc::new(file.open()) as Arc<dyn File>), options)
}

fn content(kv: &RedbKv) -> Result<Content, KvError> {
    Ok(kv.scan_prefix(b"")?.into_iter().collect())
}

fn random_batch(rng: &mut SeededEntropy, content: &mut Content) -> KvBatch {
    let mut batch = KvBatch::default();
    if rng.u64().is_multiple_of(8) {
        let prefix = format!("{}", rng.u64() % 10);
        content.retain(|key, _| !key.starts_with(prefix.as_bytes()));
        batch.delete_prefix(prefix);
    }
    for _ in 0..rng.u64() % 40 {
        let key = Bytes::from(format!("{}", rng.u64() % 300));
        if rng.u64().is_multiple_of(3) {
            content.remove(&key);
            batch.delete(key);
        } else {
            let length = [10, 300, 6000][(rng.u64() % 3) as usize];
            let value = Bytes::from(vec![rng.u64() as u8; length]);
            content.insert(key.clone(), value.clone());
            batch.put(key, value);
        }
    }
    batch
}

/// Commits in every way until the power goes. Gives what may be found: the last that was durable, and all since.
fn work(kv: &mut RedbKv, rng: &mut SeededEntropy, begin: Content) -> Vec<Content> {
    let mut states = vec![begin];
    for nth in 0..40 {
        let mut next = states.last().cloned().unwrap_or_default();
        let batch = random_batch(rng, &mut next);
        states.push(next);
        let (outcome, is_durable) = match rng.u64() % 3 {
            0 => (kv.commit(&batch, Durability::Buffered), false),
            1 => (kv.commit(&batch, Durability::Durable), true),
            _ => {
                let mut done: Vec<KvCompletion> = Vec::new();
                kv.submit(batch, KvTag(nth));
                kv.wait();
                kv.drain(&mut done);
                (done.pop().map_or(Err(KvError::Fenced), |done| done.result), true)
            }
        };
        if outcome.is_err() {
            break;
        }
        if is_durable {
            states.drain(..states.len() - 1);
        }
    }
    states
}

fn run(seed: u64, syncs: Syncs) -> Result<usize, String> {
    let (file, mut rng, mut in_the_act) = (SimFile::new(seed), SeededEntropy(seed), 0);
    file.set_syncs(syncs);
    let mut states = vec![Content::default()];
    for crash in 0..CRASHES {
        let context = format!("seed {seed}, crash {crash}");
        if rng.u64().is_multiple_of(3) {
            file.lose_power_after(rng.u64() % 30);
        }
        let opened = open(&file).and_then(|kv| content(&kv).map(|content| (kv, content)));
        let (mut kv, found) = match opened {
            Ok(opened) => opened,
            Err(_) if file.is_dead() => {
                file.crash();
                continue;
            }
            Err(error) => return Err(format!("{context}: {error}")),
        };
        if !states.contains(&found) {
            return Err(format!("{context}: {} keys, none of {} states", found.len(), states.len()));
        }
        file.lose_power_after(rng.u64() % 400);
        states = work(&mut kv, &mut rng, found);
        in_the_act += usize::from(file.is_dead());
        if rng.u64().is_multiple_of(4) {
            drop(kv); // a process that is killed does not close
            file.crash();
        } else {
            file.crash();
            drop(kv);
        }
    }
    Ok(in_the_act)
}

#[test]
fn what_was_durable_survives() {
    let asked = std::env::var("NACRE_STORE_CRASHES").ok().and_then(|text| text.parse().ok());
    let seeds = asked.map_or(SEEDS, |crashes: u64| crashes.div_ceil(CRASHES));
    let in_the_act: usize =
        (0..seeds).map(|seed| run(seed, Syncs::Done).unwrap_or_else(|error| panic!("{error}"))).sum();
    assert!(in_the_act > 200, "{in_the_act}");
}

#[test]
fn syncs_that_are_not_done_are_found() {
    for syncs in [Syncs::Skipped, Syncs::EverySecond] {
        let found = (0..20).any(|seed| run(seed, syncs).is_err_and(|error| error.starts_with("seed")));
        assert!(found, "{syncs:?}");
    }
}
