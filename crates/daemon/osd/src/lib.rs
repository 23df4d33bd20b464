//! The OSD daemon: threads (shards) that host PGs, and OSD control that speaks with the monitor.
//!
//! Decides nothing about protocols: it carries messages between sockets, PGs (core/pg), the store
//! (io/store), the monitor (core/monc) and the manager. What the OSD decides about itself is core/osd's. Layer: daemon; uses base, core and io.
//!
//! | file | holds |
//! |---|---|
//! | `shard` | a thread's part of an OSD, put together |
//! | `turn` | the loop: wait, take, react, send |
//! | `dispatch`, `lent_parts` | which part each event and message is for; what such a part borrows |
//! | `connections` | connections come, prove their identity, and go |
//! | `map_intake` | maps come in, and when the PGs see them |
//! | `pg_driver` | the PGs get events, and what they want is carried out |
//! | `pg_create`, `pg_maps`, `load_pgs` | copies that are called for; maps reach the PGs; PGs after a restart |
//! | `pg_registry` | the PGs of a shard, and what waits for them |
//! | `shard_net` | the ways out of a shard: to clients, other OSDs, other shards |
//! | `shard_msg` | what shards tell each other |
//! | `sessions` | the connections that came in on a shard, and which of them are not read for now |
//! | `memory` | the memory target: what is kept of what can be read again, how long logs are |
//! | `client_limits`, `awaiting_memory` | what of it clients' messages and answers may take; messages that wait for it |
//! | `control` | once per OSD: boot, what Ceph's monitors leave to an OSD, and what connects the parts below |
//! | `control_host`, `control_event` | OSD control on its shard; what it has for that |
//! | `mon_link` | the session with the monitor |
//! | `peer_links`, `shard_links` | lossless connections with other OSDs; what shards beside the first one need for theirs |
//! | `heartbeat_driver` | heartbeats over sockets |
//! | `mgr_report`, `report` | the connection to the manager, and what it hears |
//! | `perf_counters` | counters under Ceph's names, for the manager and `perf schema` |
//! | `counted_op`, `dynamic_perf_stats`, `image_stats` | operations counted by what a manager asks for, and by image |
//! | `links` | one connection that we dial: its authentication, and what waits for it |
//! | `osd_addrs` | under which addresses we are known |
//! | `walk` | the maps of a PG's past, fetched from the monitor |
//! | `own_collection`, `recovery_snapshot` | what is kept for ourselves in the store, and for the case that all monitors are lost |
//! | `storage` | the store's files |
//! | `divided` | several partitions of a store for one shard |
//! | `periodic`, `idle_trim`, `bench`, `bench_workload` | what comes back every second; memory given back; `ceph tell osd.N bench` |
//! | `bill` | what clients a thread has worked for, and what our monitor hears of it |
//! | `power` | what the machine draws |
//! | `stage_sums` | what that clock has counted, for the manager |
//! | `tracker` | the stage clock of clients' messages |
//! | `admin`, `asok`, `pg_query`, `lost`, `command_reply` | `ceph tell`, `ceph daemon` and `ceph pg` |
//! | `gather` | commands that all shards answer together |
//! | `link_report`, `link_counts` | `dump_links`; what TCP tells of a shard's connections with other OSDs |
//! | `admin_sessions` | who asks at the admin socket |
//! | `osd_network`, `smart` | `dump_osd_network`; what the devices say of their health |

mod admin;
mod admin_sessions;
mod asok;
mod awaiting_memory;
mod awaiting_metadata;
mod bench;
mod bench_workload;
mod bill;
mod client_limits;
mod command_reply;
mod compression;
mod config;
mod connections;
mod control;
mod control_event;
mod control_host;
mod counted_op;
mod device;
mod dispatch;
mod divided;
mod dynamic_perf_stats;
mod gather;
mod heartbeat_driver;
mod idle_trim;
mod image_stats;
mod lent_parts;
mod link_counts;
mod link_report;
mod links;
mod load_pgs;
mod lost;
mod map_intake;
mod memory;
mod mgr_report;
mod mon_link;
mod osd_addrs;
mod osd_network;
mod own_collection;
mod own_reports;
mod peer_links;
mod perf_counters;
mod periodic;
mod pg_create;
mod pg_driver;
mod pg_maps;
mod pg_query;
mod pg_registry;
mod power;
mod recovery_snapshot;
mod relocation;
mod relocation_msg;
mod relocations;
mod report;
mod sessions;
mod shard;
mod shard_links;
mod shard_msg;
mod shard_net;
mod slow_requests;
mod smart;
mod stage_sums;
mod start;
pub mod storage;
mod tracker;
mod turn;
mod walk;
mod warming;

pub use config::{Bind, CephConfig, OsdConfig};
pub use memory::MemoryTarget;
pub use nacre_crypt::WrappingKey;
pub use nacre_device::Owner;
pub use nacre_osd_core::parse_crush_location;
pub use shard::Shard;
pub use start::{Machine, Osd, OsdHandle, Panicked, StartError, assemble, start};
pub use storage::{
    DeviceDirs, Devices, StorageError, StoreConfig, StoreKeys, mkfs, mkfs_on_devices, store_keys,
};
