//! What is drawn and printed of facts, and what keys do.

use crate::facts::Facts;
use crate::plain;
use crate::screen::{After, App};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

fn osd(id: u64, up: bool, write_us_p99: u64) -> Value {
    let writes = json!({ "count": 200, "us_p50": 300, "us_p99": write_us_p99, "counts": [0, 0, 0, 0, 0, 0, 0, 0, 50, 150] });
    json!({
        "id": id, "host": format!("host{id}"), "class": "ssd", "devices": "sda", "up": up, "in": true, "total_bytes": 100_u64 << 30, "used_bytes": 85_u64 << 30,
        "pgs": 8, "primaries": 3, "commit_us": 900, "slow": "", "device": { "read": { "count": 0, "counts": [] }, "durable_write": writes, "flush": { "count": 0 } },
    })
}

fn tree() -> Value {
    json!({
        "fsid": "f1", "at": 1000, "version": "v",
        "health": { "status": "HEALTH_WARN", "checks": [
            { "code": "OSD_DOWN", "severity": "HEALTH_WARN", "muted": false, "summary": "1 osds down", "means": "An OSD does not run.", "advice": "See its log.",
              "detail": ["osd.1 is down"], "details_left_out": 0 },
        ] },
        "monitors": [{ "name": "a", "in_quorum": true, "leads": true }, { "name": "b", "in_quorum": false, "leads": false }],
        "usage": { "total_bytes": 200_u64 << 30, "used_bytes": 170_u64 << 30, "objects": 4000, "data_bytes": 1 << 30 },
        "pgs": { "count": 8, "states": { "active+undersized+degraded": 8 } },
        "io": { "read_ops": 10, "write_ops": 20, "read_bytes": 40960, "write_bytes": 81920, "recovered_bytes": 1 << 20 },
        "recovery": { "copies_left": 1200, "share_done": 0.25, "lasts_s": 30, "remaining_s": 90 },
        "osds": [osd(0, true, 700), osd(1, false, 9000)],
        "pools": [{ "name": "p", "size": 2, "pgs": 8, "objects": 4000, "stored_bytes": 1 << 30, "used_bytes": 2_u64 << 30, "available_bytes": 5_u64 << 30,
            "io": { "read_ops": 10, "write_ops": 20, "read_bytes": 40960, "write_bytes": 81920 } }],
        "images": [{ "pool": "p", "namespace": "", "name": "disk\u{1b}[2J", "read_ops": 100, "write_ops": 50, "read_bytes": 0, "write_bytes": 204_800, "read_us": 0, "write_us": 50_000 }],
        "clients": { "seconds": 20, "total_cpu_us": 4_000_000, "classes_cpu_us": {}, "lines": [
            { "client": "client.41", "entity": "client.nova", "host": "10.0.0.7", "pool": "p", "namespace": "", "image": "disk", "cpu_us": 1_000_000, "ops": 20_000, "bytes": 81_920_000 },
            { "client": "client.42", "entity": "client.\u{1b}c", "host": "10.0.0.8", "pool": "p", "namespace": "", "image": "", "cpu_us": 2_000_000, "ops": 0, "bytes": 0 }] },
        "slow_requests": [{ "osd": 0, "age_ms": 31_000, "waits_for": "waiting for the disks of osd.[1]", "description": "osd_op(client.4:1 1.0 o [write])",
            "stages": [{ "stage": "dispatched", "at_ms": 1 }] }],
    })
}

fn drawn(app: &mut App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(140, 30)).expect("a terminal");
    terminal.draw(|frame| app.draw(frame)).expect("drawn");
    let buffer = terminal.backend().buffer().clone();
    let width = usize::from(buffer.area.width);
    buffer
        .content
        .chunks(width)
        .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
        .collect()
}

fn press(app: &mut App, code: KeyCode) -> After {
    app.event(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

#[test]
fn the_overview_says_what_is_wrong_and_when_it_ends() {
    let mut app = App::new(Facts::new(tree()));
    let shown = drawn(&mut app);
    for said in [
        "HEALTH_WARN  cluster f1",
        "mons     a (leads), b (out of quorum)",
        "osds     2, 1 up, 2 in",
        "pgs      8: 8 active+undersized+degraded",
        "write    80 KiB/s, 20 op/s",
        "recovery 25 % done, ends in 90s; 1.20k copies left, 1 MiB/s",
        "OSD_DOWN: 1 osds down",
        "  An OSD does not run.",
        "1 requests are slow",
        "writes/s of the last looks, at most 20",
    ] {
        assert!(shown.contains(said), "{said}:\n{shown}");
    }
    app.take_in(Err("no monitor answers".to_owned()));
    let shown = drawn(&mut app);
    assert!(shown.contains("NOT UP TO DATE: no monitor answers") && shown.contains("OSD_DOWN"), "{shown}");
    app.take_in(Ok(tree()));
    assert!(!drawn(&mut app).contains("NOT UP TO DATE"));
}

#[test]
fn keys_choose_tabs_and_orders() {
    let mut app = App::new(Facts::new(tree()));
    let before = |shown: &str, a: &str, b: &str| shown.find(a).expect(a) < shown.find(b).expect(b);
    assert_eq!(press(&mut app, KeyCode::Char('2')), After::Draw);
    let shown = drawn(&mut app);
    assert!(shown.contains("write p99 v") && before(&shown, "osd.1", "osd.0"), "the slowest first:\n{shown}");
    assert!(shown.contains("down") && shown.contains("85.0 %") && shown.contains("9.0 ms"), "{shown}");
    assert_eq!(press(&mut app, KeyCode::Char('r')), After::Draw);
    let shown = drawn(&mut app);
    assert!(shown.contains("write p99 ^") && before(&shown, "osd.0", "osd.1"), "{shown}");
    press(&mut app, KeyCode::Char('s'));
    assert!(drawn(&mut app).contains("flush p99 ^"));
    press(&mut app, KeyCode::Char('s'));
    assert!(drawn(&mut app).contains("osd ^"), "round and round");
    press(&mut app, KeyCode::Tab);
    let shown = drawn(&mut app);
    assert!(
        shown.contains("<256us") && shown.contains("<512us") && shown.contains("25") && shown.contains("75"),
        "{shown}"
    );
    press(&mut app, KeyCode::Char('7'));
    let shown = drawn(&mut app);
    assert!(
        shown.contains("31.0 s")
            && shown.contains("waiting for the disks of osd.[1]")
            && shown.contains("dispatched 1.0 ms"),
        "{shown}"
    );
    press(&mut app, KeyCode::Tab);
    assert!(drawn(&mut app).contains("mons     a"), "the first again");
    press(&mut app, KeyCode::PageDown);
    drawn(&mut app);
    assert_eq!(press(&mut app, KeyCode::Char('x')), After::Nothing);
    assert_eq!(press(&mut app, KeyCode::Char('q')), After::End);
    let ctrl_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(app.event(&ctrl_c), After::End);
}

#[test]
fn clients_are_told_with_the_costliest_first() {
    let mut app = App::new(Facts::new(tree()));
    assert_eq!(press(&mut app, KeyCode::Char('6')), After::Draw);
    let shown = drawn(&mut app);
    let (first, second) = (shown.find("10.0.0.8").expect("one"), shown.find("10.0.0.7").expect("another"));
    assert!(first < second && shown.contains("processor v") && !shown.contains('\u{1b}'), "{shown}");
    for said in ["client.nova", "p/disk", "50.0 ms/s", "25.0 %", "1k", "3.9 MiB/s", "50 us"] {
        assert!(shown.contains(said), "{said}:\n{shown}");
    }
}

#[test]
fn images_are_told_by_two_looks_and_their_names_are_safe() {
    let mut app = App::new(Facts::new(tree()));
    press(&mut app, KeyCode::Char('5'));
    let shown = drawn(&mut app);
    assert!(shown.contains("p/disk") && !shown.contains('\u{1b}'), "{shown}");
    let mut later = tree();
    later["at"] = json!(1002);
    later["images"][0]["write_ops"] = json!(250);
    later["images"][0]["write_us"] = json!(250_000);
    app.take_in(Ok(later));
    let shown = drawn(&mut app);
    let row = shown.lines().find(|line| line.contains("p/disk")).unwrap_or_default();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(
        row.contains("350") && words.contains(&"100") && row.contains("1.0 ms"),
        "100 writes a second of 1 ms: {row}"
    );
}

#[test]
fn what_is_not_known_is_not_said_to_be_nothing() {
    let mut cold = tree();
    for name in ["io", "recovery", "images", "clients"] {
        cold[name] = Value::Null;
    }
    cold["pools"][0]["io"] = Value::Null;
    (0..2_usize).for_each(|osd| cold["osds"][osd]["device"] = Value::Null);
    let text = plain::text(&Facts::new(cold.clone()));
    for said in [
        "read     not known yet",
        "recovery not known yet\n",
        "known of images",
        "known of clients",
        "known of devices",
    ] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
    cold["recovery_known"] = true.into();
    assert!(plain::text(&Facts::new(cold.clone())).contains("recovery nothing to do"));
    cold["pgs"]["degraded"] = json!(3);
    assert!(plain::text(&Facts::new(cold.clone())).contains("recovery not known yet: 3 copies"));
    cold["pgs"] = json!({ "count": 8, "unknown": 1, "states": { "unknown": 1 } });
    assert!(plain::text(&Facts::new(cold)).contains("recovery not known yet\n"));
}

#[test]
fn an_image_that_was_not_told_of_before_has_no_rate() {
    let mut later = tree();
    later["at"] = json!(1002);
    later["images"][0]["name"] = json!("other");
    let facts = Facts::new(tree()).next(later);
    assert_eq!(facts.image_rate(&facts["images"][0], "write_ops"), None);
}

#[test]
fn without_a_terminal_all_of_it_is_text() {
    let text = plain::text(&Facts::new(tree()));
    for said in [
        "HEALTH_WARN\nOSD_DOWN: 1 osds down\n",
        "    osd.1 is down\n",
        "\nPools\n  pool  copies",
        "osd.1  host1  ssd    down",
        "waiting for the disks",
    ] {
        assert!(text.contains(said), "{said}:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no orders to the terminal");
    // Facts of another form, as of a newer monitor, are shown as far as they go.
    assert!(plain::text(&Facts::new(json!({}))).contains("There are no OSDs."));
}
