//! Who of the monitors may lead: `mon set election_strategy`, `mon add|rm disallowed_leader`. One that may not is a witness: it votes and keeps
//! what is committed, as a third site needs it that is far away or small.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::table::{Command, command};
use nacre_maps::{STRATEGY_CLASSIC, STRATEGY_DISALLOW};
use nacre_types::Errno;
use std::collections::BTreeSet;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "mon set election_strategy name=strategy,type=CephString",
        "mon",
        "rw",
        "How the monitors elect: classic, or disallow, where some may not lead",
        set_strategy,
    ),
    command(
        "mon add disallowed_leader name=name,type=CephString",
        "mon",
        "rw",
        "A monitor may not lead any more; it still votes",
        add_disallowed,
    ),
    command(
        "mon rm disallowed_leader name=name,type=CephString",
        "mon",
        "rw",
        "A monitor may lead again",
        rm_disallowed,
    ),
];

fn strategy_name(strategy: u8) -> &'static str {
    if strategy == STRATEGY_CLASSIC { "classic" } else { "disallow" }
}

fn set_strategy(call: &mut Call<'_>) -> Answer {
    let wanted = match call.args.text("strategy") {
        "classic" => STRATEGY_CLASSIC,
        "disallow" => STRATEGY_DISALLOW,
        "connectivity" => {
            return fail(
                Errno::EOPNOTSUPP,
                "connectivity is not built: a leader that a majority does not hear steps down by itself, and another is elected",
            );
        }
        other => {
            return fail(
                Errno::EINVAL,
                format!("'{other}' is no strategy of elections: give classic or disallow"),
            );
        }
    };
    let map = call.state.mon.map();
    let mut next = map.clone();
    next.strategy = wanted;
    if !call.state.quorum.has_candidate(&next, &[]) {
        return fail(Errno::EINVAL, nobody("the monitors that the strategy disallows"));
    }
    if map.strategy != wanted {
        call.state.mon.set_election(wanted, next.disallowed_leaders, call.wall);
    }
    done(format!("monitors are elected by the strategy {}", strategy_name(wanted)))
}

fn nobody(without: &str) -> String {
    format!("without {without} no monitor of the quorum may lead, and the cluster would have no leader again")
}

fn known_name(call: &Call<'_>) -> Result<String, Failure> {
    let name = call.args.text("name");
    if !call.state.mon.map().mons.contains_key(name) {
        return Err(refuse(Errno::ENOENT, format!("there is no mon.{name}")));
    }
    Ok(name.to_owned())
}

fn add_disallowed(call: &mut Call<'_>) -> Answer {
    let name = known_name(call)?;
    let map = call.state.mon.map();
    if map.strategy == STRATEGY_CLASSIC {
        let text =
            "the strategy classic lets each monitor lead; first: ceph mon set election_strategy disallow";
        return fail(Errno::EINVAL, text);
    }
    if !call.state.quorum.has_candidate(map, &[&name]) {
        return fail(Errno::EINVAL, nobody(&format!("mon.{name}")));
    }
    let mut disallowed = map.disallowed_leaders.clone();
    if disallowed.insert(name.clone()) {
        call.state.mon.set_election(map.strategy, disallowed, call.wall);
    }
    done(format!("mon.{name} votes, and does not lead"))
}

/// A new monitor, which has no vote yet, may not lead from the beginning.
pub(super) fn disallow(call: &mut Call<'_>, name: &str) {
    let map = call.state.mon.map();
    // Under the classic strategy those that are named may lead all the same, and go on to.
    let mut disallowed =
        if map.strategy == STRATEGY_CLASSIC { BTreeSet::new() } else { map.disallowed_leaders.clone() };
    disallowed.insert(name.to_owned());
    call.state.mon.set_election(STRATEGY_DISALLOW, disallowed, call.wall);
}

fn rm_disallowed(call: &mut Call<'_>) -> Answer {
    let name = known_name(call)?;
    let map = call.state.mon.map();
    let mut disallowed = map.disallowed_leaders.clone();
    if disallowed.remove(&name) {
        call.state.mon.set_election(map.strategy, disallowed, call.wall);
    }
    done(format!("mon.{name} may lead"))
}
