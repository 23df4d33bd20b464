//! [`Place`]: one of the connections that a listener serves at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A connection's place among a bounded number; free again when it is dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Place {
    /// A place, where fewer than `max` are taken.
    pub(crate) fn take(taken: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let place = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::AcqRel) < max).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
