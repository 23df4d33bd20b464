//! Random maps with everything in them that placement has to get right.

use nacre_crush::{
    Bucket, BucketAlg, ChooseArg, ChooseArgs, CrushMap, ITEM_NONE, Rule, RuleKind, RuleMode, SimpleRule,
    Step, Tunables,
};
use nacre_maps::{OsdMap, Pool, PoolKind, flags};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Entropy, PgId};
use std::sync::Arc;

const ROOT: i32 = 11;
const RACK: i32 = 3;
const HOST: i32 = 1;

/// Draws with the distributions that maps need.
struct Dice(SeededEntropy);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        (self.0.u64() % end as u64) as usize
    }

    fn range(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// A weight, 16.16: mostly near 1, sometimes 0, tiny or huge.
    fn weight(&mut self) -> u32 {
        match self.below(12) {
            0 => 0,
            1 => self.range(1, 100) as u32,
            2 => self.range(1, 100) as u32 * 0x1_0000,
            _ => self.range(0x4000, 0x4_0000) as u32,
        }
    }
}

/// The map that `seed` stands for.
pub(crate) fn map(seed: u64) -> OsdMap {
    let mut dice = Dice(SeededEntropy(seed));
    let devices = dice.range(1, 40);
    let mut map = OsdMap {
        epoch: 7,
        flags: flags::osdmap::FRESH,
        crush: Arc::new(crush(&mut dice, devices)),
        ..OsdMap::default()
    };
    map.require_min_compat_client = nacre_maps::RELEASE_LUMINOUS;
    map.require_osd_release = nacre_maps::RELEASE_PACIFIC;
    // Sometimes CRUSH names devices that the map has no slots for, or the other way round.
    let max_osd = if dice.one_in(4) { dice.range(devices.div_ceil(2), devices + 3) } else { devices };
    osds(&mut dice, &mut map, max_osd);
    for id in 1..=dice.range(2, 5) as i64 {
        let pool = pool(&mut dice, &map.crush);
        exceptions(&mut dice, &mut map, id, &pool, max_osd);
        map.pools.insert(id, pool);
        map.pool_names.insert(id, format!("pool{id}"));
        map.pool_max = id as i32;
    }
    map
}

fn osds(dice: &mut Dice, map: &mut OsdMap, max_osd: usize) {
    map.set_max_osd(max_osd);
    let trouble = dice.pick(&[3, 8, 1000]);
    for osd in 0..max_osd {
        map.osd_state[osd] = flags::osd::EXISTS | flags::osd::UP;
        map.osd_weight[osd] = 0x1_0000;
        if dice.one_in(trouble) {
            map.osd_state[osd] = dice.pick(&[0, flags::osd::EXISTS, flags::osd::UP]);
        }
        if dice.one_in(trouble) {
            map.osd_weight[osd] = dice.pick(&[0, 0x8000, 0x100, 0xffff, 0x2_0000]);
        }
    }
    if dice.one_in(2) {
        map.osd_primary_affinity =
            (0..max_osd).map(|_| dice.pick(&[0x1_0000, 0x1_0000, 0, 0x8000, 1])).collect();
    }
}

fn pool(dice: &mut Dice, crush: &CrushMap) -> Pool {
    let rules: Vec<usize> = (0..crush.rules.len()).filter(|id| crush.rules[*id].is_some()).collect();
    let id = dice.pick(&rules);
    let rule = crush.rules[id].as_ref().expect("only rules that are there");
    let pg_num = dice.range(1, 70) as u32;
    let matching = if rule.kind == RuleKind::ERASURE { PoolKind::Erasure } else { PoolKind::Replicated };
    Pool {
        kind: if dice.one_in(20) { dice.pick(&[PoolKind::Replicated, PoolKind::Erasure]) } else { matching },
        size: dice.range(1, 8) as u8,
        crush_rule: rule.ruleset,
        pg_num,
        pgp_num: if dice.one_in(3) { dice.range(1, pg_num as usize) as u32 } else { pg_num },
        flags: if dice.one_in(5) { 0 } else { flags::pool::HASHPSPOOL },
        ..Pool::default()
    }
}

fn osd(dice: &mut Dice, max_osd: usize) -> i32 {
    if dice.one_in(30) { ITEM_NONE } else { dice.below(max_osd + 2) as i32 }
}

/// Upmaps and temporary sets, half of them about OSDs that the PG really has.
fn exceptions(dice: &mut Dice, map: &mut OsdMap, id: i64, pool: &Pool, max_osd: usize) {
    let plain = OsdMap { pools: [(id, pool.clone())].into(), pg_temp: Default::default(), ..map.clone() };
    let often = dice.pick(&[3, 20, 1000]);
    for seed in 0..pool.pg_num {
        let pg = PgId::new(id, seed);
        let raw = plain.pg_to_raw_osds(pg);
        let random =
            |dice: &mut Dice| -> Vec<i32> { (0..dice.range(1, 5)).map(|_| osd(dice, max_osd)).collect() };
        if dice.one_in(often * 2) {
            map.pg_upmap.insert(pg, random(dice));
        }
        if dice.one_in(often) {
            let mut items = Vec::new();
            for _ in 0..dice.range(1, 3) {
                let from =
                    if raw.is_empty() || dice.one_in(2) { osd(dice, max_osd) } else { dice.pick(&raw) };
                items.push((from, osd(dice, max_osd)));
            }
            map.pg_upmap_items.insert(pg, items);
        }
        if dice.one_in(often) {
            map.pg_temp.insert(pg, random(dice));
        }
        if dice.one_in(often * 2) {
            map.primary_temp.insert(pg, dice.below(max_osd) as i32);
        }
    }
}

fn crush(dice: &mut Dice, devices: usize) -> CrushMap {
    let mut map = CrushMap::fresh("host");
    map.tunables = tunables(dice);
    let algs: &[BucketAlg] = if dice.one_in(3) { &BucketAlg::ALL } else { &[BucketAlg::Straw2] };
    hierarchy(dice, &mut map, devices, algs);
    if dice.one_in(2) {
        for device in 0..devices as i32 {
            if !dice.one_in(6) {
                map.set_item_class(device, dice.pick(&["ssd", "hdd"]));
            }
        }
        map.rebuild_shadow_trees().expect("few buckets");
    }
    rules(dice, &mut map);
    if dice.one_in(2) {
        for id in [-1, 1, 2] {
            if dice.one_in(2) {
                let args = choose_args(dice, &map);
                map.choose_args.insert(id, args);
            }
        }
    }
    map
}

fn tunables(dice: &mut Dice) -> Tunables {
    match dice.below(4) {
        0 | 1 => Tunables::default(),
        2 => Tunables::LEGACY,
        _ => Tunables {
            choose_local_tries: dice.below(4) as u32,
            choose_local_fallback_tries: dice.below(6) as u32,
            choose_total_tries: dice.range(1, 60) as u32,
            chooseleaf_descend_once: dice.below(2) as u32,
            chooseleaf_vary_r: dice.below(5) as u8,
            straw_calc_version: dice.below(2) as u8,
            allowed_bucket_algs: 62,
            chooseleaf_stable: dice.below(2) as u8,
        },
    }
}

/// Root, racks (sometimes none), hosts, devices; some hosts empty, some devices in two hosts.
fn hierarchy(dice: &mut Dice, map: &mut CrushMap, devices: usize, algs: &[BucketAlg]) {
    let per_host = dice.range(1, 6);
    let host_count = devices.div_ceil(per_host) + dice.below(2);
    let mut next = 0;
    let mut hosts = Vec::new();
    for _ in 0..host_count {
        let mut entries = Vec::new();
        for _ in 0..dice.range(per_host.div_ceil(2), per_host) {
            if next < devices {
                entries.push((next as i32, dice.weight()));
                map.item_names.insert(next as i32, format!("osd.{next}"));
                next += 1;
            }
        }
        hosts.push(bucket(dice, map, HOST, algs, &entries));
    }
    let mut tops = hosts;
    if dice.one_in(2) {
        let rack_count = dice.range(1, 4);
        let mut racks = vec![Vec::new(); rack_count];
        tops.drain(..).for_each(|host| racks[dice.below(rack_count)].push(host));
        tops = racks.into_iter().map(|entries| bucket(dice, map, RACK, algs, &entries)).collect();
    }
    let version = map.tunables.straw_calc_version;
    let mut root = Bucket::new(-1, ROOT as u16, dice.pick(algs));
    root.set_entries(&tops, version);
    map.buckets[0] = Some(root);
    map.max_devices = map.devices_end();
}

fn bucket(
    dice: &mut Dice,
    map: &mut CrushMap,
    kind: i32,
    algs: &[BucketAlg],
    entries: &[(i32, u32)],
) -> (i32, u32) {
    let name = format!("b{}", map.item_names.len());
    let id = map.add_bucket(kind, &name).expect("a new name");
    let slot = (-1 - id) as usize;
    let mut bucket = Bucket::new(id, kind as u16, dice.pick(algs));
    bucket.set_entries(entries, map.tunables.straw_calc_version);
    let weight = bucket.weight;
    map.buckets[slot] = Some(bucket);
    (id, if dice.one_in(10) { dice.weight() } else { weight })
}

fn rules(dice: &mut Dice, map: &mut CrushMap) {
    for number in 0..dice.range(2, 5) {
        let name = format!("rule{number}");
        let mode = dice.pick(&[RuleMode::FirstN, RuleMode::Indep]);
        let kind = if mode == RuleMode::Indep { RuleKind::ERASURE } else { RuleKind::REPLICATED };
        let class = dice.pick(&["", "ssd", "hdd"]);
        let rule = SimpleRule {
            name: &name,
            root: "default",
            failure_domain: dice.pick(&["osd", "host", "rack"]),
            device_class: class,
            mode,
            kind,
            sizes: (1, 10),
        };
        // A class that this map does not have.
        let Ok(id) = map.add_simple_rule(&rule) else { continue };
        let steps = if dice.one_in(2) { Some(steps(dice, map, mode)) } else { None };
        let rule: &mut Rule = map.rules[usize::from(id)].as_mut().expect("just made");
        (rule.min_size, rule.max_size) = if dice.one_in(6) { (3, 5) } else { (1, 10) };
        if let Some(steps) = steps {
            rule.steps = steps;
        }
    }
}

/// Several levels, several takes, overridden tries.
fn steps(dice: &mut Dice, map: &CrushMap, mode: RuleMode) -> Vec<Step> {
    let firstn = mode == RuleMode::FirstN;
    let choose = |count, kind| {
        if firstn { Step::ChooseFirstN { count, kind } } else { Step::ChooseIndep { count, kind } }
    };
    let leaf = |count, kind| {
        if firstn { Step::ChooseLeafFirstN { count, kind } } else { Step::ChooseLeafIndep { count, kind } }
    };
    let mut steps = Vec::new();
    for _ in 0..dice.below(3) {
        let n = dice.range(0, 6) as i32;
        steps.push(dice.pick(&[
            Step::SetChooseTries(n * 20),
            Step::SetChooseLeafTries(n),
            Step::SetChooseLocalTries(n),
            Step::SetChooseLocalFallbackTries(n),
            Step::SetChooseLeafVaryR(n),
            Step::SetChooseLeafStable(n % 2),
        ]));
    }
    let takes: Vec<i32> = map.each_bucket().map(|bucket| bucket.id).collect();
    for _ in 0..dice.range(1, 2) {
        steps.push(Step::Take(if dice.one_in(3) { dice.pick(&takes) } else { -1 }));
        let count = dice.range(0, 4) as i32 - 1;
        match dice.below(5) {
            0 => steps.extend([choose(count, RACK), choose(2, HOST), choose(1, 0)]),
            1 => steps.extend([choose(2, RACK), leaf(2, HOST)]),
            2 => steps.push(leaf(count, 0)),
            3 => steps.extend([choose(2, HOST), choose(2, 0)]),
            _ => steps.push(leaf(count, HOST)),
        }
        steps.push(Step::Emit);
    }
    steps
}

fn choose_args(dice: &mut Dice, map: &CrushMap) -> ChooseArgs {
    let mut args = ChooseArgs::new();
    let with_ids = dice.one_in(3);
    for bucket in map.each_bucket() {
        if dice.one_in(5) {
            continue;
        }
        let size = bucket.items.len();
        let positions = dice.below(4);
        let weight_set = (0..positions).map(|_| (0..size).map(|_| dice.weight()).collect()).collect();
        let ids: Vec<i32> = bucket.items.iter().map(|item| item - 1000 * i32::from(dice.one_in(3))).collect();
        let arg = ChooseArg { weight_set, ids: if with_ids { ids } else { Vec::new() } };
        if arg != ChooseArg::default() {
            args.insert((-1 - bucket.id) as u32, arg);
        }
    }
    args
}
