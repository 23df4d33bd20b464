//! Encryption at rest: what a store writes to its devices and files is AES-256 in XTS mode, and a key that the monitors keep opens it.
//!
//! | file | holds |
//! |---|---|
//! | `xts` | the mode: sectors are encrypted and decrypted in place |
//! | `disk`, `file` | a [`Disk`](nacre_env::disk::Disk) and a [`File`](nacre_env::File) over another whose content is encrypted |
//! | `data_key` | the key of a store's data, a cipher for each of its parts from it, and the key that wraps it |
//! | `key_block` | where the wrapped keys lie |
//!
//! A loss of power leaves the same sectors old or new as without encryption: a block of 16 bytes depends on the key, on its place and on
//! nothing else. For the same reason nothing here tells whether a sector is as it was written: whoever writes to the device may put an
//! earlier content back, or spoil 16 bytes at a time. The store's own checksums find what chance does, not what an attacker does.
//!
//! Layer: io; uses base and nacre-env.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod data_key;
mod disk;
mod file;
mod key_block;
mod xts;

pub use data_key::{DataKey, Part, WRAPPED_BYTES, WrappingKey};
pub use disk::CryptDisk;
pub use file::CryptFile;
pub use key_block::{Copies, FoundKeyBlock, KEY_BLOCK_BYTES, KeyBlock, KeyBlockError, KeyPlaces, SLOTS_MAX};
pub use xts::Xts;
