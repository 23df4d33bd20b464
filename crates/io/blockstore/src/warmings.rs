//! [`Warmings`]: metadata that are being read before they are asked for (`warming.rs`).

use crate::table::{BlockRange, Step};
use nacre_kv::Warmed;
use nacre_store::WarmToken;
use nacre_types::{HObject, SpgId};
use slab::Slab;

/// What an operation waits for.
#[derive(Debug)]
pub(crate) struct Warming {
    pub(crate) at: SpgId,
    pub(crate) object: HObject,
    pub(crate) blocks: BlockRange,
    pub(crate) token: WarmToken,
    /// What is being read.
    pub(crate) step: Step,
}

/// Those that are under way, by the tags of what they wait for, what was read for them, and those that are not any more.
#[derive(Debug, Default)]
pub(crate) struct Warmings {
    pub(crate) under_way: Slab<Warming>,
    pub(crate) read: Vec<Warmed>,
    pub(crate) done: Vec<WarmToken>,
}
