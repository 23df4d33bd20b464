//! Which request a message is, and when it counts as one that was made before.

use crate::harness::{POOL, Touched, World, head};
use crate::{Event, StoreRoom, TURN_WORK_MAX};

use nacre_auth::OsdCaps;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Reader, Writer};
use nacre_maps::flags;
use nacre_msg::osd_op::{CopyFrom, code, flag};
use nacre_msg::{OsdOpReply, SubOp};
use nacre_types::{EntityAddr, Errno, ObjectLocator, PgId, ReqId, SnapId};
use std::time::Duration;

fn write(text: &str) -> Vec<SubOp> {
    vec![SubOp::write_full(text.as_bytes().to_vec().into())]
}

fn append(text: &str) -> Vec<SubOp> {
    vec![SubOp::append(text.as_bytes().to_vec().into())]
}

#[test]
fn a_client_cannot_make_a_request_in_the_name_of_another() {
    let mut world = World::new(1, 2);
    world.run_until_idle();
    let victim = world.clients[0].name();
    // Whatever it writes to, it must not use up the next requests of the other one.
    for tid in 1..=3 {
        world.clients[1].reservations = ReqId { name: victim, tid, incarnation: 0 };
        assert_eq!(world.call(1, "mine", write("x")).result, 0);
    }
    for n in 1..=3 {
        assert_eq!(world.call(0, "theirs", append(&n.to_string())).result, 0);
    }
    assert_eq!(world.stored("theirs").expect("what was acknowledged").data, b"123");
    world.assert_equal_copies();
}

/// A metadata server's field has no name and no number, but its incarnation.
#[test]
fn requests_of_a_client_with_an_incarnation_differ_by_their_numbers() {
    let mut world = World::new(2, 1);
    world.run_until_idle();
    world.clients[0].incarnation = 7;
    world.clients[0].reservations = ReqId { incarnation: 7, ..ReqId::default() };
    for n in 1..=3 {
        assert_eq!(world.call(0, "a", append(&n.to_string())).result, 0);
    }
    world.repeat(0, 3, "a", append("3"));
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&3].result, 0);
    assert_eq!(world.stored("a").expect("what was acknowledged").data, b"123");
    // Begun anew under the same name, it counts from the beginning.
    world.clients[0].incarnation = 8;
    world.clients[0].reservations.incarnation = 8;
    world.repeat(0, 1, "a", append("4"));
    world.run_until_idle();
    assert_eq!(world.stored("a").expect("what was acknowledged").data, b"1234");
}

/// Marks the pool full, or says that there is room again.
fn mark_full(world: &mut World, full: bool) {
    world.publish(|map| {
        let flags = &mut map.pools.get_mut(&POOL).expect("the pool").flags;
        *flags = if full { *flags | flags::pool::FULL } else { *flags & !flags::pool::FULL };
    });
}

/// Of two writes, the first of which needs room, the second must not be acknowledged without the first: that one is
/// sent again when there is room, and would undo it.
#[test]
fn a_write_never_overtakes_one_that_is_dropped_for_lack_of_room() {
    let mut overtaken = 0;
    for seed in 0..60 {
        let mut world = World::new(seed, 1);
        world.disk(0).slow = true;
        world.run_until_idle();
        assert_eq!(world.call(0, "a", write("base")).result, 0);
        world.disk(0).cool_down();
        world.request(0, "a", vec![SubOp::read(0, 0)]); // the writes queue behind it while it waits for data
        let longer = world.request(0, "a", write("longer than before"));
        let shorter = world.request(0, "a", write("x"));
        for _ in 0..world.pick(6) {
            world.step();
        }
        mark_full(&mut world, true);
        world.run_until_idle();
        let answered = |world: &World, tid| world.clients[0].replies.contains_key(&tid);
        if !answered(&world, longer) {
            assert!(
                !answered(&world, shorter),
                "seed {seed}: the later one counts, the earlier one does not"
            );
            overtaken += 1;
        }
        mark_full(&mut world, false);
        world.run_until_idle();
        for tid in [longer, shorter] {
            world.send(0, tid); // as clients do when there is room again
        }
        world.run_until_idle();
        assert!(answered(&world, longer) && answered(&world, shorter), "seed {seed}");
        assert_eq!(world.stored("a").expect("the object").data, b"x", "seed {seed}");
        world.assert_equal_copies();
    }
    assert!(overtaken > 10, "{overtaken} of 60");
}

#[test]
fn what_may_be_written_to_a_full_pool_still_is() {
    let mut world = World::new(3, 1);
    world.run_until_idle();
    assert_eq!(world.call(0, "a", write("base")).result, 0);
    mark_full(&mut world, true);
    world.run_until_idle();
    // By a client that knows that it is full.
    assert_eq!(world.call(0, "a", write("b")).result, 0);
    // And by one that does not, and says that it may be.
    let cases = [
        (flag::FULL_TRY, "longer", Errno::ENOSPC.negated()),
        (flag::FULL_TRY, "c", 0),
        (flag::FULL_FORCE, "longer", 0),
    ];
    for (flags, text, expected) in cases {
        world.clients[0].epoch -= 1;
        let tid = world.clients[0].request("a", write(text));
        world.clients[0].sent.get_mut(&tid).expect("just made").flags = flags;
        world.send(0, tid);
        world.run_until_idle();
        assert_eq!(world.clients[0].replies[&tid].result, expected, "{flags} {text}");
    }
}

#[test]
fn a_write_that_was_made_is_answered_from_the_log_when_there_is_no_room_any_more() {
    for (seed, by_map) in (0..40).zip([false, true].into_iter().cycle()) {
        let mut world = World::new(seed, 1);
        world.run_until_idle();
        let tid = world.request(0, "a", append("x"));
        while world.stored("a").is_none() {
            world.step(); // executed, and perhaps not answered
        }
        if by_map {
            mark_full(&mut world, true);
            while world.step() && !world.clients[0].replies.contains_key(&tid) {}
            world.clients[0].replies.remove(&tid);
            world.repeat(0, tid, "a", append("x"));
        } else {
            world.clients[0].is_beyond_room = true;
            world.reset_session(0, 0);
        }
        world.run_until_idle();
        assert_eq!(world.clients[0].replies[&tid].result, 0, "seed {seed}");
        assert_eq!(world.stored("a").expect("the object").data, b"x");
        if !by_map {
            assert_eq!(world.call(0, "a", append("y")).result, Errno::ENOSPC.negated());
        }
    }
}

/// Its primary refuses what brings data then: a replica that cannot apply a write has to stop.
#[test]
fn a_replica_says_with_each_write_that_is_done_whether_its_store_is_full() {
    let mut world = World::new(9, 1);
    world.run_until_idle();
    assert_eq!(world.call(0, "a", write("x")).result, 0);
    assert!(world.said_full.is_empty());
    world.set_room(1, StoreRoom::FailsafeFull);
    assert_eq!(world.call(0, "a", write("y")).result, 0);
    assert_eq!(Vec::from_iter(&world.said_full), [&1]);
    world.said_full.clear();
    world.set_room(1, StoreRoom::Ample);
    assert_eq!(world.call(0, "a", write("z")).result, 0);
    assert!(world.said_full.is_empty());
}

/// What was checked when a message came is checked again when its turn comes.
#[test]
fn a_write_that_waits_is_refused_when_its_client_is_fenced_meanwhile() {
    let mut world = World::new(4, 1);
    world.disk(0).slow = true;
    world.run_until_idle();
    assert_eq!(world.call(0, "a", write("base")).result, 0);
    world.disk(0).cool_down();
    let session = world.clients[0].session(0, &mut 0);
    let read = world.clients[0].request("a", vec![SubOp::read(0, 0)]);
    let behind = world.clients[0].request("a", write("fenced"));
    for tid in [read, behind] {
        let op = world.clients[0].message(tid, std::sync::Arc::clone(&session));
        world.event(0, Event::ClientOp(op));
    }
    let addr: EntityAddr = world.clients[0].addr();
    world.publish(|map| {
        map.blocklist.insert(addr, nacre_types::UTime { sec: u32::MAX, nsec: 0 });
    });
    world.advance_to_newest(0);
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&behind].result, Errno::ESHUTDOWN.negated());
    assert_eq!(world.stored("a").expect("the object").data, b"base");
}

fn copy_from(pool: i64, namespace: &str, name: &str) -> Vec<SubOp> {
    let locator = ObjectLocator { namespace: ByteStr::from(namespace), ..ObjectLocator::in_pool(pool) };
    vec![SubOp::copy_of(name, &locator, 0)]
}

#[test]
fn a_copy_needs_the_right_to_read_its_source() {
    let mut world = World::new(5, 1);
    world.publish(|map| {
        let pool = map.pools[&POOL].clone();
        map.pools.insert(POOL + 1, pool);
        map.pool_names.insert(POOL + 1, "secret".to_owned());
    });
    world.run_until_idle();
    assert_eq!(world.call(0, "source", write("content")).result, 0);
    let cases = [
        ("allow rw pool=p", POOL, "", 0),
        ("allow rw pool=p", POOL + 1, "", Errno::EPERM.negated()),
        ("allow rw pool=p", POOL + 9, "", Errno::EPERM.negated()),
        ("allow w pool=p, allow r pool=p namespace=other", POOL, "secret", Errno::EPERM.negated()),
        ("allow w pool=p, allow r pool=p namespace=other", POOL, "other", Errno::ENOENT.negated()),
        ("allow w pool=p", POOL, "", Errno::EPERM.negated()),
        ("allow w pool=p, allow r pool=p object_prefix sour", POOL, "", 0),
        ("allow w pool=p, allow r pool=p object_prefix other", POOL, "", Errno::EPERM.negated()),
    ];
    for (caps, pool, namespace, expected) in cases {
        world.reset_session(0, 0);
        world.clients[0].caps = OsdCaps::parse(caps).expect("caps");
        let reply = world.call(0, "target", copy_from(pool, namespace, "source"));
        assert_eq!(reply.result, expected, "{caps}: {pool} {namespace}");
    }
    let malformed = CopyFrom { source_snap: SnapId::HEAD, ..CopyFrom::default() };
    let malformed = SubOp::with_copy_from(code::COPY_FROM, malformed, Bytes::from_static(b"?"));
    assert_eq!(world.call(0, "target", vec![malformed]).result, Errno::EINVAL.negated());
}

/// What a read that waits for data will see cannot change: when the data is there, its object is not looked at once more.
#[test]
fn a_read_whose_data_has_come_is_not_executed_again() {
    // Where the view has the data, it is asked for it; where it came with the answer, for nothing.
    for (brings, touched_bytes) in [(false, 5), (true, 0)] {
        let mut world = World::new(6, 1);
        (world.disk(0).slow, world.disk(0).brings) = (true, brings);
        world.run_until_idle();
        assert_eq!(world.call(0, "a", write("content")).result, 0);
        world.disk(0).cool_down();
        let session = world.clients[0].session(0, &mut 0);
        let tid = world.clients[0].request("a", vec![SubOp::read(2, 100)]);
        let op = world.clients[0].message(tid, session);
        world.event(0, Event::ClientOp(op));
        world.most_touched = Touched::default();
        world.run_until_idle();
        let reply = &world.clients[0].replies[&tid];
        assert_eq!((reply.result, reply.user_version), (0, 1));
        assert_eq!(reply.ops[0].outdata.to_bytes(), b"ntent"[..]);
        assert_eq!((world.most_touched.objects, world.most_touched.bytes), (0, touched_bytes));
    }
}

/// Data that came with the answer is nowhere else: a turn that has no more work to give does not lose it, and what is written
/// behind the read does not show in it.
#[test]
fn what_a_read_was_brought_waits_with_it_for_its_turn() {
    let mut world = World::new(8, 1);
    (world.disk(0).slow, world.disk(0).brings) = (true, true);
    world.run_until_idle();
    assert_eq!(world.call(0, "a", write("content")).result, 0);
    world.disk(0).cool_down();
    let session = world.clients[0].session(0, &mut 0);
    let tid = world.clients[0].request("a", vec![SubOp::read(0, 0)]);
    let behind = world.clients[0].request("a", append(" and more"));
    for tid in [tid, behind] {
        let op = world.clients[0].message(tid, std::sync::Arc::clone(&session));
        world.event(0, Event::ClientOp(op));
    }
    world.throttle(0).turn.begin(0);
    assert!(world.fetch(0));
    assert!(world.pg(0).expect("a copy").is_put_off(), "the turn is spent");
    world.throttle(0).turn.begin(u64::MAX);
    world.event(0, Event::Resume);
    assert!(!world.fetch(0), "nothing is asked for again");
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&tid].ops[0].outdata.to_bytes(), b"content"[..]);
    assert_eq!(world.clients[0].replies[&behind].result, 0);
    assert_eq!(world.stored("a").expect("the object").data, b"content and more");
}

/// Heartbeats wait for a turn's end: what one turn brings is executed in several, in its order.
#[test]
fn a_turn_begins_no_message_beyond_its_work() {
    let mut world = World::new(7, 1);
    world.run_until_idle();
    assert_eq!(world.call(0, "a", write("base")).result, 0);
    let session = world.clients[0].session(0, &mut 0);
    world.throttle(0).turn.begin(400 << 10);
    // Each of some 160 KiB of work; the writes behind the first one wait for it.
    let heavy = |n: usize| (0..9).map(|_| SubOp::read(0, 0)).chain(append(&n.to_string())).collect();
    let tids: Vec<u64> = (0..9).map(|n| world.clients[0].request("a", heavy(n))).collect();
    for tid in &tids {
        let op = world.clients[0].message(*tid, std::sync::Arc::clone(&session));
        world.event(0, Event::ClientOp(op));
    }
    let mut answered = Vec::new();
    for _ in 0..9 {
        world.run_until_idle();
        answered.push(tids.iter().filter(|tid| world.clients[0].replies.contains_key(tid)).count());
        let put_off = world.pg(0).expect("a PG").is_put_off();
        assert_eq!(put_off, answered.last() != Some(&tids.len()));
        world.throttle(0).turn.begin(400 << 10);
        world.event(0, Event::Resume);
    }
    assert!(answered[0] > 0 && answered[0] < 5 && answered[0] < answered[1], "{answered:?}");
    assert_eq!(answered.last(), Some(&tids.len()));
    assert_eq!(world.stored("a").expect("the object").data, b"base012345678");
    world.assert_equal_copies();
}

/// `rgw_bucket_dir_entry` of an object of no bytes.
fn bucket_entry(name: &str) -> Bytes {
    let mut w = Writer::new();
    w.envelope(8, 3, |w| {
        w.str(name);
        w.u64(0);
        w.bool(true);
        w.envelope(7, 3, |w| {
            w.u8(1);
            w.zeros(8 + 8 + 4 * 4 + 8 + 2 * 4 + 1);
        });
        w.count(0);
        w.str("");
        w.envelope(1, 1, |w| w.zeros(2));
        w.u8(0);
        w.str("");
        w.str("");
        w.u16(0);
        w.u64(0);
    });
    w.finish()
}

/// A PG with the object `index`, a bucket's index of so many objects.
fn with_index(seed: u64, objects: usize) -> World {
    let mut world = World::new(seed, 1);
    world.run_until_idle();
    assert_eq!(world.call(0, "index", vec![SubOp::call("rgw", "bucket_init_index", b"")]).result, 0);
    let mut stored = world.stored("index").expect("just made").clone();
    for number in 0..objects {
        let name = format!("object-{number:06}");
        stored.omap.insert(name.as_str().into(), bucket_entry(&name));
    }
    (0..3).for_each(|osd| world.disk(osd).plant(head("index"), stored.clone()));
    world
}

/// The objects that a header in this answer counts, the stored one's or the new count's.
fn counted(reply: &OsdOpReply, which: usize) -> u64 {
    let mut r = Reader::new(reply.ops[0].outdata.to_bytes());
    r.envelope("rgw_cls_check_index_ret", 1, |_, r| {
        let mut entries = [0; 2];
        for counted in &mut entries {
            *counted = r.envelope("rgw_bucket_dir_header", 7, |_, r| {
                let count = r.u32()?;
                let mut entries = 0;
                for _ in 0..count {
                    r.u8()?;
                    entries += r.envelope("rgw_bucket_category_stats", 3, |_, r| {
                        r.skip(16)?;
                        r.u64()
                    })?;
                }
                Ok(entries)
            })?;
        }
        Ok(entries[which])
    })
    .expect("two headers")
}

/// A call that takes long pauses at the end of its turn: others go on meanwhile, and changes of its object wait for it.
#[test]
fn a_call_that_is_more_than_a_turn_is_for_goes_on_in_later_ones() {
    const OBJECTS: usize = 60_000;
    for method in ["bucket_check_index", "bucket_rebuild_index"] {
        let mut world = with_index(9, OBJECTS);
        let session = world.clients[0].session(0, &mut 0);
        let long = world.clients[0].request("index", vec![SubOp::call("rgw", method, b"")]);
        let remove = vec![SubOp::new(code::DELETE)];
        let behind = world.clients[0].request("index", remove);
        let beside = world.clients[0].request("other", write("x"));
        let mut turns = 0;
        world.throttle(0).turn.begin(TURN_WORK_MAX);
        for tid in [long, behind, beside] {
            let op = world.clients[0].message(tid, std::sync::Arc::clone(&session));
            world.event(0, Event::ClientOp(op));
        }
        while world.pg(0).expect("a PG").is_put_off() {
            world.run_until_idle();
            turns += 1;
            let answered = |tid: &u64| world.clients[0].replies.contains_key(tid);
            assert_eq!([long, behind].map(|tid| answered(&tid)), [false; 2], "{method} in turn {turns}");
            assert_eq!(answered(&beside), turns > 1, "{method} in turn {turns}: the first one was spent");
            world.throttle(0).turn.begin(TURN_WORK_MAX);
            world.event(0, Event::Resume);
        }
        world.run_until_idle();
        assert!(turns >= 2, "{method}: {turns} turns");
        assert_eq!(
            [long, behind, beside].map(|tid| world.clients[0].replies[&tid].result),
            [0; 3],
            "{method}"
        );
        if method == "bucket_check_index" {
            let reply = &world.clients[0].replies[&long];
            assert_eq!((counted(reply, 0), counted(reply, 1)), (0, OBJECTS as u64));
        }
        assert!(world.stored("index").is_none(), "removed behind it");
        world.assert_equal_copies();
    }
}

/// What a paused call has counted is nothing that outlives its interval, and its session.
#[test]
fn a_paused_call_begins_anew_with_the_interval_and_ends_with_its_session() {
    const OBJECTS: usize = 60_000;
    let mut world = with_index(10, OBJECTS);
    let paused = |world: &mut World| {
        let session = world.clients[0].session(0, &mut 0);
        let tid = world.clients[0].request("index", vec![SubOp::call("rgw", "bucket_check_index", b"")]);
        world.throttle(0).turn.begin(TURN_WORK_MAX);
        let op = world.clients[0].message(tid, std::sync::Arc::clone(&session));
        world.event(0, Event::ClientOp(op));
        assert!(world.pg(0).expect("a PG").is_put_off(), "it is more than a turn is for");
        (session, tid)
    };
    let (_, tid) = paused(&mut world);
    world.crash(2);
    world.mark_down(2);
    world.throttle(0).turn.begin(u64::MAX);
    world.run_until_idle();
    for _ in 0..10 {
        world.event(0, Event::Resume);
        world.run_until_idle();
    }
    let reply = world.clients[0].replies.get(&tid).expect("it was admitted anew");
    assert_eq!((reply.result, counted(reply, 1)), (0, OBJECTS as u64));
    let (session, tid) = paused(&mut world);
    world.event(0, Event::SessionClosed(session.id));
    assert!(!world.pg(0).expect("a PG").is_put_off(), "nobody waits for it");
    world.throttle(0).turn.begin(u64::MAX);
    assert_eq!(
        world.call(0, "index", vec![SubOp::new(code::DELETE)]).result,
        0,
        "and nothing waits behind it"
    );
    assert!(!world.clients[0].replies.contains_key(&tid));
}

/// A PG that serves, and another pool that nobody serves.
fn with_dead_pool() -> World {
    let mut world = World::new(6, 2);
    world.publish(|map| {
        let pool = map.pools[&POOL].clone();
        map.pools.insert(POOL + 1, pool);
        map.pool_names.insert(POOL + 1, "dead".to_owned());
    });
    world.run_until_idle();
    assert!(world.map().pg_to_up_acting(PgId::new(POOL + 1, 0)).acting_primary < 0);
    world
}

#[test]
fn a_copy_ends_with_the_session_that_asked_for_it() {
    let mut world = with_dead_pool();
    world.request(0, "target", copy_from(POOL + 1, "", "source"));
    world.run_until_idle();
    let behind = world.request(1, "target", write("by another client"));
    world.run_until_idle();
    assert!(!world.clients[1].replies.contains_key(&behind), "it waits for its turn");
    let primary = world.primary();
    world.clients[0].sent.clear();
    world.reset_session(0, primary);
    world.run_until_idle();
    assert_eq!(world.clients[1].replies.get(&behind).map(|reply| reply.result), Some(0));
    assert_eq!(world.stored("target").expect("the object").data, b"by another client");
}

#[test]
fn a_copy_from_a_pg_that_serves_nobody_gives_up() {
    let mut world = with_dead_pool();
    let copy = world.request(0, "target", copy_from(POOL + 1, "", "source"));
    let behind = world.request(0, "target", write("behind it"));
    for _ in 0..50 {
        world.run_until_idle();
        world.tick(Duration::from_secs(1));
    }
    assert!(world.clients[0].replies.is_empty(), "OSDs may be about to take over");
    for _ in 0..15 {
        world.tick(Duration::from_secs(1));
        world.run_until_idle();
    }
    let result = |world: &World, tid| world.clients[0].replies.get(&tid).map(|reply| reply.result);
    assert_eq!(result(&world, copy), Some(Errno::EAGAIN.negated()));
    assert_eq!(result(&world, behind), Some(0));
}

/// A client sends in order; what it sent before the copy went to another partition it sends again, and what was late of that must not come
/// between.
#[test]
fn what_was_sent_with_maps_that_a_copy_saw_elsewhere_is_dropped_and_what_is_sent_again_is_done() {
    let mut world = World::new(3, 1);
    world.run_until_idle();
    let (primary, epoch) = (world.primary(), world.clients[0].epoch);
    world.pg(primary).expect("it is there").resent_through(epoch);
    let late = world.request(0, "a", append("x"));
    world.run_until_idle();
    assert!(world.stored("a").is_none() && !world.clients[0].replies.contains_key(&late));
    world.pg(primary).expect("it is there").resent_through(epoch - 1);
    world.repeat(0, late, "a", append("x"));
    world.run_until_idle();
    assert_eq!(world.clients[0].replies[&late].result, 0);
}
