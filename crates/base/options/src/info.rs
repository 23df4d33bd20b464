//! [`OptionInfo`]: what is known of one option. Its private builders are the words in which the tables are written.

/// Type of an option's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Not negative; `k`, `M`, ... mean powers of 1000.
    Uint,
    /// An integer, with a sign.
    Int,
    /// `true` or `false`.
    Bool,
    /// A number in floating point.
    Float,
    /// Bytes; `K`, `Mi`, `G`, ... mean powers of 1024.
    Size,
    /// Any text at all.
    Text,
    /// Whole seconds, or a span such as `2h`.
    Seconds,
    /// A time in milliseconds.
    Millis,
    /// A network address, or several.
    Addr,
    /// A UUID, as text.
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

/// What kind of operator an option is meant for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// For every operator to look at.
    Basic,
    /// For operators with a reason to change it.
    Advanced,
    /// For developers of the daemon.
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

/// One option of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// Its name, words joined by underscores.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Kind,
    /// Value when it is not set.
    pub default: &'static str,
    /// Smallest value, if bounded.
    pub min: Option<&'static str>,
    /// Largest value, if bounded.
    pub max: Option<&'static str>,
    /// The only values allowed; empty when any is.
    pub choices: &'static [&'static str],
    /// What kind of operator it is meant for.
    pub level: Level,
    /// Whether a running daemon follows a change.
    pub runtime: bool,
    /// Kinds of daemons that read it; empty when many do.
    pub services: &'static [&'static str],
    /// What the option sets, in a sentence.
    pub text: &'static str,
}

/// A row of the table: an option for operators who know why, which a running daemon follows.
pub(crate) const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    text: &'static str,
) -> OptionInfo {
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
    pub(crate) const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    pub(crate) const fn at_least(mut self, min: &'static str) -> Self {
        self.min = Some(min);
        self
    }

    pub(crate) const fn at_most(mut self, max: &'static str) -> Self {
        self.max = Some(max);
        self
    }

    pub(crate) const fn one_of(mut self, choices: &'static [&'static str]) -> Self {
        self.choices = choices;
        self
    }

    pub(crate) const fn services(mut self, services: &'static [&'static str]) -> Self {
        self.services = services;
        self
    }

    pub(crate) const fn at_start(mut self) -> Self {
        self.runtime = false;
        self
    }
}
