//! Counters and operations under way of one shard, of which those of an OSD are made, for `ceph tell osd.N perf dump` and `dump_ops_in_flight`; slow requests in the log.

use crate::device;
use crate::perf_counters::PerfSums;
use crate::pg_driver::PgDriver;
use crate::shard_net::ShardNet;
use crate::tracker;
use nacre_env::CpuTimes;
use nacre_msg::stats::SlowOps;
use nacre_msg::{SLOW_REQUESTS_COUNT_MAX, SlowRequest};
use nacre_pg::OpInFlight;
use nacre_service::IntakeReport;
use nacre_store::StoreCounters;
use nacre_types::{Stamp, UTime};
use std::time::Duration;

const NS_PER_US: u64 = 1000;

/// Slow messages are named in the log at most this often.
pub(crate) const SLOW_OPS_INTERVAL: Duration = Duration::from_secs(5);

/// Messages that are not complete yet, and peers that have not proved themselves.
fn intake(report: &IntakeReport, net: &ShardNet) -> serde_json::Value {
    serde_json::json!({
        "peers_held": u64::from(net.peers_held),
        "peer_holds": net.peer_holds,
        "client_bytes": report.client_bytes,
        "peer_bytes": report.peer_bytes,
        "waiting": report.waiting,
        "waits": report.waits,
        "stalled": report.stalled,
        "half_open": report.half_open,
        "half_open_bytes": report.half_open_bytes,
        "half_open_refused": report.half_open_refused,
    })
}

/// Clients' messages that take longer than `limit`; none where that is zero.
fn slow(pgs: &PgDriver, limit: Duration, now: Stamp) -> impl Iterator<Item = OpInFlight<'_>> {
    pgs.ops_in_flight().filter(move |op| !limit.is_zero() && now.since(op.trace.received) >= limit)
}

/// How many of clients' messages take longer than `limit`, and the age of the oldest.
pub(crate) fn slow_ops(pgs: &PgDriver, limit: Duration, now: Stamp) -> SlowOps {
    let one = |op: OpInFlight<'_>| {
        let age_s = now.since(op.trace.received).as_secs();
        SlowOps { count: 1, oldest_s: u32::try_from(age_s).unwrap_or(u32::MAX) }
    };
    slow(pgs, limit, now).map(one).fold(SlowOps::default(), SlowOps::plus)
}

/// The oldest of clients' messages that take longer than `limit`, for our monitor.
pub(crate) fn slow_requests(pgs: &PgDriver, limit: Duration, now: Stamp) -> Vec<SlowRequest> {
    let mut slow: Vec<OpInFlight<'_>> = slow(pgs, limit, now).collect();
    slow.sort_by_key(|op| op.trace.received);
    slow.iter().take(SLOW_REQUESTS_COUNT_MAX).map(|op| tracker::slow_request(op, now)).collect()
}

/// Tells the log of clients' messages that take longer than `limit`, and where the oldest of them is; false when there are none.
pub(crate) fn warn_slow_ops(pgs: &PgDriver, limit: Duration, now: Stamp) -> bool {
    let Some(oldest) = slow(pgs, limit, now).min_by_key(|op| op.trace.received) else { return false };
    let (osd, count) = (pgs.osd, slow(pgs, limit, now).count());
    let (age, what) = (now.since(oldest.trace.received), tracker::warn_slow_ops(&oldest));
    tracing::warn!(osd, count, oldest_s = age.as_secs(), what, "slow requests");
    true
}

fn dump<'a>(ops: impl Iterator<Item = OpInFlight<'a>>, times: (Stamp, UTime)) -> serde_json::Value {
    let ops: Vec<_> = ops.map(|op| tracker::dump_op_in_flight(&op, times)).collect();
    serde_json::json!({ "num_ops": ops.len(), "ops": ops })
}

/// The messages of clients that this shard has.
pub(crate) fn dump_ops(pgs: &PgDriver, times: (Stamp, UTime)) -> serde_json::Value {
    dump(pgs.ops_in_flight(), times)
}

/// Those of them that take longer than `limit`. Ceph adds how many there are as `num_blocked_ops`.
pub(crate) fn dump_blocked_ops(pgs: &PgDriver, limit: Duration, times: (Stamp, UTime)) -> serde_json::Value {
    let mut shown = dump(slow(pgs, limit, times.0), times);
    shown["complaint_time"] = limit.as_secs_f64().into();
    shown["num_blocked_ops"] = shown["num_ops"].take();
    shown.as_object_mut().map(|fields| fields.remove("num_ops"));
    shown
}

/// The counters of a shard, for the manager.
pub(crate) fn perf_sums(pg_driver: &PgDriver, net: &ShardNet, cpu: CpuTimes) -> PerfSums {
    let (counters, usage) = (&pg_driver.counters, pg_driver.store.usage());
    let [reads, writes] = pg_driver.tracker.answers();
    let kept = pg_driver.throttle.kept_seconds();
    PerfSums {
        ops: counters.ops,
        op_in_bytes: counters.op_in_bytes,
        op_out_bytes: counters.op_out_bytes,
        latency: (counters.replies, counters.latency_ns),
        reads,
        writes,
        read_out_bytes: counters.read_out_bytes,
        write_in_bytes: counters.write_in_bytes,
        ops_in_flight: net.sessions.ops_in_flight() as u64,
        pg_count: pg_driver.pgs.all().len() as u64,
        total_bytes: usage.total_bytes,
        used_bytes: usage.allocated_bytes,
        available_bytes: usage.available_bytes,
        partitions: pg_driver.store.partitions(),
        recovered: 0, // `Periodic` knows
        kept_seconds: (kept.judged, kept.kept),
        commits: pg_driver.tracker.commits(),
        stages: pg_driver.tracker.stage_sums(),
        store: pg_driver.store.counters(),
        thread_cpu_us: cpu.thread_ns / NS_PER_US,
        process_cpu_us: cpu.process_ns / NS_PER_US,
    }
}

/// The counters of a shard.
pub(crate) fn perf_dump(pg_driver: &PgDriver, net: &ShardNet, cpu: CpuTimes) -> serde_json::Value {
    let counters = &pg_driver.counters;
    let usage = pg_driver.store.usage();
    let kept = pg_driver.throttle.kept_seconds();
    let mut osd = serde_json::Map::new();
    for (name, value) in [
        ("nacre_recovery_seconds", kept.judged),
        ("nacre_recovery_seconds_kept", kept.kept),
        ("op", counters.ops),
        ("op_wip", net.sessions.ops_in_flight() as u64),
        ("op_in_bytes", counters.op_in_bytes),
        ("op_out_bytes", counters.op_out_bytes),
        ("op_r_out_bytes", counters.read_out_bytes),
        ("op_w_in_bytes", counters.write_in_bytes),
        ("numpg", pg_driver.pgs.all().len() as u64),
        ("stat_bytes", usage.total_bytes),
        ("stat_bytes_used", usage.allocated_bytes),
        ("stat_bytes_avail", usage.available_bytes),
        ("nacre_partitions", pg_driver.store.partitions()),
    ] {
        osd.insert(name.to_owned(), value.into());
    }
    let sum = counters.latency_ns as f64 / 1e9;
    let average = sum / counters.replies.max(1) as f64;
    let latency = serde_json::json!({ "avgcount": counters.replies, "sum": sum, "avgtime": average });
    osd.insert("op_latency".to_owned(), latency);
    let stages = pg_driver.tracker.dump(&mut osd);
    let [messages, bytes] = net.sessions.dump_throttles();
    let memory = pg_driver.store.memory();
    let StoreCounters { device, free, discards, .. } = pg_driver.store.counters();
    serde_json::json!({
        "device": device::dump(&device, discards),
        "device-free": {
            "free_bytes": free.bytes,
            "free_long_bytes": free.long_bytes,
            "free_runs": free.runs,
        },
        "osd": osd,
        "osd-memory": {
            "store_data_bytes": memory.data_bytes,
            "store_metadata_bytes": memory.metadata_bytes,
            "store_changes_bytes": memory.changes_bytes,
            "store_kv_bytes": memory.kv_bytes,
            "pg_log_bytes": pg_driver.pgs.log_bytes(),
        },
        "osd-memory-target": pg_driver.memory.dump(),
        "osd-bill": pg_driver.bill.dump(),
        "osd-stages": stages,
        "osd-cpu": {
            "threads_us": cpu.thread_ns / NS_PER_US,
            // By itself, too: one thread may have no time left beside others that have.
            (format!("shard_{}_us", net.router.me)): cpu.thread_ns / NS_PER_US,
            "process_us": cpu.process_ns / NS_PER_US,
        },
        "throttle-osd_client_messages": messages,
        "throttle-osd_client_bytes": bytes,
        "osd-intake": intake(&net.messenger.intake(), net),
        "osd-metadata-reads": {
            "waiting": pg_driver.awaiting_metadata.ops().count(),
            "waits": pg_driver.awaiting_metadata.waits(),
        },
        "osd-outbox": {
            "client_bytes": net.messenger.unsent_client_bytes(),
            "shared_bytes": net.messenger.shared_unsent_bytes(),
            "waiting": pg_driver.awaiting_memory.count(),
            "waits": pg_driver.awaiting_memory.waits(),
        },
    })
}
