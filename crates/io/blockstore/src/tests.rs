//! The store on a simulated device: conformance, a model, crashes.

mod copies;
mod crash;
mod dear;
mod faults;
mod gap;
mod held;
mod hub;
mod latencies;
mod leasing;
mod long;
mod memory;
mod metadata;
mod model;
mod older;
mod once;
mod packing;
mod packing_damage;
mod packing_limits;
mod partitions;
mod placed;
mod probed;
mod random;
mod removal;
mod rig;
mod start;
mod sums;
mod throttle;
mod trim;
mod wal_device;
mod warming;
mod wide;

use crate::{BlockStore, Options};
use nacre_store::conformance;
use nacre_types::{Compression, CompressionAlgorithm, CompressionMode};
use rig::Rig;

#[test]
fn conforms() {
    conformance::run(|| Rig::new(1, 64 << 20, Options::default()).open());
}

#[test]
fn conforms_while_checkpoints_run_all_the_time() {
    let options = Options { clean_bytes_max: 64 << 20, ..Options::tiny() };
    conformance::run(|| Rig::new(2, 16 << 20, options.clone()).open());
}

/// Blobs are a block or more smaller then, or not made.
#[test]
fn conforms_while_it_compresses() {
    let options = Options { clean_bytes_max: 64 << 20, ..Options::tiny() };
    for algorithm in CompressionAlgorithm::ALL {
        let mode = CompressionMode::Force;
        let compression = Compression { mode, algorithm, required_ppm: 1_000_000, ..Compression::default() };
        conformance::run(|| {
            let mut rig = Rig::new(2, 16 << 20, options.clone());
            rig.compression = Some(compression);
            rig.open()
        });
    }
}

/// What the daemons need: a store can be handed to a shard's thread.
#[test]
fn is_send() {
    fn wants_send<T: Send>() {}
    wants_send::<BlockStore>();
}
