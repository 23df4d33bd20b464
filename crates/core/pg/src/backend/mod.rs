//! How a change reaches all members of the PG.

pub(crate) mod ec;
mod replicated;

pub(crate) use replicated::{AfterCommit, Ends, OwnChange, RepGather, Replication};
