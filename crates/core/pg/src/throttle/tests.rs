//! How fast recovery goes beside writes of this and that duration.

use super::*;

const TARGET: Duration = Duration::from_millis(5);
const PART: u64 = 512 << 10;
const START: Stamp = Stamp(1_000_000_000);

fn throttle() -> RecoveryThrottle {
    let mut throttle = RecoveryThrottle::new();
    throttle.configure(TARGET, 2000, 8);
    throttle
}

/// `count` writes, one each millisecond, the `slow` last of them too slow; recovery takes what it may beside them. Yields
/// when they end, and what recovery took.
fn writes(throttle: &mut RecoveryThrottle, now: Stamp, count: u64, slow: u64) -> (Stamp, u64) {
    writes_of(throttle, now, count, |n| if n + slow < count { WELL } else { TARGET * 2 })
}

/// The same, the nth of which takes `spent(n)`.
fn writes_of(
    throttle: &mut RecoveryThrottle,
    mut now: Stamp,
    count: u64,
    spent: impl Fn(u64) -> Duration,
) -> (Stamp, u64) {
    let mut moved = 0;
    for n in 0..count {
        now = now + Duration::from_millis(1);
        while throttle.goes_on_at(now).is_none() && throttle.rate(now).is_some() {
            throttle.take(now, PART);
            moved += PART;
        }
        throttle.client_op(now, Some(spent(n)));
    }
    (now, moved)
}

/// What writes take in a good window: TARGET would be near the limit.
const WELL: Duration = Duration::from_millis(2);

/// Recovery has begun, and what ends from now on is judged.
fn begun(throttle: &mut RecoveryThrottle) -> Stamp {
    throttle.client_op(START, None);
    writes(throttle, START, 500, 500).0
}

#[test]
fn the_rate_grows_by_a_quarter_until_it_is_too_high_and_then_creeps() {
    let mut throttle = throttle();
    let mut now = begun(&mut throttle);
    let mut rate = RATE_FIRST;
    assert_eq!(throttle.rate(now), Some(rate), "those before have felt what came before recovery");
    for _ in 0..3 {
        (now, _) = writes(&mut throttle, now, WINDOW_OPERATIONS, 0);
        rate += rate / 4;
        assert_eq!(throttle.rate(now), Some(rate));
    }
    (now, _) = writes(&mut throttle, now, 100, 3);
    rate = rate / 100 * 70;
    assert_eq!(throttle.rate(now), Some(rate), "three in a window are too many, however many come");
    (now, _) = writes(&mut throttle, now, 499, 499);
    assert_eq!(throttle.rate(now), Some(rate), "they began at the old rate");
    (now, _) = writes(&mut throttle, now, 3, 3);
    rate = rate / 100 * 85;
    assert_eq!(throttle.rate(now), Some(rate), "what comes soon after a cut is of what was before it");
    (now, _) = writes(&mut throttle, now, 499, 0);
    for well in 1..20 {
        (now, _) = writes(&mut throttle, now, WINDOW_OPERATIONS, 0);
        rate += rate / if well > WELL_IN_A_ROW { 10 } else { 20 };
        assert_eq!(throttle.rate(now), Some(rate));
    }
}

#[test]
fn writes_that_come_near_the_limit_are_a_reason_to_go_slower() {
    let mut throttle = throttle();
    // 1 ms is usual: above 2.3 ms is not well, above 3.6 ms is near.
    let now = (0..10_000).fold(START, |now, _| {
        throttle.client_op(now, Some(Duration::from_millis(1)));
        now + Duration::from_millis(1)
    });
    throttle.take(now, PART);
    let (near, not_well) = (Duration::from_micros(4000), Duration::from_millis(3));
    let (now, _) = writes_of(&mut throttle, now, 500, |_| WELL);
    let (now, _) = writes_of(&mut throttle, now, WINDOW_OPERATIONS, |_| WELL);
    let mut at = RATE_FIRST / 4 * 5;
    assert_eq!(throttle.rate(now), Some(at));
    let (now, _) = writes_of(&mut throttle, now, 2000, |n| if n % 50 == 7 { not_well } else { WELL });
    assert_eq!(throttle.rate(now), Some(at), "it is fast enough");
    let (now, _) =
        writes_of(&mut throttle, now, WINDOW_OPERATIONS, |n| if n % 50 == 7 { near } else { WELL });
    at = at / 100 * 90;
    assert_eq!(throttle.rate(now), Some(at));
    let (now, _) = writes_of(&mut throttle, now, 800, |n| if n % 200 == 7 { near } else { WELL });
    assert!(throttle.rate(now) > Some(at), "one in two hundred is no reason");
    let kept = throttle.kept_seconds();
    assert_eq!(kept.judged, kept.kept);
}

#[test]
fn slow_writes_count_whatever_others_are_near() {
    let mut throttle = throttle();
    let now = begun(&mut throttle);
    let near = TARGET / 20 * 19;
    let spent = |n| match n {
        n if n % 33 == 5 => TARGET * 2,
        n if n % 5 == 0 => near,
        _ => WELL,
    };
    let (now, _) = writes_of(&mut throttle, now, WINDOW_OPERATIONS, spent);
    assert_eq!(throttle.rate(now), Some(RATE_FIRST / 100 * 70));
    // Below the first rate what is only near is no reason to stay there.
    let (now, _) = writes_of(&mut throttle, now, 60_000, |_| near);
    let rate = throttle.rate(now).expect("a limit");
    assert!((RATE_FIRST / 10 * 9..RATE_FIRST / 10 * 12).contains(&rate), "{rate}");
}

#[test]
fn a_single_slow_write_costs_a_tenth_and_three_more() {
    let mut throttle = throttle();
    let mut now = begun(&mut throttle);
    // Few a second are judged after 3 s.
    for n in 1..=60 {
        now = now + Duration::from_millis(50);
        throttle.take(now, 1);
        throttle.client_op(now, Some(if n == 7 { TARGET * 9 } else { WELL }));
    }
    let at = RATE_FIRST / 100 * 90;
    assert_eq!(throttle.rate(now), Some(at));
    for n in 1..=40 {
        now = now + Duration::from_millis(50);
        throttle.take(now, 1);
        throttle.client_op(now, Some(if n % 7 == 0 { TARGET * 9 } else { WELL }));
    }
    assert_eq!(throttle.rate(now), Some(at / 100 * 70));
}

#[test]
fn reads_keep_recovery_to_its_rate_and_are_not_judged() {
    let mut throttle = throttle();
    let mut now = START;
    for _ in 0..5000 {
        now = now + Duration::from_millis(1);
        throttle.client_op(now, None);
        while throttle.goes_on_at(now).is_none() {
            throttle.take(now, PART);
        }
    }
    assert_eq!(throttle.rate(now), Some(RATE_FIRST));
}

#[test]
fn who_does_without_learns_nothing() {
    let mut throttle = throttle();
    let mut now = START;
    for _ in 0..5000 {
        now = now + Duration::from_millis(1);
        throttle.client_op(now, Some(TARGET));
    }
    assert_eq!(throttle.rate(now), Some(RATE_FIRST));
}

#[test]
fn recovery_keeps_to_the_rate_and_saves_no_more_than_a_burst() {
    let mut throttle = throttle();
    throttle.client_op(START, None);
    let mut now = START;
    for _ in 0..90 {
        now = now + Duration::from_millis(10);
        throttle.client_op(now, None);
    }
    let mut moved = 0;
    for _ in 0..1000 {
        now = now + Duration::from_millis(1);
        throttle.client_op(now, None);
        while throttle.goes_on_at(now).is_none() {
            throttle.take(now, PART);
            moved += PART;
        }
    }
    let burst = throttle.burst().unsigned_abs();
    assert!((RATE_FIRST..=RATE_FIRST + burst + PART).contains(&moved), "{moved} bytes in a second");
}

#[test]
fn an_object_under_way_goes_on_before_another_one_begins() {
    let mut throttle = throttle();
    throttle.client_op(START, None);
    assert_eq!((throttle.begins_at(START), throttle.goes_on_at(START)), (None, None));
    throttle.take(START, throttle.burst().unsigned_abs() * 2 / 3);
    assert_eq!(throttle.goes_on_at(START), None);
    let later = throttle.begins_at(START).expect("not at once");
    assert_eq!(throttle.begins_at(later), None);
    // Small ones then begin one after the other.
    throttle.take(later, throttle.burst().unsigned_abs() / 5);
    assert_eq!(throttle.begins_at(later), None);
    // What goes on may take all there is: nothing begins meanwhile.
    let mut now = later;
    for _ in 0..500 {
        now = now + Duration::from_millis(1);
        throttle.client_op(now, None);
        while throttle.goes_on_at(now).is_none() {
            throttle.take(now, PART);
        }
        assert!(throttle.begins_at(now).is_some());
    }
}

#[test]
fn hopeless_clients_do_not_stop_recovery() {
    let mut throttle = throttle();
    throttle.client_op(START, None);
    let (now, _) = writes(&mut throttle, START, 20_000, 20_000);
    assert_eq!(throttle.rate(now), Some(RECOVERY_RATE_MIN));
    let (_, moved) = writes(&mut throttle, now, 1000, 1000);
    assert!(
        (RECOVERY_RATE_MIN - PART..=RECOVERY_RATE_MIN + PART).contains(&moved),
        "{moved} bytes in a second"
    );
}

#[test]
fn clients_that_come_back_find_the_rate_as_it_was_but_not_below_the_first() {
    let mut throttle = throttle();
    let now = begun(&mut throttle);
    let (now, _) = writes(&mut throttle, now, 2 * WINDOW_OPERATIONS, 0);
    let back = now + CLIENTS_AWAY;
    assert_eq!(throttle.rate(back), None);
    throttle.client_op(back, Some(TARGET));
    assert_eq!(throttle.rate(back), Some(RATE_FIRST / 16 * 25));
    let (now, _) = writes(&mut throttle, back, 20_000, 20_000);
    assert_eq!(throttle.rate(now), Some(RECOVERY_RATE_MIN));
    throttle.client_op(now + CLIENTS_AWAY, Some(TARGET));
    assert_eq!(throttle.rate(now + CLIENTS_AWAY), Some(RATE_FIRST));
    let (now, _) = writes(&mut throttle, now + CLIENTS_AWAY, 500 + WINDOW_OPERATIONS, 0);
    assert_eq!(throttle.rate(now), Some(RATE_FIRST / 4 * 5), "it starts anew");
}

#[test]
fn slow_writes_before_recovery_are_not_its_doing() {
    let mut throttle = throttle();
    let mut now = START;
    for _ in 0..10_000 {
        now = now + Duration::from_millis(1);
        throttle.client_op(now, Some(TARGET * 4));
    }
    assert_eq!(throttle.rate(now), Some(RATE_FIRST), "there was no recovery");
    // Nor are they beside it, as long as they take little more than that.
    let (now, _) = writes_of(&mut throttle, now, 500 + WINDOW_OPERATIONS, |_| TARGET * 5);
    assert_eq!(throttle.rate(now), Some(RATE_FIRST / 4 * 5));
    let (now, _) = writes_of(&mut throttle, now, 10, |_| TARGET * 11);
    assert_eq!(throttle.rate(now), Some(RATE_FIRST / 4 * 5 / 100 * 70));
    let mut now = now;
    for _ in 0..40_000 {
        now = now + Duration::from_millis(1);
        throttle.client_op(now, Some(Duration::from_millis(1)));
    }
    let (now, _) = writes(&mut throttle, now, 500 + WINDOW_OPERATIONS, 0);
    let rate = throttle.rate(now);
    let (now, _) = writes_of(&mut throttle, now, 3, |_| TARGET * 3);
    assert!(throttle.rate(now) < rate, "clients have become faster");
}

#[test]
fn without_clients_or_target_there_is_no_limit() {
    let mut throttle = throttle();
    let now = START;
    throttle.take(now, 1 << 40);
    assert_eq!((throttle.goes_on_at(now), throttle.rate(now)), (None, None));
    throttle.client_op(now, Some(TARGET * 2));
    throttle.take(now, 1 << 30);
    assert!(throttle.goes_on_at(now).is_some());
    assert_eq!((throttle.objects_max(now), throttle.objects_max(now + CLIENTS_AWAY)), (1, 8));
    let later = now + CLIENTS_AWAY;
    assert_eq!((throttle.goes_on_at(later), throttle.rate(later)), (None, None));
    throttle.client_op(later, Some(TARGET));
    throttle.configure(Duration::ZERO, 2000, 8);
    assert_eq!(throttle.goes_on_at(later), None);
}

#[test]
fn parts_follow_each_other_while_they_come_back_in_time() {
    let mut throttle = throttle();
    throttle.client_op(START, None);
    assert_eq!(throttle.parts_max(START), 1);
    (0..8).for_each(|_| throttle.part_came(START, WELL));
    assert_eq!(throttle.parts_max(START), 2);
    (0..1000).for_each(|_| throttle.part_came(START, WELL));
    assert_eq!(throttle.parts_max(START), PARTS_MAX);
    (0..9).for_each(|_| throttle.part_came(START, TARGET));
    assert_eq!(throttle.parts_max(START), PARTS_MAX, "late, but no reason");
    (0..9).for_each(|_| throttle.part_came(START, TARGET * 2));
    assert_eq!(throttle.parts_max(START), PARTS_MAX / 2, "once for all that were on their way");
    let mut now = START;
    for left in [2, 1, 1] {
        now = now + PAUSE;
        throttle.client_op(now, None);
        throttle.part_came(now, TARGET * 2);
        assert_eq!(throttle.parts_max(now), left);
    }
}

#[test]
fn a_target_may_be_a_multiple_of_what_writes_take_without_recovery() {
    let mut throttle = RecoveryThrottle::new();
    let target = Duration::from_micros(10);
    throttle.configure(target, 3000, 8);
    assert_eq!(throttle.limit(), LIMIT_UNKNOWN, "nobody knows yet");
    let (now, _) = (0..10_000).fold((START, ()), |(now, ()), _| {
        throttle.client_op(now, Some(Duration::from_millis(4)));
        (now + Duration::from_millis(1), ())
    });
    let limit = throttle.limit();
    assert!(limit >= Duration::from_millis(12) && limit <= Duration::from_millis(15), "{limit:?}");
    throttle.configure(Duration::from_millis(20), 1000, 8);
    assert_eq!(throttle.limit(), Duration::from_millis(20));
    assert_eq!(throttle.kept_seconds(), KeptSeconds::default(), "nothing moved");
    throttle.take(now, PART);
    let mut now = now;
    for spent in [5, 5, 40] {
        for n in 0..100 {
            if n % 10 == 0 {
                throttle.take(now, PART);
            }
            throttle.client_op(now, Some(Duration::from_millis(spent)));
            now = now + Duration::from_millis(10);
        }
    }
    throttle.client_op(now, Some(Duration::from_millis(5)));
    assert_eq!(throttle.kept_seconds(), KeptSeconds { judged: 3, kept: 2 });
}
