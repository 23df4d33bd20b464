//! Erasure codes: how an object's data becomes chunks on `k + m` shards, and how what is lost is computed from any
//! `k` of them. Layer: base; uses buf.

mod codec;
mod field;
mod layout;
mod sum;

pub use codec::{Codec, SHARDS_MAX, Shards, TooFewShards};
pub use layout::Layout;
pub use sum::linear_sum;
