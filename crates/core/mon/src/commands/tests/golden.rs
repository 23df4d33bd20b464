//! Reading commands against the running cluster's answers, as text and as JSON.

use super::{Bench, file};
use nacre_msg::PgStats;
use nacre_msg::stats::{OsdStat, PgStat, StoreStatfs, pg_state};
use nacre_types::{Errno, OsdId, PgId, Stamp};

/// Compares with `<name>.txt` and `<name>.json`; JSON by its values and the order of its keys.
fn compare(bench: &mut Bench, name: &str, command: &str) {
    let text = String::from_utf8(file(&format!("{name}.txt"))).expect("text");
    assert_eq!(bench.ask(&format!("{{{command}}}")), text, "{name} as text");
    compare_json(bench, name, command);
}

fn compare_json(bench: &mut Bench, name: &str, command: &str) {
    let normal = |text: &[u8]| -> String {
        let value: serde_json::Value = serde_json::from_slice(text).expect("JSON");
        serde_json::to_string_pretty(&value).expect("JSON again")
    };
    let ours = bench.ask(&format!(r#"{{{command},"format":"json"}}"#));
    assert_eq!(normal(ours.as_bytes()), normal(&file(&format!("{name}.json"))), "{name} as JSON");
}

#[test]
fn maps_print_as_the_running_cluster_prints_them() {
    let mut bench = Bench::new();
    for (name, command) in [
        ("osd-dump", r#""prefix":"osd dump""#),
        ("osd-tree", r#""prefix":"osd tree""#),
        ("osd-info", r#""prefix":"osd info","id":0"#),
        ("osd-map", r#""prefix":"osd map","pool":"cmds-golden","object":"obj""#),
        ("osd-utilization", r#""prefix":"osd utilization""#),
        ("pool-ls-detail", r#""prefix":"osd pool ls","detail":"detail""#),
        ("pool-get-all", r#""prefix":"osd pool get","pool":"cmds-golden","var":"all""#),
        ("mon-dump", r#""prefix":"mon dump""#),
    ] {
        compare(&mut bench, name, command);
    }
    compare_json(&mut bench, "osd-crush-dump", r#""prefix":"osd crush dump""#);
    compare_json(&mut bench, "show-tunables", r#""prefix":"osd crush show-tunables""#);
}

/// The file systems of another cluster: two, with servers that hold ranks and one that follows.
#[test]
fn file_systems_print_as_the_running_cluster_prints_them() {
    let mut bench = Bench::new();
    let path = format!("{}/../../../testdata/maps/fsmap-followed.bin", env!("CARGO_MANIFEST_DIR"));
    let (mut batch, mut tables) = (crate::batch::Batch::default(), crate::batch::MemorySnapshot::default());
    batch.put("fsmap", "current", std::fs::read(path).expect("a map"));
    tables.apply(&batch);
    bench.state.fs = crate::fsmap::FsMaps::open(&tables).expect("a map");
    compare(&mut bench, "fs-dump", r#""prefix":"fs dump""#);
    assert_eq!(
        bench.ask(r#"{"prefix":"mds stat"}"#),
        "a:1 b:1 {a:0=b=up:active,b:0=a=up:active} 1 up:standby-replay"
    );
    let status = bench.ask(r#"{"prefix":"status"}"#);
    for line in ["    mds: 2/2 daemons up, 1 hot standby\n", "    volumes: 2/2 healthy\n"] {
        assert!(status.contains(line), "no <{line}> in <{status}>");
    }
}

/// The pool with the object.
const GOLDEN: i64 = 42;

/// What an OSD reported: bytes available, and KiB of data.
fn osd_stat(available: i64, kb_used_data: i64) -> OsdStat {
    let total = 10_737_418_240;
    OsdStat {
        statfs: StoreStatfs { total, available, ..StoreStatfs::default() },
        kb_used_data,
        kb_used_meta: 297_216,
        num_osds: 1,
        num_per_pool_osds: 1,
        num_per_pool_omap_osds: 1,
        ..OsdStat::default()
    }
}

/// Feeds what the OSDs of the running cluster had reported: every PG clean, one object.
fn feed(bench: &mut Bench) {
    let map = bench.state.osd.map().clone();
    for (osd, available, kb_used_data) in
        [(0, 10_431_066_112, 1948), (1, 10_431_062_016, 1952), (2, 10_431_062_016, 1952)]
    {
        let mut report = PgStats { osd_stat: osd_stat(available, kb_used_data), ..PgStats::default() };
        for (id, pool) in &map.pools {
            let store = if *id == GOLDEN {
                StoreStatfs { allocated: 4096, data_stored: 3, ..StoreStatfs::default() }
            } else {
                StoreStatfs::default()
            };
            // Two copies of the one object.
            let store = if osd == 2 { StoreStatfs::default() } else { store };
            report.pool_stat.insert(*id, store);
            for seed in 0..pool.pg_num {
                let pg = PgId::new(*id, seed);
                let set = map.pg_to_up_acting(pg);
                if set.acting_primary == osd {
                    let mut stat = pg_stat(set.up, osd, *id == GOLDEN && seed == 0);
                    (stat.last_scrub_stamp, stat.last_deep_scrub_stamp) = (bench.wall, bench.wall);
                    report.pg_stat.insert(pg, stat);
                }
            }
        }
        let wall = bench.wall;
        bench.state.stats.pg_stats(osd, report, wall);
    }
    bench.state.stats.tick(Stamp::default());
}

fn pg_stat(up: Vec<OsdId>, primary: OsdId, has_object: bool) -> PgStat {
    let mut stat = PgStat {
        state: pg_state::ACTIVE | pg_state::CLEAN,
        acting: up.clone(),
        up,
        up_primary: primary,
        acting_primary: primary,
        ..PgStat::default()
    };
    if has_object {
        let sum = &mut stat.stats.sum;
        (sum.num_objects, sum.num_object_copies, sum.num_bytes) = (1, 2, 3);
        (sum.num_wr, sum.num_wr_kb) = (1, 1);
    }
    stat
}

#[test]
fn statistics_print_as_the_running_cluster_prints_them() {
    let mut bench = Bench::new();
    feed(&mut bench);
    compare(&mut bench, "df-detail", r#""prefix":"df","detail":"detail""#);
    compare(&mut bench, "osd-df-tree", r#""prefix":"osd df","output_method":"tree""#);
    compare(&mut bench, "pg-stat", r#""prefix":"pg stat""#);
    stopping_several(&mut bench);
}

/// `--max` finds others that may stop with the one that is named; the PGs of GOLDEN have two copies.
fn stopping_several(bench: &mut Bench) {
    let osds = |text: String| {
        let tree: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        tree["osds"].as_array().map_or(0, Vec::len)
    };
    let map = bench.state.osd.map().clone();
    for id in map.pools.keys() {
        bench.state.osd.change_pool(*id).expect("the pool").min_size = 1;
    }
    let (wall, mut batch) = (bench.wall, crate::batch::Batch::default());
    bench.state.osd.flush(wall, &mut batch);
    assert_eq!(osds(bench.ask(r#"{"prefix":"osd ok-to-stop","ids":["0"]}"#)), 1);
    assert_eq!(osds(bench.ask(r#"{"prefix":"osd ok-to-stop","ids":["0"],"max":1}"#)), 1);
    let most = osds(bench.ask(r#"{"prefix":"osd ok-to-stop","ids":["0"],"max":3}"#));
    assert!(most < 3, "not all three can stop: {most}");
    assert_eq!(
        bench.say(r#"{"prefix":"osd ok-to-stop","ids":["0","1"],"max":1}"#).0,
        Errno::EINVAL.negated()
    );
}

#[test]
fn status_has_the_layout_of_the_running_cluster() {
    let mut bench = Bench::new();
    feed(&mut bench);
    let text = bench.ask(r#"{"prefix":"status"}"#);
    let theirs = String::from_utf8(file("status.txt")).expect("text");
    for line in theirs.lines().filter(|line| !["(age", "mgr:", "osd:"].iter().any(|word| line.contains(word)))
    {
        assert!(text.contains(line), "no <{line}> in <{text}>");
    }
}
