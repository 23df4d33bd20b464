//! Mistakes that are built into monitors on purpose ([`Planted`]) are found, each by the same story that ends well without it (exam Q13).

#![allow(clippy::print_stdout, reason = "in how many stories a mistake shows is to be read")]

use nacre_monitor::{Driver, Planted};
use nacre_sim::{CLIENTS, Config, MonLoad, Proc};
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

fn term_of(load: &MonLoad, n: usize) -> u64 {
    load.world.monitor(n).map_or(0, Driver::term)
}

/// Of three monitors one is cut off, and another is elected by the third, which hears no more of it and restarts. Then the first asks that one
/// for its vote, in the same term.
fn two_want_one_vote(mut load: MonLoad) {
    let old = load.leader().expect("commands are answered");
    let others = load.others(old);
    let term = term_of(&load, old);
    others.iter().for_each(|other| load.cut_both(Proc::Mon(old), Proc::Mon(*other)));
    let patience = Duration::from_secs(10);
    assert!(load.run_until(patience, |load| others.iter().any(|n| term_of(load, *n) > term)));
    let stands = |load: &MonLoad, n: usize| term_of(load, n) > term;
    let candidate = others.iter().copied().find(|n| stands(&load, *n)).expect("one of them");
    let voter = others.iter().copied().find(|n| *n != candidate).expect("the other");
    assert!(load.run_until(patience, |load| stands(load, voter)));
    load.cut(Proc::Mon(candidate), Proc::Mon(voter));
    load.run_for(Duration::from_millis(50));
    load.world.fabric().heal();
    [old, voter].into_iter().for_each(|n| load.cut_both(Proc::Mon(candidate), Proc::Mon(n)));
    load.world.stop_mon(voter, false);
    load.world.start_mon(voter);
    load.run_for(Duration::from_secs(8));
    load.ends_well();
}

/// One client's answers are lost, and its monitor's process ends before it asks again.
fn answers_are_lost(mut load: MonLoad) {
    for _ in 0..6 {
        let leader = load.leader().expect("commands are answered");
        for client in (0..CLIENTS).take(1) {
            (0..3).for_each(|n| load.cut(Proc::Mon(n), Proc::Client(client)));
        }
        load.run_for(Duration::from_millis(600));
        load.world.stop_mon(leader, false);
        load.run_for(Duration::from_millis(200));
        load.heal();
        load.run_for(Duration::from_secs(6));
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
fn a_vote_that_is_not_stored_is_found() {
    shows(Planted::VoteForgotten, two_want_one_vote);
}

#[test]
fn a_change_that_is_made_twice_is_found() {
    shows(Planted::AnswersForgotten, answers_are_lost);
}

#[test]
fn an_id_that_is_given_twice_is_found() {
    shows(Planted::IdsReused, clients_come);
}
