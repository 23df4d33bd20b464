//! Values that options cannot have, stored all the same: by another version, or by hand.

use super::{ADMIN, World, addr};
use crate::batch::Batch;
use crate::health;
use nacre_auth::{ClientAuth, Offer};
use nacre_buf::Bytes;
use nacre_msg::OsdFailure;
use nacre_options as options;
use nacre_types::{EntityKind, UTime};
use std::time::Duration;

/// What a monitor that knows no bounds stores.
const WILD: [&str; 8] = ["nan", "-nan", "inf", "-inf", "1e300", "-1e300", "99999999999999999999", "soon"];

#[test]
fn no_value_of_an_option_stops_the_monitor() {
    for value in WILD {
        let mut world = World::new(3);
        let mut batch = Batch::default();
        for option in options::all() {
            batch.put("config", format!("global/{}", option.name), Bytes::from(value));
        }
        world.kv.apply(&batch);
        world.restart();
        let osds = world.boot_all(3);
        world.pass(Duration::from_secs(3));
        let admin = world.connect(ADMIN);
        for json in [
            r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"v2:10.0.0.1:0/7"}"#,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#,
            r#"{"prefix":"pg dump_stuck"}"#,
            r#"{"prefix":"config dump","format":"json"}"#,
        ] {
            assert_eq!(world.ask(admin, json).map(|ack| ack.result), Some(0), "{json} beside {value}");
        }
        world.message(osds[0], 0, failure(&world, 1));
        world.message(osds[2], 0, failure(&world, 1));
        world.pass(Duration::from_secs(20));
        let checks = health::checks(&world.mon.state);
        let check = checks.iter().find(|check| check.code == "CONFIG_VALUE_UNUSABLE").expect("a warning");
        assert!(check.detail.iter().any(|line| line.contains("osd_heartbeat_grace")), "{:?}", check.detail);
        world.restart();
        let admin = world.connect(ADMIN);
        let remove = r#"{"prefix":"config rm","who":"global","name":"osd_heartbeat_grace"}"#;
        assert_eq!(world.ask(admin, remove).map(|ack| ack.result), Some(0));
        let set = r#"{"prefix":"config set","who":"global","name":"auth_service_ticket_ttl","value":"60"}"#;
        assert_eq!(world.ask(admin, set).map(|ack| ack.result), Some(0));
        let left: Vec<_> = world.mon.state.config.unusable().map(|(_, name, ..)| name.to_owned()).collect();
        assert!(!left.iter().any(|name| name == "osd_heartbeat_grace" || name == "auth_service_ticket_ttl"));
        world.check();
    }
}

fn failure(world: &World, target: i32) -> OsdFailure {
    OsdFailure {
        fsid: world.mon.fsid(),
        target,
        target_addrs: addr(8003 + 10 * u16::try_from(target).expect("a small number")),
        flags: 1,
        epoch: world.map().epoch,
        failed_for_s: 900,
        ..OsdFailure::default()
    }
}

#[test]
fn values_that_would_end_daemons_are_refused() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for option in ["auth_service_ticket_ttl", "osd_pool_default_read_lease_ratio", "osd_heartbeat_grace"] {
        for value in WILD {
            let json =
                format!(r#"{{"prefix":"config set","who":"global","name":"{option}","value":"{value}"}}"#);
            assert_eq!(world.ask(admin, &json).map(|ack| ack.result), Some(-22), "{json}");
        }
    }
    world.pass(Duration::from_secs(2));
    assert!(world.wall > UTime::ZERO);
}

/// Tickets are renewed when a quarter of their life is left.
#[test]
fn tickets_are_good_for_as_long_as_the_options_say() {
    let is_due_after_90_s = |option: Option<&str>| {
        let mut world = World::new(1);
        if let Some(option) = option {
            let admin = world.connect(ADMIN);
            let ask = format!(r#"{{"prefix":"config set","who":"mon","name":"{option}","value":"100"}}"#);
            assert_eq!(world.ask(admin, &ask).map(|ack| ack.result), Some(0), "{option}");
        }
        let key = world.keys[&super::name(ADMIN)].clone();
        let mut client =
            ClientAuth::new(super::name(ADMIN), Some(key), Offer::secure_first(), &[EntityKind::OSD]);
        world.connect_as(&mut client).expect("the right key");
        let later = world.wall.after(Duration::from_secs(90));
        client.renewal(later, &mut world.entropy).expect("it is authenticated").is_some()
    };
    assert!(!is_due_after_90_s(None));
    assert!(is_due_after_90_s(Some("auth_mon_ticket_ttl")));
    assert!(is_due_after_90_s(Some("auth_service_ticket_ttl")));
}
