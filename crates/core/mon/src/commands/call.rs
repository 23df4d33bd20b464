//! [`Call`]: what a handler works on, and [`Answer`]: what it returns.

use super::args::Args;
use crate::command::{CommandCx, CommandInput, Output};
use crate::osd::PoolError;
use crate::session::Identity;
use crate::state::State;
use nacre_buf::Bytes;
use nacre_format::{Format, Node};
use nacre_types::{Entropy, Errno, PoolId, Stamp, UTime};

/// What a handler works on.
pub struct Call<'a> {
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
    /// Arguments, checked against the command's signature.
    pub args: Args,
    /// How to answer.
    pub format: Format,
    /// Input beside the arguments, as of `-i FILE`.
    pub data: &'a Bytes,
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the client's exit code says.
    pub errno: Errno,
    /// What the client shows.
    pub text: String,
}

impl Failure {
    /// The reply that says so.
    #[must_use]
    pub fn into_output(self) -> Output {
        Output::error(self.errno, self.text)
    }
}

/// What a handler returns.
pub type Answer = Result<Output, Failure>;

/// Why a command is refused: the error and the text of the reply.
pub(super) fn refuse(errno: Errno, text: impl Into<String>) -> Failure {
    Failure { errno, text: text.into() }
}

/// A handler's way to refuse.
pub(super) fn fail<T>(errno: Errno, text: impl Into<String>) -> Result<T, Failure> {
    Err(refuse(errno, text))
}

/// A change of a pool was refused.
pub(super) fn pool_failure(error: &PoolError) -> Failure {
    refuse(Errno::from(error), error.to_string())
}

/// Success with a line for people.
pub(super) fn done(text: impl Into<String>) -> Answer {
    Ok(Output::text(text))
}

impl<'a> Call<'a> {
    pub(super) fn new(cx: &'a mut CommandCx<'_>, input: &'a CommandInput, args: Args) -> Self {
        Self {
            state: cx.state,
            identity: cx.identity,
            now: cx.now,
            wall: cx.wall,
            entropy: cx.entropy,
            args,
            format: Format::parse(&input.format),
            data: &input.data,
        }
    }

    /// True when text for people was asked for.
    pub(super) fn is_plain(&self) -> bool {
        self.format == Format::Plain
    }

    /// Answers with a tree; plain text is the same as pretty JSON.
    pub(super) fn tree(&self, root: &str, node: impl Into<Node>) -> Answer {
        Ok(Output::data(node.into().render(self.format, root)))
    }

    /// Answers with `plain` for people, else with a tree.
    pub(super) fn either(&self, root: &str, plain: impl Into<String>, node: impl Into<Node>) -> Answer {
        if self.is_plain() { Ok(Output::data(plain.into())) } else { self.tree(root, node) }
    }

    /// The pool of a name, as the next epoch will have it.
    pub(super) fn pool_id(&mut self, name: &str) -> Result<PoolId, Failure> {
        let found =
            self.state.osd.upcoming().pool_names.iter().find(|(_, at)| *at == name).map(|(id, _)| *id);
        found.ok_or_else(|| refuse(Errno::ENOENT, format!("unrecognized pool '{name}'")))
    }
}

/// Refuses what must not be judged by reports that are not there yet: see [`State::is_warm`].
pub(super) fn must_be_warm(call: &Call<'_>) -> Result<(), Failure> {
    if call.state.is_warm() {
        return Ok(());
    }
    fail(
        Errno::EAGAIN,
        "this monitor leads only since a moment ago, and not all OSDs have reported to it: nobody can tell yet. Ask again in 5 seconds",
    )
}
