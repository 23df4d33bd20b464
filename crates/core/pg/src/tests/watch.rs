//! Watchers and notifies.

use crate::Event;
use crate::harness::{World, pg};
use nacre_buf::Bytes;
use nacre_denc::{Decode, Writer};
use nacre_msg::osd_op::{WatchArgs, code, watch_op};
use nacre_msg::{NotifyOutcome, SubOp, WatchNotify, notify_op};
use nacre_types::{AddrKind, EntityAddr, Errno};
use std::time::Duration;

fn watch(op: u8, cookie: u64) -> Vec<SubOp> {
    vec![SubOp::with_watch(WatchArgs { cookie, op, ..WatchArgs::default() })]
}

fn notify(cookie: u64, timeout_s: u32) -> Vec<SubOp> {
    let mut w = Writer::new();
    w.u32(1);
    w.u32(timeout_s);
    w.put(&Bytes::from_static(b"news"));
    vec![SubOp::with_notify(cookie, w.finish())]
}

fn ack(notify_id: u64, cookie: u64, reply: &'static [u8]) -> Vec<SubOp> {
    let mut w = Writer::new();
    w.u64(notify_id);
    w.u64(cookie);
    w.put(&Bytes::from_static(reply));
    vec![SubOp::new(code::NOTIFY_ACK).with_indata(w.finish().into())]
}

/// A clean PG with object `a`, watched by clients 0 and 1 under cookies 10 and 11.
fn watched() -> World {
    let mut world = World::new(1, 3);
    world.run_until_idle();
    world.call(2, "a", vec![SubOp::write_full(b"x".to_vec().into())]);
    for at in 0..2 {
        let reply = world.call(at, "a", watch(watch_op::WATCH, 10 + at as u64));
        assert_eq!((reply.result, reply.user_version), (0, 1), "watching is no new version for users");
    }
    world
}

fn messages(world: &mut World, op: u8) -> Vec<(usize, WatchNotify)> {
    let (found, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut world.watch_messages).into_iter().partition(|(_, message)| message.op == op);
    world.watch_messages = rest;
    found
}

fn outcome(message: &WatchNotify) -> NotifyOutcome {
    NotifyOutcome::from_bytes(message.data.to_bytes()).expect("an outcome")
}

#[test]
fn a_notify_completes_when_all_have_answered() {
    let mut world = watched();
    let reply = world.call(2, "a", notify(77, 5));
    assert_eq!(reply.result, 0);
    let id = u64::from_bytes(reply.ops[0].outdata.to_bytes()).expect("an id");
    let told = messages(&mut world, notify_op::NOTIFY);
    assert_eq!(told.len(), 2);
    for (at, message) in told {
        assert_eq!((message.notify_id, message.notifier_gid), (id, 4002));
        assert_eq!((message.cookie, &message.payload[..]), (10 + at as u64, &b"news"[..]));
        world.call(at, "a", ack(id, message.cookie, b"heard"));
    }
    let done = messages(&mut world, notify_op::COMPLETE);
    assert_eq!((done.len(), done[0].0, done[0].1.cookie, done[0].1.return_code), (1, 2, 77, 0));
    let heard = Bytes::from_static(b"heard");
    assert_eq!(outcome(&done[0].1).replies, vec![((4000, 10), heard.clone()), ((4001, 11), heard)]);
}

#[test]
fn nobody_to_tell_is_done_at_once_and_a_silent_watcher_times_the_notify_out() {
    let mut world = watched();
    world.call(2, "b", vec![SubOp::write_full(b"x".to_vec().into())]);
    world.call(2, "b", notify(1, 5));
    assert_eq!(messages(&mut world, notify_op::COMPLETE).len(), 1);
    let reply = world.call(2, "a", notify(2, 5));
    let id = u64::from_bytes(reply.ops[0].outdata.to_bytes()).expect("an id");
    world.call(0, "a", ack(id, 10, b""));
    world.tick(Duration::from_secs(6));
    world.run_until_idle();
    let done = messages(&mut world, notify_op::COMPLETE);
    assert_eq!(done[0].1.return_code, Errno::ETIMEDOUT.negated());
    assert_eq!(outcome(&done[0].1).timeouts, vec![(4001, 11)]);
}

#[test]
fn a_silent_watch_ends_and_a_ping_keeps_one() {
    let mut world = watched();
    for _ in 0..4 {
        world.tick(Duration::from_secs(10));
        assert_eq!(world.call(0, "a", watch(watch_op::PING, 10)).result, 0);
    }
    let gone = messages(&mut world, notify_op::DISCONNECT);
    assert_eq!(gone.iter().map(|(at, message)| (*at, message.cookie)).collect::<Vec<_>>(), [(1, 11)]);
    assert_eq!(world.call(1, "a", watch(watch_op::PING, 11)).result, Errno::ENOTCONN.negated());
    assert_eq!(world.call(1, "a", watch(watch_op::RECONNECT, 11)).result, Errno::ENOTCONN.negated());
    world.assert_equal_copies();
}

#[test]
fn a_watch_outlives_its_connection_and_hears_what_it_missed() {
    let mut world = watched();
    let primary = world.primary();
    world.reset_session(0, primary);
    world.run_until_idle();
    world.call(2, "a", notify(5, 20));
    assert_eq!(messages(&mut world, notify_op::NOTIFY).len(), 1);
    // Not connected: a ping must not hide that.
    assert_eq!(world.call(0, "a", watch(watch_op::PING, 10)).result, Errno::ETIMEDOUT.negated());
    assert_eq!(world.call(0, "a", watch(watch_op::RECONNECT, 10)).result, 0);
    assert_eq!(messages(&mut world, notify_op::NOTIFY)[0].0, 0);
}

#[test]
fn deleting_unwatching_and_blocklisting_end_watches() {
    let mut world = watched();
    assert_eq!(world.call(0, "a", watch(watch_op::UNWATCH, 10)).result, 0);
    let addr = world.clients[1].addr();
    let until = nacre_types::UTime { sec: 9999, nsec: 0 };
    world.publish(|map| assert_eq!(map.blocklist.insert(addr, until), None));
    world.run_until_idle();
    assert_eq!(messages(&mut world, notify_op::DISCONNECT).len(), 1);
    assert_eq!(world.call(1, "a", vec![SubOp::read(0, 0)]).result, Errno::ESHUTDOWN.negated());
    world.call(2, "a", watch(watch_op::WATCH, 12));
    world.call(0, "a", vec![SubOp::new(code::DELETE)]);
    assert_eq!(messages(&mut world, notify_op::DISCONNECT)[0].1.cookie, 12);
    world.assert_equal_copies();
}

/// A client says where it is; its socket cannot lie.
#[test]
fn a_client_is_fenced_by_where_its_socket_is() {
    let mut world = World::new(2, 2);
    let seen_at = EntityAddr::parse("any:198.51.100.9:0/4242").expect("an address");
    world.clients[1].seen_at = Some(seen_at);
    world.run_until_idle();
    world.call(0, "a", vec![SubOp::write_full(b"x".to_vec().into())]);
    assert_eq!(world.call(1, "a", watch(watch_op::WATCH, 11)).result, 0);
    let machine = EntityAddr { nonce: 0, ..seen_at };
    let until = nacre_types::UTime { sec: 9999, nsec: 0 };
    world.publish(|map| assert_eq!(map.blocklist.insert(machine, until), None));
    world.run_until_idle();
    assert_eq!(messages(&mut world, notify_op::DISCONNECT).len(), 1, "its watch ends");
    assert_eq!(world.call(1, "a", vec![SubOp::read(0, 0)]).result, Errno::ESHUTDOWN.negated());
    assert_ne!(world.call(0, "a", vec![SubOp::read(0, 0)]).result, Errno::ESHUTDOWN.negated());
}

#[test]
fn a_range_of_addresses_is_fenced_by_its_prefix() {
    let mut world = watched();
    let read = || vec![SubOp::read(0, 0)];
    let until = nacre_types::UTime { sec: 9999, nsec: 0 };
    let socket = world.clients[1].addr().socket.expect("an address");
    let range =
        |bits| EntityAddr { kind: AddrKind::Cidr, nonce: bits, socket: Some((socket.ip(), 0).into()) };
    let elsewhere = EntityAddr::parse("cidr:203.0.113.0/24").expect("a range");
    world.publish(|map| assert_eq!(map.range_blocklist.insert(elsewhere, until), None));
    assert_ne!(world.call(1, "a", read()).result, Errno::ESHUTDOWN.negated());
    world.publish(|map| assert_eq!(map.range_blocklist.insert(range(8), until), None));
    world.run_until_idle();
    assert!(!messages(&mut world, notify_op::DISCONNECT).is_empty(), "watches of the range end");
    assert_eq!(world.call(1, "a", read()).result, Errno::ESHUTDOWN.negated());
    world.publish(|map| map.range_blocklist.clear());
    assert_ne!(world.call(1, "a", read()).result, Errno::ESHUTDOWN.negated());
}

#[test]
fn a_new_primary_knows_the_watchers_of_the_old_one() {
    let mut world = watched();
    let first = world.primary();
    world.crash(first);
    world.mark_down(first);
    world.run_until_idle();
    assert_eq!(world.call(0, "a", watch(watch_op::RECONNECT, 10)).result, 0);
    let reply = world.call(2, "a", notify(5, 50));
    assert_eq!(reply.result, 0);
    assert_eq!(messages(&mut world, notify_op::NOTIFY).len(), 1, "the other one is not back");
    // The one that does not come back ends after its timeout, and with it the wait for its answer.
    let id = u64::from_bytes(reply.ops[0].outdata.to_bytes()).expect("an id");
    world.call(0, "a", ack(id, 10, b""));
    world.tick(Duration::from_secs(31));
    world.run_until_idle();
    assert_eq!(outcome(&messages(&mut world, notify_op::COMPLETE)[0].1).timeouts, vec![]);
}

/// The primary is alone when the time of the watches is over. What it writes of that is nowhere else: the next primary knows of
/// the watches, and their clients never hear that they ended.
#[test]
fn a_watch_ends_when_all_copies_know() {
    let mut world = watched();
    let first = world.primary();
    world.call(2, "a", notify(5, 500));
    messages(&mut world, notify_op::NOTIFY);
    let acting = world.map().pg_to_up_acting(pg()).acting;
    let others: Vec<_> = acting.into_iter().filter(|osd| *osd != first).collect();
    others.iter().for_each(|osd| world.crash(*osd));
    world.tick(Duration::from_secs(31));
    world.run_until_idle();
    assert!(messages(&mut world, notify_op::COMPLETE).is_empty(), "both may be there yet");
    assert!(messages(&mut world, notify_op::DISCONNECT).is_empty());
    world.crash(first);
    others.iter().for_each(|osd| world.restart(*osd));
    world.mark_down(first);
    world.run_until_idle();
    for at in 0..2 {
        assert_eq!(world.call(at, "a", watch(watch_op::RECONNECT, 10 + at as u64)).result, 0);
    }
}

/// The client is told that its watch is there, so it must be: the log has the change that made it again before the one that ended it.
#[test]
fn a_watch_that_is_being_made_again_does_not_end_by_its_old_deadline() {
    let mut world = watched();
    let primary = world.primary();
    world.reset_session(0, primary);
    world.run_until_idle();
    let acting = world.map().pg_to_up_acting(pg()).acting;
    let other = acting.into_iter().find(|osd| *osd != primary).expect("three copies");
    world.crash(other);
    world.request(0, "a", watch(watch_op::RECONNECT, 10));
    world.run_until_idle();
    world.tick(Duration::from_secs(31));
    world.run_until_idle();
    world.mark_down(other);
    world.run_until_idle();
    // The one that it sent is answered; whether it is connected or to connect again, the watch is there.
    assert_eq!(world.call(0, "a", watch(watch_op::RECONNECT, 10)).result, 0);
}

/// A watch whose time is over while the PG peers is looked at again after a while, not at once and for ever.
#[test]
fn watches_of_a_pg_that_peers_leave_its_osd_in_peace() {
    let mut world = watched();
    let primary = world.primary();
    let acting = world.map().pg_to_up_acting(pg()).acting;
    let other = acting.into_iter().find(|osd| *osd != primary).expect("three copies");
    world.crash(other);
    world.event(primary, Event::PeerReset(other));
    world.run_until_idle();
    world.tick(Duration::from_secs(31));
    let now = world.now;
    let due = world.pg(primary).expect("a copy").next_deadline().expect("watches");
    assert!(due >= now + Duration::from_millis(100), "a tick is due at once");
    world.run_until_idle();
    assert!(messages(&mut world, notify_op::DISCONNECT).is_empty(), "nobody serves");
    world.heal();
    assert_eq!(world.call(0, "a", watch(watch_op::RECONNECT, 10)).result, 0);
}

#[test]
fn what_a_client_notified_goes_with_its_session() {
    let mut world = watched();
    let primary = world.primary();
    assert_eq!(world.call(2, "a", notify(77, 3000)).result, 0);
    let told = messages(&mut world, notify_op::NOTIFY).len();
    assert_eq!(told, 2);
    let held = |world: &mut World| world.pg(primary).expect("a copy").watches.notifies_count();
    assert_eq!(held(&mut world), 1);
    world.reset_session(2, primary);
    world.run_until_idle();
    assert_eq!(held(&mut world), 0, "nobody is left to tell");
}

#[test]
fn a_session_has_so_many_notifies_under_way_and_no_more() {
    let mut world = watched();
    let many = |count: usize| -> Vec<SubOp> { (0..count).flat_map(|_| notify(1, 3000)).collect() };
    assert_eq!(world.call(2, "a", many(1000)).result, 0);
    assert_eq!(world.call(2, "a", many(30)).result, Errno::EBUSY.negated());
    assert_eq!(world.call(0, "a", many(30)).result, 0, "others notify");
}

/// The change that ends a watch is taken back when peering begins anew in the same interval: the watch is there still, and ends later.
#[test]
fn a_watch_ends_though_peering_began_anew_meanwhile() {
    let mut world = watched();
    let primary = world.primary();
    let acting = world.map().pg_to_up_acting(pg()).acting;
    let other = acting.into_iter().find(|osd| *osd != primary).expect("three copies");
    world.tick(Duration::from_secs(31));
    world.cut(primary, other);
    assert!(messages(&mut world, notify_op::DISCONNECT).is_empty(), "it is not everywhere yet");
    world.run_until_idle();
    for _ in 0..5 {
        world.tick(Duration::from_secs(2));
        world.run_until_idle();
    }
    assert_eq!(messages(&mut world, notify_op::DISCONNECT).len(), 2, "both were silent for too long");
    world.call(2, "a", notify(1, 5));
    assert_eq!(messages(&mut world, notify_op::COMPLETE).len(), 1, "nobody watches any more");
}
