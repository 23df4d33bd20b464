//! The OSD daemon: threads (shards) that host placement groups, and the lead that speaks with the monitor.
//!
//! Decides nothing about protocols: it carries messages between sockets, groups (core/pg), the store
//! (io/store), the monitor (core/monc) and the manager. Layer: daemon; uses base, core and io.
//!
//! | file | holds |
//! |---|---|
//! | `shard` | the turn loop: sockets, letters, completions, effects |
//! | `groups` | the placement groups of a shard |
//! | `sessions` | who has connected to a shard |
//! | `letter` | what shards tell each other |
//! | `lead` | once per OSD: monitor, boot, maps, peers, manager |
//! | `links` | connections that we dial |
//! | `faces` | under which addresses we are known |
//! | `pings` | heartbeats over sockets |
//! | `maps` | the maps we have, and for whom |
//! | `restore` | what is kept for ourselves, and taking up again after a restart |
//! | `space` | refusing writes before the store is full |
//! | `storage` | the store's files |
//! | `report` | what an OSD says of itself |
//! | `admin` | `ceph tell` |

mod admin;
mod config;
mod faces;
mod groups;
mod lead;
mod letter;
mod links;
mod lost;
mod maps;
mod pings;
mod report;
mod restore;
mod sessions;
mod shard;
mod space;
mod start;
pub mod storage;
mod tracker;
mod upkeep;
mod walk;

pub use config::OsdConfig;
pub use shard::Shard;
pub use start::{Machine, Osd, OsdHandle, Panicked, StartError, assemble, start};
pub use storage::{Apart, StorageError, StoreConfig, mkfs};
