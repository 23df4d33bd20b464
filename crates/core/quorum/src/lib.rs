//! The replicated log of the monitors: Raft (TiKV's library) without I/O.
//!
//! [`Quorum`] takes ticks, messages of other members and proposals, and says in [`Effect`]s what is to be sent, made durable and applied.
//! One durable step per proposal: its entry is appended by the leader and by a majority, then every member applies it to its tables in the
//! order of the log. Entries are opaque here; a monitor's batches are what they carry.
//!
//! Elections: a member that hears no leader for 20 ticks plus two for each of its rank becomes a candidate, if a majority has heard none
//! either (pre-vote); a leader that hears no majority for 20 ticks steps down (check-quorum). No timeout is random: ranks differ, so votes
//! do not split twice. Reads are confirmed by a round of heartbeats ([`Quorum::read`]); leases are not used, for they rest on clocks.
//!
//! Members: the tables name the monitors that are wanted, and [`Membership`] says which change brings the log's members closer to that.
//!
//! Source of the algorithm: D. Ongaro, "Consensus: Bridging Theory and Practice" (2014); crate `raft` 0.7. Its protobuf is not on our wire:
//! [`PeerMessage`] has an encoding of ours. Layer: core; uses buf and denc.

mod effect;
mod log;
mod membership;
mod quorum;
#[cfg(test)]
mod tests;
mod wire;

pub use effect::{Effect, LogWrite, Proposal};
pub use log::{Stored, StoredError};
pub use membership::{MembersStep, Membership};
pub use quorum::{ProposeError, Quorum, Settings, StepError};
pub use wire::{EntryKind, HardState, LogEntry, LogPosition, Members, MembersChange, NodeId, PeerMessage};
