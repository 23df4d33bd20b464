//! Sessions of clients outlive the leader: the next one goes on where they were.

use super::{ADMIN, World};
use crate::event::SessionId;
use crate::front::FrontEvent;
use nacre_buf::BufList;
use nacre_msg::{Log, Message, MonCommand, MonGetOsdMap, MonGetVersion, Statfs};
use nacre_types::Epoch;

const CREATE: &str = r#"{"prefix":"osd create"}"#;

/// Increments and full maps of the OSDs that a session was sent.
fn epochs(messages: &[Message]) -> Vec<Epoch> {
    let maps = messages.iter().filter_map(|message| match message {
        Message::MOsdMap(maps) => Some(maps.full.keys().chain(maps.incrementals.keys()).copied()),
        _ => None,
    });
    maps.flatten().collect()
}

/// Number and text of each line.
fn log_lines(messages: &[Message]) -> Vec<(u64, String)> {
    let logs = messages.iter().filter_map(|message| match message {
        Message::Log(Log { entries, .. }) => {
            Some(entries.iter().map(|entry| (entry.seq, entry.message.clone())))
        }
        _ => None,
    });
    logs.flatten().collect()
}

/// What `osd create` answered, each time that it did.
fn created(messages: &[Message]) -> Vec<String> {
    let acks = messages.iter().filter_map(|message| match message {
        Message::MonCommandAck(ack) if ack.result == 0 => Some(ack.data.to_bytes()),
        _ => None,
    });
    acks.map(|data| String::from_utf8_lossy(&data).trim().to_owned()).collect()
}

fn create_osd(world: &mut World, session: SessionId) {
    let tid = world.new_tid();
    world.message(session, tid, MonCommand { cmd: vec![CREATE.to_owned()], ..MonCommand::default() });
}

#[test]
fn what_was_asked_and_not_answered_is_answered_by_the_next_leader_and_happens_once() {
    for is_durable in [false, true] {
        let mut world = World::new(1);
        let session = world.connect(ADMIN);
        create_osd(&mut world, session);
        assert_eq!(created(&world.take(session)), ["1"]);
        world.commits_complete = false;
        create_osd(&mut world, session);
        assert!(world.take(session).is_empty(), "its batch is not known to be durable");
        if is_durable {
            let batch = world.waiting_batch.take().expect("under way");
            world.kv.apply(&batch);
        }
        world.change_leader();
        assert_eq!(created(&world.take(session)), ["2"], "durable: {is_durable}");
        assert!(world.closed.is_empty());
        // The one after that is not asked again.
        world.change_leader();
        assert!(created(&world.take(session)).is_empty());
        assert_eq!(world.map().osds().count(), 3);
    }
}

#[test]
fn a_subscriber_is_told_what_is_new_and_nothing_twice() {
    let mut world = World::new(1);
    let (session, other) = (world.connect(ADMIN), world.connect(ADMIN));
    world.subscribe(session, "osdmap", 0, false);
    world.subscribe(session, "log-info", 0, false);
    world.subscribe(session, "monmap", 0, true);
    let before = world.take(session);
    let newest = world.map().epoch;
    assert_eq!(epochs(&before), [newest]);
    world.change_leader();
    let told = world.take(session);
    assert!(epochs(&told).is_empty() && !told.iter().any(|message| matches!(message, Message::MMonMap(_))));
    let said = log_lines(&before);
    assert!(log_lines(&told).iter().all(|line| !said.contains(line)), "{said:?} {told:?}");
    world.command(other, r#"{"prefix":"osd set","key":"noout"}"#);
    assert_eq!(epochs(&world.take(session)), [newest + 1]);
    // Also what was changed while nobody served it.
    world.command(other, r#"{"prefix":"osd unset","key":"noout"}"#);
    world.take(session);
    world.change_leader();
    world.command(other, r#"{"prefix":"log","logtext":["hello"]}"#);
    let told = world.take(session);
    assert!(epochs(&told).is_empty());
    assert_eq!(log_lines(&told).iter().filter(|(_, line)| line == "hello").count(), 1);
}

#[test]
fn sessions_that_cannot_go_on_end() {
    let mut world = World::new(1);
    let osd = world.connect("osd.0");
    let plain = world.connect(ADMIN);
    // What asks for maps by number is answered by as many messages as there are.
    let asks_for_maps = world.connect(ADMIN);
    world.message(asks_for_maps, 0, MonGetOsdMap::default());
    // Never answered.
    let impatient = world.connect(ADMIN);
    for handle in 0..65 {
        let ask = MonGetVersion { handle, what: "nothing".to_owned() };
        world.message(impatient, handle, ask);
    }
    world.change_leader();
    assert_eq!(world.closed, [osd, asks_for_maps, impatient]);
    assert!(world.mon.identity_of(plain).is_some());
    assert!([osd, asks_for_maps, impatient].iter().all(|session| world.mon.identity_of(*session).is_none()));
}

#[test]
fn requests_that_wait_take_bounded_memory_and_what_is_answered_or_over_makes_room() {
    let mut world = World::new(1);
    let large = |world: &mut World, session, commits| {
        world.commits_complete = commits;
        let data = BufList::from(vec![0_u8; 11 << 20]);
        let cmd = vec![r#"{"prefix":"osd getcrushmap"}"#.to_owned()];
        let tid = world.new_tid();
        world.message(session, tid, MonCommand { cmd, data, ..MonCommand::default() });
    };
    for _ in 0..3 {
        let session = world.connect(ADMIN);
        large(&mut world, session, true);
    }
    let [first, second, third] = [(); 3].map(|()| world.connect(ADMIN));
    [first, second, third].into_iter().for_each(|session| large(&mut world, session, false));
    world.change_leader();
    assert_eq!(world.closed, [third], "three times 11 MiB are more than a front keeps");
}

#[test]
fn subscriptions_take_bounded_memory_and_what_is_over_makes_room() {
    let mut world = World::new(1);
    let long = |nth: u64| format!("kv:{nth:01000}");
    // 64 KiB each, of 32 MiB.
    let sessions: Vec<SessionId> = (0..600).map(|_| world.connect(ADMIN)).collect();
    for session in &sessions {
        (0..64).for_each(|nth| world.subscribe(*session, &long(nth), 0, false));
        // What is served once is not kept.
        (0..10).for_each(|_| world.subscribe(*session, "monmap", 0, true));
    }
    world.change_leader();
    let left = sessions.len() - world.closed.len();
    assert!((400..520).contains(&left), "{left} sessions go on");
    assert!(world.closed.iter().all(|session| *session > sessions[400]), "those that came last end");
    // They make room for others when they end.
    for session in &sessions {
        world.front_event(FrontEvent::Closed { session: *session });
    }
    world.closed.clear();
    let next = world.connect(ADMIN);
    (0..64).for_each(|nth| world.subscribe(next, &long(nth), 0, false));
    world.change_leader();
    assert!(world.closed.is_empty());
}

#[test]
fn a_session_whose_key_was_taken_away_meanwhile_may_nothing_under_the_next_leader() {
    let mut world = World::new(1);
    world.add_client("client.x", "allow r", "");
    let (session, admin) = (world.connect("client.x"), world.connect(ADMIN));
    world.message(session, 7, Statfs { fsid: world.mon.fsid(), ..Statfs::default() });
    assert_eq!(world.take(session).len(), 1);
    world.commits_complete = false;
    let remove = r#"{"prefix":"auth rm","entity":"client.x"}"#;
    let tid = world.new_tid();
    world.message(admin, tid, MonCommand { cmd: vec![remove.to_owned()], ..MonCommand::default() });
    let batch = world.waiting_batch.take().expect("under way");
    world.kv.apply(&batch);
    world.front.applied(&batch).expect("our own batch");
    world.change_leader();
    world.message(session, 8, Statfs { fsid: world.mon.fsid(), ..Statfs::default() });
    assert!(world.take(session).is_empty());
    world.pass(std::time::Duration::from_secs(4));
    assert!(world.closed.contains(&session));
}
