//! The simulation finds mistakes: each of those that are built in on purpose, within so many seeds.

use nacre_msg::SubOp;
use nacre_objecter::Request;
use nacre_pg::{Planted, Tuning};
use nacre_sim::{Config, Finished, Flaw, Kind, Plan, Proc, World, tell};
use nacre_types::{ObjectLocator, PgId};
use std::panic::catch_unwind;
use std::time::Duration;

/// Stories told until the mistake shows, at most.
const SEEDS_MAX: u64 = 200;

/// What the checkers say of a broken promise. Any other panic finds nothing: it is a consequence of the mistake if the story ends
/// well without it (what one copy kept wrongly may be unfound for another), and else a mistake of another kind.
const VERDICTS: [&str; 3] = ["messages that fit together", "the copies of", "overlooks a watch"];
/// What they say where messages get no answer, of which a mistake may be that and no more.
const NO_ANSWER: [&str; 2] = ["messages without an answer", "the last reads get no answer"];

/// Tells stories from seed 0 on until one breaks a promise, which it must not without the mistake.
fn found(planted: Planted) {
    found_with(planted, Plan::default());
}

fn found_with(planted: Planted, plan: Plan) {
    found_by(&VERDICTS, planted, plan);
}

#[expect(clippy::print_stdout, reason = "how soon it shows is good to know")]
fn found_by(verdicts: &[&str], planted: Planted, plan: Plan) {
    let tuning = Tuning { planted, ..plan.tuning };
    let (right, wrong) = (plan, Plan { tuning, ..plan });
    let mut told = 0;
    let shows = (0..SEEDS_MAX).any(|seed| {
        told += 1;
        let Err(failure) = catch_unwind(|| tell(seed, &wrong)) else { return false };
        let why = failure.downcast_ref::<String>().map_or("a panic without words", String::as_str);
        let why = why.lines().next().unwrap_or_default();
        let is_found = verdicts.iter().any(|verdict| why.contains(verdict));
        let ends_well = catch_unwind(|| tell(seed, &right)).is_ok();
        assert!(ends_well, "seed {seed}: not by {planted:?}, but another mistake: {why}");
        is_found
    });
    println!("{planted:?}: {told} stories");
    assert!(shows, "{planted:?} does not show in {SEEDS_MAX} stories");
}

#[test]
fn a_reply_before_replicas_have_it() {
    found(Planted::EarlyReply);
}

#[test]
fn a_repeated_request_executed_again() {
    found(Planted::NoDuplicateCheck);
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
fn a_rollback_of_a_part_skipped() {
    found_with(Planted::RollbackSkipped, Plan { kind: Kind::Overwritten, ..Plan::default() });
}

#[test]
fn a_duplicate_lost_at_trim() {
    found(Planted::DuplicatesTrimmed);
}

/// By a new primary: a notify does not wait for those who watched at the one before.
#[test]
fn watchers_forgotten() {
    found_with(Planted::WatchersForgotten, Plan { bustle: true, ..Plan::default() });
}

/// Shows when the last one that is left of an interval is away while another one of it is said to be lost.
#[test]
fn one_lost_for_all() {
    found_with(Planted::OneLostForAll, Plan { flaw: Some(Flaw::Dies), ..Plan::default() });
}

/// Also where what only the lost one had may be lost: what others have, too, may not. Shows in one of 9 stories.
#[test]
fn one_lost_for_all_where_one_copy_serves() {
    let plan = Plan { kind: Kind::OneServes, flaw: Some(Flaw::Dies), ..Plan::default() };
    found_with(Planted::OneLostForAll, plan);
}

/// A device has lost the end of the log that it said was durable: of those who took part in the newest activation its OSD has the
/// shortest log. The others know that all had more. Shows in one of 15 stories, where a PG does not end its OSD for having less than it
/// knows that all had.
#[test]
fn the_lost_end_of_a_log_believed() {
    let unchecked = Tuning { checked: false, ..Tuning::default() };
    let plan = Plan { kind: Kind::Coded, flaw: Some(Flaw::Forgets), tuning: unchecked, ..Plan::default() };
    found_with(Planted::SafeToIgnored, plan);
}

/// A copy that was put back to what it was before the newest activation has the shortest log.
#[test]
fn a_copy_that_went_back_believed() {
    let plan = Plan { kind: Kind::Coded, flaw: Some(Flaw::GoesBack), ..Plan::default() };
    found_with(Planted::OldCopiesBelieved, plan);
}

#[test]
fn a_fenced_client_served() {
    found_with(Planted::FencingIgnored, Plan { bustle: true, ..Plan::default() });
}

/// Only where an OSD has several shards: on one, every message comes to the right one.
#[test]
fn messages_for_other_shards_dropped() {
    let plan = Plan { shards: 2, ..Plan::default() };
    found_by(&NO_ANSWER, Planted::OtherShardsOpsDropped, plan);
}

/// Who writes, and hears of the full pool from OSDs only; the first client gives commands.
const WRITER: usize = 1;
const PATIENCE: Duration = Duration::from_secs(60);

fn set_quota(world: &mut World, objects: u64) {
    let quota = format!(r#""field": "max_objects", "val": "{objects}""#);
    world.command(&format!(r#"{{"prefix": "osd pool set-quota", "pool": "p", {quota}}}"#));
    let is_full = |world: &mut World| {
        let map = world.mon().expect("it runs").state().osd.map();
        map.pool(1).is_some_and(|pool| pool.has_flag(nacre_maps::flags::pool::FULL)) == (objects > 0)
    };
    assert!(world.run_until(PATIENCE, is_full), "{world:?}");
    // The OSDs hear of it.
    world.run_for(Duration::from_secs(2));
}

/// Has the writer send all of `texts` at once as the object's content. Gives how many are answered within `patience`.
fn write(world: &mut World, texts: &[&'static str], patience: Duration) -> usize {
    let request = |text: &&'static str| {
        let op = SubOp::write_full(text.as_bytes().to_vec().into());
        Request::new(ObjectLocator::in_pool(1), "object".to_owned(), vec![op])
    };
    for text in texts {
        world.order(WRITER, |client| client.submit(request(text)));
    }
    answers(world, texts.len(), patience)
}

fn answers(world: &mut World, wanted: usize, patience: Duration) -> usize {
    let mut count = 0;
    world.run_until(patience, |world| {
        for done in world.take_finished(WRITER) {
            if let Finished::Op { outcome, .. } = done {
                assert_eq!(outcome.expect("a pool that is there").result, 0);
                count += 1;
            }
        }
        count == wanted
    });
    count
}

/// A client has not heard that the pool is full. It makes an object longer, which there is no room for, and then replaces it by
/// something that needs none. What the object is when there is room again.
fn becomes_full_under_way(seed: u64, planted: Planted) -> Vec<u8> {
    let tuning = Tuning { checked: true, planted, ..Tuning::default() };
    let mut world = World::new(seed, &Config { clients: 2, tuning, ..Config::default() });
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#);
    assert_eq!(write(&mut world, &["short"], PATIENCE), 1);
    world.fabric().block(Proc::Mon(0).host(), Proc::Client(WRITER).host());
    set_quota(&mut world, 1);
    let early = write(&mut world, &["rather long", "brief"], Duration::from_secs(5));
    assert!(early == 0 || planted != Planted::Nothing, "seed {seed}: {early} answers of a full pool");
    world.fabric().heal();
    set_quota(&mut world, 0);
    assert_eq!(answers(&mut world, 2 - early, PATIENCE), 2 - early, "seed {seed}: {world:?}");
    world.op("object", SubOp::read(0, 0))
}

#[test]
fn writes_keep_their_order_when_the_pool_becomes_full() {
    for seed in 0..5 {
        assert_eq!(becomes_full_under_way(seed, Planted::Nothing), b"brief", "seed {seed}");
    }
}

/// The mistake shows: the older write came behind the newer one.
#[test]
fn the_full_transition_ignored_is_found() {
    assert_eq!(becomes_full_under_way(0, Planted::FullTransitionIgnored), b"rather long");
}

/// A primary is cut off together with a client, whose write it alone has. Others take over, and the client is shut out: nobody sends that
/// write again, so the primary has to take it back when it returns. What the object is then.
fn is_taken_back(seed: u64, planted: Planted) -> Vec<u8> {
    let tuning = Tuning { checked: true, planted, ..Tuning::default() };
    let mut world = World::new(seed, &Config { clients: 2, tuning, ..Config::default() });
    world.command(r#"{"prefix": "osd pool create", "pool": "p", "pg_num": 1}"#);
    assert_eq!(write(&mut world, &["old"], PATIENCE), 1);
    let primary_of = |world: &World| {
        let map = world.mon().expect("it runs").state().osd.map();
        map.pg_to_up_acting(PgId::new(1, 0)).acting_primary
    };
    let primary = primary_of(&world);
    let inside = [Proc::Osd(primary), Proc::Client(WRITER)];
    for other in world.procs().into_iter().filter(|other| !inside.contains(other)) {
        for one in inside {
            world.fabric().block(one.host(), other.host());
            world.fabric().block(other.host(), one.host());
        }
    }
    assert_eq!(write(&mut world, &["new"], Duration::from_secs(2)), 0, "seed {seed}: others have not got it");
    assert!(world.run_until(PATIENCE, |world| primary_of(world) != primary), "seed {seed}: {world:?}");
    let client = Proc::Client(WRITER).host().ip();
    world.command(&format!(r#"{{"prefix": "osd blocklist", "blocklistop": "add", "addr": "{client}:0/0"}}"#));
    world.run_for(Duration::from_secs(2));
    world.fabric().heal();
    assert!(world.run_until(PATIENCE, |world| primary_of(world) == primary), "seed {seed}: {world:?}");
    world.op("object", SubOp::read(0, 0))
}

#[test]
fn what_a_primary_alone_had_is_taken_back() {
    for seed in 0..5 {
        assert_eq!(is_taken_back(seed, Planted::Nothing), b"old", "seed {seed}");
    }
}

#[test]
fn divergent_entries_kept() {
    assert_eq!(is_taken_back(0, Planted::DivergentRollbackGenKept), b"new");
}
