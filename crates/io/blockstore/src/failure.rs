//! [`Failure`]: the first reason why metadata could not be read.

use std::cell::RefCell;
use std::fmt::Display;

/// Once it has one, what the store says may be wrong: it acknowledges nothing more, and begins no checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Failure(RefCell<Option<String>>);

impl Failure {
    pub(crate) fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub(crate) fn note(&self, error: &impl Display) {
        let mut failed = self.0.borrow_mut();
        if failed.is_none() {
            let reason = format!("metadata cannot be read: {error}");
            tracing::error!(reason, "device failure: the store acknowledges nothing any more");
            *failed = Some(reason);
        }
    }
}
