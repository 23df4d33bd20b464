//! The store, by the transactions that an OSD gives it.

use super::figures::Round;
use super::{Case, Engine, Places, Work, content, work_for};
use anyhow::{Context, Result, bail};
use nacre_blockstore::{BlockStore, Options};
use nacre_buf::{ByteStr, Bytes};
use nacre_crypt::{CryptFile, DataKey, Part, Xts};
use nacre_env::{Disk, File, RealClock};
use nacre_kv::{JournalOptions, JournaledKv, KvOptions, RedbKv};
use nacre_store::{Completion, ObjectStore};
use nacre_txn::{FetchFrom, ObjectView, Op, ReadError, StoreToken, Transaction};
use nacre_types::{Eversion, HObject, PgId, SpgId};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PG: SpgId = SpgId::replicated(PgId::new(1, 0));
/// As images on the cluster have them.
const OBJECT_BYTES: u64 = 4 << 20;
/// Entries of a log as long as Ceph keeps it, and how far it grows before it is cut.
const LOG_ENTRIES: u64 = 3000;
const LOG_TRIM: u64 = 100;
/// What an OSD stores beside the data of a small write.
const RECORD_BYTES: usize = 100;
const ENTRY_BYTES: usize = 180;

pub(crate) struct Stored {
    name: &'static str,
    store: BlockStore,
    clock: RealClock,
    places: Places,
    /// Their names, as a client has them.
    objects: Vec<HObject>,
    version: u64,
    about: String,
}

impl Stored {
    /// Makes the store and fills half of it with objects. With a key, `disk` is encrypted, and so are the metadata.
    pub(crate) fn new(
        mut disk: Box<dyn Disk>,
        meta: &Path,
        key: Option<&DataKey>,
        clock: RealClock,
    ) -> Result<Self> {
        let cipher = |part| key.map(|key| key.cipher(part));
        let name = if key.is_some() { "encrypted" } else { "store" };
        let through = |file: Arc<dyn File>, cipher: Option<Arc<Xts>>| match cipher {
            Some(cipher) => Arc::new(CryptFile::new(file, cipher)) as Arc<dyn File>,
            None => file,
        };
        let of_tree = cipher(Part::Metadata);
        let decrypt = move |file| through(file, of_tree.clone());
        let mut tree = RedbKv::open_through(meta, decrypt, KvOptions::default())?;
        let bytes = disk.info().size_bytes;
        BlockStore::mkfs(disk.as_mut(), &mut tree, [1; 16], &Options::default())?;
        let (id, mark) = nacre_blockstore::journal_mark(&tree)?.context("a new store may have a journal")?;
        let half_bytes = Options::default().journal_half_bytes(bytes);
        let journal = nacre_kv::create_file(&meta.with_extension("journal"))?;
        let journal = through(journal, cipher(Part::Journal));
        let made = JournaledKv::make(tree, journal, JournalOptions { id, half_bytes, mark });
        let kv = made.map_err(|(_, error)| error)?;
        let report =
            nacre_blockstore::probe(disk.as_mut(), &clock)?.context("a new store has two superblocks")?;
        // Reads are to come from the device: what is in memory is no measure of it.
        let options = Options { clean_bytes_max: 1 << 20, ..Options::default().on_device(&report) };
        let about = format!("{report}; {}", options.commit_text());
        let (mut store, _) = BlockStore::open(disk, Box::new(kv), options)?;
        store.set_clock(Box::new(clock));
        let count = (bytes / 2 / OBJECT_BYTES).max(1);
        let objects = (0..count).map(object).collect();
        let mut stored = Self { name, store, clock, places: Places::new(2), objects, version: 0, about };
        let data = content(OBJECT_BYTES);
        for nth in 0..count {
            let txn = stored.write(object(nth), 0, &data);
            stored.store.submit(txn, StoreToken::without_pg(0))?;
            stored.store.settle()?;
        }
        stored.store.checkpoint_now()?;
        Ok(stored)
    }

    pub(crate) fn about(&self) -> String {
        let free = self.store.free_space();
        format!(
            "{}; {} objects of 4 MiB; at the end {} MiB free in {} pieces, {} MiB of it in pieces of 1 MiB and more",
            self.about,
            self.objects.len(),
            free.bytes >> 20,
            free.pieces,
            free.long_bytes >> 20
        )
    }

    fn write(&mut self, object: HObject, offset: u64, data: &Bytes) -> Transaction {
        self.version += 1;
        let mut txn = Transaction::new(PG);
        txn.push(Op::Write { object: object.clone(), offset, data: data.clone().into() });
        txn.push(Op::SetMeta { object, meta: vec![7; RECORD_BYTES].into() });
        txn.push(Op::LogAppend {
            version: Eversion::new(1, self.version),
            entry: vec![9; ENTRY_BYTES].into(),
        });
        if self.version.is_multiple_of(LOG_TRIM) && self.version > LOG_ENTRIES {
            txn.push(Op::LogTrim { to: Eversion::new(1, self.version - LOG_ENTRIES) });
        }
        txn
    }
}

fn object(nth: u64) -> HObject {
    HObject::head(1, ByteStr::EMPTY, ByteStr::EMPTY, format!("object.{nth:08}").into())
}

impl Engine for Stored {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round(&mut self, case: Case, length: Duration) -> Result<Round> {
        let clock = self.clock;
        work_for(self, &clock, case, length)
    }
}

impl Work for Stored {
    fn start(&mut self, case: Case, data: &Bytes, number: u64) -> Result<bool> {
        let nth = self.places.below(self.objects.len() as u64);
        let nth = usize::try_from(nth).context("objects are in memory")?;
        let object = self.objects.get(nth).context("below their count")?;
        let offset = self.places.below(OBJECT_BYTES / case.bytes) * case.bytes;
        if !case.is_read {
            let txn = self.write(object.clone(), offset, data);
            self.store.submit(txn, StoreToken::without_pg(number))?;
            return Ok(false);
        }
        match self.store.read(&PG, object, offset, case.bytes) {
            Ok(_) => Ok(true),
            Err(ReadError::Pending { object, offset, length }) => {
                self.store.fetch(
                    &PG,
                    &object,
                    offset,
                    length,
                    FetchFrom::AnywhereOnce,
                    StoreToken::without_pg(number),
                );
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn turn(&mut self, finished: &mut Vec<u64>) -> Result<()> {
        let mut done = Vec::new();
        self.store.drain(&mut done);
        if done.is_empty() {
            self.store.wait();
            self.store.drain(&mut done);
        }
        if let Some(reason) = self.store.failure() {
            bail!("the store failed: {reason}");
        }
        finished.extend(done.into_iter().filter_map(|completion| match completion {
            Completion::Durable(token) | Completion::Fetched(token) | Completion::Brought(token, _) => {
                Some(token.token.0)
            }
            Completion::Warm(_) => None,
        }));
        Ok(())
    }

    fn background(&self) -> Option<&'static str> {
        self.store.checkpoint_stage()
    }
}
