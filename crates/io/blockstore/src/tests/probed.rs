//! A store whose log is on a device of its own: what both cost is measured, and what follows from it holds.

use super::faults::{wait, write};
use super::rig::Rig;
use crate::{BLOCK, KnownDevice, KnownDevices, Options};
use nacre_env::RealClock;
use nacre_env::disk::{Disk, blocking};
use nacre_store::ObjectStore;
use nacre_txn::StoreToken;

#[test]
fn both_devices_of_a_store_are_measured_and_stay_as_they_are() {
    let rigs = [Rig::split(1, 8 << 20, Options::tiny()), Rig::moved(2, 8 << 20, Options::tiny())];
    for mut rig in rigs {
        drop(rig.open());
        for device in [&rig.device].into_iter().chain(&rig.log_device) {
            let superblocks = || blocking::read(&mut device.open(), 0, 2 * BLOCK).expect("healthy");
            let before = superblocks();
            let report = crate::probe(&mut device.open(), &RealClock::start()).expect("part of a store");
            assert!(report.is_some_and(|report| report.size_bytes == device.open().info().size_bytes));
            assert!(*superblocks() == *before);
            assert_eq!(crate::log_bytes(&mut device.open()).expect("part of a store"), 256 << 10);
        }
        drop(rig.open());
    }
}

#[test]
fn a_long_write_for_a_spindle_is_durable_with_its_record() {
    const LONG_BYTES: usize = 128 << 10;
    let data = KnownDevice { report: None, rotational: Some(true) };
    let devices = KnownDevices { data, log: Some(KnownDevice::default()), log_bytes: 4 << 20 };
    let mut rig = Rig::new(3, 64 << 20, Options::default().on_devices(&devices));
    let mut store = rig.open();
    let mut writes_of = |number, bytes| {
        let before = rig.device.counters();
        store.submit(write(number, 0, vec![7; bytes]), StoreToken::without_pg(number)).expect("room");
        wait(&mut store);
        let after = rig.device.counters();
        (after.durable_writes - before.durable_writes, after.cached_writes - before.cached_writes)
    };
    assert_eq!(writes_of(1, LONG_BYTES), (1, 0), "all of it in a record");
    assert_eq!(writes_of(2, LONG_BYTES + 1), (2, 0), "whole blocks beside the record");
}
