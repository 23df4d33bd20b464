//! What a shard shows of itself: to `tell`, and in the log.

use super::Shard;
use crate::control::OsdControl;
use crate::shard_msg::ShardMsg;
use crate::tracker;
use nacre_maps::OsdMap;
use nacre_options::{OptionInfo, Values};
use nacre_service::IntakeReport;
use std::sync::Arc;
use std::time::Duration;

/// Slow messages are named in the log at most this often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(5);

/// Messages that are not complete yet, and peers that have not proved themselves.
fn intake(report: &IntakeReport) -> serde_json::Value {
    serde_json::json!({
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

/// What `tell` shows of a shard.
impl Shard {
    /// Tells the log of clients' messages that take long, and where the oldest of them is.
    pub(super) fn warn_slow_ops(&mut self) {
        let limit = self.options.seconds("osd_op_complaint_time");
        if limit.is_zero() || self.now < self.slow_ops_warned_at {
            return;
        }
        let now = self.now;
        let is_slow = |op: &nacre_pg::OpInFlight<'_>| now.since(op.trace.received) >= limit;
        let count = self.pgs.ops_in_flight().filter(is_slow).count();
        let Some(oldest) = self.pgs.ops_in_flight().filter(is_slow).min_by_key(|op| op.trace.received) else {
            return;
        };
        self.slow_ops_warned_at = now + COMPLAINT_INTERVAL;
        let (age, what) = (now.since(oldest.trace.received), tracker::warn_slow_ops(&oldest));
        tracing::warn!(osd = self.config.id, count, oldest_s = age.as_secs(), what, "slow requests");
    }

    pub(crate) fn newest_map(&self) -> &Arc<OsdMap> {
        self.maps.newest()
    }

    /// True while the cluster has this OSD up, as far as the control shard knows.
    #[must_use]
    pub fn is_booted(&self) -> bool {
        self.control.as_ref().is_some_and(OsdControl::is_booted)
    }

    /// Sets a checked value until the daemon restarts.
    pub(crate) fn set_option(&mut self, info: &'static OptionInfo, value: String) {
        let mut options = Values::clone(&self.options);
        options.tell(info, value);
        self.set_options(options);
    }

    pub(crate) fn set_options(&mut self, options: Values) {
        self.options = Arc::new(options);
        self.follow_options();
        let options = Arc::clone(&self.options);
        self.router.send_others(|| ShardMsg::Options(Arc::clone(&options)));
        self.with_control(OsdControl::follow_options);
    }

    fn ops_in_flight(&self) -> usize {
        self.sessions.ops_in_flight()
    }

    /// The messages of clients that this shard's PGs have.
    pub(crate) fn dump_ops(&self) -> serde_json::Value {
        let times = (self.now, self.wall);
        let ops: Vec<_> = self.pgs.ops_in_flight().map(|op| tracker::dump_op_in_flight(&op, times)).collect();
        serde_json::json!({ "num_ops": ops.len(), "ops": ops })
    }

    pub(crate) fn dump_historic_ops(&self) -> serde_json::Value {
        self.tracker.dump_history((self.now, self.wall))
    }

    pub(crate) fn dump_histograms(&self) -> serde_json::Value {
        self.tracker.dump_histograms()
    }

    pub(crate) fn perf_dump(&self) -> serde_json::Value {
        let counters = &self.counters;
        let usage = self.store.usage();
        let mut osd = serde_json::Map::new();
        for (name, value) in [
            ("op", counters.ops),
            ("op_wip", self.ops_in_flight() as u64),
            ("op_in_bytes", counters.op_in_bytes),
            ("op_out_bytes", counters.op_out_bytes),
            ("numpg", self.pgs.all().len() as u64),
            ("stat_bytes", usage.total_bytes),
            ("stat_bytes_used", usage.allocated_bytes),
            ("stat_bytes_avail", usage.available_bytes),
        ] {
            osd.insert(name.to_owned(), value.into());
        }
        let sum = counters.latency_ns as f64 / 1e9;
        let average = sum / counters.replies.max(1) as f64;
        let latency = serde_json::json!({ "avgcount": counters.replies, "sum": sum, "avgtime": average });
        osd.insert("op_latency".to_owned(), latency);
        let stages = self.tracker.dump(&mut osd);
        let [messages, bytes] = self.sessions.dump_throttles();
        let memory = self.store.memory();
        serde_json::json!({
            "osd": osd,
            "osd-memory": {
                "store_data_bytes": memory.data_bytes,
                "store_metadata_bytes": memory.metadata_bytes,
                "store_changes_bytes": memory.changes_bytes,
                "store_kv_bytes": memory.kv_bytes,
                "pg_log_bytes": self.pgs.log_bytes(),
            },
            "osd-stages": stages,
            "throttle-osd_client_messages": messages,
            "throttle-osd_client_bytes": bytes,
            "osd-intake": intake(&self.messenger.intake()),
        })
    }
}
