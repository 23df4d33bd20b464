//! Which caps allow what, cell by cell beside a real monitor and manager: `testdata/caps/table.json` is what `test/caps/record` wrote of a
//! cluster of Ceph v16.2.15. No cell may be laxer. Those that are stricter are listed here with the reason.

use super::{World, name};
use crate::event::SessionId;
use nacre_auth::CryptoKey;
use nacre_types::{Errno, UTime};
use serde_json::Value;

/// Commands that ours refuses with other words than "access denied" whatever the caps, so that a cell says nothing.
fn says_nothing(result: i32, text: &str) -> bool {
    result == Errno::EINVAL.negated() && text.starts_with("command not known")
}

/// Why a cell may be stricter than at Ceph's; none if it may not.
fn reason(op: &Value) -> Option<&'static str> {
    match op["prefix"].as_str() {
        Some("osd in") => {
            Some("Ceph's monitor lets who may only read mark OSDs in; `osd out` needs `rw` there, too")
        }
        _ => None,
    }
}

/// A table of one daemon: caps and a letter for each operation.
struct Table {
    rows: Vec<(String, Vec<u8>)>,
    ops: Vec<Value>,
}

fn table(rows: &str, ops: &str) -> Table {
    let path = format!("{}/../../../testdata/caps/table.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let row = |row: &Value| {
        let text = |at: usize| row[at].as_str().expect("text").to_owned();
        (text(0), text(1).into_bytes())
    };
    let rows = all[rows].as_array().expect("rows").iter().map(row).collect();
    Table { rows, ops: all[ops].as_array().expect("operations").clone() }
}

/// Plays a table; `connect` opens a session with the caps, `ask` gives result and text of a command.
fn play(
    table: &Table,
    mut connect: impl FnMut(usize, &str) -> Option<SessionId>,
    mut ask: impl FnMut(SessionId, &str) -> (i32, String),
) -> usize {
    let (mut laxer, mut stricter, mut compared) = (Vec::new(), Vec::new(), 0);
    for (number, (caps, cells)) in table.rows.iter().enumerate() {
        assert_eq!(cells.len(), table.ops.len(), "{caps}");
        let session = connect(number, caps);
        for (op, cell) in table.ops.iter().zip(cells) {
            let (result, text) = session
                .map_or((Errno::EACCES.negated(), String::new()), |session| ask(session, &op.to_string()));
            if says_nothing(result, &text) {
                continue;
            }
            compared += 1;
            match (*cell, result == Errno::EACCES.negated()) {
                (b'd', false) => laxer.push(format!("{caps}: {op}: {result} {text}")),
                (b'a', true) if reason(op).is_none() => stricter.push(format!("{caps}: {op}: {text}")),
                _ => (),
            }
        }
    }
    assert!(laxer.is_empty(), "{} cells are laxer than Ceph's: {laxer:#?}", laxer.len());
    assert!(stricter.is_empty(), "{} cells are stricter without a reason: {stricter:#?}", stricter.len());
    compared
}

fn world_with(at_mon: bool, table: &Table) -> World {
    let mut world = World::new(1);
    for (number, (caps, _)) in table.rows.iter().enumerate() {
        let pairs = if at_mon {
            vec![("mon", caps.as_str())]
        } else {
            vec![("mon", "allow r"), ("mgr", caps.as_str())]
        };
        let caps = pairs.into_iter().filter(|(_, text)| !text.is_empty());
        let caps = caps.map(|(service, text)| (service.to_owned(), text.to_owned())).collect();
        let key = CryptoKey::from_parts([7; 16], UTime::ZERO);
        let who = name(&format!("client.capstable-{number}"));
        let auth = nacre_auth::EntityAuth { key: key.clone(), caps };
        world.mon.state.auth.apply(nacre_auth::AuthChange::Put(who.clone(), auth));
        world.keys.insert(who, key);
    }
    world.settle();
    world
}

/// Budgets are another matter: enough time passes before each command.
fn rest(world: &mut World) {
    world.now = world.now + std::time::Duration::from_secs(1);
}

#[test]
fn nobody_may_more_at_the_monitor_than_at_cephs() {
    let table = table("mon", "at_mon");
    let world = std::cell::RefCell::new(world_with(true, &table));
    let compared = play(
        &table,
        |number, _| world.borrow_mut().connect_seen(&format!("client.capstable-{number}"), "127.0.0.1"),
        |session, json| {
            let mut world = world.borrow_mut();
            rest(&mut world);
            let ack = world.ask(session, json).unwrap_or_else(|| panic!("no answer to {json}"));
            (ack.result, ack.status)
        },
    );
    assert!(compared > 6000, "{compared} cells");
}

#[test]
fn nobody_may_more_at_the_manager_than_at_cephs() {
    let table = table("mgr", "at_mgr");
    let world = std::cell::RefCell::new(world_with(false, &table));
    let compared = play(
        &table,
        |number, _| Some(world.borrow_mut().connect_mgr(&format!("client.capstable-{number}"))),
        |session, json| {
            let mut world = world.borrow_mut();
            rest(&mut world);
            (world.ask_mgr(session, json), String::new())
        },
    );
    assert!(compared > 900, "{compared} cells");
}
