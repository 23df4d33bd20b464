//! Placement of every PG of random nasty maps, compared with `osdmaptool` and `crushtool` of 16.2.
//!
//! `NACRE_PLACEMENT_MAPS` sets how many maps (default 25), `NACRE_PLACEMENT_SEED` the first seed. A failure
//! names the seed of the map; the same seed gives the same map.

mod nasty;

use nacre_crush::{CrushMap, ITEM_NONE};
use nacre_denc::{Decode, Encode};
use nacre_maps::OsdMap;
use nacre_types::PgId;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRUSH_INPUTS: u32 = 40;

/// Runs an oracle and returns what it prints.
fn run(tool: &str, arguments: &[String]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap_or_else(|error| {
        panic!(
            "{tool} is needed to judge placement ({error}); install Ceph's ceph-base and ceph-common packages"
        )
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn show(set: &[i32]) -> String {
    let parts: Vec<String> =
        set.iter().map(|osd| if *osd == ITEM_NONE { "NONE".into() } else { osd.to_string() }).collect();
    format!("[{}]", parts.join(","))
}

fn first(set: &[i32]) -> i32 {
    set.iter().copied().find(|osd| *osd != ITEM_NONE).unwrap_or(-1)
}

/// Every PG in the words of `osdmaptool --test-map-pgs-dump-all`.
fn our_dump(map: &OsdMap) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, pool) in &map.pools {
        for seed in 0..pool.pg_num {
            let pg = PgId::new(*id, seed);
            let raw = map.pg_to_raw_osds(pg);
            let found = map.pg_to_up_acting(pg);
            lines.push(format!(
                "{pg} raw ({}, p{}) up ({}, p{}) acting ({}, p{})",
                show(&raw),
                first(&raw),
                show(&found.up),
                found.up_primary,
                show(&found.acting),
                found.acting_primary
            ));
        }
    }
    lines
}

fn compare(seed: u64, what: &str, ours: &[String], theirs: &[String]) -> usize {
    assert_eq!(ours.len(), theirs.len(), "seed {seed}: number of {what} lines");
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours, theirs, "seed {seed}: {what}: ours left, the oracle's right");
    }
    ours.len()
}

fn compare_pgs(seed: u64, map: &OsdMap, path: &Path) -> usize {
    let path = path.display().to_string();
    let text = run("osdmaptool", &[path.clone(), "--test-map-pgs-dump-all".into()]);
    let theirs: Vec<String> = text
        .lines()
        .filter(|line| line.contains(" raw ("))
        .map(|line| line.replace("2147483647", "NONE"))
        .collect();
    let count = compare(seed, "placement", &our_dump(map), &theirs);
    // The short dump asks by another way: acting sets alone.
    let text = run("osdmaptool", &[path, "--test-map-pgs-dump".into()]);
    let short: Vec<String> = text
        .lines()
        .filter(|line| line.split('\t').count() == 3 && !line.starts_with('#'))
        .map(|line| line.replace("2147483647", "NONE"))
        .collect();
    let ours: Vec<String> = map
        .pools
        .iter()
        .flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| PgId::new(*id, seed)))
        .map(|pg| {
            let found = map.pg_to_up_acting(pg);
            format!("{pg}\t{}\t{}", show(&found.acting), found.acting_primary)
        })
        .collect();
    compare(seed, "short dump", &ours, &short[..ours.len().min(short.len())]);
    count
}

/// All rules over a range of inputs; `crushtool` gives devices that no bucket holds weight 0.
fn compare_crush(seed: u64, map: &OsdMap, path: &Path) -> usize {
    let crush = &map.crush;
    let held = |osd: i32| crush.each_bucket().any(|bucket| bucket.items.contains(&osd));
    let end = usize::try_from(crush.max_devices).expect("not negative");
    let mut arguments: Vec<String> =
        ["-i", &path.display().to_string(), "--test", "--show-mappings", "--min-x", "0"]
            .map(String::from)
            .to_vec();
    let size = 1 + seed as usize % 6;
    arguments.extend([
        "--max-x".into(),
        (CRUSH_INPUTS - 1).to_string(),
        "--num-rep".into(),
        size.to_string(),
    ]);
    let mut weights = vec![0; end];
    for (osd, weight) in weights.iter_mut().enumerate() {
        let out = map.osd_weight.get(osd).is_some_and(|weight| *weight == 0);
        *weight = if out || !held(osd as i32) { 0 } else { 0x1_0000 };
        if out {
            arguments.extend(["--weight".into(), osd.to_string(), "0".into()]);
        }
    }
    if weights.iter().all(|weight| *weight == 0) {
        // crushtool prints nothing then.
        return 0;
    }
    let text = run("crushtool", &arguments);
    let theirs: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with("CRUSH rule "))
        .map(|line| line.replace("2147483647", "NONE"))
        .collect();
    let mut ours = Vec::new();
    for rule in (0..crush.rules.len()).filter(|rule| crush.rules[*rule].is_some()) {
        for x in 0..CRUSH_INPUTS {
            let found = crush.do_rule(rule, x, size, &weights, crush.choose_args_for(0));
            ours.push(format!("CRUSH rule {rule} x {x} {}", show(&found)));
        }
    }
    compare(seed, "CRUSH", &ours, &theirs)
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("nacre-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory for maps");
    path
}

#[test]
fn every_pg_of_nasty_maps_is_where_ceph_puts_it() {
    let (count, first_seed) = (number("NACRE_PLACEMENT_MAPS", 25), number("NACRE_PLACEMENT_SEED", 1));
    println!("seeds {first_seed}..{}", first_seed + count);
    let directory = scratch("placement");
    let (map_path, crush_path) = (directory.join("map"), directory.join("crush"));
    let (mut pgs, mut mappings) = (0, 0);
    for seed in first_seed..first_seed + count {
        let map = nasty::map(seed);
        let bytes = map.to_bytes();
        assert_eq!(OsdMap::from_bytes(bytes.clone()).as_ref(), Ok(&map), "seed {seed}: codec");
        std::fs::write(&map_path, &bytes).expect("write the map");
        std::fs::write(&crush_path, map.crush.to_bytes()).expect("write the CRUSH map");
        pgs += compare_pgs(seed, &map, &map_path);
        mappings += compare_crush(seed, &map, &crush_path);
    }
    std::fs::remove_dir_all(&directory).expect("remove the maps");
    println!("{count} maps: {pgs} PGs and {mappings} CRUSH mappings agree");
}

/// Reweights one device of each map with `crushtool` and with us: sums, trees and straws must agree.
#[test]
fn reweighting_gives_the_bytes_of_crushtool() {
    let (count, first_seed) = (number("NACRE_PLACEMENT_MAPS", 25), number("NACRE_PLACEMENT_SEED", 1));
    let directory = scratch("reweight");
    let (before, after) =
        (directory.join("before").display().to_string(), directory.join("after").display().to_string());
    for seed in first_seed..first_seed + count {
        let mut crush = CrushMap::clone(&nasty::map(seed).crush);
        crush.choose_args.clear();
        let device = crush.devices_below(-1)[0];
        std::fs::write(&before, crush.to_bytes()).expect("write the CRUSH map");
        let name = format!("osd.{device}");
        run("crushtool", &["-i", &before, "--reweight-item", &name, "3.25", "-o", &after].map(String::from));
        crush.set_item_weight(device, 0x3_4000).expect("the device stands somewhere");
        let theirs = std::fs::read(&after).expect("read the CRUSH map").into();
        let theirs = CrushMap::from_bytes(theirs).expect("crushtool's map decodes");
        // crushtool changes shadow buckets in place, we make them anew.
        for ours in crush.each_bucket().filter(|bucket| !crush.is_shadow(bucket.id)) {
            assert_eq!(theirs.bucket(ours.id), Some(ours), "seed {seed}: crushtool's left");
        }
    }
    std::fs::remove_dir_all(&directory).expect("remove the maps");
}
