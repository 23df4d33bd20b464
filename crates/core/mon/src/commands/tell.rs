//! `ceph tell mon.b ...`: what a monitor answers itself. In Ceph these are the commands of the monitor's admin socket (`src/mon/Monitor.cc`,
//! `src/common/ceph_context.cc` at v16.2.15); those for people who look are here, the others are refused.

use super::args::Args;
use super::call::{Failure, refuse};
use super::show;
use super::signature::Signature;
use crate::config::ConfigDb;
use crate::event::Peer;
use crate::output::{CommandInput, Output};
use crate::own_view::OwnView;
use crate::session::instance;
use nacre_auth::{MonCaps, Rwx};
use nacre_format::{Format, Node, Section};
use nacre_options::{self as options, OptionInfo};
use nacre_types::version::{RELEASE, VERSION_SHORT};
use nacre_types::{Errno, features};

/// What such a command works on.
pub(crate) struct TellCx<'a> {
    /// The monitor that is asked.
    pub(crate) own: &'a OwnView,
    /// What the one that asks may do.
    pub(crate) caps: MonCaps,
    /// Who is connected to this monitor, and with which caps.
    pub(crate) sessions: Vec<(&'a Peer, &'a str)>,
    /// The options that it goes by.
    pub(crate) config: &'a ConfigDb,
}

/// One of them.
struct TellCommand {
    signature: &'static str,
    /// Rights needed: letters of `rwx`.
    perm: &'static str,
    help: &'static str,
    show: fn(&TellCx<'_>, &Args) -> Result<Node, Failure>,
}

const COMMANDS: &[TellCommand] = &[
    TellCommand { signature: "mon_status", perm: "r", help: "State of this monitor", show: mon_status },
    TellCommand {
        signature: "quorum_status",
        perm: "r",
        help: "Who the quorum is, as this monitor knows it",
        show: quorum_status,
    },
    TellCommand { signature: "version", perm: "r", help: "Version of this monitor", show: version },
    TellCommand { signature: "help", perm: "r", help: "What this monitor answers itself", show: help },
    TellCommand {
        signature: "config show",
        perm: "rw",
        help: "Values of all options that monitors read",
        show: config_show,
    },
    TellCommand {
        signature: "config get name=var,type=CephString",
        perm: "rw",
        help: "Value of an option of this monitor",
        show: config_get,
    },
    TellCommand {
        signature: "config diff",
        perm: "rw",
        help: "Options of this monitor that differ from their defaults",
        show: config_diff,
    },
    TellCommand {
        signature: "sessions",
        perm: "rwx",
        help: "Who is connected to this monitor",
        show: sessions,
    },
];

/// Runs one of the commands that a monitor answers for itself.
pub(crate) fn tell(cx: &TellCx<'_>, input: &CommandInput) -> Output {
    let format = Format::parse(&input.format);
    if input.prefix == "get_command_descriptions" {
        return Output::data(descriptions());
    }
    let signatures = COMMANDS.iter().map(|command| (command, Signature::parse(command.signature)));
    let known = signatures.into_iter().find(|(_, signature)| signature.prefix == input.prefix);
    let answer = known.ok_or_else(|| unknown(cx, &input.prefix)).and_then(|(command, signature)| {
        let args = signature.check(input)?;
        let needed = Rwx::of_letters(command.perm);
        match cx.caps.allows_command("mon", &signature.prefix, &args.to_texts(), needed) {
            true => (command.show)(cx, &args),
            false => Err(refuse(Errno::EACCES, "access denied")),
        }
    });
    match answer {
        Ok(node) => Output::data(node.render(format, &input.prefix)),
        Err(failure) => failure.into_output(),
    }
}

fn unknown(cx: &TellCx<'_>, prefix: &str) -> Failure {
    let known: Vec<String> =
        COMMANDS.iter().map(|command| Signature::parse(command.signature).prefix).collect();
    let what = if super::table::find(prefix).is_some() {
        format!("'{prefix}' is a question for the whole cluster: ask it without tell")
    } else {
        format!("command not known: {prefix}")
    };
    let text = format!("{what}. mon.{} answers itself: {}", cx.own.name, known.join(", "));
    refuse(Errno::EINVAL, text)
}

fn descriptions() -> String {
    let describe = |(index, command): (usize, &TellCommand)| {
        let section = Section::new()
            .with("sig", Signature::parse(command.signature).describe())
            .with("help", command.help)
            .with("module", "mon")
            .with("perm", command.perm)
            .with("flags", 0);
        (format!("cmd{index:03}"), section)
    };
    Node::from(COMMANDS.iter().enumerate().map(describe).collect::<Section>())
        .render(Format::Json, "command_descriptions")
}

fn ranks(own: &OwnView) -> Node {
    Node::array("mon", own.quorum.iter().filter_map(|name| own.map.rank_of(name)))
}

/// The state of one monitor, as `mon_status` and a pong show it.
pub(super) fn status_tree(own: &OwnView) -> Section {
    let is_led = own.phase.is_led();
    let outside = own.map.ranks.iter().filter(|name| is_led && !own.quorum.contains(name));
    let mut tree = Section::new().with("name", own.name.as_str());
    match own.map.rank_of(&own.name) {
        Some(rank) => tree.put("rank", rank),
        None => tree.put("rank", -1), // as Ceph says it of a monitor that is not in the map
    }
    tree.with("state", own.phase.name())
        .with("election_epoch", own.election_epoch())
        .with("quorum", ranks(own))
        .with("quorum_age", if is_led { own.since.as_secs() } else { 0 })
        .with("outside_quorum", Node::array("mon", outside))
        .with("monmap", show::mon_map(&own.map))
}

fn mon_status(cx: &TellCx<'_>, _: &Args) -> Result<Node, Failure> {
    Ok(status_tree(cx.own).into())
}

fn quorum_status(cx: &TellCx<'_>, _: &Args) -> Result<Node, Failure> {
    let own = cx.own;
    let bits = own.map.persistent_features | own.map.optional_features;
    let tree = Section::new()
        .with("election_epoch", own.election_epoch())
        .with("quorum", ranks(own))
        .with("quorum_names", Node::array("mon", own.quorum.iter()))
        .with("quorum_leader_name", own.leader.as_deref().unwrap_or_default())
        .with("quorum_age", if own.phase.is_led() { own.since.as_secs() } else { 0 })
        .with(
            "features",
            Section::new()
                .with("quorum_con", features::SUPPORTED.to_string())
                .with("quorum_mon", Node::array("bit_flag", show::feature_names(bits))),
        )
        .with("monmap", show::mon_map(&own.map));
    Ok(tree.into())
}

fn version(_: &TellCx<'_>, _: &Args) -> Result<Node, Failure> {
    let tree =
        Section::new().with("version", VERSION_SHORT).with("release", RELEASE).with("release_type", "stable");
    Ok(tree.into())
}

fn help(_: &TellCx<'_>, _: &Args) -> Result<Node, Failure> {
    let row = |command: &TellCommand| (Signature::parse(command.signature).prefix, Node::from(command.help));
    Ok(COMMANDS.iter().map(row).collect::<Section>().into())
}

/// The options that monitors read, with their values here.
fn options<'a>(cx: &'a TellCx<'_>) -> impl Iterator<Item = (&'static OptionInfo, &'a str)> {
    let read = options::all().filter(|option| option.readers().contains(&"mon"));
    read.map(|option| (option, cx.config.of_monitor(option.name).unwrap_or(option.default)))
}

fn config_show(cx: &TellCx<'_>, _: &Args) -> Result<Node, Failure> {
    let rows = options(cx).map(|(option, value)| (option.name.to_owned(), Node::from(value)));
    Ok(rows.collect::<Section>().into())
}

fn config_get(cx: &TellCx<'_>, args: &Args) -> Result<Node, Failure> {
    let name = args.text("var");
    let unknown = || match options::find(name) {
        Some(_) => format!("{name} is no option that monitors read"),
        None => format!("unrecognized config option '{name}'"),
    };
    let (option, value) = options(cx)
        .find(|(option, _)| option.name == name)
        .ok_or_else(|| refuse(Errno::ENOENT, unknown()))?;
    Ok(Section::new().with(option.name, value).into())
}

fn config_diff(cx: &TellCx<'_>, _: &Args) -> Result<Node, Failure> {
    let changed = options(cx).filter(|(option, value)| *value != option.default);
    let row = |(option, value): (&OptionInfo, &str)| {
        (
            option.name.to_owned(),
            Node::from(Section::new().with("default", option.default).with("final", value)),
        )
    };
    Ok(Section::new().with("diff", changed.map(row).collect::<Section>()).into())
}

fn sessions(cx: &TellCx<'_>, _: &Args) -> Result<Node, Failure> {
    let session = |(peer, caps): &(&Peer, &str)| {
        Section::new()
            .with("name", instance(&peer.auth_name, peer.global_id).to_string())
            .with("entity_name", peer.auth_name.to_string())
            .with("addrs", show::addr_vec(&peer.addrs))
            .with("remote_ip", peer.seen_at.map(|ip| ip.to_string()).unwrap_or_default())
            .with("con_type", peer.kind.as_str())
            .with("open", true)
            .with("caps", Section::new().with("text", *caps))
            .with("authenticated", true)
            .with("global_id", peer.global_id)
    };
    Ok(Node::array("session", cx.sessions.iter().map(session)))
}
