//! Stores on devices of more than 16 TiB, whose blocks have numbers of more than 32 bits. On a simulated disk: few file systems have so long
//! files.

use super::crash::{run_on, seeds};
use super::faults::write;
use super::model::{drain, object, pg, read};
use super::random::is_a_model_of;
use super::rig::{Rig, sign, tiny};
use crate::device::Run;
use crate::kv_schema::prefix;
use crate::superblock::{Superblock, VERSION_WIDE};
use crate::{BlockStore, Options, bad_metadata, mount, recount_free_space, restore_superblocks};
use nacre_buf::AlignedBuf;
use nacre_env::disk::{Durability, blocking};
use nacre_kv::{KvBatch, KvStore};
use nacre_store::{ObjectStore, conformance};
use nacre_txn::StoreToken;

#[test]
fn conforms() {
    for seed in 0..6 {
        let options = Options { clean_bytes_max: 64 << 20, ..Options::tiny() };
        conformance::run(|| Rig::wide(seed, 16 << 20, options.clone()).open());
    }
}

#[test]
fn every_crash_keeps_what_was_acknowledged() {
    for seed in seeds() {
        run_on(seed, Rig::wide(seed, 4 << 20, tiny(seed)), |_| ()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn does_what_a_model_does() {
    (0..6).for_each(|seed| is_a_model_of(seed, Rig::wide(seed, 8 << 20, tiny(seed))));
}

fn settle(store: &mut BlockStore, nth: u64, fill: u8, token: u64) {
    store.submit(write(nth, 0, vec![fill; 300_000]), StoreToken::without_pg(token)).expect("room");
    while store.waiting() > 0 {
        drain(store, &mut Vec::new());
    }
}

fn first_byte(store: &mut BlockStore, nth: u64) -> Option<u8> {
    read(store, &object(nth), 299_999, 1, &mut Vec::new()).ok().map(|data| data[0])
}

/// What `nacre store` does with one that is stopped.
#[test]
fn is_looked_at_and_mended() {
    let mut rig = Rig::wide(4, 16 << 20, tiny(4));
    let mut store = rig.open();
    (0..3).for_each(|nth| settle(&mut store, nth, 1 + nth as u8, 1 + nth));
    store.checkpoint_now().expect("a healthy device");
    let (layout, shape) = (store.layout(), store.shape(&pg(), &object(1)).expect("it is there"));
    assert_eq!((layout.version, layout.data_first + layout.data_count), (VERSION_WIDE, (1 << 32) + 2015));
    let offsets = shape.extents.iter().map(|extent| extent.device_offset);
    assert!(offsets.clone().count() > 0 && offsets.clone().all(|offset| offset > (1 << 44) - (8 << 20)));
    drop(store);
    rig.crash(0);
    let torn = AlignedBuf::with_len(crate::BLOCK).freeze().into();
    blocking::write(&mut rig.device.open(), 0, torn, Durability::Durable).expect("a healthy device");
    assert_eq!(restore_superblocks(&mut rig.device.open()).expect("the other is whole"), [0]);
    let mut kv = rig.kv.clone();
    assert_eq!(bad_metadata(&mut rig.device.open(), &kv, 0).expect("metadata"), []);
    assert!(!recount_free_space(&mut kv).expect("metadata"), "it was right");
    let portions = kv.scan_prefix(&[prefix::FREE]).expect("memory");
    let mut batch = KvBatch::default();
    batch.delete_prefix(vec![prefix::FREE]);
    kv.commit(&batch, nacre_kv::Durability::Durable).expect("memory");
    assert!(recount_free_space(&mut kv).expect("metadata"), "it was not there");
    assert_eq!(kv.scan_prefix(&[prefix::FREE]).expect("memory"), portions);
    let mut store = rig.open();
    assert!((0..3).all(|nth| first_byte(&mut store, nth) == Some(1 + nth as u8)));
    let report = store.check(true);
    assert!(
        report.blocks > 200 && report.damaged.is_empty() && report.inconsistencies.is_empty(),
        "{report:?}"
    );
    assert!(store.trim_free_space().expect("a healthy device").discarded_bytes > 0);
}

/// A block behind the end of the device is damage, whatever the upper half of its number is.
#[test]
fn a_block_outside_of_the_device_is_told() {
    let mut rig = Rig::wide(0, 16 << 20, tiny(0));
    let mut store = rig.open();
    settle(&mut store, 0, 9, 1);
    store.checkpoint_now().expect("a healthy device");
    drop(store);
    rig.crash(0);
    // As if its area ended before all that objects refer to.
    let made = mount::read_superblock(&mut rig.device.open()).expect("a healthy device");
    let data = Run { start: made.data.start - 5000, count: 5000 };
    sign(&rig.device, &Superblock { data, ..made });
    let error = rig.try_open().map(|_| ()).expect_err("its free map has blocks outside").to_string();
    assert!(error.contains("outside the data area"), "{error}");
    let bad = bad_metadata(&mut rig.device.open(), &rig.kv, 0).expect("metadata");
    assert!(bad.iter().any(|record| record.reason.contains("outside the data area")), "{bad:?}");
}

/// 40 TiB, most of which nobody has written.
#[test]
fn a_device_of_40_tib_is_used_from_end_to_end() {
    let device_bytes: u64 = 40 << 40;
    let mut rig = Rig::new(1, device_bytes, Options { wal_bytes: Some(1 << 20), ..Options::tiny() });
    let mut store = rig.open();
    let free = store.free_space();
    assert_eq!((free.bytes, free.pieces), (device_bytes - (1 << 20) - 8192, 1));
    // 144 MiB: 16 bytes for each segment of 16 MiB, and 32 for the nodes above and beside it.
    assert!(store.memory_bytes() < 150 << 20, "{} MiB", store.memory_bytes() >> 20);
    let behind = (1_u64 << 32) + 77;
    store.table.space.alloc.set_cursor(behind);
    settle(&mut store, 0, 5, 1);
    store.checkpoint_now().expect("a healthy device");
    settle(&mut store, 1, 6, 2);
    let placed = store.shape(&pg(), &object(1)).expect("it is there").extents;
    assert!(placed.iter().all(|extent| extent.device_offset >= behind * 4096), "{placed:?}");
    drop(store);
    rig.crash(0);
    let (mut store, report) = rig.try_open().expect("it opens");
    assert!(report.records > 0, "the second was in the log alone");
    assert_eq!([0, 1].map(|nth| first_byte(&mut store, nth)), [Some(5), Some(6)]);
}
