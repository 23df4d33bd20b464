//! Bytes of real clusters (16.2.15) against our codecs.
//!
//! A `.chain` file is a list of (u32 length, bytes): a full OSD map, every incremental that followed, and the full
//! map at the end. Each incremental carries the checksum of the full map that it makes, so that applying the
//! whole list proves the bytes of every map in between.

use nacre_buf::Bytes;
use nacre_buf::crc::crc32c;
use nacre_crush::CrushMap;
use nacre_denc::{Decode, Encode, Reader};
use nacre_maps::{FsMap, Incremental, MgrMap, MonMap, OsdMap};
use nacre_types::{EntityAddr, PgId};
use std::path::PathBuf;

fn testdata(name: &str) -> Bytes {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../testdata/maps").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

fn round_trip<T: Decode + Encode>(bytes: &Bytes) -> T {
    let value = T::from_bytes(bytes.clone()).expect("real bytes decode");
    assert!(value.to_bytes() == *bytes, "re-encoded bytes differ");
    value
}

fn replay(name: &str) -> OsdMap {
    let mut r = Reader::new(testdata(name));
    let mut items = Vec::new();
    while !r.is_empty() {
        items.push(r.blob().expect("a whole chain"));
    }
    let last = items.pop().expect("a last full map");
    let mut items = items.iter();
    let mut map: OsdMap = round_trip(items.next().expect("a first full map"));
    for bytes in items {
        let inc: Incremental = round_trip(bytes);
        let before = map.clone();
        if let Err(error) = map.apply_verified(&inc) {
            panic!("{name}: epoch {}: {error}\n{inc:#?}\nbefore {before:#?}\nafter {map:#?}", inc.epoch);
        }
    }
    assert_eq!(map, round_trip(&last));
    map
}

#[test]
fn a_young_cluster_replays() {
    let map = replay("osdmap-three-osds.chain");
    assert_eq!((map.osd_count(), map.up_count(), map.in_count()), (3, 3, 3));
    assert_eq!(map.flag_names(), "sortbitwise,recovery_deletes,purged_snapdirs,pglog_hardlimit");
    assert!(map.pool_by_name("rbd").is_some());
}

#[test]
fn every_kind_of_change_replays() {
    let map = replay("osdmap-many-changes.chain");
    assert_eq!(map.max_osd(), 12);
}

/// Ranges added, added again with another end (the first holds), removed and cleared.
#[test]
fn ranges_of_blocklisted_addresses_replay() {
    let map = replay("osdmap-range-blocklist.chain");
    let ranges: Vec<String> = map.range_blocklist.keys().map(ToString::to_string).collect();
    assert_eq!(ranges, ["cidr:192.168.0.0:0/16", "cidr:10.77.3.1:0/17", "cidr:[2001:db8:1::]:0/48"]);
    let shut = |addr: &str| map.is_blocklisted(&EntityAddr::parse(addr).expect("an address"));
    assert!(shut("192.168.77.1:0/4711") && shut("v2:10.77.0.1:0/1") && shut("[2001:db8:1:2::3]:0/5"));
    assert!(!shut("192.169.0.1:0/4711") && !shut("10.77.128.1:0/1") && !shut("[2001:db8:2::3]:0/5"));
    assert!(shut("10.9.0.1:0/24") && !shut("10.9.0.2:0/24"), "a single address with a nonce is no range");
}

#[test]
fn crush_map_with_classes_and_weight_sets_round_trips() {
    let crush: CrushMap = round_trip(&testdata("crush-classes.bin"));
    assert!(!crush.class_buckets.is_empty() && !crush.choose_args.is_empty());
}

#[test]
fn monitor_map_round_trips() {
    let map: MonMap = round_trip(&testdata("monmap.bin"));
    assert_eq!(map.ranks, ["a"]);
    let addrs = map.mon(0).expect("one monitor").addrs.clone();
    let fresh = MonMap::fresh(map.fsid, map.created, &[("a".into(), addrs)]);
    assert_eq!(map, MonMap { last_changed: map.last_changed, ..fresh });
}

#[test]
fn manager_maps_round_trip() {
    let map: MgrMap = round_trip(&testdata("mgrmap-active.bin"));
    assert_eq!((map.active_name.as_str(), map.available), ("x", true));
    let _: MgrMap = round_trip(&testdata("mgrmap-empty.bin"));
}

#[test]
fn file_system_maps_round_trip() {
    let map: FsMap = round_trip(&testdata("fsmap-empty.bin"));
    assert_eq!(map, FsMap::empty(map.epoch));
    let map: FsMap = round_trip(&testdata("fsmap-one.bin"));
    assert_eq!(map.filesystems.len(), 1);
}

/// Two file systems, one of which has a server that follows a rank; and the same with a rank that has failed, servers in waiting and
/// one that replays a journal.
#[test]
fn metadata_servers_round_trip() {
    let map: FsMap = round_trip(&testdata("fsmap-followed.bin"));
    let states = |map: &FsMap| -> Vec<(String, i32, i32)> {
        map.servers().map(|info| (info.name.clone(), info.rank, info.state)).collect()
    };
    let shown = |name: &str, rank, state| (name.to_owned(), rank, state);
    assert_eq!(states(&map), [shown("b", 0, 13), shown("c", 0, -8), shown("a", 0, 13)]);
    let a = &map.by_name("a").expect("a file system").mds_map;
    assert_eq!(a.follower(0).map(|info| info.name.as_str()), Some("c"));
    let map: FsMap = round_trip(&testdata("fsmap-failed.bin"));
    let b = &map.by_name("b").expect("a file system").mds_map;
    assert!(b.failed.contains(&0) && b.is_degraded() && b.last_failure_osd_epoch > 0);
    assert_eq!(map.standby_daemons.len(), 2);
}

/// Cut or changed bytes give an error or some map, never a panic.
#[test]
fn damaged_bytes_do_not_panic() {
    let bytes = testdata("crush-classes.bin");
    for at in 0..bytes.len() {
        assert!(CrushMap::from_bytes(bytes.slice(..at)).is_err() || at > 200);
        let mut changed = bytes.to_vec();
        changed[at] ^= 0xff;
        if let Ok(crush) = CrushMap::from_bytes(changed.into()) {
            assert!(crush.do_rule(0, 7, 3, &[0x1_0000; 16], crush.choose_args_for(-1)).len() <= 3);
        }
    }
}

#[test]
fn every_kind_of_crush_change_replays() {
    let map = replay("osdmap-crush-changes.chain");
    assert!(!map.crush_node_flags.is_empty() && !map.device_class_flags.is_empty());
}

/// Our way of making shadow trees gives what the cluster made, ids included. Only the weight sets with several
/// positions differ: Ceph gives a shadow parent a weight at the last position alone.
#[test]
fn shadow_trees_are_rebuilt_as_they_were() {
    let crush: CrushMap = round_trip(&testdata("crush-classes.bin"));
    let mut rebuilt = crush.clone();
    rebuilt.rebuild_shadow_trees().expect("room for the same buckets");
    assert_eq!(rebuilt.choose_args.remove(&-1), crush.choose_args.get(&-1).cloned());
    rebuilt.choose_args.clone_from(&crush.choose_args);
    assert_eq!(rebuilt, crush);
}

/// Our first map has the bytes of the monitor's first map, but for the mark of profiles whose pools have the bytes of Ceph's plugins.
#[test]
fn a_fresh_map_is_the_one_of_a_real_monitor() {
    for (chain, failure_domain) in
        [("osdmap-three-osds.chain", "osd"), ("osdmap-crush-changes.chain", "host")]
    {
        let first = Reader::new(testdata(chain)).blob().expect("a first map");
        let mut map = OsdMap::from_bytes(first).expect("real bytes decode");
        let default = map.erasure_code_profiles.get_mut("default").expect("a real monitor has it, too");
        assert_eq!(default.insert("nacre-parity".to_owned(), "ceph".to_owned()), None);
        let fresh = OsdMap::fresh(map.fsid, map.created, failure_domain);
        assert_eq!(OsdMap { modified: map.modified, ..fresh }, map);
    }
}

/// Cut or changed OSD maps and incrementals give an error: their checksum covers everything.
#[test]
fn damaged_osd_maps_are_refused() {
    let mut r = Reader::new(testdata("osdmap-crush-changes.chain"));
    let (full, inc) = (r.blob().expect("a full map"), r.blob().expect("an incremental"));
    for at in 0..full.len() {
        let mut changed = full.to_vec();
        changed[at] ^= 0x41;
        assert!(OsdMap::from_bytes(changed.into()).is_err(), "byte {at}");
        assert!(OsdMap::from_bytes(full.slice(..at)).is_err());
    }
    for at in 0..inc.len() {
        let mut changed = inc.to_vec();
        changed[at] ^= 0x41;
        assert!(Incremental::from_bytes(changed.into()).is_err(), "byte {at}");
        assert!(Incremental::from_bytes(inc.slice(..at)).is_err());
    }
}

/// The same damage under a checksum that fits: an error or some map, placement included, never a panic.
#[test]
fn damaged_osd_maps_with_a_fitting_checksum_do_not_panic() {
    let mut r = Reader::new(testdata("osdmap-many-changes.chain"));
    let mut last = Bytes::new();
    while !r.is_empty() {
        last = r.blob().expect("a whole chain");
    }
    for at in 0..last.len() - 4 {
        let mut changed = last.to_vec();
        changed[at] ^= [0xff, 0x01, 0x80][at % 3];
        let (body, crc) = changed.split_at_mut(last.len() - 4);
        crc.copy_from_slice(&crc32c(u32::MAX, body).to_le_bytes());
        let Ok(map) = OsdMap::from_bytes(changed.into()) else { continue };
        for (id, pool) in &map.pools {
            for seed in 0..pool.pg_num.min(4) {
                assert!(map.pg_to_up_acting(PgId::new(*id, seed)).up.len() <= 255);
            }
        }
    }
}
