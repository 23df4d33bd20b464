//! Erasure codes: how an object's data becomes chunks on `k + m` shards, and how what is lost is computed from any
//! `k` of them. Layer: base; uses buf.

mod code;
mod codec;
mod field;
mod kernel;
mod layout;
mod matrix;
mod packets;
mod sum;

pub use code::{
    Code, PARITY_CEPH, PARITY_KEY, Profile, ProfileError, SHARDS_MAX, STRIPE_BYTES_MAX, STRIPE_UNIT_BYTES,
    Technique, is_marked,
};
pub use codec::{Codec, Shards, TooFewShards};
pub use layout::Layout;
