//! `ceph tell osd.N bench`: writes to the store and measures, a little in each turn.
//!
//! Each shard does its part of it, and the first one, which got the command, adds up what they measure (`gather`). They go on serving
//! everybody meanwhile, heartbeats as well, so what is measured is what the store gives beside the clients' work.

use crate::bench_workload::{DURATION_MAX, UNDER_WAY_BYTES_MAX, Workload, result};
use crate::command_reply::Failure;
use crate::own_collection::BENCH_COLLECTION;
use crate::pg_driver::{PgDriver, room};
use crate::shard_msg::ShardMsg;
use crate::shard_net::ShardCx;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_store::ObjectStore;
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::{Errno, HObject, Stamp};
use std::collections::VecDeque;

/// Of what is written, so much is in memory, over and over.
const PATTERN_BYTES: usize = 1 << 20;
/// Blocks under way at a time, of all shards.
const UNDER_WAY_MAX: usize = 128;

/// The bench of a shard, if one is under way.
#[derive(Debug, Default)]
pub(crate) struct BenchSlot {
    running: Option<Bench>,
    /// Blocks that benches have submitted so far, which number the tokens of the next.
    blocks: u64,
}

impl BenchSlot {
    /// Begins this shard's part, the `nth` of so many, of the bench with this number among commands for all shards.
    ///
    /// # Errors
    /// Another one is under way, or the store has no room for it.
    pub(crate) fn start(
        &mut self,
        number: u64,
        (all, nth, shards): (Workload, usize, usize),
        store: &dyn ObjectStore,
        now: Stamp,
    ) -> Result<(), Failure> {
        if self.running.is_some() {
            return Err((Errno::EBUSY, "another bench is under way".to_owned()));
        }
        let Workload { count, size } = all.part(nth, shards);
        if !room(store).has_room_for_bench(count) {
            return Err((
                Errno::ENOSPC,
                format!("the store has no room for {count} bytes beside clients' data"),
            ));
        }
        let pattern = Bytes::from(vec![0x5a; PATTERN_BYTES]);
        let (written, under_way, writers) = (0, VecDeque::new(), all.writers(shards));
        self.running = Some(Bench { number, count, size, writers, pattern, written, under_way, began: now });
        Ok(())
    }

    /// When the bench is due.
    pub(crate) fn next_deadline(&self, now: Stamp) -> Option<Stamp> {
        self.running.as_ref().map(|bench| bench.next_deadline(now))
    }

    /// What the store has made durable for no PG.
    pub(crate) fn durable(&mut self, token: StoreToken) {
        self.running.iter_mut().for_each(|bench| bench.durable(token));
    }

    /// Writes as much as may be under way, and answers at the end.
    pub(crate) fn go_on(&mut self, pgs: &mut PgDriver, cx: &mut ShardCx<'_>) {
        let Self { running, blocks } = self;
        *running = running.take().and_then(|bench| bench.go_on(pgs, cx, blocks));
    }
}

/// A bench under way.
#[derive(Debug)]
struct Bench {
    /// By which the shards' parts of it are known.
    number: u64,
    count: u64,
    size: u64,
    /// Shards that write.
    writers: usize,
    pattern: Bytes,
    written: u64,
    /// What is not durable, oldest first, with its bytes.
    under_way: VecDeque<(StoreToken, u64)>,
    began: Stamp,
}

fn object() -> HObject {
    HObject::head(-1, ByteStr::EMPTY, ByteStr::EMPTY, ByteStr::from_static("bench"))
}

impl Bench {
    fn until(&self) -> Stamp {
        self.began + DURATION_MAX
    }

    fn has_room(&self) -> bool {
        let bytes: u64 = self.under_way.iter().map(|(_, bytes)| bytes).sum();
        let has_room = bytes < UNDER_WAY_BYTES_MAX / self.writers as u64;
        self.under_way.is_empty() || (has_room && self.under_way.len() < UNDER_WAY_MAX / self.writers)
    }

    fn data(&self, bytes: u64) -> BufList {
        let mut left = usize::try_from(bytes).unwrap_or_default();
        let mut data = BufList::new();
        while left > 0 {
            let piece = self.pattern.slice(..left.min(PATTERN_BYTES));
            left -= piece.len();
            data.push(piece);
        }
        data
    }

    /// When it is due: at once when the store has made room for more.
    fn next_deadline(&self, now: Stamp) -> Stamp {
        let is_done = self.written >= self.count && self.under_way.is_empty();
        let may_write = self.written < self.count && self.has_room();
        if is_done || may_write { now } else { self.until() }
    }

    /// What the store has made durable for no PG: a block, unless it is one of a bench that gave up, or no bench's at all.
    fn durable(&mut self, token: StoreToken) {
        if self.under_way.front().is_some_and(|(oldest, _)| *oldest == token) {
            self.under_way.pop_front();
        }
    }

    /// Writes as much as may be under way to an object of a collection that belongs to no pool, and says at the end what was measured. Yields
    /// what is left to do. `blocks` counts the blocks of all benches, which number the tokens.
    fn go_on(mut self, pg_driver: &mut PgDriver, cx: &mut ShardCx<'_>, blocks: &mut u64) -> Option<Self> {
        while self.written < self.count && self.has_room() && !pg_driver.was_broken() {
            let length = self.size.min(self.count - self.written);
            let data = self.data(length);
            let op = Op::Write { object: object(), offset: self.written, data };
            let txn = Transaction { collection: BENCH_COLLECTION, ops: vec![op] };
            *blocks += 1;
            let token = StoreToken::without_pg(*blocks);
            pg_driver.submit(cx, txn, token);
            self.under_way.push_back((token, length));
            self.written += length;
        }
        let elapsed = cx.now.since(self.began);
        let outcome = if self.written >= self.count && self.under_way.is_empty() {
            Ok(result(self.written, self.size, elapsed.as_secs_f64()))
        } else if pg_driver.was_broken() {
            Err((Errno::EIO, "the store has failed: see the OSD's log".to_owned()))
        } else if cx.now >= self.until() {
            Err((Errno::ETIMEDOUT, format!("the store did not finish within {DURATION_MAX:?}")))
        } else {
            return Some(self);
        };
        let remove = Transaction { collection: BENCH_COLLECTION, ops: vec![Op::RemoveCollection] };
        pg_driver.submit(cx, remove, StoreToken::without_pg(0));
        let router = &mut cx.net.router;
        router.send(0, ShardMsg::Part(self.number, router.me, Box::new(outcome)));
        None
    }
}
