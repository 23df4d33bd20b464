//! Monitors are added, removed, moved, and join; by commands.

use super::{ADMIN, World, addr};
use crate::event::SessionId;
use crate::seed::{MONITOR_VERSION, Seed};
use crate::{MonitorView, QuorumView};
use nacre_denc::Decode;
use nacre_types::{Errno, UTime};

fn alone() -> (World, SessionId) {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    (world, admin)
}

/// Result and text of a command.
fn ask(world: &mut World, admin: SessionId, prefix: &str, rest: &str) -> (i32, String) {
    let ack = world.ask(admin, &format!(r#"{{"prefix":"{prefix}"{rest}}}"#)).expect("an answer");
    (ack.result, ack.status)
}

fn named(name: &str) -> String {
    format!(r#","name":"{name}""#)
}

fn at(name: &str, addr: &str) -> String {
    format!(r#","name":"{name}","addr":"{addr}""#)
}

/// The leader is a; of the others it knows this.
fn set_view(world: &mut World, others: &[(&str, MonitorView)]) {
    let mut view = QuorumView::of_all(world.mon.state().mon.map(), 7, UTime::default());
    view.monitors.extend(others.iter().map(|(name, monitor)| ((*name).to_owned(), *monitor)));
    world.mon.set_quorum(view);
}

const HERE: MonitorView = MonitorView {
    is_in_quorum: true,
    is_learner: false,
    is_heard: true,
    clock_skew_s: None,
    latency_s: 0.0,
    disk_avail_percent: None,
};
const AWAY: MonitorView = MonitorView { is_in_quorum: false, is_heard: false, ..HERE };
const LEARNS: MonitorView = MonitorView { is_in_quorum: false, is_learner: true, ..HERE };

#[test]
fn a_monitor_is_added_with_its_address_and_place() {
    let (mut world, admin) = alone();
    let place = r#","location":["datacenter=north"]"#;
    let (result, text) = ask(&mut world, admin, "mon add", &(at("b", "10.0.0.2") + place));
    assert_eq!(result, 0, "{text}");
    let (map, members) = (world.mon.state().mon.map(), world.mon.state().mon.members());
    let mon = &map.mons["b"];
    assert_eq!((map.epoch, mon.addrs.to_string()), (2, "v2:10.0.0.2:3300/0".to_owned()));
    assert_eq!((map.rank_of("b"), members.id_of("b")), (Some(1), Some(2)));
    assert_eq!(mon.crush_location["datacenter"], "north");
    // Again, as Ceph answers it.
    assert_eq!(ask(&mut world, admin, "mon add", &at("b", "v2:10.0.0.2:3300/0")).0, 0);
    assert_eq!(ask(&mut world, admin, "mon add", &at("b", "10.0.0.3")).0, Errno::EEXIST.negated());
    assert_eq!(ask(&mut world, admin, "mon add", &at("c", "10.0.0.2:6789")).0, Errno::EEXIST.negated());
    assert_eq!(world.mon.state().mon.map().epoch, 2);
}

#[test]
fn what_is_no_monitor_is_not_added() {
    let (mut world, admin) = alone();
    for wrong in [
        at("b", "v1:10.0.0.2:6789"),
        at("b", "0.0.0.0:3300"),
        at("b", "elsewhere"),
        at("", "10.0.0.2"),
        at("../b", "10.0.0.2"),
        at(&"b".repeat(65), "10.0.0.2"),
        at("b", "10.0.0.2") + r#","location":["north"]"#,
        named("b"),
    ] {
        let (result, text) = ask(&mut world, admin, "mon add", &wrong);
        assert_eq!(result, Errno::EINVAL.negated(), "{wrong}: {text}");
    }
    for n in 2..=crate::monmap::MONS_MAX {
        assert_eq!(ask(&mut world, admin, "mon add", &at(&format!("m{n}"), &format!("10.0.1.{n}"))).0, 0);
    }
    assert_eq!(ask(&mut world, admin, "mon add", &at("more", "10.0.2.1")).0, Errno::EINVAL.negated());
}

#[test]
fn a_monitor_without_whom_nothing_would_go_on_is_not_removed() {
    let (mut world, admin) = alone();
    let refused = |world: &mut World, prefix: &str, rest: &str, errno: Errno| {
        let (result, text) = ask(world, admin, prefix, rest);
        assert_eq!(result, errno.negated(), "{prefix} {rest}: {text}");
    };
    refused(&mut world, "mon rm", &named("a"), Errno::EINVAL);
    assert_eq!(ask(&mut world, admin, "mon rm", &named("z")).0, 0, "it is not there, as in Ceph");
    for (name, port) in [("b", 3301), ("c", 3302)] {
        world.mon.state.mon.add(name, addr(port), world.wall);
    }
    let sure = r#","yes_i_really_mean_it":true"#;
    // Nobody but a has a vote: there is nothing to force.
    set_view(&mut world, &[("b", LEARNS), ("c", LEARNS)]);
    refused(&mut world, "mon rm", &(named("a") + sure), Errno::EBUSY);
    // c is away: without b, a would be no majority.
    set_view(&mut world, &[("b", HERE), ("c", AWAY)]);
    refused(&mut world, "mon rm", &named("b"), Errno::EBUSY);
    refused(&mut world, "mon remove", &named("a"), Errno::EBUSY);
    refused(&mut world, "mon ok-to-rm", r#","id":"b""#, Errno::EBUSY);
    assert_eq!(ask(&mut world, admin, "mon ok-to-rm", r#","id":"c""#).0, 0);
    assert_eq!(world.mon.state().mon.map().mons.len(), 3);
    assert_eq!(ask(&mut world, admin, "mon rm", &named("c")).0, 0, "it is away");
    let map = world.mon.state().mon.map();
    let removed: Vec<u32> = map.removed_ranks.iter().copied().collect();
    assert_eq!((map.ranks.join(","), removed), ("a,b".to_owned(), vec![2]));
    assert!(world.mon.state().mon.members().is_gone(3));
    // Two that are there: one of them may go, be it the leader.
    assert_eq!(ask(&mut world, admin, "mon rm", &named("a")).0, 0);
    assert_eq!(world.mon.state().mon.map().ranks, ["b"]);
}

#[test]
fn one_who_is_sure_may_remove_it_all_the_same() {
    let (mut world, admin) = alone();
    for (name, port) in [("b", 3301), ("c", 3302)] {
        world.mon.state.mon.add(name, addr(port), world.wall);
    }
    set_view(&mut world, &[("b", HERE), ("c", AWAY)]);
    let sure = named("b") + r#","yes_i_really_mean_it":true"#;
    assert_eq!(ask(&mut world, admin, "mon rm", &sure).0, 0);
    assert!(world.mon.state().mon.members().is_gone(2));
}

#[test]
fn a_monitor_has_no_vote_until_it_has_all_data() {
    let (mut world, admin) = alone();
    assert_eq!(ask(&mut world, admin, "mon add", &at("b", "10.0.0.2")).0, 0);
    // Before anything is known of it, and while it gets its data.
    assert_eq!(ask(&mut world, admin, "mon ok-to-stop", r#","ids":["b"]"#).0, 0);
    set_view(&mut world, &[("b", LEARNS)]);
    assert_eq!(ask(&mut world, admin, "mon ok-to-stop", r#","ids":["b"]"#).0, 0);
    assert_eq!(ask(&mut world, admin, "mon ok-to-stop", r#","ids":["a"]"#).0, Errno::EBUSY.negated());
    set_view(&mut world, &[("b", HERE)]);
    assert_eq!(ask(&mut world, admin, "mon ok-to-stop", r#","ids":["b"]"#).0, Errno::EBUSY.negated());
    assert_eq!(ask(&mut world, admin, "mon ok-to-add-offline", "").0, 0);
}

#[test]
fn a_monitor_gets_another_address() {
    let (mut world, admin) = alone();
    world.mon.state.mon.add("b", addr(3301), world.wall);
    let to = |name: &str, addrs: &str| format!(r#","name":"{name}","addrs":"{addrs}""#);
    assert_eq!(
        ask(&mut world, admin, "mon set-addrs", &to("z", "v2:10.0.0.2:3300")).0,
        Errno::ENOENT.negated()
    );
    for wrong in ["10.0.0.2", "v2:10.0.0.2:0", "x", "[v2:10.0.0.2:3300,v1:10.0.0.2:6789]"] {
        let (result, text) = ask(&mut world, admin, "mon set-addrs", &to("b", wrong));
        assert_eq!(result, Errno::EINVAL.negated(), "{wrong}: {text}");
    }
    let before = world.mon.state().mon.map().epoch;
    assert_eq!(ask(&mut world, admin, "mon set-addrs", &to("b", "[v2:10.0.0.2:3300/0]")).0, 0);
    assert_eq!(ask(&mut world, admin, "mon set-addrs", &to("a", "10.0.0.2:3300")).0, Errno::EEXIST.negated());
    let mons = world.mon.state().mon.map();
    assert_eq!((mons.epoch, mons.mons["b"].addrs.to_string()), (before + 1, "v2:10.0.0.2:3300/0".to_owned()));
    assert_eq!(world.mon.state().mon.members().id_of("b"), Some(2), "the same member");
}

#[test]
fn a_monitor_joins_as_a_new_member_and_one_that_runs_does_not() {
    let (mut world, admin) = alone();
    let join = |world: &mut World, rest: &str| {
        let ack = world.ask(admin, &format!(r#"{{"prefix":"mon join"{rest}}}"#)).expect("an answer");
        let seed =
            (ack.result == 0).then(|| Seed::from_bytes(ack.data.to_bytes()).expect("its own encoding"));
        seed.ok_or(ack.result)
    };
    assert_eq!(join(&mut world, &named("b")), Err(Errno::EINVAL.negated()), "where?");
    let seed = join(&mut world, &at("b", "10.0.0.2")).expect("a seed");
    assert_eq!(
        (seed.members.id_of("b"), seed.map.ranks.join(","), seed.version),
        (Some(2), "a,b".to_owned(), MONITOR_VERSION)
    );
    assert_eq!(&seed.map, world.mon.state().mon.map());
    // It has lost its store: it comes back where it was, as another member.
    set_view(&mut world, &[("b", AWAY)]);
    let seed = join(&mut world, &named("b")).expect("a seed");
    assert_eq!(
        (seed.members.id_of("b"), seed.map.mons["b"].addrs.to_string()),
        (Some(3), "v2:10.0.0.2:3300/0".to_owned())
    );
    assert!(seed.members.is_gone(2));
    for runs in [HERE, LEARNS] {
        set_view(&mut world, &[("b", runs)]);
        assert_eq!(join(&mut world, &named("b")), Err(Errno::EBUSY.negated()));
    }
    assert_eq!(join(&mut world, &named("a")), Err(Errno::EBUSY.negated()), "the leader");
    // Whoever may only read gets no place.
    world.add_client("client.reader", "allow rw", "");
    let reader = world.connect("client.reader");
    let ack = world.ask(reader, r#"{"prefix":"mon join","name":"c","addr":"10.0.0.3"}"#).expect("an answer");
    assert_eq!(ack.result, Errno::EACCES.negated());
}

fn election(world: &World) -> (u8, Vec<&str>) {
    let map = world.mon.state().mon.map();
    (map.strategy, map.disallowed_leaders.iter().map(String::as_str).collect())
}

#[test]
fn some_monitors_may_not_lead() {
    let (mut world, admin) = alone();
    for (name, port) in [("b", 3301), ("c", 3302)] {
        world.mon.state.mon.add(name, addr(port), world.wall);
    }
    set_view(&mut world, &[("b", HERE), ("c", AWAY)]);
    let order = |world: &mut World, prefix: &str, rest: &str| ask(world, admin, prefix, rest).0;
    let strategy = |name: &str| format!(r#","strategy":"{name}""#);
    assert_eq!(
        order(&mut world, "mon add disallowed_leader", &named("b")),
        Errno::EINVAL.negated(),
        "classic"
    );
    assert_eq!(order(&mut world, "mon set election_strategy", &strategy("disallow")), 0);
    assert_eq!(order(&mut world, "mon set election_strategy", &strategy("lots")), Errno::EINVAL.negated());
    let connectivity = order(&mut world, "mon set election_strategy", &strategy("connectivity"));
    assert_eq!(connectivity, Errno::EOPNOTSUPP.negated());
    assert_eq!(order(&mut world, "mon add disallowed_leader", &named("z")), Errno::ENOENT.negated());
    assert_eq!(order(&mut world, "mon add disallowed_leader", &named("b")), 0);
    assert_eq!(election(&world), (2, vec!["b"]));
    // c is away: without a nobody would be left that may lead.
    assert_eq!(order(&mut world, "mon add disallowed_leader", &named("a")), Errno::EINVAL.negated());
    let sure = named("a") + r#","yes_i_really_mean_it":true"#;
    assert_eq!(order(&mut world, "mon rm", &sure), Errno::EBUSY.negated());
    assert_eq!(order(&mut world, "mon rm disallowed_leader", &named("b")), 0);
    assert_eq!(election(&world), (2, vec![]));
    assert_eq!(order(&mut world, "mon add disallowed_leader", &named("a")), 0);
    assert_eq!(order(&mut world, "mon rm", &sure), 0);
    assert_eq!(election(&world), (2, vec![]), "it went with its name");
}

#[test]
fn a_witness_joins_as_one() {
    let (mut world, admin) = alone();
    let witness = at("w", "10.0.0.9") + r#","witness":true"#;
    assert_eq!(ask(&mut world, admin, "mon join", &witness).0, 0);
    assert_eq!(election(&world), (2, vec!["w"]));
    let (result, text) = ask(&mut world, admin, "mon dump", "");
    assert_eq!(result, 0, "{text}");
}
