//! Aligned pooled buffers, gather lists of shared slices, byte strings and CRC-32C.
//!
//! A payload is read once into an [`AlignedBuf`], frozen into [`Bytes`] and from then on handed by
//! reference to the store, the replicas and the checksum. Layer: base; uses nothing of ours.

mod aligned;
mod bufs;
mod bytestr;
pub mod crc;
mod known;

pub use aligned::{ALIGNMENT_BYTES, AlignedBuf};
pub use bufs::BufList;
pub use bytes::Bytes;
pub use bytestr::ByteStr;
pub use crc::PAYLOAD_CRC_SEED;
