//! The monitor's thread: drives `core/mon` over sockets and a store.
//!
//! One thread does everything: it reads all that arrived, hands it to [`nacre_mon::Mon`], appends what changed
//! to the monitors' log as one durable entry, and only then sends what depends on it. Layer: daemon; uses base, core and io.

mod audit_file;
mod driver;
mod monitor;
mod replica;
mod store;

pub use driver::{Driver, DriverError};
pub use monitor::{Machine, Monitor, MonitorConfig, StartError, assemble, mkfs};
pub use nacre_mon::{MkfsError, MkfsOptions, MkfsOsd};
