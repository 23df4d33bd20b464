//! What one message may ask for.

use super::*;
use crate::TURN_WORK_MAX;
use crate::ops::testing::Client;
use crate::ops::{
    Change, MessageLimits, OBJECT_BYTES_MAX, OMAP_KEYS_MAX, OPS_MAX, REPLY_BYTES_MAX, Suspend,
    WORK_BYTES_MAX, expected_bytes,
};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Writer};
use nacre_msg::osd_op::PgList;
use nacre_types::{Errno, ObjectLocator};
use std::collections::BTreeMap;

fn omap_set(count: usize, value_bytes: usize) -> SubOp {
    let value = Bytes::from(vec![1; value_bytes]);
    let entries: Vec<(ByteStr, Bytes)> =
        (0..count).map(|key| (format!("{key:08}").as_str().into(), value.clone())).collect();
    with_input(code::OMAPSETVALS, &entries)
}

fn omap_values() -> SubOp {
    with_input(code::OMAPGETVALS, &(ByteStr::EMPTY, (1024_u64, ByteStr::EMPTY)))
}

fn write_same(length: u64) -> SubOp {
    SubOp::with_writesame(0, length, vec![7; 4096].into())
}

#[test]
fn a_change_that_replicas_could_not_carry_is_refused_as_a_whole() {
    let mut client = Client::with_old();
    let whole = 100 << 20;
    let outcome = client.send(vec![write_same(whole), write_same(whole)]);
    assert_eq!(outcome.result, Errno::EMSGSIZE.negated());
    assert!(!matches!(outcome.change, Change::Write(_)));
    // Nor may an operation whose failure is to be ignored.
    let outcome = client.send(vec![write_same(whole), write_same(whole).with_flags(2)]);
    assert_eq!(outcome.result, Errno::EMSGSIZE.negated());
    assert_eq!(client.send(vec![write_same(8192)]).result, 0);
}

/// As an OSD with little memory has it.
#[test]
fn smaller_limits_hold() {
    let limits = MessageLimits {
        input_bytes: 1 << 20,
        transaction_bytes: 2 << 20,
        reply_bytes: 3 << 20,
        omap_bytes: 64 << 10,
        ..MessageLimits::default()
    };
    let mut client = Client { limits, ..Client::with_old() };
    let write = |bytes: usize| vec![SubOp::write_full(vec![1; bytes].into())];
    assert_eq!(client.send(write(limits.input_bytes + 1)).result, Errno::EMSGSIZE.negated());
    assert_eq!(client.send(write(limits.input_bytes)).result, 0);
    assert_eq!(client.send(vec![write_same(3 << 20)]).result, Errno::EMSGSIZE.negated());
    assert_eq!(client.send(vec![read(), read(), read()]).result, 0);
    assert_eq!(client.send(vec![read(), read(), read(), read()]).result, Errno::E2BIG.negated());
    // What does not fit one page is in the next.
    assert_eq!(client.send(vec![omap_set(200, 1000)]).result, 0);
    let page = client.send(vec![omap_values()]);
    let bytes = page.ops[0].out.len();
    assert!(page.result == 0 && bytes > 32 << 10 && bytes < 96 << 10, "{bytes} bytes");
    assert_eq!(page.ops[0].out.to_bytes().last(), Some(&1), "and more follow");
}

#[test]
fn a_message_counts_for_what_it_asks_for() {
    let (client, limits) = (Client::with_old(), MessageLimits::default());
    let bytes = |ops| expected_bytes(&client.message(ops), limits);
    assert_eq!(bytes(vec![SubOp::read(0, 4096)]), 4096);
    assert_eq!(bytes(vec![SubOp::read(0, 0)]), OBJECT_BYTES_MAX, "all of it, however much that is");
    assert_eq!(bytes(vec![SubOp::read(0, u64::MAX), SubOp::read(0, u64::MAX)]), limits.reply_bytes);
    assert_eq!(bytes(vec![stat(), SubOp::read(7, 100)]), (64 << 10) + 100);
    let whole = vec![1; 100];
    assert_eq!(bytes(vec![SubOp::write_full(whole.into())]), 0, "its own bytes are counted as they come");
    assert_eq!(bytes(vec![write_same(1 << 20)]), 1 << 20);
    assert_eq!(bytes(vec![extent(code::CMPEXT, 0, 5000)]), 5000);
    let page = limits.omap_bytes as u64;
    assert_eq!(bytes(vec![omap_values()]), page);
    assert_eq!(bytes(vec![with_input(code::NOTIFY_ACK, &(1_u64, 2_u64))]), 0, "others wait for it");
    // A class method and a list say little of what they give.
    assert_eq!(bytes(vec![SubOp::call("rbd", "get_size", b"")]), 256 << 10);
    let list = |count| SubOp::with_pg_list(code::PGNLS, PgList { count, start_epoch: 0 }, Bytes::new());
    assert_eq!([bytes(vec![list(10)]), bytes(vec![list(u64::MAX)])], [5120, 512 << 10]);
}

#[test]
fn values_count_by_the_keys_that_are_asked_for() {
    let (client, limits) = (Client::with_old(), MessageLimits::default());
    let bytes = |keys: u32| {
        let keys: Vec<ByteStr> = (0..keys).map(|key| ByteStr::from(&key.to_be_bytes()[..])).collect();
        expected_bytes(&client.message(vec![with_input(code::OMAPGETVALSBYKEYS, &keys)]), limits)
    };
    assert_eq!([bytes(0), bytes(1), bytes(3)], [0, 64 << 10, 192 << 10]);
    assert_eq!(bytes(100_000), limits.omap_bytes as u64, "no more than a page");
}

#[test]
fn a_copy_counts_for_what_of_it_is_in_memory() {
    let client = Client::with_old();
    let copy = SubOp::copy_of("source", &ObjectLocator::in_pool(1), 0);
    let limits = MessageLimits { copied_bytes: 2 << 20, ..MessageLimits::default() };
    assert_eq!(expected_bytes(&client.message(vec![copy]), limits), 6 << 20);
}

#[test]
fn many_reads_in_one_message_are_bounded() {
    let mut client = Client::with_old();
    assert_eq!(client.send(vec![omap_set(1024, 1400)]).result, 0);
    let outcome = client.send((0..900).map(|_| omap_values()).collect());
    assert_eq!(outcome.result, Errno::E2BIG.negated());
    let bytes: usize = outcome.ops.iter().map(|op| op.out.len()).sum();
    assert!(bytes > 10 << 20 && bytes < 48 << 20, "{bytes} bytes of answers");
    assert_eq!(client.send((0..10).map(|_| omap_values()).collect()).result, 0);

    client.send(vec![SubOp::write_full(vec![1; 40 << 20].into())]);
    let outcome = client.send((0..900).map(|_| read()).collect());
    assert_eq!(outcome.result, Errno::E2BIG.negated());
    let bytes: usize = outcome.ops.iter().map(|op| op.out.len()).sum();
    assert!(bytes as u64 <= REPLY_BYTES_MAX, "{bytes} bytes of answers");
}

#[test]
fn operations_and_keys_are_counted_before_they_are_looked_at() {
    let mut client = Client::with_old();
    assert_eq!(client.send((0..OPS_MAX).map(|_| stat()).collect()).result, 0);
    let outcome = client.send((0..=OPS_MAX).map(|_| stat()).collect());
    assert_eq!(outcome.result, Errno::E2BIG.negated());
    let mut count = (OMAP_KEYS_MAX as u32 + 1).to_le_bytes().to_vec();
    count.resize(1 << 20, 0);
    let outcome = client.send(vec![op(code::OMAPSETVALS).with_indata(count.into())]);
    assert_eq!(outcome.result, Errno::E2BIG.negated());
    assert_eq!(client.send(vec![omap_set(OMAP_KEYS_MAX, 1)]).result, 0);
}

/// The entries of a range are found one by one to be removed, on every copy.
#[test]
fn the_keys_of_a_range_are_counted() {
    let mut client = Client::with_old();
    let keys = |range: std::ops::Range<usize>| {
        let entries: Vec<_> =
            range.map(|key| (ByteStr::from(format!("{key:08}").as_str()), Bytes::new())).collect();
        with_input(code::OMAPSETVALS, &entries)
    };
    for start in [0, OMAP_KEYS_MAX] {
        assert_eq!(client.send(vec![keys(start..start + OMAP_KEYS_MAX)]).result, 0);
    }
    let remove = |first: &str, last: &str| {
        with_input(code::OMAPRMKEYRANGE, &(ByteStr::from(first), ByteStr::from(last)))
    };
    let outcome = client.send(vec![remove("", "9")]);
    assert_eq!(outcome.result, Errno::E2BIG.negated());
    assert!(!matches!(outcome.change, Change::Write(_)));
    assert_eq!(client.send(vec![remove("00000000", "00065536")]).result, 0);
    assert!(client.work > 65_536 * 2048 && client.work < 70_000 * 2600, "{}", client.work);
    assert_eq!(client.send((0..200).map(|_| remove("001", "00100009")).collect()).result, 0, "short ones");
}

#[test]
fn a_single_long_value_can_always_be_read() {
    let mut client = Client::with_old();
    assert_eq!(client.send(vec![omap_set(1, 80 << 20)]).result, 0);
    let outcome = client.send(vec![omap_values()]);
    assert_eq!(outcome.result, 0);
    assert!(outcome.ops[0].out.len() > 80 << 20);
    assert_eq!(client.send(vec![omap_values(), omap_values()]).result, Errno::E2BIG.negated());
}

/// 24 updates of the map of a large image in one message took 3 s.
#[test]
fn class_calls_of_one_message_are_bounded() {
    let call = |method: &str, input: &[u8]| SubOp::call("rbd", method, input);
    let mut client = Client::default();
    let resize = (256_000_000_u64, 0_u8).to_bytes();
    assert_eq!(client.send(vec![call("object_map_resize", &resize)]).result, 0);
    let snap_add = || call("object_map_snap_add", b"");
    assert_eq!(client.send(vec![snap_add()]).result, 0, "one is no more than a large image needs");
    assert_eq!(client.send((0..24).map(|_| snap_add()).collect()).result, Errno::E2BIG.negated());
    let update = ((0_u64, 256_000_000_u64), (1_u8, None::<u8>)).to_bytes();
    let updates = (0..24).map(|_| call("object_map_update", &update)).collect();
    assert_eq!(client.send(updates).result, Errno::E2BIG.negated());
    assert!(
        client.work < 1 << 20,
        "one that is more than a message may cost is refused before its map is read"
    );
    // Those of single objects look at no more than their blocks.
    let one = |at: u64| ((at, at + 1), (1_u8, None::<u8>)).to_bytes();
    let updates = (0..24).map(|at| call("object_map_update", &one(at * 10_000_000))).collect();
    assert_eq!(client.send(updates).result, 0);
}

/// An envelope of version 1 around what `write` adds.
fn envelope(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    w.envelope(1, 1, write);
    w.finish()
}

/// So many tags, no two the same, as `refcount.set` takes them.
fn tags(count: u32) -> Bytes {
    envelope(|w| {
        w.u32(count);
        (0..count).for_each(|tag| w.put(&ByteStr::from(&tag.to_be_bytes()[..])));
    })
}

/// 22 million empty tags in one input took seconds and a gigabyte; a long attribute was taken apart by each call of a message.
#[test]
fn what_classes_take_apart_is_bounded() {
    let mut client = Client::default();
    let empty = envelope(|w| {
        w.u32(22 << 20);
        w.raw(&vec![0; 88 << 20]);
    });
    let set = |input: &[u8]| SubOp::call("refcount", "set", input);
    assert_eq!(client.send(vec![set(&empty)]).result, Errno::E2BIG.negated());
    assert_eq!(client.send(vec![set(&tags(100_000))]).result, 0, "more than anybody needs");
    let get = || SubOp::call("refcount", "read", &envelope(|w| w.bool(false)));
    assert_eq!(client.send(vec![get()]).result, 0);
    assert_eq!(client.send((0..100).map(|_| get()).collect()).result, Errno::E2BIG.negated());
    // What is data is no list.
    let copyup = |bytes: usize| vec![SubOp::call("rbd", "copyup", &vec![1; bytes])];
    let mut client = Client::default();
    assert_eq!(client.send(copyup(32 << 20)).result, 0);
    // Each change costs something, too.
    let sparsify = |granule: u64| vec![SubOp::call("rbd", "sparsify", &(granule, false).to_bytes())];
    let holes: Vec<u8> = (0..4 << 20).map(|at| (at >> 12) as u8 & 1).collect();
    let mut client = Client::default();
    client.send(vec![SubOp::write_full(holes.into())]);
    assert_eq!(client.send(sparsify(4096)).result, 0);
    let holes: Vec<u8> = (0..4 << 20).map(|at| at as u8 & 1).collect();
    client.send(vec![SubOp::write_full(holes.into())]);
    assert_eq!(client.send(sparsify(1)).result, Errno::E2BIG.negated());
}

fn compare_absent(keys: u32) -> SubOp {
    let wanted: BTreeMap<ByteStr, (Bytes, i32)> =
        (0..keys).map(|key| (ByteStr::from(&key.to_be_bytes()[..]), (Bytes::new(), 1))).collect();
    with_input(code::OMAP_CMP, &wanted)
}

/// Looking for keys that are not there costs as much as finding them.
#[test]
fn comparisons_with_absent_keys_are_bounded() {
    let mut client = Client::with_old();
    client.send(vec![omap_set(1, 1)]);
    assert_eq!(client.send(vec![compare_absent(50_000)]).result, 0);
    let outcome = client.send((0..10).map(|_| compare_absent(50_000)).collect());
    assert_eq!(outcome.result, Errno::E2BIG.negated());
    let values = |keys: u32| {
        let keys: Vec<ByteStr> = (0..keys).map(|key| ByteStr::from(&key.to_be_bytes()[..])).collect();
        with_input(code::OMAPGETVALSBYKEYS, &keys)
    };
    assert_eq!(client.send(vec![values(50_000)]).result, 0);
    assert_eq!(client.send((0..10).map(|_| values(50_000)).collect()).result, Errno::E2BIG.negated());
}

/// Nanoseconds that this thread has had of a processor.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// `cargo test -p nacre-pg dearest -- --ignored --nocapture`
#[test]
#[ignore = "prints what the dearest messages cost, for the choice of WORK_BYTES_MAX; asserts nothing of time"]
fn the_dearest_messages() {
    dearest_reads_and_writes();
    dearest_calls_of_classes();
    dearest_of_many_parts();
}

/// Sends a message, and says what it cost.
fn tell(what: &str, client: &mut Client, ops: Vec<SubOp>) {
    let before = cpu_ns();
    let outcome = client.send(ops);
    let (us, percent) = ((cpu_ns() - before) / 1000, client.work * 100 / WORK_BYTES_MAX);
    println!("{us:>8} us {percent:>4} % of the budget, result {:>4}: {what}", outcome.result);
}

fn dearest_reads_and_writes() {
    let mut client = Client::with_old();
    tell("a change of the most omap keys", &mut client, vec![omap_set(OMAP_KEYS_MAX, 1)]);
    tell("a change of the most omap bytes", &mut client, vec![omap_set(1024, 60 << 10)]);
    client.send(vec![omap_set(1024, 1400)]);
    tell("900 pages of omap", &mut client, (0..900).map(|_| omap_values()).collect());
    client.send(vec![SubOp::write_full(vec![1; 40 << 20].into())]);
    tell("900 reads of 40 MiB", &mut client, (0..900).map(|_| read()).collect());
    tell("100 MiB of one block again and again", &mut client, vec![write_same(100 << 20)]);
    let compare = || {
        let input = vec![1; 90 << 20];
        let extent = Extent { length: input.len() as u64, ..Extent::default() };
        SubOp::with_extent(code::CMPEXT, extent).with_indata(input.into())
    };
    client.send(vec![SubOp::write_full(vec![1; 90 << 20].into())]);
    tell("comparing 90 MiB", &mut client, vec![compare()]);
    tell("the most operations", &mut client, (0..OPS_MAX).map(|_| stat()).collect());
}

fn dearest_calls_of_classes() {
    let mut client = Client::default();
    let call = |method: &str, input: &[u8]| SubOp::call("rbd", method, input);
    client.send(vec![call("object_map_resize", &(256_000_000_u64, 0_u8).to_bytes())]);
    let update = ((0_u64, 256_000_000_u64), (1_u8, None::<u8>)).to_bytes();
    let update = || call("object_map_update", &update);
    tell("one update of a whole large object map", &mut client, vec![update()]);
    tell("24 of them", &mut client, (0..24).map(|_| update()).collect());
    tell("resizing it", &mut client, vec![call("object_map_resize", &(255_000_000_u64, 0_u8).to_bytes())]);
    tell(
        "resizing it back",
        &mut client,
        vec![call("object_map_resize", &(256_000_000_u64, 0_u8).to_bytes())],
    );
    let map = client.send(vec![call("object_map_load", b"")]).ops[0].out.to_bytes();
    tell("saving it", &mut client, vec![call("object_map_save", &map)]);
    tell("24 snapshots of it", &mut client, (0..24).map(|_| call("object_map_snap_add", b"")).collect());
    let mut client = Client::default();
    let most = 4 << 20;
    let set = |input: &[u8]| vec![SubOp::call("refcount", "set", input)];
    tell("the most tags", &mut client, set(&tags(most / 8 - 8)));
    let get = || SubOp::call("refcount", "read", &envelope(|w| w.bool(false)));
    tell("reading them again and again", &mut client, (0..100).map(|_| get()).collect());
    let entry = |n: u32| (n, 0_u32).to_bytes(); // a time
    let entries = envelope(|w| {
        let count = most / 40;
        w.u32(count);
        for n in 0..count {
            w.envelope(1, 1, |w| {
                w.raw(&entry(n));
                w.put(&ByteStr::from(&n.to_be_bytes()[..]));
                w.put(&Bytes::new());
            });
        }
    });
    tell("the most entries of a time index", &mut client, vec![SubOp::call("timeindex", "add", &entries)]);
    let metadata: BTreeMap<ByteStr, Bytes> =
        (0..most / 12).map(|n| (ByteStr::from(&n.to_be_bytes()[..]), Bytes::new())).collect();
    tell("the most metadata", &mut client, vec![call("metadata_set", &metadata.to_bytes())]);
    let mut client = Client::default();
    let extents: BTreeMap<u64, u64> = (0..64_u64 << 10).map(|n| (n * 2048, 512)).collect();
    let input = (extents, Bytes::from(vec![1; 32 << 20])).to_bytes();
    tell("the most extents", &mut client, vec![call("sparse_copyup", &input)]);
    let mut client = Client::default();
    tell("60 MiB copied up", &mut client, vec![call("copyup", &vec![1; 60 << 20])]);
    for granule in [1_u64, 4096] {
        let sparsify = vec![call("sparsify", &(granule, false).to_bytes())];
        tell(&format!("made sparse by {granule}"), &mut client, sparsify);
    }
}

fn dearest_of_many_parts() {
    let mut client = Client::with_old();
    client.send(vec![omap_set(OMAP_KEYS_MAX, 1)]);
    tell("the most comparisons", &mut client, vec![compare_absent(100_000)]);
    tell("ten times as many", &mut client, (0..10).map(|_| compare_absent(100_000)).collect());
    client.send(vec![omap_set(1024, 4096)]);
    let calls = |count: usize| (0..count).map(|_| SubOp::call("log", "list", &list_all())).collect();
    tell("1,024 lists of a log", &mut client, calls(OPS_MAX));
    let attrs = |from: u32| (from..from + 1000).map(|n| set_attr(n, 64 << 10)).collect::<Vec<_>>();
    tell("1,000 attributes of 64 KiB", &mut client, attrs(0));
    tell("reading them 1,000 times", &mut client, (0..1000).map(|_| op(code::GETXATTRS)).collect());
    tell(
        "1,000 clones of small data",
        &mut client,
        (0..1000).map(|n| SubOp::write(n << 12, vec![1; 1].into())).collect(),
    );
    tell("1,000 zeros", &mut client, (0..1000_u64).map(|n| zero(n << 16, 65536)).collect());
}

fn zero(offset: u64, length: u64) -> SubOp {
    SubOp::with_extent(code::ZERO, Extent { offset, length, ..Extent::default() })
}

fn set_attr(name: u32, bytes: usize) -> SubOp {
    SubOp::with_xattr(code::SETXATTR, name.to_string().as_bytes(), &vec![1; bytes], 0, 0)
}

/// `cls_log_list_op` from the beginning.
fn list_all() -> Bytes {
    envelope(|w| {
        w.raw(&[0; 8]);
        w.put(&ByteStr::EMPTY);
        w.raw(&[0; 8]);
        w.u32(1000);
    })
}

/// What one turn does of a call that pauses is not much more than a turn is for, and its parts are no more than the whole.
#[test]
fn a_call_that_pauses_does_a_turns_work_at_a_time() {
    let mut client = Client::with_old();
    client.send(vec![SubOp::new(code::OMAPCLEAR)]);
    let mut w = Writer::new();
    methods::put_marker(&mut w, "o");
    let entry = w.finish();
    for page in 0..4 {
        let key = |key: usize| format!("{page}-{key:08}").as_str().into();
        let entries: Vec<(ByteStr, Bytes)> = (0..25_000).map(|number| (key(number), entry.clone())).collect();
        assert_eq!(client.send(vec![with_input(code::OMAPSETVALS, &entries)]).result, 0);
    }
    let (mut turns, mut most) = (1, 0);
    let message = client.message(vec![SubOp::call("rgw", "bucket_check_index", b"")]);
    let outcome = loop {
        match client.try_send(&message) {
            Ok(outcome) => break outcome,
            Err(Suspend::Pause { op_index, progress }) => drop(client.progress.insert(op_index, progress)),
            Err(other) => panic!("{other:?}"),
        }
        (turns, most) = (turns + 1, client.work.max(most));
    };
    assert_eq!(outcome.result, 0);
    assert!((3..20).contains(&turns), "{turns} turns");
    assert!((TURN_WORK_MAX..TURN_WORK_MAX * 5 / 4).contains(&most), "{most} in a turn");
}
