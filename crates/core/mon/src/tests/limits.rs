//! What an administrator may store, however long a loop runs.

use super::{ADMIN, World};
use crate::budget::{
    BATCH_BYTES_MAX, CRUSH_BYTES_MAX, DELAYED_BYTES_MAX, INPUT_BYTES_MAX, PENDING_BYTES_MAX,
};
use crate::cluster_log::TEXT_BYTES_MAX;
use crate::config::{ConfigDb, ConfigError, VALUE_BYTES_MAX, VALUES_BYTES_MAX, VALUES_COUNT_MAX, Who};
use crate::config_key::{
    ConfigKeys, KEY_BYTES_MAX, KEYS_COUNT_MAX, STORE_BYTES_MAX, VALUE_BYTES_MAX as KEY_VALUE_MAX,
};
use crate::event::{Event, SessionId};
use nacre_buf::Bytes;
use nacre_msg::{ClusterLogEntry, Log, Message, MonCommand};
use nacre_types::Errno;

fn who(number: usize) -> Who {
    Who::parse(&format!("client.{number}")).expect("a section")
}

#[test]
fn values_of_options_are_bounded_in_number_and_bytes() {
    let mut db = ConfigDb::default();
    for number in 0..VALUES_COUNT_MAX {
        db.set(&who(number), "any", "x", true).expect("room");
    }
    assert!(matches!(db.set(&who(VALUES_COUNT_MAX), "any", "x", true), Err(ConfigError::Full)));
    db.set(&who(0), "any", "y", true).expect("what is there may change");

    let mut db = ConfigDb::default();
    let long = "x".repeat(VALUE_BYTES_MAX);
    assert!(matches!(db.set(&who(0), "any", &format!("{long}x"), true), Err(ConfigError::Full)));
    let kept = (0..).take_while(|number| db.set(&who(*number), "any", &long, true).is_ok()).count();
    assert!(kept > 50 && kept * VALUE_BYTES_MAX <= VALUES_BYTES_MAX, "{kept} values");
}

#[test]
fn config_keys_are_bounded_in_number_and_bytes() {
    let mut keys = ConfigKeys::default();
    let value = Bytes::from(vec![1; KEY_VALUE_MAX]);
    assert!(keys.has_room("k", KEY_VALUE_MAX) && !keys.has_room("k", KEY_VALUE_MAX + 1));
    assert!(!keys.has_room(&"k".repeat(KEY_BYTES_MAX + 1), 1));
    let mut kept = 0;
    while keys.has_room(&format!("key-{kept}"), KEY_VALUE_MAX) {
        keys.set(&format!("key-{kept}"), value.clone());
        kept += 1;
    }
    assert!(kept > 4000 && kept * KEY_VALUE_MAX <= STORE_BYTES_MAX, "{kept} values");
    assert!(keys.has_room("key-0", KEY_VALUE_MAX), "what is there may change");

    let mut keys = ConfigKeys::default();
    (0..KEYS_COUNT_MAX).for_each(|number| keys.set(&number.to_string(), Bytes::new()));
    assert!(!keys.has_room("one more", 0) && keys.has_room("0", 1));
}

#[test]
fn slots_of_osds_are_bounded() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let mut ask = |json: &str| world.ask(admin, json).expect("an answer").result;
    assert_eq!(ask(r#"{"prefix":"osd setmaxosd","newmax":10001}"#), Errno::ERANGE.negated());
    assert_eq!(ask(r#"{"prefix":"osd setmaxosd","newmax":10000}"#), 0);
}

/// Lets what waits at the log become durable. Gives the length of the batch, if it was one.
fn commit(world: &mut World) -> Option<usize> {
    let (token, batch) = (world.waiting.take()?, world.waiting_batch.take());
    if let Some(batch) = &batch {
        world.kv.apply(batch);
    }
    world.event(match batch {
        Some(_) => Event::Committed(token),
        None => Event::Confirmed(token),
    });
    batch.map(|batch| batch.bytes())
}

fn answered(world: &mut World, sessions: &[SessionId]) -> usize {
    let acks = |message: &Message| matches!(message, Message::MonCommandAck(ack) if ack.result == 0);
    sessions.iter().map(|session| world.take(*session).iter().filter(|message| acks(message)).count()).sum()
}

/// While one batch is being written, clients may ask for 2,000 changes and daemons may say what they want: in one batch that would be more
/// than an entry of the log, and the end of the monitor.
#[test]
fn a_batch_is_never_longer_than_an_entry_of_the_log() {
    let mut world = World::new(1);
    let sessions: Vec<SessionId> = (0..4).map(|_| world.connect(ADMIN)).collect();
    let osd = world.connect("osd.0");
    world.pass(std::time::Duration::from_secs(60));
    world.commits_complete = false;
    world.command(sessions[0], r#"{"prefix":"config-key set","key":"first","val":"x"}"#);
    let data = Bytes::from(vec![1; KEY_VALUE_MAX]);
    let changes = 480;
    for number in 0..changes {
        let cmd = vec![format!(r#"{{"prefix":"config-key set","key":"k{number}"}}"#)];
        let tid = world.new_tid();
        let data = data.clone().into();
        world.message(sessions[number % 4], tid, MonCommand { cmd, data, ..MonCommand::default() });
    }
    let entry = ClusterLogEntry {
        message: "x".repeat(2 * TEXT_BYTES_MAX),
        channel: "c".repeat(1 << 10),
        ..ClusterLogEntry::default()
    };
    let fsid = world.mon.fsid();
    for _ in 0..6 {
        world.message(osd, 0, Log { fsid, entries: vec![entry.clone(); 1000], ..Log::default() });
    }
    let (mut batches, mut acks) = (Vec::new(), 0);
    while let Some(bytes) = commit(&mut world).or_else(|| commit(&mut world)) {
        batches.push(bytes);
        acks += answered(&mut world, &sessions);
    }
    assert!(batches.iter().all(|bytes| *bytes <= BATCH_BYTES_MAX), "{batches:?}");
    assert!(batches.iter().sum::<usize>() > 100 << 20, "one batch would have been too long: {batches:?}");
    assert!(batches.iter().any(|bytes| *bytes >= PENDING_BYTES_MAX), "the limit was met: {batches:?}");
    assert_eq!(acks, changes + 1, "all are answered in the end");
}

#[test]
fn a_crush_map_that_does_not_fit_into_the_log_is_refused() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let cmd = vec![r#"{"prefix":"osd setcrushmap"}"#.to_owned()];
    let data = Bytes::from(vec![0; CRUSH_BYTES_MAX + 1]).into();
    world.message(admin, 7, MonCommand { cmd, data, ..MonCommand::default() });
    let replies = world.take(admin);
    let [Message::MonCommandAck(ack)] = &replies[..] else { panic!("one answer, not {replies:?}") };
    assert!(ack.result == Errno::E2BIG.negated() && ack.status.contains("8 MiB"), "{ack:?}");
}

/// What a command brings is bounded before the leader has it: a link between monitors ends when more waits for it than its queue holds.
#[test]
fn input_that_no_command_takes_is_refused_where_its_client_is_connected() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    for (length, taken) in [(INPUT_BYTES_MAX, false), (INPUT_BYTES_MAX + 1, true)] {
        let cmd = vec![r#"{"prefix":"status"}"#.to_owned()];
        let data = Bytes::from(vec![0; length]).into();
        world.message(admin, 7, MonCommand { cmd, data, ..MonCommand::default() });
        let replies = world.take(admin);
        let [Message::MonCommandAck(ack)] = &replies[..] else { panic!("one answer, not {replies:?}") };
        assert_eq!(ack.result == Errno::E2BIG.negated(), taken, "{length}: {}", ack.status);
    }
}

#[test]
fn changes_that_wait_are_bounded_in_bytes() {
    let mut world = World::new(1);
    let client = world.connect(ADMIN);
    let change = |world: &mut World, length: usize| {
        let cmd = vec![r#"{"prefix":"config-key set","key":"k"}"#.to_owned()];
        let data = Bytes::from(vec![0; length]).into();
        world.message(client, 7, MonCommand { cmd, data, ..MonCommand::default() });
    };
    // Its budget is spent: what follows waits.
    (0..500).for_each(|_| change(&mut world, 1));
    world.take(client);
    let count = DELAYED_BYTES_MAX / INPUT_BYTES_MAX + 3;
    (0..count).for_each(|_| change(&mut world, INPUT_BYTES_MAX));
    let refused = |message: &Message| matches!(message, Message::MonCommandAck(ack) if ack.result == Errno::EAGAIN.negated());
    assert_eq!(world.take(client).iter().filter(|message| refused(message)).count(), 3);
}
