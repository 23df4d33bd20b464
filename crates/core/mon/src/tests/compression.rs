//! Settings of pools for compression.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_maps::PoolOption;
use nacre_msg::OsdBoot;
use nacre_types::{Compression, Errno, OsdId};
use std::collections::BTreeMap;
use std::time::Duration;

const ALL: &str = "zstd lz4 snappy";

/// OSDs that can compress so; no text: they are of an older version.
fn world(said: &[Option<&str>]) -> (World, SessionId) {
    let mut world = World::new(OsdId::try_from(said.len()).expect("few"));
    (0..).zip(said).for_each(|(osd, said)| boot(&mut world, osd, 0, *said));
    let admin = world.connect(ADMIN);
    let made = world.ask(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    assert_eq!(made.map(|ack| ack.result), Some(0));
    (world, admin)
}

fn boot(world: &mut World, osd: OsdId, generation: u16, said: Option<&str>) {
    let session = world.connect(&format!("osd.{osd}"));
    let boot_epoch = if generation == 0 { 0 } else { world.map().epoch };
    world.boot_as(session, osd, generation, |mut boot| {
        let fact = said.map(|said| (Compression::METADATA_KEY.to_owned(), said.to_owned()));
        boot.metadata.extend(fact);
        boot.metadata.insert("nacre_version".to_owned(), "0.1.0".to_owned());
        OsdBoot { boot_epoch, ..boot }
    });
    world.pass(Duration::from_secs(2));
    assert!(world.map().is_up(osd));
}

fn set(world: &mut World, admin: SessionId, var: &str, value: &str) -> (i32, String) {
    let json = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{value}"}}"#);
    let ack = world.ask(admin, &json).expect("an answer");
    (ack.result, ack.status)
}

fn health(world: &mut World, admin: SessionId) -> String {
    world.pass(Duration::from_secs(2));
    let ack = world.ask(admin, r#"{"prefix":"health","detail":"detail"}"#).expect("an answer");
    String::from_utf8(ack.data.to_bytes().to_vec()).expect("text")
}

fn options(world: &World) -> BTreeMap<i32, PoolOption> {
    world.map().pools.values().next_back().expect("a pool").options.clone()
}

#[test]
fn settings_are_in_the_map_until_they_are_taken_back() {
    let (mut world, admin) = world(&[Some(ALL), Some(ALL)]);
    let before = options(&world);
    let text = |text: &str| PoolOption::Text(text.to_owned());
    for (var, value, key, expected) in [
        ("compression_mode", "aggressive", 6, text("aggressive")),
        ("compression_algorithm", "zstd", 7, text("zstd")),
        ("compression_required_ratio", "0.7", 8, PoolOption::Float(0.7)),
        ("compression_max_blob_size", "128K", 9, PoolOption::Int(131_072)),
        ("compression_min_blob_size", "16384", 10, PoolOption::Int(16_384)),
    ] {
        let (code, said) = set(&mut world, admin, var, value);
        assert_eq!((code, said.contains(var)), (0, true), "{said}");
        assert_eq!(options(&world).get(&key), Some(&expected), "{var}");
        let shown = format!(r#"{{"prefix":"osd pool get","pool":"p","var":"{var}"}}"#);
        let ack = world.ask(admin, &shown).expect("an answer");
        assert_eq!(ack.result, 0, "{var}: {}", ack.status);
    }
    for (var, value) in [
        ("compression_mode", "unset"),
        ("compression_algorithm", "unset"),
        ("compression_required_ratio", "0"),
        ("compression_max_blob_size", "unset"),
        ("compression_min_blob_size", "0"),
    ] {
        assert_eq!(set(&mut world, admin, var, value).0, 0, "{var}");
        let shown = format!(r#"{{"prefix":"osd pool get","pool":"p","var":"{var}"}}"#);
        let ack = world.ask(admin, &shown).expect("an answer");
        assert_eq!(ack.result, Errno::ENOENT.negated(), "{var}");
    }
    assert_eq!(options(&world), before);
}

#[test]
fn what_no_store_would_do_is_refused() {
    let (mut world, admin) = world(&[Some(ALL)]);
    let before = options(&world);
    let (bad, unsupported) = (Errno::EINVAL.negated(), Errno::EOPNOTSUPP.negated());
    for (var, value, expected) in [
        ("compression_mode", "often", bad),
        ("compression_mode", "0", bad),
        ("compression_algorithm", "zlib", unsupported),
        ("compression_algorithm", "brotli", unsupported),
        ("compression_algorithm", "random", unsupported),
        ("compression_algorithm", "none", unsupported),
        ("compression_algorithm", "rar", bad),
        ("compression_required_ratio", "-0.1", bad),
        ("compression_required_ratio", "1.1", bad),
        ("compression_required_ratio", "nan", bad),
        ("compression_required_ratio", "inf", bad),
        ("compression_required_ratio", "half", bad),
        ("compression_max_blob_size", "4096", bad),
        ("compression_max_blob_size", "65537", bad),
        ("compression_max_blob_size", "256K", bad),
        ("compression_max_blob_size", "-8192", bad),
        ("compression_max_blob_size", "18446744073709551615", bad),
        ("compression_min_blob_size", "100", bad),
        // The largest is 64 KiB where nothing is said.
        ("compression_min_blob_size", "128K", bad),
    ] {
        let (code, said) = set(&mut world, admin, var, value);
        assert_eq!(code, expected, "{var} {value}: {said}");
        assert!(said.contains(value) || said.contains(var) || said.contains("parsing"), "{said}");
    }
    assert_eq!(options(&world), before);
}

/// Nothing would be compressed any more, and nobody told.
#[test]
fn the_largest_blob_is_not_taken_back_below_the_smallest() {
    let (mut world, admin) = world(&[Some(ALL)]);
    for var in ["compression_max_blob_size", "compression_min_blob_size"] {
        assert_eq!(set(&mut world, admin, var, "128K").0, 0, "{var}");
    }
    let before = options(&world);
    for value in ["0", "unset"] {
        let (code, said) = set(&mut world, admin, "compression_max_blob_size", value);
        assert_eq!(code, Errno::EINVAL.negated(), "{value}");
        assert!(said.contains("nothing would be compressed"), "{said}");
    }
    assert_eq!(options(&world), before);
    for var in ["compression_min_blob_size", "compression_max_blob_size"] {
        assert_eq!(set(&mut world, admin, var, "unset").0, 0, "{var}");
    }
}

#[test]
fn all_osds_that_are_up_must_be_able_to() {
    let unsupported = Errno::EOPNOTSUPP.negated();
    let (mut world, admin) = world(&[Some(ALL), None]);
    for (var, value) in [("compression_mode", "force"), ("compression_required_ratio", "0.5")] {
        let (code, said) = set(&mut world, admin, var, value);
        assert_eq!(code, unsupported, "{var}");
        assert!(said.contains("osd.1 cannot compress"), "{said}");
    }
    for (var, value) in [("compression_mode", "none"), ("compression_mode", "unset")] {
        assert_eq!(set(&mut world, admin, var, value).0, 0, "what holds anyway: {value}");
    }
    world.ask(admin, r#"{"prefix":"osd down","ids":["1"]}"#);
    world.pass(Duration::from_secs(1));
    boot(&mut world, 1, 1, Some("lz4 snappy"));
    assert_eq!(set(&mut world, admin, "compression_mode", "force").0, 0);
    assert_eq!(set(&mut world, admin, "compression_algorithm", "lz4").0, 0);
    let (code, said) = set(&mut world, admin, "compression_algorithm", "zstd");
    assert_eq!(code, unsupported);
    assert!(said.contains("osd.1 cannot compress by zstd"), "{said}");
}

/// As during a downgrade, or when an OSD comes back that was away during an upgrade.
#[test]
fn an_osd_that_comes_up_and_cannot_is_a_health_check_until_it_can() {
    let (mut world, admin) = world(&[Some(ALL), Some(ALL)]);
    assert_eq!(set(&mut world, admin, "compression_mode", "aggressive").0, 0);
    assert_eq!(set(&mut world, admin, "compression_algorithm", "zstd").0, 0);
    let restart = |world: &mut World, generation, said| {
        world.ask(admin, r#"{"prefix":"osd down","ids":["1"]}"#);
        world.pass(Duration::from_secs(1));
        boot(world, 1, generation, said);
        health(world, admin)
    };
    let raised = |health: &str| health.contains("BLUESTORE_NO_COMPRESSION");
    assert!(!raised(&health(&mut world, admin)));
    for (generation, said) in [(1, None), (2, Some("lz4 snappy"))] {
        let health = restart(&mut world, generation, said);
        assert!(health.contains("1 OSD(s) have broken BlueStore compression"), "{health}");
        assert!(health.contains("osd.1 stores what it has of pool 'p' as it is"), "{health}");
    }
    assert_eq!(set(&mut world, admin, "compression_mode", "none").0, 0);
    assert!(!raised(&health(&mut world, admin)), "nothing is to be compressed");
    assert!(!raised(&restart(&mut world, 3, Some(ALL))));
    assert_eq!(set(&mut world, admin, "compression_mode", "aggressive").0, 0);
    assert!(!raised(&health(&mut world, admin)), "it can");
}
