use super::*;
use nacre_crush::{ITEM_NONE, Step};
use nacre_maps::{Pool, PoolKind, WEIGHT_ONE, flags};
use nacre_types::{UTime, Uuid};
use std::sync::Arc;

/// A cluster of hosts with OSDs of such weights, in TiB, with a failure domain of `domain`.
pub(crate) fn cluster(hosts: &[Vec<f64>], domain: &str) -> OsdMap {
    let mut map = OsdMap::fresh(Uuid::default(), UTime::ZERO, domain);
    let count: usize = hosts.iter().map(Vec::len).sum();
    map.set_max_osd(count);
    let mut crush = (*map.crush).clone();
    let mut osd = 0;
    for (host, weights) in hosts.iter().enumerate() {
        for weight in weights {
            let location = [("root", "default".to_owned()), ("host", format!("h{host}"))]
                .map(|(k, v)| (k.to_owned(), v));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let weight = (weight * f64::from(WEIGHT_ONE)) as u32;
            crush.insert_item(osd, weight, &format!("osd.{osd}"), &location.into()).expect("a place");
            osd += 1;
        }
    }
    map.crush = Arc::new(crush);
    for at in 0..count {
        map.osd_state[at] = flags::osd::EXISTS | flags::osd::UP;
        map.osd_weight[at] = WEIGHT_ONE;
    }
    map
}

pub(crate) fn add_pool(map: &mut OsdMap, id: i64, pg_num: u32, size: u8) {
    let pool = Pool { kind: PoolKind::Replicated, pg_num, pgp_num: pg_num, size, ..Pool::default() };
    map.pools.insert(id, pool);
}

fn evaluate(map: &OsdMap, loads: &[Load]) -> Evaluation {
    super::evaluate(&Arc::new(map.clone()), loads.to_vec())
}

/// A plan, made in slices.
fn plan(map: &OsdMap, loads: &[Load], moves_max: usize) -> Plan {
    let mut planner = Planner::new(Arc::new(map.clone()), loads.to_vec(), moves_max);
    loop {
        if let Some(plan) = planner.step(20_000) {
            return plan;
        }
    }
}

/// Where all PGs lie by the map, with so many bytes in each.
fn loads(map: &OsdMap, bytes: &dyn Fn(PgId) -> u64) -> Vec<Load> {
    let pgs = map.pools.iter().flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed)));
    pgs.map(|pg| Load { pg, up: map.pg_to_up_acting(pg).up, bytes: bytes(pg) }).collect()
}

/// Plans are carried out until there are none; how many copies moved.
pub(crate) fn balance(map: &mut OsdMap, bytes: &dyn Fn(PgId) -> u64) -> usize {
    let mut moves = 0;
    for _ in 0..2000 {
        let before = loads(map, bytes);
        let plan = plan(map, &before, 10);
        if plan.exceptions.is_empty() {
            return moves;
        }
        assert!(plan.moves <= 11, "moves are bounded");
        moves += plan.moves;
        carry_out(map, &plan);
        for pg in plan.exceptions.keys() {
            let size = map.pools[&pg.pool].size;
            let up = map.pg_to_up_acting(*pg).up;
            assert_eq!(up.len(), usize::from(size), "{pg}: {up:?}");
            assert!(!up.contains(&ITEM_NONE));
        }
    }
    panic!("it never ends");
}

fn carry_out(map: &mut OsdMap, plan: &Plan) {
    for (pg, pairs) in &plan.exceptions {
        match pairs.is_empty() {
            true => map.pg_upmap_items.remove(pg),
            false => map.pg_upmap_items.insert(*pg, pairs.clone()),
        };
    }
}

fn check_domains(map: &OsdMap) {
    for load in loads(map, &|_| 0) {
        let pool = &map.pools[&load.pg.pool];
        assert!(Reach::of(map, pool).expect("a rule").allows(&load.up), "{load:?}");
    }
}

/// PGs of one size, some larger, none the same.
fn uneven(pg: PgId) -> u64 {
    1000 + u64::from(pg.seed.wrapping_mul(2_654_435_761) >> 22)
}

#[test]
fn equal_osds_get_equally_many_and_equally_much() {
    let mut map = cluster(&[vec![1.0; 3], vec![1.0; 3], vec![1.0; 3]], "host");
    add_pool(&mut map, 1, 128, 3);
    add_pool(&mut map, 2, 64, 3);
    let before = evaluate(&map, &loads(&map, &uneven));
    assert!(before.spread > 1.1, "{before:?}: CRUSH alone is not even");
    let moves = balance(&mut map, &uneven);
    let after = evaluate(&map, &loads(&map, &uneven));
    assert!(after.spread <= 1.03 && after.count_deviation < 1.0, "{after:?}");
    assert!((after.bound - 1.0).abs() < 1e-9, "{after:?}");
    assert!(moves < 100, "{moves} of {} copies", (128 + 64) * 3);
    check_domains(&map);
    assert_eq!(plan(&map, &loads(&map, &uneven), 10), Plan::default(), "and it stays so");
}

#[test]
fn uneven_osds_fill_by_their_weight() {
    let mut map = cluster(&[vec![1.0, 2.0, 4.0], vec![4.0, 4.0], vec![2.0; 4], vec![1.0; 7]], "host");
    add_pool(&mut map, 1, 512, 3);
    balance(&mut map, &uneven);
    let after = evaluate(&map, &loads(&map, &uneven));
    assert!(after.spread <= after.bound * 1.03, "{after:?}");
    check_domains(&map);
}

#[test]
fn where_failure_domains_stand_in_the_way_the_bound_says_what_is_possible() {
    // Three copies on three hosts: each has one of everything, however small it is.
    let mut map = cluster(&[vec![4.0], vec![4.0], vec![1.0, 1.0]], "host");
    add_pool(&mut map, 1, 64, 3);
    balance(&mut map, &uneven);
    let after = evaluate(&map, &loads(&map, &uneven));
    // A third of all on two of ten parts of the weight.
    assert!((after.bound - (1.0 / 3.0) / 0.2).abs() < 1e-6, "{after:?}");
    assert!(after.spread <= after.bound * 1.03, "{after:?}");
    assert!(matches!(after.fullest, Some(2 | 3)));
    check_domains(&map);
}

#[test]
fn copies_on_one_machine_are_spread_over_its_osds() {
    let mut map = cluster(&[vec![1.0; 5]], "osd");
    add_pool(&mut map, 1, 128, 3);
    balance(&mut map, &|_| 1 << 30);
    let after = evaluate(&map, &loads(&map, &|_| 1 << 30));
    assert!(after.spread <= 1.03, "{after:?}");
}

#[test]
fn empty_pools_are_evened_by_number() {
    let mut map = cluster(&[vec![1.0; 2], vec![1.0; 2], vec![1.0; 2]], "host");
    add_pool(&mut map, 1, 64, 2);
    balance(&mut map, &|_| 0);
    let after = evaluate(&map, &loads(&map, &|_| 0));
    assert!(after.count_deviation < 1.0, "{after:?}");
    assert!((after.spread - 1.0).abs() < f64::EPSILON, "nothing is stored: {after:?}");
}

/// A rule that takes one copy from one root, and the others from another one.
fn add_two_roots(map: &mut OsdMap, (first, second): (i32, i32), level: i32) {
    let mut crush = (*map.crush).clone();
    let mut rule = crush.rule(0).expect("the first rule").clone();
    let choose = |count: i32| Step::ChooseLeafFirstN { count, kind: level };
    rule.steps = vec![Step::Take(first), choose(1), Step::Emit, Step::Take(second), choose(-1), Step::Emit];
    crush.rules[0] = Some(rule);
    map.crush = Arc::new(crush);
}

/// Hosts of one flash and three disks each; one copy on flash and two on disks, which CRUSH may put on the same host.
#[test]
fn copies_stay_below_the_root_that_they_were_chosen_from() {
    let mut map = cluster(&vec![vec![1.0, 4.0, 4.0, 8.0]; 6], "host");
    let mut crush = (*map.crush).clone();
    for osd in 0..24 {
        let class = if osd % 4 == 0 { "ssd" } else { "hdd" };
        crush.set_item_class(osd, class);
    }
    crush.rebuild_shadow_trees().expect("few buckets");
    let root = |name: &str| crush.item_by_name(name).expect("a root");
    let (ssd, hdd) = (root("default~ssd"), root("default~hdd"));
    let host = crush.type_of(root("h0"));
    map.crush = Arc::new(crush);
    add_two_roots(&mut map, (ssd, hdd), host);
    add_pool(&mut map, 1, 256, 3);
    let is_flash = |osd: &OsdId| osd % 4 == 0;
    let before = evaluate(&map, &loads(&map, &uneven));
    assert!(before.count_deviation > 3.0, "{before:?}");
    let doubled = |map: &OsdMap| {
        let twice = |up: &[OsdId]| {
            up.iter().enumerate().any(|(at, osd)| up[..at].iter().any(|other| other / 4 == osd / 4))
        };
        loads(map, &|_| 0).iter().filter(|load| twice(&load.up)).count()
    };
    let twice = doubled(&map);
    balance(&mut map, &uneven);
    for load in loads(&map, &uneven) {
        assert!(is_flash(&load.up[0]), "the first copy is on flash: {load:?}");
        assert!(!load.up[1..].iter().any(is_flash), "the others are not: {load:?}");
    }
    assert!(doubled(&map) <= twice, "no more PGs with two copies on a host");
    check_domains(&map);
    let after = evaluate(&map, &loads(&map, &uneven));
    assert!(after.count_deviation < 1.0 && after.spread <= after.bound * 1.03, "{after:?}");
}

#[test]
fn roots_that_share_osds_are_left_as_they_are() {
    let mut map = cluster(&vec![vec![1.0; 3]; 4], "host");
    let root = map.crush.item_by_name("default").expect("the root");
    let host = map.crush.type_of(map.crush.item_by_name("h0").expect("a host"));
    add_two_roots(&mut map, (root, root), host);
    add_pool(&mut map, 1, 64, 3);
    assert!(Reach::of(&map, &map.pools[&1]).is_none());
    assert_eq!(plan(&map, &loads(&map, &uneven), 10), Plan::default());
}

#[test]
fn an_exception_that_does_nothing_or_harm_goes() {
    let mut map = cluster(&[vec![1.0; 2], vec![1.0; 2], vec![1.0; 2]], "host");
    add_pool(&mut map, 1, 8, 3);
    let pg = PgId::new(1, 3);
    let up = map.pg_to_raw_osds(pg);
    let outside = (0..6).find(|osd| !up.contains(osd)).expect("one");
    map.pg_upmap_items.insert(pg, vec![(outside, up[0])]);
    assert_eq!(plan(&map, &loads(&map, &uneven), 10).exceptions.get(&pg), Some(&Vec::new()), "nothing");
    // Two on one host.
    let same_host = |one: OsdId, other: OsdId| one / 2 == other / 2 && one != other;
    let twin = (0..6).find(|osd| same_host(*osd, up[0])).expect("one");
    map.pg_upmap_items.insert(pg, vec![(up[1], twin)]);
    assert_eq!(plan(&map, &loads(&map, &uneven), 10).exceptions.get(&pg), Some(&Vec::new()), "harm");
}

/// However small the slices are, the plan is the same; and no slice does more than its work and one pool or pair of OSDs.
#[test]
fn a_plan_does_not_depend_on_its_slices() {
    let mut map = cluster(&vec![vec![1.0, 2.0]; 12], "host");
    add_pool(&mut map, 1, 256, 3);
    add_pool(&mut map, 2, 64, 3);
    let all = loads(&map, &uneven);
    let made = |work: u64| {
        let mut planner = Planner::new(Arc::new(map.clone()), all.clone(), 10);
        for slices in 1..100_000 {
            if let Some(plan) = planner.step(work) {
                return (plan, slices);
            }
        }
        panic!("it never ends");
    };
    let (whole, slices) = made(u64::MAX);
    assert_eq!((slices, whole.moves), (1, 10));
    let (pieces, slices) = made(500);
    assert!(slices > 5, "{slices}");
    assert_eq!(pieces, whole);
}

/// A thousand OSDs on a hundred hosts of different sizes.
#[test]
fn a_large_cluster_becomes_even_to_within_one_pg() {
    let hosts: Vec<Vec<f64>> =
        (0..100).map(|n| (0..10).map(|at| [1.0, 2.0, 2.0, 3.0, 4.0][(n + at) % 5]).collect()).collect();
    let mut map = cluster(&hosts, "host");
    add_pool(&mut map, 1, 8192, 3);
    let mut all = loads(&map, &uneven);
    let before = evaluate(&map, &all);
    for _ in 0..100 {
        let plan = plan(&map, &all, 100);
        if plan.exceptions.is_empty() {
            break;
        }
        for (pg, pairs) in plan.exceptions {
            map.pg_upmap_items.insert(pg, pairs);
            let at = all.iter().position(|load| load.pg == pg).expect("it is there");
            all[at].up = map.pg_to_up_acting(pg).up;
        }
    }
    let after = evaluate(&map, &all);
    assert!(before.spread > 1.5 && before.count_deviation > 5.0, "{before:?}");
    assert!(after.count_deviation < 1.0, "{after:?}");
    // The smallest have ten copies each: one is more than 1.03.
    let mean = all.iter().map(|load| load.bytes).sum::<u64>() as f64 * 3.0 / 2400.0;
    let one = 2024.0 / mean;
    assert!(after.spread <= after.bound * 1.03 + one, "{before:?} {after:?}, a PG is {one}");
    assert_eq!(plan(&map, &all, 10), Plan::default(), "and it stays so");
    check_domains(&map);
}

/// The exam of milestone 10: the fullest OSD of a cluster of uneven ones has 90 %, and all of them come to be filled as evenly as can be.
/// While copies move they are in both places; no OSD is ever full (95 %) by that.
#[test]
fn a_cluster_that_is_90_percent_full_is_evened_without_a_full_osd() {
    let hosts = [vec![1.0, 2.0, 4.0], vec![4.0, 4.0], vec![2.0; 4], vec![1.0; 7], vec![8.0], vec![3.0, 3.0]];
    for (pg_nums, size) in [([256, 32], 3), ([128, 128], 3), ([512, 64], 2)] {
        let mut map = cluster(&hosts, "host");
        for (id, pg_num) in (1..).zip(pg_nums) {
            add_pool(&mut map, id, pg_num, size);
        }
        let weights = Reach::of(&map, &map.pools[&1]).expect("a rule");
        let weights: BTreeMap<OsdId, f64> = weights.weights().collect();
        let used = |map: &OsdMap| {
            let mut used: BTreeMap<OsdId, f64> = weights.keys().map(|osd| (*osd, 0.0)).collect();
            for load in loads(map, &uneven) {
                load.up.iter().for_each(|osd| *used.get_mut(osd).expect("known") += load.bytes as f64);
            }
            used
        };
        let fill = |used: &BTreeMap<OsdId, f64>| {
            used.iter().map(|(osd, used)| used / weights[osd]).fold(0.0, f64::max)
        };
        // What an OSD of weight 1 has room for.
        let room = fill(&used(&map)) / 0.9;
        let (mut fullest, mut rounds) = (0.9_f64, 0);
        loop {
            let before = loads(&map, &uneven);
            let plan = plan(&map, &before, 10);
            if plan.exceptions.is_empty() {
                break;
            }
            let mut at_once = used(&map);
            carry_out(&mut map, &plan);
            for (old, new) in before.iter().zip(loads(&map, &uneven)) {
                for osd in new.up.iter().filter(|osd| !old.up.contains(osd)) {
                    *at_once.get_mut(osd).expect("known") += new.bytes as f64;
                }
            }
            fullest = fullest.max(fill(&at_once) / room);
            rounds += 1;
            assert!(rounds < 500, "it never ends");
        }
        let after = evaluate(&map, &loads(&map, &uneven));
        let text = format!("{pg_nums:?} x {size}: fullest {fullest:.3}, {rounds} rounds, {after:?}");
        assert!(fullest < 0.95, "{text}");
        assert!(after.spread <= after.bound * 1.03, "{text}");
    }
}
