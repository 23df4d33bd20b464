//! Mistakes that are built into monitors on purpose ([`Planted`]) are found, each by the same story that ends well without it (exam Q13).

#![allow(clippy::print_stdout, reason = "in how many stories a mistake shows is to be read")]

use nacre_monitor::Planted;
use nacre_sim::{Config, MonLoad};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Stories that are told of each mistake.
const SEEDS: u64 = 8;

/// In how many of the stories something is found.
fn found(planted: Planted, story: fn(MonLoad)) -> usize {
    let is_found = |seed: &u64| {
        let config = Config { mons: 3, planted, ..Config::default() };
        catch_unwind(AssertUnwindSafe(|| story(MonLoad::with(*seed, &config)))).is_err()
    };
    (0..SEEDS).filter(is_found).count()
}

/// The story ends well as monitors are, and shows the mistake.
fn shows(planted: Planted, story: fn(MonLoad)) {
    assert_eq!(found(Planted::Nothing, story), 0, "without a mistake");
    let count = found(planted, story);
    println!("{planted:?} shows in {count} of {SEEDS} stories");
    assert!(count > 0, "{planted:?} is not found");
}

/// All machines lose their power at once, three times.
fn power_fails(mut load: MonLoad) {
    for _ in 0..3 {
        (0..3).for_each(|n| load.world.stop_mon(n, true));
        load.run_for(Duration::from_millis(100));
        (0..3).for_each(|n| load.world.start_mon(n));
        load.run_for(Duration::from_secs(8));
    }
    load.ends_well();
}

/// Clients come, to one monitor or another.
fn clients_come(mut load: MonLoad) {
    load.check_ids();
    for _ in 0..3 {
        let leader = load.leader().expect("commands are answered");
        load.world.stop_mon(leader, false);
        load.run_for(Duration::from_secs(4));
        load.heal();
        load.run_for(Duration::from_secs(4));
        load.check_ids();
    }
    load.ends_well();
}

#[test]
fn what_is_acknowledged_before_it_is_written_is_found() {
    shows(Planted::AcknowledgedBeforeWrite, power_fails);
}

#[test]
fn an_id_that_is_given_twice_is_found() {
    shows(Planted::IdsReused, clients_come);
}
