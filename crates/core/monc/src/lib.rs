//! The client of the monitors, as a sans-I/O machine: finds one, authenticates, subscribes, asks.
//!
//! Used by OSDs and by our client library. It owns no connection: the driver dials when told
//! ([`Effect::Connect`]), forwards what the messenger reports as [`LinkEvent`]s under the attempt's
//! [`LinkId`], and carries out the other effects on that connection. What a link still says after it was
//! closed is ignored.
//!
//! ```text
//!            start                Hello .. Established
//!  Stopped ---------> Dialling ------------------------> Open
//!                      ^    |  lost, refused, too slow     |  lost, silent, tickets not renewed
//!                      |    v                              |
//!                     Pausing <----------------------------+
//! ```
//! Everything asked for survives a change of monitor: subscriptions go on where they were, commands and
//! version questions are sent again under the same number. What was given to [`MonClient::send`] does not;
//! [`Effect::Opened`] tells the caller to send again what still matters.
//!
//! Source of the behaviour: Ceph `src/mon/MonClient.cc` at v16.2.15. Layer: core; uses maps, msg, auth.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod client;
mod config;
mod event;
mod hunt;
mod renewal;
mod requests;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use client::MonClient;
pub use config::Config;
pub use event::{Context, Effect, Event, LinkEvent, LinkId};
pub use requests::{REQUESTS_MAX, TooMany};
pub use subscriptions::Interest;
