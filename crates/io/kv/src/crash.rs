//! Power goes at any moment of a store in a simulated file: what was durable is there, a batch wholly or not at all, and the store
//! opens.

use crate::region::RegionFile;
use crate::{Durability, KvBatch, KvCompletion, KvError, KvOptions, KvStore, KvTag, RedbKv, RegionPlace};
use bytes::Bytes;
use nacre_crypt::{CryptFile, DataKey, Part};
use nacre_env::File;
use nacre_simdisk::{SimFile, Syncs};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeMap;
use std::sync::Arc;

const SEEDS: u64 = 60;
const CRASHES: u64 = 12;

pub(crate) type Content = BTreeMap<Bytes, Bytes>;

/// A region in the middle of a device, with chunks small enough that many are begun between two crashes.
const PLACE: RegionPlace = RegionPlace { offset: 1 << 20, length: 24 << 20, owner: [7; 16] };
const DEVICE_BYTES: u64 = 26 << 20;

/// What the store's file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Region,
    EncryptedFile,
    EncryptedRegion,
}

impl Kind {
    const fn is_region(self) -> bool {
        matches!(self, Self::Region | Self::EncryptedRegion)
    }

    /// What is written goes to the file through this.
    fn through(self, file: impl File + 'static) -> Arc<dyn File> {
        match self {
            Self::File | Self::Region => Arc::new(file),
            Self::EncryptedFile | Self::EncryptedRegion => {
                let key = DataKey::generate(&mut SeededEntropy(1));
                Arc::new(CryptFile::new(Arc::new(file), key.cipher(Part::Metadata)))
            }
        }
    }
}

/// A new file, or a device on which somebody had data before, with a new region.
fn make(kind: Kind, seed: u64) -> SimFile {
    let file = SimFile::new(seed);
    if kind.is_region() {
        let device = kind.through(file.open());
        device.write(0, &vec![0xa5; DEVICE_BYTES as usize]).expect("room");
        RegionFile::create_small(device, PLACE).expect("a healthy device");
        file.crash();
    }
    file
}

fn open(file: &SimFile, kind: Kind) -> Result<RedbKv, KvError> {
    let options = KvOptions { cache_bytes: 64 << 10, ..KvOptions::default() };
    let file = file.clone();
    if !kind.is_region() {
        return RedbKv::open_on(move || Ok(kind.through(file.open())), options);
    }
    let region = Arc::new(RegionFile::open_small(kind.through(file.open()), PLACE)?);
    RedbKv::open_on(move || Ok(Arc::clone(&region) as Arc<dyn File>), options)
}

pub(crate) fn content(kv: &impl KvStore) -> Result<Content, KvError> {
    Ok(kv.scan_prefix(b"")?.into_iter().collect())
}

/// Up to `ops_max` changes, of values as long as some of `lengths`.
pub(crate) fn random_batch(
    rng: &mut SeededEntropy,
    content: &mut Content,
    (ops_max, lengths): (u64, &[usize]),
) -> KvBatch {
    let mut batch = KvBatch::default();
    if rng.u64().is_multiple_of(8) {
        let prefix = format!("{}", rng.u64() % 10);
        content.retain(|key, _| !key.starts_with(prefix.as_bytes()));
        batch.delete_prefix(prefix);
    }
    for _ in 0..rng.u64() % ops_max {
        let key = Bytes::from(format!("{}", rng.u64() % 300));
        if rng.u64().is_multiple_of(3) {
            content.remove(&key);
            batch.delete(key);
        } else {
            let length = lengths[(rng.u64() % lengths.len() as u64) as usize];
            let value = Bytes::from(vec![rng.u64() as u8; length]);
            content.insert(key.clone(), value.clone());
            batch.put(key, value);
        }
    }
    batch
}

/// Commits in one of the ways that there are: buffered, durably, and in the background for all others. Says whether that is durable.
pub(crate) fn commit(
    kv: &mut impl KvStore,
    way: u64,
    batch: KvBatch,
    nth: u64,
) -> (Result<(), KvError>, bool) {
    match way {
        0 => (kv.commit(&batch, Durability::Buffered), false),
        1 => (kv.commit(&batch, Durability::Durable), true),
        _ => {
            let mut done: Vec<KvCompletion> = Vec::new();
            kv.submit(batch, KvTag(nth));
            while done.is_empty() {
                kv.wait();
                kv.drain(&mut done);
            }
            (done.pop().map_or(Err(KvError::Fenced), |done| done.result), true)
        }
    }
}

/// Commits in every way until the power goes. Gives what may be found: the last that was durable, and all since.
fn work(kv: &mut RedbKv, rng: &mut SeededEntropy, begin: Content) -> Vec<Content> {
    let mut states = vec![begin];
    for nth in 0..40 {
        let mut next = states.last().cloned().unwrap_or_default();
        let batch = random_batch(rng, &mut next, (40, &[10, 300, 6000]));
        states.push(next);
        let (outcome, is_durable) = commit(kv, rng.u64() % 3, batch, nth);
        if outcome.is_err() {
            break;
        }
        if is_durable {
            states.drain(..states.len() - 1);
        }
    }
    states
}

fn run(seed: u64, kind: Kind, syncs: Syncs) -> Result<usize, String> {
    let (file, mut rng, mut in_the_act) = (make(kind, seed), SeededEntropy(seed), 0);
    file.set_syncs(syncs);
    let mut states = vec![Content::default()];
    for crash in 0..CRASHES {
        let context = format!("seed {seed}, {kind:?}, crash {crash}");
        if rng.u64().is_multiple_of(3) {
            file.lose_power_after(rng.u64() % 30);
        }
        let opened = open(&file, kind).and_then(|kv| content(&kv).map(|content| (kv, content)));
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

/// Runs all seeds; gives how often the power went in the middle of a call.
fn survive(kind: Kind) -> usize {
    let asked = std::env::var("NACRE_STORE_CRASHES").ok().and_then(|text| text.parse().ok());
    let seeds = asked.map_or(SEEDS, |crashes: u64| crashes.div_ceil(CRASHES));
    (0..seeds).map(|seed| run(seed, kind, Syncs::Done).unwrap_or_else(|error| panic!("{error}"))).sum()
}

#[test]
fn what_was_durable_survives() {
    let in_the_act = survive(Kind::File);
    assert!(in_the_act > 200, "{in_the_act}");
}

#[test]
fn what_was_durable_survives_in_a_region_of_a_device() {
    let in_the_act = survive(Kind::Region);
    assert!(in_the_act > 200, "{in_the_act}");
}

/// All that a database writes is in whole sectors: other writes an encrypted file refuses.
#[test]
fn what_was_durable_survives_in_an_encrypted_file_and_region() {
    for kind in [Kind::EncryptedFile, Kind::EncryptedRegion] {
        let in_the_act = survive(kind);
        assert!(in_the_act > 200, "{kind:?} {in_the_act}");
    }
}

/// A store of which nothing is durable yet is made anew. Power may go again while that overwrites what the first try has left.
#[test]
fn a_store_is_made_whenever_power_goes_twice() {
    const MOMENTS: u64 = 40;
    for kind in [Kind::File, Kind::Region] {
        for (first, second) in (0..MOMENTS * MOMENTS).map(|moment| (moment / MOMENTS, moment % MOMENTS)) {
            let file = SimFile::new(first * MOMENTS + second);
            if kind.is_region() {
                RegionFile::create_small(kind.through(file.open()), PLACE).expect("a healthy device");
            }
            for changes in [first, second] {
                file.lose_power_after(changes);
                drop(open(&file, kind));
                file.crash();
            }
            let found = open(&file, kind).and_then(|kv| content(&kv));
            let context = format!("{kind:?}, power lost after {first} and {second} changes");
            assert!(found.unwrap_or_else(|error| panic!("{context}: {error}")).is_empty(), "{context}");
        }
    }
}

#[test]
fn syncs_that_are_not_done_are_found() {
    for kind in [Kind::File, Kind::Region] {
        for syncs in [Syncs::Skipped, Syncs::EverySecond] {
            let found =
                (0..20).any(|seed| run(seed, kind, syncs).is_err_and(|error| error.starts_with("seed")));
            assert!(found, "{kind:?} {syncs:?}");
        }
    }
}
