//! The real clock, randomness, sockets, disks and files behind the traits of this crate.

mod disk;
mod line_log;
mod net;
pub mod private;
mod timex;
mod unix;

pub use disk::{
    DeviceView, DriverChoice, EventFd, HeldDevice, OpenError, RealDisk, SystemDevice, read_cached_first,
    reserve, room, waited_reads, write_back,
};
pub use line_log::LineLog;
pub use net::RealNet;
pub use timex::{ClockState, clock_state};
pub use unix::{UNIX_PATH_BYTES_MAX, listen_private};
