//! [`Memory`]: a shard's part of the memory target: what its messages, buffers and logs may take, and each second what it keeps of what
//! can be read again.

use nacre_buf::AlignedBuf;
use nacre_options::Values;
use nacre_osd_core::{LogShare, MemoryPlan, MemoryTuner};
use nacre_pg::{LogLimits, MessageLimits};
use nacre_service::IntakeLimits;
use nacre_store::{ObjectStore, StoreMemory};
use nacre_types::Stamp;

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
        reply_bytes: usual.reply_bytes.min(plan.answer_bytes_max()),
        omap_bytes: usual.omap_bytes.min(bytes(plan.omap_bytes_max())),
        copied_bytes: usual.copied_bytes.min(bytes(plan.copied_bytes())),
    }
}

/// What messages may take of which some has come, at each of the `shards`.
pub(crate) fn intake_limits(target: Option<MemoryTarget>, shards: usize) -> IntakeLimits {
    let (plan, bytes) = (plan(target), |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX));
    IntakeLimits {
        client_bytes: bytes(plan.client_intake_bytes()) / shards.max(1),
        peer_bytes: bytes(plan.peer_intake_bytes()) / shards.max(1),
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
    pub(crate) fn logs_for(&mut self, pgs: usize) -> Option<LogLimits> {
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

    /// Looks at what the process has, `process_bytes`, and lets the store keep what may be kept; true when free memory is to go back to the
    /// system.
    pub(crate) fn look(&mut self, now: Stamp, process_bytes: u64, store: &mut dyn ObjectStore) -> bool {
        let (Some(target), Some(tuner)) = (self.target, &mut self.tuner) else { return false };
        self.process_bytes = process_bytes;
        let whole = u128::from(target.process_bytes.max(1));
        let held = u128::from(process_bytes) * u128::from(target.bytes) / whole;
        let StoreMemory { data_bytes, metadata_bytes, .. } = store.memory();
        let before = tuner.clean_bytes();
        let held = u64::try_from(held).unwrap_or(u64::MAX);
        let order = tuner.look(now, held, data_bytes + metadata_bytes);
        if order.clean_bytes != before {
            store.limit_clean(order.clean_bytes);
        }
        order.give_back
    }

    /// For `perf dump`.
    pub(crate) fn dump(&self) -> serde_json::Value {
        let (target, tuner) = (self.target.map_or(0, |target| target.bytes), self.tuner.as_ref());
        serde_json::json!({
            "target_bytes": target,
            "process_bytes": self.process_bytes,
            "clean_bytes_max": tuner.map_or(0, MemoryTuner::clean_bytes),
            "given_back": tuner.map_or(0, MemoryTuner::given_back_count),
            "pg_log_entries_max": self.log_limits.1.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory(target_bytes: u64) -> Memory {
        let target = MemoryTarget { bytes: target_bytes, process_bytes: target_bytes };
        let store = StoreMemory { clean_bytes_max: 64 * MIB, ..StoreMemory::default() };
        Memory::new(Some(target), store, LogLimits::default())
    }

    #[test]
    fn something_clean_is_kept_however_much_memory_others_need() {
        let mut memory = memory(256 * MIB);
        memory.follow_options(&Values::from_iter([("osd_memory_cache_min", "10485760")]));
        let tuner = memory.tuner.as_mut().expect("there is a target");
        for second in 1..4 {
            tuner.look(Stamp(second * 1_000_000_000), 1024 * MIB, 64 * MIB);
        }
        assert_eq!(memory.dump()["clean_bytes_max"], 10 * MIB);
    }

    #[test]
    fn logs_change_with_the_number_of_pgs_only() {
        let mut memory = memory(256 * MIB);
        assert_eq!(memory.logs_for(1), None, "as usual");
        let many = memory.logs_for(500).expect("shorter");
        assert_eq!(many.target, LogLimits::default().target, "as many requests are remembered");
        assert!(many.target + many.trim_min < many.max && many.max < LogLimits::default().max);
        assert_eq!(memory.logs_for(500), None);
        assert_eq!(memory.logs_for(1), Some(LogLimits::default()));
    }

    #[test]
    fn messages_are_bounded_by_small_targets_only() {
        let limits = |mib: u64| message_limits(Some(MemoryTarget { bytes: mib * MIB, process_bytes: 0 }));
        assert_eq!(limits(2048), MessageLimits::default());
        assert_eq!(limits(1024).input_bytes, MessageLimits::default().input_bytes);
        assert_eq!(message_limits(None), MessageLimits::default());
        let small = limits(256);
        assert_eq!((small.input_bytes, small.omap_bytes, small.copied_bytes), (32 << 20, 2 << 20, 2 << 20));
        assert_eq!((small.transaction_bytes, small.reply_bytes), (64 << 20, 40 << 20));
    }
}
