//! The metadata's own file loses power, and its file system runs full: the whole store on simulated hardware, with the database
//! that it has in production.

use super::crash::{History, PER_SEED, seeds, verify, work};
use super::faults::write;
use super::model::{Model, Sizes, drain, newest, object, pg, random_txn};
use super::rig::{Rig, SPLIT_LOG_BYTES, Stepping, tiny};
use crate::{BlockStore, MountReport, OpenError, Options, SplitDisk, journal_mark};
use nacre_env::{Disk, File, FileRoom};
use nacre_kv::{
    JournalOptions, JournaledKv, KvBatch, KvCompletion, KvError, KvOptions, KvStore, KvTag, Pair, RedbKv,
    has_journal,
};
use nacre_simdisk::{SimConfig, SimDevice, SimFile, Syncs};
use nacre_store::{ObjectStore, StoreError};
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::ops::Bound;
use std::sync::Arc;

const DEVICE_BYTES: u64 = 4 << 20;

/// The database, whose thread does its work while somebody waits for it: so the same seed does the same, but for one that has a journal,
/// which is merged meanwhile. A submitted batch is carried out after a few looks for it.
struct Stepped {
    kv: Box<dyn KvStore + Send>,
    rng: SeededEntropy,
    looks_to_come: Option<u64>,
    finished: Vec<KvCompletion>,
}

impl Stepped {
    fn carry_out(&mut self) {
        if self.looks_to_come.take().is_some() {
            self.kv.wait();
            self.kv.drain(&mut self.finished);
        }
    }
}

impl KvStore for Stepped {
    fn get(&self, key: &[u8]) -> Result<Option<nacre_buf::Bytes>, KvError> {
        self.kv.get(key)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, count_max: usize) -> Result<Vec<Pair>, KvError> {
        self.kv.scan(start, end, count_max)
    }

    fn commit(&mut self, batch: &KvBatch, durability: nacre_kv::Durability) -> Result<(), KvError> {
        self.carry_out();
        self.kv.commit(batch, durability)
    }

    fn submit(&mut self, batch: KvBatch, tag: KvTag) {
        self.looks_to_come = Some(self.rng.u64() % 6);
        self.kv.submit(batch, tag);
        // Nothing reads or writes the file at the same time.
        self.kv.wait();
    }

    fn drain(&mut self, out: &mut Vec<KvCompletion>) {
        match &mut self.looks_to_come {
            Some(0) => self.carry_out(),
            Some(looks) => *looks -= 1,
            None => (),
        }
        out.append(&mut self.finished);
    }

    fn wait(&mut self) {
        self.carry_out();
    }

    fn room(&self) -> Option<FileRoom> {
        self.kv.room()
    }
}

/// Hardware of one store.
struct Machine {
    device: SimDevice,
    /// Of the log, when it has one of its own.
    log_device: Option<SimDevice>,
    file: SimFile,
    /// Of the journal before the database, if there is one.
    journal: Option<SimFile>,
    options: Options,
    kv_options: KvOptions,
    seed: u64,
    opened: u64,
}

impl Machine {
    /// With a journal, which is made when the store is opened for the first time, as that of an older program's store. The log of
    /// every other one is on a device of its own.
    fn journaled(seed: u64) -> Self {
        let log =
            seed.is_multiple_of(2).then(|| SimDevice::new(SimConfig::new(SPLIT_LOG_BYTES, seed ^ (1 << 41))));
        Self { journal: Some(SimFile::new(seed ^ (1 << 40))), ..Self::on_devices(seed, 0, log) }
    }

    fn new(seed: u64, reserve_bytes: u64) -> Self {
        Self::on_devices(seed, reserve_bytes, None)
    }

    fn on_devices(seed: u64, reserve_bytes: u64, log_device: Option<SimDevice>) -> Self {
        let device = SimDevice::new(SimConfig::new(DEVICE_BYTES, seed));
        // Pages are read again and again.
        let kv_options = KvOptions { cache_bytes: 64 << 10, reserve_bytes };
        let file = SimFile::new(!seed);
        let (journal, options) = (None, tiny(seed));
        let machine = Self { device, log_device, file, journal, options, kv_options, seed, opened: 0 };
        let mut kv = machine.kv().expect("a new file");
        let data = machine.device.open();
        match &machine.log_device {
            None => BlockStore::mkfs(&mut { data }, kv.as_mut(), [7; 16], &machine.options),
            Some(log) => {
                let mut disk = SplitDisk::new(Box::new(data), Box::new(log.open())).expect("large enough");
                let options = Options { wal_bytes: Some(disk.log_bytes()), ..machine.options.clone() };
                let made = BlockStore::mkfs(&mut disk, kv.as_mut(), [7; 16], &options);
                made.and_then(|bytes| disk.label().map(|()| bytes))
            }
        }
        .expect("a store can be made");
        machine
    }

    fn kv(&self) -> Result<Box<dyn KvStore + Send>, OpenError> {
        let file = self.file.clone();
        let tree = RedbKv::open_on(move || Ok(Arc::new(file.open()) as Arc<dyn File>), self.kv_options)?;
        let Some(journal) = &self.journal else { return Ok(Box::new(tree)) };
        let file = Arc::new(journal.open());
        // At times another size.
        let half_bytes = (16 << 10) << (self.opened % 5 / 2);
        if has_journal(&tree)? {
            return Ok(Box::new(JournaledKv::open(tree, file, Some(half_bytes))?));
        }
        let (id, mark) = journal_mark(&tree)?.expect("not of format 1");
        let made = JournaledKv::make(tree, file, JournalOptions { id, half_bytes, mark });
        Ok(Box::new(made.map_err(|(_, error)| error)?))
    }

    fn files(&self) -> impl Iterator<Item = &SimFile> {
        [&self.file].into_iter().chain(&self.journal)
    }

    fn is_dead(&self) -> bool {
        self.files().any(SimFile::is_dead)
    }

    fn try_open(&mut self) -> Result<(BlockStore, MountReport), OpenError> {
        self.opened += 1;
        let stepping = |device: &SimDevice, salt: u64| {
            let rng = SeededEntropy(self.seed ^ (self.opened << 32) ^ salt);
            Box::new(Stepping { disk: device.open(), device: device.clone(), rng })
        };
        let data = stepping(&self.device, 0);
        let disk: Box<dyn Disk> = match &self.log_device {
            None => data,
            Some(log) => Box::new(SplitDisk::open(data, stepping(log, 1 << 20))?),
        };
        let rng = SeededEntropy(!self.seed ^ (self.opened << 32));
        let kv = Stepped { kv: self.kv()?, rng, looks_to_come: None, finished: Vec::new() };
        BlockStore::open(disk, Box::new(kv), self.options.clone())
    }

    fn open(&mut self) -> BlockStore {
        self.try_open().expect("the store opens").0
    }

    /// The power of all of it.
    fn crash(&self) {
        self.device.crash();
        self.log_device.iter().for_each(SimDevice::crash);
        self.files().for_each(SimFile::crash);
    }

    /// Opens the store; the power may go once more meanwhile.
    fn open_in_the_end(&mut self, rng: &mut SeededEntropy, context: &str) -> Result<BlockStore, String> {
        for _ in 0..3 {
            for file in self.files() {
                if rng.u64().is_multiple_of(4) {
                    file.lose_power_after(rng.u64() % 40);
                }
            }
            match self.try_open() {
                Ok((store, _)) if !self.is_dead() => {
                    self.files().for_each(|file| file.lose_power_after(u64::MAX));
                    return Ok(store);
                }
                Err(error) if !self.is_dead() => return Err(format!("{context}: {error}")),
                _ => self.crash(),
            }
        }
        self.try_open().map(|(store, _)| store).map_err(|error| format!("{context}: {error}"))
    }
}

/// How often the power went in a call of the database.
fn run(seed: u64, syncs: Syncs) -> Result<usize, String> {
    let machine = Machine::new(seed, 0);
    machine.file.set_syncs(syncs);
    run_on(seed, machine)
}

fn run_on(seed: u64, mut machine: Machine) -> Result<usize, String> {
    let (mut rng, mut in_the_act) = (SeededEntropy(seed), 0);
    let mut history = History { first: 0, states: vec![Model::default()] };
    for crash in 0..PER_SEED {
        let context = format!("seed {seed}, crash {crash}");
        let mut store = machine.open_in_the_end(&mut rng, &context)?;
        let first = history.first;
        verify(&mut store, &mut history, first, &context)?;
        // A journal is appended to in a few calls, and the tree below it is rarely changed.
        let changes_max = if machine.journal.is_some() { 6 } else { 25 };
        for file in machine.files() {
            if rng.u64() % 4 > 0 {
                file.lose_power_after(rng.u64() % changes_max);
            }
        }
        let mut acknowledged = Vec::new();
        match work(&mut store, &mut rng, &mut history, &mut acknowledged) {
            Err(StoreError::Failed { .. }) if machine.is_dead() => (),
            outcome => outcome.map_err(|error| format!("{context}: {error}"))?,
        }
        if rng.u64().is_multiple_of(3) && store.failure().is_none() {
            store.idle_trim();
            (0..rng.u64() % 60).for_each(|_| drop(drain(&mut store, &mut acknowledged)));
        }
        in_the_act += usize::from(machine.is_dead());
        machine.crash();
        drop(store);
        let last = acknowledged.last().map_or(history.first, |token| token.token.0);
        let mut store = machine.open_in_the_end(&mut rng, &context)?;
        verify(&mut store, &mut history, last, &context)?;
        machine.crash();
        drop(store);
    }
    Ok(in_the_act)
}

#[test]
fn every_crash_of_the_database_keeps_what_was_acknowledged() {
    let mut in_the_act = 0;
    for seed in seeds() {
        in_the_act += run(seed, Syncs::Done).unwrap_or_else(|error| panic!("{error}"));
    }
    let crashes = usize::try_from((seeds().end - seeds().start) * PER_SEED).unwrap_or(0);
    assert!(in_the_act > crashes / 4, "of {crashes} crashes {in_the_act} were in a call of the database");
}

/// Device, that of the log, journal and tree lose power each when it likes, in the making of the journal, too.
#[test]
fn every_crash_of_a_database_with_a_journal_keeps_what_was_acknowledged() {
    let mut in_the_act = 0;
    for seed in seeds() {
        in_the_act += run_on(seed, Machine::journaled(seed)).unwrap_or_else(|error| panic!("{error}"));
    }
    let crashes = usize::try_from((seeds().end - seeds().start) * PER_SEED).unwrap_or(0);
    assert!(in_the_act > crashes / 4, "of {crashes} crashes {in_the_act} were in a call of the database");
}

/// The same with a mistake built in must fail, by what a restart shows: else it proves nothing.
fn finds(syncs: Syncs) -> bool {
    finds_in(move |seed| run(seed, syncs))
}

fn finds_in(run: impl Fn(u64) -> Result<usize, String> + std::panic::RefUnwindSafe) -> bool {
    (0..20).any(|seed| {
        let found = match std::panic::catch_unwind(|| run(seed)) {
            Ok(outcome) => outcome.err(),
            Err(panic) => panic.downcast_ref::<String>().cloned(),
        };
        found.is_some_and(|found| found.starts_with(&format!("seed {seed}, crash")))
    })
}

#[test]
fn a_database_that_does_not_sync_is_found() {
    assert!(finds(Syncs::Skipped));
}

#[test]
fn a_database_that_syncs_once_where_it_should_twice_is_found() {
    assert!(finds(Syncs::EverySecond));
}

#[test]
fn a_journal_or_a_tree_below_one_that_does_not_sync_is_found() {
    for is_journal in [true, false] {
        let with_a_mistake = |seed| {
            let machine = Machine::journaled(seed);
            let wrong = if is_journal { machine.journal.as_ref() } else { Some(&machine.file) };
            wrong.iter().for_each(|file| file.set_syncs(Syncs::Skipped));
            run_on(seed, machine)
        };
        assert!(finds_in(with_a_mistake), "{is_journal}");
    }
}

fn remove(nth: u64) -> Transaction {
    Transaction { collection: pg(), ops: vec![Op::Remove(object(nth))] }
}

/// Objects whose metadata are most of them.
fn keys(nth: u64) -> Transaction {
    let entries =
        (0..20_u64).map(|key| (format!("{nth} {key}").as_str().into(), vec![7; 400].into())).collect();
    let mut txn = write(nth, 0, vec![1; 100]);
    txn.ops.push(Op::OmapSet { object: object(nth), entries });
    txn
}

fn settle(store: &mut BlockStore, acknowledged: &mut Vec<StoreToken>) {
    for _ in 0..10_000 {
        if store.waiting() == 0 || store.failure().is_some() {
            return;
        }
        drain(store, acknowledged);
    }
    panic!("the store does not settle");
}

/// A caller that looks at the usage, as the OSD does before each write, stops in time: the database is never full.
#[test]
fn usage_counts_the_room_of_the_metadata() {
    const RESERVE: u64 = 512 << 10;
    let mut machine = Machine::new(51, RESERVE);
    let mut store = machine.open();
    let roomy = store.usage();
    machine.file.set_quota(machine.file.allocated_bytes() + (4 << 20) + 2 * RESERVE);
    assert!(store.usage().available_bytes <= roomy.available_bytes);
    let (mut acknowledged, mut count) = (Vec::new(), 0);
    let is_short = |store: &BlockStore| {
        let usage = store.usage();
        usage.available_bytes < usage.total_bytes / 20
    };
    while !is_short(&store) {
        store.submit(keys(count), StoreToken::without_pg(count)).expect("room");
        settle(&mut store, &mut acknowledged);
        count += 1;
        assert!(count < 2000, "{:?}", store.usage());
    }
    assert!(store.failure().is_none() && count > 50, "{count} objects");
    assert!(roomy.total_bytes == store.usage().total_bytes && machine.file.reserved_bytes() == RESERVE);
    for nth in 0..count {
        store.submit(remove(nth), StoreToken::without_pg(count + nth)).expect("a full store deletes");
        settle(&mut store, &mut acknowledged);
    }
    store.finish_checkpoint();
    store.finish_checkpoint();
    assert!(store.failure().is_none() && !is_short(&store), "{:?} {:?}", store.failure(), store.usage());
}

/// Others fill the file system: the store deletes, and opens, from its reserve. It says that it is full meanwhile.
#[test]
fn a_reserve_lets_a_store_open_and_delete_when_its_file_system_is_full() {
    const RESERVE: u64 = 1 << 20;
    let mut machine = Machine::new(52, RESERVE);
    let mut store = machine.open();
    let mut acknowledged = Vec::new();
    for nth in 0..60 {
        store.submit(keys(nth), StoreToken::without_pg(nth)).expect("room");
        settle(&mut store, &mut acknowledged);
    }
    store.finish_checkpoint();
    assert_eq!(machine.file.reserved_bytes(), RESERVE);
    // Not a byte more than it has.
    machine.file.set_quota(machine.file.allocated_bytes() + RESERVE);
    assert_eq!(store.usage().available_bytes, 0);
    machine.crash();
    drop(store);
    let mut store = machine.open();
    assert_eq!(store.usage().available_bytes, 0);
    for nth in 0..60 {
        store.submit(remove(nth), StoreToken::without_pg(100 + nth)).expect("a full store deletes");
        settle(&mut store, &mut acknowledged);
        if nth % 20 == 0 {
            store.finish_checkpoint();
        }
    }
    store.finish_checkpoint();
    assert_eq!(store.failure(), None);
    machine.file.set_quota(64 << 20);
    store.submit(keys(1), StoreToken::without_pg(200)).expect("room");
    store.finish_checkpoint();
    assert!(machine.file.reserved_bytes() == RESERVE && store.usage().available_bytes > 0);
}

/// Without one, and with nobody who looks: an error that says what is the matter, and all that was acknowledged is there when
/// there is room again.
#[test]
fn a_full_file_system_is_an_error_that_loses_nothing() {
    let sizes = Sizes { object_bytes_max: 60_000, write_bytes_max: 30_000 };
    let mut failed = 0;
    for seed in 0..30 {
        let mut rng = SeededEntropy(seed);
        let mut machine = Machine::new(seed, 0);
        let mut history = History { first: 0, states: vec![Model::default()] };
        let mut store = machine.open();
        machine.file.set_quota(machine.file.allocated_bytes() + rng.u64() % (150 << 10));
        let mut acknowledged = Vec::new();
        for number in 1..600 {
            let txn = random_txn(&mut rng, number, sizes);
            let mut state = history.states.last().cloned().unwrap_or_default();
            state.apply(&txn);
            history.states.push(state);
            if store.submit(txn, StoreToken::without_pg(number)).is_err() {
                break;
            }
            drain(&mut store, &mut acknowledged);
        }
        if let Some(reason) = store.failure() {
            assert!(reason.contains("full"), "seed {seed}: {reason}");
            failed += 1;
        }
        if seed % 2 == 0 {
            machine.crash();
        }
        drop(store);
        machine.file.set_quota(u64::MAX);
        let mut store = machine.open();
        let last = acknowledged.last().map_or(0, |token| token.token.0);
        assert!(newest(&store) >= last, "seed {seed}");
        verify(&mut store, &mut history, last, &format!("seed {seed}"))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(failed > 10, "{failed} of 30 were full");
}

/// An OSD that opens the store after the maps that it lacked were written is told of nothing that it did not ask for.
#[test]
fn what_a_whole_checkpoint_made_durable_is_told_to_nobody_later() {
    let mut rig = Rig::new(61, 8 << 20, tiny(61));
    let mut store = rig.open();
    for nth in 0..3 {
        store.submit(write(nth, 0, vec![1; 9000]), StoreToken::without_pg(nth)).expect("room");
        store.checkpoint_now().expect("a healthy device");
        assert_eq!(store.waiting(), 0);
        let mut told = Vec::new();
        (0..3).for_each(|_| store.drain(&mut told));
        assert_eq!(told, []);
    }
}
