//! Snapshots as bytes: what they hold, what opens them, what is made of them.

use super::tables::{TABLES, Use};
use super::*;
use crate::batch::MemorySnapshot;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::mon::Mon;
use crate::{RestoreError, restore};
use nacre_buf::Bytes;
use nacre_maps::OsdMap;
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AddrVec, AuthName, EntityAddr, EntityKind, Uuid};

const WALL: UTime = UTime { sec: 1_700_000_000, nsec: 0 };

fn addr(port: u16) -> AddrVec {
    AddrVec::of(EntityAddr::parse(&format!("v2:10.0.0.1:{port}/0")).expect("an address"))
}

/// The tables of a new cluster, its key, and the secret of `client.admin`.
fn cluster() -> (MemorySnapshot, RecoveryKey, [u8; 16]) {
    let mut entropy = SeededEntropy(3);
    let mons = vec![("a".to_owned(), addr(1)), ("b".to_owned(), addr(2)), ("c".to_owned(), addr(3))];
    let mut options = MkfsOptions::new(Uuid::from_random([7; 16]), mons, WALL, &mut entropy);
    let key = RecoveryKey::generate(&mut entropy);
    options.recovery_key = Some(key.clone());
    options.config.push(("global".to_owned(), "osd_pool_default_size".to_owned(), "2".to_owned()));
    let mut tables = MemorySnapshot::default();
    tables.apply(&mkfs(&options, WALL).expect("valid options"));
    (tables, key, *options.admin_key.secret())
}

fn take(tables: &MemorySnapshot) -> SealedSnapshot {
    let place = LogPlace { incarnation: 2, index: 40, term: 5 };
    take_snapshot(tables, place, WALL, &mut SeededEntropy(5)).expect("a cluster").expect("it has a key")
}

fn map_of(tables: &MemorySnapshot) -> OsdMap {
    Mon::open(tables, "a", WALL).expect("usable").state().osd.map().as_ref().clone()
}

#[test]
fn a_snapshot_opens_with_its_key_and_shows_nothing_without() {
    let (tables, key, secret) = cluster();
    let sealed = take(&tables);
    let has = |needle: &[u8]| sealed.bytes.windows(needle.len()).any(|window| window == needle);
    assert!(!has(&secret) && !has(key.secret()) && !has(b"client.admin"));
    let parsed = SealedSnapshot::parse(sealed.bytes.clone()).expect("our own");
    assert_eq!(parsed, sealed);
    let opened = parsed.open(&key).expect("its key");
    assert_eq!((opened.place.index, opened.made, opened.fsid), (40, WALL, Uuid::from_random([7; 16])));
    assert!(opened.tables.ops().iter().any(|op| op.key == "client.admin"));
    assert!(opened.tables.ops().iter().all(|op| op.prefix != TABLE), "the key is not in what it seals");
    let other = RecoveryKey::generate(&mut SeededEntropy(99));
    assert!(matches!(parsed.open(&other), Err(SnapshotError::OtherKey)));
}

/// Made by another program from `docs/formats/recovery-snapshot.md`: the key is the bytes 0 to 31, the content one value of an option.
const KNOWN: &[&str] = &[
    "4e4143524552435601000707070707070707070707070707070700f1536505000000ef8d210310e85f09",
    "6465666768696a6b6c6d6e6f",
    "351085ca98a57452fbde157ff289f09370c692349f50eeadc63ff6b2fa32cdf2eab9b2e0ae3a4a7399efcaed8bcc86ae",
    "adbc871d1f6b518531dd8afa2bce50f0124c3555dc6b39d3fc0f22dc0737be5a47f29e90",
];

#[test]
fn a_snapshot_of_another_program_opens() {
    let hex: Vec<u8> = KNOWN.concat().into_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("hexadecimal");
    let bytes: Vec<u8> = hex.chunks(2).map(byte).collect();
    let key = RecoveryKey::from_secret(std::array::from_fn(|at| u8::try_from(at).expect("small")));
    let opened = SealedSnapshot::parse(bytes.into()).expect("its head").open(&key).expect("its key");
    assert_eq!(opened.made, UTime { sec: 1_700_000_000, nsec: 5 });
    assert_eq!(opened.place, LogPlace { incarnation: 2, index: 40, term: 5 });
    let mut tables = MemorySnapshot::default();
    tables.apply(&opened.tables);
    assert_eq!(tables.get("config", "global/x"), Some(Bytes::from_static(b"1")));
}

#[test]
fn a_changed_or_cut_snapshot_is_refused() {
    let (tables, key, _) = cluster();
    let sealed = take(&tables).bytes;
    let open = |bytes: Vec<u8>| SealedSnapshot::parse(bytes.into()).and_then(|snapshot| snapshot.open(&key));
    for at in (0..sealed.len()).filter(|at| *at < 64 || at % 97 == 0) {
        let mut flipped = sealed.to_vec();
        flipped[at] ^= 1;
        assert!(open(flipped).is_err(), "byte {at}");
    }
    for length in (0..sealed.len()).filter(|length| *length < 80 || length % 97 == 0) {
        assert!(open(sealed[..length].to_vec()).is_err(), "{length} bytes");
    }
    let mut newer = sealed.to_vec();
    newer[8] = 2;
    assert!(matches!(SealedSnapshot::parse(newer.into()), Err(SnapshotError::Version(2))));
    assert!(open(sealed.to_vec()).is_ok());
}

#[test]
fn there_is_none_without_a_key() {
    let (mut tables, _, _) = cluster();
    let mut batch = Batch::default();
    batch.delete(TABLE, KEY);
    tables.apply(&batch);
    let taken = take_snapshot(&tables, LogPlace::default(), WALL, &mut SeededEntropy(5));
    assert!(taken.expect("a cluster").is_none());
    let empty = take_snapshot(&MemorySnapshot::default(), LogPlace::default(), WALL, &mut SeededEntropy(5));
    assert!(empty.expect("nothing to do").is_none());
}

#[test]
fn tables_that_are_too_large_make_none() {
    let (mut tables, _, _) = cluster();
    let mut batch = Batch::default();
    for n in 0..17 {
        batch.put("config-key", format!("{n}"), vec![0; 4 << 20]);
    }
    tables.apply(&batch);
    let taken = take_snapshot(&tables, LogPlace::default(), WALL, &mut SeededEntropy(5));
    assert!(matches!(taken, Err(SnapshotError::TooLong(bytes)) if bytes > SNAPSHOT_BYTES_MAX));
}

#[test]
fn a_monitor_begins_with_what_is_restored() {
    let (tables, key, secret) = cluster();
    let opened = take(&tables).open(&key).expect("its key");
    let restored = restore(&opened, &key, None, ("b", addr(9)), WALL).expect("usable");
    let mut anew = MemorySnapshot::default();
    anew.apply(&restored.tables);
    let mon = Mon::open(&anew, "b", WALL).expect("a cluster");
    let state = mon.state();
    assert_eq!(state.mon.map().ranks, ["b"]);
    assert_eq!(state.mon.map().mons["b"].addrs, addr(9));
    assert_eq!((state.mon.members().incarnation(), restored.id), (1, 4), "monitors of before are none of it");
    let admin = AuthName::new(EntityKind::CLIENT, "admin");
    assert_eq!(state.auth.keys().entity(&admin).map(|auth| *auth.key.secret()), Some(secret));
    assert_eq!(state.recovery.key().map(|dated| &dated.key), Some(&key));
    assert_eq!(state.osd.map().as_ref(), &map_of(&tables));
    assert_eq!(restored.osdmap, map_of(&tables).epoch);
    let option = state.config.effective(&crate::config::Target {
        name: &admin,
        device_class: None,
        location: &BTreeMap::new(),
    });
    assert_eq!(option.get("osd_pool_default_size").map(|(_, value)| *value), Some("2"));
}

#[test]
fn the_newest_map_counts_wherever_it_is() {
    let (tables, key, _) = cluster();
    let mut creating = Batch::default();
    creating.put("osd-creating", "1", Bytes::from_static(&[1, 1, 0, 0, 0, 0]));
    let opened = take(&tables).open(&key).expect("its key");
    let own = map_of(&tables);
    let at = |epoch| OsdMap { epoch, ..own.clone() };
    let epoch_of = |newest: &OsdMap| {
        let restored = restore(&opened, &key, Some(newest), ("a", addr(1)), WALL).expect("usable");
        let mut anew = MemorySnapshot::default();
        anew.apply(&restored.tables);
        assert_eq!(map_of(&anew).epoch, restored.osdmap);
        assert_eq!(anew.scan("osdmap-full").len(), 1, "one map, and no history");
        restored.osdmap
    };
    assert_eq!(epoch_of(&at(own.epoch + 70)), own.epoch + 70);
    assert_eq!(epoch_of(&own), own.epoch);
    let other = OsdMap { fsid: Uuid::from_random([8; 16]), ..at(900) };
    let refused = restore(&opened, &key, Some(&other), ("a", addr(1)), WALL);
    assert!(matches!(refused, Err(RestoreError::OtherCluster { .. })));
}

#[test]
fn epochs_and_ids_that_only_the_lost_monitors_knew_are_left_behind() {
    let (mut tables, key, _) = cluster();
    let mut mon = Mon::open(&tables, "a", WALL).expect("usable");
    mon.lead(addr(1), addr(2), nacre_types::Stamp(1), WALL, &mut SeededEntropy(4));
    let mut effects = Vec::new();
    mon.drain(&mut effects);
    for effect in effects {
        if let crate::Effect::Commit { batch, .. } = effect {
            tables.apply(&batch);
        }
    }
    let (epoch, ids) = (mon.state().mgr.map().epoch, mon.state.auth.grant_ids());
    let opened = take(&tables).open(&key).expect("its key");
    let restored = restore(&opened, &key, None, ("a", addr(1)), WALL).expect("usable");
    let mut anew = MemorySnapshot::default();
    anew.apply(&restored.tables);
    let mut mon = Mon::open(&anew, "a", WALL).expect("a cluster");
    assert!(mon.state().mgr.map().epoch >= epoch + 1000);
    assert!(mon.state.auth.grant_ids().start > ids.end + 1_000_000);
}

#[test]
fn a_change_of_what_is_kept_is_news_and_of_the_rest_is_not() {
    let news = |table, key| {
        let mut batch = Batch::default();
        batch.put(table, key, "");
        concerns(&batch)
    };
    assert!(news("auth-entity", "client.a") && news("config", "global/x") && news("auth", "rotating"));
    assert!(!news("osdmap-full", "1") && !news("log", "1") && !news("auth", "global_id_end"));
    assert!(!news("answers", "1") && !news("a table of a later program", "1"));
    assert_eq!(TABLES.iter().filter(|(_, usage)| *usage == Use::Kept).count(), 12);
}
