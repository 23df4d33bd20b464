//! Nothing is told that a crash could take back.

use super::{ADMIN, World};
use nacre_denc::Encode;

const CREATE: &str = r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#;

#[test]
fn no_reply_and_no_map_leave_before_the_commit() {
    let mut world = World::new(3);
    world.boot_all(3);
    let (client, watcher) = (world.connect(ADMIN), world.connect(ADMIN));
    world.subscribe(watcher, "osdmap", 0, false);
    world.take(watcher);
    let epoch = world.map().epoch;
    world.commits_complete = false;
    assert_eq!(world.ask(client, CREATE), None);
    // Not even a read tells of it.
    assert_eq!(world.ask(watcher, r#"{"prefix":"osd dump"}"#), None);
    assert_eq!(world.map().epoch, epoch);
    assert!(world.take(watcher).is_empty());
}

#[test]
fn a_crash_before_the_commit_forgets_one_after_it_remembers() {
    let mut world = World::new(3);
    world.boot_all(3);
    let client = world.connect(ADMIN);
    let before = world.map().to_bytes();
    world.commits_complete = false;
    world.command(client, CREATE);
    world.commits_complete = true;
    world.restart();
    assert_eq!(world.map().to_bytes(), before);
    world.check();
    let client = world.connect(ADMIN);
    assert_eq!(world.ask(client, CREATE).map(|ack| ack.result), Some(0));
    let after = world.map().to_bytes();
    world.restart();
    assert_eq!(world.map().to_bytes(), after);
    assert_eq!(world.map().pool_by_name("p"), Some(1));
    world.check();
    // A client that missed the reply asks again.
    let client = world.connect(ADMIN);
    assert_eq!(world.ask(client, CREATE).map(|ack| ack.result), Some(0));
    assert_eq!(world.map().to_bytes(), after);
}

#[test]
fn changes_that_arrive_during_a_commit_share_the_next_epoch() {
    let mut world = World::new(3);
    let sessions: Vec<_> = (0..3).map(|osd| world.connect(&format!("osd.{osd}"))).collect();
    let epoch = world.map().epoch;
    world.commits_complete = false;
    world.boot(sessions[0], 0, 0);
    world.boot(sessions[1], 1, 0);
    world.boot(sessions[2], 2, 0);
    assert_eq!(world.mon.state().osd.map().epoch, epoch + 1);
    assert_eq!(world.mon.state().osd.next_epoch(), epoch + 2);
    world.commits_complete = true;
    world.restart();
    assert_eq!(world.map().epoch, epoch, "the commit was lost");
}

#[test]
fn instance_numbers_never_repeat() {
    let mut world = World::new(1);
    let id = |world: &World, session| world.mon.identity_of(session).expect("a session").global_id;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        for _ in 0..5 {
            let session = world.connect(ADMIN);
            assert!(seen.insert(id(&world, session)));
        }
        world.restart();
    }
}

#[test]
fn options_keys_mutes_and_the_log_survive() {
    let mut world = World::new(1);
    world.boot_all(1);
    let state = &mut world.mon.state;
    let who = crate::config::Who::parse("osd/class:ssd").expect("a section");
    state.config.set(&who, "osd_max_backfills", "3", false).expect("a valid value");
    state.config_keys.set("a/b", "secret".into());
    let mute = crate::health::Mute { until: None, sticky: true, summary: "x".to_owned(), count: 1 };
    state.health.mute("OSD_DOWN", mute);
    world.settle();
    let log: Vec<String> = world.mon.state().log.entries().map(|entry| entry.message.clone()).collect();
    world.restart();
    let state = world.mon.state();
    let options = state.options_of(&super::name("osd.0"));
    assert_eq!(options.get("osd_max_backfills").map(String::as_str), Some("3"));
    assert_eq!(state.config_keys.value("a/b").map(|value| &value[..]), Some(&b"secret"[..]));
    assert!(state.health.mutes().contains_key("OSD_DOWN"));
    let after: Vec<String> = state.log.entries().map(|entry| entry.message.clone()).collect();
    assert_eq!(after.get(..log.len()), Some(&log[..]));
    assert_eq!(
        state.osd.metadata(0).and_then(|about| about.get("hostname")).map(String::as_str),
        Some("host0")
    );
}

/// Another monitor may lead by now and have changed what is read here.
#[test]
fn a_read_leaves_when_it_is_confirmed_that_nobody_else_leads() {
    use crate::event::{Effect, Event};
    let mut world = World::new(3);
    world.boot_all(3);
    let (client, other) = (world.connect(ADMIN), world.connect(ADMIN));
    world.commits_complete = false;
    for session in [client, other] {
        assert_eq!(world.ask(session, r#"{"prefix":"osd dump"}"#), None);
    }
    let mut effects = Vec::new();
    world.mon.drain(&mut effects);
    assert!(effects.is_empty(), "one question at a time: {effects:?}");
    // The first question was asked for the first client alone.
    let token = world.waiting.take().expect("a question");
    world.mon.handle(world.now, world.wall, &mut world.entropy, Event::Confirmed(token));
    world.mon.drain(&mut effects);
    let [Effect::Send { session, .. }, Effect::Confirm { token }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(*session, client);
    world.mon.handle(world.now, world.wall, &mut world.entropy, Event::Confirmed(*token));
    effects.clear();
    world.mon.drain(&mut effects);
    let [Effect::Send { session, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*session, other);
}

#[test]
fn a_read_during_a_commit_is_confirmed_by_what_follows() {
    use crate::event::{Effect, Event};
    let mut world = World::new(3);
    world.boot_all(3);
    let (writer, reader) = (world.connect(ADMIN), world.connect(ADMIN));
    world.commits_complete = false;
    assert_eq!(world.ask(writer, CREATE), None);
    assert_eq!(world.ask(reader, r#"{"prefix":"osd dump"}"#), None);
    let token = world.waiting.take().expect("a commit");
    world.mon.handle(world.now, world.wall, &mut world.entropy, Event::Committed(token));
    let mut effects = Vec::new();
    world.mon.drain(&mut effects);
    let to = |effects: &[Effect], to| {
        effects.iter().any(|effect| matches!(effect, Effect::Send { session, .. } if *session == to))
    };
    assert!(to(&effects, writer) && !to(&effects, reader), "{effects:?}");
    let Some(Effect::Confirm { token }) = effects.pop() else { panic!("{effects:?}") };
    world.mon.handle(world.now, world.wall, &mut world.entropy, Event::Confirmed(token));
    world.mon.drain(&mut effects);
    assert!(to(&effects, reader), "{effects:?}");
}
