//! A request that a client sends again is carried out once, whoever leads by then.

use super::{ADMIN, World, name};
use crate::event::{Effect, Event, SessionId};
use crate::{ANSWER_BYTES_MAX, ANSWERS_COUNT_MAX};
use nacre_auth::{ClientAuth, Offer};
use nacre_buf::BufList;
use nacre_denc::Encode;
use nacre_msg::{Message, MonCommand, MonCommandAck, PoolOp, PoolOpReply, pool_op_code};
use nacre_types::{EntityKind, Errno};

/// What a client sees of an answer.
type Seen = (i32, String, Vec<u8>);

fn seen(ack: MonCommandAck) -> Seen {
    (ack.result, ack.status, ack.data.to_bytes().to_vec())
}

fn client(world: &World, who: &str) -> ClientAuth {
    let key = world.keys.get(&name(who)).cloned();
    ClientAuth::new(name(who), key, Offer::secure_first(), &[EntityKind::OSD])
}

fn send(world: &mut World, session: SessionId, tid: u64, json: &str, data: &[u8]) -> Option<Seen> {
    let data = BufList::from(data.to_vec());
    world.message(session, tid, MonCommand { cmd: vec![json.to_owned()], data, ..MonCommand::default() });
    world.take(session).into_iter().find_map(|message| match message {
        Message::MonCommandAck(ack) => Some(seen(ack)),
        _ => None,
    })
}

/// The answer that a request was to get, from a leader whose batch was made durable and who died before the answer was on its way.
fn answer_that_got_lost(
    world: &mut World,
    session: SessionId,
    tid: u64,
    json: &str,
    data: &[u8],
) -> Option<Seen> {
    let (now, wall, data) = (world.now, world.wall, BufList::from(data.to_vec()));
    let message = MonCommand { cmd: vec![json.to_owned()], data, ..MonCommand::default() }.into();
    let message = Event::Message { session, tid, message: Box::new(message) };
    world.mon.handle(now, wall, &mut world.entropy, message);
    let mut effects = Vec::new();
    world.mon.drain(&mut effects);
    let Some(Effect::Commit { batch, token }) = effects.pop() else { panic!("{effects:?}") };
    world.kv.apply(&batch);
    world.mon.handle(now, wall, &mut world.entropy, Event::Committed(token));
    world.mon.drain(&mut effects);
    effects.into_iter().find_map(|effect| match effect {
        Effect::Send { message, .. } => match *message {
            Message::MonCommandAck(ack) => Some(seen(ack)),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn a_command_that_comes_again_to_the_next_leader_is_answered_and_not_run_twice() {
    let pool = r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#;
    let key = "[client.x]\n\tkey = AQCw0eFlAAAAABAAq4LdGkeKq3LqdBZ3Aa3G9w==\n";
    let mut world = World::new(1);
    world.boot_all(1);
    let mut auth = client(&world, ADMIN);
    let mut session = world.connect_as(&mut auth).expect("the right key");
    assert_eq!(send(&mut world, session, 1, pool, &[]).map(|(code, ..)| code), Some(0));
    let commands = [
        (r#"{"prefix":"osd create"}"#, "", "1\n"),
        (r#"{"prefix":"osd create"}"#, "", "2\n"),
        (r#"{"prefix":"osd pool create","pool":"q","pg_num":8}"#, "", ""),
        (r#"{"prefix":"osd pool rename","srcpool":"q","destpool":"r"}"#, "", ""),
        (r#"{"prefix":"auth add","entity":"client.x","caps":["mon","allow r"]}"#, key, ""),
        (r#"{"prefix":"auth get-or-create","entity":"client.y","caps":["mon","allow r"]}"#, "", "[client.y]"),
        (r#"{"prefix":"auth rotate","entity":"client.y","format":"json"}"#, "", r#"[{"entity":"client.y""#),
        (r#"{"prefix":"auth get-or-create-key","entity":"client.z"}"#, "", "AQ"),
        (r#"{"prefix":"config-key set","key":"k","val":"v"}"#, "", ""),
    ];
    for (tid, (json, data, shown)) in (2..).zip(commands) {
        let first = answer_that_got_lost(&mut world, session, tid, json, data.as_bytes()).expect("an answer");
        assert!(first.0 == 0 && String::from_utf8_lossy(&first.2).starts_with(shown), "{json}: {first:?}");
        // Meanwhile somebody else changes what the command would find.
        world.restart();
        let other = world.connect(ADMIN);
        world.ask(other, r#"{"prefix":"config-key set","key":"k","val":"other"}"#).expect("an answer");
        let id = auth.global_id();
        session = world.connect_as(&mut auth).expect("the right key");
        assert_eq!(auth.global_id(), id, "the same client");
        let (before, map) = (tables(&world), world.map().to_bytes());
        let again = send(&mut world, session, tid, json, data.as_bytes());
        assert_eq!(again, Some(first), "{json}");
        assert_eq!((tables(&world), world.map().to_bytes()), (before, map), "{json} changed something");
    }
    let value = world.mon.state().config_keys.value("k").map(|value| value.to_vec());
    assert_eq!(value, Some(b"other".to_vec()), "set before the other client set it, and not once more");
    assert_eq!(world.map().osds().count(), 3);
    world.check();
}

/// What is durable but for the log, to which sessions write.
fn tables(world: &World) -> Vec<(String, nacre_buf::Bytes)> {
    use crate::batch::Snapshot;
    let names = ["auth-entity", "config-key", "answers", "osd-metadata"];
    names.iter().flat_map(|name| world.kv.scan(name)).collect()
}

#[test]
fn what_was_not_committed_is_carried_out_and_what_is_under_way_is_not_begun_again() {
    let mut world = World::new(0);
    let mut auth = client(&world, ADMIN);
    let session = world.connect_as(&mut auth).expect("the right key");
    let create = r#"{"prefix":"osd create"}"#;
    world.commits_complete = false;
    assert_eq!(send(&mut world, session, 7, create, &[]), None);
    world.commits_complete = true;
    world.restart();
    assert_eq!(world.map().osds().count(), 0, "it was lost with its leader");
    let session = world.connect_as(&mut auth).expect("the right key");
    let first = send(&mut world, session, 7, create, &[]);
    assert_eq!(first.as_ref().map(|(_, _, data)| &data[..]), Some(&b"0\n"[..]));
    // The client's connection broke, and the leader is the same.
    let session = world.connect_as(&mut auth).expect("the right key");
    assert_eq!(send(&mut world, session, 7, create, &[]), first);
    assert_eq!(world.map().osds().count(), 1);
    // Another number, and the same number of another command.
    let create = |world: &mut World, tid| send(world, session, tid, r#"{"prefix":"osd create"}"#, &[]);
    assert_eq!(create(&mut world, 8).map(|(_, _, data)| data), Some(b"1\n".to_vec()));
    let json = r#"{"prefix":"osd create","format":"json"}"#;
    assert_eq!(send(&mut world, session, 8, json, &[]).map(|(_, _, data)| data.len()), Some(11));
    assert_eq!(world.map().osds().count(), 3);
}

#[test]
fn nobody_gets_an_answer_of_another_client() {
    let mut world = World::new(0);
    let mut auth = client(&world, ADMIN);
    let session = world.connect_as(&mut auth).expect("the right key");
    let create = r#"{"prefix":"auth get-or-create","entity":"client.y","caps":["mon","allow r"]}"#;
    let first = send(&mut world, session, 5, create, &[]).expect("an answer");
    assert_eq!(first.0, 0);
    let stored = tables(&world).into_iter().filter(|(_, value)| {
        let key = world.mon.state().auth.keys().entity(&name("client.y")).expect("it was made").key.to_text();
        let secret = &first.2[..];
        value.windows(key.len()).any(|part| part == key.as_bytes())
            || value.windows(secret.len()).any(|part| part == secret)
    });
    assert_eq!(stored.count(), 0, "the key is kept in its own table alone, as bytes");
    // The same number of another client that may not do it, and of another instance of the same.
    world.add_client("client.b", "allow r", "allow r");
    let other = world.connect("client.b");
    assert_eq!(send(&mut world, other, 5, create, &[]).map(|(code, ..)| code), Some(Errno::EACCES.negated()));
    let instance = world.connect(ADMIN);
    let osd = r#"{"prefix":"osd create"}"#;
    assert_eq!(send(&mut world, session, 6, osd, &[]).map(|(_, _, data)| data), Some(b"0\n".to_vec()));
    assert_eq!(send(&mut world, instance, 6, osd, &[]).map(|(_, _, data)| data), Some(b"1\n".to_vec()));
    // A key that is gone is not made anew.
    let remove = r#"{"prefix":"auth rm","entity":"client.y"}"#;
    assert_eq!(send(&mut world, session, 7, remove, &[]).map(|(code, ..)| code), Some(0));
    let again = send(&mut world, session, 5, create, &[]).expect("an answer");
    assert_eq!((again.0, again.2.len()), (Errno::ENOENT.negated(), 0));
    assert!(world.mon.state().auth.keys().entity(&name("client.y")).is_none());
}

#[test]
fn a_snapshot_that_librados_asks_for_again_has_its_number() {
    let mut world = World::new(1);
    world.boot_all(1);
    let mut auth = client(&world, ADMIN);
    let session = world.connect_as(&mut auth).expect("the right key");
    let create = r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#;
    assert_eq!(send(&mut world, session, 1, create, &[]).map(|(code, ..)| code), Some(0));
    let op = |world: &mut World, session, tid, op, name: &str| -> PoolOpReply {
        let fsid = world.mon.fsid();
        let ask = PoolOp { fsid, pool: 1, op, name: name.to_owned(), crush_rule: -1, ..PoolOp::default() };
        world.message(session, tid, ask);
        let replies = world.take(session).into_iter();
        let reply = replies.filter_map(|message| match message {
            Message::PoolOpReply(reply) => Some(reply),
            _ => None,
        });
        reply.last().expect("a reply")
    };
    let first = op(&mut world, session, 1, pool_op_code::CREATE_UNMANAGED_SNAP, "");
    world.restart();
    let session = world.connect_as(&mut auth).expect("the right key");
    let again = op(&mut world, session, 1, pool_op_code::CREATE_UNMANAGED_SNAP, "");
    assert_eq!((again.result, again.response), (0, first.response.clone()));
    let next = op(&mut world, session, 2, pool_op_code::CREATE_UNMANAGED_SNAP, "");
    assert_ne!(next.response, first.response);
    // What was refused is judged anew.
    for tid in [3, 3] {
        let refused = op(&mut world, session, tid, pool_op_code::CREATE_SNAP, "s");
        assert_eq!(refused.result, Errno::EINVAL.negated());
    }
    world.check();
}

#[test]
fn as_many_answers_are_kept_as_there_is_room_for() {
    use crate::answers::{Again, Answers, Request, RequestKind};
    use crate::batch::{Batch, MemorySnapshot, Snapshot};
    use crate::command::Output;
    let mut world = World::new(0);
    let session = world.connect(ADMIN);
    let identity = world.mon.identity_of(session).expect("a session").clone();
    let request = |tid| Request::new(&identity, RequestKind::Monitor, tid, &[b"x"]).expect("a known client");
    let mut kv = MemorySnapshot::default();
    let mut answers = Answers::open(&kv).expect("an empty table");
    let last = ANSWERS_COUNT_MAX as u64 + 5;
    for tid in 1..=last {
        let data = vec![b'x'; if tid == last { ANSWER_BYTES_MAX + 1 } else { 3 }];
        answers.note(&request(tid), &Output { data: data.into(), ..Output::text("done") }, false);
        let mut batch = Batch::default();
        answers.flush(&mut batch);
        kv.apply(&batch);
    }
    assert_eq!(kv.scan("answers").len(), ANSWERS_COUNT_MAX);
    let opened = Answers::open(&kv).expect("our own table");
    for answers in [&answers, &opened] {
        assert_eq!(answers.find(&request(5)), None);
        let Some(Again::Output(whole)) = answers.find(&request(6)) else { panic!("it is there") };
        assert_eq!((&whole.text[..], &whole.data[..]), ("done", &b"xxx"[..]));
        let Some(Again::Output(long)) = answers.find(&request(last)) else { panic!("it is there") };
        assert_eq!((long.code, long.data.len()), (0, 0));
        assert!(long.text.starts_with("done (done when it was first asked for"), "{}", long.text);
    }
    let anonymous = crate::session::Identity { allows_all: true, ..identity.clone() };
    assert_eq!(Request::new(&anonymous, RequestKind::Monitor, 6, &[b"x"]), None, "it has proved nothing");
    let mut again = opened;
    again.note(&request(last + 1), &Output::error(Errno::EAGAIN, "later"), false);
    assert!(!again.is_dirty());
}
