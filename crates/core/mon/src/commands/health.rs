//! `health` and its mutes.

use super::call::{Answer, Call, done, fail, refuse};
use super::table::{Command, command};
use crate::command::Output;
use crate::health::{Check, Mute, Severity, checks, overall};
use crate::state::State;
use nacre_format::{Node, Section, stamp};
use nacre_options::{Kind, OptionInfo};
use nacre_types::{Errno, UTime};
use std::time::Duration;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "health name=detail,type=CephChoices,strings=detail,req=false",
        "mon",
        "r",
        "What is wrong with the cluster",
        health,
    ),
    command(
        "health mute name=code,type=CephString name=ttl,type=CephString,req=false name=sticky,type=CephBool,req=false",
        "mon",
        "w",
        "Do not mention a check, for a time or until it changes",
        mute,
    ),
    command(
        "health unmute name=code,type=CephString,req=false",
        "mon",
        "w",
        "Mention a check again, or all",
        unmute,
    ),
    command(
        "healthcheck history ls",
        "mgr",
        "r",
        "Which checks were ever on, since when and how often",
        history,
    ),
    command(
        "healthcheck history clear",
        "mgr",
        "rw",
        "Forget them; those that are on come back",
        clear_history,
    ),
];

fn short(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "[INF]",
        Severity::Warn => "[WRN]",
        Severity::Error => "[ERR]",
    }
}

fn muted_remark(checks: &[Check]) -> String {
    let muted: Vec<&str> = checks.iter().filter(|check| check.muted).map(|check| &*check.code).collect();
    if muted.is_empty() { String::new() } else { format!("(muted: {})", muted.join(" ")) }
}

/// The overall word, then a line per check that is not muted, and with `detail` its culprits.
pub(super) fn health_lines(state: &State, detail: bool) -> Vec<String> {
    let all = checks(state);
    let heard: Vec<&Check> = all.iter().filter(|check| !check.muted).collect();
    let remark = muted_remark(&all);
    let word = overall(&all).as_str();
    if !detail {
        let mut lines = vec![if remark.is_empty() { word.to_owned() } else { format!("{word} {remark}") }];
        lines.extend(heard.into_iter().map(|check| check.summary.clone()));
        return lines;
    }
    let summaries: Vec<&str> = heard
        .iter()
        .map(|check| check.summary.as_str())
        .chain([remark.as_str()])
        .filter(|text| !text.is_empty())
        .collect();
    let mut lines = vec![format!("{word} {}", summaries.join("; ")).trim_end().to_owned()];
    for check in &all {
        let mark = if check.muted { "(MUTED) " } else { "" };
        lines.push(format!("{mark}{} {}: {}", short(check.severity), check.code, check.summary));
        lines.extend(check.detail.iter().map(|line| format!("    {line}")));
    }
    lines
}

fn check_tree(check: &Check, detail: bool) -> Section {
    let summary = Section::new().with("message", check.summary.as_str()).with("count", check.count);
    let mut section = Section::new().with("severity", check.severity.as_str()).with("summary", summary);
    if detail {
        let lines = check.detail.iter().map(|line| Section::new().with("message", line));
        section.put("detail", Node::array("detail", lines));
    }
    section.with("muted", check.muted)
}

/// `health` as a tree.
pub(super) fn health_tree(state: &State, detail: bool) -> Section {
    let all = checks(state);
    let mutes = state.health.mutes().iter().map(|(code, mute)| {
        let mut section = Section::new().with("code", code);
        if let Some(until) = mute.until {
            section.put("ttl", stamp(until));
        }
        section.with("sticky", mute.sticky).with("summary", mute.summary.as_str()).with("count", mute.count)
    });
    Section::new()
        .with("status", overall(&all).as_str())
        .with(
            "checks",
            all.iter().map(|check| (check.code.clone(), check_tree(check, detail))).collect::<Section>(),
        )
        .with("mutes", Node::array("mute", mutes))
}

fn health(call: &mut Call<'_>) -> Answer {
    let detail = call.args.text_opt("detail").is_some();
    if !call.is_plain() {
        return call.tree("health", health_tree(call.state, detail));
    }
    let lines = health_lines(call.state, detail);
    if detail {
        return Ok(Output::data(lines.join("\n") + "\n"));
    }
    let (word, rest) =
        lines.split_first().map(|(word, rest)| (word.as_str(), rest.join("; "))).unwrap_or_default();
    Ok(Output::data(format!("{} \n", format!("{word} {rest}").trim_end()).replace(" \n", "\n")))
}

/// Seconds of `90`, `5m`, `1h30m`.
fn span(text: &str) -> Option<Duration> {
    const SPAN: OptionInfo = OptionInfo {
        name: "ttl",
        kind: Kind::Seconds,
        default: "0",
        min: None,
        max: None,
        choices: &[],
        level: nacre_options::Level::Basic,
        runtime: true,
        services: &[],
        text: "how long a mute lasts",
    };
    SPAN.check(text).ok()?.parse().ok().map(Duration::from_secs)
}

fn mute(call: &mut Call<'_>) -> Answer {
    let code = call.args.text("code").to_owned();
    let sticky = call.args.flag("sticky");
    let until = match call.args.text_opt("ttl") {
        Some(text) => {
            let span =
                span(text).ok_or_else(|| refuse(Errno::EINVAL, format!("not a valid duration: {text}")))?;
            Some(call.wall.after(span))
        }
        None => None,
    };
    let found = checks(call.state).into_iter().find(|check| check.code == code);
    if found.is_none() && !sticky {
        return fail(Errno::ENOENT, format!("health alert {code} is not currently raised"));
    }
    let (summary, count) = found.map(|check| (check.summary, check.count)).unwrap_or_default();
    if call.state.health.mute(&code, Mute { until, sticky, summary, count }) {
        return done("");
    }
    fail(Errno::ENOSPC, "too many mutes")
}

fn unmute(call: &mut Call<'_>) -> Answer {
    let codes = match call.args.text_opt("code") {
        Some(code) => vec![code.to_owned()],
        None => call.state.health.mutes().keys().cloned().collect(),
    };
    for code in codes {
        call.state.health.unmute(&code);
    }
    done("")
}

/// As Ceph's manager has it: seconds since 1970 for programs.
fn history(call: &mut Call<'_>) -> Answer {
    let seen = call.state.health.history();
    let day = |at: UTime| {
        let text = at.to_string();
        // `2026-11-21T09:17:03.000000+0000`
        text.get(..19)
            .filter(|_| at != UTime::ZERO)
            .map_or_else(String::new, |text| text.replace('-', "/").replace('T', " "))
    };
    let line = |name: &str, [first, last, count, active]: [&str; 4]| {
        format!("{name:<24}  {first:<20}  {last:<20}  {count:>5}  {active:^6}\n")
    };
    let mut plain = line("Healthcheck Name", ["First Seen (UTC)", "Last seen (UTC)", "Count", "Active"]);
    for (code, seen) in seen {
        let active = if seen.is_active { "Yes" } else { "No" };
        plain += &line(code, [&day(seen.first_seen), &day(seen.last_seen), &seen.count.to_string(), active]);
    }
    plain += &format!("{} health check(s) listed\n", seen.len());
    let seconds = |at: UTime| Node::Raw(format!("{}.{:06}", at.sec, at.nsec / 1000));
    let tree = seen.iter().map(|(code, seen)| {
        let section = Section::new()
            .with("name", code)
            .with("severity", seen.severity)
            .with("first_seen", seconds(seen.first_seen))
            .with("last_seen", seconds(seen.last_seen))
            .with("count", seen.count)
            .with("active", seen.is_active);
        (code.clone(), section)
    });
    call.either("health_history", plain, tree.collect::<Section>())
}

fn clear_history(call: &mut Call<'_>) -> Answer {
    call.state.health.clear_history();
    done("healthcheck history cleared")
}
