//! A log on a device of its own.

use super::rig::Rig;
use crate::{BlockStore, OpenError, Options, SplitDisk, refuse_without_log};
use nacre_simdisk::{SimConfig, SimDevice};
use nacre_store::conformance;

#[test]
fn conforms() {
    conformance::run(|| {
        Rig::split(1, 16 << 20, Options { clean_bytes_max: 64 << 20, ..Options::tiny() }).open()
    });
}

#[test]
fn conforms_also_when_the_log_was_moved_there() {
    conformance::run(|| {
        Rig::moved(1, 16 << 20, Options { clean_bytes_max: 64 << 20, ..Options::tiny() }).open()
    });
}

#[test]
fn a_log_that_was_moved_belongs_to_the_place_that_it_left() {
    let moved = Rig::moved(1, 8 << 20, Options::tiny());
    let (split, whole) = (Rig::split(1, 8 << 20, Options::tiny()), Rig::new(1, 8 << 20, Options::tiny()));
    let pair = |data: &Rig, log: &Rig| {
        let log = log.log_device.as_ref().expect("a device of its own").open();
        SplitDisk::open(Box::new(data.device.open()), Box::new(log))
    };
    assert!(pair(&moved, &moved).is_ok());
    // As during a move, which ends with the part of the data.
    assert!(pair(&whole, &moved).is_ok());
    for (data, log) in [(&whole, &split), (&moved, &split), (&split, &moved)] {
        assert!(matches!(pair(data, log), Err(OpenError::ForeignLog)));
    }
    let alone = refuse_without_log(&mut moved.device.open());
    assert!(matches!(alone, Err(OpenError::LogElsewhere)));
    assert!(refuse_without_log(&mut whole.device.open()).is_ok());
    assert!(refuse_without_log(&mut split.device.open()).is_ok(), "said by whoever opens it");
}

#[test]
fn wrong_pairs_and_single_devices_are_refused() {
    let (mut one, mut other) =
        (Rig::split(1, 8 << 20, Options::tiny()), Rig::new(2, 8 << 20, Options::tiny()));
    drop((one.open(), other.open()));
    let log = || one.log_device.clone().expect("a device of its own");
    let pair =
        |data: &SimDevice, log: &SimDevice| SplitDisk::open(Box::new(data.open()), Box::new(log.open()));
    assert!(pair(&one.device, &log()).is_ok());
    for (data, log) in [(&other.device, &log()), (&one.device, &other.device), (&log(), &one.device)] {
        assert!(matches!(pair(data, log), Err(OpenError::ForeignLog)));
    }
    let third = SimDevice::new(SimConfig::new(1 << 20, 3));
    assert!(matches!(pair(&one.device, &third), Err(OpenError::NoSuperblock { .. })));
    for alone in [&one.device, &log()] {
        let opened = BlockStore::open(Box::new(alone.open()), Box::new(one.kv.clone()), Options::tiny());
        assert!(matches!(opened, Err(OpenError::LogElsewhere)));
    }
    // Another store's log of the same size.
    let twin = SimDevice::new(SimConfig::new((256 << 10) + 8192, 4));
    let data = SimDevice::new(SimConfig::new(8 << 20, 5));
    let mut disk = SplitDisk::new(Box::new(data.open()), Box::new(twin.open())).expect("large enough");
    let options = Options { wal_bytes: Some(disk.log_bytes()), ..Options::tiny() };
    BlockStore::mkfs(&mut disk, &mut nacre_kv::MemoryKv::new(), [8; 16], &options)
        .expect("a store can be made");
    disk.label().expect("healthy devices");
    assert!(matches!(pair(&one.device, &twin), Err(OpenError::ForeignLog)));
}
