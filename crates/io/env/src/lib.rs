//! The seams to the machine: time, randomness, network, disk and file as traits, and their real implementations.
//!
//! Everything above takes these as arguments, so that the simulation can put its own in their place
//! (ARCHITECTURE.md, determinism). Layer: io; uses base.

mod clock;
mod cpu_times;
pub mod disk;
mod entropy;
mod file;
mod lines;
mod machine_load;
pub mod net;
mod process_memory;
pub mod real;

pub use clock::{Clock, RealClock};
pub use cpu_times::CpuTimes;
pub use disk::{Disk, DiskCompletion, DiskError, DiskTag, Durability};
pub use entropy::SystemEntropy;
pub use file::{File, FileRoom};
pub use lines::{has_lost_text, write_text};
pub use machine_load::{MachineLoad, processors_of};
pub use net::{ListenerId, Net, NetEvent, SocketId, TcpCounts, Wake};
