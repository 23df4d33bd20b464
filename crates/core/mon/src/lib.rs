//! The monitors, without I/O: [`Front`], which every monitor has, knows the peers that are connected to it; [`Mon`], which only the leader
//! has, is the cluster's state as one replicated state machine: messages, timers and commits in, replies, map publications and durable
//! batches out.
//!
//! [`Mon::handle`] changes the in-memory [`state::State`] at once; [`Mon::drain`] closes what changed into one
//! [`Batch`] and holds back every reply computed from it until [`Event::Committed`] says that the batch is
//! durable. One batch is in flight at a time, so changes that arrive meanwhile share the next one. Where nothing
//! changed, replies wait for [`Event::Confirmed`]: nobody else leads. Nothing is read back from the store after
//! [`Mon::open`]. The batch is the unit that the replicated log carries.
//! Layer: core; uses base and the cores auth and mgr.

mod answers;
mod audit;
pub mod auth;
mod autoscaler;
mod autoscaling;
mod balancer;
mod balancing;
mod balancing_primaries;
pub mod batch;
mod budget;
pub mod cluster_log;
pub mod command;
pub mod commands;
pub mod config;
pub mod config_key;
mod crashes;
mod dashboard_login;
mod dashboard_module;
mod device_asking;
mod device_faults;
mod device_module;
mod device_samples;
mod device_scrapes;
mod devices;
mod dispatch;
pub mod event;
mod front;
pub mod fsmap;
mod handout;
pub mod health;
mod health_history;
mod kept_stats;
mod life_expectancy;
pub mod managers;
mod mds_messages;
mod mds_servers;
pub mod metrics;
mod metrics_module;
mod mgr_messages;
mod mkfs;
mod mon;
pub mod mon_members;
pub mod monitor_facts;
pub mod monmap;
mod mutes;
mod opening;
pub mod osd;
mod osd_messages;
mod outlook;
mod output;
pub mod overview;
mod own_module;
mod own_view;
mod pool_ops;
mod primaries;
mod prober;
mod probing;
mod publish;
mod quorum_view;
pub mod recovery;
mod restore;
mod scrape_target;
mod seed;
pub mod servicemap;
pub mod session;
mod slow_devices;
mod slow_osd_out;
mod slow_osds;
mod snapshots;
pub mod state;
mod stored_map;
mod tick;
mod warmth;

pub use answers::{ANSWER_BYTES_MAX, ANSWERS_COUNT_MAX};
pub use batch::{Batch, BatchOp, MemorySnapshot, Snapshot};
pub use budget::BATCH_BYTES_MAX;
pub use command::{CommandCx, CommandInput, Output};
pub use dashboard_login::Reader;
pub use dashboard_module::WantedPage;
pub use event::{Effect, Endpoint, Event, Peer, Served, SessionId, Token};
pub use front::{Front, FrontEffect, FrontEvent, HANDSHAKES_COUNT_MAX, RESUME_BYTES_MAX, SESSIONS_COUNT_MAX};
pub use metrics_module::Listening;
pub use mkfs::{MkfsError, MkfsOptions, MkfsOsd, mkfs};
pub use mon::{Mon, TICK};
pub use mon_members::MonMembers;
pub use monitor_facts::MonitorFacts;
pub use own_view::{MonitorPhase, OwnView};
pub use prober::{PROBE_NAMESPACE, PROBE_USER, ProbeOrder};
pub use quorum_view::{MonitorView, QuorumView};
pub use restore::{RestoreError, Restored, restore};
pub use scrape_target::{ScrapeTarget, Wanted};
pub use seed::{MONITOR_VERSION, MONITOR_VERSION_MIN, Seed, recover, set_addrs};
pub use session::Identity;
pub use state::OpenError;
pub use warmth::WARM_UP;

#[cfg(test)]
mod tests;
