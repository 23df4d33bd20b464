//! Series of windows, from a seed.

use super::*;
use nacre_types::RequestClass;

const RATIO: f64 = 2.0;

/// A cheap source of numbers.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// About `mean`, between half and twice as much.
    fn about(&mut self, mean: f64) -> f64 {
        let unit = (self.next() % 10_000) as f64 / 10_000.0;
        mean * (2.0 * unit - 1.0).exp2()
    }
}

/// What one device does in a step: requests, how many others they find, how long they take.
#[derive(Clone, Copy)]
struct Load {
    work: DeviceWork,
    count: u64,
    others: usize,
    us: f64,
}

const LIGHT: Load = Load { work: DeviceWork::DurableWrite, count: 60, others: 0, us: 300.0 };

struct Rig {
    slow: SlowDevices,
    classes: BTreeMap<OsdId, String>,
    now: Stamp,
    rng: Rng,
}

impl Rig {
    fn new(osds: i32) -> Self {
        let mut slow = SlowDevices::default();
        let now = Stamp::default() + Duration::from_secs(1);
        let classes: BTreeMap<OsdId, String> = (0..osds).map(|osd| (osd, "ssd".to_owned())).collect();
        assert!(slow.judge(BTreeMap::new, RATIO, now).is_empty());
        Self { slow, classes, now, rng: Rng(0x5eed_1234_5678_9abc) }
    }

    fn step(&mut self, loads: impl Fn(OsdId) -> Vec<Load>) -> Vec<Change> {
        for osd in self.classes.keys().copied() {
            let mut latencies = DeviceLatencies::default();
            for load in loads(osd) {
                let class = RequestClass::of(load.work, load.others, 4096);
                for _ in 0..load.count {
                    let us = self.rng.about(load.us);
                    latencies.class_mut(class).note((us * 1000.0) as u64);
                }
            }
            self.slow.report(osd, &latencies);
        }
        self.now = self.now + STEP;
        self.slow.judge(|| self.classes.clone(), RATIO, self.now)
    }

    /// Seconds until something changes, and what.
    fn until(&mut self, limit_s: u64, loads: impl Fn(OsdId) -> Vec<Load>) -> Option<(u64, Vec<Change>)> {
        (1..=limit_s / STEP.as_secs()).find_map(|step| {
            let changes = self.step(&loads);
            (!changes.is_empty()).then(|| (step * STEP.as_secs(), changes))
        })
    }

    fn named(&self) -> Vec<OsdId> {
        self.slow.slow().map(|(osd, _)| osd).collect()
    }
}

fn stalled(slow: OsdId) -> impl Fn(OsdId) -> Vec<Load> {
    move |osd| vec![if osd == slow { Load { us: 5_300.0, ..LIGHT } } else { LIGHT }]
}

#[test]
fn one_of_nine_is_named_in_time_and_well_again_when_it_is() {
    let mut rig = Rig::new(9);
    assert_eq!(rig.until(300, |_| vec![LIGHT]), None, "calm");
    let (after_s, changes) = rig.until(60, stalled(4)).expect("named");
    assert!(after_s <= 30, "{after_s}");
    let [Change::Slow(4, finding)] = changes[..] else { panic!("{changes:?}") };
    assert!((8.0..32.0).contains(&finding.ratio), "{finding:?}");
    assert!(finding.median_us > 3_000.0 && finding.peers_median_us < 600.0);
    assert_eq!((finding.work, finding.peers, finding.is_tail), (DeviceWork::DurableWrite, 8, false));
    assert!(!rig.slow.find(4).is_some_and(|slow| slow.is_lasting));
    assert_eq!(rig.until(15, stalled(4)), None);
    assert!(rig.slow.find(4).is_some_and(|slow| slow.is_lasting));
    let (after_s, changes) = rig.until(120, |_| vec![LIGHT]).expect("well");
    assert_eq!((after_s, changes), (60, vec![Change::Well(4)]));
    // It must be well for longer each time.
    rig.until(60, stalled(4)).expect("named again");
    let (after_s, _) = rig.until(300, |_| vec![LIGHT]).expect("well");
    assert_eq!(after_s, 120);
}

#[test]
fn one_of_three_is_named_and_of_two_nobody() {
    let mut rig = Rig::new(3);
    rig.until(60, stalled(0)).expect("named");
    assert_eq!(rig.named(), [0]);
    let mut rig = Rig::new(2);
    assert_eq!(rig.until(300, stalled(0)), None, "it may be the other one that is fast");
}

#[test]
fn overload_of_all_names_nobody() {
    let mut rig = Rig::new(9);
    rig.until(60, |_| vec![LIGHT]);
    // Some have more of it than others, and their queues are longer.
    let overload = |osd: OsdId| {
        [0, 1, 3, 7, 15, 31]
            .map(|others| {
                let depth = others as f64 + 1.0;
                let count = 40 * u64::from(osd.unsigned_abs() % 3 + 1) * if others > 7 { 4 } else { 1 };
                Load { work: DeviceWork::DurableWrite, count, others, us: 900.0 * depth }
            })
            .to_vec()
    };
    assert_eq!(rig.until(3600, overload), None);
    assert_eq!(rig.until(600, |_| vec![LIGHT]), None);
}

/// Who has far more to do has longer queues, and is compared by what it does in short ones.
#[test]
fn a_noisy_neighbour_is_no_slow_device() {
    let mut rig = Rig::new(9);
    let one_is_busy = |osd| {
        let busy = [(0, 300.0), (1, 500.0), (7, 2_400.0), (31, 9_000.0)].map(|(others, us)| Load {
            count: 600,
            others,
            us,
            ..LIGHT
        });
        if osd == 2 { busy.to_vec() } else { vec![LIGHT] }
    };
    assert_eq!(rig.until(3600, one_is_busy), None);
    // It is the same device that stalls under that load, and is named.
    let and_stalls = |osd| {
        let mut loads = one_is_busy(osd);
        if osd == 2 {
            loads.iter_mut().for_each(|load| load.us = load.us * 2.0 + 5_000.0);
        }
        loads
    };
    rig.until(60, and_stalls).expect("named");
    assert_eq!(rig.named(), [2]);
}

#[test]
fn a_short_stall_names_nobody() {
    let mut rig = Rig::new(9);
    for _ in 0..20 {
        assert_eq!(rig.until(10, stalled(4)), None, "two windows");
        assert_eq!(rig.until(10, |_| vec![LIGHT]), None, "two others");
    }
}

#[test]
fn rare_and_long_stalls_are_named_by_the_tail() {
    let mut rig = Rig::new(9);
    let rare = |osd| {
        let mut loads = vec![Load { count: 600, ..LIGHT }];
        if osd == 7 {
            loads.push(Load { count: 60, us: 100_000.0, ..LIGHT });
        }
        loads
    };
    let (_, changes) = rig.until(60, rare).expect("named");
    let [Change::Slow(7, finding)] = changes[..] else { panic!("{changes:?}") };
    assert!(finding.is_tail && finding.p99_us > 50_000.0, "{finding:?}");
}

/// Relieved, it has only probes to do, whose median says nothing of what one in twenty takes.
#[test]
fn what_the_tail_began_the_tail_ends() {
    let mut rig = Rig::new(9);
    let rare = |count: u64, late: u64| {
        move |osd| {
            let mut loads = vec![Load { count: if osd == 7 { count } else { 600 }, ..LIGHT }];
            if osd == 7 && late > 0 {
                loads.push(Load { count: late, us: 100_000.0, ..LIGHT });
            }
            loads
        }
    };
    rig.until(60, rare(600, 60)).expect("named");
    // Five probes in a window, and of twenty of them two take long.
    for _ in 0..30 {
        assert_eq!(rig.until(15, rare(5, 0)), None);
        assert_eq!(rig.until(5, rare(3, 2)), None);
    }
    assert_eq!(rig.named(), [7]);
    let (after_s, changes) = rig.until(600, rare(5, 0)).expect("well");
    assert_eq!(changes, [Change::Well(7)]);
    assert!(after_s <= 240, "{after_s}");
}

/// Its writes go on while it reads no more: they say nothing of reads.
#[test]
fn it_is_well_only_by_what_it_was_slow_at() {
    let read = Load { work: DeviceWork::Read, count: 30, ..LIGHT };
    let mut rig = Rig::new(5);
    let slow_reads = |osd| vec![LIGHT, if osd == 1 { Load { us: 9_000.0, ..read } } else { read }];
    rig.until(60, slow_reads).expect("named");
    assert_eq!(rig.named(), [1]);
    let without = |osd| if osd == 1 { vec![LIGHT] } else { vec![LIGHT, read] };
    assert_eq!(rig.until(1200, without), None);
    // Probes are few: several windows are taken together.
    let probes = |osd| if osd == 1 { vec![LIGHT, Load { count: 5, ..read }] } else { vec![LIGHT, read] };
    let (after_s, changes) = rig.until(300, probes).expect("well");
    assert_eq!(changes, [Change::Well(1)]);
    assert!(after_s <= 90, "{after_s}");
}

#[test]
fn fast_devices_differ_by_times_and_nobody_feels_it() {
    let mut rig = Rig::new(9);
    let fast = |osd| vec![Load { us: if osd == 3 { 200.0 } else { 20.0 }, count: 5_000, ..LIGHT }];
    assert_eq!(rig.until(600, fast), None);
}

#[test]
fn other_classes_are_no_peers() {
    let mut rig = Rig::new(9);
    for osd in [7, 8] {
        rig.classes.insert(osd, "hdd".to_owned());
    }
    let slow = |osd| vec![if osd >= 7 { Load { us: 8_000.0, ..LIGHT } } else { LIGHT }];
    assert_eq!(rig.until(600, slow), None);
    rig.classes.insert(7, "ssd".to_owned());
    rig.until(60, slow).expect("named");
    assert_eq!(rig.named(), [7]);
}

#[test]
fn an_osd_that_is_down_is_not_judged_and_stays_named() {
    let mut rig = Rig::new(5);
    rig.until(60, stalled(1)).expect("named");
    let class = rig.classes.remove(&1).expect("there");
    assert_eq!(rig.until(600, |_| vec![LIGHT]), None);
    assert_eq!(rig.named(), [1]);
    rig.classes.insert(1, class);
    assert_eq!(rig.until(120, |_| vec![LIGHT]), Some((60, vec![Change::Well(1)])));
    rig.slow.remember(2, DeviceWork::DurableWrite, rig.now);
    assert!(rig.slow.find(2).is_some_and(|slow| slow.is_lasting && slow.finding.is_none()));
    rig.slow.retain(|osd| osd != 2);
    assert_eq!(rig.named(), Vec::<OsdId>::new());
}

/// Two others are needed to judge one.
#[test]
fn one_that_cannot_be_judged_any_more_is_named_for_an_hour() {
    let mut rig = Rig::new(3);
    rig.until(60, stalled(0)).expect("named");
    rig.classes.remove(&1).expect("there");
    assert_eq!(rig.until(7200, |_| vec![LIGHT]), Some((3600, vec![Change::Unjudged(0)])));
    assert_eq!(rig.named(), Vec::<OsdId>::new());
}

#[test]
fn without_a_ratio_nobody_is_named() {
    let mut rig = Rig::new(5);
    rig.until(60, stalled(1)).expect("named");
    rig.now = rig.now + STEP;
    assert_eq!(rig.slow.judge(|| rig.classes.clone(), 0.0, rig.now), [Change::Unjudged(1)]);
    assert_eq!(rig.named(), Vec::<OsdId>::new());
}

/// Judged every 5 s on the leader's thread, which serves everybody.
#[test]
fn a_thousand_devices_are_judged_within_one_step() {
    let mut rig = Rig::new(1000);
    let many = |_| [0, 1, 3, 7].map(|others| Load { count: 20, others, ..LIGHT }).to_vec();
    for _ in 0..6 {
        assert_eq!(rig.step(many), []);
    }
    assert_eq!(rig.slow.devices.len(), 1000);
}

/// A probe each five seconds is all that there is.
#[test]
fn idle_devices_are_judged_by_probes() {
    let mut rig = Rig::new(9);
    let probe = |work| Load { work, count: 1, ..LIGHT };
    let both = [probe(DeviceWork::Read), probe(DeviceWork::DurableWrite)];
    // With so few of them, what a busy machine adds at times makes medians differ by several times.
    let noisy = |osd: OsdId, nth: u64| {
        let is_late = (u64::from(osd.unsigned_abs()) * 7919 + nth * 104_729) % 10 < 4;
        both.map(|load| Load { us: if is_late { 6_000.0 } else { load.us }, ..load }).to_vec()
    };
    for nth in 0..2000 {
        assert_eq!(rig.step(|osd| noisy(osd, nth)), []);
    }
    let slow = |osd| both.map(|load| if osd == 5 { Load { us: 20_000.0, ..load } } else { load }).to_vec();
    let (after_s, _) = rig.until(300, slow).expect("named");
    assert!(after_s <= 240 && rig.named() == [5], "{after_s}");
    // Relieved, it is probed each second; the others are not.
    let well = |osd| both.map(|load| Load { count: if osd == 5 { 5 } else { 1 }, ..load }).to_vec();
    let (after_s, _) = rig.until(240, well).expect("well");
    assert!(after_s <= 180, "{after_s}");
}

/// What checkpoints write comes at once, and waits for itself.
/// As it was measured beside a compiler: the probes of one OSD met what the machine did each time, and others' met it harder.
#[test]
fn a_few_probes_that_are_late_name_nobody_where_others_had_later_ones() {
    let probes = |slow_us: f64, late_us: f64| {
        let mut rig = Rig::new(9);
        let named = (0..120).flat_map(|step| {
            rig.step(|osd| {
                let is_late = i64::from(osd) == 1 + step % 16;
                let others_us = if is_late { late_us } else { 300.0 };
                let us = if osd == 0 { slow_us } else { others_us };
                vec![Load { work: DeviceWork::Read, count: 1, others: 0, us }]
            })
        });
        named.filter(|change| matches!(change, Change::Slow(0, _))).count()
    };
    assert_eq!(probes(2_000.0, 16_000.0), 0);
    assert_eq!(probes(2_000.0, 300.0), 1, "on a calm machine it is slow");
    assert_eq!(probes(30_000.0, 10_000.0), 1, "and so it is by what nobody else had");
}

#[test]
fn bursts_of_checkpoints_name_nobody() {
    let mut rig = Rig::new(9);
    let burst = |osd| {
        let burst = Load { work: DeviceWork::CachedWrite, count: 80, others: 31, us: 60_000.0 };
        if osd == 3 { vec![LIGHT, burst] } else { vec![LIGHT, Load { us: 6_000.0, ..burst }] }
    };
    assert_eq!(rig.until(600, burst), None);
}
