use super::*;
use crate::balancer::tests::{add_pool, balance, cluster};
use nacre_maps::WEIGHT_ONE;

/// Plans are carried out until there are none; how many PGs got another primary.
fn even(map: &mut OsdMap, fixed: &BTreeSet<OsdId>) -> usize {
    let mut moves = 0;
    for _ in 0..2000 {
        let mut planner = Planner::new(Arc::new(map.clone()), fixed, 10);
        let plan = loop {
            if let Some(plan) = planner.step(5_000) {
                break plan;
            }
        };
        if plan.moves == 0 {
            assert!(plan.affinities.is_empty());
            return moves;
        }
        assert!(plan.moves < 10 + 16 && !plan.affinities.is_empty());
        moves += plan.moves;
        set(map, &plan.affinities);
        // What was foretold is what the map says.
        let pgs = map.pools.iter().flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed)));
        let led = pgs.map(|pg| map.pg_to_up_acting(pg)).map(|up| (up.up, up.up_primary));
        let after = evaluate(map, fixed, led);
        assert!((after.deviation - plan.after.deviation).abs() < 1e-6, "{after:?} {:?}", plan.after);
        assert!((after.spread - plan.after.spread).abs() < 1e-6, "{after:?} {:?}", plan.after);
    }
    panic!("it never ends");
}

fn set(map: &mut OsdMap, affinities: &BTreeMap<OsdId, u32>) {
    let max = map.osd_state.len();
    map.osd_primary_affinity.resize(max, WEIGHT_ONE);
    for (osd, affinity) in affinities {
        map.osd_primary_affinity[usize::try_from(*osd).expect("an id")] = *affinity;
    }
}

/// PGs that each OSD leads, of one pool or of all.
fn led(map: &OsdMap, pool: Option<i64>) -> Vec<usize> {
    let mut led = vec![0; map.osd_state.len()];
    for (id, one) in map.pools.iter().filter(|(id, _)| pool.is_none_or(|pool| pool == **id)) {
        for seed in 0..one.pg_num {
            let primary = map.pg_to_up_acting(PgId::new(*id, seed)).up_primary;
            led[usize::try_from(primary).expect("a primary")] += 1;
        }
    }
    led
}

fn max_to_mean(led: &[usize]) -> f64 {
    let (most, sum) = (led.iter().max().copied().unwrap_or(0), led.iter().sum::<usize>());
    most as f64 * led.len() as f64 / sum as f64
}

/// What affinity can do: clusters of 3 to 100 equal OSDs whose copies are even, and pools of 32 to 1024 PGs.
#[test]
fn primaries_of_equal_osds_come_to_be_even() {
    for (osds, pools) in [
        (3, vec![32]),
        (6, vec![64, 32]),
        (12, vec![128, 128, 32]),
        (30, vec![512, 256]),
        (100, vec![1024, 1024]),
    ] {
        let mut map = cluster(&vec![vec![1.0]; osds], "host");
        for (id, pg_num) in (1..).zip(&pools) {
            add_pool(&mut map, id, *pg_num, 3);
        }
        balance(&mut map, &|_| 1 << 30);
        let before = max_to_mean(&led(&map, None));
        let moves = even(&mut map, &BTreeSet::new());
        let after = max_to_mean(&led(&map, None));
        let each = pools.iter().sum::<u32>() as f64 / osds as f64;
        let text = format!(
            "{osds} OSDs, pools of {pools:?}, {each:.1} each: {before:.2} to {after:.2}, {moves} moves"
        );
        assert!(before > 1.15 && after <= 1.0 + 2.0 / each, "{text}");
        assert!(moves < 6 * osds, "{text}");
    }
}

/// What an operator has set stays, and what such an OSD leads is not for others to make up for; one that is to lead nothing leads nothing.
#[test]
fn fixed_affinities_stay_as_they_are() {
    let mut map = cluster(&vec![vec![1.0]; 12], "host");
    add_pool(&mut map, 1, 256, 3);
    balance(&mut map, &|_| 1 << 30);
    set(&mut map, &BTreeMap::from([(3, 0), (7, WEIGHT_ONE / 2)]));
    let seven = led(&map, None)[7];
    even(&mut map, &BTreeSet::from([3, 7]));
    assert_eq!([map.primary_affinity(3), map.primary_affinity(7)], [0, WEIGHT_ONE / 2]);
    let led = led(&map, None);
    assert_eq!(led[3], 0);
    assert!(led[7].abs_diff(seven) <= seven / 2, "{seven} before: {led:?}");
    let others: Vec<usize> = (0..12).filter(|osd| ![3, 7].contains(osd)).map(|osd| led[osd]).collect();
    assert!(max_to_mean(&others) <= 1.15, "{others:?}");
}

/// Larger OSDs have more copies, and lead as many more.
#[test]
fn larger_osds_lead_more() {
    let mut map = cluster(&[vec![1.0, 1.0], vec![2.0], vec![1.0, 1.0], vec![2.0], vec![2.0]], "host");
    add_pool(&mut map, 1, 256, 3);
    balance(&mut map, &|_| 1 << 30);
    even(&mut map, &BTreeSet::new());
    let led = led(&map, None);
    let (small, large) = (led[0] + led[1], led[2]);
    assert!(small.abs_diff(large) <= 8, "two of half the size lead what one does: {led:?}");
}
