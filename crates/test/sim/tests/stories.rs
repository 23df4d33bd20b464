//! Whatever goes wrong: what was acknowledged stays, every object behaves as one object, and once nothing goes
//! wrong any more everything is answered and clean.
//!
//! `SIM_SEED=n` tells one story again, with `SIM_LOG=1` and `NACRE_LOG=info` (or `debug`) what happens in it; `SIM_SEEDS=count` tells many, from
//! `SIM_FIRST` on.

use nacre_sim::{Plan, tell};
use std::time::Instant;

/// Stories of a normal run.
const SEEDS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn stories_end_well() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("SIM_FIRST").unwrap_or(0);
            first..first + number("SIM_SEEDS").unwrap_or(SEEDS)
        }
    };
    let mut failed = Vec::new();
    for seed in seeds {
        println!("seed {seed}");
        let start = Instant::now();
        match std::panic::catch_unwind(|| tell(seed, &Plan::default())) {
            Ok(outcome) => println!("seed {seed}: {outcome:?} in {:?}", start.elapsed()),
            Err(_) => failed.push(seed),
        }
    }
    assert!(failed.is_empty(), "{} stories do not end well: {failed:?}", failed.len());
}

#[test]
fn a_seed_decides_everything() {
    for seed in [1, 2] {
        println!("seed {seed}");
        assert_eq!(tell(seed, &Plan::default()), tell(seed, &Plan::default()));
    }
    assert_ne!(tell(1, &Plan::default()), tell(2, &Plan::default()));
}
