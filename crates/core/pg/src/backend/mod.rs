//! How a change reaches all members of the PG: the whole of it (`replicated.rs`), or each member its shard (`ec/`).

pub(crate) mod ec;
mod replicated;

pub(crate) use replicated::{AfterCommit, Ends, OwnChange, RepGather, Replication};
