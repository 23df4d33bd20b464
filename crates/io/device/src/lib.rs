//! Raw devices of OSDs: what stands on one, whose it is, and whether it may become one.
//!
//! | module | says |
//! | --- | --- |
//! | `label` | which OSD a device belongs to and what lies where on it: first and last block (docs/formats/device.md) |
//! | `layout` | how a new device is divided |
//! | `content` | what somebody else keeps on a device: signatures, or bytes of unknown meaning |
//! | `usage` | who has it: mounts, swap, mappers, partitions |
//! | `name` | by which name it is found again |
//! | `claim` | all of that together: a device that `mkfs` may take |
//!
//! Layer: io; uses files of nacre-env.

#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod claim;
mod content;
mod label;
mod layout;
mod name;
mod usage;

pub use claim::{Claimed, Refusal, claim};
pub use content::{Content, content, foreign};
pub use label::{
    Found, Label, LabelCopy, LabelError, Owner, Region, RegionKind, Role, erase, read_label, repair_label,
    write_label,
};
pub use layout::{
    DATA_BYTES_MIN, LOG_BYTES_MIN, LayoutError, METADATA_BYTES_MIN, data_regions, log_region,
    metadata_regions, metadata_share,
};
pub use name::stable_name;
pub use usage::{System, usage};
