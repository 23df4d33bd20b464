//! A command as it is read, and what it answers.

use nacre_buf::Bytes;
use nacre_types::Errno;
use serde_json::{Map, Value};

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
