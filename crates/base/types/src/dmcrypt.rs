//! The key of an encrypted OSD as the monitors keep it: under which name, who may fetch it, and what it must be like.
//!
//! Names are those of Ceph's monitors (`src/mon/ConfigKeyService.cc`, `src/mon/AuthMonitor.cc` at v16.2.15), on which ceph-volume relies.

use crate::{AuthName, EntityKind, Uuid};

/// Characters of a key at least, without white space at its ends: 24 random bytes in Base64.
pub const KEY_CHARS_MIN: usize = 32;
/// At most, as of a value that monitors keep.
pub const KEY_CHARS_MAX: usize = 64 * 1024;

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// Anybody could try all that are as short.
    #[error(
        "a dm-crypt key of {chars} characters: at least {KEY_CHARS_MIN} are wanted, such as 128 random bytes in Base64"
    )]
    Short {
        /// Characters that it has.
        chars: usize,
    },
    /// The monitors would not keep it.
    #[error("a dm-crypt key has {KEY_CHARS_MAX} characters at most")]
    Long,
}

/// The key in a text: all but the white space at its ends, which does not count.
///
/// # Errors
/// [`KeyTextError`].
pub fn key_in(text: &str) -> Result<&str, KeyTextError> {
    let key = text.trim();
    match key.len() {
        chars @ ..KEY_CHARS_MIN => Err(KeyTextError::Short { chars }),
        KEY_CHARS_MIN..=KEY_CHARS_MAX => Ok(key),
        _ => Err(KeyTextError::Long),
    }
}

/// What the names of all keys of an OSD's store begin with.
#[must_use]
pub fn key_prefix(osd: Uuid) -> String {
    format!("dm-crypt/osd/{osd}/")
}

/// The name of the key that opens it.
#[must_use]
pub fn key_name(osd: Uuid) -> String {
    key_prefix(osd) + "luks"
}

/// Who may fetch it, and do nothing else.
#[must_use]
pub fn lockbox(osd: Uuid) -> AuthName {
    AuthName::new(EntityKind::CLIENT, format!("osd-lockbox.{osd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_ceph_volume_asks_for() {
        let osd = Uuid([0x1f; 16]);
        let text = "1f1f1f1f-1f1f-1f1f-1f1f-1f1f1f1f1f1f";
        assert_eq!(key_name(osd), format!("dm-crypt/osd/{text}/luks"));
        assert_eq!(lockbox(osd).to_string(), format!("client.osd-lockbox.{text}"));
    }

    #[test]
    fn white_space_around_a_key_does_not_count_and_bounds_do() {
        let key = "x".repeat(KEY_CHARS_MIN);
        assert_eq!(key_in(&format!(" {key}\r\n")), Ok(key.as_str()));
        assert_eq!(
            key_in(&format!("{}    \n", &key[1..])),
            Err(KeyTextError::Short { chars: KEY_CHARS_MIN - 1 })
        );
        let (longest, longer) = ("x".repeat(KEY_CHARS_MAX), "x".repeat(KEY_CHARS_MAX + 1));
        assert_eq!(key_in(&longest), Ok(longest.as_str()));
        assert_eq!(key_in(&longer), Err(KeyTextError::Long));
    }
}
