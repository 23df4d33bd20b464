//! The simulation: a whole cluster in one thread from one seed.
//!
//! The daemons are the real ones, down to the bytes on the wires and on the disks; only the machine below them
//! is not: time, randomness, sockets and devices are the world's, and everything in them follows from the seed.
//! Layer: test; uses everything.

mod client;
mod clock;
mod kv;
mod net;
mod world;

pub use client::{Client, Finished};
pub use clock::SimClock;
pub use kv::SimKv;
pub use net::{Fabric, Host, SimNet, Wires};
pub use world::{Config, Proc, World};
