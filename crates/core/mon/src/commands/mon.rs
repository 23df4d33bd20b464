//! The monitors: `mon dump`, `quorum_status`, `time-sync-status`.

use super::call::{Answer, Call, fail};
use super::daemons::{count_values, mon_values, quorum_age, quorum_names, quorum_ranks};
use super::health::health_tree;
use super::show;
use super::table::{Command, command};
use crate::command::Output;
use crate::state::State;
use nacre_format::{Format, Node, Section};
use nacre_maps::MonMap;
use nacre_types::{Errno, features};

pub(super) const COMMANDS: &[Command] = &[
    command("mon_status", "mon", "r", "State of this monitor", mon_status),
    command("mon dump name=epoch,type=CephInt,range=0,req=false", "mon", "r", "The monitors' map", dump),
    command("mon stat", "mon", "r", "Summary of the monitors", stat),
    command(
        "mon getmap name=epoch,type=CephInt,range=0,req=false",
        "mon",
        "r",
        "The monitors' map, encoded",
        getmap,
    ),
    command(
        "mon metadata name=id,type=CephString,req=false",
        "mon",
        "r",
        "What monitors say of themselves",
        metadata,
    ),
    command(
        "mon count-metadata name=property,type=CephString",
        "mon",
        "r",
        "Monitors by value of one metadata key",
        count_metadata,
    ),
    command("mon versions", "mon", "r", "Versions of monitors", versions),
    command(
        "mon feature ls name=with_value,type=CephChoices,strings=--with-value,req=false",
        "mon",
        "r",
        "Features that monitors know and need",
        feature_ls,
    ),
    command("quorum_status", "mon", "r", "Who the quorum is", quorum_status),
    command("time-sync-status", "mon", "r", "Clocks of the monitors", time_sync_status),
    command("mon ok-to-stop name=ids,type=CephString,n=N", "mon", "r", "Can these monitors stop", ok_to_stop),
];

fn wanted_map(call: &Call<'_>) -> Result<MonMap, super::Failure> {
    let map = call.state.mon.map();
    match call.args.int("epoch") {
        Some(epoch) if epoch != 0 && epoch != i64::from(map.epoch) => {
            fail(Errno::ENOENT, format!("there is no map for epoch {epoch}"))
        }
        _ => Ok(map.clone()),
    }
}

fn dump(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    let tree = show::mon_map(&map).with("quorum", Node::array("mon", quorum_ranks(call.state)));
    let output = call.either("monmap", show::mon_map_text(&map), tree)?;
    Ok(Output { text: format!("dumped monmap epoch {}", map.epoch), ..output })
}

fn getmap(call: &mut Call<'_>) -> Answer {
    let map = wanted_map(call)?;
    let text = format!("got monmap epoch {}", map.epoch);
    Ok(Output { text, ..Output::data(call.state.mon.encoded()) })
}

fn stat(call: &mut Call<'_>) -> Answer {
    let map = call.state.mon.map();
    let mons = show::by_rank(map);
    let addrs: Vec<String> = mons.iter().map(|mon| format!("{}={}", mon.name, mon.addrs)).collect();
    let (leader, ranks) = (call.state.name.as_str(), quorum_ranks(call.state));
    let plain = format!(
        "e{}: {} mons at {{{}}} removed_ranks: {{}}, election epoch {}, leader {} {leader}, quorum {} {}\n",
        map.epoch,
        mons.len(),
        addrs.join(","),
        call.state.quorum.election_epoch(),
        map.rank_of(leader).unwrap_or(0),
        ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        quorum_names(call.state).join(","),
    );
    let members = call.state.quorum.members(map);
    let quorum = members.map(|(rank, name)| Section::new().with("rank", rank).with("name", name));
    let tree = Section::new()
        .with("epoch", map.epoch)
        .with("min_mon_release_name", show::release_name(map.min_mon_release))
        .with("num_mons", mons.len())
        .with("leader", leader)
        .with("quorum", Node::array("mon", quorum));
    call.either("mon_stat", plain, tree)
}

fn metadata_of(call: &Call<'_>, name: &str) -> Section {
    let addrs = call.state.mon.map().mons.get(name).map(|mon| mon.addrs.to_string()).unwrap_or_default();
    let mut section = Section::new().with("addrs", addrs);
    for (key, value) in call.state.monitor_facts.get(name).into_iter().flatten() {
        section.put(key.clone(), value);
    }
    section
}

fn metadata(call: &mut Call<'_>) -> Answer {
    let mons = call.state.mon.map();
    match call.args.text_opt("id") {
        Some(id) if mons.mons.contains_key(id) => call.tree("mon_metadata", metadata_of(call, id)),
        Some(_) => fail(Errno::ENOENT, "requested mon not found"),
        None => {
            let all = mons.ranks.iter().map(|name| {
                let mut section = Section::new().with("name", name);
                section.extend(metadata_of(call, name));
                section
            });
            call.tree("mon_metadata", Node::array("mon", all))
        }
    }
}

fn count_metadata(call: &mut Call<'_>) -> Answer {
    let key = call.args.text("property");
    let value = |name: &String| match metadata_of(call, name).member(key) {
        Some(Node::Text(text)) => text.clone(),
        _ => "unknown".to_owned(),
    };
    let counts = count_values(call.state.mon.map().ranks.iter().map(value));
    call.tree("mon", counts)
}

fn versions(call: &mut Call<'_>) -> Answer {
    let versions = mon_values(call, "ceph_version");
    call.tree("mon", count_values(versions))
}

fn feature_ls(call: &mut Call<'_>) -> Answer {
    let map = call.state.mon.map();
    let with_value = call.args.text_opt("with_value").is_some();
    let of = |bits: u64| -> Vec<String> {
        let value = |name: &str| {
            show::FEATURE_NAMES.iter().position(|known| *known == name).map_or(0, |bit| 1_u64 << bit)
        };
        let show = |name: &'static str| {
            if with_value { format!("{name}({})", value(name)) } else { name.to_owned() }
        };
        show::feature_names(bits).into_iter().map(show).collect()
    };
    let known = of(u64::MAX);
    let all = || Node::array("feature", known.clone());
    let required = of(map.persistent_features | map.optional_features);
    let list = |names: &[String]| {
        format!("[{}]", if names.is_empty() { "none".to_owned() } else { names.join(",") })
    };
    let plain = format!(
        "all features\n\tsupported: {0}\n\tpersistent: {0}\non current monmap (epoch {1})\n\tpersistent: {2}\n\trequired: {3}\n",
        list(&known),
        map.epoch,
        list(&of(map.persistent_features)),
        list(&required),
    );
    let tree =
        Section::new().with("all", Section::new().with("supported", all()).with("persistent", all())).with(
            "monmap",
            Section::new()
                .with("persistent", Node::array("feature", of(map.persistent_features)))
                .with("optional", Node::array("feature", of(map.optional_features)))
                .with("required", Node::array("feature", required)),
        );
    call.either("features", plain, tree)
}

fn quorum_status(call: &mut Call<'_>) -> Answer {
    let map = call.state.mon.map();
    let bits = map.persistent_features | map.optional_features;
    let tree = Section::new()
        .with("election_epoch", call.state.quorum.election_epoch())
        .with("quorum", Node::array("mon", quorum_ranks(call.state)))
        .with("quorum_names", Node::array("mon", quorum_names(call.state)))
        .with("quorum_leader_name", call.state.name.as_str())
        .with("quorum_age", quorum_age(call).as_secs())
        .with(
            "features",
            Section::new()
                .with("quorum_con", features::SUPPORTED.to_string())
                .with("quorum_mon", Node::array("bit_flag", show::feature_names(bits))),
        )
        .with("monmap", show::mon_map(map));
    let format = call.format.or(Format::Json);
    Ok(Output::data(Node::from(tree).render(format, "quorum_status")))
}

/// The answer to a ping of the monitor (`MPing`): JSON with its health and state.
#[must_use]
pub fn ping_answer(state: &State) -> String {
    let tree =
        Section::new().with("health", health_tree(state, false)).with("mon_status", mon_status_tree(state));
    Node::from(tree).render(Format::Json, "pong")
}

fn mon_status_tree(state: &State) -> Section {
    let map = state.mon.map();
    let rank = map.ranks.iter().position(|name| *name == state.name).unwrap_or(0);
    Section::new()
        .with("name", state.name.as_str())
        .with("rank", rank)
        .with("state", "leader")
        .with("election_epoch", state.quorum.election_epoch())
        .with("quorum", Node::array("mon", quorum_ranks(state)))
        .with("outside_quorum", Node::array("mon", Vec::<Node>::new()))
        .with("monmap", show::mon_map(map))
}

/// What managers are told every few seconds: `mon_status` and `health`, as JSON.
#[must_use]
pub(crate) fn digest_texts(state: &State) -> (String, String) {
    let text = |tree: Section, root: &str| Node::from(tree).render(Format::Json, root);
    (text(mon_status_tree(state), "mon_status"), text(health_tree(state, true), "health"))
}

fn mon_status(call: &mut Call<'_>) -> Answer {
    call.tree("mon_status", mon_status_tree(call.state))
}

fn time_sync_status(call: &mut Call<'_>) -> Answer {
    // One monitor has no other to compare its clock with.
    call.tree("time_sync", Section::new().with("timechecks", Section::new()))
}

fn ok_to_stop(call: &mut Call<'_>) -> Answer {
    let map = call.state.mon.map();
    let stopping: Vec<&str> = call.args.list("ids").iter().map(String::as_str).collect();
    if call.state.quorum.outlives(map, &stopping) {
        return super::call::done("quorum should be preserved after stopping these monitors");
    }
    fail(Errno::EBUSY, "not enough monitors would be available after stopping these monitors")
}
