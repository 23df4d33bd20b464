//! Reports of crashes, as `ceph-crash` and daemons post them. Ceph's manager module `crash` keeps them under
//! `mgr/crash/crash/<id>` among the config keys; so do we.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::table::{Command, command};
use crate::command::Output;
use crate::config_key::{CRASH_REPORTS, VALUE_BYTES_MAX};
use crate::crashes::{Crash, REPORTS_MAX};
use nacre_buf::Bytes;
use nacre_format::{Format, Node, Section};
use nacre_types::{Errno, UTime};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const COMMANDS: &[Command] = &[
    command("crash ls", "mgr", "r", "Crashes that were reported", |call| list(call, |_| true)),
    command("crash ls-new", "mgr", "r", "Crashes that were reported and not archived", |call| {
        list(call, |crash| !crash.is_archived)
    }),
    command("crash stat", "mgr", "r", "How many crashes were reported", stat),
    command("crash info name=id,type=CephString", "mgr", "r", "The report of a crash", info),
    command("crash post", "mgr", "rw", "Report a crash, as JSON from the input", post),
    command("crash rm name=id,type=CephString", "mgr", "rw", "Forget a crash", rm),
    command(
        "crash prune name=keep,type=CephString",
        "mgr",
        "rw",
        "Forget crashes of more than KEEP days ago",
        prune,
    ),
    command(
        "crash archive name=id,type=CephString",
        "mgr",
        "w",
        "Say that a crash was seen: health speaks of it no more",
        archive,
    ),
    command("crash archive-all", "mgr", "w", "Say so of all crashes", archive_all),
    command(
        "crash json_report name=hours,type=CephString",
        "mgr",
        "r",
        "How many crashes of the last HOURS each program had",
        json_report,
    ),
];

const DAY: Duration = Duration::from_secs(86_400);
/// Ages by which `crash stat` sorts, in days.
const AGES_DAYS: [u32; 3] = [1, 3, 7];

fn key(id: &str) -> String {
    format!("{CRASH_REPORTS}{id}")
}

/// All crashes, as the store has them now.
fn known<'a>(call: &'a mut Call<'_>) -> impl Iterator<Item = (&'a str, &'a Crash)> {
    call.state.crashes.refresh(&call.state.config_keys);
    call.state.crashes.iter()
}

/// The moment that lies so far back.
fn back(wall: UTime, by: Duration) -> UTime {
    UTime::from_unix(wall.to_unix().saturating_sub(by))
}

/// A whole number, which the command's signature, which is Ceph's, takes as text.
fn whole(call: &Call<'_>, name: &str) -> Result<u32, Failure> {
    let text = call.args.text(name);
    text.parse().map_err(|_| refuse(Errno::EINVAL, format!("{name} argument must be integer, not '{text}'")))
}

fn post(call: &mut Call<'_>) -> Answer {
    let wrong = |why: &str| refuse(Errno::EINVAL, format!("malformed crash metadata: {why}"));
    if call.data.len() > VALUE_BYTES_MAX {
        return Err(wrong(&format!("a report has at most {VALUE_BYTES_MAX} bytes")));
    }
    let report: Value = serde_json::from_slice(call.data).map_err(|error| wrong(&error.to_string()))?;
    let text = |name: &str| {
        report.get(name).and_then(Value::as_str).ok_or_else(|| wrong(&format!("missing '{name}' field")))
    };
    let id = text("crash_id")?;
    let timestamp = text("timestamp")?;
    if UTime::parse(timestamp).is_none() {
        return Err(wrong(&format!(
            "the timestamp '{timestamp}' is none such as 2026-01-31T23:59:59.000000Z"
        )));
    }
    let (key, keys) = (key(id), &mut call.state.config_keys);
    if keys.value(&key).is_some() {
        return done(""); // posted again by someone who did not hear the answer; it may be archived by now
    }
    if keys.iter_prefix(CRASH_REPORTS).count() >= REPORTS_MAX {
        return fail(Errno::ENOSPC, format!("{REPORTS_MAX} crashes are recorded already; remove some first"));
    }
    if !keys.has_room(&key, call.data.len()) {
        return fail(Errno::ENOSPC, "the store of config keys is full, or the crash's id too long");
    }
    keys.set(&key, call.data.clone());
    done("")
}

fn rm(call: &mut Call<'_>) -> Answer {
    let key = key(call.args.text("id"));
    call.state.config_keys.remove(&key);
    done("")
}

fn prune(call: &mut Call<'_>) -> Answer {
    let keep = whole(call, "keep")?;
    let since = back(call.wall, DAY * keep);
    call.state.crashes.refresh(&call.state.config_keys);
    let old: Vec<String> = call.state.crashes.until(since).map(|(id, _)| key(id)).collect();
    for key in old {
        call.state.config_keys.remove(&key);
    }
    done("")
}

/// Writes into a report when it was archived.
fn mark_archived(call: &mut Call<'_>, id: &str) -> Result<(), Failure> {
    let key = key(id);
    let report = call.state.config_keys.value(&key);
    let report = report.and_then(|report| serde_json::from_slice::<Value>(report).ok());
    let Some(Value::Object(mut report)) = report else {
        return fail(Errno::EINVAL, format!("crash info: {id} not found"));
    };
    if report.contains_key("archived") {
        return Ok(());
    }
    report.insert("archived".to_owned(), Value::from(call.wall.to_string()));
    let report = Bytes::from(Value::Object(report).to_string());
    if !call.state.config_keys.has_room(&key, report.len()) {
        return fail(
            Errno::ENOSPC,
            format!("the report of {id} cannot grow: the store is full; remove reports first"),
        );
    }
    call.state.config_keys.set(&key, report);
    Ok(())
}

fn archive(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("id").to_owned();
    mark_archived(call, &id)?;
    done("")
}

fn archive_all(call: &mut Call<'_>) -> Answer {
    let new = known(call).filter(|(_, crash)| !crash.is_archived);
    let new: Vec<String> = new.map(|(id, _)| id.to_owned()).collect();
    new.iter().try_for_each(|id| mark_archived(call, id))?;
    done("")
}

fn info(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("id");
    match call.state.config_keys.value(&key(id)) {
        Some(report) => Ok(Output::data(report.clone())),
        None => fail(Errno::EINVAL, format!("crash info: {id} not found")),
    }
}

/// Of each age those that are older, as Ceph lists them.
fn stat(call: &mut Call<'_>) -> Answer {
    let wall = call.wall;
    let ages: Vec<(String, UTime)> = known(call).map(|(id, crash)| (id.to_owned(), crash.at)).collect();
    let mut text = format!("{} crashes recorded\n", ages.len());
    for days in AGES_DAYS {
        let limit = back(wall, DAY * days);
        let older: Vec<&str> =
            ages.iter().filter(|(_, at)| *at <= limit).map(|(id, _)| id.as_str()).collect();
        if !older.is_empty() {
            text += &format!("{} older than {days} days old:\n{}\n", older.len(), older.join("\n"));
        }
    }
    Ok(Output::data(text))
}

/// Crashes as a table, or, as JSON, their whole reports.
fn list(call: &mut Call<'_>, is_wanted: fn(&Crash) -> bool) -> Answer {
    let wanted = known(call).filter(|(_, crash)| is_wanted(crash));
    let wanted: Vec<(String, Crash)> = wanted.map(|(id, crash)| (id.to_owned(), crash.clone())).collect();
    if matches!(call.format, Format::Json | Format::JsonPretty) {
        let report = |(id, _): &(String, Crash)| {
            serde_json::from_slice::<Value>(call.state.config_keys.value(&key(id))?).ok()
        };
        let reports = Value::from(wanted.iter().filter_map(report).collect::<Vec<Value>>());
        let is_pretty = call.format == Format::JsonPretty;
        return Ok(Output::data(if is_pretty { format!("{reports:#}") } else { reports.to_string() }));
    }
    let mut plain = String::new();
    if !wanted.is_empty() {
        plain = format!("{:<69}{:<14}NEW\n", "ID", "ENTITY");
        for (id, crash) in &wanted {
            let new = if crash.is_archived { "" } else { "*" };
            plain += format!("{id:<69}{:<14} {new}", crash.entity).trim_end();
            plain.push('\n');
        }
    }
    let section = |(id, crash): &(String, Crash)| {
        Section::new()
            .with("crash_id", id.as_str())
            .with("timestamp", crash.timestamp.as_str())
            .with("entity_name", crash.entity.as_str())
            .with("process_name", crash.process.as_str())
    };
    call.either("crashes", plain, Node::array("crash", wanted.iter().map(section)))
}

/// Ceph counts all crashes here, however old; the hours are taken at their word.
fn json_report(call: &mut Call<'_>) -> Answer {
    let hours = whole(call, "hours")?;
    let since = back(call.wall, Duration::from_secs(3600) * hours);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (_, crash) in known(call).filter(|(_, crash)| crash.at > since) {
        *counts.entry(crash.process.clone()).or_default() += 1;
    }
    Ok(Output::data(serde_json::json!(counts).to_string()))
}
