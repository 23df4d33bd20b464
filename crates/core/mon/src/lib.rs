//! The monitor as one replicated state machine, without I/O: messages, timers and commits in, replies, map
//! publications and durable batches out.
//!
//! [`Mon::handle`] changes the in-memory [`state::State`] at once; [`Mon::drain`] closes what changed into one
//! [`Batch`] and holds back every reply computed from it until [`Event::Committed`] says that the batch is
//! durable. One batch is in flight at a time, so changes that arrive meanwhile share the next one. Nothing is
//! read back from the store after [`Mon::open`]. The batch is the unit that a replicated log will carry.
//! Layer: core; uses base and the cores auth and mgr.

mod audit;
pub mod auth;
pub mod batch;
mod budget;
pub mod cluster_log;
pub mod command;
pub mod commands;
pub mod config;
pub mod config_key;
mod dispatch;
pub mod event;
pub mod fsmap;
mod handshake;
pub mod health;
pub mod mgrmap;
mod mkfs;
mod mon;
pub mod mon_members;
pub mod monmap;
pub mod osd;
mod osd_messages;
mod pool_ops;
mod publish;
pub mod servicemap;
pub mod session;
pub mod state;
mod tick;

pub use batch::{Batch, BatchOp, MemorySnapshot, Snapshot};
pub use command::{CommandCx, CommandInput, Output};
pub use event::{Effect, Endpoint, Event, SessionId, Token};
pub use mkfs::{MkfsError, MkfsOptions, MkfsOsd, mkfs};
pub use mon::{HANDSHAKES_COUNT_MAX, Mon, OpenError, SESSIONS_COUNT_MAX, TICK};
pub use session::Identity;

#[cfg(test)]
mod tests;
