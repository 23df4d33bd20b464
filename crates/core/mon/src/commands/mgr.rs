//! The manager and what its modules answer.

use super::call::{Answer, Call, done, fail};
use super::show;
use super::table::{Command, command};
use crate::command::Output;
use nacre_format::{Node, Section, bytes};
use nacre_types::Errno;
use nacre_types::version::{RELEASE, VERSION_SHORT, VERSION_TEXT};

pub(super) const COMMANDS: &[Command] = &[
    command("mgr stat", "mgr", "r", "Summary of the managers", stat),
    command("mgr dump name=epoch,type=CephInt,range=0,req=false", "mgr", "r", "The managers' map", dump),
    command("mgr services", "mgr", "r", "Services that the manager offers", services),
    command("mgr module ls", "mgr", "r", "Modules of the manager", module_ls),
    command(
        "mgr metadata name=who,type=CephString,req=false",
        "mgr",
        "r",
        "What managers say of themselves",
        metadata,
    ),
    command("mgr versions", "mgr", "r", "Versions of managers", versions),
    command("balancer status", "mgr", "r", "What the balancer does", balancer_status),
    command("progress", "mgr", "r", "What is in progress", progress),
    command("progress json", "mgr", "r", "What is in progress, for programs", progress_json),
    command(
        "iostat name=width,type=CephInt,req=false name=print_header,type=CephBool,req=false",
        "mgr",
        "r",
        "What clients do, in one line",
        iostat,
    ),
];

fn stat(call: &mut Call<'_>) -> Answer {
    let map = call.state.mgr.map();
    let tree = Section::new()
        .with("epoch", map.epoch)
        .with("available", map.available)
        .with("active_name", map.active_name.as_str())
        .with("num_standby", map.standbys.len());
    call.tree("mgr_stat", tree)
}

fn dump(call: &mut Call<'_>) -> Answer {
    let map = call.state.mgr.map();
    match call.args.int("epoch") {
        Some(epoch) if epoch != 0 && epoch != i64::from(map.epoch) => {
            fail(Errno::ENOENT, format!("there is no map for epoch {epoch}"))
        }
        _ => call.tree("mgrmap", show::mgr_map(map)),
    }
}

fn services(call: &mut Call<'_>) -> Answer {
    call.tree("services", show::services(call.state.mgr.map()))
}

fn module_ls(call: &mut Call<'_>) -> Answer {
    call.tree("modules", show::mgr_modules(call.state.mgr.map()))
}

fn metadata(call: &mut Call<'_>) -> Answer {
    let map = call.state.mgr.map();
    let own = Section::new()
        .with("addr", show::legacy_addr(&map.active_addrs))
        .with("addrs", map.active_addrs.to_string())
        .with("arch", std::env::consts::ARCH)
        .with("ceph_release", RELEASE)
        .with("ceph_version", VERSION_TEXT)
        .with("ceph_version_short", VERSION_SHORT)
        .with("hostname", super::daemons::host_name(call))
        .with("os", "Linux");
    let mut named = Section::new().with("name", map.active_name.as_str());
    match call.args.text_opt("who") {
        Some(who) if who == map.active_name => {
            named.extend(own);
            call.tree("mgr_metadata", named)
        }
        Some(who) => fail(Errno::ENOENT, format!("mgr.{who} not found")),
        None => {
            named.extend(own);
            call.tree("mgr_metadata", Node::array("mgr", [named]))
        }
    }
}

fn versions(call: &mut Call<'_>) -> Answer {
    call.tree("mgr", Section::new().with(VERSION_TEXT, 1))
}

fn balancer_status(call: &mut Call<'_>) -> Answer {
    let tree = Section::new()
        .with("active", false)
        .with("last_optimize_duration", "")
        .with("last_optimize_started", "")
        .with("mode", "none")
        .with("no_optimization_needed", false)
        .with("optimize_result", "")
        .with("plans", Node::array("plan", Vec::<Node>::new()));
    call.tree("balancer", tree)
}

/// Recovery under way: which share of the objects' copies is where it belongs, of all that are not or not yet.
fn recovery_progress(call: &Call<'_>) -> Option<(i64, f64)> {
    let sum = call.state.stats.pgs.digest(call.state.osd.map()).sum.stats;
    let left = sum.num_objects_degraded + sum.num_objects_misplaced;
    let copies = sum.num_object_copies.max(left);
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    (left > 0).then(|| (left, 1.0 - left as f64 / copies as f64))
}

fn progress(call: &mut Call<'_>) -> Answer {
    match recovery_progress(call) {
        Some((left, done)) => {
            let text =
                format!("Recovery\n    {:.1}% of the copies are in place, {left} are not\n", done * 100.0);
            Ok(Output::data(text))
        }
        None => done("Nothing in progress"),
    }
}

/// What was completed before is not kept.
fn progress_json(call: &mut Call<'_>) -> Answer {
    let event = recovery_progress(call).map(|(left, done)| {
        Section::new()
            .with("id", "recovery")
            .with("message", format!("Recovery of {left} copies of objects"))
            .with("progress", done)
    });
    call.tree("progress", Section::new().with("events", Node::array("event", event)))
}

fn iostat(call: &mut Call<'_>) -> Answer {
    let rate = call.state.stats.pgs.rate(None);
    let cells = [
        format!("{}/s", bytes(rate.read_bytes)),
        format!("{}/s", bytes(rate.write_bytes)),
        format!("{}/s", bytes(rate.read_bytes + rate.write_bytes)),
        rate.read_ops.to_string(),
        rate.write_ops.to_string(),
        (rate.read_ops + rate.write_ops).to_string(),
    ];
    let line: String = cells.iter().map(|cell| format!("| {cell:>10} ")).collect();
    Ok(Output::data(format!("{line}|\n")))
}
