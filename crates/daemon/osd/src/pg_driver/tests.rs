//! What the options say of PGs, each by what it makes different.

use super::*;
use crate::tracker::tests::reply;
use nacre_store::MemStore;
use nacre_types::{Stamp, UTime};
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
