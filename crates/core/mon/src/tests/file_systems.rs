//! File systems under our monitor: how they are made and changed, what metadata servers are told and asked, who sees which map.

use super::{ADMIN, World, json, name};
use crate::event::SessionId;
use nacre_auth::ClientAuth;
use nacre_denc::Decode;
use nacre_maps::{Compat, FsMap, MdsMap};
use nacre_msg::{MdsBeacon, MdsHealthMetric, MdsLoadTargets, Message, mds_state as state};
use nacre_types::{Epoch, Errno};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// A stock metadata server: its session with the monitor, and what it says.
pub(super) struct Server {
    pub(super) session: SessionId,
    pub(super) beacon: MdsBeacon,
    auth: ClientAuth,
}

impl Server {
    /// A process that has started.
    pub(super) fn start(world: &mut World, id: &str) -> Self {
        let mut server = Self::connect(world, id);
        server.boot(world);
        server
    }

    pub(super) fn connect(world: &mut World, id: &str) -> Self {
        let (session, auth) = world.connect_stock("mds", id);
        let beacon = MdsBeacon {
            fsid: world.mon.fsid(),
            global_id: world.mon.sessions[&session].identity.global_id,
            name: id.to_owned(),
            state: state::BOOT,
            compat: Compat::pacific(),
            features: nacre_types::features::SUPPORTED,
            ..MdsBeacon::default()
        };
        Self { session, beacon, auth }
    }

    fn boot(&mut self, world: &mut World) {
        let facts = [("hostname", "h"), ("ceph_version", "ceph version 16.2.15")];
        self.beacon.sys_info = facts.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        self.beacon.state = state::BOOT;
        self.send(world);
        self.beacon.sys_info.clear();
        self.beacon.state = state::STANDBY;
    }

    /// Sends the beacon, under the map that it should know.
    pub(super) fn send(&mut self, world: &mut World) {
        self.beacon.seq += 1;
        self.beacon.version = map(world).epoch_for(self.beacon.global_id).unwrap_or(0).into();
        world.message(self.session, 0, self.beacon.clone());
    }

    /// Asks for a state.
    pub(super) fn wants(&mut self, world: &mut World, wanted: i32) {
        self.beacon.state = wanted;
        self.send(world);
    }

    /// Goes on as the map says, until it serves.
    pub(super) fn becomes_active(&mut self, world: &mut World) {
        let mut steps = vec![state::ACTIVE];
        if self.state(world) == state::REPLAY {
            steps = vec![state::REPLAY, state::RECONNECT, state::REJOIN, state::ACTIVE];
        }
        steps.into_iter().for_each(|step| self.wants(world, step));
        assert_eq!(self.state(world), state::ACTIVE);
    }

    pub(super) fn state(&self, world: &World) -> i32 {
        map(world).server(self.beacon.global_id).map_or(state::DNE, |info| info.state)
    }

    pub(super) fn rank(&self, world: &World) -> i32 {
        map(world).server(self.beacon.global_id).map_or(-1, |info| info.rank)
    }

    pub(super) fn dies(&self, world: &mut World) {
        world.front_event(crate::FrontEvent::Closed { session: self.session });
    }

    /// It dials again, as the same instance at the same address.
    pub(super) fn reconnects(&mut self, world: &mut World) {
        let addrs = map(world).server(self.beacon.global_id).map(|info| info.addrs.clone());
        self.session = world.connect_as(&mut self.auth).expect("its ticket");
        let entry = world.mon.sessions.get_mut(&self.session).expect("a session");
        assert_eq!(entry.identity.global_id, self.beacon.global_id);
        entry.addrs = addrs.expect("it is in the map");
    }

    /// The maps that it was sent, oldest first.
    pub(super) fn maps(&self, world: &mut World) -> Vec<MdsMap> {
        mds_maps(world.take(self.session))
    }
}

pub(super) fn mds_maps(messages: Vec<Message>) -> Vec<MdsMap> {
    let maps = messages.into_iter().filter_map(|message| match message {
        Message::MMdsMap(map) => Some(MdsMap::from_bytes(map.map).expect("a map")),
        _ => None,
    });
    maps.collect()
}

pub(super) fn map(world: &World) -> &FsMap {
    world.mon.state().fs.map()
}

/// A file system's map.
pub(super) fn fs<'a>(world: &'a World, name: &str) -> &'a MdsMap {
    &map(world).by_name(name).expect("the file system").mds_map
}

/// A command that succeeds; what it says.
pub(super) fn told(world: &mut World, admin: SessionId, command: &str) -> String {
    let ack = world.ask(admin, command).expect("an answer");
    assert_eq!(ack.result, 0, "{command}: {}", ack.status);
    ack.status
}

pub(super) fn refused(world: &mut World, admin: SessionId, command: &str) -> i32 {
    let ack = world.ask(admin, command).expect("an answer");
    assert!(ack.result != 0 && !ack.status.is_empty(), "{command}: {}", ack.status);
    -ack.result
}

/// A file system `name` on pools of its own.
pub(super) fn make_fs(world: &mut World, admin: SessionId, name: &str) {
    for pool in ["meta", "data"] {
        told(world, admin, &format!(r#"{{"prefix":"osd pool create","pool":"{name}.{pool}","pg_num":8}}"#));
    }
    let command =
        format!(r#"{{"prefix":"fs new","fs_name":"{name}","metadata":"{name}.meta","data":"{name}.data"}}"#);
    told(world, admin, &command);
}

/// A world with a file system `a`, and an operator.
pub(super) fn world_with_fs() -> (World, SessionId) {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    make_fs(&mut world, admin, "a");
    (world, admin)
}

#[test]
fn a_server_boots_waits_gets_a_rank_and_serves() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut m = Server::connect(&mut world, "m");
    world.subscribe(m.session, "mdsmap", 0, false);
    let first = m.maps(&mut world);
    assert_eq!((first.len(), first[0].mds_info.len(), first[0].enabled), (1, 0, false));
    m.boot(&mut world);
    let sent = world.take(m.session);
    let echoed = sent.iter().any(
        |message| matches!(message, Message::MdsBeacon(echo) if echo.seq == 1 && echo.state == state::BOOT),
    );
    assert!(echoed, "a sign that it is heard");
    let own = mds_maps(sent).pop().expect("a map with itself");
    assert_eq!(own.mds_info[&m.beacon.global_id].state, state::STANDBY);
    make_fs(&mut world, admin, "a");
    let of_fs = m.maps(&mut world).pop().expect("the file system's map");
    assert_eq!((of_fs.fs_name.as_str(), of_fs.enabled), ("a", true));
    assert_eq!((m.state(&world), m.rank(&world)), (state::CREATING, 0));
    assert_eq!((of_fs.up.get(&0), of_fs.in_ranks.len()), (Some(&m.beacon.global_id), 1));
    assert_eq!(i64::from(of_fs.mds_info[&m.beacon.global_id].inc), i64::from(of_fs.epoch));
    assert_eq!(of_fs.compat, Compat::pacific());
    m.becomes_active(&mut world);
    // A client that names no file system gets it, and so does one that does.
    for what in ["mdsmap", "mdsmap.1"] {
        world.subscribe(admin, what, 0, false);
        let seen = mds_maps(world.take(admin)).pop().expect("a map");
        assert_eq!(seen.mds_info[&m.beacon.global_id].state, state::ACTIVE, "{what}");
    }
    world.subscribe(admin, "mdsmap.9", 0, false);
    assert!(mds_maps(world.take(admin)).is_empty(), "no such file system");
    // It is durable.
    let before = map(&world).clone();
    world.restart();
    assert_eq!(*map(&world), before);
    let admin = world.connect(ADMIN);
    let metadata = json(&mut world, admin, r#"{"prefix":"mds metadata","format":"json"}"#);
    assert_eq!((&metadata[0]["name"], &metadata[0]["hostname"]), (&Value::from("m"), &Value::from("h")));
}

#[test]
fn a_file_systems_pools_are_tagged_tuned_and_protected() {
    let (mut world, admin) = world_with_fs();
    let pool = |world: &World, name: &str| {
        let id = world.map().pool_by_name(name).expect("the pool");
        (id, world.map().pool(id).expect("the pool").clone())
    };
    let ((meta, metadata), (data, of_data)) = (pool(&world, "a.meta"), pool(&world, "a.data"));
    assert_eq!(metadata.application_metadata["cephfs"]["metadata"], "a");
    assert_eq!(of_data.application_metadata["cephfs"]["data"], "a");
    assert_eq!(metadata.options.len(), 3);
    assert_eq!((fs(&world, "a").metadata_pool, fs(&world, "a").data_pools.clone()), (meta, vec![data]));
    told(
        &mut world,
        admin,
        r#"{"prefix":"config set","who":"mon","name":"mon_allow_pool_delete","value":"true"}"#,
    );
    let rm =
        r#"{"prefix":"osd pool rm","pool":"a.data","pool2":"a.data","yes_i_really_really_mean_it":true}"#;
    assert_eq!(refused(&mut world, admin, rm), Errno::EBUSY.0);
    let snap = r#"{"prefix":"osd pool mksnap","pool":"a.data","snap":"s"}"#;
    assert_eq!(refused(&mut world, admin, snap), Errno::EOPNOTSUPP.0);
    told(&mut world, admin, r#"{"prefix":"fs rm","fs_name":"a","yes_i_really_mean_it":true}"#);
    told(&mut world, admin, rm);
    assert_eq!(map(&world).legacy_client_fscid, -1);
    world.check();
}

#[test]
fn what_cannot_be_a_file_system_is_refused_with_cephs_errors() {
    let (mut world, admin) = world_with_fs();
    for pool in ["m2", "d2"] {
        told(&mut world, admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8}}"#));
    }
    told(&mut world, admin, r#"{"prefix":"osd pool create","pool":"ec","pg_num":8,"pool_type":"erasure"}"#);
    told(&mut world, admin, r#"{"prefix":"osd pool create","pool":"other","pg_num":8}"#);
    told(&mut world, admin, r#"{"prefix":"osd pool application enable","pool":"other","app":"rbd"}"#);
    let new = |name: &str, metadata: &str, data: &str, rest: &str| {
        format!(r#"{{"prefix":"fs new","fs_name":"{name}","metadata":"{metadata}","data":"{data}"{rest}}}"#)
    };
    let cases = [
        (new("b", "nope", "d2", ""), Errno::ENOENT),
        (new("b", "m2", "nope", ""), Errno::ENOENT),
        (new("", "m2", "d2", ""), Errno::EINVAL),
        (new("b c", "m2", "d2", ""), Errno::EINVAL),
        (new(&"b".repeat(200), "m2", "d2", ""), Errno::EINVAL),
        (new("a", "m2", "d2", ""), Errno::EINVAL),
        (new("b", "a.meta", "d2", ""), Errno::EEXIST),
        (new("b", "m2", "a.data", ""), Errno::EEXIST),
        (new("b", "ec", "d2", ",\"force\":true"), Errno::EINVAL),
        (new("b", "m2", "ec", ""), Errno::EINVAL),
        (new("b", "m2", "ec", ",\"force\":true"), Errno::EINVAL),
        (new("b", "m2", "other", ""), Errno::EINVAL),
        (new("b", "m2", "d2", ",\"fscid\":7"), Errno::EINVAL),
        (new("b", "m2", "d2", ",\"fscid\":1,\"force\":true"), Errno::EINVAL),
    ];
    for (command, errno) in cases {
        assert_eq!(refused(&mut world, admin, &command), errno.0, "{command}");
    }
    told(&mut world, admin, r#"{"prefix":"fs flag set","flag_name":"enable_multiple","val":"false"}"#);
    assert_eq!(refused(&mut world, admin, &new("b", "m2", "d2", "")), Errno::EINVAL.0);
    told(&mut world, admin, r#"{"prefix":"fs flag set","flag_name":"enable_multiple","val":"yes"}"#);
    assert_eq!(map(&world).filesystems.len(), 1, "nothing of all that has changed the map");
    // The same again is no mistake.
    told(&mut world, admin, &new("a", "a.meta", "a.data", ""));
    told(&mut world, admin, &new("b", "m2", "other", ",\"fscid\":7,\"force\":true"));
    let ids: Vec<i32> = map(&world).filesystems.iter().map(|fs| fs.fscid).collect();
    assert_eq!((ids, map(&world).next_filesystem_id), (vec![1, 7], 8));
}

/// Before the OSDs have reported nobody knows whether a pool is empty.
#[test]
fn a_metadata_pool_is_not_taken_for_empty_by_a_leader_that_has_heard_nothing() {
    let mut world = World::new(1);
    world.boot_all(1);
    let admin = world.connect(ADMIN);
    for pool in ["m", "d"] {
        told(&mut world, admin, &format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8}}"#));
    }
    world.restart();
    let admin = world.connect(ADMIN);
    let new = r#"{"prefix":"fs new","fs_name":"a","metadata":"m","data":"d"}"#;
    assert_eq!(refused(&mut world, admin, new), Errno::EAGAIN.0);
    world.pass(crate::WARM_UP);
    told(&mut world, admin, new);
}

#[test]
fn settings_take_effect_or_are_refused() {
    let (mut world, admin) = world_with_fs();
    let set =
        |var: &str, val: &str| format!(r#"{{"prefix":"fs set","fs_name":"a","var":"{var}","val":"{val}"}}"#);
    let good = [
        ("max_mds", "3"),
        ("balancer", "b.lua"),
        ("max_file_size", "2199023255552"),
        ("standby_count_wanted", "2"),
        ("session_timeout", "90"),
        ("session_autoclose", "400"),
        ("allow_standby_replay", "true"),
        ("min_compat_client", "nautilus"),
    ];
    for (var, val) in good {
        told(&mut world, admin, &set(var, val));
    }
    let a = fs(&world, "a");
    assert_eq!((a.max_mds, a.balancer.as_str(), a.max_file_size), (3, "b.lua", 2 << 40));
    assert_eq!((a.standby_count_wanted, a.session_timeout, a.session_autoclose), (2, 90, 400));
    assert_eq!((a.flags, a.ever_allowed_features, a.required_client_features.len()), (0x32, 0x20, 8));
    let shown = json(&mut world, admin, r#"{"prefix":"fs get","fs_name":"a","format":"json"}"#);
    assert_eq!(shown["mdsmap"]["required_client_features"]["feature_12"], "multi_reconnect");
    for (word, wanted) in [("add", 1), ("rm", 0)] {
        let text = format!(
            r#"{{"prefix":"fs required_client_features","fs_name":"a","subop":"{word}","val":"jewel"}}"#
        );
        told(&mut world, admin, &text);
        assert_eq!(fs(&world, "a").required_client_features[0] >> 5 & 1, wanted, "{word}");
    }
    told(&mut world, admin, &set("down", "true"));
    assert_eq!((fs(&world, "a").max_mds, fs(&world, "a").old_max_mds), (0, 3));
    assert_eq!(told(&mut world, admin, &set("down", "false")), "a marked up, max_mds = 3");
    told(&mut world, admin, &set("joinable", "false"));
    assert_eq!(fs(&world, "a").flags & 1, 1);
    told(&mut world, admin, &set("cluster_down", "false"));
    assert_eq!(fs(&world, "a").flags & 1, 0);
    let bad = [
        ("max_mds", "0", Errno::EINVAL),
        ("max_mds", "257", Errno::EINVAL),
        ("max_mds", "x", Errno::EINVAL),
        ("inline_data", "true", Errno::EPERM),
        ("inline_data", "maybe", Errno::EINVAL),
        ("max_file_size", "1", Errno::ERANGE),
        ("standby_count_wanted", "-1", Errno::ERANGE),
        ("session_timeout", "29", Errno::ERANGE),
        ("session_autoclose", "29", Errno::ERANGE),
        ("min_compat_client", "zebra", Errno::EINVAL),
        ("colour", "blue", Errno::EINVAL),
    ];
    let before = fs(&world, "a").clone();
    for (var, val, errno) in bad {
        assert_eq!(refused(&mut world, admin, &set(var, val)), errno.0, "{var} {val}");
    }
    assert_eq!(*fs(&world, "a"), before);
    let of_nobody = r#"{"prefix":"fs set","fs_name":"b","var":"max_mds","val":"1"}"#;
    assert_eq!(refused(&mut world, admin, of_nobody), Errno::ENOENT.0);
}

#[test]
fn data_pools_come_and_go_but_the_first_stays() {
    let (mut world, admin) = world_with_fs();
    told(&mut world, admin, r#"{"prefix":"osd pool create","pool":"d2","pg_num":8}"#);
    let order = |verb: &str, pool: &str| {
        format!(r#"{{"prefix":"fs {verb}_data_pool","fs_name":"a","pool":"{pool}"}}"#)
    };
    told(&mut world, admin, &order("add", "d2"));
    told(&mut world, admin, &order("add", "d2"));
    assert_eq!(fs(&world, "a").data_pools.len(), 2);
    let id = world.map().pool_by_name("d2").expect("the pool");
    assert_eq!(world.map().pool(id).expect("the pool").application_metadata["cephfs"]["data"], "a");
    assert_eq!(refused(&mut world, admin, &order("rm", "a.data")), Errno::EINVAL.0);
    assert_eq!(refused(&mut world, admin, &order("rm", "nope")), Errno::ENOENT.0);
    assert_eq!(refused(&mut world, admin, &order("add", "a.nope")), Errno::ENOENT.0);
    told(&mut world, admin, &order("rm", &id.to_string()));
    assert_eq!(fs(&world, "a").data_pools.len(), 1);
    // Chunks do where they may be changed in part.
    told(&mut world, admin, r#"{"prefix":"osd pool create","pool":"ec","pg_num":8,"pool_type":"erasure"}"#);
    assert_eq!(refused(&mut world, admin, &order("add", "ec")), Errno::EINVAL.0);
    told(
        &mut world,
        admin,
        r#"{"prefix":"osd pool set","pool":"ec","var":"allow_ec_overwrites","val":"true"}"#,
    );
    told(&mut world, admin, &order("add", "ec"));
    assert_eq!(fs(&world, "a").data_pools.len(), 2);
}

/// What a beacon says must be what its session has proved.
#[test]
fn beacons_that_lie_change_nothing() {
    let (mut world, _) = world_with_fs();
    let x = Server::connect(&mut world, "x");
    let mut y = Server::start(&mut world, "y");
    world.pass(SECOND);
    y.becomes_active(&mut world);
    let before = map(&world).clone();
    let boot = MdsBeacon { seq: 1, ..x.beacon.clone() };
    let active = MdsBeacon {
        seq: 90,
        state: state::DAMAGED,
        version: fs(&world, "a").epoch.into(),
        ..y.beacon.clone()
    };
    let lies = [
        MdsBeacon { name: "y".to_owned(), ..boot.clone() },
        MdsBeacon { name: String::new(), ..boot.clone() },
        MdsBeacon { global_id: y.beacon.global_id, ..boot.clone() },
        MdsBeacon { fsid: nacre_types::Uuid::from_random([9; 16]), ..boot.clone() },
        MdsBeacon { sys_info: BTreeMap::from([("x".to_owned(), "x".repeat(70_000))]), ..boot.clone() },
        active.clone(),
    ];
    for lie in lies {
        world.message(x.session, 0, lie);
    }
    world.message(
        x.session,
        0,
        MdsLoadTargets { global_id: y.beacon.global_id, targets: [1].into(), version: 0 },
    );
    // A client with the right to read all, and a server of another place under the gid of the one that serves.
    let reader = world.connect(ADMIN);
    world.message(reader, 0, active.clone());
    world.mon.sessions.get_mut(&y.session).expect("a session").addrs = super::addr(9);
    world.message(y.session, 0, active);
    assert_eq!(*map(&world), before);
    assert!(world.logged("with the key of mds.x is turned away"));
    assert!(world.logged("with the key of mds.y is turned away"));
    world.message(x.session, 0, boot);
    assert_eq!(x.state(&world), state::STANDBY, "what is true is taken");
}

#[test]
fn a_server_without_a_port_cannot_be_shut_out_and_is_turned_away() {
    let (mut world, _) = world_with_fs();
    let mut x = Server::connect(&mut world, "x");
    world.mon.sessions.get_mut(&x.session).expect("a session").addrs = super::addr(0);
    x.boot(&mut world);
    assert_eq!(x.state(&world), state::DNE);
}

#[test]
fn a_server_that_is_not_in_the_map_starts_anew() {
    let (mut world, _) = world_with_fs();
    let mut x = Server::connect(&mut world, "x");
    x.wants(&mut world, state::ACTIVE);
    let map = x.maps(&mut world).pop().expect("a map without it");
    assert_eq!((map.epoch, map.mds_info.len()), (Epoch::MAX, 0));
    // Its successor, under the same name, takes its place.
    let old = Server::start(&mut world, "y");
    world.pass(SECOND);
    assert_eq!(old.rank(&world), 0);
    let new = Server::start(&mut world, "y");
    assert_eq!((old.state(&world), new.state(&world)), (state::DNE, state::STANDBY));
    assert!(
        world.map().is_blocklisted(&super::addr(7500 + u16::try_from(old.session.0).expect("small")).0[0])
    );
    world.pass(SECOND);
    assert_eq!((new.state(&world), new.rank(&world)), (state::CREATING, 0), "nothing had been made");
}

#[test]
fn states_are_granted_in_their_order_and_only_to_who_knows_the_map() {
    let (mut world, _) = world_with_fs();
    let mut m = Server::start(&mut world, "m");
    m.wants(&mut world, state::ACTIVE);
    assert_eq!(m.state(&world), state::STANDBY, "who waits takes no rank by itself");
    m.beacon.state = state::STANDBY;
    world.pass(SECOND);
    assert_eq!(m.state(&world), state::CREATING);
    m.wants(&mut world, state::REJOIN);
    assert_eq!(m.state(&world), state::CREATING);
    m.beacon.state = state::ACTIVE;
    m.beacon.seq += 1;
    m.beacon.version -= 1;
    world.message(m.session, 0, m.beacon.clone());
    assert_eq!(m.state(&world), state::CREATING, "it follows from an older map");
    m.send(&mut world);
    assert_eq!(m.state(&world), state::ACTIVE);
    let late = MdsBeacon { seq: 1, state: state::STOPPING, ..m.beacon.clone() };
    world.message(m.session, 0, late);
    assert_eq!(m.state(&world), state::ACTIVE, "an old beacon");
    world.message(
        m.session,
        0,
        MdsLoadTargets { version: 0, global_id: m.beacon.global_id, targets: [1].into() },
    );
    assert_eq!(map(&world).server(m.beacon.global_id).expect("it").export_targets, [1].into());
}

#[test]
fn caps_of_one_file_system_show_no_other() {
    let (mut world, admin) = world_with_fs();
    make_fs(&mut world, admin, "b");
    let said = told(&mut world, admin, r#"{"prefix":"fs set-default","fs_name":"b"}"#);
    assert_eq!((said.as_str(), map(&world).legacy_client_fscid), ("", 2));
    let authorize = r#"{"prefix":"fs authorize","filesystem":"a","entity":"client.c","caps":["/","rw"]}"#;
    let made = json(&mut world, admin, &authorize.replace("\"caps\"", "\"format\":\"json\",\"caps\""));
    assert_eq!(made[0]["caps"]["mds"], "allow rw fsname=a");
    assert_eq!(json(&mut world, admin, &authorize.replace("\"caps\"", "\"format\":\"json\",\"caps\"")), made);
    let other = r#"{"prefix":"fs authorize","filesystem":"a","entity":"client.c","caps":["/","r"]}"#;
    assert_eq!(refused(&mut world, admin, other), Errno::EINVAL.0);
    let key = world.mon.state().auth.keys().entity(&name("client.c")).expect("made").key.clone();
    world.keys.insert(name("client.c"), key);
    let c = world.connect("client.c");
    for what in ["fsmap", "fsmap.user", "mdsmap.1", "mdsmap.2", "mdsmap"] {
        world.subscribe(c, what, 0, false);
    }
    let sent = world.take(c);
    let names = sent.iter().find_map(|message| match message {
        Message::MFsMapUser(map) => {
            Some(map.map.filesystems.iter().map(|fs| fs.name.clone()).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(names, Some(vec!["a".to_owned()]));
    let whole = sent.iter().find_map(|message| match message {
        Message::MFsMap(map) => FsMap::from_bytes(map.map.clone()).ok(),
        _ => None,
    });
    assert_eq!(whole.map(|map| (map.filesystems.len(), map.legacy_client_fscid)), Some((1, -1)));
    let enabled: Vec<bool> = mds_maps(sent).iter().map(|map| map.enabled).collect();
    assert_eq!(enabled, [true, false], "its own, and nobody's where b is the default");
    let list = json(&mut world, c, r#"{"prefix":"fs ls","format":"json"}"#);
    assert_eq!((list.as_array().map(Vec::len), &list[0]["name"]), (Some(1), &Value::from("a")));
    assert_eq!(refused(&mut world, c, r#"{"prefix":"fs get","fs_name":"b"}"#), Errno::ENOENT.0);
    assert_eq!(refused(&mut world, c, r#"{"prefix":"fs fail","fs_name":"a"}"#), Errno::EACCES.0);
}

#[test]
fn servers_and_ranks_that_are_missing_are_health_checks() {
    let (mut world, admin) = world_with_fs();
    let codes = |world: &mut World| -> Vec<String> {
        let health = json(world, admin, r#"{"prefix":"health","format":"json"}"#);
        let all = health["checks"].as_object().expect("checks").keys().cloned();
        all.filter(|code| code.starts_with("MDS_") || code.starts_with("FS_")).collect()
    };
    assert_eq!(codes(&mut world), ["MDS_ALL_DOWN", "MDS_UP_LESS_THAN_MAX"]);
    let mut m = Server::start(&mut world, "m");
    world.pass(SECOND);
    m.becomes_active(&mut world);
    assert!(codes(&mut world).is_empty());
    let slow = MdsHealthMetric {
        kind: 10,
        severity: 1,
        message: "3 slow requests".to_owned(),
        ..Default::default()
    };
    m.beacon.health = vec![slow];
    m.send(&mut world);
    let detail =
        world.ask(admin, r#"{"prefix":"health","detail":"detail"}"#).expect("an answer").data.to_bytes();
    let detail = String::from_utf8_lossy(&detail).into_owned();
    assert!(
        detail.contains(
            "[WRN] MDS_SLOW_REQUEST: 1 MDSs report slow requests\n    mds.m(mds.0): 3 slow requests"
        ),
        "{detail}"
    );
    // Each complaint is a check, while the server says so.
    for kind in 1..=14 {
        m.beacon.health = vec![MdsHealthMetric { kind, severity: 1, ..Default::default() }];
        m.send(&mut world);
        let raised = codes(&mut world);
        assert_eq!((raised.len(), raised[0] == "MDS_UNKNOWN"), (1, kind == 14), "{raised:?}");
    }
    m.beacon.health.clear();
    m.send(&mut world);
    assert!(codes(&mut world).is_empty());
    for (value, count) in [("true", 1), ("false", 0)] {
        let set = format!(
            r#"{{"prefix":"fs set","fs_name":"a","var":"inline_data","val":"{value}","yes_i_really_really_mean_it":true}}"#
        );
        told(&mut world, admin, &set);
        let is_inline = |code: &&String| *code == "FS_INLINE_DATA_DEPRECATED";
        assert_eq!(codes(&mut world).iter().filter(is_inline).count(), count);
    }
    let _other = Server::start(&mut world, "n");
    world.pass(SECOND);
    told(&mut world, admin, r#"{"prefix":"mds fail","role_or_gid":"n"}"#);
    assert_eq!(codes(&mut world), ["MDS_INSUFFICIENT_STANDBY"], "who had one once wants one");
    m.wants(&mut world, state::DAMAGED);
    assert_eq!(codes(&mut world), ["FS_DEGRADED", "MDS_ALL_DOWN", "MDS_DAMAGE", "MDS_INSUFFICIENT_STANDBY"]);
    assert!(told(&mut world, admin, r#"{"prefix":"mds repaired","role":"a:0"}"#).contains("restoring"));
    assert_eq!(
        codes(&mut world),
        ["FS_DEGRADED", "FS_WITH_FAILED_MDS", "MDS_ALL_DOWN", "MDS_INSUFFICIENT_STANDBY"]
    );
    let status = json(&mut world, admin, r#"{"prefix":"status","format":"json"}"#);
    assert_eq!((&status["fsmap"]["failed"], &status["fsmap"]["max"]), (&Value::from(1), &Value::from(1)));
}
