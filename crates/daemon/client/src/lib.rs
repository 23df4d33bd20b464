//! A client of a cluster, of ours or of Ceph: what a program uses as it would use librados.
//!
//! [`Client`] drives the client of the monitors (core/monc) and the objecter (core/objecter) over connections
//! (service). It has no thread: its owner calls [`Client::turn`]. [`Access`] says where the cluster is and who we
//! are there, as `ceph.conf` and a keyring have it. [`Probe`] finds out whether pools serve.
//!
//! Layer: daemon; uses base, core and io.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod access;
mod client;
pub mod conf;
pub mod mon_host;
mod probe;
mod real;

pub use access::{Access, AccessError};
pub use client::{Client, Failure, Finished};
pub use probe::{Probe, ProbeError, probe_locator, probe_write};
