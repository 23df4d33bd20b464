//! How a change reaches all members of the group.

mod replicated;

pub(crate) use replicated::{AfterCommit, Flight, Replication};
