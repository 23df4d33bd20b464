//! Power goes at any moment, of the journal's file and the store's: what was durable is there, a batch wholly or not at all.

use super::*;
use crate::crash::{Content, commit, content, random_batch};
use nacre_simdisk::Syncs;
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

const SEEDS: u64 = 40;
const CRASHES: u64 = 12;

type Journaled = JournaledKv<RedbKv>;

/// The files of the journal and of the store below.
struct Files {
    journal: SimFile,
    below: SimFile,
}

impl Files {
    fn is_dead(&self) -> bool {
        self.journal.is_dead() || self.below.is_dead()
    }

    fn crash(&self) {
        self.journal.crash();
        self.below.crash();
    }

    /// The power of one, or of both, goes somewhere on the way.
    fn lose_power_within(&self, rng: &mut SeededEntropy, changes: u64) {
        let which = rng.u64() % 3;
        if which != 0 {
            self.journal.lose_power_after(rng.u64() % changes);
        }
        if which != 1 {
            self.below.lose_power_after(rng.u64() % (3 * changes));
        }
    }

    fn open(&self) -> Result<Journaled, KvError> {
        let file = self.below.clone();
        let options = KvOptions { cache_bytes: 64 << 10, ..KvOptions::default() };
        let below = RedbKv::open_on(move || Ok(Arc::new(file.open()) as Arc<dyn File>), options)?;
        open(below, &self.journal)
    }
}

/// Commits in every way until the power goes. Gives what may be found: the last that was durable, and all since.
fn work(kv: &mut Journaled, rng: &mut SeededEntropy, begin: Content) -> Result<Vec<Content>, String> {
    let mut states = vec![begin];
    for nth in 0..60 {
        let mut next = states.last().cloned().unwrap_or_default();
        let lengths = &[10, 300, 3000, 20_000][..if rng.u64().is_multiple_of(40) { 4 } else { 3 }];
        let batch = random_batch(rng, &mut next, (30, lengths));
        states.push(next);
        let (outcome, is_durable) = commit(kv, rng.u64() % 4, batch, nth);
        let outcome = if nth % 20 == 19 { outcome.and_then(|()| kv.idle_trim()) } else { outcome };
        if outcome.is_err() {
            break;
        }
        if is_durable {
            states.drain(..states.len() - 1);
        }
        if nth % 8 == 0 && content(kv).is_ok_and(|content| states.last() != Some(&content)) {
            return Err(format!("batch {nth}: it is not what was put"));
        }
    }
    Ok(states)
}

fn run(seed: u64, syncs: [Syncs; 2]) -> Result<usize, String> {
    let files = Files { journal: SimFile::new(seed), below: SimFile::new(!seed) };
    files.journal.set_syncs(syncs[0]);
    files.below.set_syncs(syncs[1]);
    let (mut rng, mut in_the_act) = (SeededEntropy(seed), 0);
    let mut states = vec![Content::default()];
    for crash in 0..CRASHES {
        let context = format!("seed {seed}, crash {crash}");
        if rng.u64().is_multiple_of(3) {
            files.lose_power_within(&mut rng, 30);
        }
        let (mut kv, found) = match files.open().and_then(|kv| content(&kv).map(|content| (kv, content))) {
            Ok(opened) => opened,
            Err(_) if files.is_dead() => {
                files.crash();
                continue;
            }
            Err(error) => return Err(format!("{context}: {error}")),
        };
        if !states.contains(&found) {
            return Err(format!("{context}: {} keys, none of {} states", found.len(), states.len()));
        }
        files.lose_power_within(&mut rng, 250);
        states = work(&mut kv, &mut rng, found).map_err(|what| format!("{context}: {what}"))?;
        in_the_act += usize::from(files.is_dead());
        if rng.u64().is_multiple_of(4) {
            drop(kv); // a process that is killed does not close
            files.crash();
        } else {
            files.crash();
            drop(kv);
        }
    }
    Ok(in_the_act)
}

#[test]
fn what_was_durable_survives_in_both_files() {
    let asked = std::env::var("NACRE_STORE_CRASHES").ok().and_then(|text| text.parse().ok());
    let seeds = asked.map_or(SEEDS, |crashes: u64| crashes.div_ceil(CRASHES));
    let run = |seed| run(seed, [Syncs::Done; 2]).unwrap_or_else(|error| panic!("{error}"));
    let in_the_act: usize = (0..seeds).map(run).sum();
    assert!(in_the_act as u64 > 3 * seeds, "{in_the_act}");
}

#[test]
fn syncs_of_either_file_that_are_not_done_are_found() {
    for syncs in [Syncs::Skipped, Syncs::EverySecond] {
        for which in [[syncs, Syncs::Done], [Syncs::Done, syncs]] {
            let found = (0..20).any(|seed| run(seed, which).is_err_and(|error| error.starts_with("seed")));
            assert!(found, "{which:?}");
        }
    }
}
