//! CRUSH: the cluster's hierarchy, placement rules and the mapping of an input to devices.
//!
//! Source of the formats and of the algorithm: Ceph `src/crush/` at v16.2.15; every function here is judged
//! by `crushtool` and `osdmaptool` (see the placement oracle of the maps crate). Layer: base; uses buf, denc.
#![warn(clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod bucket;
mod choose;
mod classes;
mod codec;
mod edit;
pub mod hash;
pub mod ln;
mod map;
mod mapper;
mod rules;

pub use bucket::TREE_ITEMS_MAX;
pub use edit::{EditError, Location, is_valid_name};
pub use map::{
    Bucket, BucketAlg, BucketBody, ChooseArg, ChooseArgs, CrushMap, Rule, RuleKind, Step, Tunables,
};
pub use mapper::{DRAWS_MAX, Items, RESULT_MAX};
pub use rules::{RuleMode, SimpleRule};

/// "No item" in a mapping: a hole of an erasure-coded set. Ceph `CRUSH_ITEM_NONE`.
pub const ITEM_NONE: i32 = 0x7fff_ffff;

/// Bucket slots that a map may have; bounds what a peer's `max_buckets` makes us reserve.
pub const BUCKETS_MAX: usize = 1 << 20;
/// Items in one bucket.
pub const BUCKET_ITEMS_MAX: usize = 1 << 20;
/// Rule slots; Ceph's `CRUSH_MAX_RULES`.
pub const RULES_MAX: usize = 256;
/// Steps in one rule; Ceph's length field is compared with `CRUSH_MAX_...` nowhere, so the limit is ours.
pub const RULE_STEPS_MAX: usize = 4096;
