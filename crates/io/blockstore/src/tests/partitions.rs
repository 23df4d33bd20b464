//! Several partitions on one device: power goes at any moment, and each has what it acknowledged; never do two have the same slab.

use super::crash::{History, PER_SEED, seeds, verify};
use super::hub::Hub;
use super::leasing::{fill, remove_all, settle};
use super::model::{Model, Sizes, drain, object, pg, random_txn};
use super::packing::force;
use super::rig::{POOL, Rig as Undivided, SharedKv, around_32_bits, hint_in, sign, tiny};
use crate::kv_schema::{PartitionRecord, partition_key};
use crate::mount::read_superblock;
use crate::options::Planted;
use crate::slabs::{SlabLedger, Slabs};
use crate::superblock::{Division, Superblock};
use crate::{BlockStore, OpenError, Options, Partitions, SplitDisk, bad_metadata, log_gap};
use nacre_buf::{BufList, Bytes};
use nacre_env::disk::Disk;
use nacre_kv::{KvBatch, KvStore, MemoryKv};
use nacre_simdisk::{Failing, SimConfig, SimDevice};
use nacre_store::{ObjectStore, StoreError, StoreState, SubmitHint, conformance};
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{Compression, CompressionAlgorithm, Entropy};
use std::collections::BTreeMap;
use std::ops::Bound;

pub(super) const BLOCK: u64 = crate::BLOCK as u64;
/// Blocks of a slab.
pub(super) const SLAB_BLOCKS: u32 = 16;
/// Steps between two crashes at most.
const STEPS_MAX: u64 = 200;

/// A device and the metadata of some partitions.
pub(super) struct Rig {
    device: SimDevice,
    /// Of the log, when it has one of its own.
    log_device: Option<SimDevice>,
    metadata: Vec<SharedKv>,
    options: Options,
    opened: u64,
    /// Of the pool whose objects the tests have.
    compression: Option<Compression>,
}

impl Rig {
    pub(super) fn new(seed: u64, data_blocks: u64, partitions: u64, options: Options) -> Self {
        let wal_bytes = partitions * (256 << 10);
        let device = SimDevice::new(SimConfig::new(2 * BLOCK + wal_bytes + data_blocks * BLOCK, seed));
        let mut disk = device.open();
        Self::make((device, None), &mut disk, partitions, Options { wal_bytes: Some(wal_bytes), ..options })
    }

    /// A store whose log is on a device of its own.
    fn split(seed: u64, data_blocks: u64, partitions: u64, options: Options) -> Self {
        let device = SimDevice::new(SimConfig::new(2 * BLOCK + data_blocks * BLOCK, seed));
        let log = SimDevice::new(SimConfig::new(2 * BLOCK + partitions * (256 << 10), !seed));
        let mut disk = SplitDisk::new(Box::new(device.open()), Box::new(log.open())).expect("large enough");
        let options = Options { wal_bytes: Some(disk.log_bytes()), ..options };
        let rig = Self::make((device, Some(log)), &mut disk, partitions, options);
        disk.label().expect("healthy devices");
        rig
    }

    /// A store whose data lie around the block behind which numbers have more than 32 bits.
    fn wide(seed: u64, data_blocks: u64, partitions: u64, options: Options) -> Self {
        let wal_bytes = partitions * (256 << 10);
        let device = SimDevice::new(SimConfig::new((1 << 44) + data_blocks * BLOCK, seed));
        let mut disk = device.open();
        let of_all = Options { wal_bytes: Some(wal_bytes), slab_blocks: Some(1 << 20), ..options };
        let mut rig = Self::make((device, None), &mut disk, partitions, of_all);
        let made = read_superblock(&mut disk).expect("just made");
        let division = Division { slab_blocks: SLAB_BLOCKS, ..made.division };
        let data = around_32_bits(seed, data_blocks);
        sign(&rig.device, &Superblock { data, division, ..made });
        // The slabs that partitions have are others by that.
        let (slabs, partitions) = (Slabs::new(data, SLAB_BLOCKS).count(), division.partitions);
        for (number, kv) in (0..).zip(&mut rig.metadata) {
            let record = PartitionRecord { number, partitions, slabs: vec![number * slabs / partitions] };
            let mut batch = KvBatch::default();
            batch.put(partition_key(), record.encode());
            kv.commit(&batch, nacre_kv::Durability::Durable).expect("memory");
        }
        rig.options.slab_blocks = Some(SLAB_BLOCKS);
        rig
    }

    /// A store that compresses all that gets smaller by it.
    fn compressing(seed: u64, data_blocks: u64, partitions: u64, options: Options) -> Self {
        let algorithm = CompressionAlgorithm::ALL[usize::try_from(seed % 3).unwrap_or_default()];
        let compression = Compression { required_ppm: 1_000_000, ..force(algorithm) };
        let kind = [Self::new, Self::split, Self::wide][usize::try_from(seed / 3 % 3).unwrap_or_default()];
        Self { compression: Some(compression), ..kind(seed, data_blocks, partitions, options) }
    }

    fn make(
        (device, log_device): (SimDevice, Option<SimDevice>),
        disk: &mut dyn Disk,
        partitions: u64,
        options: Options,
    ) -> Self {
        let options = Options { slab_blocks: options.slab_blocks.or(Some(SLAB_BLOCKS)), ..options };
        let mut metadata: Vec<SharedKv> = (0..partitions).map(SharedKv::new).collect();
        let mut stores: Vec<&mut dyn KvStore> =
            metadata.iter_mut().map(|kv| kv as &mut dyn KvStore).collect();
        Partitions::mkfs(disk, &mut stores, [7; 16], &options).expect("a store can be made");
        Self { device, log_device, metadata, options, opened: 0, compression: None }
    }

    fn try_open(&mut self) -> Result<Vec<BlockStore>, OpenError> {
        self.opened += 1;
        self.metadata.iter().for_each(|kv| kv.lose_submitted(self.opened.is_multiple_of(2)));
        let hub = Hub::new(&self.device, self.opened);
        let log_hub = self.log_device.as_ref().map(|log| Hub::new(log, !self.opened));
        let hold = || -> Result<Box<dyn Disk>, OpenError> {
            let data = Box::new(hub.hold());
            match &log_hub {
                None => Ok(data),
                Some(log) => Ok(Box::new(SplitDisk::open(data, Box::new(log.hold()))?)),
            }
        };
        let all: Vec<&dyn KvStore> = self.metadata.iter().map(|kv| kv as &dyn KvStore).collect();
        let mut partitions = Partitions::read(hold()?.as_mut(), &all)?;
        let open = |(number, kv): (u32, &SharedKv)| {
            let (mut store, _) =
                partitions.open(number, hold()?, Box::new(kv.clone()), self.options.clone())?;
            self.compression.iter().for_each(|how| store.set_compression(POOL, *how, hint_in));
            Ok(store)
        };
        (0..).zip(&self.metadata).map(open).collect()
    }

    pub(super) fn open(&mut self) -> Vec<BlockStore> {
        self.try_open().expect("all partitions open")
    }

    /// Power goes, or the process is killed: then what it had written can be read, durable or not.
    fn crash(&self, rng: &mut SeededEntropy) {
        let end = if rng.u64().is_multiple_of(4) { SimDevice::kill } else { SimDevice::crash };
        [Some(&self.device), self.log_device.as_ref()].into_iter().flatten().for_each(end);
        for kv in &self.metadata {
            kv.crash(usize::try_from(rng.u64() % 3).unwrap_or_default());
        }
    }
}

/// What a run came across.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    taken: u64,
    given: u64,
    refused: u64,
    /// Blocks that were in blobs.
    packed: u64,
}

impl Tally {
    fn add(&mut self, stores: &[BlockStore]) {
        for counts in stores.iter().filter_map(BlockStore::slabs) {
            self.taken += counts.taken;
            self.given += counts.given;
        }
        let packed = stores.iter().flat_map(|store| store.packed().into_values());
        self.packed += packed.map(|usage| usage.original_bytes / BLOCK).sum::<u64>();
    }
}

/// Panics when two partitions have a slab, or what they have is not what the ledger says.
pub(super) fn check_slabs(stores: &[BlockStore], context: &str) {
    let mut holders = BTreeMap::new();
    for (number, store) in stores.iter().enumerate() {
        for slab in store.leases.iter().flat_map(crate::leases::Leases::all) {
            let other = holders.insert(slab, number);
            assert_eq!(other, None, "{context}: slab {slab} is {number}'s, too");
        }
    }
    let ledger: &SlabLedger = stores[0].leases.as_ref().expect("divided").ledger();
    let count = ledger.slabs().count();
    for slab in 0..count {
        let holder = ledger.holder(slab).map(|partition| partition as usize);
        assert_eq!(holders.get(&slab).copied(), holder, "{context}: holder of slab {slab}");
    }
    let nobodys = (0..count).filter(|slab| !holders.contains_key(slab));
    let free: u64 = nobodys.map(|slab| ledger.slabs().run(slab).count).sum();
    assert_eq!(ledger.free_blocks(), free, "{context}");
}

/// A transaction without data, which a full store takes as well.
pub(super) fn removal(number: u64, objects: impl IntoIterator<Item = u64>) -> Transaction {
    let mut txn = Transaction::new(pg());
    objects.into_iter().for_each(|nth| txn.push(Op::Remove(object(nth))));
    txn.push(Op::MetaSet { key: "n".into(), value: Bytes::from(number.to_le_bytes().to_vec()) });
    txn
}

/// Submits something random, and when there is no room for it, a removal. True when there was none.
fn submit(
    store: &mut BlockStore,
    rng: &mut SeededEntropy,
    history: &mut History,
) -> Result<bool, StoreError> {
    let number = history.newest() + 1;
    let sizes = Sizes { object_bytes_max: 150_000, write_bytes_max: 80_000 };
    let mut txn = match rng.u64() % 60 {
        0 => removal(number, 0..8),
        _ => random_txn(rng, number, sizes),
    };
    store.set_submit_hint(if number.is_multiple_of(2) { SubmitHint::Now } else { SubmitHint::Batch });
    let token = StoreToken::without_pg(number);
    let mut outcome = store.submit(txn.clone(), token);
    let is_full = matches!(outcome, Err(StoreError::Full { .. }));
    if is_full {
        txn = removal(number, [rng.u64() % 8]);
        outcome = store.submit(txn.clone(), token);
    }
    let mut state = history.states.last().cloned().unwrap_or_default();
    state.apply(&txn);
    history.states.push(state);
    outcome.map(|()| is_full)
}

/// Some of everything, by one partition after the other, until what is given says that it is enough.
fn work(
    stores: &mut [BlockStore],
    rng: &mut SeededEntropy,
    histories: &mut [History],
    acknowledged: &mut [Vec<StoreToken>],
    is_enough: impl Fn(&[BlockStore]) -> bool,
) -> Result<u64, StoreError> {
    let mut refused = 0;
    for _ in 0..rng.u64() % STEPS_MAX {
        let nth = usize::try_from(rng.u64()).unwrap_or_default() % stores.len();
        refused += u64::from(submit(&mut stores[nth], rng, &mut histories[nth])?);
        for nth in 0..stores.len() {
            for _ in 0..rng.u64() % 4 {
                drain(&mut stores[nth], &mut acknowledged[nth]);
                if is_enough(stores) {
                    return Ok(refused);
                }
            }
        }
    }
    Ok(refused)
}

fn run(seed: u64, options: Options) -> Result<Tally, String> {
    run_on(seed, options, if seed.is_multiple_of(5) { Rig::split } else { Rig::new })
}

fn run_on(seed: u64, options: Options, make: fn(u64, u64, u64, Options) -> Rig) -> Result<Tally, String> {
    let mut rng = SeededEntropy(seed);
    let partitions = 2 + seed % 2;
    // From so little that it is full most of the time to enough for everybody.
    let mut rig = make(seed, partitions * (112 + 48 * (seed % 4)), partitions, options);
    let new = || History { first: 0, states: vec![Model::default()] };
    let mut histories: Vec<History> = (0..partitions).map(|_| new()).collect();
    let mut tally = Tally::default();
    for crash in 0..PER_SEED {
        let context = format!("seed {seed}, crash {crash}");
        let mut stores = rig.try_open().map_err(|error| format!("{context}: {error}"))?;
        check_slabs(&stores, &context);
        let mut acknowledged: Vec<Vec<StoreToken>> = stores.iter().map(|_| Vec::new()).collect();
        tally.refused += work(&mut stores, &mut rng, &mut histories, &mut acknowledged, |_| false)
            .map_err(|error| format!("{context}: {error}"))?;
        check_slabs(&stores, &context);
        tally.add(&stores);
        rig.crash(&mut rng);
        drop(stores);
        // Sometimes power goes again while the stores open; it must not matter.
        if rng.u64().is_multiple_of(4) {
            drop(rig.try_open().map_err(|error| format!("{context}, again: {error}"))?);
            rig.crash(&mut rng);
        }
        let mut stores = rig.try_open().map_err(|error| format!("{context}: {error}"))?;
        for (nth, (store, history)) in stores.iter_mut().zip(&mut histories).enumerate() {
            let last = acknowledged[nth].last().map_or(history.first, |token| token.token.0);
            verify(store, history, last, &format!("{context}, partition {nth}"))?;
        }
        check_slabs(&stores, &context);
        rig.crash(&mut rng);
    }
    Ok(tally)
}

#[test]
fn every_crash_keeps_what_each_partition_acknowledged() {
    let mut all = Tally::default();
    for seed in seeds() {
        let tally = run(seed, tiny(seed)).unwrap_or_else(|error| panic!("{error}"));
        all.taken += tally.taken;
        all.given += tally.given;
        all.refused += tally.refused;
    }
    assert!(all.taken > 100 && all.given > 100 && all.refused > 10, "too little happened: {all:?}");
}

#[test]
fn every_crash_keeps_what_each_partition_acknowledged_on_a_device_of_more_than_16_tib() {
    let mut all = Tally::default();
    for seed in seeds() {
        let tally = run_on(seed, tiny(seed), Rig::wide).unwrap_or_else(|error| panic!("{error}"));
        (all.taken, all.given) = (all.taken + tally.taken, all.given + tally.given);
    }
    assert!(all.taken > 100 && all.given > 100, "too little happened: {all:?}");
}

/// Blobs in slabs that come and go.
#[test]
fn every_crash_keeps_what_partitions_that_compress_acknowledged() {
    let mut all = Tally::default();
    for seed in seeds() {
        let tally = run_on(seed, tiny(seed), Rig::compressing).unwrap_or_else(|error| panic!("{error}"));
        all.taken += tally.taken;
        all.given += tally.given;
        all.refused += tally.refused;
        all.packed += tally.packed;
    }
    assert!(all.taken > 100 && all.given > 100 && all.refused > 10, "too little happened: {all:?}");
    assert!(all.packed > 100, "too little was compressed: {all:?}");
}

/// The same test with a mistake built in must fail: else it proves nothing.
fn finds(planted: Planted) -> bool {
    (0..40).any(|seed| {
        let options = Options { planted, ..tiny(seed) };
        std::panic::catch_unwind(move || run(seed, options)).map_or(true, |outcome| outcome.is_err())
    })
}

#[test]
fn using_a_slab_before_its_lease_is_durable_is_found() {
    assert!(finds(Planted::EarlyLease));
}

#[test]
fn giving_a_slab_away_before_that_is_durable_is_found() {
    assert!(finds(Planted::EarlyReturn));
}

#[test]
fn a_partition_conforms() {
    conformance::run(|| {
        let options = Options { slab_blocks: Some(256), ..Options::default() };
        let mut store = Rig::new(8, (64 << 20) / BLOCK, 3, options).open().swap_remove(1);
        // A checkpoint brings it the slabs that it wants, and has blocks of its own as long as it runs.
        store.checkpoint_now().expect("a healthy device");
        store
    });
}

/// As in an OSD: each partition has a thread of its own, and they take and give slabs as they come.
#[test]
fn partitions_work_on_threads_of_their_own() {
    let mut rig = Rig::new(7, 3 * 160, 3, Options::tiny());
    let mut stores = rig.open();
    let new = || History { first: 0, states: vec![Model::default()] };
    let mut histories: Vec<History> = stores.iter().map(|_| new()).collect();
    std::thread::scope(|scope| {
        for (nth, (store, history)) in (0..).zip(stores.iter_mut().zip(&mut histories)) {
            scope.spawn(move || {
                let mut rng = SeededEntropy(nth);
                for _ in 0..400 {
                    submit(store, &mut rng, history).expect("a removal needs no room");
                    (0..rng.u64() % 6).for_each(|_| drop(drain(store, &mut Vec::new())));
                }
                store.settle().expect("a healthy device");
            });
        }
    });
    check_slabs(&stores, "behind all of them");
    let taken: u64 = stores.iter().filter_map(BlockStore::slabs).map(|counts| counts.taken).sum();
    assert!(taken > 10, "{taken} slabs were taken");
    drop(stores);
    for (nth, (store, history)) in rig.open().iter_mut().zip(&mut histories).enumerate() {
        let last = history.newest();
        verify(store, history, last, &format!("partition {nth}")).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The device refuses one request and takes the next, and what it had cached for anybody may be lost then: nobody goes on.
#[test]
fn when_the_device_fails_one_partition_all_have_failed() {
    let mut failures = 0;
    for seed in 0..24 {
        let (context, mut rng) = (format!("seed {seed}"), SeededEntropy(seed));
        let mut rig = Rig::new(seed, 3 * 160, 3, tiny(seed));
        let mut stores = rig.open();
        let new = || History { first: 0, states: vec![Model::default()] };
        let mut histories: Vec<History> = stores.iter().map(|_| new()).collect();
        let mut acknowledged: Vec<Vec<StoreToken>> = stores.iter().map(|_| Vec::new()).collect();
        rig.device.fail_after(rng.u64() % 400, Failing::Once);
        let has_failed = |stores: &[BlockStore]| stores.iter().any(|store| store.failure().is_some());
        for _ in 0..40 {
            let outcome = work(&mut stores, &mut rng, &mut histories, &mut acknowledged, has_failed);
            if outcome.is_err() || has_failed(&stores) {
                break;
            }
        }
        if has_failed(&stores) {
            failures += 1;
            assert!(stores.iter().all(|store| store.state() == StoreState::Failed), "{context}");
            // What was durable before the failure, the partition that heard of it may still say.
            for (store, acknowledged) in stores.iter_mut().zip(&mut acknowledged) {
                if store.failure().is_some() {
                    drain(store, acknowledged);
                }
            }
            let before: Vec<usize> = acknowledged.iter().map(Vec::len).collect();
            for (store, acknowledged) in stores.iter_mut().zip(&mut acknowledged) {
                (0..100).for_each(|_| drop(drain(store, acknowledged)));
                let refused = store.submit(removal(1, []), StoreToken::without_pg(0));
                assert!(matches!(refused, Err(StoreError::Failed { .. })), "{context}: {refused:?}");
            }
            let after: Vec<usize> = acknowledged.iter().map(Vec::len).collect();
            assert_eq!(after, before, "{context}: acknowledged after a failure");
        }
        rig.device.heal();
        rig.crash(&mut rng);
        drop(stores);
        for (nth, (store, history)) in rig.open().iter_mut().zip(&mut histories).enumerate() {
            let last = acknowledged[nth].last().map_or(0, |token| token.token.0);
            verify(store, history, last, &format!("{context}, partition {nth}"))
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
    assert!(failures > 12, "{failures} failed");
}

/// What is nobody's is counted once, and whatever is used by whoever uses it.
#[test]
fn partitions_together_count_the_whole_device() {
    let mut rig = Rig::new(2, 641, 3, Options::tiny());
    let mut stores = rig.open();
    let sums = |stores: &[BlockStore]| {
        let usages: Vec<_> = stores.iter().map(ObjectStore::usage).collect();
        let sum = |of: fn(&nacre_store::StoreUsage) -> u64| usages.iter().map(of).sum::<u64>() / BLOCK;
        (
            sum(|usage| usage.total_bytes),
            sum(|usage| usage.available_bytes),
            sum(|usage| usage.allocated_bytes),
        )
    };
    assert_eq!(sums(&stores), (641, 641 - 3 * 8, 0));
    assert_eq!(stores.iter().map(|store| store.usage().metadata_bytes).sum::<u64>(), 3 * (256 << 10));
    for nth in [0, 2, 2] {
        let mut txn = Transaction::new(pg());
        let data = BufList::from(vec![7; 40 * crate::BLOCK]);
        txn.push(Op::Write { object: object(stores[nth].usage().stored_bytes), offset: 0, data });
        stores[nth].submit(txn, StoreToken::without_pg(1)).expect("room");
        settle(&mut stores);
    }
    assert_eq!(sums(&stores), (641, 641 - 3 * 8 - 120, 120));
    let stored: Vec<u64> = stores.iter().map(|store| store.usage().stored_bytes / BLOCK).collect();
    assert_eq!(stored, [40, 0, 80]);
    // Taken back by nobody: half-used slabs are their partition's.
    drop(stores);
    assert_eq!(sums(&rig.open()), (641, 641 - 3 * 8 - 120, 120));
}

#[test]
fn metadata_of_before_are_refused_when_another_partition_has_their_slab() {
    let mut rig = Rig::new(3, 512, 2, Options::tiny());
    let mut stores = rig.open();
    let written = fill(&mut stores, 0);
    drop(stores);
    rig.metadata[0].lose_submitted(true);
    let old = rig.metadata[0].scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).expect("memory");
    let mut stores = rig.open();
    remove_all(&mut stores, 0, written);
    fill(&mut stores, 1);
    drop(stores);
    rig.open();
    let mut batch = KvBatch::default();
    batch.delete_prefix(Bytes::new());
    old.into_iter().for_each(|(key, value)| batch.put(key, value));
    rig.metadata[0].lose_submitted(true);
    rig.metadata[0].commit(&batch, nacre_kv::Durability::Durable).expect("memory");
    let error = rig.try_open().expect_err("slabs have two holders");
    assert!(matches!(error, OpenError::SlabLeasedTwice { partitions: (0, 1), .. }), "{error}");
    assert!(error.to_string().contains("a copy of before was put back"), "{error}");
}

#[test]
fn metadata_in_the_place_of_others_are_refused() {
    let mut rig = Rig::new(4, 512, 3, Options::tiny());
    drop(rig.open());
    rig.metadata.swap(0, 2);
    assert!(matches!(rig.try_open(), Err(OpenError::ForeignMetadata)), "exchanged");
    rig.metadata.swap(0, 2);
    let third = rig.metadata.pop().expect("three");
    assert!(matches!(rig.try_open(), Err(OpenError::ForeignMetadata)), "one is missing");
    rig.metadata.push(SharedKv::new(9));
    assert!(matches!(rig.try_open(), Err(OpenError::ForeignMetadata)), "one is empty");
    rig.metadata[2] = third;
    drop(rig.open());
}

/// What is wrong with the metadata of one partition is no matter of the others.
#[test]
fn the_metadata_of_each_partition_are_looked_at_by_its_number() {
    let mut rig = Rig::new(7, 512, 2, Options::tiny());
    let mut stores = rig.open();
    stores.iter_mut().for_each(|store| {
        let op = Op::Write { object: object(1), offset: 0, data: BufList::from(vec![1; 20_000]) };
        let txn = Transaction { collection: pg(), ops: vec![Op::CreateCollection, op] };
        store.submit(txn, StoreToken::without_pg(1)).expect("room");
        store.checkpoint_now().expect("a healthy device");
    });
    drop(stores);
    let looked_at = |rig: &Rig, nth: usize, number| {
        bad_metadata(&mut rig.device.open(), &rig.metadata[nth], number).map(|bad| bad.len())
    };
    assert!(matches!((looked_at(&rig, 0, 0), looked_at(&rig, 1, 1)), (Ok(0), Ok(0))));
    for (nth, number) in [(0, 1), (1, 0), (1, 2)] {
        assert!(matches!(looked_at(&rig, nth, number), Err(OpenError::ForeignMetadata)), "{nth} {number}");
    }
    let mut batch = KvBatch::default();
    batch.put(crate::kv_schema::free_key(0), Bytes::from_static(b"damaged"));
    rig.metadata[1].commit(&batch, nacre_kv::Durability::Durable).expect("memory");
    assert!(matches!((looked_at(&rig, 0, 0), looked_at(&rig, 1, 1)), (Ok(0), Ok(1))));
    assert!(crate::recount_free_space(&mut rig.metadata[1]).expect("memory"));
    for store in &mut rig.open() {
        assert_eq!(store.check(true).inconsistencies, [""; 0]);
    }
}

#[test]
fn a_divided_store_is_not_opened_as_one() {
    let rig = Rig::new(5, 512, 2, Options::tiny());
    let is_refused = |error: OpenError| {
        assert!(matches!(error, OpenError::Divided { partitions: 2 }), "{error}");
    };
    let parts = || (Box::new(rig.device.open()), Box::new(rig.metadata[0].clone()));
    let (disk, kv) = parts();
    is_refused(BlockStore::open(disk, kv, Options::tiny()).expect_err("divided"));
    let (disk, kv) = parts();
    is_refused(log_gap(disk, kv, Options::tiny()).expect_err("divided"));
    assert_eq!(Partitions::count(&mut rig.device.open()).expect("a store"), 2);
    // Nor are metadata of a partition those of a store that is not divided.
    let undivided = Undivided::new(5, 4 << 20, Options::tiny());
    let outcome = BlockStore::open(
        Box::new(undivided.device.open()),
        Box::new(rig.metadata[0].clone()),
        Options::tiny(),
    );
    assert!(matches!(outcome, Err(OpenError::ForeignMetadata)));
}

#[test]
fn one_partition_is_the_store_that_there_always_was() {
    let made = |divided: bool| {
        let device = SimDevice::new(SimConfig::new(4 << 20, 1));
        let (mut disk, mut kv, options) = (device.open(), MemoryKv::new(), Options::tiny());
        match divided {
            true => Partitions::mkfs(&mut disk, &mut [&mut kv], [7; 16], &options),
            false => BlockStore::mkfs(&mut disk, &mut kv, [7; 16], &options),
        }
        .expect("a store can be made");
        let metadata = kv.scan(Bound::Unbounded, Bound::Unbounded, 9).expect("memory");
        (device.peek(0, 4 << 20), metadata)
    };
    let (device, metadata) = made(true);
    assert!((&device, &metadata) == (&made(false).0, &made(false).1));
    assert_eq!(metadata.len(), 1, "the state, and nothing of partitions");
    let mut rig = Undivided::new(6, 4 << 20, Options::tiny());
    assert_eq!(rig.open().slabs(), None);
    assert_eq!(Partitions::count(&mut rig.device.open()).expect("a store"), 1);
}

#[test]
fn a_device_that_is_too_small_is_not_divided() {
    let device = SimDevice::new(SimConfig::new(4 << 20, 1));
    let mut metadata = [MemoryKv::new(), MemoryKv::new(), MemoryKv::new()];
    let mut stores: Vec<&mut dyn KvStore> = metadata.iter_mut().map(|kv| kv as &mut dyn KvStore).collect();
    // The usual slabs are of 1 MiB, and log and superblocks take the rest.
    let options = Options { wal_bytes: Some(2 << 20), ..Options::tiny() };
    let made = Partitions::mkfs(&mut device.open(), &mut stores, [7; 16], &options);
    assert!(matches!(made, Err(OpenError::Indivisible { partitions: 3 })));
    assert!(
        stores.iter().all(|kv| kv.scan(Bound::Unbounded, Bound::Unbounded, 1).expect("memory").is_empty())
    );
}
