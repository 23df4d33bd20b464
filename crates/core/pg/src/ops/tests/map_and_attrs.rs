//! Attribute and omap operations, one by one.

use super::*;
use crate::ops::testing::{Client, omap_set, set_attr};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Writer;
use nacre_msg::osd_op::compare_op;
use nacre_types::Errno;
use std::collections::BTreeMap;

fn strings(keys: &[&str]) -> Vec<ByteStr> {
    keys.iter().copied().map(ByteStr::from).collect()
}

#[test]
fn attributes() {
    let mut client = Client::with_old();
    assert_eq!(client.send(vec![set_attr("a", "1"), set_attr("b", "2")]).result, 0);
    let all = answers(&client.send(vec![op(code::GETXATTRS)])).pop().expect("one").1;
    let want: BTreeMap<ByteStr, Bytes> =
        [("a", "1"), ("b", "2"), ("k", "old")].map(|(name, value)| (name.into(), value.into())).into();
    assert_eq!(all, want.to_bytes());
    assert_eq!(client.send(vec![get_attr("none")]).result, Errno::ENODATA.negated());
    let remove = |name: &str| SubOp::with_xattr(code::RMXATTR, name.as_bytes(), b"", 0, 0);
    assert_eq!(client.send(vec![remove("a")]).result, 0);
    assert_eq!(client.send(vec![get_attr("a")]).result, Errno::ENODATA.negated());
    assert_eq!(client.send(vec![remove("none")]).result, 0); // measured
    assert_eq!(client.send(vec![set_attr(&"x".repeat(101), "")]).result, Errno::ENAMETOOLONG.negated());
    assert_eq!(client.send(vec![set_attr(&"x".repeat(100), &"y".repeat(200_000))]).result, 0);
    assert_eq!(client.send(vec![set_attr("x", &"y".repeat((4 << 20) + 1))]).result, Errno::EFBIG.negated());
    let cut = SubOp { indata: vec![b'x'].into(), ..set_attr("name", "value") };
    assert_eq!(client.send(vec![cut]).result, Errno::EINVAL.negated());
}

/// Which of less, equal and greater arguments an operator accepts.
fn accepted(client: &mut Client, compare: impl Fn(&str) -> SubOp) -> Vec<i32> {
    ["a", "m", "z"].iter().map(|value| client.send(vec![compare(value)]).result).collect()
}

#[test]
fn attribute_comparisons_as_measured() {
    let mut client = Client::default();
    client.send(vec![set_attr("s", "m")]);
    const NO: i32 = -125;
    for (operator, want) in [
        (compare_op::EQ, [NO, 1, NO]),
        (compare_op::NE, [1, NO, 1]),
        (compare_op::GT, [NO, NO, 1]),
        (compare_op::GTE, [NO, 1, 1]),
        (compare_op::LT, [1, NO, NO]),
        (compare_op::LTE, [1, 1, NO]),
        (7, [-22; 3]),
        (0, [-22; 3]),
    ] {
        assert_eq!(accepted(&mut client, |value| compare_attr("s", operator, value)), want, "{operator}");
    }
    assert_eq!(client.send(vec![compare_attr("none", compare_op::EQ, "")]).result, 1);
}

#[test]
fn numbers_compare_as_numbers() {
    let mut client = Client::default();
    client.send(vec![set_attr("n", "12")]);
    let compare = |name: &str, operator, value: u64| {
        SubOp::with_xattr(code::CMPXATTR, name.as_bytes(), &value.to_le_bytes(), operator, 2)
    };
    assert_eq!(client.send(vec![compare("n", compare_op::EQ, 12)]).result, 1);
    assert_eq!(client.send(vec![compare("n", compare_op::GT, 13)]).result, 1);
    assert_eq!(client.send(vec![compare("n", compare_op::GT, 12)]).result, Errno::ECANCELED.negated());
    assert_eq!(client.send(vec![compare("none", compare_op::EQ, 0)]).result, 1);
    let short = SubOp::with_xattr(code::CMPXATTR, b"n", b"1", compare_op::EQ, 2);
    assert_eq!(client.send(vec![short]).result, Errno::EINVAL.negated());
    let mode = SubOp::with_xattr(code::CMPXATTR, b"n", b"1", compare_op::EQ, 3);
    assert_eq!(client.send(vec![mode]).result, Errno::EINVAL.negated());
}

#[test]
fn omap_comparisons_as_measured() {
    let mut client = Client::default();
    client.send(vec![omap_set("k", "m")]);
    const NO: i32 = -125;
    let compare = |key: &str, operator: u8, value: &str| {
        let wanted = BTreeMap::from([(ByteStr::from(key), (ByteStr::from(value), i32::from(operator)))]);
        with_input(code::OMAP_CMP, &wanted.into_iter().collect::<Vec<_>>())
    };
    for (operator, want) in [
        (compare_op::EQ, [NO, 0, NO]),
        (compare_op::GT, [0, NO, NO]),
        (compare_op::LT, [NO, NO, 0]),
        (compare_op::NE, [-22; 3]),
        (compare_op::GTE, [-22; 3]),
        (7, [-22; 3]),
    ] {
        assert_eq!(accepted(&mut client, |value| compare("k", operator, value)), want, "{operator}");
    }
    assert_eq!(client.send(vec![compare("none", compare_op::EQ, "")]).result, 0);
}

fn keys(after: &str, max: u64) -> SubOp {
    with_input(code::OMAPGETKEYS, &(ByteStr::from(after), max))
}

fn values(after: &str, max: u64, prefix: &str) -> SubOp {
    with_input(code::OMAPGETVALS, &((ByteStr::from(after), max), ByteStr::from(prefix)))
}

#[test]
fn omap_pages() {
    let mut client = Client::default();
    let names = ["", "a", "b1", "b2", "b3", "c"];
    client.send(names.iter().map(|name| omap_set(name, name)).collect());
    let mut listed = |op: SubOp| answers(&client.send(vec![op])).pop().expect("one").1;
    let key_page = |names: &[&str], more: bool| (strings(names), more).to_bytes();
    assert_eq!(listed(keys("", 100)), key_page(&["a", "b1", "b2", "b3", "c"], false));
    assert_eq!(listed(keys("a", 2)), key_page(&["b1", "b2"], true));
    assert_eq!(listed(keys("b3", 1)), key_page(&["c"], false));
    assert_eq!(listed(keys("a", 0)), key_page(&[], true));
    assert_eq!(listed(keys("c", 5)), key_page(&[], false));
    let value_page = |names: &[&str], more: bool| {
        let entries: Vec<(ByteStr, ByteStr)> =
            names.iter().map(|name| (ByteStr::from(*name), ByteStr::from(*name))).collect();
        (entries, more).to_bytes()
    };
    assert_eq!(listed(values("", 10, "b")), value_page(&["b1", "b2", "b3"], false));
    assert_eq!(listed(values("", 2, "b")), value_page(&["b1", "b2"], true));
    assert_eq!(listed(values("b2", 9, "b")), value_page(&["b3"], false));
    assert_eq!(listed(values("c", 9, "b")), value_page(&[], false));
    assert_eq!(listed(omap_get("b2")), omap_answer(&[("b2", "b2")]));
}

#[test]
fn a_page_has_at_most_1024_entries() {
    let mut client = Client::default();
    let entries: Vec<(ByteStr, ByteStr)> =
        (0..1100).map(|n| (format!("{n:05}").into(), ByteStr::EMPTY)).collect();
    client.send(vec![with_input(code::OMAPSETVALS, &entries)]);
    let out = answers(&client.send(vec![keys("", u64::MAX)])).pop().expect("one").1;
    assert_eq!(out[..4], 1024_u32.to_le_bytes());
    assert_eq!(out.last(), Some(&1));
}

#[test]
fn omap_changes() {
    let mut client = Client::default();
    client.send(["a", "b", "c", "d"].iter().map(|name| omap_set(name, name)).collect());
    client.send(vec![op(code::OMAPSETHEADER).with_indata(b"head".to_vec().into())]);
    assert_eq!(answers(&client.send(vec![op(code::OMAPGETHEADER)]))[0].1, b"head");
    client.send(vec![with_input(code::OMAPRMKEYS, &strings(&["d", "none"]))]);
    client.send(vec![with_input(code::OMAPRMKEYRANGE, &(ByteStr::from("a"), ByteStr::from("c")))]);
    let left: Vec<ByteStr> = client.stored().omap.into_keys().collect();
    assert_eq!(left, strings(&["c"]));
    client.send(vec![op(code::OMAPCLEAR)]);
    assert!(client.stored().omap.is_empty() && client.stored().header.is_empty());
    assert!(!client.context().info.has_omap);
    let mut bad = Writer::new();
    bad.u32(u32::MAX);
    for code in [code::OMAPSETVALS, code::OMAPRMKEYS, code::OMAPGETKEYS, code::OMAP_CMP] {
        let op = op(code).with_indata(Bytes::copy_from_slice(bad.as_slice()).into());
        assert_eq!(client.send(vec![op]).result, Errno::EINVAL.negated());
    }
}
