//! [`Tuning`]: what tests and the simulation make otherwise than it is in production.

use crate::LogLimits;

/// A mistake built in on purpose, to prove that the simulation would find it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// None.
    #[default]
    Nothing,
    /// A write is answered when it is durable here, not on all members.
    EarlyReply,
    /// A repeated request is executed again.
    NoDuplicateCheck,
    /// Objects that only entries outside of the authoritative log have changed stay as they are.
    DivergentKept,
    /// One copy is enough to serve, whatever the pool says.
    MinSizeIgnored,
}

/// How a group behaves beside what the maps say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuning {
    /// Limits of the log.
    pub limits: LogLimits,
    /// [`crate::Pg::check`] runs after every event.
    pub checked: bool,
    #[doc(hidden)]
    pub planted: Planted,
}
