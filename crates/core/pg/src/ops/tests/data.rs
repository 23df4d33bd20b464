//! Data operations, one by one.

use super::*;
use crate::ops::testing::{Client, collection, set_attr};
use crate::ops::{Change, Fullness, OBJECT_BYTES_MAX};
use crate::ops::{Copied, CopiedObject, CopyCursor, CopyPart, Suspend, extract};
use nacre_denc::{Reader, Writer};
use nacre_msg::osd_op::{AllocHint, Checksum, flag, op_flag};
use nacre_types::{Errno, HObject, ObjectLocator, SnapId, UTime};

fn holding(data: &str) -> Client {
    let mut client = Client::default();
    client.send(vec![full(data)]);
    client
}

/// Data after a message on an object that holds `abcdef`.
fn after(ops: Vec<SubOp>) -> String {
    let mut client = holding("abcdef");
    assert_eq!(client.send(ops).result, 0);
    String::from_utf8(client.stored().data).expect("text")
}

fn fails(op: SubOp) -> i32 {
    holding("abcdef").send(vec![op]).result
}

#[test]
fn reads_are_cut_at_the_end() {
    let read = |offset, length| {
        answers(&holding("abcdef").send(vec![SubOp::read(offset, length)])).pop().expect("one").1
    };
    assert_eq!(read(0, 0), b"abcdef");
    assert_eq!(read(4, 10), b"ef");
    assert_eq!(read(6, 10), b"");
    assert_eq!(read(2, 0), b"cdef");
    assert_eq!(read(u64::MAX, u64::MAX), b"");
    assert_eq!(read(1, u64::MAX), b"bcdef");
    assert_eq!(Client::default().send(vec![SubOp::read(0, 0)]).result, Errno::ENOENT.negated());
}

#[test]
fn sparse_reads_answer_extents_and_data() {
    let out = &answers(&holding("abcdef").send(vec![extent(code::SPARSE_READ, 2, 10)]))[0].1;
    let mut want = Writer::new();
    want.put(&vec![(2_u64, 4_u64)]);
    want.blob(b"cdef");
    assert_eq!(*out, want.finish());
    let out = &answers(&holding("abcdef").send(vec![extent(code::MAPEXT, 0, 3)]))[0].1;
    assert_eq!(*out, vec![(0_u64, 3_u64)].to_bytes());
}

#[test]
fn writes() {
    assert_eq!(after(vec![write(1, "XY")]), "aXYdef");
    assert_eq!(after(vec![write(7, "X")]), "abcdef\0X");
    assert_eq!(after(vec![write(8, "")]), "abcdef\0\0"); // measured: nothing, written behind the end, extends
    assert_eq!(after(vec![write(2, "")]), "abcdef");
    assert_eq!(after(vec![full("xy")]), "xy");
    assert_eq!(after(vec![append("gh"), append("i")]), "abcdefghi");
    assert_eq!(fails(extent(code::WRITE, 0, 5).with_indata(vec![0; 4].into())), Errno::EINVAL.negated());
    assert_eq!(fails(extent(code::WRITEFULL, 0, 5)), Errno::EINVAL.negated());
}

#[test]
fn truncating_and_zeroing() {
    assert_eq!(after(vec![extent(code::TRUNCATE, 2, 0)]), "ab");
    assert_eq!(after(vec![extent(code::TRUNCATE, 8, 0)]), "abcdef\0\0");
    // Measured: a range that reaches the end cuts there, one behind the end does nothing.
    assert_eq!(after(vec![extent(code::ZERO, 4, 2)]), "abcd");
    assert_eq!(after(vec![extent(code::ZERO, 1, 2)]), "a\0\0def");
    assert_eq!(after(vec![extent(code::ZERO, 6, 10)]), "abcdef");
    // A real OSD asserts on length 0 here and dies; nothing to do.
    assert_eq!(after(vec![extent(code::ZERO, 2, 0)]), "abcdef");
    for op in [extent(code::TRUNCATE, 2, 0), extent(code::ZERO, 0, 2)] {
        let mut client = Client::default();
        assert_eq!(client.send(vec![op]).result, 0);
        assert!(!client.context().exists);
    }
}

#[test]
fn writesame_repeats_its_pattern() {
    let same =
        |offset, length, pattern: &[u8]| SubOp::with_writesame(offset, length, pattern.to_vec().into());
    assert_eq!(after(vec![same(1, 4, b"XY")]), "aXYXYf");
    assert_eq!(after(vec![same(1, 0, b"XY")]), "abcdef");
    assert_eq!(fails(same(0, 3, b"XY")), Errno::EINVAL.negated());
    assert_eq!(fails(same(0, 4, b"")), Errno::EINVAL.negated());
    assert_eq!(fails(same(0, u64::MAX, b"X")), Errno::EFBIG.negated());
    let mut client = Client::default();
    client.send(vec![same(0, 200_001, b"xyz")]);
    assert_eq!(client.stored().data, b"xyz".repeat(66_667));
}

#[test]
fn objects_end_at_128_mib() {
    let max = OBJECT_BYTES_MAX;
    let too_big = Errno::EFBIG.negated();
    assert_eq!(fails(write(max, "")), too_big);
    assert_eq!(fails(write(max - 1, "xx")), too_big);
    assert_eq!(fails(write(u64::MAX, "xx")), too_big);
    assert_eq!(fails(extent(code::TRUNCATE, max, 0)), too_big);
    assert_eq!(fails(extent(code::ZERO, max, 1)), too_big);
    assert_eq!(fails(extent(code::ZERO, 0, max + 1)), too_big);
    assert_eq!(fails(extent(code::ZERO, 3, u64::MAX)), too_big);
}

#[test]
fn truncation_sequences_order_writes_of_the_file_system() {
    let cut = |seq, size| {
        SubOp::with_extent(
            code::TRIMTRUNC,
            Extent { offset: 0, length: 0, truncate_size: size, truncate_seq: seq },
        )
    };
    let write_in = |seq, size, offset, data: &str| {
        let length = data.len() as u64;
        let extent = Extent { offset, length, truncate_size: size, truncate_seq: seq };
        SubOp::with_extent(code::WRITE, extent).with_indata(data.as_bytes().to_vec().into())
    };
    let mut client = holding("abcdef");
    client.send(vec![cut(2, 4)]);
    assert_eq!(client.stored().data, b"abcd");
    client.send(vec![cut(2, 1)]); // an old truncation
    assert_eq!(client.stored().data, b"abcd");
    client.send(vec![write_in(1, 100, 2, "XYZ")]); // an old write keeps what lies before the cut
    assert_eq!(client.stored().data, b"abXY");
    client.send(vec![write_in(3, 1, 2, "Q")]); // a newer one cuts first
    assert_eq!(client.stored().data, b"a\0Q");
    let newer = Extent { offset: 0, length: 3, truncate_size: 2, truncate_seq: 9 };
    let out = answers(&client.send(vec![SubOp::with_extent(code::READ, newer)])).pop().expect("one").1;
    assert_eq!(out, b"a\0");
    let elsewhere = Extent { offset: 1, length: 0, truncate_size: 2, truncate_seq: 9 };
    let bad = SubOp::with_extent(code::TRUNCATE, elsewhere);
    assert_eq!(client.send(vec![bad]).result, Errno::EINVAL.negated());
    client.send(vec![SubOp::with_extent(code::TRIMTRUNC, elsewhere)]);
    assert_eq!(client.stored().data, b"a\0", "its offset says nothing");
}

#[test]
fn the_first_truncation_to_the_largest_size_is_none() {
    let none = |code, offset, length| {
        SubOp::with_extent(code, Extent { offset, length, truncate_size: u64::MAX, truncate_seq: 1 })
    };
    let mut client = holding("abcdef");
    let written = client.send(vec![none(code::WRITE, 2, 3).with_indata(b"XYZ".to_vec().into())]);
    assert_eq!((written.result, client.stored().data), (0, b"abXYZf".to_vec()));
    let out = answers(&client.send(vec![none(code::READ, 0, 0)])).pop().expect("one").1;
    assert_eq!(out, b"abXYZf");
    let cut = Extent { offset: 0, length: 0, truncate_size: 4, truncate_seq: 1 };
    client.send(vec![SubOp::with_extent(code::TRIMTRUNC, cut)]);
    assert_eq!(client.stored().data, b"abXY", "no truncation was known before");
}

#[test]
fn cmpext_names_the_first_difference() {
    let compare = |data: &str| fails(extent(code::CMPEXT, 0, 8).with_indata(data.as_bytes().to_vec().into()));
    assert_eq!(compare("abc"), 0);
    assert_eq!(compare("abcdef\0\0"), 0);
    assert_eq!(compare("xbc"), -4095);
    assert_eq!(compare("abcdefg"), -4101);
}

#[test]
fn versions_can_be_asserted() {
    let mut client = holding("1");
    client.send(vec![full("2")]);
    assert_eq!(client.send(vec![SubOp::with_assert_ver(2)]).result, 0);
    assert_eq!(client.send(vec![SubOp::with_assert_ver(1)]).result, Errno::ERANGE.negated());
    assert_eq!(client.send(vec![SubOp::with_assert_ver(3)]).result, Errno::EOVERFLOW.negated());
    assert_eq!(client.send(vec![SubOp::with_assert_ver(0)]).result, Errno::EINVAL.negated());
}

#[test]
fn checksums_as_measured() {
    let sum = |kind, seed: &[u8], offset, length, chunk_size| {
        let args = Checksum { offset, length, chunk_size, kind };
        let outcome = holding("123456789123456789123456789")
            .send(vec![SubOp::with_checksum(args, seed.to_vec().into())]);
        let out = answers(&outcome).pop().expect("one").1;
        (outcome.result, out.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    let ones = [0xff; 4];
    let ok = |hex: &str| (0, hex.to_owned());
    let invalid = (Errno::EINVAL.negated(), String::new());
    assert_eq!(sum(2, &ones, 0, 27, 9), ok("030000007c6df91c7c6df91c7c6df91c"));
    assert_eq!(sum(2, &ones, 0, 27, 0), ok("01000000a667693a"));
    assert_eq!(sum(2, &ones, 0, 0, 0), ok("01000000a667693a"));
    assert_eq!(sum(2, &ones, 100, 10, 10), ok("00000000"));
    assert_eq!(sum(2, &ones, 100, 10, 0), ok("00000000"));
    assert_eq!(sum(0, &[0; 4], 0, 27, 9), ok("0300000067ad7b9367ad7b9367ad7b93"));
    assert_eq!(sum(1, &[0; 8], 0, 27, 9).1[..40], *"0300000083aee640db41b88c83aee640db41b88c");
    for (kind, seed, length, chunk) in [
        (2, &[0xff; 4][..], 0, 9),
        (2, &[0xff; 4], 30, 10),
        (2, &[0xff; 4], 25, 10),
        (1, &[0; 4], 27, 9),
        (7, &[0; 4], 9, 9),
    ] {
        assert_eq!(sum(kind, seed, 0, length, chunk), invalid);
    }
}

#[test]
fn creating_and_deleting() {
    let mut client = Client::default();
    assert_eq!(client.send(vec![delete()]).result, Errno::ENOENT.negated());
    assert_eq!(client.send(vec![create()]).result, 0);
    assert_eq!(client.send(vec![create().with_flags(op_flag::EXCL)]).result, Errno::EEXIST.negated());
    let outcome = client.send(vec![delete()]);
    assert!(matches!(outcome.change, Change::Write(write) if !write.object.exists));
    assert!(client.store.objects.is_empty());
    assert_eq!(client.send(vec![create(), delete()]).result, 0);
    assert!(client.store.objects.is_empty());
}

#[test]
fn a_hint_creates_the_object() {
    let mut client = Client::default();
    let hint = AllocHint { expected_object_size: 4 << 20, expected_write_size: 4096, flags: 1 };
    client.send(vec![SubOp::with_alloc_hint(hint).with_flags(op_flag::FAILOK), write(0, "x")]);
    assert_eq!(client.context().info.hint, hint);
}

#[test]
fn results_and_versions_of_a_message() {
    let mut client = holding("abc");
    let outcome = client.send(vec![append("d"), create().with_flags(op_flag::EXCL), append("e")]);
    assert_eq!(outcome.result, Errno::EEXIST.negated());
    assert_eq!(outcome.ops.iter().map(|op| op.rval).collect::<Vec<_>>(), [0, -17, 0]);
    assert!(matches!(outcome.change, Change::Log(entry) if entry.result == -17 && entry.outputs.len() == 3));
    assert_eq!(client.stored().data, b"abc");
    let failok = op_flag::EXCL | op_flag::FAILOK;
    let outcome = client.send(vec![append("d"), create().with_flags(failok), append("e")]);
    assert_eq!(outcome.result, 0);
    assert_eq!(outcome.ops.iter().map(|op| op.rval).collect::<Vec<_>>(), [0, -17, 0]);
    assert_eq!(client.stored().data, b"abcde");
    assert_eq!((client.version, outcome.user_version), (3, 3)); // the failed write took a version too
}

#[test]
fn writes_that_change_nothing_are_only_logged() {
    let mut client = holding("");
    for op in [full(""), extent(code::ZERO, 5, 5), SubOp::with_writesame(0, 0, vec![1].into())] {
        let outcome = client.send(vec![op]);
        assert!(matches!(outcome.change, Change::Log(_)) && outcome.user_version == 1);
    }
    assert_eq!(client.version, 4);
}

#[test]
fn outputs_of_writes_need_returnvec_and_are_short() {
    let mut client = holding(&"x".repeat(65));
    let read = SubOp::read(0, 64);
    let outcome = client.send(vec![read.clone(), append("y")]);
    assert_eq!(outcome.ops[0].out.len(), 0);
    client.flags = flag::RETURNVEC;
    let outcome = client.send(vec![read, append("y")]);
    assert_eq!(outcome.ops[0].out.len(), 64);
    assert!(matches!(outcome.change, Change::Write(write) if write.entries[0].outputs[0].data.len() == 64));
    let outcome = client.send(vec![SubOp::read(0, 65), append("y")]);
    assert_eq!(outcome.result, Errno::EOVERFLOW.negated());
    assert_eq!(outcome.change, Change::None);
}

#[test]
fn limits_of_a_message() {
    let mut client = holding("x");
    let send = |client: &mut Client, change: fn(&mut nacre_msg::OsdOp)| {
        let mut message = client.message(vec![append("y")]);
        change(&mut message);
        client.try_send(&message).expect("no wait").result
    };
    assert_eq!(send(&mut client, |m| m.name = "x".repeat(2049).into()), Errno::ENAMETOOLONG.negated());
    assert_eq!(send(&mut client, |m| m.locator.key = "x".repeat(2049).into()), Errno::ENAMETOOLONG.negated());
    assert_eq!(
        send(&mut client, |m| m.locator.namespace = "x".repeat(257).into()),
        Errno::ENAMETOOLONG.negated()
    );
    assert_eq!(send(&mut client, |m| m.name = "".into()), Errno::EINVAL.negated());
    assert_eq!(send(&mut client, |m| m.snap = SnapId(4)), Errno::EINVAL.negated());
    assert_eq!(send(&mut client, |m| m.snaps = vec![SnapId(4)]), Errno::EINVAL.negated());
    assert_eq!(send(&mut client, |m| m.ops[0].indata = vec![0; 91 << 20].into()), Errno::EMSGSIZE.negated());
    assert_eq!(client.send(vec![op(0x22ff)]).result, Errno::EOPNOTSUPP.negated());
    assert_eq!(client.send(vec![op(code::TMAPGET)]).result, Errno::EOPNOTSUPP.negated());
    assert_eq!(client.send(vec![SubOp::call("nothing", "x", b"")]).result, Errno::EPERM.negated());
    assert_eq!(client.send(vec![SubOp::call("lock", "x", b"")]).result, Errno::EOPNOTSUPP.negated());
}

#[test]
fn a_full_pool_takes_no_growth() {
    let mut client = holding("abc");
    client.pool.fullness = Fullness::Quota;
    assert_eq!(client.send(vec![append("d")]).change, Change::Dropped);
    client.flags = flag::FULL_TRY;
    assert_eq!(client.send(vec![append("d")]).result, Errno::EDQUOT.negated());
    assert_eq!(client.send(vec![full("xyz")]).result, 0);
    assert_eq!(client.send(vec![delete()]).result, 0);
    client.pool.fullness = Fullness::Space;
    assert_eq!(client.send(vec![create()]).result, Errno::ENOSPC.negated());
    client.flags = flag::FULL_FORCE;
    assert_eq!(client.send(vec![create()]).result, 0);
}

#[test]
fn erasure_coded_pools_refuse_what_they_cannot_do() {
    let mut client = Client::default();
    client.pool.stripe_bytes = Some(4);
    let refused = Errno::EOPNOTSUPP.negated();
    assert_eq!(client.send(vec![write(0, "abcd")]).result, 0);
    assert_eq!(client.send(vec![append("efg")]).result, 0);
    assert_eq!(client.send(vec![append("h")]).result, refused);
    assert_eq!(client.send(vec![write(0, "x")]).result, refused);
    assert_eq!(client.send(vec![extent(code::TRUNCATE, 0, 0)]).result, refused);
    assert_eq!(client.send(vec![full("x"), set_attr("a", "b")]).result, 0);
    assert_eq!(client.send(vec![op(code::OMAPCLEAR)]).result, refused);
    assert_eq!(client.send(vec![omap_get("k")]).result, 0);
    for late in [code::WRITESAME, code::ZERO, code::TRIMTRUNC] {
        assert_eq!(client.send(vec![extent(late, 0, 0)]).result, refused);
    }
}

/// A pool whose objects are cut into stripes of four bytes, and may be changed in part.
fn with_overwrites() -> Client {
    let mut client = Client::default();
    (client.pool.stripe_bytes, client.pool.overwrites) = (Some(4), true);
    client
}

#[test]
fn with_overwrites_erasure_coded_pools_take_any_write() {
    let mut client = with_overwrites();
    let holds = |client: &mut Client, op, wanted: &str| {
        assert_eq!(client.send(vec![op]).result, 0, "{wanted}");
        assert_eq!(client.stored().data, wanted.as_bytes());
    };
    holds(&mut client, append("abcdef"), "abcdef");
    holds(&mut client, append("g"), "abcdefg");
    holds(&mut client, write(2, "XY"), "abXYefg");
    holds(&mut client, write(9, "Z"), "abXYefg\0\0Z");
    holds(&mut client, extent(code::ZERO, 1, 5), "a\0\0\0\0\0g\0\0Z");
    holds(&mut client, extent(code::TRUNCATE, 7, 0), "a\0\0\0\0\0g");
    holds(&mut client, full("whole"), "whole");
    assert_eq!(client.send(vec![op(code::OMAPCLEAR)]).result, Errno::EOPNOTSUPP.negated());
}

#[test]
fn a_part_of_a_stripe_is_read_before_it_is_changed() {
    let mut client = with_overwrites();
    assert_eq!(client.send(vec![full("abcdefgh")]).result, 0);
    client.store.cold = true;
    let message = client.message(vec![write(5, "X")]);
    let waits = client.try_send(&message);
    let Err(Suspend::Read(nacre_txn::ReadError::Pending { offset, length, .. })) = waits else {
        panic!("it must wait: {waits:?}")
    };
    assert_eq!((offset, length), (4, 4));
    for whole in [write(4, "EFGH"), extent(code::ZERO, 0, 4), append("mn"), full("xyz"), write(4, "ijkl")] {
        let message = client.message(vec![whole]);
        assert_eq!(client.try_send(&message).map(|outcome| outcome.result), Ok(0), "{message:?}");
    }
}

#[test]
fn with_overwrites_snapshots_share_what_is_not_changed() {
    let mut client = with_overwrites();
    assert_eq!(client.send(vec![full("abcdefgh")]).result, 0);
    (client.snap_seq, client.snaps) = (SnapId(4), vec![SnapId(4)]);
    assert_eq!(client.send(vec![write(1, "X")]).result, 0);
    assert_eq!(client.send_at(SnapId(4), vec![read()]).ops[0].out.to_bytes(), "abcdefgh");
    assert_eq!(client.send(vec![SubOp::rollback(SnapId(4)), write(6, "Y"), append("!")]).result, 0);
    assert_eq!(client.stored().data, b"abcdefYh!");
    let more = vec![delete(), write(2, "new"), SubOp::rollback(SnapId(4)), extent(code::TRUNCATE, 3, 0)];
    assert_eq!(client.send(more).result, 0);
    assert_eq!(client.stored().data, b"abc");
}

#[test]
fn waiting_for_data_changes_nothing() {
    let mut client = holding("abc");
    client.store.cold = true;
    let message = client.message(vec![append("d"), read()]);
    let before = client.stored();
    assert!(matches!(
        client.try_send(&message),
        Err(Suspend::Read(nacre_txn::ReadError::Pending { length: 4, .. }))
    ));
    assert_eq!(client.stored(), before);
    client.store.cold = false;
    assert_eq!(client.try_send(&message).map(|outcome| outcome.result), Ok(0));
}

fn copy_op(name: &str, version: u64) -> SubOp {
    SubOp::copy_of(name, &ObjectLocator::in_pool(3), version)
}

#[test]
fn a_copy_waits_for_its_source_and_keeps_its_version() {
    let mut client = Client::with_old();
    let message = client.message(vec![copy_op("source", 0)]);
    let Err(Suspend::Copy { op_index: 0, source }) = client.try_send(&message) else {
        panic!("a copy waits")
    };
    assert_eq!(source.object, HObject::head(3, "".into(), "".into(), "source".into()));
    let object = CopiedObject {
        size: 6,
        mtime: UTime { sec: 5, nsec: 0 },
        user_version: 77,
        attrs: [("a".into(), "b".into())].into(),
        data: vec![(2, b"xy".to_vec().into())],
        ..CopiedObject::default()
    };
    client.copied = vec![Copied { op_index: 0, result: Ok(Box::new(object)) }];
    let outcome = client.try_send(&message).expect("the source is here");
    assert_eq!((outcome.result, outcome.user_version), (0, 77));
    let (stored, info) = (client.stored(), client.context().info);
    assert_eq!(stored.data, b"\0\0xy\0\0");
    assert_eq!((stored.attrs.len(), stored.omap.len()), (1, 0));
    assert_eq!((info.mtime.sec, info.user_version), (5, 77));
    assert_eq!(client.send(vec![copy_op("source", 76)]).result, Errno::ERANGE.negated());
    assert_eq!(client.send(vec![copy_op("source", 78)]).result, Errno::EOVERFLOW.negated());
    assert_eq!(client.send(vec![copy_op("object", 0)]).result, Errno::EINVAL.negated());
    client.copied[0].result = Err(Errno::ENOENT);
    assert_eq!(client.send(vec![copy_op("source", 0)]).result, Errno::ENOENT.negated());
    assert_eq!(client.send(vec![full("x")]).user_version, 78); // measured: counts on from the source's
}

#[test]
fn an_object_is_extracted_in_parts() {
    let mut client = Client::with_old();
    client.send(vec![full("0123456789"), crate::ops::testing::omap_set("l", "2")]);
    let (mut cursor, mut whole) = (CopyCursor::default(), None::<CopiedObject>);
    loop {
        let part = extract(&client.store, &collection(), &client.head, &cursor, 4);
        let part = part.expect("data at hand").expect("an object");
        let mut w = Writer::new();
        let data = part.encode_parts(&mut w);
        let bytes = w.finish();
        assert_eq!(CopyPart::decode_parts(&mut Reader::new(bytes.clone()), &data), Ok(part.clone()));
        assert!(
            part.object.data.is_empty()
                || CopyPart::decode_parts(&mut Reader::new(bytes), &Default::default()).is_err()
        );
        match &mut whole {
            None => whole = Some(part.object),
            Some(whole) => whole.append(part.object).expect("unchanged"),
        }
        let Some(next) = part.next else { break };
        cursor = next;
    }
    let whole = whole.expect("a part");
    let data: Vec<u8> = whole.data.iter().flat_map(|(_, data)| data.to_bytes().to_vec()).collect();
    assert_eq!(data, b"0123456789");
    assert_eq!((whole.omap.len(), whole.attrs.len(), whole.size), (2, 1, 10));
    let missing =
        extract(&client.store, &collection(), &client.head.with_snap(SnapId(4)), &CopyCursor::default(), 4);
    assert_eq!(missing, Ok(None));
}
