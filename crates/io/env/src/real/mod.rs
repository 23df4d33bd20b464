//! The seams as this machine has them.

mod disk;
mod net;

pub use disk::{DriverChoice, EventFd, OpenError, RealDisk, write_back};
pub use net::RealNet;
