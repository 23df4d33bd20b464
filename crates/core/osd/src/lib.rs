//! What an OSD decides about itself, as sans-I/O machines: facts and events in, decisions out. `daemon/osd` tells them what
//! it knows (its clock, its map, its sessions), makes the messages and sends them.
//!
//! [`Boot`] is an OSD's life as the monitor sees it: boot, beacons, being marked down, `up_thru`, `pg_temp`, leave.
//! [`MapCache`] takes maps in, epoch by epoch, [`MapCatchUp`] says what to ask the monitor for where they do not follow ours, and
//! [`MapRelease`] which of them the PGs may see, and when. [`Merges`] says when two PGs may be merged.
//! [`AdmissionGate`] says which message of a client or of another OSD may go to its PG now, and [`Room`] when a store is too full for it.
//! [`decide_create`] says what becomes of a call for a copy of a PG, [`ScrubSchedule`] which PG is scrubbed next.
//! [`MemoryPlan`] says what of the memory target is for what, and [`MemoryTuner`] what is done when there is more.
//! [`ping_notice`] and [`warns_clients`] say which peers and clients are told of a map, [`peer_targets`] and [`heartbeat_targets`] with which OSDs
//! an OSD has connections.
//! Under Ceph's monitors ([`ControlPlane`]) an OSD does three things that ours do for it: it takes its place ([`Placement`]), says how full it is
//! ([`Fullness`]), and writes into the cluster's log ([`ClusterLog`]); and there may be OSDs that are not ours.
//! Layer: core; uses buf, denc, heartbeat, maps, msg, pg, types.

mod admission;
mod boot;
mod cluster_log;
mod control_plane;
mod create;
mod failsafe_full;
mod fullness;
mod map_cache;
mod map_catch_up;
mod map_release;
mod memory;
mod merges;
mod neighbours;
mod notice;
mod placement;
mod scrub_schedule;

pub use admission::{AdmissionGate, GateDecision, PeerDecision, PgFacts};
pub use boot::{Boot, Effect, EndReason, Event, Present, Settings, min_last_epoch_clean};
pub use cluster_log::ClusterLog;
pub use control_plane::ControlPlane;
pub use create::{CopyFacts, CreateDecision, CreateFacts, Past, decide_create};
pub use failsafe_full::Room;
pub use fullness::Fullness;
pub use map_cache::{LearnError, MapCache, MapSource};
pub use map_catch_up::{MapCatchUp, MapRefusal, MapRequest};
pub use map_release::{MapRelease, keeps_maps_until};
pub use memory::{LogShare, MemoryOrder, MemoryPlan, MemoryTuner};
pub use merges::Merges;
pub use neighbours::{
    HeartbeatTarget, PeerTarget, ends_connection, heartbeat_targets, peer_targets, strangers,
};
pub use notice::{PingNotice, ping_notice, warns_clients};
pub use placement::{
    Place, Placement, PlacementAnswer, PlacementCommand, PlacementSettings, parse_crush_location,
};
pub use scrub_schedule::{ScrubFacts, ScrubSchedule, UsualLoad};
