//! Monitor caps as readable cases.

use super::*;
use nacre_types::EntityKind;

fn parse(text: &str) -> MonCaps {
    MonCaps::parse(text, &AuthName::new(EntityKind::OSD, "3")).expect("valid caps")
}

fn args(text: &str) -> Args {
    let pairs = text.split('|').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn services() {
    let cases = [
        ("allow *", "config-key", "rwx", true),
        ("allow all", "auth", "rwx", true),
        ("allow r", "osd", "r", true),
        ("allow r", "osd", "rw", false),
        ("allow rw", "osd", "rw", true),
        ("allow rw", "auth", "rwx", false),
        ("allow rwx", "config-key", "r", false),
        ("allow service config-key rw", "config-key", "rw", true),
        ("allow service osd *", "osd", "rwx", true),
        ("allow service=osd r; allow service mon rw", "mon", "w", true),
        ("allow service osd r", "mon", "r", false),
        ("allow r, allow w", "osd", "rw", true),
        ("profile osd", "osd", "rwx", true),
        ("allow profile osd", "pg", "rw", true),
        ("profile osd", "log", "w", true),
        ("profile osd", "mon", "w", false),
        ("profile osd", "auth", "r", false),
        ("profile mgr", "auth", "rwx", true),
        ("profile mds", "osd", "r", true),
        ("profile mds", "osd", "w", false),
        ("profile rbd", "osd", "r", true),
        ("profile rbd", "osd", "w", false),
        ("profile role-definer", "auth", "rwx", true),
        ("profile crash", "mon", "r", true),
        ("profile bootstrap-osd", "osd", "w", false),
        ("profile fs-client", "mds", "r", true),
        ("profile simple-rados-client", "pg", "r", true),
        ("profile read-only", "pg", "r", true),
        ("profile nonsense", "mon", "r", false),
        ("allow r fsname=a", "mds", "r", true),
        ("allow r fsname=a", "mds", "w", false),
    ];
    for (caps, service, needed, want) in cases {
        let needed = Rwx::of_letters(needed);
        assert_eq!(parse(caps).allows_service(service, needed), want, "{caps}: {service} {needed:?}");
    }
}

#[test]
fn caps_of_a_file_system_show_no_other() {
    let cases = [
        ("allow r", "a", true),
        ("allow *", "a", true),
        ("allow r fsname=a", "a", true),
        ("allow r fsname=a", "b", false),
        ("allow r fsname a, allow r fsname=b", "b", true),
        ("allow r fsname=a, allow r", "b", true),
        ("allow r fsname=a, allow r network 10.0.0.0/8", "b", false),
        ("profile fs-client", "b", true),
    ];
    for (caps, name, want) in cases {
        assert_eq!(parse(caps).shows_file_system(name), want, "{caps}: {name}");
    }
    assert!(MonCaps::parse("allow r fsname=", &AuthName::default()).is_err());
}

#[test]
fn commands() {
    let cases = [
        ("allow command \"osd pool ls\"", "osd pool ls", "", true),
        ("allow command \"osd pool ls\"", "osd pool", "", false),
        ("allow command x with a=b", "x", "a=b|c=d", true),
        ("allow command x with a=b", "x", "a=c", false),
        ("allow command x with a=b", "x", "", false),
        ("allow command x with a=b c prefix d", "x", "a=b|c=door", true),
        ("allow command x with a=b c prefix d", "x", "a=b|c=oor", false),
        ("allow command x with a regex \"[0-9]+\"", "x", "a=17", true),
        ("allow command x with a regex \"[0-9]+\"", "x", "a=17b", false),
        ("allow command x with a regex \"(\"", "x", "a=(", false),
        ("profile rbd", "osd blocklist", "blocklistop=add|addr=192.0.2.1:0/4711", true),
        ("profile rbd", "osd blacklist", "blacklistop=add|addr=192.0.2.1:0/4711", true),
        ("profile rbd", "osd blocklist", "blocklistop=rm|addr=192.0.2.1:0/4711", false),
        ("profile rbd", "osd blocklist", "blocklistop=add|addr=192.0.2.1", false),
        ("profile rbd", "osd blocklist", "range=range|blocklistop=add|addr=192.0.2.1/8", false),
        ("profile rbd-read-only", "osd blocklist", "blocklistop=add|addr=192.0.2.1:0/4711", true),
        ("profile cephfs-mirror", "osd blocklist", "blocklistop=add|addr=192.0.2.1:0/4711", false),
        ("profile cephfs-mirror", "config-key get", "key=cephfs/mirror/peer/x", true),
        ("profile simple-rados-client", "osd blocklist", "blocklistop=add|addr=192.0.2.1:0/4711", false),
        (
            "profile simple-rados-client-with-blocklist",
            "osd blocklist",
            "blocklistop=add|addr=192.0.2.1:0/4711",
            true,
        ),
        ("profile rbd-mirror-peer", "config-key get", "key=rbd/mirror/x", true),
        ("profile rbd-mirror-peer", "config-key get", "key=rbd/mirror/peer/x", false),
        ("profile rbd-mirror-peer", "config-key set", "key=rbd/mirror/x", false),
        ("profile rbd-mirror-peer", "config-key set", "key=rbd/mirror/peer/x", true),
        ("profile mds", "osd blocklist", "blocklistop=add|addr=192.0.2.1", true),
        ("profile rbd-mirror", "config-key get", "key=rbd/mirror/peer/1", true),
        ("profile osd", "config-key get", "key=daemon-private/osd.3/x", true),
        ("profile osd", "config-key get", "key=daemon-private/osd.4/x", false),
        ("profile bootstrap-osd", "osd new", "uuid=1", true),
        ("profile bootstrap-mgr", "auth get-or-create", "entity=mgr.x|caps_mon=allow profile mgr", true),
        ("profile bootstrap-mgr", "auth get-or-create", "entity=client.x|caps_mon=allow profile mgr", false),
        ("profile bootstrap-mgr", "auth get-or-create", "entity=mgr.x|caps_mon=allow *", false),
        (
            "profile bootstrap-rbd",
            "auth get-or-create",
            "entity=client.x|caps_mon=profile rbd|caps_osd=profile rbd pool=p, profile rbd-read-only",
            true,
        ),
        (
            "profile bootstrap-rbd",
            "auth get-or-create",
            "entity=client.x|caps_mon=profile rbd|caps_osd=allow *",
            false,
        ),
    ];
    for (caps, command, given, want) in cases {
        let allowed = parse(caps).allows_command("nothing", command, &args(given), Rwx::ALL);
        assert_eq!(allowed, want, "{caps}: {command} {given}");
    }
}

#[test]
fn refusals_tell_where_reading_stopped() {
    let cases = [
        ("allow q", "from 'allow q' on"),
        ("", "end where more is needed"),
        ("allow rw pool=p", "from 'pool=p' on"),
        ("allow r, bogus", "from ', bogus' on"),
        ("allow service osd", "from 'allow service osd' on"),
        ("allow command x with", "from 'with' on"),
    ];
    for (text, want) in cases {
        let refused = MonCaps::parse(text, &AuthName::default()).expect_err("not valid caps").to_string();
        assert!(refused.contains("mon caps") && refused.contains(want), "{refused}");
    }
}

#[test]
fn networks_hold_where_the_peer_is() {
    let caps = parse("allow r network 10.0.0.0/8, allow * network 192.0.2.0/24");
    let at = |addr: &str| caps.clone().at(Some(addr.parse().expect("a valid address")));
    assert!(at("192.0.2.9").allows_everything());
    assert!(at("10.0.0.1").allows_service("mon", Rwx::R));
    assert!(!at("198.51.100.1").allows_service("mon", Rwx::R));
    assert!(!caps.allows_service("mon", Rwx::R));
}
