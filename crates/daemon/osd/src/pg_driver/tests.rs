//! What the options say of PGs, each by what it makes different.

use super::*;
use crate::dispatch::tests::config;
use crate::divided::Divided;
use crate::shard::Shard;
use crate::start::{Machine, assemble};
use crate::tracker::tests::reply;
use nacre_env::RealClock;
use nacre_env::real::RealNet;
use nacre_maps::Pool;
use nacre_maps::flags::osd::{EXISTS, UP};
use nacre_pg::PgCreateInfo;
use nacre_store::MemStore;
use nacre_txn::Op;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Epoch, HObject, PgId, Stamp, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

fn driver(options: &[(&str, &str)]) -> PgDriver {
    let leases = Leases::new(Duration::from_secs(5), Stamp::default());
    let gate = AdmissionGate::new(0, leases, false);
    let (store, tuning) = (Box::new(MemStore::new(1 << 20)), Tuning::default());
    let memory = Memory::new(None, store.memory(), tuning.limits);
    let mut driver = PgDriver::new(0, store, gate, tuning, memory);
    driver.follow_options(&options.iter().copied().collect());
    driver
}

fn at(second: u64) -> Stamp {
    Stamp::default() + Duration::from_secs(second)
}

/// Answers so many reads, the `n`th after `n` seconds; yields the driver at the end of the last.
fn answer(mut driver: PgDriver, reads: u64) -> PgDriver {
    let reply = reply();
    for tid in 1..=reads {
        let trace = Trace { received: at(1), dispatched: at(1), replied: at(1 + tid), ..Trace::default() };
        if driver.tracker.answered(&trace) {
            driver.tracker.keep(&reply, tid, None, trace);
        }
    }
    driver
}

/// How many `dump_historic_ops` shows in so many seconds.
fn shown(driver: &mut PgDriver, second: u64) -> usize {
    driver.tracker.expire(at(second));
    let dump = driver.tracker.dump_history((at(second), UTime::ZERO));
    dump["ops"].as_array().map_or(0, Vec::len)
}

#[test]
fn as_many_finished_messages_are_kept_as_the_option_says_and_for_as_long() {
    assert_eq!(shown(&mut answer(driver(&[]), 30), 40), 20);
    assert_eq!(shown(&mut answer(driver(&[("osd_op_history_size", "7")]), 30), 40), 7);
    assert_eq!(shown(&mut answer(driver(&[("osd_op_history_size", "0")]), 30), 40), 0);
    let ten_seconds = [("osd_op_history_duration", "10")];
    assert_eq!(shown(&mut answer(driver(&ten_seconds), 20), 26), 6, "those that ended in second 16 or later");
    assert_eq!(shown(&mut answer(driver(&[]), 20), 26), 20);
}

#[test]
fn messages_count_where_the_option_lets_them() {
    let counted = |options: &[_]| answer(driver(options), 3).tracker.answers()[0].0;
    assert_eq!(counted(&[]), 3);
    assert_eq!(counted(&[("osd_enable_op_tracker", "false")]), 0);
    assert_eq!(shown(&mut answer(driver(&[("osd_enable_op_tracker", "false")]), 3), 5), 0);
}

#[test]
fn freed_space_is_discarded_where_the_options_say() {
    let policy = |set: &[(&str, &str)]| discard_policy(&set.iter().copied().collect());
    assert_eq!(policy(&[]), DiscardPolicy::Devices);
    assert_eq!(policy(&[("nacre_discard_files", "true")]), DiscardPolicy::DevicesAndFiles);
    let never = [("nacre_discard_files", "true"), ("bdev_enable_discard", "false")];
    assert_eq!(policy(&never), DiscardPolicy::Never);
}

/// All PGs that recover at a time share what the option says.
#[test]
fn as_many_objects_are_recovered_at_a_time_as_the_options_say() {
    let of_each_pg = |options: &[_]| driver(options).throttle.objects_max(Stamp::default());
    assert_eq!(of_each_pg(&[]), 4, "10 among 3");
    assert_eq!(of_each_pg(&[("osd_recovery_max_active_ssd", "30")]), 10);
    assert_eq!(of_each_pg(&[("osd_recovery_max_active_ssd", "30"), ("osd_max_backfills", "1")]), 30);
    let own = [("osd_recovery_max_active", "3"), ("osd_recovery_max_active_ssd", "30")];
    assert_eq!(of_each_pg(&own), 1, "before what is said of SSDs");
}

/// The only shard of an OSD whose store has so many partitions.
fn shard(partitions: usize) -> Shard {
    let store = || Box::new(MemStore::new(1 << 20)) as Box<dyn ObjectStore + Send>;
    let others: Vec<_> = (1..partitions).map(|number| (number, store())).collect();
    let store = if others.is_empty() { store() } else { Box::new(Divided::new((0, store()), others)) };
    let net = RealNet::new().expect("an epoll");
    let (clock, entropy, waker) = (Box::new(RealClock::start()), Box::new(SeededEntropy(1)), net.waker());
    let machine = Machine { clock, entropy, net: Box::new(net), waker, store, tuning: Tuning::default() };
    let osd = assemble(&config(1), partitions, vec![machine]).expect("ports");
    osd.shards.into_iter().next().expect("one shard")
}

/// Pool 1 with so many PGs, all of them on this OSD alone.
fn map_of(epoch: Epoch, pg_num: u32) -> Arc<OsdMap> {
    let pool = Pool { pg_num, pgp_num: pg_num, size: 1, min_size: 1, ..Pool::default() };
    let mut map = OsdMap { epoch, pools: BTreeMap::from([(1, pool)]), ..OsdMap::default() };
    map.set_max_osd(1);
    map.osd_state.fill(EXISTS | UP);
    for seed in 0..pg_num {
        map.pg_temp.insert(PgId::new(1, seed), vec![0]);
    }
    Arc::new(map)
}

/// Merges the second of two PGs, which has an object, into the first; whether that has it then.
fn has_the_sources_object(partitions: usize) -> bool {
    let [target, source] = [0, 1].map(|seed| SpgId::replicated(PgId::new(1, seed)));
    let object = HObject { hash: 1, ..HObject::head(1, "".into(), "".into(), "of the source".into()) };
    let mut shard = shard(partitions);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.advance(&mut cx, &map_of(10, 2));
    for spg in [target, source] {
        driver.create_pg(&mut cx, spg, PgCreateInfo::ordered(10));
    }
    assert_eq!(driver.pgs.all(), [target, source]);
    let put = Transaction { collection: source, ops: vec![Op::Touch(object.clone())] };
    driver.store.submit(put, StoreToken::without_pg(0)).expect("room");
    driver.advance(&mut cx, &map_of(11, 1));
    driver.finish_moving(&mut cx, target);
    assert!(!driver.broken && driver.pgs.all() == [target]);
    assert_eq!(cx.net.router.partition_of(&target), 1 % partitions);
    driver.store.list(&target, &HObject::MIN, 9).contains(&object)
}

/// The source is not to be had then, as if it were on another shard, and the target stays in its partition.
#[test]
fn a_pg_is_merged_with_one_of_its_own_partition_only() {
    assert!(has_the_sources_object(1));
    assert!(!has_the_sources_object(2));
}
