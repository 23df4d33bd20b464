//! Collections that are gone, and what is left of them: objects and values go some at a time, between what the shard does for
//! others, for there may be millions.
//!
//! ```text
//!   collection 3.1, keyspace 0    RemoveCollection    dead: (3.1, 0)      ... every step removes some of its names,
//!                                 CreateCollection    3.1 is keyspace 17      their objects, and then its values
//! ```
//! Nobody finds the names meanwhile: lookups begin with the collection. What a step removes is in no record of the log: after a
//! crash the list, which is stored like everything else, has the keyspace still, and the steps are taken again. Blocks that they
//! released were not given to anybody, since that waits for the checkpoint.

use super::Table;
use crate::error::OpenError;
use crate::kv_schema::{self, Keyspace, prefix};
use nacre_buf::Bytes;
use nacre_kv::{KvStore, Pair, end_of_prefix};
use nacre_types::SpgId;
use std::collections::VecDeque;

/// What one step costs at most, an object or value being one, and so many blocks as well.
const STEP_COST_MAX: usize = 128;
const BLOCKS_PER_COST: usize = 64;

/// Keyspaces of removed collections, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    dead: VecDeque<Keyspace>,
    reached: Reached,
}

/// How far the removal of the first one is.
#[derive(Debug, Default)]
struct Reached {
    /// All of its objects are removed.
    objects: bool,
    /// The last key that was.
    key: Option<Bytes>,
}

impl Removals {
    /// What a checkpoint left.
    pub(super) fn load(kv: &dyn KvStore) -> Result<Self, OpenError> {
        let mut dead = VecDeque::new();
        kv_schema::scan::<OpenError>(kv, &[prefix::DEAD], |key, _| {
            dead.push_back(Keyspace::decode(prefix::DEAD, key)?);
            Ok(())
        })?;
        Ok(Self { dead, reached: Reached::default() })
    }

    /// Some of a former collection of this name is left.
    pub(super) fn has(&self, at: &SpgId) -> bool {
        self.dead.iter().any(|dead| dead.at == *at)
    }
}

impl Table {
    /// Keyspaces that nobody refers to and that are not empty yet.
    pub(crate) fn dead_keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        self.removals.dead.iter()
    }

    /// The collection is gone for all readers, and a small one altogether.
    pub(crate) fn remove_collection(&mut self, at: SpgId) {
        let Some(keyspace) = self.keyspace_of(&at) else { return };
        self.remove_log(at);
        self.recent.borrow_mut().forget_all(&at);
        self.pairs.delete(kv_schema::collection_key(&at));
        self.collections.remove(&at);
        self.pairs.put(kv_schema::dead_key(&keyspace), Bytes::new());
        self.removals.dead.push_back(keyspace);
        self.remove_some();
    }

    /// Removes some of what is left of collections that are gone; true while there is more.
    pub(crate) fn remove_some(&mut self) -> bool {
        let Some(keyspace) = self.removals.dead.front().copied() else { return false };
        let mut left = STEP_COST_MAX;
        if !self.removals.reached.objects {
            left = self.remove_objects(&keyspace, left);
        }
        if left > 0 && self.remove_values(&keyspace, left) {
            self.pairs.delete(kv_schema::dead_key(&keyspace));
            self.removals.dead.pop_front();
            self.removals.reached = Reached::default();
        }
        !self.removals.dead.is_empty()
    }

    /// The next pairs under a prefix.
    fn next_of(&self, prefix: &Bytes, count_max: usize) -> Vec<Pair> {
        let start = self.removals.reached.key.as_ref().unwrap_or(prefix);
        self.scan(start, &end_of_prefix(prefix).unwrap_or_default(), count_max)
    }

    /// Removes objects for up to `cost_max`; what is left of it when there are no more.
    fn remove_objects(&mut self, keyspace: &Keyspace, cost_max: usize) -> usize {
        let mut left = cost_max;
        for (key, value) in self.next_of(&kv_schema::name_prefix(keyspace), cost_max) {
            let id = self.note(kv_schema::decode_name_id(&value));
            self.clean_names.borrow_mut().remove(key.as_ref());
            self.removals.reached.key = Some(key.clone());
            self.pairs.delete(key);
            let blocks = id.map_or(0, |id| self.drop_object(id));
            left = left.saturating_sub(1 + blocks / BLOCKS_PER_COST);
            if left == 0 {
                return 0;
            }
        }
        self.removals.reached = Reached { objects: true, key: None };
        left
    }

    /// Removes up to so many values of the collection itself; true when there are no more.
    fn remove_values(&mut self, keyspace: &Keyspace, count_max: usize) -> bool {
        let found = self.next_of(&kv_schema::meta_key(keyspace, b""), count_max);
        let is_last = found.len() < count_max;
        for (key, _) in found {
            self.removals.reached.key = Some(key.clone());
            self.pairs.delete(key);
        }
        is_last
    }
}
