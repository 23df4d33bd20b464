//! `ceph tell osd.N bench`: writes to the store and measures, a little in each turn.
//!
//! The shard that does it may be OSD control's, which answers heartbeats: it goes on serving everybody meanwhile, so what is measured is
//! what the store gives beside the clients' work.

use crate::command_reply::{Failure, reply};
use crate::pg_driver::{PgDriver, room};
use crate::shard_net::ShardCx;
use nacre_buf::{ByteStr, Bytes};
use nacre_msg::Message;
use nacre_pg::SessionId;
use nacre_store::ObjectStore;
use nacre_txn::{Op, StoreToken, Transaction};
use nacre_types::{Errno, HObject, PgId, SpgId, Stamp};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Most that one bench writes.
const BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a block.
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Most blocks of a bench.
const BLOCKS_MAX: u64 = 65_536;
const BYTES_DEFAULT: u64 = 64 << 20;
const BLOCK_BYTES_DEFAULT: u64 = 4 << 20;
/// A store that has not taken it all by then is too slow for an answer.
const DURATION_MAX: Duration = Duration::from_secs(20);
/// Bytes under way at a time; one block at least. Enough to keep a device busy, little enough that clients hardly wait behind it.
const UNDER_WAY_BYTES_MAX: u64 = 8 << 20;
/// Blocks under way at a time.
const UNDER_WAY_MAX: usize = 128;

/// The bench of a shard, if one is under way.
#[derive(Debug, Default)]
pub(crate) struct BenchSlot {
    running: Option<Bench>,
    /// Blocks that benches have submitted so far, which number the tokens of the next.
    blocks: u64,
}

impl BenchSlot {
    /// Begins a bench: `count` bytes in blocks of `size` bytes, answered to `session` under `tid` when it is done.
    pub(crate) fn start(
        &mut self,
        whose: (SessionId, u64),
        what: (Option<u64>, Option<u64>),
        store: &dyn ObjectStore,
        now: Stamp,
    ) -> Result<(), Failure> {
        self.running = Some(Bench::start(whose, what, self.running.is_some(), store, now)?);
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
    /// The client's session that asked, and under which number.
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

impl Bench {
    /// Begins to write blocks of one object of a collection that belongs to no pool; the answer comes when it is done. `is_busy`:
    /// another bench is under way.
    fn start(
        (session, tid): (SessionId, u64),
        (count, size): (Option<u64>, Option<u64>),
        is_busy: bool,
        store: &dyn ObjectStore,
        now: Stamp,
    ) -> Result<Self, Failure> {
        let (count, size) = (count.unwrap_or(BYTES_DEFAULT), size.unwrap_or(BLOCK_BYTES_DEFAULT));
        if size == 0 || size > BLOCK_BYTES_MAX || count > BYTES_MAX || count / size > BLOCKS_MAX {
            let limits = format!(
                "count up to {BYTES_MAX} bytes, size from 1 to {BLOCK_BYTES_MAX} bytes, and at most {BLOCKS_MAX} blocks"
            );
            return Err((Errno::EINVAL, limits));
        }
        if is_busy {
            return Err((Errno::EBUSY, "another bench is under way".to_owned()));
        }
        if !room(store).has_room_for_bench(count) {
            return Err((
                Errno::ENOSPC,
                format!("the store has no room for {count} bytes beside clients' data"),
            ));
        }
        let block = Bytes::from(vec![0x5a; usize::try_from(size).unwrap_or_default()]);
        Ok(Self { session, tid, count, size, block, written: 0, under_way: VecDeque::new(), began: now })
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

    /// Writes as much as may be under way, and answers at the end. Yields what is left to do. `blocks` counts the blocks of all benches,
    /// which number the tokens.
    fn go_on(mut self, pg_driver: &mut PgDriver, cx: &mut ShardCx<'_>, blocks: &mut u64) -> Option<Self> {
        while self.written < self.count && self.has_room() && !pg_driver.was_broken() {
            let length = self.size.min(self.count - self.written);
            let data = self.block.slice(..usize::try_from(length).unwrap_or_default()).into();
            let op = Op::Write { object: object(), offset: self.written, data };
            let txn = Transaction { collection: scratch(), ops: vec![op] };
            *blocks += 1;
            let token = StoreToken::without_pg(*blocks);
            pg_driver.submit(cx, txn, token);
            self.under_way.push_back((token, length));
            self.written += length;
        }
        let elapsed = cx.now.since(self.began);
        let outcome = if self.written >= self.count && self.under_way.is_empty() {
            Ok(self.result(elapsed))
        } else if cx.now >= self.until() || pg_driver.was_broken() {
            Err((Errno::ETIMEDOUT, format!("the store did not finish within {DURATION_MAX:?}")))
        } else {
            return Some(self);
        };
        let remove = Transaction { collection: scratch(), ops: vec![Op::RemoveCollection] };
        pg_driver.submit(cx, remove, StoreToken::without_pg(0));
        cx.net.tell_session(self.session, Message::from(reply(outcome)).encode(self.tid));
        None
    }

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
