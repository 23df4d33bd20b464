//! Erasure-coded pools: every member keeps one chunk of each object, under the object's own name and with its whole
//! record and attributes. `k` chunks give the data back.
//!
//! | file | holds |
//! |---|---|
//! | `shards` | which member holds which shard |
//! | `rollback` | what a write replaced, until nothing can roll the write back |
//! | `gather` | reads: chunks collected and decoded |
//!
//! The code itself is in [`crate::coding`]. Log, missing objects, peering and order of messages are those of replicated pools. What differs:
//! - A write that only some shards have can be read in neither version. So each shard keeps what a write replaced
//!   until all members have the write durably. Peering takes the longest log that as many shards have as a write must
//!   be on to be acknowledged (`min_size`), or else the *shortest* that has all that may have been
//!   (`peering/choose.rs`); longer ones are rolled back.
//! - What all members have had is known beside the log (`PgInfo::safe_to`): each write says so of those before it, and
//!   the primary tells the others at once of the last one, or within a second while a later one hangs. A log that ends
//!   before that has lost something. A primary that forgets a write before it has told of it leaves copies that look as
//!   if the write had never reached it: if fewer than `min_size` of them are whole it is taken back. To keep what only
//!   `k` have would cost what it replaced if one more of them fails before recovery, although no device lied.
//! - A message that changes a part of an object (`allow_ec_overwrites`) changes whole stripes (`ops/stripes.rs`); what they had is read from
//!   members first. Shards whose units stay as they are get the log entry and the object's record, and of the others what is kept are
//!   those units: a chain of such writes is taken back one by one.
//! - Nothing is served, and no earlier interval is passed over, with fewer than `k` shards.
//! - An object that is missing somewhere is computed from `k` others (`recovery/reconstruct.rs`).
//!
//! A shard belongs to an OSD's copy, not to a place in the acting set: the primary gives a new member a shard that is
//! free when the interval begins, and a member that has one keeps it. So a change of places moves no data. Two may have the same when
//! one returns that another had replaced: that is settled when no copy lacks anything any more.
//! Which chunk of an object a shard holds is a further question where PGs were merged: `ChunkMapping`.

mod gather;
mod rollback;
mod shards;

pub(crate) use gather::{GatherOutcome, GatherRequest, Gathers};
