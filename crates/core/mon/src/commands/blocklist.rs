//! Clients that are shut out.

use super::call::{Answer, Call, done, refuse};
use super::table::{Command, command};
use crate::command::Output;
use nacre_mgr::format::{Format, Node, Section, stamp};
use nacre_types::{EntityAddr, Errno};
use std::time::Duration;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd blocklist name=range,type=CephString,goodchars=[range],req=false name=blocklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr name=expire,type=CephFloat,range=0.0,req=false",
        "osd",
        "rw",
        "Shut a client out for some seconds, or let it in again",
        change,
    ),
    command("osd blocklist ls", "osd", "r", "Clients that are shut out", ls),
    command("osd blocklist clear", "osd", "rw", "Let every client in again", clear),
    command(
        "osd blacklist name=blacklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr name=expire,type=CephFloat,range=0.0,req=false",
        "osd",
        "rw",
        "Old name of osd blocklist",
        change_old,
    ),
    command("osd blacklist ls", "osd", "r", "Old name of osd blocklist ls", ls),
    command("osd blacklist clear", "osd", "rw", "Old name of osd blocklist clear", clear),
];

/// How long a client stays shut out when nobody says.
const EXPIRE_S: f64 = 3600.0;
/// Longest time; beyond it the stamp would not fit the map.
const EXPIRE_S_MAX: f64 = 50.0 * 365.0 * 86_400.0;

fn change(call: &mut Call<'_>) -> Answer {
    apply(call, "blocklistop")
}

fn change_old(call: &mut Call<'_>) -> Answer {
    apply(call, "blacklistop")
}

fn apply(call: &mut Call<'_>, op: &str) -> Answer {
    let text = call.args.text("addr").to_owned();
    let addr = EntityAddr::parse(&text)
        .ok_or_else(|| refuse(Errno::EINVAL, format!("unable to parse address {text}")))?;
    let shown = addr.without_kind();
    if call.args.text(op) == "add" {
        let default = call.state.config.number_of_monitor("mon_osd_blocklist_default_expire", EXPIRE_S);
        let seconds = call.args.float("expire").filter(|seconds| *seconds > 0.0).unwrap_or(default);
        let until = call.wall.after(Duration::from_secs_f64(seconds.clamp(0.0, EXPIRE_S_MAX)));
        call.state.osd.blocklist_add(addr, until);
        return done(format!("blocklisting {shown} until {} ({seconds} sec)", stamp(until)));
    }
    if call.state.osd.blocklist_remove(addr) {
        return done(format!("un-blocklisting {shown}"));
    }
    done(format!("{shown} isn't blocklisted"))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let list = &call.state.osd.map().blocklist;
    let text = format!("listed {} entries", list.len());
    if call.is_plain() {
        let lines: String =
            list.iter().map(|(addr, until)| format!("{} {}\n", addr.without_kind(), stamp(*until))).collect();
        return Ok(Output { text, ..Output::data(lines) });
    }
    let entries = list
        .iter()
        .map(|(addr, until)| Section::new().with("addr", addr.without_kind()).with("until", stamp(*until)));
    let node = Node::array("entry", entries);
    // Ceph prints a second, empty list for ranges of addresses, which no JSON reader could take.
    Ok(Output { text, ..Output::data(node.render(call.format.or(Format::Json), "blocklist")) })
}

fn clear(call: &mut Call<'_>) -> Answer {
    call.state.osd.blocklist_clear();
    done(" removed all blocklist entries")
}
