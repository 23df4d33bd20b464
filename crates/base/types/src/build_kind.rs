//! [`BuildKind`]: whether a program was built for speed.

/// How a program was compiled. Two that differ in this are several times apart in speed, whatever else is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildKind {
    /// The compiler's level of optimisation: `0` to `3`, `s` or `z`.
    pub opt_level: String,
    /// Whether checks for developers run beside the work.
    pub debug_assertions: bool,
}

impl BuildKind {
    /// Under this name an OSD tells it in its metadata (`ceph osd metadata`).
    pub const METADATA_KEY: &str = "nacre_build";

    /// Of the program that runs.
    #[must_use]
    pub fn own() -> Self {
        Self { opt_level: env!("NACRE_OPT_LEVEL").to_owned(), debug_assertions: cfg!(debug_assertions) }
    }

    /// Reads what [`BuildKind`] is shown as; none for what is no such text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix("opt-level ")?.split(", ");
        let opt_level = words.next().filter(|level| !level.is_empty())?.to_owned();
        let debug_assertions = words.any(|word| word == "debug assertions");
        Some(Self { opt_level, debug_assertions })
    }

    /// Whether it is one that users are to run, and that a measurement says something of.
    #[must_use]
    pub fn is_optimised(&self) -> bool {
        matches!(self.opt_level.as_str(), "2" | "3") && !self.debug_assertions
    }
}

impl std::fmt::Display for BuildKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let beside = if self.debug_assertions { ", debug assertions" } else { "" };
        write!(f, "opt-level {}{beside}", self.opt_level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_read_as_it_is_shown() {
        for (opt_level, debug_assertions, is_optimised) in [
            ("3", false, true),
            ("3", true, false),
            ("0", true, false),
            ("1", false, false),
            ("2", false, true),
        ] {
            let kind = BuildKind { opt_level: opt_level.to_owned(), debug_assertions };
            assert_eq!(BuildKind::parse(&kind.to_string()), Some(kind.clone()));
            assert_eq!(kind.is_optimised(), is_optimised, "{kind}");
        }
        assert_eq!(BuildKind::parse("release"), None);
        assert_eq!(BuildKind::parse("opt-level "), None);
        assert!(!BuildKind::own().is_optimised(), "tests have assertions");
    }
}
