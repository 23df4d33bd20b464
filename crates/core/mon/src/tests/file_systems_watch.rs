//! Metadata servers under supervision: who is given up and when, who takes over, how ranks come and go.

use super::file_systems::{SECOND, Server, fs, make_fs, map, refused, told, world_with_fs};
use super::{ADMIN, World};
use nacre_msg::mds_state as state;
use nacre_types::{EntityAddr, Errno};

/// `count` seconds in which these servers send their beacons.
fn live(world: &mut World, count: u64, servers: &mut [&mut Server]) {
    for second in 0..count {
        world.pass(SECOND);
        if second % 4 == 0 {
            servers.iter_mut().for_each(|server| server.send(world));
        }
    }
}

/// A file system with an active server `m` and one in waiting, `n`.
fn world_with_two() -> (World, super::SessionId, Server, Server) {
    let (mut world, admin) = world_with_fs();
    let mut m = Server::start(&mut world, "m");
    world.pass(SECOND);
    m.becomes_active(&mut world);
    let n = Server::start(&mut world, "n");
    live(&mut world, 1, &mut []);
    (world, admin, m, n)
}

fn is_shut_out(world: &World, server: &Server) -> bool {
    let port = 7500 + server.session.0;
    let addr = EntityAddr::parse(&format!("v2:127.0.0.1:{port}/7")).expect("an address");
    world.map().is_blocklisted(&addr)
}

#[test]
fn a_silent_server_is_replaced_after_the_grace_and_shut_out() {
    let (mut world, _, m, mut n) = world_with_two();
    live(&mut world, 13, &mut [&mut n]);
    assert_eq!((m.state(&world), is_shut_out(&world, &m)), (state::ACTIVE, false));
    live(&mut world, 3, &mut [&mut n]);
    assert_eq!((m.state(&world), n.state(&world), n.rank(&world)), (state::DNE, state::REPLAY, 0));
    assert!(is_shut_out(&world, &m));
    let a = fs(&world, "a");
    assert_eq!(a.last_failure_osd_epoch, world.map().epoch, "who takes over waits for this map");
    assert!(a.failed.is_empty() && a.up.get(&0) == Some(&n.beacon.global_id));
    n.becomes_active(&mut world);
    world.check();
}

#[test]
fn the_grace_is_an_option() {
    let (mut world, admin, m, mut n) = world_with_two();
    told(
        &mut world,
        admin,
        r#"{"prefix":"config set","who":"global","name":"mds_beacon_grace","value":"60"}"#,
    );
    live(&mut world, 50, &mut [&mut n]);
    assert_eq!(m.state(&world), state::ACTIVE);
    live(&mut world, 12, &mut [&mut n]);
    assert_eq!(m.state(&world), state::DNE);
}

#[test]
fn where_nobody_can_take_over_a_silent_server_stays_and_is_laggy() {
    let (mut world, _) = world_with_fs();
    let mut m = Server::start(&mut world, "m");
    let mut other = Server::start(&mut world, "other");
    world.pass(SECOND);
    m.becomes_active(&mut world);
    let wide = nacre_maps::Compat::default();
    world.mon.state.fs.update(world.wall, |change| {
        change.server(other.beacon.global_id, |info| info.compat = wide);
    });
    world.settle();
    live(&mut world, 17, &mut [&mut other]);
    let laggy = |world: &World| map(world).server(m.beacon.global_id).map(nacre_maps::MdsInfo::is_laggy);
    assert_eq!((m.state(&world), laggy(&world)), (state::ACTIVE, Some(true)));
    assert!(!is_shut_out(&world, &m));
    m.send(&mut world);
    assert_eq!(
        map(&world).server(m.beacon.global_id).map(nacre_maps::MdsInfo::is_laggy),
        Some(false),
        "it is heard again"
    );
}

/// The kernel closes the connections of a dead process.
#[test]
fn a_dead_servers_rank_is_taken_over_within_four_seconds() {
    let (mut world, _, m, mut n) = world_with_two();
    live(&mut world, 11, &mut [&mut n]);
    let (m_gid, n_gid) = (m.beacon.global_id, n.beacon.global_id);
    world.mon.state.fs.heard.beacons.insert(m_gid, world.now);
    m.dies(&mut world);
    live(&mut world, 2, &mut [&mut n]);
    assert_eq!(fs(&world, "a").up.get(&0), Some(&m_gid), "its connection may have been cut");
    live(&mut world, 2, &mut [&mut n]);
    assert_eq!(fs(&world, "a").up.get(&0), Some(&n_gid));
    assert!(is_shut_out(&world, &m));
}

#[test]
fn a_server_whose_connection_was_cut_stays() {
    let (mut world, _, mut m, mut n) = world_with_two();
    live(&mut world, 11, &mut [&mut m, &mut n]);
    m.dies(&mut world);
    live(&mut world, 2, &mut [&mut n]);
    m.reconnects(&mut world);
    live(&mut world, 10, &mut [&mut m, &mut n]);
    assert_eq!((m.state(&world), m.rank(&world)), (state::ACTIVE, 0));
}

/// Nobody takes a rank that cannot be reached itself.
#[test]
fn a_standby_without_a_session_takes_nothing_over() {
    let (mut world, admin, mut m, n) = world_with_two();
    n.dies(&mut world);
    told(&mut world, admin, r#"{"prefix":"mds fail","role_or_gid":"a:0"}"#);
    assert_eq!((m.state(&world), n.rank(&world)), (state::DNE, -1));
    assert!(fs(&world, "a").failed.contains(&0) && is_shut_out(&world, &m));
    m = Server::start(&mut world, "m");
    world.pass(SECOND);
    assert_eq!((m.state(&world), m.rank(&world)), (state::REPLAY, 0));
}

/// A new leader has heard nobody, and takes that for no answer.
#[test]
fn a_new_leader_gives_nobody_up_before_servers_had_time_to_find_it() {
    let (mut world, _, mut m, mut n) = world_with_two();
    let epoch = map(&world).epoch;
    world.restart();
    world.pass(SECOND * 9);
    assert_eq!((map(&world).epoch, m.rank(&world)), (epoch, 0));
    m.reconnects(&mut world);
    n.reconnects(&mut world);
    live(&mut world, 20, &mut [&mut m, &mut n]);
    assert_eq!((m.state(&world), n.state(&world)), (state::ACTIVE, state::STANDBY));
    // One that has not come back by then is replaced.
    world.restart();
    n.reconnects(&mut world);
    live(&mut world, 14, &mut [&mut n]);
    assert_eq!((m.rank(&world), n.rank(&world)), (-1, 0));
}

/// A monitor that was frozen has missed beacons.
#[test]
fn a_monitor_that_was_not_there_itself_waits_anew() {
    let (mut world, _, mut m, mut n) = world_with_two();
    world.now = world.now + SECOND * 100;
    world.wall = world.wall.after(SECOND * 100);
    world.pass(SECOND);
    assert_eq!((m.state(&world), n.state(&world)), (state::ACTIVE, state::STANDBY));
    live(&mut world, 20, &mut [&mut m, &mut n]);
    assert_eq!(m.state(&world), state::ACTIVE);
}

/// When no server at all is heard, the way to this monitor may be the fault. Health says it nevertheless: files cannot be reached.
#[test]
fn where_nobody_is_heard_nobody_is_replaced_and_health_says_so() {
    let (mut world, admin, mut m, mut n) = world_with_two();
    let checks = |world: &mut World| {
        ["MDS_ALL_DOWN", "FS_DEGRADED", "MDS_INSUFFICIENT_STANDBY"]
            .map(|code| world.health_check(admin, code).map(|(_, _, lines)| lines))
    };
    live(&mut world, 2, &mut [&mut m, &mut n]);
    assert_eq!(checks(&mut world), [None, None, None]);
    world.pass(SECOND * 40);
    assert_eq!((m.rank(&world), n.rank(&world)), (0, -1));
    let laggy: Vec<bool> = map(&world).servers().map(nacre_maps::MdsInfo::is_laggy).collect();
    assert_eq!(laggy, [true, true]);
    let said = |line: &str| Some(vec![line.to_owned()]);
    assert_eq!(
        checks(&mut world),
        [
            said("fs a is offline because no MDS is active for it."),
            said("fs a is degraded: mds.m of rank 0 sends no beacons"),
            said("have 0; want 1 more"),
        ]
    );
    live(&mut world, 1, &mut [&mut m, &mut n]);
    assert_eq!(checks(&mut world), [None, None, None]);
}

#[test]
fn a_silent_standby_leaves_the_map() {
    let (mut world, _, mut m, n) = world_with_two();
    live(&mut world, 17, &mut [&mut m]);
    assert_eq!((m.state(&world), n.state(&world)), (state::ACTIVE, state::DNE));
    assert!(!is_shut_out(&world, &n), "it writes nothing");
    assert_eq!(world.mon.state().fs.metadata(n.beacon.global_id), None);
}

#[test]
fn a_server_that_leaves_says_so_and_is_replaced_at_once() {
    let (mut world, admin, mut m, mut n) = world_with_two();
    m.wants(&mut world, state::DNE);
    assert_eq!(m.state(&world), state::DNE);
    world.pass(SECOND);
    assert_eq!(n.rank(&world), 0);
    n.becomes_active(&mut world);
    assert_eq!(fs(&world, "a").in_ranks, [0].into());
    let stat = world.ask(admin, r#"{"prefix":"mds stat"}"#).expect("an answer").data.to_bytes();
    assert_eq!(String::from_utf8_lossy(&stat), "a:1 {0=n=up:active}");
}

#[test]
fn frozen_servers_are_neither_replaced_nor_promoted() {
    let (mut world, admin, m, mut n) = world_with_two();
    for (who, val) in [("m", "true"), ("n", "true")] {
        told(&mut world, admin, &format!(r#"{{"prefix":"mds freeze","role_or_gid":"{who}","val":"{val}"}}"#));
    }
    live(&mut world, 20, &mut [&mut n]);
    assert_eq!(m.rank(&world), 0);
    told(&mut world, admin, r#"{"prefix":"mds freeze","role_or_gid":"m","val":"no"}"#);
    live(&mut world, 2, &mut [&mut n]);
    assert_eq!((m.rank(&world), n.rank(&world)), (0, -1), "n is still frozen");
    told(&mut world, admin, r#"{"prefix":"mds freeze","role_or_gid":"n","val":"no"}"#);
    live(&mut world, 2, &mut [&mut n]);
    assert_eq!((m.rank(&world), n.rank(&world)), (-1, 0));
}

#[test]
fn ranks_come_and_go_with_max_mds() {
    let (mut world, admin, mut m, mut n) = world_with_two();
    let set = |world: &mut World, count: i32| {
        told(
            world,
            admin,
            &format!(r#"{{"prefix":"fs set","fs_name":"a","var":"max_mds","val":"{count}"}}"#),
        );
    };
    set(&mut world, 2);
    assert_eq!((n.state(&world), n.rank(&world)), (state::CREATING, 1));
    assert_eq!(refused(&mut world, admin, r#"{"prefix":"mds ok-to-stop","ids":["n"]}"#), Errno::EBUSY.0);
    n.becomes_active(&mut world);
    set(&mut world, 1);
    assert_eq!((m.state(&world), n.state(&world)), (state::ACTIVE, state::STOPPING));
    n.wants(&mut world, state::ACTIVE);
    assert_eq!(n.state(&world), state::STOPPING, "there is no way back");
    world.take(n.session);
    n.wants(&mut world, state::STOPPED);
    assert_eq!(n.state(&world), state::DNE);
    assert!(n.maps(&mut world).iter().any(|map| map.mds_info.is_empty()), "it starts anew");
    assert_eq!((fs(&world, "a").stopped.clone(), fs(&world, "a").in_ranks.clone()), ([1].into(), [0].into()));
    let mut again = Server::start(&mut world, "n");
    set(&mut world, 2);
    assert_eq!((again.state(&world), again.rank(&world)), (state::STARTING, 1));
    again.becomes_active(&mut world);
    told(&mut world, admin, r#"{"prefix":"fs set","fs_name":"a","var":"down","val":"true"}"#);
    world.pass(SECOND);
    again.wants(&mut world, state::STOPPED);
    world.pass(SECOND);
    assert_eq!(m.state(&world), state::STOPPING);
    m.wants(&mut world, state::STOPPED);
    assert!(fs(&world, "a").up.is_empty() && fs(&world, "a").in_ranks.is_empty());
}

#[test]
fn a_server_follows_the_journal_and_takes_over_first() {
    let (mut world, admin, m, mut n) = world_with_two();
    told(&mut world, admin, r#"{"prefix":"fs set","fs_name":"a","var":"allow_standby_replay","val":"1"}"#);
    assert_eq!((n.state(&world), n.rank(&world)), (state::STANDBY_REPLAY, 0));
    let mut other = Server::start(&mut world, "other");
    n.beacon.state = state::STANDBY_REPLAY;
    live(&mut world, 5, &mut [&mut n, &mut other]);
    told(&mut world, admin, r#"{"prefix":"mds ok-to-stop","ids":["m"]}"#);
    told(&mut world, admin, r#"{"prefix":"mds fail","role_or_gid":"0"}"#);
    assert_eq!((m.state(&world), n.state(&world), other.rank(&world)), (state::DNE, state::REPLAY, -1));
    n.becomes_active(&mut world);
    world.pass(SECOND);
    assert_eq!((other.state(&world), other.rank(&world)), (state::STANDBY_REPLAY, 0));
    told(&mut world, admin, r#"{"prefix":"fs set","fs_name":"a","var":"allow_standby_replay","val":"0"}"#);
    assert_eq!((n.state(&world), other.state(&world)), (state::ACTIVE, state::DNE), "it starts anew to wait");
    assert!(!is_shut_out(&world, &other));
}

#[test]
fn a_server_that_prefers_a_file_system_displaces_one_that_does_not() {
    let (mut world, _, mut m, mut n) = world_with_two();
    n.beacon.fs = "a".to_owned();
    n.send(&mut world);
    world.pass(SECOND);
    assert_eq!((m.state(&world), n.rank(&world)), (state::DNE, 0));
    n.becomes_active(&mut world);
    m = Server::start(&mut world, "m");
    live(&mut world, 5, &mut [&mut m, &mut n]);
    assert_eq!((m.rank(&world), n.rank(&world)), (-1, 0), "it stays so");
}

#[test]
fn damaged_ranks_wait_for_operators() {
    let (mut world, admin, mut m, n) = world_with_two();
    m.wants(&mut world, state::DAMAGED);
    world.pass(SECOND * 3);
    assert_eq!((m.state(&world), n.rank(&world)), (state::DNE, -1));
    assert!(fs(&world, "a").damaged.contains(&0) && is_shut_out(&world, &m));
    assert_eq!(refused(&mut world, admin, r#"{"prefix":"mds repaired","role":"a:7"}"#), Errno::ENOENT.0);
    told(&mut world, admin, r#"{"prefix":"mds repaired","role":"a:0"}"#);
    assert_eq!((n.state(&world), n.rank(&world)), (state::REPLAY, 0));
    assert_eq!(
        told(&mut world, admin, r#"{"prefix":"mds repaired","role":"a:0"}"#),
        "nothing to do: rank is not damaged"
    );
}

#[test]
fn a_failed_file_system_stays_down_until_it_is_joinable_and_only_then_goes() {
    let (mut world, admin, m, mut n) = world_with_two();
    let rm = r#"{"prefix":"fs rm","fs_name":"a","yes_i_really_mean_it":true}"#;
    assert_eq!(refused(&mut world, admin, rm), Errno::EINVAL.0);
    told(&mut world, admin, r#"{"prefix":"fs fail","fs_name":"a"}"#);
    live(&mut world, 5, &mut [&mut n]);
    assert_eq!((m.state(&world), n.rank(&world)), (state::DNE, -1));
    assert_eq!(refused(&mut world, admin, r#"{"prefix":"fs rm","fs_name":"a"}"#), Errno::EPERM.0);
    told(&mut world, admin, r#"{"prefix":"fs set","fs_name":"a","var":"joinable","val":"true"}"#);
    assert_eq!(n.state(&world), state::REPLAY);
    told(&mut world, admin, r#"{"prefix":"fs fail","fs_name":"a"}"#);
    told(&mut world, admin, r#"{"prefix":"fs reset","fs_name":"a","yes_i_really_mean_it":true}"#);
    assert_eq!((fs(&world, "a").failed.clone(), fs(&world, "a").flags & 1), ([0].into(), 0));
    told(&mut world, admin, r#"{"prefix":"fs fail","fs_name":"a"}"#);
    told(&mut world, admin, r#"{"prefix":"mds rmfailed","role":"a:0","yes_i_really_mean_it":true}"#);
    assert!(fs(&world, "a").failed.is_empty());
    let compat =
        r#"{"prefix":"fs compat","fs_name":"a","subop":"add_compat","feature":20,"feature_str":"x"}"#;
    told(&mut world, admin, compat);
    assert_eq!(fs(&world, "a").compat.compat.get(&20).map(String::as_str), Some("x"));
    told(&mut world, admin, rm);
    assert!(map(&world).filesystems.is_empty());
    told(&mut world, admin, rm);
}

#[test]
fn several_file_systems_have_servers_of_their_own() {
    let (mut world, admin, m, mut n) = world_with_two();
    make_fs(&mut world, admin, "b");
    assert_eq!(
        (n.state(&world), map(&world).file_system_of(n.beacon.global_id).map(|fs| fs.fscid)),
        (state::CREATING, Some(2))
    );
    n.becomes_active(&mut world);
    let stat = world.ask(admin, r#"{"prefix":"mds stat"}"#).expect("an answer").data.to_bytes();
    assert_eq!(String::from_utf8_lossy(&stat), "a:1 b:1 {a:0=m=up:active,b:0=n=up:active}");
    told(&mut world, admin, r#"{"prefix":"mds fail","role_or_gid":"b:0"}"#);
    assert_eq!((m.rank(&world), n.state(&world)), (0, state::DNE));
    let checks = world.checks(admin);
    assert_eq!(checks["FS_DEGRADED"]["detail"][0]["message"], "fs b is degraded");
}

/// Ranks that were freed while this monitor did not lead are given away by the next leader, too.
#[test]
fn the_map_and_what_is_shut_out_are_one_batch() {
    let (mut world, admin, m, n) = world_with_two();
    world.commits_complete = false;
    world.command(admin, r#"{"prefix":"mds fail","role_or_gid":"m"}"#);
    let batch = world.waiting_batch.clone().expect("a batch");
    let tables: Vec<&str> = batch.ops().iter().map(|op| &*op.prefix).collect();
    assert!(tables.contains(&"fsmap") && tables.iter().any(|table| table.starts_with("osd")), "{tables:?}");
    assert!(n.maps(&mut world).is_empty(), "nobody hears of it before it is durable");
    world.kv.apply(&batch);
    world.commits_complete = true;
    world.restart();
    assert_eq!((m.state(&world), n.rank(&world), is_shut_out(&world, &m)), (state::DNE, 0, true));
    let _ = world.connect(ADMIN);
}

#[test]
fn who_is_shut_out_and_who_was_heard_follows_the_options() {
    let set = |world: &mut World, admin, option: &str, value: &str| {
        let ask = format!(r#"{{"prefix":"config set","who":"mon","name":"{option}","value":"{value}"}}"#);
        told(world, admin, &ask);
    };
    let (mut world, admin, m, mut n) = world_with_two();
    set(&mut world, admin, "mon_mds_blocklist_interval", "7200");
    live(&mut world, 16, &mut [&mut n]);
    assert!(is_shut_out(&world, &m));
    let left: Vec<_> = world.map().blocklist.values().map(|until| until.since(world.wall)).collect();
    assert!(left.iter().all(|left| (7190..=7200).contains(&left.as_secs())), "{left:?}");
    // A monitor that looks less often than servers send knows nothing of those that it did not hear.
    let (mut world, admin, m, mut n) = world_with_two();
    set(&mut world, admin, "mds_beacon_interval", "15");
    live(&mut world, 40, &mut [&mut n]);
    assert_eq!((m.state(&world), is_shut_out(&world, &m)), (state::ACTIVE, false));
}
