//! The simulation finds mistakes: each of those that are built in on purpose, within so many seeds.

use nacre_pg::{Planted, Tuning};
use nacre_sim::{Plan, tell};
use std::panic::catch_unwind;

/// Stories told until the mistake shows, at most.
const SEEDS_MAX: u64 = 200;

/// Tells stories from seed 0 on until one does not end well.
fn found(planted: Planted) {
    found_with(planted, Plan::default());
}

fn found_with(planted: Planted, plan: Plan) {
    let tuning = Tuning { checked: true, planted, ..Tuning::default() };
    let plan = Plan { tuning, ..plan };
    let shown = (0..SEEDS_MAX).any(|seed| catch_unwind(|| tell(seed, &plan)).is_err());
    assert!(shown, "{planted:?} does not show in {SEEDS_MAX} stories");
}

#[test]
fn a_reply_before_replicas_have_it() {
    found(Planted::EarlyReply);
}

#[test]
fn a_repeated_request_executed_again() {
    found(Planted::NoDuplicateCheck);
}

/// Shows in an object that nobody writes to again after its primary died with writes that no other copy has: of many objects, and
/// in long stories, there are more of that kind. So it does in one of 30 stories, otherwise in one of 120.
#[test]
fn divergent_entries_kept() {
    found_with(Planted::DivergentKept, Plan { objects: Some(30), messages_max: 400, ..Plan::default() });
}

#[test]
fn min_size_ignored() {
    found(Planted::MinSizeIgnored);
}
