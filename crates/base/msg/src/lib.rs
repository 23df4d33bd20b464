//! The messages that Ceph's clients and daemons exchange, as plain data with their codecs.
//!
//! Each type is named like its Ceph class without the leading `M` and lives in the file of its subject;
//! [`Message`] is the sum of them. Formats follow `src/messages/*.h` at v16.2.15 as seen on the wire; the
//! golden bytes under `testdata/messages` come from real daemons and tools. Layer: base; uses buf, denc,
//! types and txn.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
#![warn(clippy::cast_possible_wrap)]

mod answers;
mod auth;
mod bill_report;
mod body;
mod command;
mod compat;
mod config;
mod device_health;
mod device_report;
mod entity_caps;
mod force;
mod log;
mod maps;
mod mds;
mod merge;
mod message;
mod mgr;
mod mgr_beacon;
mod mgr_report;
mod osd_boot;
pub mod osd_op;
mod osd_op_reply;
mod osd_ping;
mod osd_to_mon;
pub mod peer;
mod perf_query;
mod pg_create;
mod pg_stats;
mod pg_stats_wanted;
mod pool_op;
mod raw;
mod recovery_snapshot;
mod scrub;
mod service_map;
pub mod size;
mod slow_requests;
mod statfs;
pub mod stats;
mod subscribe;
mod void_tickets;
mod watch_notify;

pub use answers::Answer;
pub use auth::{Auth, AuthReply};
pub use bill_report::{BILL_ROWS_MAX, BillClass, BillReport, BillRow, Power, PowerSource};
pub use command::{Command, CommandReply, MgrCommand, MgrCommandReply, MonCommand, MonCommandAck};
pub use compat::Compat;
pub use config::{Config, KvData, Ping};
pub use device_health::{
    DEVICE_ERROR_BYTES_MAX, DEVICE_ID_BYTES_MAX, DEVICE_JSON_BYTES_MAX, DeviceHealth, DeviceHealthReport,
    DeviceHealthWanted,
};
pub use device_report::{DeviceReport, LEAST_PINGS_COUNT_MAX, LeastPing};
pub use entity_caps::EntityCaps;
pub use force::{OsdForceRecovery, force_option};
pub use log::{ClusterLogEntry, Log, LogAck, LogPriority};
pub use maps::{
    FsMapUserBody, FsMapUserEntry, MFsMap, MFsMapUser, MMdsMap, MMgrMap, MMonMap, MOsdMap, MonGetMap,
    MonGetOsdMap,
};
pub use mds::{MdsBeacon, MdsHealthMetric, MdsLoadTargets, mds_state};
pub use merge::OsdPgReadyToMerge;
pub use message::Message;
pub use mgr::{DaemonConfig, MgrClose, MgrConfigure, MgrDigest, MgrOpen, config_level};
pub use mgr_beacon::{MgrBeacon, MgrCommandDescription, ModuleInfo, ModuleOption};
pub use mgr_report::{
    DaemonHealthMetric, HealthCheck, HealthChecks, MgrReport, MonMgrReport, PerfCounterType, ProgressEvent,
    counter_kind, daemon_metric, pack_counters,
};
pub use osd_boot::{OsdBoot, Superblock};
pub use osd_op::{OsdOp, SubOp};
pub use osd_op_reply::{OsdOpReply, SubOpReply};
pub use osd_ping::{OsdPing, ping_op};
pub use osd_to_mon::{
    MarkMeDead, MarkMeDown, OsdAlive, OsdBeacon, OsdFailure, OsdFull, OsdPgCreated, OsdPgTemp, failure_flag,
};
pub use perf_query::{
    PerfKey, PerfLimit, PerfQueries, PerfQuery, PerfQueryReport, PerfReports, QueryCounter, SubKey,
    image_name_query, image_query, pack_sums, query_counter, sub_key,
};
pub use pg_create::{OsdPgCreate2, PgCreated};
pub use pg_stats::PgStats;
pub use pg_stats_wanted::PgStatsWanted;
pub use pool_op::{PoolOp, PoolOpReply, RemoveSnaps, pool_op_code};
pub use raw::{RawMessage, priority};
pub use recovery_snapshot::RecoverySnapshotPart;
pub use scrub::OsdScrub2;
pub use service_map::{ServiceDaemon, ServiceEntry, ServiceMap};
pub use slow_requests::{SLOW_REQUESTS_COUNT_MAX, SlowRequest, SlowRequests};
pub use statfs::{GetPoolStats, GetPoolStatsReply, Statfs, StatfsReply};
pub use subscribe::{MonGetVersion, MonGetVersionReply, MonSubscribe, MonSubscribeAck, Subscription};
pub use void_tickets::VoidTickets;
pub use watch_notify::{NotifyOutcome, OsdBackoff, WatchNotify, backoff_op, notify_op};
