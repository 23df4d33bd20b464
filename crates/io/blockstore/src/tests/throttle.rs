//! Writers that outrun checkpoints are slowed down, not stopped.

use super::faults::write;
use super::latencies;
use super::rig::Rig;
use crate::Options;
use crate::throttle::Ends;
use crate::throttle::fill::WHOLE;
use nacre_store::ObjectStore;
use nacre_txn::StoreToken;
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

const WRITES: u64 = 20_000;
/// Enough for records that are as long as can be: twice as fast as the blocks go home.
const DEPTH: usize = 64;
const WRITE_BYTES: usize = 16 << 10;

fn rig() -> Rig {
    Rig::new(13, 512 << 20, Options { wal_bytes: Some(32 << 20), ..Options::default() })
}

/// The most turns in a row, in a stage of the checkpoints, in which nothing is acknowledged to writers that never rest.
fn longest_silence(mut rig: Rig, stage: &str) -> u64 {
    let mut store = rig.open();
    let mut rng = SeededEntropy(13);
    let (mut out, mut silence, mut longest) = (Vec::new(), 0, 0);
    for nth in 0..WRITES {
        let offset = rng.u64() % 256 * WRITE_BYTES as u64;
        store
            .submit(write(nth % 64, offset, vec![7; WRITE_BYTES]), StoreToken::without_pg(nth))
            .expect("room");
        while store.waiting() >= DEPTH {
            store.drain(&mut out);
            let goes_on = out.is_empty() && store.checkpoint_stage() == Some(stage);
            silence = if goes_on { silence + 1 } else { 0 };
            longest = longest.max(silence);
            out.clear();
        }
    }
    assert!(store.checkpoints() > 3, "{} checkpoints", store.checkpoints());
    longest
}

/// Where dirty blocks are the limit, a checkpoint begins with what came during the one before: with as
/// much as may be there, writers would stand still until it has written all of that home.
#[test]
fn no_checkpoint_begins_with_more_than_half_of_what_may_be_dirty() {
    const HALF: u64 = 4 << 20;
    let mut rig = Rig::new(13, 512 << 20, Options { overlay_bytes_max: HALF, ..Options::default() });
    let mut store = rig.open();
    let mut rng = SeededEntropy(13);
    let (mut out, mut begins) = (Vec::new(), Vec::new());
    let mut seen = 0;
    for nth in 0..WRITES * 2 {
        let (object, offset) = (rng.u64() % 64, rng.u64() % 1024 * 4096);
        store.submit(write(object, offset, vec![7; 4096]), StoreToken::without_pg(nth)).expect("room");
        // So many that the steps behind a commit take a while.
        while store.waiting() >= 16 * DEPTH {
            store.drain(&mut out);
            out.clear();
            if let Some(checkpoint) = store.checkpoint.as_ref().filter(|_| store.checkpoints() + 1 > seen) {
                begins.push(checkpoint.fill().dirty_bytes);
                seen = store.checkpoints() + 1;
            }
        }
    }
    assert!(begins.len() > 8, "{begins:?}");
    assert!(begins.iter().all(|begin| *begin < HALF * 5 / 4), "{begins:?}");
}

/// Nobody waits for acknowledgements of what comes.
#[test]
fn a_store_that_gets_more_than_it_writes_says_so_until_it_has_written() {
    let mut rig = rig();
    rig.commits_take(50);
    let mut store = rig.open();
    let (mut out, mut count) = (Vec::new(), 0);
    for _ in 0..3 {
        while !store.is_overrun() {
            for _ in 0..512 {
                count += 1;
                let txn = write(count % 64, count / 64 % 1024 * 4096, vec![7; 4096]);
                store.submit(txn, StoreToken::without_pg(count)).expect("room");
            }
            store.drain(&mut out);
            assert!(count < 1_000_000, "it takes all that comes");
        }
        assert!(store.checkpoint_stage().is_some() && store.waiting() > 0);
        let drains = (1..100_000).find(|_| {
            store.drain(&mut out);
            !store.is_overrun()
        });
        assert!(drains.is_some(), "it never ends: {:?}", store.checkpoint_stage());
    }
    let drains = (1..100_000).find(|_| {
        store.drain(&mut out);
        out.len() as u64 == count
    });
    assert!(drains.is_some() && !store.is_overrun(), "{} of {count} acknowledged", out.len());
}

/// Of each part of a checkpoint it is known when it began.
#[test]
fn what_each_part_of_a_checkpoint_takes_is_learned() {
    let (mut store, _) = latencies::open(&mut rig());
    let before = store.shares.ends();
    store.submit(write(1, 0, vec![1; WRITE_BYTES]), StoreToken::without_pg(1)).expect("room");
    store.finish_checkpoint();
    let after = store.shares.ends();
    let of = |end: fn(&Ends) -> u64| 2 * end(&after) - end(&before);
    let [settled, encoded, committed, adopted] = [
        of(|ends| ends.settled),
        of(|ends| ends.encoded),
        of(|ends| ends.committed),
        of(|ends| ends.adopted),
    ];
    // The clock goes on with each look. Behind the home's write there is one for each part, which are all as long, then.
    let parts = [encoded - settled, committed - encoded, adopted - committed, WHOLE - adopted];
    assert!(parts.iter().all(|part| *part > 20 && part.abs_diff(parts[0]) < 4), "{parts:?}");
}

/// 33 were seen. To write on until the log is full makes them 362.
#[test]
fn writers_wait_often_and_not_long_while_blocks_are_written_home() {
    let longest = longest_silence(rig(), "write home");
    assert!(longest < 100, "{longest} turns without an acknowledgement");
}

/// A record takes all that may be written, so 691 turns of 4000 were seen. To write on until the log is full leaves nothing for
/// most of the commit.
#[test]
fn writers_wait_often_and_not_long_for_a_commit() {
    let rig = rig();
    rig.commits_take(4000);
    let longest = longest_silence(rig, "commit");
    assert!(longest < 1500, "{longest} turns without an acknowledgement");
}
