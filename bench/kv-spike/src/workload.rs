//! [`Workload`]: an open store, and batches for it as checkpoints make them.

use crate::args::{Args, Phase};
use crate::engine;
use crate::meter::MemoryWatch;
use crate::records;
use anyhow::Result;
use nacre_kv::{KvBatch, KvCompletion, KvStore, KvTag};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

/// A batch, and how much it is.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) changes: KvBatch,
    pub(crate) objects: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
}

impl Batch {
    pub(crate) fn put(&mut self, key: bytes::Bytes, value: bytes::Bytes) {
        self.bytes += (key.len() + value.len()) as u64;
        self.changes.put(key, value);
    }
}

/// See the module's documentation.
pub(crate) struct Workload<'a> {
    pub(crate) args: &'a Args,
    pub(crate) store: Box<dyn KvStore>,
    pub(crate) random: SeededEntropy,
    pub(crate) memory: MemoryWatch,
    next_tag: u64,
    completions: Vec<KvCompletion>,
}

impl<'a> Workload<'a> {
    pub(crate) fn open(args: &'a Args) -> Result<Self> {
        Ok(Self {
            args,
            memory: MemoryWatch::begin()?,
            store: engine::open(args)?,
            random: SeededEntropy(args.seed),
            next_tag: 0,
            completions: Vec::new(),
        })
    }

    pub(crate) fn run(&mut self, phase: Phase) -> Result<()> {
        match phase {
            Phase::Load => self.load(),
            Phase::LoadSorted => self.load_sorted(),
            Phase::Overwrite => self.overwrite(),
            Phase::Read => self.read(),
            Phase::Mixed => self.mixed(),
            Phase::Scan => self.scan(),
            Phase::Churn => self.churn(),
            Phase::Kill => Ok(()),
        }
    }

    /// Whether the object has a second page of blocks.
    pub(crate) fn has_page(&self, object: u64) -> bool {
        object.is_multiple_of(self.args.page_every)
    }

    /// New objects, their records in the order in which a checkpoint has them: by number, then names by key.
    pub(crate) fn new_objects(&mut self, objects: std::ops::Range<u64>) -> Batch {
        let mut batch = Batch::default();
        let mut names = Vec::with_capacity(usize::try_from(objects.end - objects.start).unwrap_or(0));
        for object in objects {
            self.put_object(&mut batch, object);
            let name = records::name_of(object);
            names.push((records::name_key(&name), records::name_value(object, &name)));
        }
        names.sort_unstable();
        names.into_iter().for_each(|(key, value)| batch.put(key, value));
        batch
    }

    /// Objects anywhere that were changed.
    pub(crate) fn changed_objects(&mut self) -> Batch {
        let mut objects: Vec<u64> =
            (0..self.args.batch_objects).map(|_| self.random.u64() % self.args.objects).collect();
        objects.sort_unstable();
        objects.dedup();
        let mut batch = Batch::default();
        objects.into_iter().for_each(|object| self.put_object(&mut batch, object));
        batch
    }

    /// The onode, and the page that some have.
    pub(crate) fn put_object(&mut self, batch: &mut Batch, object: u64) {
        batch.objects += 1;
        batch.put(records::onode_key(object), records::onode_value(&mut self.random));
        if self.has_page(object) {
            batch.put(records::page_key(object), records::page_value(&mut self.random));
        }
    }

    /// Hands a batch to the store.
    pub(crate) fn submit(&mut self, batch: KvBatch) {
        self.next_tag += 1;
        self.store.submit(batch, KvTag(self.next_tag));
    }

    /// Whether a batch has been committed meanwhile.
    ///
    /// # Errors
    /// That of the commit.
    pub(crate) fn is_committed(&mut self) -> Result<bool> {
        self.store.drain(&mut self.completions);
        let is_committed = !self.completions.is_empty();
        for completion in self.completions.drain(..) {
            completion.result?;
        }
        Ok(is_committed)
    }

    /// Waits for the batch that was submitted.
    ///
    /// # Errors
    /// That of the commit.
    pub(crate) fn wait(&mut self) -> Result<()> {
        while !self.is_committed()? {
            self.store.wait();
        }
        Ok(())
    }
}
