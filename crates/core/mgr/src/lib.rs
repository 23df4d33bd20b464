//! The manager's duties: what the OSDs report becomes the cluster's statistics.
//!
//! Sans-I/O: [`Mgr`] takes the reports and yields replies. The monitor owns one and its commands read it.
//! Layer: core; uses base.

pub mod autoscaler;
pub mod balancer;
mod bill;
mod counters;
mod history;
mod images;
mod least_pings;
pub mod metrics;
mod network;
mod pg_orders;
pub mod pgmap;
pub mod primaries;
pub mod probes;
mod services;
mod sessions;
pub mod slow_devices;
pub mod slow_links;
mod slow_requests;

pub use bill::{Account, BILL_WINDOW_MAX, Bill, BillLine, BillSums, BillWindow, Client};
pub use counters::{CounterValue, Counters, DaemonCounters, DeclaredCounter};
pub use history::{History, SAMPLE_PERIOD, SAMPLES_COUNT_MAX, Sample};
pub use images::{ImageSums, Images};
pub use least_pings::LeastPings;
pub use network::{milliseconds, network_ping_times};
pub use pg_orders::{PgOrder, PgOrderKind, PgOrders};
pub use pgmap::{KeptDigest, PgMap};
pub use services::{
    SERVICE_BYTES_MAX, SERVICE_DAEMONS_MAX, ServiceDaemon, ServiceKey, ServiceRefused, Services,
};
pub use sessions::{Mgr, STATS_PERIOD_S};
pub use slow_requests::SlowRequests;
