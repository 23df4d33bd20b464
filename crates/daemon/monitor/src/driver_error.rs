//! [`DriverError`]: why a monitor cannot go on.

use crate::leadership::LeadershipError;
use crate::members::ReadError;
use crate::replica::ReplicaError;
use nacre_denc::DecodeError;
use nacre_mon::OpenError;

/// Why the monitor's thread ended.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What changed could not be made durable: nothing may be promised any more.
    #[error(
        "cannot write the store, and a monitor that cannot keep what it promises ends: {0}. Make room or replace the device, then start it again; \
         the others go on while they are a majority"
    )]
    Store(#[from] ReplicaError),
    /// What the log brought cannot be taken in.
    #[error("cannot use the cluster's state: {0}")]
    State(#[from] DecodeError),
    /// The cluster's state cannot be opened.
    #[error("cannot use the cluster's state: {0}")]
    Open(#[from] OpenError),
    /// It is no monitor of the cluster any more.
    #[error("mon.{0} was removed from the cluster, or made anew elsewhere; its folder is of no use any more")]
    Removed(String),
    /// The cluster goes on from another store than the one that this monitor knew.
    #[error(
        "the cluster was made anew from another monitor's store (incarnation {theirs}, this one is of {ours}); remove this monitor's folder and let it join again"
    )]
    Outdated {
        /// What other monitors say.
        theirs: u64,
        /// What this one's tables say.
        ours: u64,
    },
    /// The system cannot wait for sockets.
    #[error("cannot wait for sockets: {0}")]
    Poll(#[from] std::io::Error),
}

impl From<LeadershipError> for DriverError {
    fn from(error: LeadershipError) -> Self {
        match error {
            LeadershipError::Store(error) => Self::Store(error.into()),
            LeadershipError::Open(error) => Self::Open(error),
        }
    }
}

impl From<ReadError> for DriverError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error.into()),
            ReadError::Decode(error) => Self::State(error),
            ReadError::NoCluster => Self::Open(OpenError::NotInitialised),
        }
    }
}
