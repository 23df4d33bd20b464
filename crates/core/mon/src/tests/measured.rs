//! What commands show of daemons and of work under way is what daemons have reported, and gone with them.

use super::{ADMIN, World, json, with_pool};
use crate::event::SessionId;
use crate::front::FrontEvent;
use nacre_msg::stats::{PgStat, PingTimes, PingWindow, SlowOps, StoreStatfs, osd_alert, pg_state};
use nacre_msg::{BillReport, BillRow, Message, MgrOpen, MgrReport, PgStats};
use nacre_types::{EntityName, PgId};
use std::collections::BTreeMap;
use std::time::Duration;

fn shown(world: &mut World, session: SessionId, prefix: &str) -> serde_json::Value {
    let ask = format!(r#"{{"prefix":"{prefix}","format":"json"}}"#);
    json(world, session, &ask)
}

/// OSD 0 reports that its commits take so long, and that so many of the 30 copies of its first PG's objects are missing.
fn report(world: &mut World, osd: SessionId, commit_ns: u64, degraded: i64) {
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    let state = pg_state::ACTIVE | if degraded > 0 { pg_state::DEGRADED } else { pg_state::CLEAN };
    let mut stat = PgStat { state, acting: vec![0, 1], acting_primary: 0, ..PgStat::default() };
    (stat.stats.sum.num_object_copies, stat.stats.sum.num_objects_degraded) = (30, degraded);
    stats.pg_stat.insert(PgId::new(1, 0), stat);
    stats.osd_stat.perf_stat.commit_latency_ns = commit_ns;
    world.message(osd, 0, stats);
    world.pass(Duration::from_secs(1));
}

#[test]
fn latencies_follow_the_reports() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    assert_eq!(world.ask(admin, r#"{"prefix":"osd pool create","pool":"p"}"#).map(|ack| ack.result), Some(0));
    let osd = world.connect("osd.0");
    let perf = |world: &mut World| {
        let infos = shown(world, admin, "osd perf")["osdstats"]["osd_perf_infos"].clone();
        let each = infos.as_array().expect("a list").iter();
        each.map(|one| (one["id"].clone(), one["perf_stats"]["commit_latency_ns"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(perf(&mut world), vec![]);
    report(&mut world, osd, 1_234_567, 12);
    assert_eq!(perf(&mut world), [(0.into(), 1_234_567.into())]);
    report(&mut world, osd, 7_000_000, 3);
    assert_eq!(perf(&mut world), [(0.into(), 7_000_000.into())]);
    report(&mut world, osd, 0, 0);
    assert_eq!(perf(&mut world), vec![]);
}

/// As `ceph iostat` asks, each second, for as wide a line as its terminal has.
#[test]
fn what_clients_read_and_write_is_shown_in_lines_as_wide_as_is_asked() {
    let (mut world, admin, osd) = with_pool(1);
    for second in 1..=10 {
        let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
        let mut stat = PgStat { acting: vec![0, 1, 2], acting_primary: 0, ..PgStat::default() };
        let sum = &mut stat.stats.sum;
        (sum.num_rd, sum.num_rd_kb, sum.num_wr, sum.num_wr_kb) =
            (50 * second, 200 * second, 100 * second, 400 * second);
        stats.pg_stat.insert(PgId::new(1, 0), stat);
        world.message(osd, 0, stats);
        world.pass(Duration::from_secs(1));
    }
    let mut lines = |more: &str| -> Vec<String> {
        let ack = world.ask(admin, &format!(r#"{{"prefix":"iostat"{more}}}"#)).expect("an answer");
        let text = String::from_utf8(ack.data.to_bytes().to_vec()).expect("text");
        text.split('\n').map(str::to_owned).collect()
    };
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let line = lines("");
    assert_eq!((line.len(), line[0].len()), (1, 79), "{line:?}");
    assert_eq!(cells(&line[0]), ["200 KiB/s", "400 KiB/s", "600 KiB/s", "50", "100", "150"]);
    let wide = lines(r#","width":120,"print_header":true"#);
    assert!(wide.len() == 4 && wide.iter().all(|line| line.len() == 121), "{wide:?}");
    assert_eq!(cells(&wide[1]), ["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"]);
    assert!(wide[0] == wide[2] && wide[0].starts_with("+-------------------+-"), "{wide:?}");
    for (width, columns) in [(-1_i64, 79), (1, 79), (1 << 40, 997)] {
        assert_eq!(lines(&format!(r#","width":{width}"#))[0].len(), columns, "{width}");
    }
}

/// Sums of all that an OSD may say are a peer's nonsense, not the monitors' end; and it speaks only for PGs that it has.
#[test]
fn whatever_an_osd_reports_no_monitor_ends() {
    let mut world = World::new(4);
    world.boot_all(4);
    let admin = world.connect(ADMIN);
    let create = r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"autoscale_mode":"on"}"#;
    assert_eq!(world.ask(admin, create).map(|ack| ack.result), Some(0));
    let sessions = [0, 1, 2].map(|osd| world.connect(&format!("osd.{osd}")));
    for (n, value) in [i64::MAX, i64::MIN, i64::MAX].into_iter().enumerate() {
        for session in sessions {
            let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
            for seed in 0..8 {
                let state = pg_state::ACTIVE | pg_state::CLEAN;
                let reported_seq = n as u64 + 1;
                let mut stat = PgStat {
                    state,
                    reported_seq,
                    log_size: value,
                    ondisk_log_size: value,
                    ..PgStat::default()
                };
                let sum = &mut stat.stats.sum;
                for field in [
                    &mut sum.num_bytes,
                    &mut sum.num_objects,
                    &mut sum.num_object_copies,
                    &mut sum.num_objects_degraded,
                    &mut sum.num_objects_misplaced,
                    &mut sum.num_objects_recovered,
                    &mut sum.num_bytes_recovered,
                    &mut sum.num_omap_bytes,
                    &mut sum.num_omap_keys,
                    &mut sum.num_rd,
                    &mut sum.num_rd_kb,
                    &mut sum.num_wr,
                    &mut sum.num_wr_kb,
                ] {
                    *field = value;
                }
                stats.pg_stat.insert(PgId::new(1, seed), stat);
            }
            let mut store = StoreStatfs { total: value, available: value, ..StoreStatfs::default() };
            (store.allocated, store.data_stored, store.omap_allocated) = (value, value, value);
            let own = &mut stats.osd_stat;
            (own.kb_used_data, own.kb_used_omap, own.kb_used_meta) = (value, value, value);
            (own.num_pgs, own.num_osds, own.num_shards_repaired) = (u32::MAX, u32::MAX, u64::MAX);
            (own.statfs, own.seq) = (store.clone(), u64::MAX);
            stats.pool_stat.insert(1, store);
            world.message(session, 0, stats);
        }
        world.pass(Duration::from_secs(65));
        for prefix in [
            "status",
            "df",
            "osd df",
            "pg dump",
            "osd pool autoscale-status",
            "balancer eval",
            "osd pool stats",
            "progress json",
        ] {
            assert!(
                world.ask(admin, &format!(r#"{{"prefix":"{prefix}","format":"json"}}"#)).is_some(),
                "{prefix}"
            );
        }
    }
    // A PG that it has no copy of, and a map that is not out yet.
    let map = world.map().clone();
    let other =
        (0..8).map(|seed| PgId::new(1, seed)).find(|pg| !map.pg_to_up_acting(*pg).acting.contains(&0));
    let own = (0..8).map(|seed| PgId::new(1, seed)).find(|pg| map.pg_to_up_acting(*pg).acting.contains(&0));
    let (other, own) = (other.expect("four OSDs have three copies"), own.expect("some are its own"));
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    for (pg, reported_epoch) in [(other, 0), (own, map.epoch + 1)] {
        let stat = PgStat { state: pg_state::DOWN, reported_epoch, reported_seq: 99, ..PgStat::default() };
        stats.pg_stat.insert(pg, stat);
    }
    world.message(sessions[0], 0, stats);
    for pg in [other, own] {
        let known = world.mon.state().stats.pgs.pg(pg).map(|stat| stat.state);
        assert_ne!(known, Some(pg_state::DOWN), "{pg}");
    }
}

#[test]
fn recovery_is_shown_with_a_forecast_of_its_end() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    assert_eq!(world.ask(admin, r#"{"prefix":"osd pool create","pool":"p"}"#).map(|ack| ack.result), Some(0));
    let osd = world.connect("osd.0");
    let json = |world: &mut World| shown(world, admin, "progress json");
    let text = |world: &mut World, prefix: &str| {
        let ask = format!(r#"{{"prefix":"{prefix}"}}"#);
        String::from_utf8(world.ask(admin, &ask).expect("an answer").data.to_bytes().to_vec()).expect("text")
    };
    assert_eq!(json(&mut world), serde_json::json!({"events": [], "completed": []}));
    assert!(!text(&mut world, "status").contains("progress:"));
    // 24 of 30 copies are missing, and one comes to its place each second.
    for missing in (12..=24).rev() {
        report(&mut world, osd, 0, missing);
    }
    let event = json(&mut world)["events"][0].clone();
    assert_eq!(
        (event["message"].clone(), event["progress"].clone()),
        ("Global Recovery Event".into(), 0.5.into())
    );
    assert_eq!(event["time_remaining"], 12, "{event}");
    let line = "[==============..............] (remaining: 12s)";
    assert!(text(&mut world, "progress").contains(line) && text(&mut world, "status").contains(line));
    assert_eq!(shown(&mut world, admin, "status")["progress_events"]["recovery"]["progress"], 0.5);
    report(&mut world, osd, 0, 0);
    let (events, ended) = (json(&mut world)["events"].clone(), json(&mut world)["completed"].clone());
    assert_eq!((events, ended.as_array().map(Vec::len)), (serde_json::json!([]), Some(1)));
    let lasted = |key: &str| ended[0][key].as_f64().expect("seconds");
    assert!((12.0..=16.0).contains(&(lasted("finished_at") - lasted("started_at"))), "{ended}");
}

#[test]
fn pings_that_take_long_are_shown_and_warned_of() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let osd = world.connect("osd.0");
    let window = |us: u32| PingWindow { average: [us, us / 2, us / 4], min: [1; 3], max: [us; 3], last: us };
    let measure = |world: &mut World, back: u32, front: u32| {
        let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
        let times = PingTimes { last_update: world.wall.sec, back: window(back), front: window(front) };
        stats.osd_stat.hb_pingtime = BTreeMap::from([(1, times.clone()), (7, times)]);
        world.message(osd, 0, stats);
        world.pass(Duration::from_secs(1));
    };
    let codes = |world: &mut World| -> Vec<String> {
        let checks = world.checks(admin).as_object().expect("checks").clone();
        checks
            .into_iter()
            .filter(|(code, _)| code.contains("PING"))
            .map(|(_, check)| check.to_string())
            .collect()
    };
    measure(&mut world, 349_999, 10);
    assert!(codes(&mut world).is_empty(), "a twentieth of the grace of 7 s is slow");
    measure(&mut world, 400_123, 10);
    let checks = codes(&mut world);
    let [back] = &checks[..] else { panic!("one network: {checks:?}") };
    assert!(back.contains("Slow OSD heartbeats on back (longest 400.123ms)"), "{back}");
    assert!(back.contains("on back from osd.0 to osd.1 400.123 msec"), "{back}");
    assert!(!back.contains("osd.7"), "nobody of that number is up: {back}");
    let slow = shown(&mut world, admin, "dump_osd_network");
    assert_eq!((&slow["threshold"], &slow["entries"][0]["to osd"]), (&350.into(), &1.into()));
    assert_eq!(slow["entries"].as_array().map(Vec::len), Some(1));
    let set = r#"{"prefix":"config set","who":"global","name":"mon_warn_on_slow_ping_time","value":"0.01"}"#;
    assert_eq!(world.ask(admin, set).map(|ack| ack.result), Some(0));
    measure(&mut world, 5, 11);
    assert_eq!(codes(&mut world).len(), 1, "the front alone");
    let all =
        world.ask(admin, r#"{"prefix":"dump_osd_network","value":0,"format":"json"}"#).expect("an answer");
    let all: serde_json::Value = serde_json::from_slice(&all.data.to_bytes()).expect("JSON");
    assert_eq!(all["entries"].as_array().map(Vec::len), Some(2));
    let negative = world.ask(admin, r#"{"prefix":"dump_osd_network","value":-1}"#).expect("an answer");
    assert_ne!(negative.result, 0);
}

/// The summary of the check on slow messages.
fn slow_ops(world: &mut World, admin: SessionId) -> Option<String> {
    let health = shown(world, admin, "health");
    Some(health["checks"].get("SLOW_OPS")?["summary"]["message"].as_str()?.to_owned())
}

/// Word for word as Ceph's manager says it: tools take it apart.
#[test]
fn slow_messages_are_a_health_check_while_osds_report_them() {
    let mut world = World::new(12);
    world.boot_all(12);
    let admin = world.connect(ADMIN);
    let osds: Vec<SessionId> = (0..12).map(|osd| world.connect(&format!("osd.{osd}"))).collect();
    let report = |world: &mut World, osd: usize, text: Option<&str>| {
        let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
        let alerts = text.map(|text| (osd_alert::SLOW_OPS.to_owned(), text.to_owned()));
        stats.osd_stat.alerts.insert(i32::try_from(osd).expect("few"), alerts.into_iter().collect());
        world.message(osds[osd], 0, stats);
        world.pass(Duration::from_secs(1));
        slow_ops(world, admin)
    };
    let said = |count, oldest_s| SlowOps { count, oldest_s }.to_alert();
    assert_eq!(report(&mut world, 1, said(0, 0).as_deref()), None);
    let one = report(&mut world, 1, said(3, 41).as_deref());
    assert_eq!(one.as_deref(), Some("3 slow ops, oldest one blocked for 41 sec, osd.1 has slow ops"));
    let two = report(&mut world, 2, said(u32::MAX, 7).as_deref());
    let both = "4294967295 slow ops, oldest one blocked for 41 sec, daemons [osd.1,osd.2] have slow ops.";
    assert_eq!(two.as_deref(), Some(both));
    // What no OSD of ours says counts for nothing.
    for text in [
        "3 slow ops",
        "-1 slow ops, oldest one blocked for 3 sec",
        "+2 slow ops, oldest one blocked for 3 sec",
    ] {
        assert_eq!(report(&mut world, 2, Some(text)), one, "{text}");
    }
    for osd in 0..12 {
        report(&mut world, osd, said(1, 5).as_deref());
    }
    let ten = "12 slow ops, oldest one blocked for 5 sec, daemons \
               [osd.0,osd.1,osd.2,osd.3,osd.4,osd.5,osd.6,osd.7,osd.8,osd.9]... have slow ops.";
    assert_eq!(slow_ops(&mut world, admin).as_deref(), Some(ten));
    for osd in 0..11 {
        report(&mut world, osd, None);
    }
    assert!(slow_ops(&mut world, admin).is_some_and(|text| text.ends_with(", osd.11 has slow ops")));
    assert_eq!(world.ask(admin, r#"{"prefix":"osd down","ids":["11"]}"#).map(|ack| ack.result), Some(0));
    world.pass(Duration::from_secs(2));
    assert_eq!(slow_ops(&mut world, admin), None, "one that is down lets nobody wait");
}

#[test]
fn services_are_shown_while_they_are_connected() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for who in ["client.rgw.a", "client.x"] {
        world.add_client(who, "allow r", "allow rwx");
    }
    let said = |state: &str| BTreeMap::from([("state".to_owned(), state.to_owned())]);
    let open = |state: &str| MgrOpen {
        service_name: "rgw".to_owned(),
        daemon_name: "a".to_owned(),
        service: Some((BTreeMap::new(), said(state))),
        ..MgrOpen::default()
    };
    let state =
        |world: &mut World| shown(world, admin, "service status")["rgw"]["a"]["status"]["state"].clone();
    let gateway = world.connect_manager("client.rgw.a");
    world.message(gateway, 0, open("starts"));
    assert!(matches!(world.take(gateway)[..], [Message::MgrConfigure(_)]));
    assert_eq!(state(&mut world), "starts");
    world.message(gateway, 0, MgrReport { daemon_status: Some(said("serves")), ..MgrReport::default() });
    assert_eq!(state(&mut world), "serves");
    // Another client cannot speak for it.
    let other = world.connect_manager("client.x");
    world.message(other, 0, open("is gone"));
    assert_eq!((world.take(other).len(), world.closed.contains(&other)), (0, true));
    assert_eq!(state(&mut world), "serves");
    assert!(world.logged("a service's daemon of client.x is turned away"));
    world.front_event(FrontEvent::Closed { session: gateway });
    assert_eq!(shown(&mut world, admin, "service status"), serde_json::json!({}));
}

#[test]
fn pgs_are_stuck_after_the_time_that_the_option_says() {
    let (mut world, admin, osd) = with_pool(8);
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    for pg in (0..8).map(|seed| PgId::new(1, seed)) {
        let acting = world.map().pg_to_up_acting(pg).acting;
        let (state, last_clean) = (pg_state::ACTIVE, world.wall);
        let stat = PgStat { state, acting, acting_primary: 0, last_clean, ..PgStat::default() };
        stats.pg_stat.insert(pg, stat);
    }
    world.message(osd, 0, stats);
    world.pass(Duration::from_secs(20));
    let stuck = |world: &mut World| {
        let tree = shown(world, admin, "pg dump_stuck");
        tree["stuck_pg_stats"].as_array().map(Vec::len)
    };
    assert_eq!(stuck(&mut world), Some(0));
    let set = r#"{"prefix":"config set","who":"mon","name":"mon_pg_stuck_threshold","value":"10"}"#;
    assert_eq!(world.ask(admin, set).map(|ack| ack.result), Some(0));
    assert_eq!(stuck(&mut world), Some(8));
}

#[test]
fn checks_that_were_on_are_listed_until_they_are_cleared() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let flags = |world: &mut World| {
        world.pass(Duration::from_secs(2));
        let seen = shown(world, admin, "healthcheck history ls")["OSDMAP_FLAGS"].clone();
        (seen["active"].clone(), seen["count"].clone(), seen["severity"].clone())
    };
    let give = |world: &mut World, json: &str| {
        assert_eq!(world.ask(admin, json).map(|ack| ack.result), Some(0), "{json}");
    };
    let (set, unset) = (r#"{"prefix":"osd set","key":"noout"}"#, r#"{"prefix":"osd unset","key":"noout"}"#);
    assert_eq!(flags(&mut world).0, serde_json::Value::Null);
    give(&mut world, set);
    assert_eq!(flags(&mut world), (true.into(), 1.into(), "HEALTH_WARN".into()));
    give(&mut world, unset);
    assert_eq!(flags(&mut world), (false.into(), 1.into(), "HEALTH_WARN".into()));
    give(&mut world, set);
    assert_eq!(flags(&mut world), (true.into(), 2.into(), "HEALTH_WARN".into()));
    let seen = shown(&mut world, admin, "healthcheck history ls")["OSDMAP_FLAGS"].clone();
    assert!(
        seen["first_seen"].as_f64() > Some(0.0) && seen["last_seen"].as_f64() > seen["first_seen"].as_f64(),
        "{seen}"
    );
    let text = world.ask(admin, r#"{"prefix":"healthcheck history ls"}"#).expect("an answer").data.to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.starts_with(
            "Healthcheck Name          First Seen (UTC)      Last seen (UTC)       Count  Active"
        ),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("OSDMAP_FLAGS              20") && line.contains("     2   Yes")),
        "{text}"
    );
    // What is on comes back, and what is over does not.
    give(&mut world, r#"{"prefix":"healthcheck history clear"}"#);
    assert_eq!(flags(&mut world), (true.into(), 1.into(), "HEALTH_WARN".into()));
    give(&mut world, unset);
    world.pass(Duration::from_secs(2));
    give(&mut world, r#"{"prefix":"healthcheck history clear"}"#);
    assert_eq!(flags(&mut world).0, serde_json::Value::Null);
}

/// Metrics have a series for each client up to the bound, and one for all others.
#[test]
fn the_bill_tells_so_many_clients_apart() {
    for (series_max, expected) in [("1", 2), ("100", 5)] {
        let mut world = World::new(3);
        world.boot_all(3);
        let admin = world.connect(ADMIN);
        let set = format!(
            r#"{{"prefix":"config set","who":"mon","name":"nacre_bill_series_max","value":"{series_max}"}}"#
        );
        assert_eq!(world.ask(admin, &set).map(|ack| ack.result), Some(0));
        let osd = world.connect("osd.0");
        let row =
            |id| BillRow { client: EntityName::client(id), cpu_ns: 1000 * id, ops: 1, ..BillRow::default() };
        for id in 1..=5 {
            world.mon.state.stats.bill.learn(EntityName::client(id), format!("client.x{id}"), "h".to_owned());
        }
        let rows = (1..=5).map(row).collect();
        let (process_ns, process_delta_ns) = (1_000_000, 1_000_000);
        let process = "host/1/a".to_owned();
        world.message(
            osd,
            0,
            BillReport { process, process_ns, process_delta_ns, rows, ..BillReport::default() },
        );
        let stats = &world.mon.state().stats;
        let clients = stats.bill.sums(&stats.images).clients;
        let sum: u64 = clients.iter().map(|(_, account)| account.cpu_ns).sum();
        assert_eq!((clients.len(), sum), (expected, 15_000), "{series_max}");
    }
}
