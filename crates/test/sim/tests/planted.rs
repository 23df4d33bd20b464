//! The simulation finds mistakes: each of those that are built in on purpose, within so many seeds.

use nacre_pg::{Planted, Tuning};
use nacre_sim::{Kind, Plan, tell};
use std::panic::catch_unwind;

/// Stories told until the mistake shows, at most.
const SEEDS_MAX: u64 = 200;

/// What the checkers say of a broken promise. Any other panic is a mistake of another kind, and finds nothing.
const VERDICTS: [&str; 2] = ["messages that fit together", "the copies of"];

/// Tells stories from seed 0 on until one does not end well.
fn found(planted: Planted) {
    found_with(planted, Plan::default());
}

#[expect(clippy::print_stdout, reason = "how soon it shows is good to know")]
fn found_with(planted: Planted, plan: Plan) {
    let tuning = Tuning { checked: true, planted, ..Tuning::default() };
    let plan = Plan { tuning, ..plan };
    let mut told = 0;
    let failure = (0..SEEDS_MAX).find_map(|seed| {
        told += 1;
        catch_unwind(|| tell(seed, &plan)).err()
    });
    println!("{planted:?}: {told} stories");
    let failure = failure.unwrap_or_else(|| panic!("{planted:?} does not show in {SEEDS_MAX} stories"));
    let why = failure.downcast_ref::<String>().map_or("a panic without words", String::as_str);
    let why = why.lines().next().unwrap_or_default();
    assert!(
        VERDICTS.iter().any(|verdict| why.contains(verdict)),
        "{planted:?} shows as another mistake: {why}"
    );
}

#[test]
fn a_reply_before_replicas_have_it() {
    found(Planted::EarlyReply);
}

#[test]
fn a_repeated_request_executed_again() {
    found(Planted::NoDuplicateCheck);
}

/// Shows in an object that nobody writes to again after its primary died with writes that no other copy has: of many objects, in
/// long stories, and where one copy serves, there are more of that kind.
#[test]
fn divergent_entries_kept() {
    let plan = Plan { kind: Kind::OneServes, objects: Some(30), messages_max: 400, ..Plan::default() };
    found_with(Planted::DivergentKept, plan);
}

#[test]
fn min_size_ignored() {
    found(Planted::MinSizeIgnored);
}

#[test]
fn a_rollback_of_a_shard_skipped() {
    found_with(Planted::RollbackSkipped, Plan { kind: Kind::Coded, ..Plan::default() });
}

#[test]
fn a_duplicate_lost_at_trim() {
    found(Planted::DuplicatesTrimmed);
}
