//! The seam between the monitor and its command table: what a command is given, and by its way what it returns.

pub use crate::output::{CommandInput, Output};
use crate::session::Identity;
use crate::state::State;
use nacre_types::{Entropy, Stamp, UTime};

/// What a command works on.
///
/// A command changes the state at once through the services' methods. Its reply leaves only when everything
/// that the state then held is durable, so commands know nothing of commits: they read, check, change, answer.
/// Commands that only read use `state.osd.map()`, the newest closed epoch. Those that change something check against
/// `state.osd.upcoming()`, the map with the pending changes, and edit through `state.osd.change()`, `change_pool()`,
/// `edit_crush()` or a method for the purpose.
pub struct CommandCx<'a> {
    /// The state of all services: maps, keys, options, logs.
    pub state: &'a mut State,
    /// The entity that asks, with its caps.
    pub identity: &'a Identity,
    /// Time since the process started.
    pub now: Stamp,
    /// Time of day, for stamps in maps and logs.
    pub wall: UTime,
    /// Randomness for keys and ids.
    pub entropy: &'a mut dyn Entropy,
}
