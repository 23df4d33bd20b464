//! [`Balancer`]: what our own manager's balancer did last. What it does is in `balancing`.

use nacre_types::{Stamp, UTime};

/// What it did last. Not durable: the next leader looks by itself.
#[derive(Debug, Default)]
pub struct Balancer {
    /// When it looks next.
    pub(crate) next: Option<Stamp>,
    /// When it looked last.
    pub(crate) started: Option<UTime>,
    /// What came of it, as a sentence.
    pub(crate) result: String,
}
