//! The OSD daemon: threads (shards) that host PGs, and OSD control that speaks with the monitor.
//!
//! Decides nothing about protocols: it carries messages between sockets, PGs (core/pg), the store
//! (io/store), the monitor (core/monc) and the manager. What the OSD decides about itself is core/osd's. Layer: daemon; uses base, core and io.
//!
//! | file | holds |
//! |---|---|
//! | `shard` | the turn loop: sockets, messages, completions, effects |
//! | `pg_registry` | the PGs of a shard |
//! | `sessions` | who has connected to a shard |
//! | `shard_msg` | what shards tell each other |
//! | `control` | once per OSD: boot, and what connects the parts below |
//! | `control_event` | what OSD control has for its shard |
//! | `mon_link` | the session with the monitor |
//! | `peer_links` | lossless connections with other OSDs |
//! | `heartbeat_driver` | heartbeats over sockets |
//! | `mgr_report` | the connection to the manager |
//! | `links` | one connection that we dial: its authentication, and what waits for it |
//! | `osd_addrs` | under which addresses we are known |
//! | `maps` | the maps we have, and for whom |
//! | `load_pgs` | what is kept for ourselves, and taking up again after a restart |
//! | `storage` | the store's files |
//! | `report` | what an OSD says of itself |
//! | `admin` | `ceph tell` |

mod admin;
mod background;
mod config;
mod control;
mod control_event;
mod heartbeat_driver;
mod links;
mod load_pgs;
mod lost;
mod maps;
mod mgr_report;
mod mon_link;
mod osd_addrs;
mod peer_links;
mod pg_registry;
mod report;
mod sessions;
mod shard;
mod shard_msg;
mod start;
pub mod storage;
mod tracker;
mod walk;

pub use config::OsdConfig;
pub use shard::Shard;
pub use start::{Machine, Osd, OsdHandle, Panicked, StartError, assemble, start};
pub use storage::{DeviceDirs, StorageError, StoreConfig, mkfs};
