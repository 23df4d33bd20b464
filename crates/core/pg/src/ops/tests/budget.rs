//! What one message may ask for.

use super::*;
use crate::ops::testing::Client;
use crate::ops::{Change, OMAP_KEYS_MAX, OPS_MAX, REPLY_BYTES_MAX};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Encode;
use nacre_types::Errno;

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
    // Those of single objects look at no more than their blocks.
    let one = |at: u64| ((at, at + 1), (1_u8, None::<u8>)).to_bytes();
    let updates = (0..24).map(|at| call("object_map_update", &one(at * 10_000_000))).collect();
    assert_eq!(client.send(updates).result, 0);
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
    let mut client = Client::with_old();
    let tell = |what: &str, client: &mut Client, ops: Vec<SubOp>| {
        let before = cpu_ns();
        let outcome = client.send(ops);
        println!("{what}: {} us, result {}", (cpu_ns() - before) / 1000, outcome.result);
    };
    tell("a change of the most omap keys", &mut client, vec![omap_set(OMAP_KEYS_MAX, 1)]);
    tell("a change of the most omap bytes", &mut client, vec![omap_set(1024, 60 << 10)]);
    client.send(vec![omap_set(1024, 1400)]);
    tell("900 pages of omap", &mut client, (0..900).map(|_| omap_values()).collect());
    client.send(vec![SubOp::write_full(vec![1; 40 << 20].into())]);
    tell("900 reads of 40 MiB", &mut client, (0..900).map(|_| read()).collect());
    tell("100 MiB of one block again and again", &mut client, vec![write_same(100 << 20)]);
    tell("the most operations", &mut client, (0..OPS_MAX).map(|_| stat()).collect());
    let mut client = Client::default();
    let call = |method: &str, input: &[u8]| SubOp::call("rbd", method, input);
    client.send(vec![call("object_map_resize", &(256_000_000_u64, 0_u8).to_bytes())]);
    let update = ((0_u64, 256_000_000_u64), (1_u8, None::<u8>)).to_bytes();
    let update = || call("object_map_update", &update);
    tell("one update of a whole large object map", &mut client, vec![update()]);
    tell("24 of them", &mut client, (0..24).map(|_| update()).collect());
    tell("24 snapshots of it", &mut client, (0..24).map(|_| call("object_map_snap_add", b"")).collect());
}
