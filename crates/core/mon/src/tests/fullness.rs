//! How full OSDs are: their reports go in; bits of the map and health come out.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_maps::flags;
use nacre_msg::PgStats;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_types::PgId;
use std::ops::Range;
use std::time::Duration;

const GIB: i64 = 1 << 30;

/// OSD 0 reports that so many per cent of it are used, and that it serves all PGs with OSD 1.
fn report(world: &mut World, osd: SessionId, percent: i64) {
    let pg_num = world.map().pools[&1].pg_num;
    report_groups(world, osd, percent, 0..pg_num, 0);
}

/// The same of some PGs, each with so many objects.
fn report_groups(world: &mut World, osd: SessionId, percent: i64, seeds: Range<u32>, objects: i64) {
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    for seed in seeds {
        let state = pg_state::ACTIVE | pg_state::CLEAN;
        let mut stat = PgStat { state, acting: vec![0, 1], acting_primary: 0, ..PgStat::default() };
        stat.stats.sum.num_objects = objects;
        stats.pg_stat.insert(PgId::new(1, seed), stat);
    }
    stats.osd_stat.statfs.total = 100 * GIB;
    stats.osd_stat.statfs.available = (100 - percent) * GIB;
    world.message(osd, 0, stats);
    world.pass(Duration::from_secs(2));
}

/// Codes of health that speak of full OSDs and pools.
fn health(world: &mut World, admin: SessionId) -> Vec<String> {
    let ack = world.ask(admin, r#"{"prefix":"health","detail":"detail"}"#).expect("an answer");
    let text = String::from_utf8(ack.data.to_bytes().to_vec()).expect("text");
    let codes = text.split_whitespace().map(|word| word.trim_end_matches(':'));
    let mut codes: Vec<String> = codes.filter(|word| word.ends_with("FULL")).map(str::to_owned).collect();
    codes.sort();
    codes.dedup();
    codes
}

#[test]
fn an_osd_that_fills_up_shows_in_the_map_and_in_health() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let create = r#"{"prefix":"osd pool create","pool":"p"}"#;
    assert_eq!(world.ask(admin, create).map(|ack| ack.result), Some(0));
    let osd = world.connect("osd.0");
    let steps = [
        (84, 0, 0, vec![]),
        (86, flags::osd::NEARFULL, flags::pool::NEARFULL, vec!["OSD_NEARFULL", "POOL_NEARFULL"]),
        (
            91,
            flags::osd::BACKFILLFULL,
            flags::pool::BACKFILLFULL,
            vec!["OSD_BACKFILLFULL", "POOL_BACKFILLFULL"],
        ),
        (96, flags::osd::FULL, flags::pool::FULL, vec!["OSD_FULL", "POOL_FULL"]),
        (89, flags::osd::NEARFULL, flags::pool::NEARFULL, vec!["OSD_NEARFULL", "POOL_NEARFULL"]),
        (10, 0, 0, vec![]),
    ];
    let osd_bits = flags::osd::NEARFULL | flags::osd::BACKFILLFULL | flags::osd::FULL;
    let pool_bits = flags::pool::NEARFULL | flags::pool::BACKFILLFULL | flags::pool::FULL;
    for (percent, osd_bit, pool_bit, codes) in steps {
        report(&mut world, osd, percent);
        assert_eq!(world.map().state(0) & osd_bits, osd_bit, "{percent} %");
        assert_eq!(world.map().state(1) & osd_bits, 0, "it has reported nothing");
        assert_eq!(world.map().pools[&1].flags & pool_bits, pool_bit, "{percent} %");
        assert_eq!(health(&mut world, admin), codes, "{percent} %");
    }
    world.check();
}

#[test]
fn the_ratios_may_be_changed() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    world.ask(admin, r#"{"prefix":"osd pool create","pool":"p"}"#);
    let osd = world.connect("osd.0");
    report(&mut world, osd, 60);
    assert_eq!(health(&mut world, admin), Vec::<String>::new());
    let lower = r#"{"prefix":"osd set-backfillfull-ratio","ratio":0.55}"#;
    assert_eq!(world.ask(admin, lower).map(|ack| ack.result), Some(0));
    world.pass(Duration::from_secs(2));
    let out_of_order = "OSD_OUT_OF_ORDER_FULL"; // the nearfull ratio is 0.85
    assert_eq!(health(&mut world, admin), ["OSD_BACKFILLFULL", out_of_order, "POOL_BACKFILLFULL"]);
    world.check();
}

/// A pool of 32 PGs behind which OSDs 0 to 2 are up, and a session of OSD 0.
fn one_pool() -> (World, SessionId, SessionId) {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    world.ask(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":32}"#);
    let osd = world.connect("osd.0");
    (world, admin, osd)
}

/// A monitor that starts has no reports yet: it opens nothing on that account.
#[test]
fn a_full_pool_stays_full_over_a_restart_until_all_its_groups_reported() {
    let (mut world, _, osd) = one_pool();
    report(&mut world, osd, 96);
    let full = |world: &World| {
        (world.map().state(0) & flags::osd::FULL, world.map().pools[&1].flags & flags::pool::FULL)
    };
    assert_eq!(full(&world), (flags::osd::FULL, flags::pool::FULL));
    world.restart();
    world.pass(Duration::from_secs(10));
    assert_eq!(full(&world), (flags::osd::FULL, flags::pool::FULL), "nobody has reported");
    let osd = world.connect("osd.0");
    report_groups(&mut world, osd, 96, 0..8, 0);
    assert_eq!(full(&world), (flags::osd::FULL, flags::pool::FULL), "the OSD is still full");
    report_groups(&mut world, osd, 10, 0..8, 0);
    assert_eq!(full(&world), (0, 0), "no OSD is full, whichever the other groups use");
    world.check();
}

#[test]
fn a_pool_over_its_quota_stays_closed_over_a_restart_until_all_its_groups_reported() {
    let (mut world, admin, osd) = one_pool();
    let quota = |objects: u32| {
        format!(r#"{{"prefix":"osd pool set-quota","pool":"p","field":"max_objects","val":"{objects}"}}"#)
    };
    assert_eq!(world.ask(admin, &quota(100)).map(|ack| ack.result), Some(0));
    let both = flags::pool::FULL | flags::pool::FULL_QUOTA;
    let closed = |world: &World| world.map().pools[&1].flags & both;
    report_groups(&mut world, osd, 1, 0..32, 4);
    assert_eq!(closed(&world), both, "128 objects of 100");
    world.restart();
    world.pass(Duration::from_secs(10));
    assert_eq!(closed(&world), both, "nobody has reported");
    let osd = world.connect("osd.0");
    report_groups(&mut world, osd, 1, 0..20, 4);
    assert_eq!(closed(&world), both, "80 objects, and twelve groups unheard of");
    report_groups(&mut world, osd, 1, 20..32, 1);
    assert_eq!(closed(&world), 0, "92 objects");
    // A part of the PGs is enough to see that there are too many.
    world.restart();
    let osd = world.connect("osd.0");
    report_groups(&mut world, osd, 1, 0..2, 50);
    assert_eq!(closed(&world), both);
    // Without a quota nothing needs to be known, but that the leader is warm.
    let admin = world.connect(ADMIN);
    assert_eq!(world.ask(admin, &quota(0)).map(|ack| ack.result), Some(0));
    world.pass(crate::WARM_UP);
    assert_eq!(closed(&world), 0);
    world.check();
}
