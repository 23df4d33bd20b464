//! Every captured message decodes, and encodes to the same bytes again.

mod common;

use common::{Golden, messages};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_msg::osd_op::{Extent, code, flag, op_flag, watch_op};
use nacre_msg::stats::pg_state;
use nacre_msg::{DaemonConfig, Message, NotifyOutcome, OsdOp, OsdOpReply, config_level};
use nacre_types::{PgId, SnapId};
use std::collections::BTreeMap;

fn goldens() -> Vec<Golden> {
    messages("messages")
}

fn golden(name: &str) -> Message {
    let all = goldens();
    let one = all.into_iter().find(|golden| golden.name == name).expect("a captured message of this name");
    Message::decode(one.raw).expect("captured messages decode")
}

fn osd_op(name: &str) -> OsdOp {
    match golden(name) {
        Message::OsdOp(op) => op,
        other => panic!("{name} is {}", other.name()),
    }
}

fn osd_op_reply(name: &str) -> OsdOpReply {
    match golden(name) {
        Message::OsdOpReply(reply) => reply,
        other => panic!("{name} is {}", other.name()),
    }
}

#[test]
fn captured_messages_encode_to_the_same_bytes() {
    let all = goldens();
    assert!(all.len() > 100, "only {} captured messages found", all.len());
    for Golden { name, raw } in all {
        let message = Message::decode(raw.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!matches!(message, Message::Unknown(_)), "{name}: type {} is not known", raw.kind);
        assert_eq!(message.kind(), raw.kind);
        let again = message.encode(raw.tid);
        assert_eq!(again.front, raw.front, "{name}: front");
        assert_eq!(again.data, raw.data, "{name}: data");
        assert_eq!(
            (again.tid, again.version, again.compat),
            (raw.tid, raw.version, raw.compat),
            "{name}: header"
        );
    }
}

#[test]
fn a_tail_that_a_newer_sender_appends_is_ignored() {
    // These two fill their front, and an OsdOp of a newer version has fields in the middle.
    let takes_everything = ["fs_map", "mgr_map"];
    for Golden { name, raw } in goldens() {
        if takes_everything.contains(&name.as_str()) || name.starts_with("osd_op_") {
            continue;
        }
        let plain = Message::decode(raw.clone()).expect("captured messages decode");
        let front = [&raw.front[..], &[0xff; 9]].concat().into();
        let newer = Message::decode(nacre_msg::RawMessage { version: raw.version + 1, front, ..raw });
        assert_eq!(newer.as_ref(), Ok(&plain), "{name}");
    }
}

#[test]
fn a_sender_that_demands_a_newer_reader_is_refused() {
    for Golden { name, raw } in goldens() {
        let (version, compat) = (raw.version + 9, raw.version + 9);
        let refused = Message::decode(nacre_msg::RawMessage { version, compat, ..raw });
        assert!(matches!(refused, Err(DecodeError::Incompatible { .. })), "{name}: {refused:?}");
    }
}

/// Ceph's manager reads both, whatever is there.
#[test]
fn a_daemons_options_are_two_maps() {
    let Message::MgrOpen(open) = golden("mgr_open") else { panic!("a MgrOpen") };
    let config = DaemonConfig::from_bytes(open.config.clone()).expect("two maps");
    assert_eq!(config.to_bytes(), open.config);
    let level = config.values.get("auth_client_required").and_then(|levels| levels.get(&config_level::FILE));
    assert_eq!(level.map(String::as_str), Some("cephx"));
    assert!(BTreeMap::<String, String>::from_bytes(open.config_defaults).is_ok_and(|map| !map.is_empty()));
}

#[test]
fn payload_lengths_must_add_up_to_the_data() {
    let write = goldens().into_iter().find(|golden| golden.name == "osd_op_writefull").expect("a write");
    let data = write.raw.data.to_bytes();
    for wrong in [&data[..data.len() - 1], &[&data[..], b"x"].concat()] {
        let raw = nacre_msg::RawMessage { data: wrong.to_vec().into(), ..write.raw.clone() };
        assert!(Message::decode(raw).is_err());
    }
}

#[test]
fn a_write_has_the_fields_that_were_sent() {
    let op = osd_op("osd_op_write");
    assert_eq!((op.name == "o", op.spg.pg, op.snap), (true, PgId::new(2, 1), SnapId::HEAD));
    assert_eq!(op.flags, flag::ONDISK | flag::WRITE | flag::KNOWN_REDIR);
    assert!(op.has_write_op());
    let [write] = op.ops.as_slice() else { panic!("one operation") };
    assert_eq!(write.extent(), Extent { offset: 3, length: 1, ..Extent::default() });
    assert_eq!(&write.indata.to_bytes()[..], b"X");
}

#[test]
fn typed_arguments_are_those_of_the_tools() {
    let bench = osd_op("osd_op_omapcmp_write_omaprmkeys");
    let codes: Vec<&str> = bench.ops.iter().map(|op| code::name(op.code)).collect();
    assert_eq!(codes, ["omap-cmp", "write", "omap-rm-keys"]);

    let list = osd_op("osd_op_pgnls");
    assert!(code::is_pg(list.ops[0].code));
    assert_eq!(list.ops[0].pg_list().count, 1024);

    let watch = osd_op("osd_op_watch").ops[0].watch();
    assert!([watch_op::WATCH, watch_op::UNWATCH].contains(&watch.op) && watch.cookie != 0);

    let (name, value) = osd_op("osd_op_setxattr").ops[0].xattr_parts().expect("name and value");
    assert_eq!((&name[..], &value[..]), (&b"k"[..], &b"v"[..]));

    let call = osd_op("osd_op_call").ops[0].class_call().expect("class, method and input");
    assert!(!call.class.is_empty() && !call.method.is_empty());

    let create = osd_op("osd_op_create");
    assert_eq!(create.ops[0].flags, op_flag::EXCL);

    let same = osd_op("osd_op_writesame_zero_truncate");
    let pattern = same.ops[0].writesame();
    assert_eq!((pattern.offset, pattern.length, pattern.data_length), (0, 8, 2));
    assert_eq!((same.ops[1].extent().length, same.ops[2].extent().offset), (2, 5));

    let copy = osd_op("osd_op_copy_from").ops[0].copy_from();
    assert_eq!(
        (copy.source_snap, copy.source_fadvise),
        (SnapId::HEAD, op_flag::FADVISE_SEQUENTIAL | op_flag::FADVISE_NOCACHE)
    );
}

#[test]
fn replies_share_out_their_data() {
    let found = osd_op_reply("osd_op_reply_read");
    assert_eq!((found.result, found.ops[0].rval), (0, 0));
    assert!(!found.ops[0].outdata.is_empty());
    let missing = osd_op_reply("osd_op_reply_enoent_read");
    assert_eq!(missing.result, -2);
    assert!(missing.ops[0].outdata.is_empty());
}

#[test]
fn a_completed_notify_says_who_answered() {
    let Message::WatchNotify(complete) = golden("watch_notify_complete") else { panic!("a WatchNotify") };
    let outcome = NotifyOutcome::from_bytes(complete.data.to_bytes()).expect("an outcome");
    assert!(outcome.timeouts.is_empty());
    assert_eq!(complete.data.to_bytes(), outcome.to_bytes());
}

#[test]
fn states_of_placement_groups_have_ceph_s_names() {
    let Message::PgStats(stats) = golden("pg_stats_pgs") else { panic!("a PgStats") };
    let stat = stats.pg_stat.values().next().expect("a placement group");
    assert!(pg_state::text(stat.state).starts_with("active+"), "{}", pg_state::text(stat.state));
    assert_eq!(pg_state::text(pg_state::ACTIVE | pg_state::CLEAN), "active+clean");
    assert_eq!(pg_state::text(0), "unknown");
}
