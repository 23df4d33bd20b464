//! Recovery snapshots: which OSD gets one when, and the key that opens them.

use super::{ADMIN, World, name};
use crate::event::SessionId;
use crate::recovery::{SNAPSHOT_BYTES_MAX, SealedSnapshot};
use nacre_auth::RecoveryKey;
use nacre_msg::{Message, RecoverySnapshotPart};
use nacre_types::OsdId;
use std::time::Duration;

const ROTATE: &str = r#"{"prefix":"mon recovery-key rotate"}"#;
const STATUS: &str = r#"{"prefix":"mon recovery-status","format":"json"}"#;

impl World {
    /// Makes a recovery key, and lets the second of its making pass.
    fn make_key(&mut self, admin: SessionId) -> RecoveryKey {
        let ack = self.ask(admin, ROTATE).expect("an answer");
        assert_eq!(ack.result, 0, "{}", ack.status);
        let text = String::from_utf8(ack.data.to_bytes().to_vec()).expect("text");
        self.pass(Duration::from_secs(1));
        RecoveryKey::parse(&text).expect("a key")
    }

    /// The parts that a session was sent.
    fn parts(&mut self, session: SessionId) -> Vec<RecoverySnapshotPart> {
        let part =
            |message| if let Message::RecoverySnapshotPart(part) = message { Some(part) } else { None };
        self.take(session).into_iter().filter_map(part).collect()
    }

    /// The snapshot that a session was sent, whole; the OSD says so as ours do.
    fn keep_snapshot(&mut self, session: SessionId) -> Option<SealedSnapshot> {
        let parts = self.parts(session);
        let last = parts.last()?;
        assert_eq!((last.index + 1, parts.len() as u32), (last.count, last.count), "all parts, in order");
        let start = last.made + 1;
        let bytes = parts.iter().flat_map(|part| part.bytes.to_bytes().to_vec()).collect::<Vec<_>>();
        self.subscribe(session, RecoverySnapshotPart::TOPIC, start, false);
        Some(SealedSnapshot::parse(bytes.into()).expect("a snapshot"))
    }

    fn up_and_subscribed(&mut self, osds: OsdId) -> Vec<SessionId> {
        let sessions = self.boot_all(osds);
        for session in &sessions {
            self.subscribe(*session, RecoverySnapshotPart::TOPIC, 0, false);
        }
        sessions
    }

    fn renew(&mut self, who: &str) {
        self.add_client(who, "allow r", "allow r");
    }
}

#[test]
fn each_osd_gets_one_at_once_and_later_only_after_a_change_and_not_too_often() {
    let mut world = World::new(3);
    let admin = world.connect(ADMIN);
    let osds = world.up_and_subscribed(3);
    world.pass(Duration::from_secs(30));
    assert!(osds.iter().all(|osd| world.parts(*osd).is_empty()), "without a key there is nothing to keep");
    let key = world.make_key(admin);
    world.pass(Duration::from_secs(2));
    for osd in &osds {
        let snapshot = world.keep_snapshot(*osd).expect("at once");
        assert!(snapshot.open(&key).is_ok());
    }
    assert_eq!(world.snapshots, 1, "one serves them all");
    // A change waits until the one before is ten minutes old.
    world.renew("client.late");
    world.pass(Duration::from_secs(500));
    assert!(osds.iter().all(|osd| world.parts(*osd).is_empty()));
    world.pass(Duration::from_secs(120));
    assert!(osds.iter().all(|osd| world.keep_snapshot(*osd).is_some()));
    assert_eq!(world.snapshots, 2);
}

#[test]
fn an_osd_that_does_not_say_that_it_has_it_is_not_flooded() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let osd = world.up_and_subscribed(1)[0];
    world.make_key(admin);
    world.pass(Duration::from_secs(300));
    let parts = world.parts(osd).len();
    assert_eq!(parts, 1, "a small cluster's fits one part");
    world.pass(Duration::from_secs(400));
    assert_eq!(world.parts(osd).len(), 1, "again after ten minutes");
}

#[test]
fn a_new_key_replaces_what_is_sealed_with_the_old_one() {
    let mut world = World::new(2);
    let admin = world.connect(ADMIN);
    let osds = world.up_and_subscribed(2);
    let old = world.make_key(admin);
    let before = world.keep_snapshot(osds[0]).expect("at once");
    world.keep_snapshot(osds[1]).expect("at once");
    let new = world.make_key(admin);
    assert_ne!(old, new);
    world.pass(Duration::from_secs(2));
    let after = world.keep_snapshot(osds[0]).expect("at once, although the last is young");
    assert!(before.open(&old).is_ok() && after.open(&new).is_ok() && after.open(&old).is_err());
    world.keep_snapshot(osds[1]).expect("at once");
    world.pass(Duration::from_secs(5));
    assert!(osds.iter().all(|osd| world.parts(*osd).is_empty()), "once");
    world.restart();
    assert_eq!(world.mon.state().recovery.key().map(|dated| &dated.key), Some(&new), "it is durable");
}

#[test]
fn only_osds_that_are_up_and_want_one_get_one() {
    let mut world = World::new(3);
    let admin = world.connect(ADMIN);
    let up = world.connect("osd.0");
    world.boot(up, 0, 0);
    let not_booted = world.connect("osd.1");
    world.subscribe(not_booted, RecoverySnapshotPart::TOPIC, 0, false);
    world.subscribe(admin, RecoverySnapshotPart::TOPIC, 0, false);
    world.make_key(admin);
    world.pass(Duration::from_secs(20));
    assert!([up, not_booted, admin].iter().all(|session| world.parts(*session).is_empty()));
    world.subscribe(up, RecoverySnapshotPart::TOPIC, 0, false);
    world.pass(Duration::from_secs(2));
    assert!(world.keep_snapshot(up).is_some());
}

#[test]
fn a_new_leader_takes_the_osds_word_for_what_they_have() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let osd = world.up_and_subscribed(1)[0];
    world.make_key(admin);
    world.pass(Duration::from_secs(1));
    let made = u64::from(world.keep_snapshot(osd).expect("at once").made.sec);
    world.restart();
    let osd = world.connect("osd.0");
    world.subscribe(osd, RecoverySnapshotPart::TOPIC, made + 1, false);
    world.pass(Duration::from_secs(400));
    assert!(world.parts(osd).is_empty(), "it is young");
    world.pass(Duration::from_secs(300));
    assert!(world.keep_snapshot(osd).is_some(), "what changed before this leader, nobody knows");
}

#[test]
fn a_large_snapshot_goes_in_parts_over_some_seconds() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let osd = world.up_and_subscribed(1)[0];
    let mut batch = crate::batch::Batch::default();
    for n in 0..3 {
        batch.put("config-key", format!("{n}"), vec![n; 3 << 20]);
    }
    world.kv.apply(&batch);
    let key = world.make_key(admin);
    let first = world.parts(osd);
    assert_eq!(first.len(), 32, "4 MiB in one second");
    world.pass(Duration::from_secs(1));
    let second = world.parts(osd);
    world.pass(Duration::from_secs(1));
    let parts: Vec<_> = [first, second, world.parts(osd)].concat();
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes.to_bytes().to_vec()).collect();
    assert_eq!(parts.last().map(|part| part.index + 1), Some(parts[0].count));
    assert!(SealedSnapshot::parse(bytes.into()).expect("whole").open(&key).is_ok());
}

#[test]
fn the_key_needs_every_right_and_is_not_written_down_elsewhere() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    world.add_client("client.reader", "allow rw", "allow *");
    let reader = world.connect("client.reader");
    assert_eq!(world.ask(reader, ROTATE).expect("an answer").result, -13);
    let osd = world.up_and_subscribed(1)[0];
    assert_eq!(world.ask(osd, ROTATE).expect("an answer").result, -13);
    let text = world.make_key(admin).to_text();
    assert!(world.logged("recovery-key rotate"), "that it was made is written down");
    assert!(!world.logged(&text));
    let dump = format!("{:?}", world.kv);
    assert!(!dump.contains(&text), "not with the answers, either");
    let status = world.ask(admin, STATUS).expect("an answer");
    let status = String::from_utf8_lossy(&status.data.to_bytes()).into_owned();
    assert!(status.contains("\"snapshot_made\":\"\"") && !status.contains(&text), "{status}");
    world.pass(Duration::from_secs(1));
    world.keep_snapshot(osd).expect("at once");
    let status = world.ask(admin, STATUS).expect("an answer");
    let status = String::from_utf8_lossy(&status.data.to_bytes()).into_owned();
    assert!(status.contains("\"snapshot_made\":\"2023-"), "{status}");
    assert!(world.mon.state().auth.keys().entity(&name(ADMIN)).is_some());
}

/// Lines of `health detail` from a check's code on.
fn health_of(world: &mut World, admin: SessionId, code: &str) -> String {
    let ack = world.ask(admin, r#"{"prefix":"health","detail":"detail"}"#).expect("an answer");
    let text = String::from_utf8(ack.data.to_bytes().to_vec()).expect("text");
    text.split_once(&format!("] {code}: ")).map_or_else(String::new, |(_, rest)| rest.to_owned())
}

#[test]
fn tables_that_are_too_large_for_a_snapshot_show_in_health_until_they_are_small_again() {
    let mut world = World::new(1);
    let admin = world.connect(ADMIN);
    let osd = world.up_and_subscribed(1)[0];
    let key = |n: u32| format!("large/{n}");
    let mut batch = crate::batch::Batch::default();
    (0..3).for_each(|n| batch.put("config-key", key(n), vec![7; SNAPSHOT_BYTES_MAX / 3]));
    world.kv.apply(&batch);
    let recovery_key = world.make_key(admin);
    world.pass(Duration::from_secs(5));
    assert!(world.parts(osd).is_empty());
    let said = health_of(&mut world, admin, "MON_RECOVERY_SNAPSHOT");
    assert!(said.starts_with("no recovery snapshot can be made for OSDs to keep\n"), "{said}");
    assert!(said.contains("at most 67108864 are kept: see what is large in `ceph config-key ls`"), "{said}");
    let mut batch = crate::batch::Batch::default();
    batch.delete("config-key", key(0));
    world.kv.apply(&batch);
    world.pass(Duration::from_secs(601));
    assert_eq!(health_of(&mut world, admin, "MON_RECOVERY_SNAPSHOT"), "");
    world.pass(Duration::from_secs(20));
    assert!(world.keep_snapshot(osd).expect("by itself").open(&recovery_key).is_ok());
}
