//! The monitor's thread: drives `core/mon` and `core/quorum` over sockets and a store.
//!
//! One thread does everything: it reads all that arrived, hands it to the front and, where this monitor leads, to [`nacre_mon::Mon`], appends
//! what changed to the monitors' log, on a majority of them, and only then sends what depends on it. One path serves one monitor and five.
//! Layer: daemon; uses base, core and io.
//!
//! | file | holds |
//! | --- | --- |
//! | `driver.rs` | the turn loop |
//! | `routing.rs` | sessions between fronts and the leader |
//! | `leadership.rs`, `sessions.rs` | what only the leader has |
//! | `uplink.rs` | which leader knows the sessions of this front |
//! | `replica.rs`, `store.rs` | the log and the tables in the store |
//! | `links.rs`, `link_msg.rs`, `transfer.rs` | connections between monitors, what goes over them, tables for one that is far behind |
//! | `members.rs`, `clock_watch.rs`, `quorum_view.rs` | the other monitors: where they are, what their clocks show, who is in the quorum |
//! | `vitals.rs`, `own_view.rs` | what monitors say of themselves, and how this one is |
//! | `membership.rs`, `offline.rs` | monitors that come, go and move: while they run, and in stores of those that do not |
//! | `recovery.rs` | what OSDs keep for the case that all monitors are lost: sealing it, and a store from it |
//! | `probing.rs`, `probe_rounds.rs` | a client of its own that probes pools, when the leader wants it |
//! | `exporter.rs`, `metrics.rs` | metrics of the active manager, by HTTP |
//! | `page.rs`, `page/` | the active manager's web page |
//! | `audit_file.rs` | the audit channel as a file |
//! | `planted.rs`, `testing.rs` | mistakes for the simulation to find, messages for the fuzzer |
//! | `monitor.rs` | making, starting and stopping |

mod audit_file;
mod clock_watch;
mod driver;
mod driver_error;
mod exporter;
mod leadership;
mod link_msg;
mod links;
mod members;
mod membership;
mod metrics;
mod monitor;
mod offline;
mod own_view;
mod page;
mod planted;
mod probe_rounds;
mod probing;
mod quorum_view;
mod recovery;
mod replica;
mod routing;
mod sessions;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transfer;
mod uplink;
mod vitals;

pub use driver::Driver;
pub use driver_error::DriverError;
pub use monitor::{
    LOG_ENTRIES_KEPT, Machine, Monitor, MonitorConfig, STORE_FILE, StartError, assemble, mkfs,
};
pub use nacre_mon::recovery::{OpenedSnapshot, SealedSnapshot, SnapshotError};
pub use nacre_mon::{MkfsError, MkfsOptions, MkfsOsd, Seed};
pub use offline::join;
pub use planted::Planted;
pub use recovery::Found;
