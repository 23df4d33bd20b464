//! A device in memory that behaves as badly as real ones do, on command and from a seed.
//!
//! A [`SimDevice`] is the hardware: it outlives the store above it. [`SimDevice::open`] gives the [`SimDisk`]
//! that a store owns; [`SimDevice::step`] lets one request take effect or one completion arrive, in random
//! order; [`SimDevice::crash`] cuts the power. The same seed and the same calls give the same bytes.
//!
//! What it does, and what the store above must make of it:
//!
//! | fault | the store must |
//! | --- | --- |
//! | crash: each write that was not made durable is kept, torn at 512 bytes, or lost, whatever others are | survive: all that was acknowledged is there, no transaction by half |
//! | the process is killed ([`SimDevice::kill`]): what it had submitted is done or not, and what was to be durable is only visible | survive: flush before building on what it finds |
//! | discard: each block keeps what it had, is zeros, or is what nobody has written, until it is written again; one that a crash meets may have happened in part | survive: discard only what no state that a crash can bring back refers to, and write to it only when the discard is complete |
//! | failed write or flush ([`Faults::write_errors_ppm`], [`SimDevice::fail_after`]); a failed write leaves any of its sectors, a failed flush may drop what it should have kept | acknowledge nothing more and say why; after reopening, all that was acknowledged before is there |
//! | failed read, latent sector error until the block is rewritten | survive as an error of that object; never a panic, never lost acknowledgements by a mount that went on without the unreadable part of its log |
//! | bit rot of durable data ([`SimDevice::rot`]) | notice by checksum: an error of that object, never wrong bytes |
//! | lost write (acknowledged, never done), misdirected write (done elsewhere) | notice when the data is read: old or foreign bytes must not pass for new ones. No single device can give the data back; the log's newest record lost this way cannot be noticed at all |
//! | an older copy put back ([`SimDevice::restore`]) | notice when only one of device and metadata went back; that both went back shows only to other OSDs |
//!
//! [`SimFile`] is a file that behaves as badly, for what keeps its data in a file of its own: the metadata's database.
//!
//! Layer: io; uses base and the disk seam of nacre-env.

mod config;
mod device;
mod file;
mod platter;

pub use config::{Counters, Failing, Faults, SimConfig};
pub use device::{SimDevice, SimDisk};
pub use file::{SimFile, SimFileHandle, Syncs};
pub use platter::Image;

#[cfg(test)]
mod tests;
