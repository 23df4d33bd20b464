//! Writers that outrun checkpoints are slowed down, not stopped.

use super::faults::write;
use super::rig::Rig;
use crate::Options;
use nacre_store::ObjectStore;
use nacre_txn::Token;
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

const WRITES: u64 = 20_000;
/// Enough for records that are as long as can be: twice as fast as the blocks go home.
const DEPTH: usize = 64;
const WRITE_BYTES: usize = 16 << 10;
/// Turns in a row, while blocks are written home, in which nothing is acknowledged: 33 were seen. To write on until the log
/// is full makes them 362.
const SILENCE_MAX: u64 = 100;

#[test]
fn writers_that_outrun_checkpoints_wait_often_and_not_long() {
    let options = Options { wal_bytes: Some(32 << 20), ..Options::default() };
    let mut store = Rig::new(13, 512 << 20, options).open();
    let mut rng = SeededEntropy(13);
    let (mut out, mut silence, mut longest) = (Vec::new(), 0, 0);
    for nth in 0..WRITES {
        let offset = rng.u64() % 256 * WRITE_BYTES as u64;
        store.submit(write(nth % 64, offset, vec![7; WRITE_BYTES]), Token(nth)).expect("room");
        while store.waiting() >= DEPTH {
            store.drain(&mut out);
            let goes_on = out.is_empty() && store.checkpoint_stage() == Some("write home");
            silence = if goes_on { silence + 1 } else { 0 };
            longest = longest.max(silence);
            out.clear();
        }
    }
    assert!(store.checkpoints() > 3, "{} checkpoints", store.checkpoints());
    assert!(longest < SILENCE_MAX, "{longest} turns without an acknowledgement");
}
