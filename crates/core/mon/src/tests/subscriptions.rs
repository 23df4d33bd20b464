//! Which session is sent which map, and when.

use super::{ADMIN, World};
use nacre_msg::{Message, MonGetMap, MonGetVersion};
use nacre_types::Epoch;

fn osdmap(messages: &[Message]) -> Option<&nacre_msg::MOsdMap> {
    messages.iter().find_map(|message| match message {
        Message::MOsdMap(map) => Some(map),
        _ => None,
    })
}

#[test]
fn the_prologue_of_every_client_is_answered() {
    let mut world = World::new(1);
    let client = world.connect(ADMIN);
    world.message(client, 0, MonGetMap);
    world.subscribe(client, "config", 0, false);
    world.subscribe(client, "monmap", 0, false);
    world.subscribe(client, "mgrmap", 0, false);
    let kinds: Vec<&str> = world.take(client).iter().map(Message::name).collect();
    assert_eq!(kinds, ["MMonMap", "Config", "MMonMap", "MMgrMap"]);
}

#[test]
fn a_onetime_wish_is_met_once_a_standing_one_with_every_epoch() {
    let mut world = World::new(3);
    let (once, always) = (world.connect(ADMIN), world.connect(ADMIN));
    world.subscribe(once, "osdmap", 0, true);
    world.subscribe(always, "osdmap", 0, false);
    let epoch = world.map().epoch;
    for client in [once, always] {
        let messages = world.take(client);
        let map = osdmap(&messages).expect("a map");
        assert_eq!(map.full.keys().copied().collect::<Vec<Epoch>>(), [epoch]);
        assert!(map.incrementals.is_empty());
    }
    world.boot_all(2);
    assert!(world.take(once).is_empty());
    let messages = world.take(always);
    let epochs: Vec<Epoch> = messages
        .iter()
        .flat_map(|message| osdmap(std::slice::from_ref(message)).expect("only maps").incrementals.keys())
        .copied()
        .collect();
    assert_eq!(epochs, (epoch + 1..=world.map().epoch).collect::<Vec<_>>());
}

#[test]
fn a_wish_for_the_future_waits_and_one_for_the_past_gets_increments() {
    let mut world = World::new(3);
    let client = world.connect(ADMIN);
    let next = world.map().epoch + 1;
    world.subscribe(client, "osdmap", next.into(), true);
    assert!(world.take(client).is_empty());
    world.boot_all(3);
    let messages = world.take(client);
    let map = osdmap(&messages).expect("a map");
    assert!(map.full.is_empty());
    assert_eq!(map.incrementals.keys().next(), Some(&next));
    world.subscribe(client, "osdmap", 1, true);
    let messages = world.take(client);
    let map = osdmap(&messages).expect("a map");
    assert_eq!(map.full.keys().next(), Some(&1));
    assert_eq!(map.incrementals.len(), usize::try_from(world.map().epoch - 1).expect("few epochs"));
}

#[test]
fn options_follow_their_section() {
    let mut world = World::new(1);
    let (client, osd) = (world.connect(ADMIN), world.connect("osd.0"));
    world.subscribe(client, "config", 0, false);
    world.subscribe(osd, "config", 0, false);
    world.take(client);
    world.take(osd);
    let who = crate::config::Who::parse("osd").expect("a section");
    world.mon.state.config.set(&who, "osd_max_backfills", "3", false).expect("a valid value");
    world.event(crate::Event::Tick);
    assert!(world.take(client).is_empty());
    let messages = world.take(osd);
    let [Message::Config(config)] = &messages[..] else { panic!("options, not {messages:?}") };
    assert_eq!(config.config.get("osd_max_backfills").map(String::as_str), Some("3"));
}

#[test]
fn versions_are_told_and_the_log_is_followed() {
    let mut world = World::new(1);
    let client = world.connect(ADMIN);
    world.subscribe(client, "log-info", 0, false);
    world.take(client);
    world.boot_all(1);
    let lines: Vec<String> = world
        .take(client)
        .into_iter()
        .flat_map(|message| match message {
            Message::Log(log) => log.entries,
            other => panic!("log lines, not {other:?}"),
        })
        .map(|entry| entry.message)
        .collect();
    assert!(lines.iter().any(|line| line.starts_with("osd.0") && line.ends_with("boot")), "{lines:?}");
    world.message(client, 4, MonGetVersion { handle: 7, what: "osdmap".to_owned() });
    let messages = world.take(client);
    let [Message::MonGetVersionReply(reply)] = &messages[..] else { panic!("a version, not {messages:?}") };
    assert_eq!((reply.handle, reply.newest), (7, world.map().epoch.into()));
}

#[test]
fn the_log_is_followed_from_one_level_at_a_time() {
    let mut world = World::new(1);
    let client = world.connect(ADMIN);
    for level in ["log-info", "log-debug", "log-info"] {
        world.subscribe(client, level, 0, false);
        world.take(client);
    }
    world.boot_all(1);
    let is_log = |message: &Message| matches!(message, Message::Log(_));
    let boots = |message: &Message| match message {
        Message::Log(log) => log.entries.iter().filter(|entry| entry.message.ends_with("boot")).count(),
        _ => 0,
    };
    let messages = world.take(client);
    assert_eq!(messages.iter().map(boots).sum::<usize>(), 1, "each line comes once: {messages:?}");
    assert!(messages.iter().all(is_log), "{messages:?}");
}

#[test]
fn a_burst_of_the_log_is_followed_to_its_end() {
    let mut world = World::new(1);
    let client = world.connect(ADMIN);
    world.subscribe(client, "log-info", 0, false);
    world.take(client);
    let count = 2 * crate::budget::LOG_ENTRIES_PER_MESSAGE_MAX + 7;
    let wall = world.wall;
    (0..count).for_each(|n| world.mon.state.clog(nacre_msg::LogPriority::INFO, wall, format!("line {n}")));
    world.settle();
    let lines = |message: Message| if let Message::Log(log) = message { log.entries } else { Vec::new() };
    let lines: Vec<String> =
        world.take(client).into_iter().flat_map(lines).map(|entry| entry.message).collect();
    let wanted: Vec<String> = (0..count).map(|n| format!("line {n}")).collect();
    assert_eq!(lines, wanted);
}

#[test]
fn without_caps_there_are_no_maps() {
    let mut world = World::new(1);
    world.add_client("client.nobody", "allow service mon r", "");
    let client = world.connect("client.nobody");
    world.subscribe(client, "osdmap", 0, false);
    world.subscribe(client, "log-info", 0, false);
    assert!(world.take(client).is_empty());
    world.subscribe(client, "monmap", 0, false);
    assert_eq!(world.take(client).len(), 1);
}

#[test]
fn a_ping_is_answered_with_health() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    world.take(admin);
    world.message(admin, 7, nacre_msg::Ping::default());
    world.settle();
    let answers = world.take(admin);
    let is_answer =
        |message: &Message| matches!(message, Message::Ping(ping) if ping.answer.contains("health"));
    assert!(answers.iter().any(is_answer), "{answers:?}");
}
