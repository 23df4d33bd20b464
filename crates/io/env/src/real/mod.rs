//! The seams as this machine has them.

mod disk;
mod net;

pub use disk::{DriverChoice, OpenError, RealDisk};
pub use net::RealNet;
