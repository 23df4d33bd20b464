//! Commands that change things, and their words, which are those of the running cluster.

use super::Bench;
use nacre_types::{EntityAddr, Errno};

/// `(command, code, what it says)`, in order on one state.
fn play(bench: &mut Bench, steps: &[(&str, i32, &str)]) {
    for (command, code, text) in steps {
        assert_eq!(bench.say(&format!("{{{command}}}")), (*code, (*text).to_owned()), "{command}");
    }
}

const INVALID: i32 = Errno::EINVAL.negated();
const MISSING: i32 = Errno::ENOENT.negated();
const DENIED: i32 = Errno::EPERM.negated();

#[test]
fn pools_live_and_die() {
    let mut bench = Bench::new();
    play(
        &mut bench,
        &[
            (r#""prefix":"osd pool create","pool":"p","pg_num":4,"pgp_num":4"#, 0, "pool 'p' created"),
            (r#""prefix":"osd pool create","pool":"p","pg_num":4"#, 0, "pool 'p' already exists"),
            (
                r#""prefix":"osd pool create","pool":"q","pg_num":"abc""#,
                INVALID,
                "bad or missing field 'pg_num'",
            ),
            (
                r#""prefix":"osd pool set","pool":"p","var":"size","val":"99""#,
                INVALID,
                "a pool has 1 to 10 copies",
            ),
            (r#""prefix":"osd pool set","pool":"p","var":"size","val":"2""#, 0, "set pool 43 size to 2"),
            (
                r#""prefix":"osd pool set","pool":"p","var":"min_size","val":"9""#,
                INVALID,
                "min_size is 1 to the pool's size, which is 2",
            ),
            (
                r#""prefix":"osd pool set","pool":"p","var":"pgp_num","val":"16""#,
                INVALID,
                "specified pgp_num 16 > pg_num 4",
            ),
            (
                r#""prefix":"osd pool set","pool":"nope","var":"size","val":"2""#,
                MISSING,
                "unrecognized pool 'nope'",
            ),
            (
                r#""prefix":"osd pool set","pool":"p","var":"crush_rule","val":"norule""#,
                MISSING,
                "crush rule norule does not exist",
            ),
            (
                r#""prefix":"osd pool set","pool":"p","var":"compression_mode","val":"bad""#,
                INVALID,
                "unrecognized compression mode 'bad'",
            ),
            (
                r#""prefix":"osd pool set-quota","pool":"p","field":"max_bytes","val":"1M""#,
                0,
                "set-quota max_bytes = 1048576 for pool p",
            ),
            (
                r#""prefix":"osd pool set-quota","pool":"p","field":"max_bytes","val":"abc""#,
                INVALID,
                "error parsing value 'abc': strict_iecstrtoll: illegal prefix (length > 2)",
            ),
        ],
    );
    pools_have_snapshots_and_applications(&mut bench);
    pools_are_deleted_where_that_is_allowed(&mut bench);
}

/// Goes on with the pool `p` and renames it to `r`.
fn pools_have_snapshots_and_applications(bench: &mut Bench) {
    play(
        bench,
        &[
            (r#""prefix":"osd pool mksnap","pool":"p","snap":"s1""#, 0, "created pool p snap s1"),
            (r#""prefix":"osd pool mksnap","pool":"p","snap":"s1""#, 0, "pool p snap s1 already exists"),
            (r#""prefix":"osd pool rmsnap","pool":"p","snap":"s1""#, 0, "removed pool p snap s1"),
            (r#""prefix":"osd pool rename","srcpool":"p","destpool":"r""#, 0, "pool 'p' renamed to 'r'"),
            (
                r#""prefix":"osd pool rename","srcpool":"rbd","destpool":"r""#,
                Errno::EEXIST.negated(),
                "pool 'r' already exists",
            ),
            (
                r#""prefix":"osd pool application enable","pool":"r","app":"app1""#,
                0,
                "enabled application 'app1' on pool 'r'",
            ),
            (
                r#""prefix":"osd pool application set","pool":"r","app":"app1","key":"k","value":"v""#,
                0,
                "set application 'app1' key 'k' to 'v' on pool 'r'",
            ),
        ],
    );
}

/// Goes on with the pool `r`.
fn pools_are_deleted_where_that_is_allowed(bench: &mut Bench) {
    play(
        bench,
        &[
            (
                r#""prefix":"osd pool rm","pool":"r","pool2":"r","yes_i_really_really_mean_it":true"#,
                DENIED,
                "pools are not deleted here: ceph config set mon mon_allow_pool_delete true allows it",
            ),
            (r#""prefix":"config set","who":"mon.a","name":"mon_allow_pool_delete","value":"true""#, 0, ""),
            (
                r#""prefix":"osd pool rm","pool":"r","pool2":"r","yes_i_really_really_mean_it":true"#,
                0,
                "pool 'r' removed",
            ),
            (
                r#""prefix":"osd pool rm","pool":"r","pool2":"r","yes_i_really_really_mean_it":true"#,
                0,
                "pool 'r' does not exist",
            ),
        ],
    );
    assert_eq!(bench.say(r#"{"prefix":"osd pool rm","pool":"rbd","pool2":"rbd"}"#).0, DENIED);
}

#[test]
fn osds_are_moved_in_and_out_and_flagged() {
    let mut bench = Bench::new();
    play(
        &mut bench,
        &[
            (r#""prefix":"osd out","ids":["0"]"#, 0, "marked out osd.0. "),
            (r#""prefix":"osd out","ids":["0","77"]"#, 0, "osd.0 is already out. osd.77 does not exist. "),
            (r#""prefix":"osd in","ids":["osd.0"]"#, 0, "marked in osd.0. "),
            (r#""prefix":"osd out","ids":["xx"]"#, INVALID, "'xx' names no OSD: a number or osd.N is wanted"),
            (r#""prefix":"osd reweight","id":0,"weight":0.75"#, 0, "reweighted osd.0 to 0.75 (c000)"),
            (r#""prefix":"osd reweight","id":77,"weight":0.5"#, MISSING, "osd.77 does not exist"),
            (r#""prefix":"osd set","key":"noout""#, 0, "noout is set"),
            (r#""prefix":"osd unset","key":"noout""#, 0, "noout is unset"),
            (r#""prefix":"osd set","key":"pause""#, 0, "pauserd,pausewr is set"),
            (
                r#""prefix":"osd rm","ids":["0"]"#,
                Errno::EBUSY.negated(),
                "osd.0 is up: stop it before it is removed. ",
            ),
            (r#""prefix":"osd down","ids":["0"]"#, 0, "marked down osd.0. "),
            (r#""prefix":"osd find","id":77"#, MISSING, "osd.77 does not exist"),
        ],
    );
    assert!(!bench.state.osd.upcoming().is_up(0));
}

#[test]
fn an_id_is_taken_once_per_store_and_can_be_purged() {
    let mut bench = Bench::new();
    let new = r#"{"prefix":"osd new","uuid":"0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f"}"#;
    assert_eq!(bench.ask(new), "3\n");
    assert_eq!(bench.ask(new), "3\n");
    play(
        &mut bench,
        &[
            (r#""prefix":"osd new","uuid":"zz""#, INVALID, "invalid UUID value 'zz'."),
            (r#""prefix":"osd purge","id":3,"force":true,"yes_i_really_mean_it":true"#, 0, "purged osd.3"),
            (
                r#""prefix":"osd purge-actual","id":0,"yes_i_really_mean_it":true"#,
                Errno::EBUSY.negated(),
                "osd.0 is not `down`.",
            ),
        ],
    );
    assert!(!bench.state.osd.upcoming().exists(3));
}

#[test]
fn the_hierarchy_and_its_rules_change() {
    let mut bench = Bench::new();
    play(
        &mut bench,
        &[
            (
                r#""prefix":"osd crush add-bucket","name":"r1","type":"rack""#,
                0,
                "added bucket r1 type rack to crush map",
            ),
            (r#""prefix":"osd crush add-bucket","name":"r1","type":"rack""#, 0, "bucket 'r1' already exists"),
            (
                r#""prefix":"osd crush add-bucket","name":"r2","type":"notype""#,
                INVALID,
                "type 'notype' does not exist",
            ),
            (
                r#""prefix":"osd crush move","name":"norack","args":["root=default"]"#,
                MISSING,
                "item norack does not exist",
            ),
            (
                r#""prefix":"osd crush rm","name":"default""#,
                Errno::ENOTEMPTY.negated(),
                "(39) Directory not empty",
            ),
            (r#""prefix":"osd crush rm","name":"nothing""#, 0, "the crush map has no device 'nothing'"),
            (
                r#""prefix":"osd crush reweight","name":"default","weight":1.0"#,
                INVALID,
                "'default' is a bucket of the crush map, no device",
            ),
            (
                r#""prefix":"osd crush reweight","name":"osd.0","weight":1.5"#,
                0,
                "reweighted item id 0 name 'osd.0' to 1.5 in crush map",
            ),
            (
                r#""prefix":"osd crush rule create-replicated","name":"r","root":"default","type":"osd""#,
                0,
                "",
            ),
            (
                r#""prefix":"osd crush rule create-replicated","name":"r","root":"default","type":"osd""#,
                0,
                "rule r already exists",
            ),
            (
                r#""prefix":"osd crush rule create-replicated","name":"s","root":"noroot","type":"osd""#,
                MISSING,
                "root item noroot does not exist",
            ),
            (
                r#""prefix":"osd pool set","pool":"rbd","var":"crush_rule","val":"r""#,
                0,
                "set pool 2 crush_rule to r",
            ),
            (
                r#""prefix":"osd crush rule rm","name":"r""#,
                Errno::EBUSY.negated(),
                "crush ruleset r 1 is in use",
            ),
            (r#""prefix":"osd crush class create","class":"c""#, 0, "created class c with id 1 to crush map"),
            (r#""prefix":"osd erasure-code-profile set","name":"e","profile":["k=2","m=1"]"#, 0, ""),
            (r#""prefix":"osd erasure-code-profile rm","name":"e""#, 0, ""),
        ],
    );
}

#[test]
fn entities_keep_their_keys() {
    let mut bench = Bench::new();
    let create = r#"{"prefix":"auth get-or-create","entity":"client.x","caps":["mon","allow r"]}"#;
    let keyring = bench.ask(create);
    assert!(keyring.starts_with("[client.x]\n\tkey = "));
    assert_eq!(bench.ask(create), keyring);
    play(
        &mut bench,
        &[
            (
                r#""prefix":"auth get-or-create","entity":"client.x","caps":["mon","allow *"]"#,
                INVALID,
                "key for client.x exists but cap mon does not match",
            ),
            (
                r#""prefix":"auth get-or-create","entity":"client.y","caps":["mon"]"#,
                INVALID,
                "bad capabilities request; odd number of arguments",
            ),
            (
                r#""prefix":"auth get-or-create","entity":"client.y","caps":["foo","allow r"]"#,
                INVALID,
                "unknown cap type 'foo'",
            ),
            (
                r#""prefix":"auth get","entity":"client.nope""#,
                MISSING,
                "failed to find client.nope in keyring",
            ),
            (
                r#""prefix":"auth caps","entity":"client.x","caps":["mon","allow *"]"#,
                0,
                "updated caps for client.x",
            ),
            (r#""prefix":"auth rm","entity":"client.x""#, 0, "updated"),
            (r#""prefix":"auth rm","entity":"client.x""#, 0, "entity client.x does not exist"),
            (r#""prefix":"auth import""#, INVALID, "auth import: no data supplied"),
        ],
    );
    let imported = bench.run(r#"{"prefix":"auth import"}"#, keyring.as_bytes());
    assert_eq!((imported.code, imported.text.as_str()), (0, "imported keyring"));
}

#[test]
fn options_and_blobs_are_kept() {
    let mut bench = Bench::new();
    play(
        &mut bench,
        &[
            (r#""prefix":"config set","who":"osd.0","name":"osd_max_backfills","value":"7""#, 0, ""),
            (
                r#""prefix":"config set","who":"osd.0","name":"nokey","value":"3""#,
                INVALID,
                "unrecognized config option 'nokey'",
            ),
            (
                r#""prefix":"config set","who":"osd.0","name":"osd_max_backfills","value":"abc""#,
                INVALID,
                "error parsing value: strict_si_cast: unit prefix not recognized",
            ),
            (
                r#""prefix":"config set","who":"garb.age","name":"osd_max_backfills","value":"1""#,
                INVALID,
                "unrecognized config target 'garb.age'",
            ),
            (r#""prefix":"config-key set","key":"a/b","val":"v1""#, 0, "set a/b"),
            (r#""prefix":"config-key exists","key":"a/b""#, 0, "key 'a/b' exists"),
            (r#""prefix":"config-key exists","key":"no""#, MISSING, "key 'no' doesn't exist"),
        ],
    );
    assert_eq!(bench.ask(r#"{"prefix":"config get","who":"osd.0","key":"osd_max_backfills"}"#), "7\n");
    assert_eq!(bench.ask(r#"{"prefix":"config get","who":"osd.1","key":"osd_max_backfills"}"#), "3\n");
    let dump = "WHO        MASK  LEVEL     OPTION             VALUE  RO\n    osd.0        advanced  osd_max_backfills  7        \n";
    assert_eq!(bench.ask(r#"{"prefix":"config dump"}"#), dump);
    assert_eq!(bench.ask(r#"{"prefix":"config-key get","key":"a/b"}"#), "v1");
}

#[test]
fn clients_are_shut_out_and_let_in() {
    let mut bench = Bench::new();
    bench.ask(r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"192.0.2.7:0/9","expire":60.0}"#);
    play(
        &mut bench,
        &[
            (
                r#""prefix":"osd blocklist","blocklistop":"rm","addr":"192.0.2.7:0/9""#,
                0,
                "un-blocklisting 192.0.2.7:0/9",
            ),
            (
                r#""prefix":"osd blocklist","blocklistop":"rm","addr":"192.0.2.7:0/9""#,
                0,
                "192.0.2.7:0/9 isn't blocklisted",
            ),
            (
                r#""prefix":"osd blocklist","blocklistop":"add","addr":"garbage""#,
                INVALID,
                "unable to parse address garbage",
            ),
        ],
    );
}

#[test]
fn ranges_are_shut_out_and_let_in() {
    let mut bench = Bench::new();
    let add = |addr: &str| {
        format!(r#"{{"prefix":"osd blocklist","range":"range","blocklistop":"add","addr":"{addr}"}}"#)
    };
    assert_eq!(bench.run(&add("192.0.2.0/24"), &[]).code, 0);
    assert_eq!(bench.run(&add("192.0.2.0/24"), &[]).code, 0);
    assert_eq!(bench.run(&add("2001:db8::/32"), &[]).code, 0);
    let map = bench.state.osd.upcoming().clone();
    let shut = |addr: &str| map.is_blocklisted(&EntityAddr::parse(addr).expect("an address"));
    assert!(shut("v2:192.0.2.77:0/4711") && shut("any:[2001:db8::5]:0/1") && !shut("any:192.0.3.1:0/1"));
    for addr in ["192.0.2.1", "192.0.2.1/0", "192.0.2.1/33", "192.0.2.1:6789/8", "2001:db8::/129"] {
        let (code, text) = bench.say(&add(addr));
        assert_eq!(code, INVALID, "{addr}");
        assert!(text.contains("is no range of addresses"), "{text}");
    }
    let single = r#""prefix":"osd blocklist","blocklistop":"rm","addr":"192.0.2.0:0/24""#;
    let range = r#""prefix":"osd blocklist","range":"range","blocklistop":"rm","addr":"192.0.2.0/24""#;
    play(
        &mut bench,
        &[
            (single, 0, "192.0.2.0:0/24 isn't blocklisted"),
            (range, 0, "un-blocklisting cidr:192.0.2.0:0/24"),
            (range, 0, "cidr:192.0.2.0:0/24 isn't blocklisted"),
        ],
    );
    assert_eq!(bench.state.osd.upcoming().range_blocklist.len(), 1);
    bench.ask(r#"{"prefix":"osd blocklist clear"}"#);
    assert!(!bench.state.osd.upcoming().has_blocklist());
}

/// The map keeps the first end of an entry, so the reply names no other.
#[test]
fn an_entry_added_again_is_said_to_keep_its_end() {
    let mut bench = Bench::new();
    let add = r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"192.0.2.7:0/9","expire":60.0}"#;
    let first = bench.say(add);
    assert!(first.1.starts_with("blocklisting 192.0.2.7:0/9 until "), "{first:?}");
    let later = bench.say(&add.replace("60.0", "6000.0"));
    assert!(later.1.starts_with("192.0.2.7:0/9 stays blocklisted until "), "{later:?}");
}

#[test]
fn unknown_and_forbidden_commands_are_named() {
    let mut bench = Bench::new();
    play(
        &mut bench,
        &[
            (r#""prefix":"no such command""#, INVALID, "command not known: no such command"),
            (r#""prefix":"pg map","pgid":"abc""#, INVALID, "invalid pgid 'abc'"),
            (r#""prefix":"pg map","pgid":"99.0""#, MISSING, "pg '99.0' does not exist"),
        ],
    );
    bench.identity.caps =
        nacre_auth::MonCaps::parse("allow r", &bench.identity.auth_name).expect("valid caps");
    assert_eq!(bench.say(r#"{"prefix":"auth ls"}"#).0, Errno::EACCES.negated());
    assert_eq!(bench.say(r#"{"prefix":"osd set","key":"noout"}"#).0, Errno::EACCES.negated());
    assert_eq!(bench.say(r#"{"prefix":"osd stat"}"#).0, 0);
}

/// Every reading command that needs no arguments answers in every format.
#[test]
fn nothing_that_only_reads_fails() {
    let mut bench = Bench::new();
    let all: serde_json::Value = serde_json::from_str(&super::super::descriptions(&[], true)).expect("JSON");
    for row in all.as_object().expect("an object").values() {
        let sig = row["sig"].as_array().expect("a list");
        let needs = sig.iter().any(|part| part.is_object() && part["req"] != "false");
        if row["perm"].as_str().is_some_and(|perm| perm.contains('w')) || needs {
            continue;
        }
        let words: Vec<&str> = sig.iter().filter_map(serde_json::Value::as_str).collect();
        for format in ["plain", "json", "json-pretty", "xml"] {
            let output =
                bench.run(&format!(r#"{{"prefix":"{}","format":"{format}"}}"#, words.join(" ")), &[]);
            // It may be given by whoever may read, and has devices asked; here there are none.
            let acts = words == ["device", "scrape-health-metrics"];
            let expected = if acts { MISSING } else { 0 };
            assert_eq!(output.code, expected, "{words:?} as {format}: {}", output.text);
        }
    }
}

#[test]
fn crashes_are_kept_until_removed() {
    let mut bench = Bench::new();
    let report =
        br#"{"crash_id": "one", "timestamp": "2026-01-01 00:00:00.000000Z", "entity_name": "osd.3"}"#;
    assert_eq!(bench.run(r#"{"prefix": "crash post"}"#, report).code, 0);
    assert_eq!(bench.run(r#"{"prefix": "crash post"}"#, b"{}").code, Errno::EINVAL.negated());
    assert!(bench.ask(r#"{"prefix": "crash stat"}"#).starts_with("1 crashes recorded\n"));
    assert!(bench.ask(r#"{"prefix": "crash ls", "format": "json"}"#).contains(r#""crash_id":"one""#));
    assert_eq!(bench.ask(r#"{"prefix": "crash info", "id": "one"}"#).as_bytes(), report);
    bench.ask(r#"{"prefix": "crash rm", "id": "one"}"#);
    assert_eq!(bench.ask(r#"{"prefix": "crash stat"}"#), "0 crashes recorded\n");
}

#[test]
fn a_change_that_cannot_be_is_taken_back_and_others_stay() {
    let mut bench = Bench::new();
    let osds = &mut bench.state.osd;
    osds.change().new_weight.insert(0, 0);
    assert_eq!(osds.check_changes(), Ok(()));
    osds.change().new_weight.insert(9999, 0);
    assert!(osds.check_changes().is_err());
    assert_eq!(osds.check_changes(), Ok(()), "said once");
    assert_eq!(osds.upcoming().weight(0), 0);
    assert_eq!(osds.change().new_weight.len(), 1);
}

/// Bits of maps are flipped, weights come first and bring an OSD into being, and an entry that flips nothing flips `up`: whatever
/// order commands come in before the next epoch, each has its effect.
#[test]
fn changes_to_one_osd_add_up_within_an_epoch() {
    let mut bench = Bench::new();
    let up = |bench: &mut Bench| bench.state.osd.upcoming().is_up(0);
    assert!(up(&mut bench));
    bench.ask(r#"{"prefix":"osd set-group","flags":"noout","who":["osd.0"]}"#);
    bench.ask(r#"{"prefix":"osd unset-group","flags":"noout","who":["osd.0"]}"#);
    assert!(up(&mut bench), "a flag that was set and taken back is no change");

    let new = bench.ask(r#"{"prefix":"osd new","uuid":"0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f"}"#);
    let osd: i32 = new.trim().parse().expect("a number");
    let place = format!(
        r#"{{"prefix":"osd crush create-or-move","id":{osd},"weight":1.0,"args":["host=new","root=default"]}}"#
    );
    assert_eq!(bench.say(&place).0, 0);
    bench.ask(&format!(r#"{{"prefix":"osd in","ids":["{osd}"]}}"#));
    let map = bench.state.osd.upcoming();
    assert!(map.exists(osd) && map.is_in(osd), "state {}", map.state(osd));
    bench.ask(&format!(r#"{{"prefix":"osd purge-actual","id":{osd},"yes_i_really_mean_it":true}}"#));
    assert!(!bench.state.osd.upcoming().exists(osd));
}

/// PGs must not ask a new OSD what one of its number wrote before.
#[test]
fn what_an_osd_of_a_number_held_is_lost_when_the_number_is_given_anew() {
    let mut bench = Bench::new();
    for end in ["destroy", "purge"] {
        bench.ask(r#"{"prefix":"osd down","ids":["3"]}"#);
        bench.ask(&format!(r#"{{"prefix":"osd {end}","id":3,"force":true,"yes_i_really_mean_it":true}}"#));
        bench.ask(r#"{"prefix":"osd new","id":3,"uuid":"0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f"}"#);
        let map = bench.state.osd.upcoming();
        assert!(map.exists(3), "{end}");
        assert_eq!(map.info(3).lost_at, map.epoch, "{end}");
    }
}

/// A weight brings an OSD into being; taken back within the same epoch, it does not take the OSD with it.
#[test]
fn a_new_osd_that_is_marked_in_and_out_at_once_is_there() {
    let mut bench = Bench::new();
    bench.ask(r#"{"prefix":"osd new","id":3,"uuid":"0e1c2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f"}"#);
    for (command, is_in) in [("in", true), ("out", false), ("in", true), ("out", false)] {
        bench.ask(&format!(r#"{{"prefix":"osd {command}","ids":["3"]}}"#));
        let map = bench.state.osd.upcoming();
        assert_eq!((map.exists(3), map.is_up(3), map.is_in(3)), (true, false, is_in), "{command}");
    }
    bench.ask(r#"{"prefix":"osd in","ids":["3"]}"#);
    bench.ask(r#"{"prefix":"osd rm","ids":["3"]}"#);
    assert!(!bench.state.osd.upcoming().exists(3), "nor does a weight keep one that is removed");
}
