//! Erasure-code profiles, and by which code pools are coded that have one.

use super::{ADMIN, World};
use crate::event::SessionId;
use nacre_ec::{Technique, is_marked};
use nacre_maps::{Pool, PoolKind};
use nacre_msg::peer::PeerVersions;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_msg::{OsdBoot, OsdPgCreated, PgStats};
use nacre_types::{Errno, PgId};
use std::time::Duration;

/// What a command answers: its code and what it says.
fn answer(world: &mut World, admin: SessionId, json: &str) -> (i32, String) {
    let ack = world.ask(admin, json).expect("an answer");
    (ack.result, ack.status)
}

fn set(world: &mut World, admin: SessionId, name: &str, words: &str, force: bool) -> (i32, String) {
    let words: Vec<String> = words.split(' ').map(|word| format!("\"{word}\"")).collect();
    let words = words.join(",");
    let json = format!(
        r#"{{"prefix":"osd erasure-code-profile set","name":"{name}","profile":[{words}],"force":{force}}}"#
    );
    answer(world, admin, &json)
}

fn create(world: &mut World, admin: SessionId, pool: &str, profile: &str) -> (i32, String) {
    let json = format!(
        r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8,"pool_type":"erasure","erasure_code_profile":"{profile}"}}"#
    );
    answer(world, admin, &json)
}

/// What the chunks of a pool are, and how long its stripes.
fn code(world: &World, name: &str) -> (Technique, u8, u32) {
    let map = world.map();
    let pool = map.pool_by_name(name).and_then(|id| map.pool(id)).expect("the pool");
    let code = map.code_of(pool).expect("a code");
    assert_eq!(code.size(), pool.size);
    (code.technique(), code.k(), pool.stripe_width)
}

fn refused(answer: (i32, String), errno: Errno, why: &str) {
    assert!(answer.0 == errno.negated() && answer.1.contains(why), "{answer:?}, not {why}");
}

#[test]
fn a_profile_says_by_which_code_its_pools_are_coded() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    let packets = Technique::JerasureCauchyGood { packet_bytes: 2048 };
    for (name, words, found) in [
        ("a", "k=4 m=2", (Technique::JerasureReedSolVan, 4, 16384)),
        ("b", "plugin=isa", (Technique::IsaReedSolVan, 7, 7 * 4096)),
        ("c", "plugin=isa technique=cauchy k=4 m=2 stripe_unit=16K", (Technique::IsaCauchy, 4, 65536)),
        ("d", "technique=cauchy_good k=2 m=2", (packets, 2, 2 * 65536)),
    ] {
        assert_eq!(set(&mut world, admin, name, words, false), (0, String::new()), "{words}");
        assert_eq!(set(&mut world, admin, name, words, false), (0, String::new()), "once more");
        assert_eq!(create(&mut world, admin, name, name).0, 0, "{words}");
        assert_eq!(code(&world, name), found, "{words}");
    }
    let shown = &world.map().erasure_code_profiles["d"];
    let pairs: Vec<String> = shown.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        pairs.join(" "),
        "crush-device-class= crush-failure-domain=host crush-root=default jerasure-per-chunk-alignment=false k=2 m=2 \
         nacre-parity=ceph packetsize=2048 plugin=jerasure technique=cauchy_good w=8"
    );
    assert!(!world.map().erasure_code_profiles["b"].contains_key("w"), "which is jerasure's");
    let mut again = |words: &str, force| set(&mut world, admin, "a", words, force);
    refused(again("k=4 m=3", false), Errno::EPERM, "will not override");
    for words in ["k=4 m=3", "k=4 m=2 plugin=isa", "k=4 m=2 technique=cauchy_good", "k=4 m=2 stripe_unit=8K"]
    {
        refused(again(words, true), Errno::EBUSY, "pool 'a' is coded as erasure code profile a says");
    }
    assert_eq!(again("k=4 m=2 crush-failure-domain=osd", true), (0, String::new()));
    assert_eq!(code(&world, "a"), (Technique::JerasureReedSolVan, 4, 16384));
    world.check();
}

#[test]
fn what_no_code_is_made_of_is_refused() {
    let mut world = World::new(3);
    world.boot_all(1);
    let admin = world.connect(ADMIN);
    for (words, why) in [
        ("k=22 m=4 plugin=isa", "cannot recover from every loss"),
        ("k=2 m=2 technique=liberation", "plugin jerasure has"),
        ("k=2 m=1 mapping=_DD", "mapping is not supported in an erasure code profile"),
        ("k=2 m=1 packetsize=2048", "packetsize means nothing"),
        ("k=2 m=1 stripe_unit=32", "should be a multiple of 4096"),
        ("k=2 m=1 stripe_unit=33", "Would be padded to 64"),
    ] {
        refused(set(&mut world, admin, "p", words, false), Errno::EINVAL, why);
    }
    assert_eq!(set(&mut world, admin, "p", "k=2 m=1 stripe_unit=32", true), (0, String::new()));
    assert_eq!(create(&mut world, admin, "p", "p").0, 0);
    assert_eq!(code(&world, "p"), (Technique::JerasureReedSolVan, 2, 64));
}

/// The profile `old` has pools already, `spare` none; both lack the key, for an older program wrote them.
#[test]
fn pools_of_an_older_program_keep_its_code() {
    let mut world = World::new(3);
    world.boot_all(3);
    let admin = world.connect(ADMIN);
    for name in ["old", "spare"] {
        assert_eq!(set(&mut world, admin, name, "k=2 m=2", false).0, 0);
    }
    let unmarked = |world: &World, name: &str| {
        let mut profile = world.map().erasure_code_profiles[name].clone();
        profile.remove(nacre_ec::PARITY_KEY);
        profile
    };
    assert_eq!(create(&mut world, admin, "first", "old").0, 0);
    let profiles = ["old", "spare"].map(|name| (name.to_owned(), unmarked(&world, name)));
    world.mon.state.osd.change().new_erasure_code_profiles.extend(profiles);
    world.settle();
    assert_eq!(code(&world, "first"), (Technique::Own, 2, 8192));
    assert_eq!(create(&mut world, admin, "second", "old").0, 0);
    assert_eq!(create(&mut world, admin, "third", "spare").0, 0);
    assert_eq!(code(&world, "first"), (Technique::Own, 2, 8192));
    assert_eq!(
        code(&world, "second"),
        (Technique::Own, 2, 8192),
        "like the one that has the profile already"
    );
    assert_eq!(code(&world, "third"), (Technique::JerasureReedSolVan, 2, 8192));
    let is_ours = |world: &World, name: &str| is_marked(&world.map().erasure_code_profiles[name]);
    assert!(!is_ours(&world, "old") && is_ours(&world, "spare"));
    for force in [false, true] {
        assert_eq!(set(&mut world, admin, "old", "k=2 m=2", force), (0, String::new()), "as it is");
    }
    assert_eq!(set(&mut world, admin, "old", "k=2 m=2 crush-failure-domain=osd", true), (0, String::new()));
    assert_eq!(code(&world, "first"), (Technique::Own, 2, 8192));
    assert!(!is_ours(&world, "old"));
    let kind = PoolKind::Erasure;
    let without = Pool { kind, size: 4, stripe_width: 8192, ..Pool::default() };
    assert_eq!(world.map().code_of(&without).map(|code| code.technique()), Some(Technique::Own));
    world.check();
}

#[test]
fn osds_that_do_not_know_the_codes_and_pools_that_have_them_keep_apart() {
    let mut world = World::new(2);
    world.boot_all(1);
    let older = |boot: OsdBoot| {
        let mut metadata = boot.metadata;
        metadata.insert(PeerVersions::METADATA_KEY.to_owned(), "5-5".to_owned());
        OsdBoot { metadata, ..boot }
    };
    let (admin, second) = (world.connect(ADMIN), world.connect("osd.1"));
    world.boot_as(second, 1, 0, older);
    assert!(world.map().is_up(1));
    assert_eq!(set(&mut world, admin, "p", "k=2 m=2", false).0, 0);
    refused(create(&mut world, admin, "ec", "p"), Errno::EPERM, "osd.1 is up and runs a program");
    assert!(world.map().pool_by_name("ec").is_none());
    let down = answer(&mut world, admin, r#"{"prefix":"osd down","ids":["1"]}"#);
    assert_eq!(down.0, 0);
    assert_eq!(create(&mut world, admin, "ec", "p").0, 0);
    let second = world.connect("osd.1");
    world.boot_as(second, 1, 1, older);
    assert!(!world.map().is_up(1) && world.logged("which it does not know; upgrade it"));
    world.boot_as(second, 1, 2, |boot| boot);
    assert!(world.map().is_up(1));
}

#[test]
fn coded_pgs_are_merged_when_all_osds_can_have_them_and_no_older_one_boots_then() {
    let mut world = World::new(4);
    world.boot_all(3);
    let (admin, old, leader) = (world.connect(ADMIN), world.connect("osd.3"), world.connect("osd.0"));
    let older = |boot: OsdBoot| {
        let mut metadata = boot.metadata;
        metadata.insert(PeerVersions::METADATA_KEY.to_owned(), "5-6".to_owned());
        OsdBoot { metadata, ..boot }
    };
    let numbers = |world: &World| (world.map().pools[&1].pg_num, world.map().pools[&1].pg_num_pending);
    assert_eq!(set(&mut world, admin, "p", "k=2 m=1 crush-failure-domain=osd", false).0, 0);
    assert_eq!(create(&mut world, admin, "ec", "p").0, 0);
    world.boot_as(old, 3, 0, older);
    assert!(world.map().is_up(3), "nothing was merged yet");
    let lower = r#"{"prefix":"osd pool set","pool":"ec","var":"pg_num","val":"7"}"#;
    refused(answer(&mut world, admin, lower), Errno::EOPNOTSUPP, "osd.3 is of a version that cannot merge");
    for command in ["down", "out"] {
        assert_eq!(answer(&mut world, admin, &format!(r#"{{"prefix":"osd {command}","ids":["3"]}}"#)).0, 0);
    }
    for seed in 0..8 {
        world.message(leader, 0, OsdPgCreated { version: 0, pg: PgId::new(1, seed) });
    }
    assert_eq!(answer(&mut world, admin, lower).0, 0);
    world.pass(Duration::from_secs(2));
    let mut stats = PgStats { fsid: world.mon.fsid(), ..PgStats::default() };
    for pg in (0..8).map(|seed| PgId::new(1, seed)) {
        let placed = world.map().pg_to_up_acting(pg);
        let (state, reported_epoch) = (pg_state::ACTIVE | pg_state::CLEAN, world.map().epoch);
        let (acting, acting_primary) = (placed.acting, placed.acting_primary);
        stats
            .pg_stat
            .insert(pg, PgStat { state, reported_epoch, acting, acting_primary, ..PgStat::default() });
    }
    world.message(leader, 0, stats);
    world.pass(Duration::from_secs(2));
    assert_eq!(numbers(&world), (8, 7), "the two PGs stand still");
    let again = world.connect("osd.3");
    world.boot_as(again, 3, 1, older);
    assert!(!world.map().is_up(3) && world.logged("PGs of an erasure-coded pool were merged"));
    world.boot_as(again, 3, 2, |boot| boot);
    assert!(world.map().is_up(3));
}
