//! What operations see of earlier ones in the same message: as measured on an OSD of Ceph 16.2.15.
//!
//! Outputs of a successful write are not returned without RETURNVEC, so the examples are sent with it.

use super::*;
use crate::ops::testing::{Client, omap_set, set_attr};
use nacre_buf::ByteStr;
use nacre_msg::osd_op::{compare_op, flag, op_flag};
use nacre_types::Errno;

fn old() -> Client {
    Client { flags: flag::RETURNVEC, ..Client::with_old() }
}

/// The last operation's result and output after a message on an object with old content.
fn last(ops: Vec<SubOp>) -> (i32, Vec<u8>) {
    answers(&old().send(ops)).pop().expect("operations")
}

/// As [`last`], without an object before.
fn last_of_new(ops: Vec<SubOp>) -> (i32, Vec<u8>) {
    let mut client = Client { flags: flag::RETURNVEC, ..Client::default() };
    answers(&client.send(ops)).pop().expect("operations")
}

fn no(errno: Errno) -> (i32, Vec<u8>) {
    (errno.negated(), Vec::new())
}

fn yes(out: &[u8]) -> (i32, Vec<u8>) {
    (0, out.to_vec())
}

#[test]
fn attributes_read_as_before() {
    assert_eq!(last(vec![set_attr("k", "new"), get_attr("k")]), yes(b"old"));
    assert_eq!(
        last(vec![set_attr("k", "new"), compare_attr("k", compare_op::EQ, "new")]),
        no(Errno::ECANCELED)
    );
    assert_eq!(last(vec![set_attr("k", "new"), compare_attr("k", compare_op::EQ, "old")]), (1, Vec::new()));
    assert_eq!(last(vec![delete(), get_attr("k")]), yes(b"old"));
    assert_eq!(last(vec![delete(), create(), get_attr("k")]), yes(b"old"));
}

#[test]
fn data_reads_as_before_within_the_new_size() {
    assert_eq!(last(vec![full("newer"), read()]), yes(b"old"));
    assert_eq!(last(vec![extent(code::TRUNCATE, 1, 0), read()]), yes(b"o"));
    let answers = answers(&old().send(vec![append("XX"), read(), stat()]));
    assert_eq!(answers[1], yes(b"old"));
    assert_eq!(answers[2].1[..8], 5_u64.to_le_bytes());
    assert_eq!(last(vec![delete(), create(), read()]), yes(b""));
}

#[test]
fn omap_reads_as_before_unless_it_was_cleared() {
    assert_eq!(last(vec![omap_set("k", "new"), omap_get("k")]), yes(&omap_answer(&[("k", "old")])));
    let remove = with_input(code::OMAPRMKEYS, &vec![ByteStr::from("k")]);
    assert_eq!(last(vec![remove, omap_get("k")]), yes(&omap_answer(&[("k", "old")])));
    assert_eq!(last(vec![op(code::OMAPCLEAR), omap_get("k")]), yes(&omap_answer(&[])));
    assert_eq!(last(vec![op(code::OMAPCLEAR), op(code::OMAPGETHEADER)]), yes(b""));
    assert_eq!(last(vec![delete(), create(), omap_get("k")]), yes(&omap_answer(&[("k", "old")])));
}

#[test]
fn existence_follows_the_message() {
    assert_eq!(last(vec![delete(), stat()]), no(Errno::ENOENT));
    assert_eq!(last(vec![delete(), create().with_flags(op_flag::EXCL)]), yes(b""));
    assert_eq!(last(vec![create().with_flags(op_flag::EXCL)]), no(Errno::EEXIST));
    assert_eq!(last_of_new(vec![create(), stat()]).0, 0);
}

#[test]
fn writes_compose() {
    let mut client = old();
    client.send(vec![append("1"), append("2")]);
    assert_eq!(client.stored().data, b"old12");
    client.send(vec![delete(), write(2, "x")]);
    let stored = client.stored();
    assert_eq!(stored.data, b"\0\0x");
    assert!(stored.attrs.is_empty() && stored.omap.is_empty());
    assert!(!client.context().info.has_omap);
}

#[test]
fn class_methods_see_the_state_before_too() {
    let cond = |version: u64| {
        // Check of the `version` class: object version {n, ""}, condition EQ.
        let mut w = nacre_denc::Writer::new();
        let object = |w: &mut nacre_denc::Writer| {
            w.envelope(1, 1, |w| {
                w.u64(version);
                w.str("");
            });
        };
        w.envelope(1, 1, |w| {
            object(w);
            w.count(1);
            w.envelope(1, 1, |w| {
                object(w);
                w.u32(1);
            });
        });
        w.finish()
    };
    let mut set = nacre_denc::Writer::new();
    set.envelope(1, 1, |w| {
        w.envelope(1, 1, |w| {
            w.u64(7);
            w.str("");
        });
    });
    let mut client = Client::default();
    assert_eq!(client.send(vec![SubOp::call("version", "set", &set.finish())]).result, 0);
    let check = |version| SubOp::call("version", "check_conds", &cond(version));
    // How radosgw rewrites its metadata.
    assert_eq!(client.send(vec![check(6), delete(), create()]).result, Errno::ECANCELED.negated());
    assert_eq!(client.send(vec![delete(), create(), check(7), full("new")]).result, 0);
    assert_eq!(client.stored().data, b"new");
}

#[test]
fn directory_entries_of_the_same_message_are_not_seen() {
    let name_and_id = |id: &str| (ByteStr::from("n1"), ByteStr::from(id)).to_bytes();
    let add = |id: &str| SubOp::call("rbd", "dir_add_image", &name_and_id(id));
    let find = SubOp::call("rbd", "dir_get_id", &ByteStr::from("n1").to_bytes());
    assert_eq!(last_of_new(vec![add("i1"), find]), no(Errno::ENOENT));
    assert_eq!(Client::default().send(vec![add("i1"), add("i2")]).result, 0);
    let mut client = Client::default();
    assert_eq!(client.send(vec![add("i1")]).result, 0);
    assert_eq!(client.send(vec![add("i2")]).result, Errno::EEXIST.negated());
}

#[test]
fn without_an_object_reads_in_a_write_fail_or_are_empty() {
    let omap_cmp = with_input(
        code::OMAP_CMP,
        &std::collections::BTreeMap::from([(ByteStr::from("k"), (ByteStr::from("v"), 1_i32))]),
    );
    for read_op in [
        get_attr("k"),
        op(code::GETXATTRS),
        compare_attr("k", compare_op::EQ, "v"),
        omap_cmp,
        extent(code::SPARSE_READ, 0, 10),
    ] {
        for first in [create(), set_attr("k", "v")] {
            assert_eq!(last_of_new(vec![first, read_op.clone()]), no(Errno::ENOENT), "{read_op:?}");
        }
    }
    for write_op in [
        SubOp::with_xattr(code::RMXATTR, b"k", b"", 0, 0),
        with_input(code::OMAPRMKEYS, &vec![ByteStr::from("k")]),
        op(code::OMAPCLEAR),
        stat().with_flags(0),
    ] {
        assert_eq!(last_of_new(vec![write_op.clone(), create()]).0, 0, "later operations have result 0");
        let mut client = Client::default();
        assert_eq!(
            client.send(vec![write_op.clone(), create()]).result,
            Errno::ENOENT.negated(),
            "{write_op:?}"
        );
        assert_eq!(Client::default().send(vec![create(), write_op]).result, 0);
    }
    assert_eq!(last_of_new(vec![create(), read()]), yes(b""));
    assert_eq!(last_of_new(vec![full("x"), read()]), no(Errno::ENOENT));
    assert_eq!(last_of_new(vec![create(), omap_get("k")]), yes(&omap_answer(&[])));
    let compare = extent(code::CMPEXT, 0, 2).with_indata(vec![0, 0].into());
    assert_eq!(last_of_new(vec![create(), compare]), yes(b""));
    assert_eq!(last_of_new(vec![create(), SubOp::with_assert_ver(1)]), no(Errno::EOVERFLOW));
    assert_eq!(last_of_new(vec![set_attr("k", "v")]), yes(b""));
    assert_eq!(last_of_new(vec![omap_set("k", "v")]), yes(b""));
}
