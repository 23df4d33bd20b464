//! Measures the balancer on a simulated cluster: what each plan costs, how many there are until nothing is worth moving, and how even the
//! OSDs are then. `cargo run --release -p nacre-mgr --example balance [OSDS PGS MOVES FILE]`; the last map goes to the file, so that
//! `osdmaptool FILE --test-map-pgs` can count.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement, for people"
)]

use nacre_denc::Encode;
use nacre_maps::{OsdMap, Pool, PoolKind, WEIGHT_ONE, flags};
use nacre_mgr::balancer::{Load, Planner, evaluate};
use nacre_types::{PgId, UTime, Uuid};
use std::sync::Arc;
use std::time::Duration;

/// Processor time of this thread: others may run meanwhile.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a Linux with scheduler statistics"))
}

/// Work of a slice, as monitors have it.
const SLICE_WORK: u64 = 100_000;

/// OSDs of 4 to 16 TiB, ten on each host, in two pools: three copies, and as many PGs again that hold little.
fn cluster(osds: i32, pg_num: u32) -> OsdMap {
    let mut map = OsdMap::fresh(Uuid::default(), UTime::ZERO, "host");
    map.set_max_osd(usize::try_from(osds).unwrap_or(0));
    let mut crush = (*map.crush).clone();
    for osd in 0..osds {
        let location = [("root", "default".to_owned()), ("host", format!("h{}", osd / 10))];
        let location = location.map(|(kind, name)| (kind.to_owned(), name)).into();
        let tebibytes = [4, 8, 8, 12, 16][usize::try_from(osd * 7 % 5).unwrap_or(0)];
        crush.insert_item(osd, tebibytes * WEIGHT_ONE, &format!("osd.{osd}"), &location).expect("a place");
    }
    map.crush = Arc::new(crush);
    map.osd_state.fill(flags::osd::EXISTS | flags::osd::UP);
    map.osd_weight.fill(WEIGHT_ONE);
    for (id, pg_num) in [(1, pg_num), (2, pg_num / 4)] {
        let (pg_num_target, pgp_num_target) = (pg_num, pg_num);
        let pool = Pool {
            kind: PoolKind::Replicated,
            size: 3,
            min_size: 2,
            pg_num,
            pgp_num: pg_num,
            pg_num_target,
            pgp_num_target,
            ..Pool::default()
        };
        map.pools.insert(id, pool);
        map.pool_names.insert(id, format!("p{id}"));
    }
    map.pool_max = 2;
    map
}

/// PGs of one size, give or take a tenth.
fn bytes(pg: PgId) -> u64 {
    let one = if pg.pool == 1 { 10_000 } else { 10 };
    one + one * u64::from(pg.seed.wrapping_mul(2_654_435_761) >> 22) / 10_240
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: u32| given.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (osds, pg_num, moves_max) = (number(0, 1000), number(1, 32_768), number(2, 10));
    let mut map = cluster(i32::try_from(osds).unwrap_or(0), pg_num);
    let pgs = map.pools.iter().flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed)));
    let mut loads: Vec<Load> =
        pgs.map(|pg| Load { pg, up: map.pg_to_up_acting(pg).up, bytes: bytes(pg) }).collect();
    let start = spent();
    let before = evaluate(&Arc::new(map.clone()), loads.clone());
    println!("{before:?}, found in {:?}", spent() - start);
    let (mut plans, mut moves, mut longest, mut sum) = (0_u32, 0, Duration::ZERO, Duration::ZERO);
    let (mut slices, mut beginnings) = (0_u32, Duration::ZERO);
    loop {
        let shared = Arc::new(map.clone());
        let start = spent();
        let mut planner = Planner::new(shared, loads.clone(), usize::try_from(moves_max).unwrap_or(10));
        beginnings = beginnings.max(spent() - start);
        let mut took = Duration::ZERO;
        let next = loop {
            let start = spent();
            let made = planner.step(SLICE_WORK);
            let slice = spent() - start;
            (took, longest) = (took + slice, longest.max(slice));
            slices += 1;
            if let Some(plan) = made {
                break plan;
            }
        };
        sum += took;
        if next.exceptions.is_empty() {
            println!("nothing more, found in {took:?}");
            break;
        }
        plans += 1;
        moves += next.moves;
        for (pg, pairs) in next.exceptions {
            match pairs.is_empty() {
                true => map.pg_upmap_items.remove(&pg),
                false => map.pg_upmap_items.insert(pg, pairs),
            };
            let found = loads.binary_search_by_key(&pg, |load| load.pg).expect("it is there");
            loads[found].up = map.pg_to_up_acting(pg).up;
        }
        if plans.is_multiple_of(50) {
            println!(
                "{plans} plans, {moves} moves, longest {longest:?}: {:?}",
                evaluate(&Arc::new(map.clone()), loads.clone())
            );
        }
    }
    let after = evaluate(&Arc::new(map.clone()), loads.clone());
    println!("{after:?}");
    println!(
        "{osds} OSDs, {} PGs: {plans} plans, {moves} moves, {} exceptions",
        loads.len(),
        map.pg_upmap_items.len()
    );
    let (of_plan, of_slice) = (sum / (plans + 1), slices / (plans + 1));
    println!(
        "a plan takes {of_plan:?} in {of_slice} slices of {longest:?} at most; its beginning {beginnings:?}"
    );
    if let Some(file) = given.get(3) {
        std::fs::write(file, map.to_bytes()).expect("a writable file");
    }
}
