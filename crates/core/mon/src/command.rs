//! The seam between the monitor and its command table: what a command is given and what it returns.

use crate::session::Identity;
use crate::state::State;
use nacre_buf::Bytes;
use nacre_types::{Entropy, Errno, Stamp, UTime};
use serde_json::{Map, Value};

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
    /// Calendar time.
    pub wall: UTime,
    /// Randomness for keys and ids.
    pub entropy: &'a mut dyn Entropy,
}

/// One parsed command.
#[derive(Debug, Clone, Default)]
pub struct CommandInput {
    /// The words of the command, such as `osd pool create`.
    pub prefix: String,
    /// All arguments, `prefix` and `format` included.
    pub args: Map<String, Value>,
    /// The `format` argument; empty or `plain` for text.
    pub format: String,
    /// Bulk input (`-i file`).
    pub data: Bytes,
}

/// What a command answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// 0, a positive value of the command's, or a negated error number.
    pub code: i32,
    /// For standard error and the log.
    pub text: String,
    /// For standard output.
    pub data: Bytes,
}

impl Output {
    /// Success with a line for people.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Success with output bytes.
    #[must_use]
    pub fn data(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), ..Self::default() }
    }

    /// Failure with its reason.
    #[must_use]
    pub fn error(errno: Errno, text: impl Into<String>) -> Self {
        Self { code: errno.negated(), text: text.into(), ..Self::default() }
    }
}
