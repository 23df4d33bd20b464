//! The real clock, randomness, sockets, disks and files behind the traits of this crate.

mod disk;
mod line_log;
mod net;
mod page_cache;
pub mod private;
mod timex;
mod unix;

pub use disk::{
    DeviceView, DriverChoice, EventFd, HeldDevice, OpenError, RealDisk, SystemDevice, reserve, room,
    write_back,
};
pub use line_log::LineLog;
pub use net::RealNet;
pub use page_cache::{read_exact_at, waited_reads};
pub use timex::{ClockState, clock_state};
pub use unix::{UNIX_PATH_BYTES_MAX, listen_private};
