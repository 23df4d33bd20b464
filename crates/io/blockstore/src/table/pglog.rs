//! PG logs: chunks of entries in the KV store. Entries since the last checkpoint make new chunks; old ones are deleted as a
//! whole when all of their entries are trimmed, and read only when a PG is loaded or its log rewound.

use super::Table;
use crate::kv_schema::{self, LogChunk};
use nacre_buf::Bytes;
use nacre_denc::DecodeError;
use nacre_kv::KvError;
use nacre_txn::Op;
use nacre_types::{Eversion, SpgId};
use std::collections::VecDeque;

/// Entries of a chunk at most.
const CHUNK_ENTRIES_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
enum ChunkError {
    #[error(transparent)]
    Kv(#[from] KvError),
    #[error(transparent)]
    Malformed(#[from] DecodeError),
}

/// The least version above.
fn above(version: Eversion) -> Eversion {
    Eversion::new(version.epoch, version.version.saturating_add(1))
}

impl Table {
    pub(super) fn apply_log(&mut self, at: SpgId, op: Op) {
        match op {
            Op::LogAppend { version, entry } => self.append_entry(at, version, &entry),
            Op::LogTrim { to } => self.trim_log(at, to),
            Op::LogRewind { to } => self.rewind_log(at, to),
            op => unreachable!("{op:?} was handled before"),
        }
    }

    /// Runs `work` on the keys of the chunks. The first time, they are read.
    fn with_chunks<R>(&self, at: SpgId, work: impl FnOnce(&mut VecDeque<Eversion>) -> R) -> Option<R> {
        let mut chunks = self.collections.get(&at)?.chunks.borrow_mut();
        if chunks.is_none() {
            // No entry was changed before: each change comes by here.
            let mut found = VecDeque::new();
            let prefix = kv_schema::log_prefix(&at);
            let outcome = kv_schema::scan::<ChunkError>(self.kv.as_ref(), &prefix, |key, _| {
                found.push_back(kv_schema::decode_log_key(key)?);
                Ok(())
            });
            self.note(outcome)?;
            *chunks = Some(found);
        }
        chunks.as_mut().map(work)
    }

    fn chunk(&self, at: SpgId, key: Eversion) -> LogChunk {
        if let Some(chunk) = self.log.get(&(at, key)) {
            return chunk.cloned().unwrap_or_default();
        }
        let value = self.note(self.kv.get(&kv_schema::log_key(&at, key))).flatten();
        value.and_then(|value| self.note(kv_schema::decode_log(value))).unwrap_or_default()
    }

    fn append_entry(&mut self, at: SpgId, version: Eversion, entry: &[u8]) {
        let last = self.with_chunks(at, |chunks| chunks.back().copied()).flatten();
        let added = last.filter(|key| key.epoch == version.epoch).and_then(|key| {
            self.log.change(&(at, key), |chunk| {
                let has_room = chunk.len() < CHUNK_ENTRIES_MAX;
                has_room.then(|| chunk.push(version.version, entry))
            })?
        });
        if added.is_none() {
            let mut chunk = LogChunk::default();
            chunk.push(version.version, entry);
            self.log.put((at, version), chunk);
            self.with_chunks(at, |chunks| {
                debug_assert!(chunks.back().is_none_or(|last| *last < version), "logs ascend");
                chunks.push_back(version);
            });
        }
    }

    /// A chunk goes when the next one begins within what is trimmed.
    fn trim_log(&mut self, at: SpgId, to: Eversion) {
        let gone = self.with_chunks(at, |chunks| {
            let mut gone = Vec::new();
            while chunks.get(1).is_some_and(|second| *second <= above(to)) {
                gone.extend(chunks.pop_front());
            }
            gone
        });
        gone.into_iter().flatten().for_each(|key| self.log.delete((at, key)));
        if let Some(collection) = self.collections.get_mut(&at).filter(|collection| collection.log_tail < to)
        {
            collection.log_tail = to;
            self.pairs
                .put(kv_schema::collection_key(&at), kv_schema::encode_collection(to, collection.space));
        }
    }

    fn rewind_log(&mut self, at: SpgId, to: Eversion) {
        let gone = self.with_chunks(at, |chunks| chunks.split_off(chunks.partition_point(|key| *key <= to)));
        gone.into_iter().flatten().for_each(|key| self.log.delete((at, key)));
        let Some(key) = self.with_chunks(at, |chunks| chunks.back().copied()).flatten() else { return };
        let chunk = self.chunk(at, key);
        let entries = chunk.entries().into_iter();
        let kept: LogChunk =
            entries.filter(|(version, _)| Eversion::new(key.epoch, *version) <= to).collect();
        if kept.len() < chunk.len() {
            self.log.put((at, key), kept);
        }
    }

    pub(super) fn remove_log(&mut self, at: SpgId) {
        let gone = self.with_chunks(at, std::mem::take);
        gone.into_iter().flatten().for_each(|key| self.log.delete((at, key)));
    }

    /// The entries of a log, in order.
    pub(crate) fn log_entries(&self, at: &SpgId) -> Vec<(Eversion, Bytes)> {
        let Some(tail) = self.collections.get(at).map(|collection| collection.log_tail) else {
            return Vec::new();
        };
        let keys: Vec<Eversion> =
            self.with_chunks(*at, |chunks| chunks.iter().copied().collect()).unwrap_or_default();
        let mut out = Vec::new();
        for key in keys {
            let entries = self.chunk(*at, key).entries().into_iter();
            let entries = entries.map(|(version, entry)| (Eversion::new(key.epoch, version), entry));
            out.extend(entries.filter(|(version, _)| *version > tail));
        }
        out
    }
}
