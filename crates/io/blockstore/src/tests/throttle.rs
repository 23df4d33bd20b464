//! Writers that outrun checkpoints are slowed down, not stopped.

use super::faults::write;
use super::rig::Rig;
use crate::Options;
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
