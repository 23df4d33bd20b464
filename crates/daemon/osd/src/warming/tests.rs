//! Who waits for metadata that are on a device, and who does not.

use crate::awaiting_memory::tests::client_op_on;
use crate::lent_parts::LentParts;
use crate::pg_driver::PgDriver;
use crate::pg_driver::tests::{map_of, shard_with};
use crate::shard::Shard;
use crate::shard_net::ShardCx;
use nacre_auth::OsdCaps;
use nacre_msg::SubOp;
use nacre_msg::osd_op::code;
use nacre_msg::peer::{PeerHeader, PeerMessage, RepOp};
use nacre_pg::{ClientOp, OpStage, PgCreateInfo, Session};
use nacre_store::MemStore;
use nacre_txn::{Op, Transaction};
use nacre_types::{Eversion, HObject, PgId, SpgId};
use std::sync::Arc;

fn spg() -> SpgId {
    SpgId::replicated(PgId::new(1, 0))
}

/// An OSD with one PG, whose objects' metadata are on a device.
fn cold_shard() -> Shard {
    let mut shard = shard_with(vec![MemStore::new(1 << 20).cold()]);
    let (driver, mut cx) = parts(&mut shard);
    driver.advance(&mut cx, &map_of(10, 1));
    driver.create_pg(&mut cx, spg(), PgCreateInfo::ordered(10));
    shard
}

/// Asks how long an object is.
fn stat(name: &'static str, tid: u64, caps: &OsdCaps) -> ClientOp {
    let mut op = client_op_on(name, 1, tid);
    op.session = Arc::new(Session { caps: caps.clone(), ..Session::clone(&op.session) });
    op.op.epoch = 10;
    op.op.ops = vec![SubOp::new(code::STAT)];
    op
}

fn parts(shard: &mut Shard) -> (&mut PgDriver, ShardCx<'_>) {
    let LentParts { pgs, cx, .. } = shard.lend().0.parts;
    (pgs, cx)
}

/// Numbers of messages that wait for metadata.
fn waiting(driver: &PgDriver) -> Vec<u64> {
    let waiting = driver.ops_in_flight().filter(|op| op.stage == OpStage::Metadata);
    waiting.map(|waiting| waiting.op.tid).collect()
}

#[test]
fn only_messages_for_the_object_wait_while_its_metadata_are_read() {
    let mut shard = cold_shard();
    let (driver, mut cx) = parts(&mut shard);
    let send = |driver: &mut PgDriver, cx: &mut ShardCx<'_>, name, tid| {
        driver.client_op(cx, spg(), stat(name, tid, &OsdCaps::allow_all()));
    };
    send(driver, &mut cx, "known", 1);
    assert_eq!(waiting(driver), [1]);
    driver.drain_completions(&mut cx, |_| ());
    assert!(waiting(driver).is_empty());
    send(driver, &mut cx, "unknown", 2);
    send(driver, &mut cx, "known", 3);
    send(driver, &mut cx, "unknown", 4);
    assert_eq!(waiting(driver), [2, 4], "the PG has the one between them");
    assert_eq!(driver.awaiting_metadata.waits(), 3);
    driver.drain_completions(&mut cx, |_| ());
    assert!(waiting(driver).is_empty());
    // For the whole PG: nothing is looked at.
    send(driver, &mut cx, "", 5);
    assert!(waiting(driver).is_empty());
}

#[test]
fn nothing_is_read_for_a_client_that_may_not_ask_for_it() {
    let mut shard = cold_shard();
    let (driver, mut cx) = parts(&mut shard);
    driver.client_op(&mut cx, spg(), stat("secret", 1, &OsdCaps::none()));
    let mut of_a_newer_map = stat("secret", 1, &OsdCaps::none());
    of_a_newer_map.op.epoch = 11;
    driver.client_op(&mut cx, spg(), of_a_newer_map);
    assert_eq!(driver.awaiting_metadata.waits(), 0);
    driver.client_op(&mut cx, spg(), stat("secret", 2, &OsdCaps::allow_all()));
    assert_eq!(driver.awaiting_metadata.waits(), 1);
    // Behind another's it keeps its place.
    driver.client_op(&mut cx, spg(), stat("secret", 3, &OsdCaps::none()));
    assert_eq!(waiting(driver), [2, 3]);
    driver.drain_completions(&mut cx, |_| ());
    assert!(waiting(driver).is_empty());
}

#[test]
fn what_another_osd_sends_for_a_pg_waits_behind_its_write() {
    let mut shard = cold_shard();
    let (driver, mut cx) = parts(&mut shard);
    let write = |name: &'static str| {
        let object = HObject::head(1, "".into(), "".into(), name.into());
        let txn = Transaction { collection: spg(), ops: vec![Op::Touch(object)] };
        let header = PeerHeader { spg: spg(), epoch: 10 };
        let (previous, trim_to, committed_to) = (Eversion::ZERO, Eversion::ZERO, Eversion::ZERO);
        PeerMessage::from(RepOp { header, tid: 1, previous, entries: Vec::new(), trim_to, committed_to, txn })
    };
    driver.peer_message(&mut cx, 2, write("a"));
    driver.peer_message(&mut cx, 2, write("a"));
    driver.peer_message(&mut cx, 3, write("a"));
    assert_eq!(driver.awaiting_metadata.waits(), 2, "of the other OSD it is in memory by then");
    driver.drain_completions(&mut cx, |_| ());
    assert!(driver.awaiting_metadata.is_empty());
    // Its connection ends: what it sent before goes on.
    driver.peer_message(&mut cx, 2, write("b"));
    assert!(!driver.awaiting_metadata.is_empty());
    driver.peer_reset(&mut cx, 2);
    assert!(driver.awaiting_metadata.is_empty());
    driver.drain_completions(&mut cx, |_| ());
}
