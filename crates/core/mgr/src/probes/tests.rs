use super::*;
use std::time::Duration;

fn at(minutes: u64) -> Stamp {
    Stamp::default() + Duration::from_secs(60 * minutes)
}

fn answered(write_us: u64, read_us: u64) -> PoolProbe {
    PoolProbe { answered_us: [vec![write_us; 8], vec![read_us; 8]], ..PoolProbe::default() }
}

fn failed() -> PoolProbe {
    let fault = ProbeFault { pg: PgId::new(1, 3), primary: Some(2), work: ProbeWork::Write, errno: None };
    PoolProbe { faults: vec![fault], ..answered(3000, 500) }
}

/// Tells of rounds a minute apart; yields what is known then.
fn after(rounds: impl IntoIterator<Item = PoolProbe>) -> PoolHealth {
    let mut probes = Probes::default();
    for (minute, probe) in rounds.into_iter().enumerate() {
        probes.round(BTreeMap::from([(1, probe)]), at(minute as u64));
    }
    probes.pools.remove(&1).expect("it was probed")
}

fn calm(rounds: usize) -> impl Iterator<Item = PoolProbe> {
    (0..rounds).map(|round| answered(3000 + round as u64 * 10, 500))
}

#[test]
fn a_pool_fails_from_the_first_round_without_an_answer_to_the_next_good_one() {
    let health = after(calm(6).chain([failed(), failed()]));
    assert_eq!(health.failed_since, Some(at(6)));
    assert_eq!(health.last.faults.len(), 1);
    assert!(health.slow.is_none());
    assert_eq!(after(calm(6).chain([failed(), answered(3000, 500)])).failed_since, None);
    let mut probes = Probes::default();
    probes.round(BTreeMap::from([(1, failed()), (2, answered(1, 1))]), at(0));
    assert_eq!(probes.failing(), BTreeSet::from([1]));
    probes.retain(|pool| pool == 2);
    assert!(probes.failing().is_empty());
}

#[test]
fn a_pool_of_which_nothing_is_found_out_is_neither_failed_nor_slow() {
    let health = after(calm(6).chain([failed(), PoolProbe::default()]));
    assert_eq!((health.failed_since, health.levels, health.last), (None, [None; 2], PoolProbe::default()));
    let slow = || answered(30_000, 500);
    let health = after(calm(6).chain([slow(), slow(), PoolProbe::default()]));
    assert!(health.slow.is_none() && health.past(ProbeWork::Write).is_some());
    // The same where nobody could probe.
    let mut probes = Probes::default();
    for (minute, probe) in calm(6).chain([slow(), slow()]).enumerate() {
        probes.round(BTreeMap::from([(1, probe), (2, failed())]), at(minute as u64));
    }
    assert_eq!(probes.failing(), BTreeSet::from([2]));
    probes.round_failed();
    assert!(probes.failing().is_empty());
    assert!(probes.pools().all(|(_, health)| health.slow.is_none() && health.levels == [None; 2]));
    let usual = probes.pools().next().and_then(|(_, health)| health.past(ProbeWork::Write));
    assert_eq!(usual.map(|level| level.half_us), Some(3030), "what is usual is known still");
}

#[test]
fn a_pool_is_slow_beside_its_own_past_in_two_rounds() {
    let slow = || answered(30_000, 500);
    assert!(after(calm(6).chain([slow()])).slow.is_none(), "one round");
    let health = after(calm(6).chain([slow(), slow(), slow()]));
    let (since, slowness) = health.slow.expect("it is slow");
    assert_eq!((since, slowness.work, slowness.now.half_us), (at(7), ProbeWork::Write, 30_000));
    assert_eq!(slowness.past.half_us, 3030);
    // However long it lasts, it is not what is usual.
    let lasting = after(calm(6).chain((0..200).map(|_| slow())));
    assert!(lasting.slow.is_some());
    assert!(after(calm(6).chain([slow(), slow(), answered(4000, 500)])).slow.is_none(), "it is well again");
    assert!(after(calm(3).chain([slow(), slow()])).slow.is_none(), "nothing to compare with");
    let small = || answered(3000, 4000);
    assert!(after(calm(6).chain([small(), small()])).slow.is_none(), "eight times as long, but 3.5 ms");
    let mut few = answered(3000, 500);
    few.answered_us[1][7] = 90_000;
    let health = after(calm(6).chain([few.clone(), few]));
    assert_eq!(health.slow.map(|(_, slowness)| slowness.work), Some(ProbeWork::Read), "one PG of eight");
}

#[test]
fn hosts_are_bounded_and_their_percentiles_are_bounds_of_buckets() {
    let mut probe = HostProbe::default();
    assert_eq!(probe.percentile_us(99), None);
    (0..99).for_each(|_| probe.note(1500));
    probe.note(20_000_000);
    assert_eq!([50, 99].map(|share| probe.percentile_us(share)), [Some(2000); 2]);
    assert_eq!(probe.percentile_us(100), None, "beyond the last bound");
    let mut hosts = HostLatency::default();
    for number in 0..HOSTS_MAX {
        assert!(hosts.report(&number.to_string(), 1, &probe, at(0)));
    }
    assert!(!hosts.report("new", 1, &probe, at(1)));
    assert!(hosts.report("0", 1, &probe, at(1)));
    assert!(hosts.report("new", 1, &probe, at(10)), "others have been silent");
    let all: Vec<_> = hosts.all().map(|(host, _, probe)| (host.to_owned(), probe.count)).collect();
    assert_eq!(all, [("0".to_owned(), 200), ("new".to_owned(), 100)]);
    let mut probes = Probes { hosts, ..Probes::default() };
    probes.tick(at(12));
    assert_eq!(probes.hosts.all().map(|(host, ..)| host).collect::<Vec<_>>(), ["new"]);
}

#[test]
fn a_pool_that_was_laid_out_otherwise_is_not_compared_with_what_it_was() {
    let layout = |size| PoolLayout { rule: None, size };
    let mut probes = Probes::default();
    let slow = || answered(30_000, 500);
    for (minute, probe) in calm(6).chain([slow(), slow()]).enumerate() {
        probes.follow_layout(1, layout(2));
        probes.round(BTreeMap::from([(1, probe)]), at(minute as u64));
    }
    assert!(probes.pools[&1].slow.is_some());
    probes.follow_layout(1, layout(3));
    assert!(probes.pools[&1].slow.is_none());
    probes.round(BTreeMap::from([(1, slow())]), at(9));
    probes.round(BTreeMap::from([(1, slow())]), at(10));
    assert!(probes.pools[&1].slow.is_none());
}
