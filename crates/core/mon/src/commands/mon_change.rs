//! Who the monitors are: `mon add`, `mon rm`, `mon set-addrs`; and `mon join`, which is ours: it makes a monitor a new member of the log.
//!
//! What a command changes is the monitors' map and the members that the log is to have; the leader brings the log's members there
//! (`nacre_quorum::Membership`). A monitor that was added votes when it has all data: until then nobody waits for it, where in Ceph it counts
//! from the moment of `mon add`.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::mon_election;
use super::table::{Command, command};
use crate::command::Output;
use crate::monmap::MONS_MAX;
use crate::seed::Seed;
use nacre_denc::Encode;
use nacre_types::{AddrKind, AddrVec, EntityAddr, Errno};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The port of monitors that IANA has, taken where none is given; Ceph `CEPH_MON_PORT_IANA`.
const PORT: u16 = 3300;
/// The one of messenger v1, which means the same as none; Ceph `CEPH_MON_PORT_LEGACY`.
const PORT_LEGACY: u16 = 6789;
/// Longest name of a monitor: it is part of a folder's.
const NAME_BYTES_MAX: usize = 64;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "mon add name=name,type=CephString name=addr,type=CephIPAddr name=location,type=CephString,n=N,goodchars=[A-Za-z0-9-_.=],req=false",
        "mon",
        "rw",
        "Add a monitor; it votes once it runs and has all data (nacre mon join)",
        add,
    ),
    command(
        "mon rm name=name,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "mon",
        "rw",
        "Remove a monitor",
        rm,
    ),
    command(
        "mon remove name=name,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "mon",
        "rw",
        "Remove a monitor",
        rm,
    ),
    command(
        "mon set-addrs name=name,type=CephString name=addrs,type=CephString",
        "mon",
        "rw",
        "Give a monitor another address",
        set_addrs,
    ),
    command(
        "mon join name=name,type=CephString name=addr,type=CephIPAddr,req=false name=witness,type=CephBool,req=false",
        "mon",
        "rwx",
        "What a monitor with an empty store begins with (for nacre mon join)",
        join,
    ),
    command(
        "mon ok-to-add-offline",
        "mon",
        "r",
        "Can a monitor be added that does not run",
        ok_to_add_offline,
    ),
    command("mon ok-to-rm name=id,type=CephString", "mon", "r", "Can this monitor be removed", ok_to_rm),
];

/// An address as people type it: the kind may be left out, and the port.
fn address(text: &str) -> Result<AddrVec, Failure> {
    let bad = |why: &str| refuse(Errno::EINVAL, format!("'{text}' is no address of a monitor: {why}"));
    let addr = EntityAddr::parse(text).ok_or_else(|| bad("give IP or IP:PORT"))?;
    if addr.kind == AddrKind::Legacy {
        return Err(bad("messenger v1 is not spoken here; give v2:IP:PORT"));
    }
    let socket = addr.socket.filter(|socket| !socket.ip().is_unspecified());
    let socket = socket.ok_or_else(|| bad("others could not connect to it"))?;
    let port = if [0, PORT_LEGACY].contains(&socket.port()) { PORT } else { socket.port() };
    Ok(AddrVec::of(EntityAddr::msgr2(SocketAddr::new(socket.ip(), port), 0)))
}

fn new_name(call: &Call<'_>) -> Result<String, Failure> {
    let name = call.args.text("name");
    let is_plain = |ch: char| ch.is_ascii_alphanumeric() || "-_.".contains(ch);
    let begins_well = name.starts_with(|ch: char| ch.is_ascii_alphanumeric());
    if !begins_well || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
        let text = format!(
            "'{name}' is no name of a monitor: letters, digits, '-', '_' and '.', at most {NAME_BYTES_MAX}"
        );
        return fail(Errno::EINVAL, text);
    }
    let count = call.state.mon.map().mons.len();
    if count >= MONS_MAX && !call.state.mon.map().mons.contains_key(name) {
        return fail(Errno::EINVAL, format!("there are {count} monitors, and no cluster has more"));
    }
    Ok(name.to_owned())
}

/// Refuses an address that another monitor has.
fn check_is_free(call: &Call<'_>, name: &str, addrs: &AddrVec) -> Result<(), Failure> {
    let mut others = call.state.mon.map().mons.values().filter(|mon| mon.name != name);
    match others.find(|mon| mon.addrs == *addrs) {
        Some(other) => fail(Errno::EEXIST, format!("mon.{} has the address {addrs}", other.name)),
        None => Ok(()),
    }
}

fn location(words: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |word: &String| {
        let (level, name) =
            word.split_once('=').filter(|(level, name)| !level.is_empty() && !name.is_empty())?;
        Some((level.to_owned(), name.to_owned()))
    };
    words.iter().map(|word| pair(word).ok_or(word)).collect::<Result<_, _>>().map_err(|word| {
        refuse(Errno::EINVAL, format!("'{word}' is no location: give LEVEL=NAME, such as datacenter=north"))
    })
}

fn add(call: &mut Call<'_>) -> Answer {
    let (name, addrs) = (new_name(call)?, address(call.args.text("addr"))?);
    let place = location(call.args.list("location"))?;
    match call.state.mon.map().mons.get(&name) {
        Some(known) if known.addrs == addrs => return done(format!("mon.{name} is there, at {addrs}")),
        Some(known) => return fail(Errno::EEXIST, format!("mon.{name} is there, at {}", known.addrs)),
        None => check_is_free(call, &name, &addrs)?,
    }
    call.state.mon.add_at(&name, addrs.clone(), place, call.wall);
    done(format!(
        "mon.{name} is added at {addrs}; it has no vote until it runs and has all data: `nacre mon join --name {name}` makes its store"
    ))
}

/// Refuses to remove a monitor without which nothing would go on, by what the leader knows of the others. Who is `sure` may order it while
/// others are away: it waits for them then.
fn check_can_go(call: &Call<'_>, name: &str, is_sure: bool) -> Result<(), Failure> {
    let map = call.state.mon.map();
    if map.mons.len() == 1 {
        return fail(Errno::EINVAL, format!("mon.{name} is the last monitor, which stays"));
    }
    let (voters, here) = call.state.quorum.without(map, name);
    if voters == 0 {
        let text = format!(
            "only mon.{name} has a vote yet; wait until another one is in the quorum (`ceph mon stat`)"
        );
        return fail(Errno::EBUSY, text);
    }
    if !call.state.quorum.has_candidate(map, &[name]) {
        let text = format!(
            "no other monitor of the quorum than mon.{name} may lead; see `ceph mon rm disallowed_leader`"
        );
        return fail(Errno::EBUSY, text);
    }
    if here * 2 <= voters && !is_sure {
        let text = format!(
            "without mon.{name} {voters} monitors have a vote, of which {here} are there: no majority. Start the others, or first remove \
             those that are gone for good; with --yes-i-really-mean-it it goes as soon as a majority of the others is there"
        );
        return fail(Errno::EBUSY, text);
    }
    Ok(())
}

fn rm(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    let Some(info) = call.state.mon.map().mons.get(&name) else {
        return done(format!("there is no mon.{name}, or not any more"));
    };
    let addrs = info.addrs.clone();
    check_can_go(call, &name, call.args.flag("yes_i_really_mean_it"))?;
    call.state.mon.remove(&name, call.wall);
    done(format!("mon.{name} at {addrs} is removed; {} are left", call.state.mon.map().mons.len()))
}

fn set_addrs(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    if !call.state.mon.map().mons.contains_key(&name) {
        return fail(Errno::ENOENT, format!("there is no mon.{name}"));
    }
    let text = call.args.text("addrs");
    if EntityAddr::parse(text.trim_matches(['[', ']']))
        .and_then(|addr| addr.socket)
        .is_some_and(|at| at.port() == 0)
    {
        return fail(Errno::EINVAL, format!("'{text}' has no port, and a monitor needs a certain one"));
    }
    let bare = if text.starts_with("[v") { text.trim_matches(['[', ']']) } else { text };
    let addrs = address(bare)?;
    check_is_free(call, &name, &addrs)?;
    call.state.mon.set_addrs(&name, addrs.clone(), call.wall);
    done(format!("mon.{name} is at {addrs} from monmap epoch {} on", call.state.mon.map().epoch))
}

fn join(call: &mut Call<'_>) -> Answer {
    let name = new_name(call)?;
    let given = call.args.text_opt("addr").map(address).transpose()?;
    let known = call.state.mon.map().mons.get(&name).map(|mon| mon.addrs.clone());
    let runs = call.state.quorum.monitors.get(&name).is_some_and(|monitor| monitor.is_heard);
    if known.is_some() && (runs || name == call.state.name) {
        let text =
            format!("mon.{name} runs; it joins anew only when its store is lost, and then it does not run");
        return fail(Errno::EBUSY, text);
    }
    let Some(addrs) = given.or(known) else {
        return fail(
            Errno::EINVAL,
            format!("there is no mon.{name} yet; give the address where it is to listen"),
        );
    };
    check_is_free(call, &name, &addrs)?;
    let id = call.state.mon.add(&name, addrs, call.wall);
    if call.args.flag("witness") {
        mon_election::disallow(call, &name);
    }
    let seed = Seed::of(&call.state.mon).to_bytes();
    Ok(Output { text: format!("mon.{name} is member {id} of the monitors' log"), ..Output::data(seed) })
}

fn ok_to_add_offline(_: &mut Call<'_>) -> Answer {
    done("a monitor has no vote until it runs and has all data, so nobody waits for one that does not run")
}

fn ok_to_rm(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("id").to_owned();
    if !call.state.mon.map().mons.contains_key(&name) {
        return done(format!("there is no mon.{name}, or not any more"));
    }
    check_can_go(call, &name, false)?;
    done(format!("without mon.{name} a majority of the others is there"))
}
