//! Long changes under way: of our own manager the recovery, with a forecast of its end; of an active `ceph-mgr` what that has reported.
//! Shapes are those of Ceph's manager module `progress` at v16.2.15.

use super::call::{Answer, Call, done};
use super::table::{Command, command};
use crate::output::Output;
use nacre_format::{Node, Section, age};
use nacre_mgr::pgmap::{Ended, Recovery};
use nacre_types::UTime;

pub(super) const COMMANDS: &[Command] = &[
    command("progress", "mgr", "r", "What is in progress", text),
    command("progress json", "mgr", "r", "What is in progress, for programs", json),
];

const MESSAGE: &str = "Global Recovery Event";
/// Characters of a bar, without its ends.
const BAR: usize = 28;

fn recovery<'a>(call: &'a Call<'_>) -> Option<&'a Recovery> {
    call.state.stats.pgs.progress.recovery.as_ref().filter(|_| call.state.mgr.own_is_active())
}

/// Ceph's two lines, the second one indented so far.
fn lines(call: &Call<'_>, recovery: &Recovery, indent: usize) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a few characters"
    )]
    let done = ((recovery.share() * BAR as f64) as usize).min(BAR);
    let bar = format!("[{}{}]", "=".repeat(done), ".".repeat(BAR - done));
    let remaining =
        recovery.remaining(call.now).map_or_else(String::new, |left| format!(" (remaining: {})", age(left)));
    format!("{MESSAGE} ({})\n{}{bar}{remaining}", age(recovery.lasts(call.now)), " ".repeat(indent))
}

/// What `status` shows as text; empty when there is nothing.
pub(super) fn status_text(call: &Call<'_>) -> String {
    let lines: Vec<String> = if call.state.mgr.own_is_active() {
        recovery(call).map(|it| format!("    {}", lines(call, it, 6))).into_iter().collect()
    } else {
        let events = call.state.mgr.reported().progress.values().filter(|event| event.add_to_ceph_s);
        events.map(|event| format!("    {}", event.message)).collect()
    };
    if lines.is_empty() { String::new() } else { format!(" \n  progress:\n{}\n", lines.join("\n")) }
}

/// The same as a tree, all of them.
pub(super) fn status_tree(call: &Call<'_>) -> Section {
    if call.state.mgr.own_is_active() {
        let event = |it: &Recovery| {
            let said = Section::new().with("message", lines(call, it, 6)).with("progress", it.share());
            (ID.to_owned(), said.with("add_to_ceph_s", true))
        };
        return recovery(call).map(event).into_iter().collect();
    }
    let event = |event: &nacre_msg::ProgressEvent| {
        Section::new()
            .with("message", event.message.as_str())
            .with("progress", f64::from(event.progress))
            .with("add_to_ceph_s", event.add_to_ceph_s)
    };
    call.state.mgr.reported().progress.iter().map(|(id, at)| (id.clone(), event(at))).collect()
}

/// One recovery at a time is all that there is.
const ID: &str = "recovery";

fn text(call: &mut Call<'_>) -> Answer {
    match recovery(call) {
        Some(it) => Ok(Output::data(format!("{}\n", lines(call, it, 4)))),
        None => done("Nothing in progress"),
    }
}

fn seconds(at: UTime) -> f64 {
    f64::from(at.sec) + f64::from(at.nsec) / 1e9
}

fn refs() -> Node {
    Node::array("ref", ["global"].map(Node::from))
}

fn json(call: &mut Call<'_>) -> Answer {
    let event = |it: &Recovery| {
        let remaining = it.remaining(call.now).map(|left| left.as_secs());
        Section::new()
            .with("id", ID)
            .with("message", MESSAGE)
            .with("duration", format!("({})", age(it.lasts(call.now))))
            .with("refs", refs())
            .with("progress", it.share())
            .with("started_at", seconds(it.began_at))
            .with("time_remaining", remaining.map_or_else(|| Node::Raw("null".to_owned()), Node::from))
    };
    let ended = |(number, it): (usize, &Ended)| {
        Section::new()
            .with("id", format!("{ID}-{number}"))
            .with("message", MESSAGE)
            .with("refs", refs())
            .with("started_at", seconds(it.began_at))
            .with("finished_at", seconds(it.ended_at))
            .with("add_to_ceph_s", true)
    };
    let events = Node::array("event", recovery(call).map(event));
    let ended = Node::array("event", call.state.stats.pgs.progress.ended.iter().enumerate().map(ended));
    call.tree("progress", Section::new().with("events", events).with("completed", ended))
}
