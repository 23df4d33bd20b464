//! Every health check that has no test of its own is raised by its fault, within a second of the monitor's hearing of it, and goes within ten
//! after it. `docs/health-checks.md` lists all.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_buf::{BufList, Bytes};
use nacre_msg::stats::{PgStat, PingTimes, PingWindow, SlowOps, osd_alert, pg_state};
use nacre_msg::{Message, MonCommand, MonCommandAck, PgStats};
use nacre_types::{OsdId, PgId, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// A check goes so many seconds after its fault at the latest.
const CLEARS_WITHIN_S: u32 = 10;
const PG_NUM: u32 = 8;
const OSDS: OsdId = 3;

/// A cluster in which nothing is wrong: pool `p` with an application, and OSDs that report what a test says.
struct Calm {
    world: World,
    admin: SessionId,
    sessions: Vec<SessionId>,
    generation: u16,
}

impl Calm {
    fn new() -> Self {
        let mut world = World::new(OSDS);
        let sessions = world.boot_all(OSDS);
        let admin = world.connect(ADMIN);
        let mut calm = Self { world, admin, sessions, generation: 1 };
        calm.ask(&format!(r#"{{"prefix":"osd pool create","pool":"p","pg_num":{PG_NUM}}}"#));
        calm.ask(r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#);
        calm.report(|_| {});
        calm
    }

    fn ask(&mut self, json: &str) {
        self.ask_with(json, b"");
    }

    fn ask_with(&mut self, json: &str, data: &[u8]) -> MonCommandAck {
        let data = BufList::from(Bytes::copy_from_slice(data));
        let command = MonCommand { cmd: vec![json.to_owned()], data, ..MonCommand::default() };
        let tid = self.world.new_tid();
        self.world.message(self.admin, tid, command);
        let answer = self.world.take(self.admin).into_iter().find_map(|message| match message {
            Message::MonCommandAck(ack) => Some(ack),
            _ => None,
        });
        let answer = answer.expect("an answer");
        assert_eq!(answer.result, 0, "{json}: {}", answer.status);
        answer
    }

    fn set(&mut self, who: &str, name: &str, value: &str) {
        self.ask(&format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"{value}"}}"#));
    }

    fn unset(&mut self, who: &str, name: &str) {
        self.ask(&format!(r#"{{"prefix":"config rm","who":"{who}","name":"{name}"}}"#));
    }

    /// OSD 0 reports its PGs: all is well, but for what `edit` makes of the first one.
    fn report(&mut self, edit: impl FnOnce(&mut PgStats)) {
        self.report_of(1, PG_NUM, edit);
    }

    /// The same of the PGs of some pool.
    fn report_of(&mut self, pool: i64, pg_num: u32, edit: impl FnOnce(&mut PgStats)) {
        let mut stats = PgStats { fsid: self.world.mon.fsid(), ..PgStats::default() };
        let whole = PgStat {
            state: pg_state::ACTIVE | pg_state::CLEAN,
            up: vec![0, 1, 2],
            acting: vec![0, 1, 2],
            last_scrub_stamp: self.world.wall,
            last_deep_scrub_stamp: self.world.wall,
            reported_seq: u64::from(self.world.wall.sec),
            ..PgStat::default()
        };
        stats.pg_stat = (0..pg_num).map(|seed| (PgId::new(pool, seed), whole.clone())).collect();
        edit(&mut stats);
        self.world.message(self.sessions[0], 0, stats);
        self.world.pass(Duration::from_secs(1));
    }

    /// The first PG is in these states, too.
    fn state(&mut self, bits: u64) {
        self.first(|stat| stat.state |= bits);
    }

    fn first(&mut self, edit: impl FnOnce(&mut PgStat)) {
        self.report(|stats| edit(stats.pg_stat.get_mut(&PgId::new(1, 0)).expect("the first PG")));
    }

    fn alert(&mut self, code: &str, text: &str) {
        let alerts = BTreeMap::from([(code.to_owned(), text.to_owned())]);
        self.report(|stats| drop(stats.osd_stat.alerts.insert(0, alerts)));
    }

    fn well(&mut self) {
        self.report(|_| {});
    }

    fn down(&mut self, osds: &[OsdId]) {
        let ids: Vec<String> = osds.iter().map(|osd| format!("\"{osd}\"")).collect();
        self.ask(&format!(r#"{{"prefix":"osd down","ids":[{}]}}"#, ids.join(",")));
    }

    fn up(&mut self, osds: &[OsdId]) {
        self.generation += 1;
        for osd in osds {
            let session = self.world.connect(&format!("osd.{osd}"));
            self.world.boot(session, *osd, self.generation);
            self.sessions[usize::try_from(*osd).expect("few")] = session;
        }
        self.world.pass(Duration::from_secs(1));
    }

    fn boot_as_version(&mut self, osd: OsdId, version: &str) {
        self.down(&[osd]);
        self.generation += 1;
        let session = self.world.connect(&format!("osd.{osd}"));
        let fact = ("nacre_version".to_owned(), version.to_owned());
        self.world.boot_as(session, osd, self.generation, |mut boot| {
            boot.metadata.extend([fact]);
            boot
        });
        self.world.pass(Duration::from_secs(7));
    }

    fn has(&mut self, code: &str) -> bool {
        self.check(code).is_some()
    }

    /// Severity and text of a check that is on.
    fn check(&mut self, code: &str) -> Option<(String, String)> {
        let checks = self.world.checks(self.admin);
        let check = checks.get(code)?;
        Some((check["severity"].as_str()?.to_owned(), check.to_string()))
    }
}

/// The code of a check, what raises it, and what ends that.
type Fault = (&'static str, fn(&mut Calm), fn(&mut Calm));

const OF_OSDS: &[Fault] = &[
    ("OSD_DOWN", |calm| calm.down(&[2]), |calm| calm.up(&[2])),
    ("OSD_HOST_DOWN", |calm| calm.down(&[2]), |calm| calm.up(&[2])),
    ("OSD_ROOT_DOWN", |calm| calm.down(&[0, 1, 2]), |calm| calm.up(&[0, 1, 2])),
    (
        "OSD_RACK_DOWN",
        |calm| {
            calm.ask(
                r#"{"prefix":"osd crush add-bucket","name":"rack1","type":"rack","args":["root=default"]}"#,
            );
            calm.ask(r#"{"prefix":"osd crush move","name":"host2","args":["rack=rack1"]}"#);
            calm.down(&[2]);
        },
        |calm| calm.up(&[2]),
    ),
    (
        "OSDMAP_FLAGS",
        |calm| calm.ask(r#"{"prefix":"osd set","key":"noout"}"#),
        |calm| calm.ask(r#"{"prefix":"osd unset","key":"noout"}"#),
    ),
    (
        "OSD_ORPHAN",
        |calm| {
            calm.down(&[2]);
            calm.ask(r#"{"prefix":"osd rm","ids":["2"]}"#);
        },
        |calm| calm.ask(r#"{"prefix":"osd crush rm","name":"osd.2"}"#),
    ),
    (
        "OSD_OUT_OF_ORDER_FULL",
        |calm| calm.ask(r#"{"prefix":"osd set-nearfull-ratio","ratio":0.93}"#),
        |calm| calm.ask(r#"{"prefix":"osd set-nearfull-ratio","ratio":0.85}"#),
    ),
    (
        "OLD_CRUSH_TUNABLES",
        |calm| {
            calm.set("mon", "mon_crush_min_required_version", "jewel");
            calm.ask(r#"{"prefix":"osd crush tunables","profile":"hammer"}"#);
        },
        |calm| {
            calm.set("mon", "mon_warn_on_legacy_crush_tunables", "false");
            assert!(!calm.has("OLD_CRUSH_TUNABLES"), "nobody asks");
            calm.set("mon", "mon_warn_on_legacy_crush_tunables", "true");
            calm.ask(r#"{"prefix":"osd crush tunables","profile":"optimal"}"#);
        },
    ),
    (
        "OLD_CRUSH_STRAW_CALC_VERSION",
        |calm| calm.ask(r#"{"prefix":"osd crush tunables","profile":"legacy"}"#),
        |calm| calm.set("mon", "mon_warn_on_crush_straw_calc_version_zero", "false"),
    ),
    (
        "OSD_NO_DOWN_OUT_INTERVAL",
        |calm| calm.set("mon", "mon_osd_down_out_interval", "0"),
        |calm| calm.set("mon", "mon_warn_on_osd_down_out_interval_zero", "false"),
    ),
    (
        "OSD_TOO_MANY_REPAIRS",
        |calm| {
            calm.report(|stats| stats.osd_stat.num_shards_repaired = 10);
            assert!(!calm.has("OSD_TOO_MANY_REPAIRS"), "as many as mon_osd_warn_num_repaired");
            calm.report(|stats| stats.osd_stat.num_shards_repaired = 11);
        },
        |calm| calm.set("mon", "mon_osd_warn_num_repaired", "11"),
    ),
    ("OSD_PEER_MESSAGES", |calm| calm.alert(osd_alert::PEER_MESSAGES, "2 of osd.1"), Calm::well),
    ("OSD_CLIENTS_THROTTLED", |calm| calm.alert(osd_alert::CLIENTS_THROTTLED, "client.1"), Calm::well),
    ("OSD_COPIES_LOST", |calm| calm.alert(osd_alert::COPIES_LOST, "1.0"), Calm::well),
    (
        "SLOW_OPS",
        |calm| {
            let slow = SlowOps { count: 3, oldest_s: 41 }.to_alert().expect("slow");
            calm.alert(osd_alert::SLOW_OPS, &slow);
        },
        Calm::well,
    ),
    ("OSD_SLOW_PING_TIME_BACK", |calm| slow_pings(calm, 400_000, 10), |calm| slow_pings(calm, 10, 10)),
    ("OSD_SLOW_PING_TIME_FRONT", |calm| slow_pings(calm, 10, 400_000), |calm| slow_pings(calm, 10, 10)),
    (
        "TOO_FEW_OSDS",
        |calm| calm.set("mon", "osd_pool_default_size", "4"),
        |calm| calm.unset("mon", "osd_pool_default_size"),
    ),
    (
        "DAEMON_OLD_VERSION",
        |calm| {
            calm.set("mon", "mon_warn_older_version_delay", "5");
            calm.boot_as_version(2, "0.0.1");
        },
        |calm| {
            calm.set("mon", "mon_warn_on_older_version", "false");
            assert!(!calm.has("DAEMON_OLD_VERSION"), "nobody asks");
            calm.set("mon", "mon_warn_on_older_version", "true");
            calm.boot_as_version(2, env!("CARGO_PKG_VERSION"));
        },
    ),
    (
        "RECENT_CRASH",
        |calm| {
            let report =
                br#"{"crash_id":"c","timestamp":"2023-11-14T22:00:00.000000Z","entity_name":"osd.1"}"#;
            calm.ask_with(r#"{"prefix":"crash post"}"#, report);
        },
        |calm| calm.ask(r#"{"prefix":"crash archive","id":"c"}"#),
    ),
];

/// OSD 0 has measured so many microseconds to OSD 1.
fn slow_pings(calm: &mut Calm, back: u32, front: u32) {
    let window = |us: u32| PingWindow { average: [us; 3], min: [1; 3], max: [us; 3], last: us };
    let times = PingTimes { last_update: calm.world.wall.sec, back: window(back), front: window(front) };
    calm.report(|stats| stats.osd_stat.hb_pingtime = BTreeMap::from([(1, times)]));
}

const OF_PGS: &[Fault] = &[
    ("PG_AVAILABILITY", |calm| calm.first(|stat| stat.state = pg_state::DOWN), Calm::well),
    ("PG_DEGRADED", |calm| calm.state(pg_state::DEGRADED), Calm::well),
    ("PG_DAMAGED", |calm| calm.state(pg_state::INCONSISTENT), Calm::well),
    ("PG_RECOVERY_FULL", |calm| calm.state(pg_state::RECOVERY_TOOFULL), Calm::well),
    ("PG_BACKFILL_FULL", |calm| calm.state(pg_state::BACKFILL_TOOFULL), Calm::well),
    ("OSD_SCRUB_ERRORS", |calm| calm.first(|stat| stat.stats.sum.num_scrub_errors = 2), Calm::well),
    ("LARGE_OMAP_OBJECTS", |calm| calm.first(|stat| stat.stats.sum.num_large_omap_objects = 1), Calm::well),
    ("OBJECT_UNFOUND", |calm| calm.first(|stat| stat.stats.sum.num_objects_unfound = 1), Calm::well),
    (
        "OBJECT_MISPLACED",
        |calm| {
            calm.first(|stat| stat.stats.sum.num_objects_misplaced = 1);
            assert!(!calm.has("OBJECT_MISPLACED"), "moving is no fault unless mon_warn_on_misplaced says so");
            calm.set("mon", "mon_warn_on_misplaced", "true");
        },
        Calm::well,
    ),
    (
        "PG_SLOW_SNAP_TRIMMING",
        |calm| {
            calm.set("mon", "mon_osd_snap_trim_queue_warn_on", "7");
            calm.first(|stat| stat.snaptrimq_len = 8);
        },
        |calm| calm.first(|stat| stat.snaptrimq_len = 7),
    ),
    (
        "MANY_OBJECTS_PER_PG",
        |calm| {
            calm.set("mon", "mon_pg_warn_max_object_skew", "4");
            calm.first(|stat| stat.stats.sum.num_objects = 100_000);
            assert!(!calm.has("MANY_OBJECTS_PER_PG"), "a pool is compared with all, and there is one");
            calm.ask(r#"{"prefix":"osd pool create","pool":"q","pg_num":1}"#);
            calm.ask(r#"{"prefix":"osd pool application enable","pool":"q","app":"rbd"}"#);
            calm.well();
            let edit = |stats: &mut PgStats| {
                stats.pg_stat.values_mut().for_each(|stat| stat.stats.sum.num_objects = 20_000);
            };
            calm.report_of(2, 1, edit);
        },
        |calm| {
            calm.set("mon", "mon_pg_warn_min_pool_objects", "20001");
            assert!(!calm.has("MANY_OBJECTS_PER_PG"), "the pool is small");
            calm.set("mon", "mon_pg_warn_min_pool_objects", "1000");
            calm.set("mon", "mon_pg_warn_min_objects", "20001");
        },
    ),
    (
        "TOO_MANY_PGS",
        |calm| calm.set("mon", "mon_max_pg_per_osd", "7"),
        |calm| calm.set("mon", "mon_max_pg_per_osd", "8"),
    ),
    (
        "TOO_FEW_PGS",
        |calm| calm.set("mon", "mon_pg_warn_min_per_osd", "9"),
        |calm| calm.set("mon", "mon_pg_warn_min_per_osd", "8"),
    ),
];

const OF_POOLS: &[Fault] = &[
    (
        "POOL_APP_NOT_ENABLED",
        |calm| {
            calm.ask(r#"{"prefix":"osd pool create","pool":"q","pg_num":1}"#);
            calm.report_of(2, 1, |stats| {
                stats.pg_stat.values_mut().for_each(|stat| stat.stats.sum.num_objects = 1);
            });
            calm.set("mon", "mon_warn_on_pool_no_app", "false");
            assert!(!calm.has("POOL_APP_NOT_ENABLED"));
            calm.set("mon", "mon_warn_on_pool_no_app", "true");
        },
        |calm| calm.ask(r#"{"prefix":"osd pool application enable","pool":"q","app":"rbd"}"#),
    ),
    (
        "POOL_NO_REDUNDANCY",
        |calm| {
            calm.set("mon", "mon_allow_pool_size_one", "true");
            calm.ask(
                r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"1","yes_i_really_mean_it":true}"#,
            );
        },
        |calm| calm.ask(r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"2"}"#),
    ),
    (
        "POOL_PG_NUM_NOT_POWER_OF_TWO",
        |calm| calm.ask(r#"{"prefix":"osd pool create","pool":"q","pg_num":12}"#),
        |calm| calm.set("mon", "mon_warn_on_pool_pg_num_not_power_of_two", "false"),
    ),
    (
        "SMALLER_PGP_NUM",
        |calm| calm.ask(r#"{"prefix":"osd pool set","pool":"p","var":"pgp_num","val":"4"}"#),
        |calm| calm.ask(r#"{"prefix":"osd pool set","pool":"p","var":"pgp_num","val":"8"}"#),
    ),
    ("POOL_NEAR_FULL", |calm| near_quota(calm, "mon_pool_quota_warn_threshold"), Calm::well),
    ("POOL_FULL", |calm| near_quota(calm, "mon_pool_quota_crit_threshold"), Calm::well),
];

/// The pool holds 80 of the 100 objects that it may, and the option says that this is much.
fn near_quota(calm: &mut Calm, option: &str) {
    calm.ask(r#"{"prefix":"osd pool set-quota","pool":"p","field":"max_objects","val":"100"}"#);
    calm.first(|stat| stat.stats.sum.num_objects = 80);
    let any = |calm: &mut Calm| calm.has("POOL_NEAR_FULL") || calm.has("POOL_FULL");
    assert!(!any(calm), "nobody has asked");
    calm.set("mon", option, "81");
    assert!(!any(calm), "not as much yet");
    calm.set("mon", option, "80");
}

fn raised_and_cleared((code, make, heal): &Fault) {
    let mut calm = Calm::new();
    assert!(!calm.has(code), "{code} without its fault: {:?}", calm.check(code));
    make(&mut calm);
    calm.world.pass(Duration::from_secs(1));
    let (severity, text) = calm.check(code).unwrap_or_else(|| panic!("{code} is not raised"));
    assert!(["HEALTH_WARN", "HEALTH_ERR"].contains(&severity.as_str()), "{code}: {severity}");
    assert!(calm.world.logged(&format!("({code})")), "the cluster log says so: {text}");
    heal(&mut calm);
    let clears_in = (0..=CLEARS_WITHIN_S).find(|_| {
        let is_over = !calm.has(code);
        calm.world.pass(Duration::from_secs(1));
        is_over
    });
    assert!(clears_in.is_some(), "{code} stays: {:?}", calm.check(code));
}

#[test]
fn checks_of_osds_are_raised_by_their_faults_and_go() {
    OF_OSDS.iter().for_each(raised_and_cleared);
}

#[test]
fn checks_of_pgs_are_raised_by_their_faults_and_go() {
    OF_PGS.iter().for_each(raised_and_cleared);
}

#[test]
fn checks_of_pools_are_raised_by_their_faults_and_go() {
    OF_POOLS.iter().for_each(raised_and_cleared);
}

/// A day has so many seconds.
const DAY_S: u32 = 86_400;

/// Scrubs are late after half as long again as they may take, deep ones after three quarters; a pool's own intervals come first.
#[test]
fn scrubs_that_do_not_come_are_a_health_check_until_they_have() {
    let mut calm = Calm::new();
    let scrubbed = |calm: &mut Calm, days: u32, deep_days: u32| {
        let ago = |days: u32| UTime { sec: calm.world.wall.sec - days * DAY_S, nsec: 0 };
        let (stamp, deep_stamp) = (ago(days), ago(deep_days));
        calm.first(|stat| (stat.last_scrub_stamp, stat.last_deep_scrub_stamp) = (stamp, deep_stamp));
        (calm.has("PG_NOT_SCRUBBED"), calm.has("PG_NOT_DEEP_SCRUBBED"))
    };
    assert_eq!(scrubbed(&mut calm, 10, 12), (false, false), "7 days and a half of it, and three quarters");
    assert_eq!(scrubbed(&mut calm, 11, 12), (true, false));
    assert_eq!(scrubbed(&mut calm, 11, 13), (true, true));
    let (_, text) = calm.check("PG_NOT_DEEP_SCRUBBED").expect("it is late");
    assert!(
        text.contains("1 pgs not deep-scrubbed in time") && text.contains("pg 1.0 not deep-scrubbed since")
    );
    // What OSDs are told holds for health, too.
    calm.set("osd", "osd_deep_scrub_interval", "864000");
    assert_eq!(scrubbed(&mut calm, 11, 13), (true, false));
    calm.set("global", "osd_scrub_max_interval", "864000");
    assert_eq!(scrubbed(&mut calm, 11, 13), (false, false));
    calm.ask(r#"{"prefix":"osd pool set","pool":"p","var":"deep_scrub_interval","val":"86400"}"#);
    calm.ask(r#"{"prefix":"osd pool set","pool":"p","var":"scrub_max_interval","val":"86400"}"#);
    assert_eq!(scrubbed(&mut calm, 1, 1), (false, false));
    assert_eq!(scrubbed(&mut calm, 2, 2), (true, true));
    calm.set("mon", "mon_warn_pg_not_scrubbed_ratio", "1.5");
    calm.set("mon", "mon_warn_pg_not_deep_scrubbed_ratio", "0");
    assert_eq!(scrubbed(&mut calm, 2, 2), (false, false));
    calm.set("mon", "mon_warn_pg_not_deep_scrubbed_ratio", "0.5");
    assert_eq!(scrubbed(&mut calm, 2, 2), (false, true));
    assert_eq!(scrubbed(&mut calm, 0, 0), (false, false));
}

/// Health speaks of a crash until somebody has archived it, or two weeks; the report itself is kept for a year.
#[test]
fn crashes_are_spoken_of_until_they_are_archived_or_old() {
    let mut calm = Calm::new();
    let post = |calm: &mut Calm, id: &str, days: u32| {
        let at = UTime { sec: calm.world.wall.sec - days * DAY_S, nsec: 0 };
        let report = format!(
            r#"{{"crash_id":"{id}","timestamp":"{at}","entity_name":"osd.1","process_name":"nacre","utsname_hostname":"h"}}"#
        );
        calm.ask_with(r#"{"prefix":"crash post"}"#, report.as_bytes());
        calm.world.pass(Duration::from_secs(1));
    };
    let said = |calm: &mut Calm, prefix: &str| {
        let answer = calm.ask_with(&format!(r#"{{"prefix":"{prefix}","keep":"20","hours":"48"}}"#), b"");
        String::from_utf8(answer.data.to_bytes().to_vec()).expect("text")
    };
    post(&mut calm, "a", 13);
    post(&mut calm, "b", 15);
    let (_, text) = calm.check("RECENT_CRASH").expect("a new one");
    assert!(text.contains("1 daemons have recently crashed") && text.contains("osd.1 crashed on host h at"));
    calm.set("mgr", "mgr/crash/warn_recent_interval", "1382400");
    assert!(calm.check("RECENT_CRASH").is_some_and(|(_, text)| text.contains("2 daemons")));
    assert_eq!(
        said(&mut calm, "crash stat"),
        "2 crashes recorded\n2 older than 1 days old:\na\nb\n2 older than 3 days old:\na\nb\n2 older than 7 days old:\na\nb\n"
    );
    assert_eq!(said(&mut calm, "crash ls").matches('*').count(), 2);
    calm.ask(r#"{"prefix":"crash archive","id":"a"}"#);
    assert!(calm.check("RECENT_CRASH").is_some_and(|(_, text)| text.contains("1 daemons")));
    // Posted again, it stays archived.
    post(&mut calm, "a", 13);
    assert_eq!(
        (said(&mut calm, "crash ls").lines().count(), said(&mut calm, "crash ls-new").lines().count()),
        (3, 2)
    );
    calm.ask(r#"{"prefix":"crash archive-all"}"#);
    assert!(!calm.has("RECENT_CRASH"));
    assert_eq!(said(&mut calm, "crash ls-new"), "");
    post(&mut calm, "c", 1);
    post(&mut calm, "d", 30);
    assert_eq!(said(&mut calm, "crash json_report"), r#"{"nacre":1}"#);
    said(&mut calm, "crash prune");
    assert!(!said(&mut calm, "crash ls").contains("\nd "), "30 days are more than 20");
    // What health knows of them survives another leader.
    calm.world.change_leader();
    calm.admin = calm.world.connect(ADMIN);
    assert!(calm.check("RECENT_CRASH").is_some_and(|(_, text)| text.contains("1 daemons")));
    // The module's other option: how long they are kept.
    calm.set("mgr", "mgr/crash/retain_interval", "172800");
    calm.world.pass(Duration::from_secs(2));
    assert_eq!(said(&mut calm, "crash stat"), "1 crashes recorded\n1 older than 1 days old:\nc\n");
    for (wrong, why) in [("{}", "crash_id"), (r#"{"crash_id":"x","timestamp":"now"}"#, "now"), ("", "EOF")] {
        let command = MonCommand {
            cmd: vec![r#"{"prefix":"crash post"}"#.to_owned()],
            data: BufList::from(Bytes::copy_from_slice(wrong.as_bytes())),
            ..MonCommand::default()
        };
        let tid = calm.world.new_tid();
        calm.world.message(calm.admin, tid, command);
        let refused = calm.world.take(calm.admin).into_iter().any(|message| match message {
            Message::MonCommandAck(ack) => ack.result != 0 && ack.status.contains(why),
            _ => false,
        });
        assert!(refused, "{wrong}");
    }
}
