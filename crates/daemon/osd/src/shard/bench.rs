//! `ceph tell osd.N bench`: writes to the store and measures, a little in each turn.
//!
//! The shard that does it may be OSD control's, which answers heartbeats: it goes on serving everybody meanwhile, so what is measured is
//! what the store gives beside the clients' work.

use super::Shard;
use super::room::room;
use crate::admin::{self, Failure};
use nacre_buf::{ByteStr, Bytes};
use nacre_msg::Message;
use nacre_pg::SessionId;
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::{Errno, HObject, PgId, SpgId, Stamp};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Most that one bench writes.
const BYTES_MAX: u64 = 1 << 30;
/// Largest block.
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Most blocks.
const BLOCKS_MAX: u64 = 65_536;
const BYTES_DEFAULT: u64 = 64 << 20;
const BLOCK_BYTES_DEFAULT: u64 = 4 << 20;
/// A store that has not taken it all by then is too slow for an answer.
const DURATION_MAX: Duration = Duration::from_secs(20);
/// Bytes under way at a time; one block at least. Enough to keep a device busy, little enough that clients hardly wait behind it.
const UNDER_WAY_BYTES_MAX: u64 = 8 << 20;
/// Blocks under way at a time.
const UNDER_WAY_MAX: usize = 128;

/// A bench under way.
#[derive(Debug)]
pub(super) struct Bench {
    /// Who asked, and under which number.
    session: SessionId,
    tid: u64,
    count: u64,
    size: u64,
    block: Bytes,
    written: u64,
    /// What is not durable, oldest first, with its bytes.
    under_way: VecDeque<(StoreToken, u64)>,
    began: Stamp,
}

impl Bench {
    fn until(&self) -> Stamp {
        self.began + DURATION_MAX
    }

    fn has_room(&self) -> bool {
        let bytes: u64 = self.under_way.iter().map(|(_, bytes)| bytes).sum();
        self.under_way.is_empty() || (bytes < UNDER_WAY_BYTES_MAX && self.under_way.len() < UNDER_WAY_MAX)
    }
}

fn scratch() -> SpgId {
    SpgId::replicated(PgId::new(-1, 0))
}

fn object() -> HObject {
    HObject::head(-1, ByteStr::EMPTY, ByteStr::EMPTY, ByteStr::from_static("bench"))
}

impl Shard {
    /// Begins to write blocks of one object of a collection that belongs to no pool; the answer comes when it is done.
    pub(crate) fn start_bench(
        &mut self,
        session: SessionId,
        tid: u64,
        count: Option<u64>,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        let (count, size) = (count.unwrap_or(BYTES_DEFAULT), size.unwrap_or(BLOCK_BYTES_DEFAULT));
        if size == 0 || size > BLOCK_BYTES_MAX || count > BYTES_MAX || count / size > BLOCKS_MAX {
            let limits = format!(
                "count up to {BYTES_MAX} bytes, size from 1 to {BLOCK_BYTES_MAX} bytes, and at most {BLOCKS_MAX} blocks"
            );
            return Err((Errno::EINVAL, limits));
        }
        if self.bench.is_some() {
            return Err((Errno::EBUSY, "another bench is under way".to_owned()));
        }
        if !room(&self.store.usage()).has_room_for_bench(count) {
            return Err((
                Errno::ENOSPC,
                format!("the store has no room for {count} bytes beside clients' data"),
            ));
        }
        let block = Bytes::from(vec![0x5a; usize::try_from(size).unwrap_or_default()]);
        let (under_way, began) = (VecDeque::new(), self.now);
        self.bench = Some(Bench { session, tid, count, size, block, written: 0, under_way, began });
        Ok(())
    }

    /// When it is due, if one is under way: at once when the store has made room for more.
    pub(super) fn bench_deadline(&self) -> Option<Stamp> {
        let bench = self.bench.as_ref()?;
        let is_done = bench.written >= bench.count && bench.under_way.is_empty();
        let may_write = bench.written < bench.count && bench.has_room();
        Some(if is_done || may_write { self.now } else { bench.until() })
    }

    /// What the store has made durable for no PG: a block, unless it is one of a bench that gave up, or no bench's at all.
    pub(super) fn bench_durable(&mut self, token: StoreToken) {
        let Some(bench) = &mut self.bench else { return };
        if bench.under_way.front().is_some_and(|(oldest, _)| *oldest == token) {
            bench.under_way.pop_front();
        }
    }

    /// Writes as much as may be under way, and answers at the end.
    pub(super) fn continue_bench(&mut self) {
        let Some(mut bench) = self.bench.take() else { return };
        while bench.written < bench.count && bench.has_room() && !self.broken {
            let length = bench.size.min(bench.count - bench.written);
            let data = bench.block.slice(..usize::try_from(length).unwrap_or_default()).into();
            let op = Op::Write { object: object(), offset: bench.written, data };
            let txn = Transaction { collection: scratch(), ops: vec![op] };
            self.bench_blocks += 1;
            let token = StoreToken::without_pg(self.bench_blocks);
            self.submit(txn, token);
            bench.under_way.push_back((token, length));
            bench.written += length;
        }
        let elapsed = self.now.since(bench.began);
        let outcome = if bench.written >= bench.count && bench.under_way.is_empty() {
            Ok(bench.result(elapsed))
        } else if self.now >= bench.until() || self.broken {
            Err((Errno::ETIMEDOUT, format!("the store did not finish within {DURATION_MAX:?}")))
        } else {
            self.bench = Some(bench);
            return;
        };
        let remove = Transaction { collection: scratch(), ops: vec![Op::RemoveCollection] };
        self.submit(remove, StoreToken::without_pg(0));
        self.tell_session(bench.session, Message::from(admin::reply(outcome)).encode(bench.tid));
    }
}

impl Bench {
    fn result(&self, elapsed: Duration) -> Value {
        let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
        json!({
            "bytes_written": self.written,
            "blocksize": self.size,
            "elapsed_sec": seconds,
            "bytes_per_sec": self.written as f64 / seconds,
            "iops": (self.written as f64 / self.size as f64) / seconds,
        })
    }
}
