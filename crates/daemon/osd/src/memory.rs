//! [`Memory`]: a shard's part of the memory target: what its messages, buffers and logs may take, and each second what it keeps of what
//! can be read again.

use crate::pg_driver::PgDriver;
use crate::shard_net::ShardCx;
use nacre_buf::AlignedBuf;
use nacre_options::Values;
use nacre_osd_core::{LogShare, MemoryPlan, MemoryTuner};
use nacre_pg::{LogLimits, MessageLimits};
use nacre_service::IntakeLimits;
use nacre_store::StoreMemory;
use std::time::Duration;

/// A client that has taken nothing of what waits for it for so long loses its connection, while others wait for memory.
const UNREAD_AFTER: Duration = Duration::from_secs(60);

/// The memory target of a part of an OSD, and of all that runs in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryTarget {
    /// Bytes that this part is to keep to.
    pub bytes: u64,
    /// Bytes that all OSDs of the process are to keep to: what the process has is theirs by this measure.
    pub process_bytes: u64,
}

impl MemoryTarget {
    /// The part of one of so many shards.
    #[must_use]
    pub fn of(self, shards: u64) -> Self {
        Self { bytes: self.bytes / shards.max(1), ..self }
    }
}

/// What a shard does for its memory target.
#[derive(Debug)]
pub(crate) struct Memory {
    target: Option<MemoryTarget>,
    tuner: Option<MemoryTuner>,
    /// Logs without a target, and as they are now.
    log_limits: (LogLimits, LogLimits),
    /// Bytes of the process's own memory, when they were last looked at.
    process_bytes: u64,
}

/// How long clients' messages may be with that target.
pub(crate) fn message_limits(target: Option<MemoryTarget>) -> MessageLimits {
    let usual = MessageLimits::default();
    if target.is_none() {
        return usual;
    }
    let plan = plan(target);
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    MessageLimits {
        input_bytes: usual.input_bytes.min(bytes(plan.message_bytes_max())),
        transaction_bytes: usual.transaction_bytes.min(bytes(plan.transaction_bytes_max())),
        reply_bytes: usual.reply_bytes.min(plan.transaction_bytes_max()),
        omap_bytes: usual.omap_bytes.min(bytes(plan.omap_bytes_max())),
    }
}

/// What messages may take of which some has come.
pub(crate) fn intake_limits(target: Option<MemoryTarget>) -> IntakeLimits {
    let (plan, bytes) = (plan(target), |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX));
    IntakeLimits {
        client_bytes: bytes(plan.client_intake_bytes()),
        peer_bytes: bytes(plan.peer_intake_bytes()),
    }
}

fn plan(target: Option<MemoryTarget>) -> MemoryPlan {
    MemoryPlan::new(target.map(|target| target.bytes))
}

impl Memory {
    /// For a shard whose store has `store` in memory, and whose logs are as `log_limits` say where there is no target.
    pub(crate) fn new(target: Option<MemoryTarget>, store: StoreMemory, log_limits: LogLimits) -> Self {
        let tuner = target.map(|target| MemoryTuner::new(target.bytes, store.clean_bytes_max));
        Self { target, tuner, log_limits: (log_limits, log_limits), process_bytes: 0 }
    }

    /// On the shard's thread, which has its own pool.
    pub(crate) fn begin(&self) {
        AlignedBuf::limit_pool(usize::try_from(plan(self.target).pool_bytes()).unwrap_or(usize::MAX));
    }

    /// Bytes that clients' messages may take.
    pub(crate) fn client_bytes(&self) -> usize {
        usize::try_from(plan(self.target).client_bytes()).unwrap_or(usize::MAX)
    }

    /// Takes over what options say.
    pub(crate) fn follow_options(&mut self, options: &Values) {
        let least = options.count("osd_memory_cache_min") as u64;
        self.tuner.iter_mut().for_each(|tuner| tuner.set_clean_min(least));
    }

    /// Logs for so many PGs; `None` where they are as before.
    fn logs_for(&mut self, pgs: usize) -> Option<LogLimits> {
        self.target?;
        let (usual, now) = self.log_limits;
        let share = LogShare {
            entries: usual.target as u64,
            entries_max: usual.max as u64,
            bytes_max: usual.bytes_max as u64,
        };
        let share = plan(self.target).log_share(pgs as u64, share);
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let limits = LogLimits {
            target: count(share.entries),
            max: count(share.entries_max),
            bytes_max: count(share.bytes_max),
            ..usual
        };
        self.log_limits.1 = limits;
        (limits != now).then_some(limits)
    }

    /// For `perf dump`.
    pub(crate) fn dump(&self) -> serde_json::Value {
        let (target, tuner) = (self.target.map_or(0, |target| target.bytes), self.tuner.as_ref());
        serde_json::json!({
            "target_bytes": target,
            "process_bytes": self.process_bytes,
            "clean_bytes_max": tuner.map_or(0, MemoryTuner::clean_bytes),
            "given_back": tuner.map_or(0, MemoryTuner::given_back_count),
            "pg_log_entries": self.log_limits.1.target,
        })
    }
}

impl PgDriver {
    /// Looks at the process's memory, each second: what is above the target goes back, or is taken from what can be read again.
    pub(crate) fn keep_memory_target(&mut self, cx: &mut ShardCx<'_>, give_back_memory: fn()) {
        if let Some(limits) = self.memory.logs_for(self.pgs.len()) {
            self.pgs.set_log_limits(limits);
        }
        if !self.awaiting_memory.is_empty() {
            let ended = cx.net.messenger.end_unread(cx.now, UNREAD_AFTER);
            if ended > 0 {
                tracing::warn!(
                    osd = self.osd,
                    ended,
                    "clients took no answers while others waited for memory: their connections end"
                );
            }
        }
        let Self { memory, store, .. } = self;
        let (Some(target), Some(tuner)) = (memory.target, &mut memory.tuner) else { return };
        let Some(process_bytes) = cx.clock.process_memory() else { return };
        memory.process_bytes = process_bytes;
        let share =
            u128::from(process_bytes) * u128::from(target.bytes) / u128::from(target.process_bytes.max(1));
        let held = u64::try_from(share).unwrap_or(u64::MAX);
        let StoreMemory { data_bytes, metadata_bytes, .. } = store.memory();
        let before = tuner.clean_bytes();
        let order = tuner.look(cx.now, held, data_bytes + metadata_bytes);
        if order.clean_bytes != before {
            store.limit_clean(order.clean_bytes);
        }
        if order.give_back {
            AlignedBuf::empty_pool();
            cx.net.messenger.trim();
            give_back_memory();
        }
    }
}
