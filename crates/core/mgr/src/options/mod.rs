//! The table of options: Ceph's names, types, defaults and bounds, and what each means here.
//!
//! Facts are those of Ceph v16.2.15 (`ceph config help`), except where the sentence says otherwise. `config
//! set` checks values against it; the OSD, the monitor and `config help|ls` read it.

mod check;
mod client;
mod common;
mod debug;
mod mon;
mod osd;
mod readers;
mod values;

pub use check::OptionError;
pub use values::Values;

/// Type of an option's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Not negative; `k`, `M`, ... mean powers of 1000.
    Uint,
    /// An integer.
    Int,
    /// `true` or `false`.
    Bool,
    /// A number.
    Float,
    /// Bytes; `K`, `Mi`, `G`, ... mean powers of 1024.
    Size,
    /// Any text.
    Text,
    /// Whole seconds, or a span such as `2h`.
    Seconds,
    /// Milliseconds.
    Millis,
    /// A network address, or several.
    Addr,
    /// A UUID.
    Uuid,
    /// `N` or `N/M`, each up to 99.
    DebugLevel,
}

impl Kind {
    /// Ceph's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uint => "uint",
            Self::Int => "int",
            Self::Bool => "bool",
            Self::Float => "float",
            Self::Size => "size",
            Self::Text | Self::DebugLevel => "str",
            Self::Seconds => "secs",
            Self::Millis => "millisecs",
            Self::Addr => "addr",
            Self::Uuid => "uuid",
        }
    }
}

/// For whom an option is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Everybody.
    Basic,
    /// Operators who know why.
    Advanced,
    /// Developers.
    Dev,
}

impl Level {
    /// Ceph's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Advanced => "advanced",
            Self::Dev => "dev",
        }
    }
}

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// Its name, words joined by underscores.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    /// Value when nobody sets it.
    pub default: &'static str,
    /// Smallest value, if bounded.
    pub min: Option<&'static str>,
    /// Largest value, if bounded.
    pub max: Option<&'static str>,
    /// The only values allowed; empty when any is.
    pub choices: &'static [&'static str],
    /// For whom it is meant.
    pub level: Level,
    /// Whether a running daemon follows a change.
    pub runtime: bool,
    /// Kinds of daemons that read it; empty when many do.
    pub services: &'static [&'static str],
    /// One sentence.
    pub text: &'static str,
}

const fn row(name: &'static str, kind: Kind, default: &'static str, text: &'static str) -> OptionInfo {
    OptionInfo {
        name,
        kind,
        default,
        min: None,
        max: None,
        choices: &[],
        level: Level::Advanced,
        runtime: true,
        services: &[],
        text,
    }
}

impl OptionInfo {
    const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    const fn at_least(mut self, min: &'static str) -> Self {
        self.min = Some(min);
        self
    }

    const fn at_most(mut self, max: &'static str) -> Self {
        self.max = Some(max);
        self
    }

    const fn one_of(mut self, choices: &'static [&'static str]) -> Self {
        self.choices = choices;
        self
    }

    const fn services(mut self, services: &'static [&'static str]) -> Self {
        self.services = services;
        self
    }

    const fn at_start(mut self) -> Self {
        self.runtime = false;
        self
    }
}

/// All options, topic by topic, names ascending within each.
pub fn all() -> impl Iterator<Item = &'static OptionInfo> {
    [common::TABLE, debug::TABLE, mon::TABLE, osd::TABLE, client::TABLE].into_iter().flatten()
}

/// The option of that name; spaces and hyphens count as underscores.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionInfo> {
    let name = name.trim().replace([' ', '-'], "_");
    all().find(|option| option.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_defaults_pass_their_own_check() {
        let mut seen = BTreeSet::new();
        for option in all() {
            assert!(seen.insert(option.name), "{} twice", option.name);
            if !option.default.is_empty() {
                assert!(option.check(option.default).is_ok(), "default of {}", option.name);
            }
        }
        assert!(seen.len() > 150);
    }

    #[test]
    fn names_are_found_with_spaces_too() {
        assert_eq!(find("osd max-backfills").map(|option| option.name), Some("osd_max_backfills"));
        assert_eq!(find("no_such_option"), None);
        assert_eq!(find("mon_allow_pool_delete").map(|option| option.default), Some("false"));
    }
}
