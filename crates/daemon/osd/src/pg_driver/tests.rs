//! What the options say of PGs, each by what it makes different.

use super::*;
use crate::dispatch::tests::config;
use crate::divided::Divided;
use crate::own_collection::{BENCH_COLLECTION, level_maps};
use crate::relocation_msg::RelocationMsg;
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
    shard_with((0..partitions).map(|_| MemStore::new(1 << 20)).collect())
}

/// Likewise with these partitions.
pub(crate) fn shard_with(partitions: Vec<MemStore>) -> Shard {
    let count = partitions.len();
    let mut stores = partitions.into_iter().map(|store| Box::new(store) as Box<dyn ObjectStore + Send>);
    let first = stores.next().expect("a partition");
    let others: Vec<_> = stores.enumerate().map(|(nth, store)| (nth + 1, store)).collect();
    let store = if others.is_empty() { first } else { Box::new(Divided::new((0, first), others)) };
    shards_with(count, vec![store]).remove(0)
}

/// The shards of an OSD with so many partitions, each with its store.
fn shards_with(partitions: usize, stores: Vec<Box<dyn ObjectStore + Send>>) -> Vec<Shard> {
    let machine = |store| {
        let net = RealNet::new().expect("an epoll");
        let (clock, entropy, waker) = (Box::new(RealClock::start()), Box::new(SeededEntropy(1)), net.waker());
        Machine { clock, entropy, net: Box::new(net), waker, store, tuning: Tuning::default() }
    };
    let machines: Vec<Machine> = stores.into_iter().map(machine).collect();
    assemble(&config(machines.len()), partitions, machines).expect("ports").shards
}

/// Pool 1 with so many PGs, all of them on this OSD alone.
pub(crate) fn map_of(epoch: Epoch, pg_num: u32) -> Arc<OsdMap> {
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

/// [`map_of`] with the last PG about to be merged.
fn map_before_merge(epoch: Epoch, pg_num: u32) -> Arc<OsdMap> {
    let mut map = OsdMap::clone(&map_of(epoch, pg_num));
    map.pools.values_mut().for_each(|pool| pool.pg_num_pending = pg_num - 1);
    Arc::new(map)
}

/// Turns of the only shard of an OSD, as far as they are about PGs that change their partition.
fn relocate(driver: &mut PgDriver, cx: &mut ShardCx<'_>) {
    loop {
        while let Some(msg) = cx.net.router.next_local() {
            if let ShardMsg::Relocation(spg, msg) = msg {
                driver.relocation_msg(cx, spg, msg);
            }
        }
        driver.relocate(cx);
        let has_more = driver.drain_completions(cx, |_| ());
        if !has_more && !driver.relocations.has_work() && !cx.net.router.has_local() {
            return;
        }
    }
}

fn stored_map_count(driver: &PgDriver) -> usize {
    crate::own_collection::stored_epochs(driver.store.as_ref()).len()
}

/// It sees later what came meanwhile, however much that is.
#[test]
fn a_pg_that_is_to_be_merged_goes_to_the_others_partition_and_sees_all_maps_there() {
    let [target, source] = [0, 1].map(|seed| SpgId::replicated(PgId::new(1, seed)));
    let object = HObject { hash: 1, ..HObject::head(1, "".into(), "".into(), "of the source".into()) };
    let mut shard = shard(2);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.advance(&mut cx, &map_of(10, 2));
    for spg in [target, source] {
        driver.create_pg(&mut cx, spg, PgCreateInfo::ordered(10));
    }
    assert_eq!([target, source].map(|spg| driver.store.partition_of(&spg)), [Some(1), Some(0)]);
    let put = Transaction { collection: source, ops: vec![Op::Touch(object.clone())] };
    driver.submit(&mut cx, put, StoreToken::without_pg(0));
    for epoch in 11..400 {
        driver.advance(&mut cx, &map_before_merge(epoch, 2));
        assert!(driver.pgs.all() == [target] && driver.relocations.expects(&source));
    }
    let said =
        |driver: &PgDriver| driver.relocations.stats().map(|(pg, stat)| (pg, stat.state)).collect::<Vec<_>>();
    assert_eq!(said(driver), [(source.pg, nacre_msg::stats::pg_state::PEERING)]);
    assert_eq!((driver.pgs.maps_from(0).len(), stored_map_count(driver)), (100, 390), "memory stays bounded");
    relocate(driver, &mut cx);
    assert!(!driver.broken && !driver.relocations.expects(&source));
    assert!(driver.pgs.all() == [target, source] && said(driver).is_empty());
    assert_eq!(driver.store.partition_of(&source), Some(1));
    assert!(driver.pgs.get(&source).is_some_and(|pg| pg.has_seen(399)));
    let there: Vec<SpgId> = driver.store.each_partition()[0].1.collections();
    assert!(!there.contains(&source), "{there:?}");
    for epoch in 400..500 {
        driver.advance(&mut cx, &map_before_merge(epoch, 2));
    }
    assert_eq!((driver.pgs.maps_from(0).len(), stored_map_count(driver)), (100, 50));
    driver.advance(&mut cx, &map_of(500, 1));
    driver.finish_moving(&mut cx, target);
    assert!(!driver.broken && driver.pgs.all() == [target]);
    assert!(driver.store.list(&target, &HObject::MIN, 9).contains(&object), "merged");
}

/// Nobody else may make it meanwhile. Where there is none, whoever wants one makes it at once.
#[test]
fn a_pg_that_may_come_from_another_partition_is_not_made_anew_before_it_is_known_that_there_is_none() {
    let [target, source] = [0, 1].map(|seed| SpgId::replicated(PgId::new(1, seed)));
    let mut shard = shard(2);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.advance(&mut cx, &map_of(10, 2));
    driver.create_pg(&mut cx, target, PgCreateInfo::ordered(10));
    driver.advance(&mut cx, &map_before_merge(11, 2));
    driver.create_pg(&mut cx, source, PgCreateInfo::ordered(10));
    assert_eq!(driver.pgs.all(), [target]);
    relocate(driver, &mut cx);
    assert_eq!(driver.pgs.all(), [target, source]);
    assert_eq!(driver.store.partition_of(&source), Some(1));
    driver.advance(&mut cx, &map_of(12, 2));
    assert!(driver.relocations.maps_needed_from().is_none() && driver.pgs.get(&source).is_some());
    driver.advance(&mut cx, &map_before_merge(13, 2));
    assert!(
        driver.pgs.all() == [target, source],
        "it is where it belongs, though the merge was called off once"
    );
}

/// The OSD was away while the pool lost the PG and got it again: what was on its way finds nobody, and harms nobody.
#[test]
fn what_is_on_its_way_ends_with_its_pg_and_leaves_the_one_that_is_made_anew_alone() {
    for in_part in [false, true] {
        let [target, source] = [0, 1].map(|seed| SpgId::replicated(PgId::new(1, seed)));
        let object = HObject { hash: 1, ..HObject::head(1, "".into(), "".into(), "old".into()) };
        let mut shard = shard(2);
        let parts = shard.lend().0.parts;
        let (driver, mut cx) = (parts.pgs, parts.cx);
        driver.advance(&mut cx, &map_of(10, 2));
        for spg in [target, source] {
            driver.create_pg(&mut cx, spg, PgCreateInfo::ordered(10));
        }
        let put = Transaction { collection: source, ops: vec![Op::Touch(object.clone())] };
        driver.submit(&mut cx, put, StoreToken::without_pg(0));
        driver.advance(&mut cx, &map_before_merge(11, 2));
        if in_part {
            while let Some(msg) = cx.net.router.next_local() {
                if let ShardMsg::Relocation(spg, msg) = msg {
                    driver.relocation_msg(&mut cx, spg, msg);
                }
            }
            driver.drain_completions(&mut cx, |_| ());
            assert!(
                driver.store.each_partition().iter().all(|(_, part)| part.collections().contains(&source))
            );
        }
        driver.advance(&mut cx, &map_of(12, 1));
        assert!(!driver.store.collections().contains(&source), "{in_part}");
        driver.advance(&mut cx, &map_of(13, 2));
        driver.finish_moving(&mut cx, target);
        relocate(driver, &mut cx);
        assert!(!driver.broken && driver.pgs.all() == [target, source], "{in_part}");
        assert!(driver.relocations.maps_needed_from().is_none());
        let parts: Vec<bool> = driver
            .store
            .each_partition()
            .iter()
            .map(|(_, part)| part.collections().contains(&source))
            .collect();
        assert_eq!(parts, [false, true], "{in_part}");
        assert_eq!(driver.store.list(&source, &HObject::MIN, 9), [], "{in_part}");
    }
}

/// Nobody else may make it before, or what belongs to it stays where it is.
#[test]
fn a_pg_on_its_way_splits_when_it_has_come() {
    let [target, source, child] = [0, 1, 3].map(|seed| SpgId::replicated(PgId::new(1, seed)));
    let object = HObject { hash: 3, ..HObject::head(1, "".into(), "".into(), "of the child".into()) };
    let mut shard = shard(2);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.advance(&mut cx, &map_of(10, 2));
    for spg in [target, source] {
        driver.create_pg(&mut cx, spg, PgCreateInfo::ordered(10));
    }
    let put = Transaction { collection: source, ops: vec![Op::Touch(object.clone())] };
    driver.submit(&mut cx, put, StoreToken::without_pg(0));
    driver.advance(&mut cx, &map_before_merge(11, 2));
    driver.advance(&mut cx, &map_of(12, 4));
    driver.create_pg(&mut cx, child, PgCreateInfo::ordered(12));
    assert!(!driver.pgs.contains(&child) && driver.relocations.expects(&child));
    relocate(driver, &mut cx);
    driver.finish_moving(&mut cx, source);
    assert!(!driver.broken && driver.pgs.contains(&source) && driver.pgs.contains(&child));
    assert_eq!(driver.store.partition_of(&child), Some(1));
    assert_eq!(driver.store.list(&child, &HObject::MIN, 9), [object]);
    assert!(!driver.relocations.expects(&child));
}

/// Changes a partition of an OSD that is stopped.
fn change(store: &mut MemStore, collection: SpgId, ops: Vec<Op>) {
    store.submit(Transaction { collection, ops }, StoreToken::without_pg(0)).expect("room");
    // Nobody waits for that.
    store.drain(&mut Vec::new());
}

/// Gives a partition the maps that another one has, as where they come to one shard.
fn level(old: &mut MemStore, new: &MemStore) {
    let lacking = level_maps(&[old, new]).expect("close enough").remove(0);
    lacking.into_iter().for_each(|txn| change(old, txn.collection, txn.ops));
}

/// The names of a PG's objects.
fn names(driver: &PgDriver, spg: SpgId) -> Vec<String> {
    let objects = driver.store.list(&spg, &HObject::MIN, 9);
    objects.iter().map(|object| object.name.to_string()).collect()
}

/// What a partition has, in another store.
fn copy_of(view: &dyn ObjectStore) -> MemStore {
    let mut copy = MemStore::new(1 << 20);
    for collection in view.collections() {
        let mut ops = vec![Op::CreateCollection];
        ops.extend(view.list(&collection, &HObject::MIN, 99).into_iter().map(Op::Touch));
        let values = view.pg_meta(&collection, b"").into_iter();
        ops.extend(values.map(|(key, value)| Op::MetaSet { key, value }));
        change(&mut copy, collection, ops);
    }
    copy
}

/// Two partitions of an OSD that had both PGs with map 10, and then saw these maps: as they were then, and as they are.
fn partitions_before_and_after(maps: &[Arc<OsdMap>]) -> [Vec<MemStore>; 2] {
    let pgs = [0, 1].map(|seed| SpgId::replicated(PgId::new(1, seed)));
    let object = HObject { hash: 1, ..HObject::head(1, "".into(), "".into(), "old".into()) };
    let mut shard = shard(2);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.advance(&mut cx, &map_of(10, 2));
    for spg in pgs {
        driver.create_pg(&mut cx, spg, PgCreateInfo::ordered(10));
    }
    let put = Transaction { collection: pgs[1], ops: vec![Op::Touch(object)] };
    driver.submit(&mut cx, put, StoreToken::without_pg(0));
    let all =
        |driver: &PgDriver| driver.store.each_partition().iter().map(|(_, part)| copy_of(*part)).collect();
    let before = all(driver);
    for map in maps {
        driver.advance(&mut cx, map);
        driver.finish_moving(&mut cx, pgs[0]);
        relocate(driver, &mut cx);
    }
    assert!(!driver.broken);
    [before, all(driver)]
}

fn has(store: &dyn ObjectStore, spg: SpgId) -> bool {
    store.collections().contains(&spg)
}

/// An OSD that was away gets the maps with which a pool lost a PG and got it again, and is killed when one partition has them and the other
/// one does not: the old PG must neither stop the OSD nor take the place of the new one.
#[test]
fn a_pg_that_ended_and_was_made_anew_in_another_partition_is_the_new_one_after_a_kill() {
    let source = SpgId::replicated(PgId::new(1, 1));
    let maps = [map_before_merge(11, 2), map_of(12, 1), map_of(13, 2)];
    let killed = || {
        let [mut before, mut after] = partitions_before_and_after(&maps);
        let (mut old, new) = (before.remove(0), after.remove(1));
        assert!(has(&old, source) && has(&new, source));
        let stale = HObject { hash: 1, ..HObject::head(1, "".into(), "".into(), "removed since".into()) };
        change(&mut old, source, vec![Op::Touch(stale)]);
        (old, new)
    };
    let (mut old, new) = killed();
    level(&mut old, &new);
    let mut one = shard_with(vec![old, new]);
    let parts = one.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.load_pgs(&mut cx).expect("maps");
    relocate(driver, &mut cx);
    assert!(!driver.broken && driver.pgs.contains(&source));
    assert_eq!(driver.store.partition_of(&source), Some(1));
    assert_eq!(names(driver, source), ["old"]);
    assert!(!has(driver.store.each_partition()[0].1, source));

    let (old, new) = killed();
    let mut shards = shards_with(2, vec![Box::new(old), Box::new(new)]);
    for (shard, is_behind) in shards.iter_mut().zip([true, false]) {
        let parts = shard.lend().0.parts;
        let (driver, mut cx) = (parts.pgs, parts.cx);
        driver.load_pgs(&mut cx).expect("maps");
        assert!(!driver.relocations.expects(&source));
        assert_eq!(driver.pgs.get(&source).map(|pg| pg.epoch()), (!is_behind).then_some(13));
        for map in maps.iter().filter(|_| is_behind) {
            driver.advance(&mut cx, map);
        }
        assert!(!driver.broken && has(driver.store.as_ref(), source) != is_behind);
        assert!(driver.relocations.maps_needed_from().is_none());
    }
}

/// The other shard may have forgotten the maps that the PG has not seen.
#[test]
fn as_an_osd_starts_a_pg_goes_to_another_shard_once_its_own_has_come_to_the_newest_map() {
    let source = SpgId::replicated(PgId::new(1, 1));
    let maps = [map_before_merge(11, 2), map_before_merge(12, 2), map_before_merge(13, 2)];
    let [mut before, mut after] = partitions_before_and_after(&maps);
    let (old, mut new) = (before.remove(0), after.remove(1));
    change(&mut new, source, vec![Op::RemoveCollection]);
    let mut shards = shards_with(2, vec![Box::new(old), Box::new(new)]);
    let parts = shards[0].lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.load_pgs(&mut cx).expect("maps");
    for (map, is_to_stay) in maps.iter().zip([true, true, false]) {
        assert!(driver.pgs.contains(&source));
        driver.advance(&mut cx, map);
        assert_eq!(driver.pgs.contains(&source), is_to_stay, "map {}", map.epoch);
    }
    assert!(!driver.broken && has(driver.store.as_ref(), source), "it is copied from there");
    let parts = shards[1].lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.load_pgs(&mut cx).expect("maps");
    assert!(driver.relocations.expects(&source));
    // The other one says that it has none, by a map that is not here yet.
    driver.relocation_msg(&mut cx, source, RelocationMsg::Absent { epoch: 14 });
    assert!(driver.relocations.expects(&source));
    driver.advance(&mut cx, &map_before_merge(14, 2));
    assert!(!driver.relocations.expects(&source));
    assert!(driver.relocations.maps_needed_from().is_none());
}

/// Its PG ended before it was whole, and was removed: no data is lost that was not to go.
#[test]
fn what_is_left_of_a_copy_that_was_never_whole_is_removed_as_the_osd_starts_and_said_to_be_nobodys_loss() {
    let source = SpgId::replicated(PgId::new(1, 1));
    let maps = [map_before_merge(11, 2), map_of(12, 1), map_of(13, 1)];
    let [_, mut after] = partitions_before_and_after(&maps);
    change(&mut after[1], source, nacre_pg::Arriving::begin());
    let mut shard = shard_with(after);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.load_pgs(&mut cx).expect("maps");
    assert!(!driver.broken && !has(driver.store.as_ref(), source));
    assert!(!driver.pgs.is_unread(&source));
}

/// Killed while it is on its way, and the pool has more PGs since: what is split off it where it was goes before it, and is taken.
#[test]
fn what_is_split_off_a_pg_before_it_goes_on_its_way_again_goes_as_well() {
    let [source, child] = [1, 3].map(|seed| SpgId::replicated(PgId::new(1, seed)));
    let maps = [map_before_merge(11, 2), map_of(12, 4)];
    let killed = || {
        let [mut before, mut after] = partitions_before_and_after(&maps);
        let (mut old, mut new) = (before.remove(0), after.remove(1));
        let of_child = HObject { hash: 3, ..HObject::head(1, "".into(), "".into(), "of the child".into()) };
        change(&mut old, source, vec![Op::Touch(of_child)]);
        for collection in [source, child] {
            assert!(has(&new, collection));
            change(&mut new, collection, vec![Op::RemoveCollection]);
        }
        (old, new)
    };
    let (mut old, new) = killed();
    level(&mut old, &new);
    let mut one = shard_with(vec![old, new]);
    let parts = one.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.load_pgs(&mut cx).expect("maps");
    relocate(driver, &mut cx);
    assert!(!driver.broken);
    for (spg, name) in [(source, "old"), (child, "of the child")] {
        assert!(driver.pgs.contains(&spg) && driver.store.partition_of(&spg) == Some(1), "{spg}");
        assert_eq!(names(driver, spg), [name]);
    }

    // Two shards, of which the one with the PG comes to the newest map by itself.
    let (old, new) = killed();
    let mut shards = shards_with(2, vec![Box::new(old), Box::new(new)]);
    let mut begun = Vec::new();
    for shard in &mut shards {
        let parts = shard.lend().0.parts;
        let (driver, mut cx) = (parts.pgs, parts.cx);
        driver.load_pgs(&mut cx).expect("maps");
        let me = cx.net.router.me;
        for map in maps.iter().filter(|_| me == 0) {
            driver.advance(&mut cx, map);
        }
        let gone = driver.relocations.departures.iter();
        begun.extend(gone.map(|gone| (gone.spg, gone.run, gone.seen)));
        for (spg, run, seen) in begun.iter().filter(|_| me == 1) {
            assert!(driver.relocations.expects(spg));
            driver.relocation_msg(
                &mut cx,
                *spg,
                RelocationMsg::Begin { run: *run, to: 1, seen: *seen, epoch: 12 },
            );
            assert!(driver.relocations.arrivals.contains_key(spg), "{spg}");
        }
    }
    assert_eq!(begun.iter().map(|(spg, _, _)| *spg).collect::<Vec<_>>(), [child, source]);
}

/// What has no records of a PG may be on its way to become one.
#[test]
fn of_two_collections_of_a_pg_one_that_is_being_split_off_is_never_removed() {
    let source = SpgId::replicated(PgId::new(1, 1));
    let maps = [map_before_merge(11, 2), map_of(12, 1), map_of(13, 1)];
    let [mut before, mut after] = partitions_before_and_after(&maps);
    let (mut old, mut new) = (before.remove(0), after.remove(1));
    let moved = HObject { hash: 1, ..HObject::head(1, "".into(), "".into(), "moved".into()) };
    change(&mut new, source, vec![Op::CreateCollection, Op::Touch(moved.clone())]);
    level(&mut old, &new);
    let mut shard = shard_with(vec![old, new]);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.in_place(&mut cx);
    assert_eq!(driver.store.partition_of(&source), Some(1));
    assert_eq!(driver.store.list(&source, &HObject::MIN, 9), [moved]);
}

/// Killed in the midst of it: it is no PG's, and its room comes back.
#[test]
fn what_a_bench_has_left_is_removed_as_the_osd_starts() {
    let maps = [map_before_merge(11, 2), map_of(12, 1)];
    let [_, after] = partitions_before_and_after(&maps);
    let mut partitions = after;
    for store in &mut partitions {
        let block = HObject::head(-1, "".into(), "".into(), "bench".into());
        change(store, BENCH_COLLECTION, vec![Op::Touch(block)]);
    }
    let mut shard = shard_with(partitions);
    let parts = shard.lend().0.parts;
    let (driver, mut cx) = (parts.pgs, parts.cx);
    driver.load_pgs(&mut cx).expect("maps");
    assert!(!driver.broken && !driver.pgs.is_unread(&BENCH_COLLECTION));
    for (number, store) in driver.store.each_partition() {
        assert!(!has(store, BENCH_COLLECTION), "partition {number}");
    }
}
