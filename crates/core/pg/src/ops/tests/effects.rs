//! Watches, notifies, class calls, and what a message is before it runs.

use super::*;
use crate::object::Watcher;
use crate::ops::testing::Client;
use crate::ops::{Change, NotifyAck, WatchChange, classify};
use nacre_buf::Bytes;
use nacre_denc::Writer;
use nacre_msg::osd_op::{WatchArgs, flag, watch_op};
use nacre_types::{AddrKind, EntityAddr, EntityName, Errno};

fn watch(cookie: u64, op: u8) -> SubOp {
    SubOp::with_watch(WatchArgs { cookie, op, ..WatchArgs::default() })
}

fn watcher() -> Watcher {
    Watcher { addr: EntityAddr::NONE.with_kind(AddrKind::Any), timeout_s: 30 }
}

#[test]
fn a_watch_is_kept_with_the_object() {
    let mut client = Client::with_old();
    let outcome = client.send(vec![watch(9, watch_op::WATCH)]);
    let connect = WatchChange::Connect { cookie: 9, watcher: watcher(), will_ping: true };
    assert_eq!(outcome.watches, std::slice::from_ref(&connect));
    assert_eq!((outcome.user_version, client.version), (1, 2)); // not a change that users count
    assert_eq!(client.context().info.watchers.get(&(9, client.name)), Some(&watcher()));
    let again = client.send(vec![watch(9, watch_op::RECONNECT)]);
    assert_eq!(again.watches, std::slice::from_ref(&connect));
    assert!(matches!(again.change, Change::Log(_)));
    let ping = client.send(vec![watch(9, watch_op::PING)]);
    assert_eq!((ping.change, ping.watches), (Change::None, vec![WatchChange::Ping { cookie: 9 }]));
    let end = client.send(vec![watch(9, watch_op::UNWATCH)]);
    assert_eq!(end.watches, [WatchChange::Disconnect { key: (9, client.name), tell: false }]);
    assert!(client.context().info.watchers.is_empty());
    assert_eq!(client.send(vec![watch(9, watch_op::UNWATCH)]).result, 0);
}

#[test]
fn watches_that_are_not_there() {
    let mut client = Client::with_old();
    for op in [watch_op::RECONNECT, watch_op::PING] {
        assert_eq!(client.send(vec![watch(9, op)]).result, Errno::ENOTCONN.negated());
    }
    assert_eq!(client.send(vec![watch(9, 99)]).result, Errno::EINVAL.negated());
    assert_eq!(Client::default().send(vec![watch(9, watch_op::WATCH)]).result, Errno::ENOENT.negated());
    client.send(vec![watch(9, watch_op::WATCH)]);
    client.name = EntityName::client(1); // the same cookie of another client
    assert_eq!(client.send(vec![watch(9, watch_op::RECONNECT)]).result, Errno::ENOTCONN.negated());
}

#[test]
fn deleting_tells_the_watchers() {
    let mut client = Client::with_old();
    client.send(vec![watch(9, watch_op::WATCH)]);
    let outcome = client.send(vec![delete(), create()]);
    assert_eq!(outcome.watches, [WatchChange::Disconnect { key: (9, client.name), tell: true }]);
    client.send(vec![watch(9, watch_op::WATCH)]);
    let failed = client.send(vec![delete(), stat()]);
    assert_eq!((failed.result, failed.watches.len()), (-2, 0));
}

#[test]
fn watchers_are_listed_as_the_wire_has_them() {
    let mut client = Client::with_old();
    client.send(vec![watch(9, watch_op::WATCH)]);
    let mut want = Writer::new();
    want.envelope(1, 1, |w| {
        w.u32(1);
        w.envelope(2, 1, |w| {
            w.put(&client.name);
            w.u64(9);
            w.u32(30);
            w.put(&watcher().addr);
        });
    });
    assert_eq!(answers(&client.send(vec![op(code::LIST_WATCHERS)]))[0].1, want.finish());
}

#[test]
fn notifies_get_ids_and_acknowledgements() {
    let mut client = Client::with_old();
    let mut input = Writer::new();
    input.u32(1);
    input.u32(7);
    input.blob(b"hello");
    let notify = SubOp::with_notify(5, input.finish());
    let outcome = client.send(vec![notify, SubOp::with_notify(6, Bytes::new())]);
    let id = 1_u64 << 32;
    assert_eq!(answers(&outcome)[1].1, (id + 1).to_le_bytes());
    let [first, second] = &outcome.notifies[..] else { panic!("two notifies") };
    assert_eq!((first.id, first.cookie, first.timeout_s, &first.payload[..]), (id, 5, 7, &b"hello"[..]));
    assert_eq!((second.cookie, second.timeout_s), (6, 30));
    let ack = with_input(code::NOTIFY_ACK, &((id, 9_u64), nacre_buf::ByteStr::from("yes")));
    let outcome = client.send(vec![ack]);
    assert_eq!(outcome.acks, [NotifyAck { id, cookie: Some(9), reply: "yes".into() }]);
    assert_eq!(
        Client::default().send(vec![SubOp::with_notify(5, Bytes::new())]).result,
        Errno::ENOENT.negated()
    );
}

#[test]
fn messages_are_classified_by_what_they_do() {
    let client = Client::default();
    let intent = |ops: Vec<SubOp>| classify(&client.message(ops)).expect("known classes");
    let read = intent(vec![read(), stat()]);
    assert!(read.read && !read.may_write() && !read.is_ordered_as_write());
    assert!(intent(vec![read_op(), append("x")]).may_write());
    let ping = intent(vec![watch(1, watch_op::PING)]);
    assert!(!ping.may_write() && ping.is_ordered_as_write());
    assert!(intent(vec![watch(1, watch_op::RECONNECT)]).may_write());
    let call = intent(vec![SubOp::call("lock", "get_info", b"")]);
    assert!(!call.read && !call.write && !call.may_write() && call.calls.len() == 1);
    // librados sends this one flagged as a read.
    assert!(intent(vec![SubOp::call("lock", "lock", b"")]).may_write());
    assert!(intent(vec![op(code::PGNLS)]).on_pg);
    let ordered = nacre_msg::OsdOp { flags: flag::RWORDERED, ..client.message(vec![stat()]) };
    assert!(classify(&ordered).expect("no calls").is_ordered_as_write());
    // As in Ceph, a watch looks at the watches that there are: it needs both rights, a ping the one to read.
    let changes = intent(vec![watch(1, watch_op::WATCH)]);
    assert!(changes.read && changes.write);
    let ping = intent(vec![watch(1, watch_op::PING)]);
    assert!(ping.read && !ping.write && ping.is_ordered_as_write());
}

fn read_op() -> SubOp {
    read()
}

#[test]
fn a_method_that_only_reads_needs_an_object_unless_the_message_writes() {
    let info = |client: &mut Client, more: Vec<SubOp>| {
        let mut input = Writer::new();
        input.envelope(1, 1, |w| w.str("name"));
        let mut ops = vec![SubOp::call("lock", "get_info", &input.finish())];
        ops.extend(more);
        client.send(ops).result
    };
    assert_eq!(info(&mut Client::default(), vec![]), Errno::ENOENT.negated());
    assert_eq!(info(&mut Client::with_old(), vec![]), 0);
    assert_eq!(info(&mut Client::with_old(), vec![append("x")]), 0);
}

#[test]
fn a_method_waits_for_data_like_a_read() {
    let mut client = Client::with_old();
    client.store.cold = true;
    let message = client.message(vec![SubOp::call("rbd", "get_id", b"")]);
    assert!(client.try_send(&message).is_err());
}
