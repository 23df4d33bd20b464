//! Devices: asked how they are, and taken at their word.

use super::{ADMIN, World};
use crate::FrontEvent;
use crate::device_asking::ASKED_PER_TICK_MAX;
use crate::device_samples::{DEVICES_COUNT_MAX, Sample};
use crate::event::SessionId;
use nacre_buf::Bytes;
use nacre_msg::{
    DEVICE_JSON_BYTES_MAX, DeviceHealth, DeviceHealthReport, DeviceHealthWanted, Message, MgrBeacon,
    OsdBeacon, PgStats,
};
use nacre_types::{Errno, OsdId, UTime};
use serde_json::Value;
use std::time::Duration;

const HOUR_S: u64 = 3600;

const WELL: DeviceHealth = DeviceHealth {
    smart_passed: Some(true),
    critical_warning: Some(0),
    available_spare: Some(100),
    available_spare_threshold: Some(10),
    percentage_used: Some(7),
    media_errors: Some(0),
    reallocated: None,
    pending: None,
    temperature_c: Some(31),
    power_on_hours: Some(1234),
};

/// The verdict of a device that is no NVMe one.
const FAILS: DeviceHealth = DeviceHealth { smart_passed: Some(false), critical_warning: None, ..WELL };

fn said(device: &str, health: DeviceHealth) -> DeviceHealthReport {
    let json = Bytes::from(format!(r#"{{"model_name":"ACME {device}"}}"#));
    DeviceHealthReport { device: device.to_owned(), health: Some(health), error: String::new(), json }
}

fn cannot(device: &str, error: &str) -> DeviceHealthReport {
    DeviceHealthReport { device: device.to_owned(), error: error.to_owned(), ..DeviceHealthReport::default() }
}

struct Drives {
    world: World,
    admin: SessionId,
    osds: Vec<SessionId>,
    hosts: Vec<String>,
    generation: u16,
}

impl Drives {
    /// OSDs with these devices, one host for each device; they can be asked.
    fn new(devices: &[&str]) -> Self {
        let count = OsdId::try_from(devices.len()).expect("few");
        let mut world = World::new(count);
        let admin = world.connect(ADMIN);
        let first = |device: &&str| devices.iter().position(|other| other == device).unwrap_or_default();
        let hosts = devices.iter().map(|device| format!("h{}", first(device))).collect();
        let mut drives = Self { world, admin, osds: Vec::new(), hosts, generation: 0 };
        for (osd, device) in (0..count).zip(devices) {
            let session = drives.world.connect(&format!("osd.{osd}"));
            drives.osds.push(session);
            drives.world.subscribe(session, DeviceHealthWanted::TOPIC, 0, false);
            drives.boot(osd, device);
        }
        drives
    }

    fn boot(&mut self, osd: OsdId, device: &str) {
        self.generation += 1;
        let at = usize::try_from(osd).expect("few");
        let facts = [("hostname", self.hosts[at].clone()), ("device_ids", format!("sda={device}"))];
        let session = self.osds[at];
        self.world.boot_as(session, osd, self.generation, |mut boot| {
            boot.metadata.extend(facts.map(|(name, value)| (name.to_owned(), value)));
            boot
        });
    }

    /// OSDs that say nothing for long are down.
    fn pass(&mut self, seconds: u64) {
        for second in 0..seconds {
            for session in self.osds.clone().into_iter().filter(|_| second % 300 == 0) {
                self.world.message(session, 0, OsdBeacon::default());
            }
            self.world.pass(Duration::from_secs(1));
        }
    }

    /// Another monitor leads, and all come again.
    fn change_leader(&mut self) {
        self.world.change_leader();
        self.admin = self.world.connect(ADMIN);
        for osd in 0..self.osds.len() {
            let session = self.world.connect(&format!("osd.{osd}"));
            self.world.subscribe(session, DeviceHealthWanted::TOPIC, 0, false);
            self.osds[osd] = session;
        }
    }

    /// Which devices an OSD was asked about since the last look.
    fn asked(&mut self, osd: usize) -> Vec<String> {
        let wanted = |message| match message {
            Message::DeviceHealthWanted(wanted) => Some(wanted.device),
            _ => None,
        };
        self.world.take(self.osds[osd]).into_iter().filter_map(wanted).collect()
    }

    fn report(&mut self, osd: usize, report: DeviceHealthReport) {
        self.world.message(self.osds[osd], 0, report);
    }

    /// The operator has a device asked, and it says this.
    fn says(&mut self, osd: usize, device: &str, health: DeviceHealth) {
        // Nobody waits any more for what was asked before.
        self.pass(60);
        self.asked(osd);
        self.ask(&format!(r#"{{"prefix":"device scrape-health-metrics","devid":"{device}"}}"#));
        self.pass(1);
        assert_eq!(self.asked(osd), [device]);
        self.report(osd, said(device, health));
    }

    fn answer(&mut self, json: &str) -> (i32, String, String) {
        let ack = self.world.ask(self.admin, json).expect("an answer");
        let data = String::from_utf8(ack.data.to_bytes().to_vec()).expect("text");
        (ack.result, data, ack.status)
    }

    fn ask(&mut self, json: &str) -> String {
        let (result, data, status) = self.answer(json);
        assert_eq!(result, 0, "{json}: {status}");
        data
    }

    fn refused(&mut self, json: &str) -> (Errno, String) {
        let (result, _, status) = self.answer(json);
        assert!(result < 0, "{json} is carried out");
        (Errno(-result), status)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.ask(&format!(r#"{{"prefix":"config set","who":"mgr","name":"{name}","value":"{value}"}}"#));
    }

    /// The lines of a health check, with its summary first; nothing when it is off.
    fn check(&mut self, code: &str) -> Vec<String> {
        let Some((_, summary, lines)) = self.world.health_check(self.admin, code) else { return Vec::new() };
        [summary].into_iter().chain(lines).collect()
    }

    fn metrics(&mut self, device: &str) -> Value {
        let text = self.ask(&format!(r#"{{"prefix":"device get-health-metrics","devid":"{device}"}}"#));
        serde_json::from_str(&text).expect("JSON")
    }

    fn samples(&mut self, device: &str) -> usize {
        self.metrics(device).as_object().map_or(0, serde_json::Map::len)
    }

    fn info(&mut self, device: &str) -> String {
        self.ask(&format!(r#"{{"prefix":"device info","devid":"{device}"}}"#))
    }
}

#[test]
fn one_osd_of_each_device_is_asked_at_start_and_then_in_its_time() {
    let mut drives = Drives::new(&["ACME_1", "ACME_1", "ACME_2"]);
    drives.set("mgr/devicehealth/scrape_frequency", "7200");
    drives.pass(9);
    assert_eq!(
        [0, 1, 2].map(|osd| drives.asked(osd)),
        [vec!["ACME_1".to_owned()], vec![], vec!["ACME_2".to_owned()]]
    );
    drives.report(0, said("ACME_1", WELL));
    drives.report(2, cannot("ACME_2", "smartctl is not installed"));
    drives.pass(HOUR_S - 60);
    assert_eq!([0, 1, 2].map(|osd| drives.asked(osd)), [const { Vec::<String>::new() }; 3]);
    // One that could not be asked is asked again sooner, and the other one when it is due, whoever leads.
    drives.pass(70);
    assert_eq!((drives.asked(0), drives.asked(2)), (vec![], vec!["ACME_2".to_owned()]));
    drives.change_leader();
    drives.pass(HOUR_S - 60);
    assert_eq!(drives.asked(0), Vec::<String>::new());
    drives.pass(80);
    assert_eq!(drives.asked(0), ["ACME_1"]);
    drives.report(0, said("ACME_1", WELL));
    assert_eq!(drives.samples("ACME_1"), 2);
    // An OSD that boots may do so because of its device; not each time anew.
    drives.ask(r#"{"prefix":"osd down","ids":["0"]}"#);
    drives.boot(0, "ACME_1");
    drives.pass(60);
    assert_eq!((drives.asked(0), drives.asked(1)), (vec![], vec![]));
    drives.pass(HOUR_S);
    drives.ask(r#"{"prefix":"osd down","ids":["1"]}"#);
    drives.boot(1, "ACME_1");
    drives.pass(5);
    assert_eq!((drives.asked(0), drives.asked(1)), (vec!["ACME_1".to_owned()], vec![]));
}

#[test]
fn many_devices_are_not_asked_at_once_and_older_osds_never() {
    let names: Vec<String> = (0..30).map(|nth| format!("ACME_{nth:02}")).collect();
    let mut drives = Drives::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    // This one does not say that it can be asked.
    let older = drives.world.connect("osd.7");
    drives.osds[7] = older;
    drives.boot(7, "ACME_07");
    let mut all = 0;
    for _ in 0..30 {
        drives.pass(1);
        let asked = (0..30).map(|osd| drives.asked(osd).len()).sum::<usize>();
        assert!(asked <= ASKED_PER_TICK_MAX, "{asked}");
        all += asked;
    }
    assert_eq!(all, 29);
}

#[test]
fn what_a_device_says_is_health_until_it_says_otherwise() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2", "ACME_3"]);
    drives.pass(9);
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    drives.says(1, "ACME_2", FAILS);
    let lines = drives.check("DEVICE_HEALTH");
    assert_eq!(lines[0], "1 device(s) expected to fail soon");
    let begin = "ACME_2 (h1:sda); daemons osd.1; it says at 2023-11-14T22:";
    assert!(
        lines[1].starts_with(begin) && lines[1].ends_with("its own verdict (SMART) is that it fails"),
        "{lines:?}"
    );
    drives.pass(1);
    assert!(drives.world.mon.state().log.entries().any(|entry| entry.message.contains("DEVICE_HEALTH")));
    // Whoever leads.
    drives.change_leader();
    drives.pass(9);
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2);
    let worn = DeviceHealth { percentage_used: Some(117), ..WELL };
    drives.says(2, "ACME_3", worn);
    assert!(drives.check("DEVICE_HEALTH")[2].ends_with("117 % of its rated life is used"));
    // Nobody looks, and looks again.
    drives.ask(r#"{"prefix":"device monitoring off"}"#);
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    assert_eq!(drives.refused(r#"{"prefix":"device check-health"}"#).0, Errno::EINVAL);
    drives.ask(r#"{"prefix":"device monitoring on"}"#);
    assert_eq!(drives.check("DEVICE_HEALTH")[0], "2 device(s) expected to fail soon");
    drives.ask(r#"{"prefix":"device check-health"}"#);
    // It is well again.
    drives.says(1, "ACME_2", WELL);
    assert_eq!(drives.check("DEVICE_HEALTH")[0], "1 device(s) expected to fail soon");
    drives.says(2, "ACME_3", WELL);
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
}

#[test]
fn an_osd_that_is_out_leaves_its_device_to_the_check_on_what_still_uses_it() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2", "ACME_3"]);
    drives.pass(9);
    drives.says(0, "ACME_1", DeviceHealth { available_spare: Some(4), critical_warning: Some(1), ..WELL });
    assert!(
        drives.check("DEVICE_HEALTH")[1]
            .contains("4 % of its spare blocks are left, below its limit of 10 %")
    );
    drives.ask(r#"{"prefix":"osd out","ids":["0"]}"#);
    let report = |drives: &mut Drives, num_pgs: u32| {
        let mut stats = PgStats { fsid: drives.world.mon.fsid(), ..PgStats::default() };
        stats.osd_stat.num_pgs = num_pgs;
        drives.world.message(drives.osds[0], 0, stats);
        drives.pass(1);
    };
    report(&mut drives, 12);
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    let in_use = drives.check("DEVICE_HEALTH_IN_USE");
    assert_eq!(in_use[1], "osd.0 is marked out but still has 12 PG(s)");
    report(&mut drives, 0);
    assert_eq!(drives.check("DEVICE_HEALTH_IN_USE"), Vec::<String>::new());
    drives.ask(r#"{"prefix":"osd in","ids":["0"]}"#);
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2);
}

#[test]
fn only_an_osd_that_was_asked_about_a_device_of_its_own_is_believed() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2"]);
    drives.report(0, said("ACME_1", FAILS));
    assert_eq!(drives.samples("ACME_1"), 0, "nobody has asked");
    drives.pass(9);
    drives.report(1, said("ACME_1", FAILS));
    drives.report(0, said("ACME_3", FAILS));
    let admin = drives.admin;
    drives.world.message(admin, 0, said("ACME_1", FAILS));
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    // Since it was asked, the OSD has another device.
    drives.ask(r#"{"prefix":"osd down","ids":["1"]}"#);
    drives.boot(1, "ACME_9");
    drives.report(1, said("ACME_2", FAILS));
    assert_eq!(drives.refused(r#"{"prefix":"device get-health-metrics","devid":"ACME_2"}"#).0, Errno::ENOENT);
    drives.report(0, said("ACME_1", FAILS));
    drives.report(0, said("ACME_1", WELL));
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2, "the first answer counts");
}

#[test]
fn what_osds_report_is_bounded() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2", "ACME_3"]);
    drives.pass(9);
    let long = format!("[\"{}\"]", "x".repeat(DEVICE_JSON_BYTES_MAX));
    for (osd, device, json) in [(0, "ACME_1", long.as_str()), (1, "ACME_2", "[1,2]")] {
        drives.report(osd, DeviceHealthReport { json: Bytes::from(json.to_owned()), ..said(device, WELL) });
        let metrics = drives.metrics(device);
        let (_, sample) = metrics.as_object().and_then(|all| all.iter().next()).expect("a sample");
        assert_eq!(sample.as_object().map(|sample| sample.len()), Some(1), "{sample}");
        assert_eq!(sample["health"]["percentage_used"], 7);
    }
    drives.report(2, cannot("ACME_3", &format!("\u{1b}[2J\nno\n{}", "\u{e9}".repeat(100_000))));
    let info = drives.info("ACME_3");
    assert!(info.contains("could not be asked: [2Jno\u{e9}") && info.len() < 600, "{info}");
    assert_eq!(drives.samples("ACME_3"), 0);
}

#[test]
fn samples_are_shown_and_kept_as_long_as_the_option_says() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2"]);
    drives.set("mgr/devicehealth/retention_period", "3600");
    drives.pass(9);
    drives.report(0, said("ACME_1", WELL));
    drives.says(0, "ACME_1", DeviceHealth { percentage_used: Some(8), ..WELL });
    let page = crate::metrics::view(drives.world.mon.state(), Vec::new()).render();
    let of_it = r#"{devid="ACME_1",device="/dev/sda",instance="h0"}"#;
    for line in [format!("ceph_device_wear_percent{of_it} 8"), format!("ceph_device_smart_passed{of_it} 1")] {
        assert!(page.lines().any(|shown| shown == line), "{line}");
    }
    assert!(
        !page.contains("devid=\"ACME_2\"") && !page.contains("ceph_device_pending_sectors{"),
        "it has not said so"
    );
    let metrics = drives.metrics("ACME_1");
    let samples: Vec<(&String, &Value)> = metrics.as_object().expect("samples").iter().collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(
        (&samples[0].1["health"]["percentage_used"], &samples[0].1["model_name"]),
        (&7.into(), &Value::Null)
    );
    assert_eq!(samples[1].1["model_name"], "ACME ACME_1", "of the newest there is all");
    assert!(samples[0].0.starts_with("20231114-22") && samples[0].0.len() == 15, "{}", samples[0].0);
    let one =
        format!(r#"{{"prefix":"device get-health-metrics","devid":"ACME_1","sample":"{}"}}"#, samples[1].0);
    let one: Value = serde_json::from_str(&drives.ask(&one)).expect("JSON");
    assert_eq!(one.as_object().map(|one| one.len()), Some(1));
    let ls = drives.ask(r#"{"prefix":"device ls"}"#);
    let rows: Vec<Vec<&str>> = ls.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1..], [vec!["ACME_1", "h0:sda", "osd.0", "8%"], vec!["ACME_2", "h1:sda", "osd.1"]]);
    let info: Value =
        serde_json::from_str(&drives.ask(r#"{"prefix":"device info","devid":"ACME_1","format":"json"}"#))
            .expect("JSON");
    assert_eq!(info["wear_level"], 0.08);
    assert!(drives.info("ACME_1").contains("health nothing wrong (as of 2023-11-14T22:"));
    drives.pass(HOUR_S);
    drives.says(0, "ACME_1", WELL);
    assert_eq!(drives.samples("ACME_1"), 1, "the others are older than an hour");
    // Of a device that nobody uses any more, all of them.
    drives.ask(r#"{"prefix":"osd down","ids":["0"]}"#);
    drives.boot(0, "ACME_9");
    drives.pass(HOUR_S / 2);
    assert_eq!(drives.samples("ACME_1"), 1);
    drives.pass(HOUR_S * 2);
    assert_eq!(drives.refused(r#"{"prefix":"device get-health-metrics","devid":"ACME_1"}"#).0, Errno::ENOENT);
}

#[test]
fn somebody_may_say_when_a_device_will_fail() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2"]);
    let life = |from: &str, to: &str| {
        format!(r#"{{"prefix":"device set-life-expectancy","devid":"ACME_1","from":"{from}","to":"{to}"}}"#)
    };
    // Today is 2023-11-14; the warning comes twelve weeks before.
    drives.ask(&life("2024-02-01", "2024-02-07T23:00:00Z"));
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    let ls = drives.ask(r#"{"prefix":"device ls"}"#);
    assert!(ls.lines().nth(1).is_some_and(|line| line.trim_end().ends_with("11w to 2M")), "{ls}");
    drives.set("mgr/devicehealth/warn_threshold", "8640000");
    let expected = "ACME_1 (h0:sda); daemons osd.0; life expectancy between 2024-02-01T00:00:00.000000+0000 and \
                    2024-02-07T23:00:00.000000+0000";
    assert_eq!(drives.check("DEVICE_HEALTH"), ["1 device(s) expected to fail soon", expected]);
    let info: Value =
        serde_json::from_str(&drives.ask(r#"{"prefix":"device info","devid":"ACME_1","format":"json"}"#))
            .expect("JSON");
    assert_eq!(info["life_expectancy_max"], "2024-02-07T23:00:00.000000+0000");
    // It is where Ceph's manager has it.
    let kept = drives.ask(r#"{"prefix":"config-key get","key":"device/ACME_1"}"#);
    assert!(kept.contains(r#""life_expectancy_min":"2024-02-01T00:00:00.000000+0000""#), "{kept}");
    drives.change_leader();
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2);
    drives.ask(r#"{"prefix":"device rm-life-expectancy","devid":"ACME_1"}"#);
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    // Without an end there is nothing to warn of.
    drives.ask(&life("2023-11-15", ""));
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    for (from, to) in [("soon", ""), ("2024-01-01", "then"), ("2024-01-02", "2024-01-01")] {
        assert_eq!(drives.refused(&life(from, to)).0, Errno::EINVAL, "{from} {to}");
    }
    let unknown = life("2024-01-01", "").replace("ACME_1", "ACME_7");
    assert_eq!(drives.refused(&unknown).0, Errno::ENOENT);
    assert_eq!(drives.refused(r#"{"prefix":"device rm-life-expectancy","devid":"ACME_7"}"#).0, Errno::ENOENT);
}

#[test]
fn operators_have_devices_asked_and_hear_what_is_not_built() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2", "ACME_2"]);
    drives.set("mgr/devicehealth/enable_monitoring", "false");
    drives.pass(60);
    assert_eq!([0, 1, 2].map(|osd| drives.asked(osd)), [const { Vec::<String>::new() }; 3]);
    // An order holds although nobody asks by himself.
    let (_, _, text) = drives.answer(r#"{"prefix":"device scrape-health-metrics"}"#);
    assert!(text.starts_with("2 devices are asked"), "{text}");
    drives.pass(1);
    assert_eq!(
        [0, 1, 2].map(|osd| drives.asked(osd)),
        [vec!["ACME_1".to_owned()], vec!["ACME_2".to_owned()], vec![]]
    );
    drives.report(0, said("ACME_1", WELL));
    drives.report(1, said("ACME_2", WELL));
    let (_, _, text) = drives.answer(r#"{"prefix":"device scrape-daemon-health-metrics","who":"osd.2"}"#);
    assert!(text.starts_with("device ACME_2 is asked"), "{text}");
    drives.pass(5);
    assert_eq!(drives.asked(1), Vec::<String>::new(), "no device is asked oftener than every ten seconds");
    drives.pass(5);
    assert_eq!(drives.asked(1), ["ACME_2"]);
    // What does not answer is said.
    drives.pass(60);
    assert!(drives.info("ACME_2").contains("could not be asked: osd.1 has not answered within 35 s"));
    drives.ask(r#"{"prefix":"device scrape-health-metrics","devid":"ACME_1"}"#);
    drives.ask(r#"{"prefix":"osd down","ids":["0"]}"#);
    drives.pass(620);
    assert!(drives.info("ACME_1").contains("could not be asked: no OSD that could ask it was up"));
    for (command, errno, why) in [
        (r#""device scrape-health-metrics","devid":"ACME_7""#, Errno::ENOENT, "device ls"),
        (r#""device scrape-health-metrics","devid":"ACME_1""#, Errno::EAGAIN, "(osd.0) is up"),
        (r#""device scrape-daemon-health-metrics","who":"osd.0""#, Errno::EAGAIN, "(osd.0) is up"),
        (r#""device scrape-daemon-health-metrics","who":"mon.a""#, Errno::EINVAL, "no OSD"),
        (r#""device scrape-daemon-health-metrics","who":"osd.9""#, Errno::ENOENT, "osd.9"),
        (r#""device query-daemon-health-metrics","who":"osd.0""#, Errno::EOPNOTSUPP, "ceph tell osd.0 smart"),
        (r#""device predict-life-expectancy","devid":"ACME_1""#, Errno::EOPNOTSUPP, "no model"),
    ] {
        let (refused, text) = drives.refused(&format!(r#"{{"prefix":{command}}}"#));
        assert!(refused == errno && text.contains(why), "{command}: {text}");
    }
    for option in ["self_heal", "mark_out_threshold", "pool_name", "sleep_interval"] {
        let set = format!(
            r#"{{"prefix":"config set","who":"mgr","name":"mgr/devicehealth/{option}","value":"1"}}"#
        );
        let (errno, text) = drives.refused(&set);
        assert!(errno == Errno::EOPNOTSUPP && text.contains("has no effect"), "{text}");
    }
}

#[test]
fn a_device_that_fails_is_asked_each_hour_until_it_is_well() {
    let mut drives = Drives::new(&["ACME_1"]);
    drives.pass(9);
    assert_eq!(drives.asked(0), ["ACME_1"]);
    drives.report(0, said("ACME_1", FAILS));
    drives.pass(HOUR_S - 60);
    assert_eq!(drives.asked(0), Vec::<String>::new());
    drives.pass(70);
    assert_eq!(drives.asked(0), ["ACME_1"]);
    // An NVMe device that is too warm says that it fails, and need not be replaced.
    let warm = DeviceHealth { smart_passed: Some(false), critical_warning: Some(0b10), ..WELL };
    drives.report(0, said("ACME_1", warm));
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    drives.pass(HOUR_S + 60);
    assert_eq!(drives.asked(0), Vec::<String>::new(), "once a day as others");
}

#[test]
fn a_device_that_several_hosts_name_is_neither_asked_nor_judged() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2"]);
    drives.pass(9);
    drives.report(0, said("ACME_1", FAILS));
    drives.report(1, said("ACME_2", WELL));
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2);
    drives.ask(r#"{"prefix":"osd down","ids":["1"]}"#);
    drives.boot(1, "ACME_1");
    (0..2).for_each(|osd| drop(drives.asked(osd)));
    drives.pass(HOUR_S * 2);
    assert_eq!([0, 1].map(|osd| drives.asked(osd)), [const { Vec::<String>::new() }; 2]);
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    let info = drives.info("ACME_1");
    assert!(info.contains("health unknown: OSDs of several hosts (h0, h1) name a device"), "{info}");
    assert!(!info.contains("wear"), "{info}");
    let page = crate::metrics::view(drives.world.mon.state(), Vec::new()).render();
    assert!(!page.contains(r#"devid="ACME_1""#));
    let (errno, text) = drives.refused(r#"{"prefix":"device scrape-health-metrics"}"#);
    assert!(errno == Errno::EINVAL && text.contains("several hosts (h0, h1)"), "{text}");
    // What a person says of it holds.
    drives.ask(
        r#"{"prefix":"device set-life-expectancy","devid":"ACME_1","from":"2023-11-15","to":"2023-11-16"}"#,
    );
    let lines = drives.check("DEVICE_HEALTH");
    assert!(lines[1].contains("osd.0,osd.1; life expectancy"), "{lines:?}");
    drives.ask(r#"{"prefix":"device rm-life-expectancy","devid":"ACME_1"}"#);
    // Only one of the two has it again.
    drives.ask(r#"{"prefix":"osd down","ids":["1"]}"#);
    drives.boot(1, "ACME_2");
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2);
    drives.pass(2);
    assert_eq!(drives.asked(0), ["ACME_1"]);
}

#[test]
fn after_an_error_the_next_osd_is_asked_and_a_late_answer_counts() {
    let mut drives = Drives::new(&["ACME_1", "ACME_1"]);
    drives.pass(9);
    assert_eq!([0, 1].map(|osd| drives.asked(osd)), [vec!["ACME_1".to_owned()], vec![]]);
    drives.report(0, cannot("ACME_1", "smartctl is not installed"));
    drives.pass(HOUR_S + 10);
    assert_eq!([0, 1].map(|osd| drives.asked(osd)), [vec![], vec!["ACME_1".to_owned()]]);
    // That one's `osd_smart_report_timeout` may be longer than the others'.
    drives.pass(60);
    assert!(drives.info("ACME_1").contains("osd.1 has not answered within 35 s"));
    drives.report(0, said("ACME_1", FAILS));
    assert_eq!(drives.samples("ACME_1"), 0, "it was not the one that was asked last");
    drives.report(1, said("ACME_1", WELL));
    assert_eq!(drives.samples("ACME_1"), 1);
    assert!(!drives.info("ACME_1").contains("could not be asked"));
    drives.report(1, said("ACME_1", FAILS));
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new(), "the first answer counts");
}

#[test]
fn more_devices_than_can_be_asked_take_turns() {
    let names: Vec<String> = (0..90).map(|nth| format!("ACME_{nth:02}")).collect();
    let mut drives = Drives::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    drives.set("mgr/devicehealth/scrape_frequency", "10");
    let mut asked = [0_u32; 90];
    for _ in 0..24 {
        drives.pass(1);
        for (osd, name) in names.iter().enumerate() {
            if !drives.asked(osd).is_empty() {
                asked[osd] += 1;
                drives.report(osd, said(name, WELL));
            }
        }
    }
    assert!(asked.iter().all(|times| (1..=3).contains(times)), "{asked:?}");
}

#[test]
fn devices_that_nobody_uses_make_room_for_those_in_use() {
    let mut drives = Drives::new(&["ACME_1"]);
    drives.pass(9);
    for nth in 0..DEVICES_COUNT_MAX {
        let sample = Sample { at: UTime { sec: 1_700_000_000, nsec: 0 }, health: FAILS };
        let samples = &mut drives.world.mon.state.device_samples;
        samples.note(&format!("old_{nth}"), sample, Bytes::new(), Duration::MAX);
    }
    drives.report(0, said("ACME_1", WELL));
    assert_eq!(drives.samples("ACME_1"), 1);
    assert_eq!(drives.world.mon.state().device_samples.iter().count(), DEVICES_COUNT_MAX);
    // Where OSDs name none there is none to ask.
    let mut drives = Drives::new(&[""]);
    assert_eq!(drives.refused(r#"{"prefix":"device scrape-health-metrics"}"#).0, Errno::ENOENT);
}

#[test]
fn while_a_stock_manager_is_active_devices_are_its_business() {
    let mut drives = Drives::new(&["ACME_1", "ACME_2"]);
    drives.pass(9);
    drives.report(0, said("ACME_1", FAILS));
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2);
    (0..2).for_each(|osd| drop(drives.asked(osd)));
    let (session, _) = drives.world.connect_stock("mgr", "x");
    let gid = drives.world.mon.sessions[&session].identity.global_id;
    let fsid = drives.world.mon.fsid();
    let mut beacon = MgrBeacon { gid, fsid, name: "x".to_owned(), ..MgrBeacon::default() };
    drives.world.message(session, 0, beacon.clone());
    beacon.available = true;
    drives.ask(r#"{"prefix":"osd down","ids":["1"]}"#);
    drives.boot(1, "ACME_3");
    for _ in 0..60 {
        drives.pass(1);
        drives.world.message(session, 0, beacon.clone());
    }
    assert_eq!([0, 1].map(|osd| drives.asked(osd)), [const { Vec::<String>::new() }; 2]);
    assert_eq!(drives.check("DEVICE_HEALTH"), Vec::<String>::new());
    drives.world.front_event(FrontEvent::Closed { session });
    drives.pass(60);
    assert_eq!(drives.asked(1), ["ACME_3"]);
    assert_eq!(drives.check("DEVICE_HEALTH").len(), 2);
}
