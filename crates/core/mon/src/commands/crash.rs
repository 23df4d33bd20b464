//! Reports of crashes, as `ceph-crash` and daemons post them. Ceph's manager module `crash` keeps them under
//! `mgr/crash/crash/<id>` among the config keys; so do we.

use super::call::{Answer, Call, done, fail, refuse};
use super::table::{Command, command};
use crate::command::Output;
use crate::config_key::VALUE_BYTES_MAX;
use nacre_format::{Node, Section};
use nacre_types::Errno;
use serde_json::Value;

pub(super) const COMMANDS: &[Command] = &[
    command("crash ls", "mgr", "r", "Crashes that were reported", ls),
    command("crash ls-new", "mgr", "r", "Crashes that were reported and not archived", ls),
    command("crash stat", "mgr", "r", "How many crashes were reported", stat),
    command("crash info name=id,type=CephString", "mgr", "r", "The report of a crash", info),
    command("crash post", "mgr", "rw", "Report a crash, as JSON from the input", post),
    command("crash rm name=id,type=CephString", "mgr", "rw", "Forget a crash", rm),
];

const PREFIX: &str = "mgr/crash/crash/";
/// Reports kept; a daemon that crashes in a loop must not fill the store.
const REPORTS_MAX: usize = 1000;

fn key(id: &str) -> String {
    format!("{PREFIX}{id}")
}

fn post(call: &mut Call<'_>) -> Answer {
    let wrong = || refuse(Errno::EINVAL, "malformed crash metadata");
    let report: Value = serde_json::from_slice(call.data).map_err(|_| wrong())?;
    let id = report.get("crash_id").and_then(Value::as_str).ok_or_else(wrong)?;
    if report.get("timestamp").and_then(Value::as_str).is_none() || call.data.len() > VALUE_BYTES_MAX {
        return Err(wrong());
    }
    let keys = &mut call.state.config_keys;
    if keys.value(&key(id)).is_none() && keys.iter_prefix(PREFIX).count() >= REPORTS_MAX {
        return fail(Errno::ENOSPC, format!("{REPORTS_MAX} crashes are recorded already; remove some first"));
    }
    keys.set(&key(id), call.data.clone());
    done("")
}

fn rm(call: &mut Call<'_>) -> Answer {
    let key = key(call.args.text("id"));
    call.state.config_keys.remove(&key);
    done("")
}

fn info(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("id");
    match call.state.config_keys.value(&key(id)) {
        Some(report) => Ok(Output::data(report.clone())),
        None => fail(Errno::EINVAL, format!("crash info: {id} not found")),
    }
}

fn stat(call: &mut Call<'_>) -> Answer {
    let count = call.state.config_keys.iter_prefix(PREFIX).count();
    Ok(Output::data(format!("{count} crashes recorded\n")))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let all = call.state.config_keys.iter_prefix(PREFIX);
    let reports: Vec<Value> = all.filter_map(|(_, report)| serde_json::from_slice(report).ok()).collect();
    let text =
        |report: &Value, name: &str| report.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut plain = String::new();
    if !reports.is_empty() {
        plain = format!("{:<69}{:<14}NEW\n", "ID", "ENTITY");
        for report in &reports {
            plain += &format!("{:<69}{:<14} *\n", text(report, "crash_id"), text(report, "entity_name"));
        }
    }
    let section = |report: &Value| {
        let fields = ["crash_id", "timestamp", "entity_name", "process_name", "ceph_version"];
        let known = fields.into_iter().filter(|name| report.get(name).is_some());
        known.map(|name| (name.to_owned(), text(report, name))).collect::<Section>()
    };
    call.either("crashes", plain, Node::array("crash", reports.iter().map(section)))
}
