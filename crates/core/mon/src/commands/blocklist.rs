//! `osd blocklist`: clients that are shut out.

use super::call::{Answer, Call, done, refuse};
use super::table::{Command, command};
use crate::command::Output;
use nacre_format::{Format, Node, Section, stamp};
use nacre_types::{AddrKind, EntityAddr, Errno, UTime, seconds};

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd blocklist name=range,type=CephChoices,strings=range,req=false name=blocklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr name=expire,type=CephFloat,range=0.0,req=false",
        "osd",
        "rw",
        "Shut a client or a range of addresses out for some seconds, or let it in again",
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

/// How long a client stays shut out when no time is given.
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
    if call.args.text("range") == "range" {
        return apply_range(call, op, addr.with_kind(AddrKind::Cidr));
    }
    let shown = addr.without_kind();
    if call.args.text(op) == "add" {
        let (time, until) = expiry(call);
        let held = call.state.osd.blocklist_add(addr, until);
        return added(&shown, time, until, held);
    }
    if call.state.osd.blocklist_remove(addr) {
        return done(format!("un-blocklisting {shown}"));
    }
    done(format!("{shown} isn't blocklisted"))
}

/// For how many seconds, and until when.
fn expiry(call: &Call<'_>) -> (f64, UTime) {
    let default = call.state.config.number_of_monitor("mon_osd_blocklist_default_expire", EXPIRE_S);
    let time = call.args.float("expire").filter(|time| *time > 0.0).unwrap_or(default);
    (time, call.wall.after(seconds(time.min(EXPIRE_S_MAX))))
}

fn added(shown: &str, time: f64, wanted: UTime, held: UTime) -> Answer {
    if held == wanted {
        return done(format!("blocklisting {shown} until {} ({time} sec)", stamp(wanted)));
    }
    done(format!("{shown} stays blocklisted until {}: to change that, remove it first", stamp(held)))
}

fn apply_range(call: &mut Call<'_>, op: &str, range: EntityAddr) -> Answer {
    if call.args.text(op) == "add" {
        let (time, until) = expiry(call);
        let held = call.state.osd.blocklist_add_range(range, until);
        let held = held.map_err(|error| refuse(Errno::EINVAL, error.to_string()))?;
        return added(&range.to_string(), time, until, held);
    }
    if call.state.osd.blocklist_remove(range) {
        return done(format!("un-blocklisting {range}"));
    }
    done(format!("{range} isn't blocklisted"))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let (list, ranges) = (&map.blocklist, &map.range_blocklist);
    let text = format!("listed {} entries", list.len() + ranges.len());
    if call.is_plain() {
        let single = list.iter().map(|(addr, until)| format!("{} {}\n", addr.without_kind(), stamp(*until)));
        let ranges = ranges.iter().map(|(range, until)| format!("{range} {}\n", stamp(*until)));
        let lines: String = single.chain(ranges).collect();
        return Ok(Output { text, ..Output::data(lines) });
    }
    let entries = list
        .iter()
        .map(|(addr, until)| Section::new().with("addr", addr.without_kind()).with("until", stamp(*until)));
    let ranges = ranges.iter().map(|(range, until)| {
        Section::new().with("range", range.without_kind()).with("until", stamp(*until))
    });
    // Ceph prints a second list for ranges behind the first, which no JSON reader could take: here it is one,
    // whose entries have Ceph's keys.
    let node = Node::array("entry", entries.chain(ranges));
    Ok(Output { text, ..Output::data(node.render(call.format.or(Format::Json), "blocklist")) })
}

fn clear(call: &mut Call<'_>) -> Answer {
    call.state.osd.blocklist_clear();
    done(" removed all blocklist entries")
}
