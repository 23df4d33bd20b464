//! `ceph balancer`: whether it runs, what it did, and how even the OSDs are. Plans made by hand are not offered.

use super::call::{Answer, Call, done, fail};
use super::table::{Command, command};
use crate::balancer::{ACTIVE, MODE};
use crate::config::Who;
use crate::{balancing, balancing_primaries};
use nacre_format::{Node, Section};
use nacre_maps::OSD_NONE;
use nacre_types::Errno;

pub(super) const COMMANDS: &[Command] = &[
    command("balancer status", "mgr", "r", "Whether the balancer runs, and what it did last", status),
    command("balancer on", "mgr", "rw", "Let the balancer move copies of PGs by itself", on),
    command("balancer off", "mgr", "rw", "Let nothing move by itself", off),
    command(
        "balancer mode name=mode,type=CephChoices,strings=none|crush-compat|upmap",
        "mgr",
        "rw",
        "How copies are moved",
        set_mode,
    ),
    command("balancer eval", "mgr", "r", "How even the OSDs are", eval),
];

fn status(call: &mut Call<'_>) -> Answer {
    let last = &call.state.balancer;
    let started = last.started.map(|at| at.to_string()).unwrap_or_default();
    let tree = Section::new()
        .with("active", balancing::is_active(call.state))
        // Nobody has measured it: a turn has one clock.
        .with("last_optimize_duration", "")
        .with("last_optimize_started", started)
        .with("mode", balancing::mode(call.state))
        .with("no_optimization_needed", last.is_even)
        .with("optimize_result", last.result.as_str())
        .with("plans", Node::array("plan", Vec::<String>::new()));
    call.tree("balancer", tree)
}

fn store(call: &mut Call<'_>, name: &str, value: &str) -> Answer {
    let Some(managers) = Who::parse("mgr") else { return fail(Errno::EINVAL, "no section mgr") };
    match call.state.config.set_of_module(&managers, name, value.to_owned()) {
        Ok(_) => done(""),
        Err(error) => fail(Errno::from(&error), error.to_string()),
    }
}

fn on(call: &mut Call<'_>) -> Answer {
    store(call, ACTIVE, "true")
}

fn off(call: &mut Call<'_>) -> Answer {
    store(call, ACTIVE, "false")
}

fn set_mode(call: &mut Call<'_>) -> Answer {
    let mode = call.args.text("mode").to_owned();
    if mode == "crush-compat" {
        return fail(
            Errno::EOPNOTSUPP,
            "crush-compat changes weights for clients before luminous; exceptions (upmap) are what is built here",
        );
    }
    store(call, MODE, &mode)
}

fn eval(call: &mut Call<'_>) -> Answer {
    let (found, unreported) = balancing::evaluation(call.state);
    let score = (found.spread - found.bound).max(0.0);
    let mut text = format!("current cluster score {score:.6} (lower is better)\n");
    if let Some(osd) = found.fullest {
        let (spread, bound) = (found.spread, found.bound);
        text += &format!(
            "osd.{osd} is the fullest: {spread:.3} times the mean by weight, where {bound:.3} is possible\n"
        );
    }
    text += &format!(
        "no OSD has more than {:.1} copies of a pool's PGs too many or too few\n",
        found.count_deviation
    );
    let primaries = balancing_primaries::evenness(call.state);
    if let Some(osd) = primaries.busiest {
        text += &format!(
            "osd.{osd} leads most: {:.3} times its share of primaries; no OSD leads more than {:.1} PGs too many or too few\n",
            primaries.spread, primaries.deviation
        );
    }
    if unreported > 0 {
        text += &format!("{unreported} PGs have not been reported, and do not count\n");
    }
    let tree = Section::new()
        .with("score", score)
        .with("fullest_osd", found.fullest.unwrap_or(OSD_NONE))
        .with("fullest_to_mean", found.spread)
        .with("fullest_to_mean_bound", found.bound)
        .with("count_deviation", found.count_deviation)
        .with("busiest_primary_osd", primaries.busiest.unwrap_or(OSD_NONE))
        .with("primaries_to_share", primaries.spread)
        .with("primaries_deviation", primaries.deviation)
        .with("unreported_pgs", unreported);
    call.either("eval", text, tree)
}
