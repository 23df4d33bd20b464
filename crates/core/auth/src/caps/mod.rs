//! Capabilities: the text that says what an entity may do at a service, parsed once per session.
//!
//! Source: Ceph `src/osd/OSDCap.cc`, `src/mon/MonCap.cc`, `src/mgr/MgrCap.cc`, `src/mds/MDSAuthCaps.cc` at v16.2.15.

mod lexer;
mod mds;
mod mgr;
mod mon;
mod network;
mod osd;
mod regex;
mod rights;
mod text_match;

pub use mgr::MgrCaps;
pub use mon::MonCaps;
pub use osd::{CLASS_CALLS_MAX, ClassCall, OsdCaps, OsdRequest};

/// Why caps text was refused, and from where on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapsError {
    /// Text that the grammar does not know.
    #[error("cannot read {service} caps '{text}' from '{rest}' on")]
    Syntax {
        /// Whose grammar: `osd`, `mon` or `mgr`.
        service: &'static str,
        /// What was left when reading stopped.
        rest: String,
        /// All of it.
        text: String,
    },
    /// Text that ends where more is needed.
    #[error("{service} caps '{text}' end where more is needed")]
    Truncated {
        /// Service whose grammar it is read by: `mon`, `osd`, `mgr`.
        service: &'static str,
        /// All of it.
        text: String,
    },
    /// A profile that the service does not have.
    #[error("{service} caps name the profile '{profile}', which does not exist")]
    Profile {
        /// Service whose grammar it is read by: `mon`, `osd`, `mgr`.
        service: &'static str,
        /// Name of the profile that is not known.
        profile: String,
    },
    /// A profile that does not take this argument.
    #[error("{service} caps: the profile '{profile}' takes no '{key}'")]
    ProfileKey {
        /// Service whose grammar it is read by: `mon`, `osd`, `mgr`.
        service: &'static str,
        /// Name of the profile that is not known.
        profile: String,
        /// Name of the argument.
        key: String,
    },
    /// More text than anybody would write by hand.
    #[error("{service} capability of {bytes} bytes is longer than {CAPS_BYTES_MAX}")]
    TooLong {
        /// Service whose grammar it is read by: `mon`, `osd`, `mgr`.
        service: &'static str,
        /// Length of the text.
        bytes: usize,
    },
    /// No service of this name takes caps.
    #[error("unknown cap type '{0}'")]
    UnknownService(String),
}

/// Longest caps text; bounds the work per session.
pub const CAPS_BYTES_MAX: usize = 64 * 1024;

/// A set of read, write and execute rights.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rwx(u8);

impl Rwx {
    /// No right at all.
    pub const NONE: Self = Self(0);
    /// The right to read.
    pub const R: Self = Self(1);
    /// The right to write.
    pub const W: Self = Self(2);
    /// The right to call methods of classes.
    pub const X: Self = Self(4);
    /// Read, write and execute; still less than `*`.
    pub const ALL: Self = Self(7);

    /// Reads any of the letters `r`, `w`, `x`, as the command table has them.
    #[must_use]
    pub fn of_letters(letters: &str) -> Self {
        letters.chars().fold(Self::NONE, |all, letter| match letter {
            'r' => all | Self::R,
            'w' => all | Self::W,
            'x' => all | Self::X,
            _ => all,
        })
    }

    /// True when every right of `needed` is in `self`.
    #[must_use]
    pub const fn covers(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// True when there is no right at all.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitOr for Rwx {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::fmt::Debug for Rwx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letters = [(Self::R, 'r'), (Self::W, 'w'), (Self::X, 'x')];
        letters
            .iter()
            .filter(|(right, _)| self.covers(*right))
            .try_for_each(|(_, letter)| write!(f, "{letter}"))
    }
}

/// Checks caps text as `auth add` does before it is stored. Caps of the MDS are for it to read: only their form is checked.
///
/// # Errors
/// [`CapsError`].
pub fn validate(service: &str, text: &str) -> Result<(), CapsError> {
    let nobody = nacre_types::AuthName::default();
    match service {
        "osd" => OsdCaps::parse(text).map(drop),
        "mon" => MonCaps::parse(text, &nobody).map(drop),
        "mgr" => MgrCaps::parse(text, &nobody).map(drop),
        "mds" => mds::check(text),
        other => Err(CapsError::UnknownService(other.to_owned())),
    }
}
