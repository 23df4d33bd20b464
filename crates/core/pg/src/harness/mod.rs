//! A cluster of PGs' copies in one thread: disks that forget what is not durable, connections that keep
//! order per pair and nothing else, a monitor that answers late, clients that resend. One seed drives it.

mod client;
mod coded;
mod disk;
mod steps;
mod wires;
mod world;

use client::Sent;
pub(crate) use client::object as head;
pub(crate) use disk::Touched;
pub(crate) use world::{MEMBERS, POOL, World, pg, spg};
