//! Constraints on command arguments: equal, prefix, and a small regular expression.

use super::regex::Regex;

/// What the value of an argument must be like.
#[derive(Debug, Clone)]
pub(super) enum TextMatch {
    Equal(String),
    Prefix(String),
    /// `None` for an expression that we cannot read: matches nothing.
    Regex(Option<Regex>),
    /// The argument must not be given at all.
    Absent,
}

impl TextMatch {
    pub(super) fn equal(text: &str) -> Self {
        Self::Equal(text.to_owned())
    }

    pub(super) fn prefix(text: &str) -> Self {
        Self::Prefix(text.to_owned())
    }

    pub(super) fn regex(text: &str) -> Self {
        Self::Regex(Regex::compile(text))
    }

    pub(super) fn accepts(&self, value: &str) -> bool {
        match self {
            Self::Equal(want) => value == want,
            Self::Prefix(want) => value.starts_with(want.as_str()),
            Self::Absent => false,
            Self::Regex(regex) => regex.as_ref().is_some_and(|regex| regex.matches(value)),
        }
    }
}
