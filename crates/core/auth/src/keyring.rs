//! [`Keyring`]: entities with keys and caps as INI text.
//!
//! Source: Ceph `src/auth/KeyRing.cc` and `src/common/ConfUtils.cc` at v16.2.15; the printed form is byte for
//! byte that of `ceph-authtool -C` and `ceph auth get`:
//! ```text
//! [client.admin]
//! <tab>key = <base64>
//! <tab>caps mon = "allow *"
//! ```

use crate::{CryptoError, CryptoKey, EntityAuth};
use nacre_types::{AuthName, UTime};
use std::collections::BTreeMap;
use std::fmt;

/// Longest keyring text that is read.
pub const KEYRING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why keyring text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// Longer than any keyring.
    #[error("keyring of {0} bytes is longer than {KEYRING_BYTES_MAX}")]
    TooLong(usize),
    /// Neither a section, nor `name = value`, nor a comment.
    #[error("line {0}: not a section and not `name = value`")]
    Syntax(usize),
    /// A section that does not name an entity.
    #[error("line {line}: '{name}' is not an entity")]
    Entity {
        /// Line number, from 1.
        line: usize,
        /// Name of the section, which should be an entity's.
        name: String,
    },
    /// A value outside of any section.
    #[error("line {0}: outside of a section")]
    NoSection(usize),
    /// A name other than `key` and `caps <service>`.
    #[error("line {line}: unknown field '{field}'")]
    Field {
        /// Line number, from 1.
        line: usize,
        /// What stands before the `=`.
        field: String,
    },
    /// A key that cannot be read.
    #[error("line {line}: {source}")]
    Key {
        /// Line number, from 1.
        line: usize,
        /// What is wrong with it.
        source: CryptoError,
    },
}

/// Entities in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keyring {
    entities: BTreeMap<AuthName, EntityAuth>,
}

impl Keyring {
    /// An empty keyring.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads INI text. A key without value (`key =`) and unknown fields are errors; a section without a key
    /// has a key of zeros, as in Ceph.
    ///
    /// # Errors
    /// [`KeyringError`], with the line.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        if text.len() > KEYRING_BYTES_MAX {
            return Err(KeyringError::TooLong(text.len()));
        }
        let mut ring = Self::new();
        let mut section = None;
        for (line, content) in logical_lines(text) {
            let content = without_comment(&content).trim();
            if content.is_empty() {
                continue;
            }
            if let Some(name) = content.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or(KeyringError::Syntax(line))?.trim();
                let entity = AuthName::parse(name);
                let entity = entity.ok_or_else(|| KeyringError::Entity { line, name: name.to_owned() })?;
                ring.entities.entry(entity.clone()).or_insert_with(empty_entity);
                section = Some(entity);
                continue;
            }
            let (field, value) = content.split_once('=').ok_or(KeyringError::Syntax(line))?;
            let entity = section.as_ref().and_then(|name| ring.entities.get_mut(name));
            set_field(entity.ok_or(KeyringError::NoSection(line))?, line, field, &unquoted(value.trim()))?;
        }
        Ok(ring)
    }

    /// Key and caps of `name`.
    #[must_use]
    pub fn get(&self, name: &AuthName) -> Option<&EntityAuth> {
        self.entities.get(name)
    }

    /// Adds or replaces an entity.
    pub fn insert(&mut self, name: AuthName, auth: EntityAuth) {
        self.entities.insert(name, auth);
    }

    /// All entities with their keys and caps, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&AuthName, &EntityAuth)> {
        self.entities.iter()
    }

    /// True without entities.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }
}

impl FromIterator<(AuthName, EntityAuth)> for Keyring {
    fn from_iter<I: IntoIterator<Item = (AuthName, EntityAuth)>>(entities: I) -> Self {
        Self { entities: entities.into_iter().collect() }
    }
}

/// The text of a keyring file.
impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, auth) in &self.entities {
            writeln!(f, "[{name}]\n\tkey = {}", auth.key.to_text())?;
            for (service, text) in &auth.caps {
                let text = text.replace('\\', "\\\\").replace('"', "\\\"");
                writeln!(f, "\tcaps {service} = \"{text}\"")?;
            }
        }
        Ok(())
    }
}

fn empty_entity() -> EntityAuth {
    EntityAuth { key: CryptoKey::from_parts([0; 16], UTime::ZERO), caps: BTreeMap::new() }
}

fn set_field(auth: &mut EntityAuth, line: usize, field: &str, value: &str) -> Result<(), KeyringError> {
    // Ceph takes `caps mon`, `caps_mon` and `caps  mon` for the same.
    let words: Vec<&str> = field.split([' ', '\t', '_']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        ["key"] => {
            auth.key = CryptoKey::parse(value).map_err(|source| KeyringError::Key { line, source })?;
        }
        ["caps", service] => {
            auth.caps.insert((*service).to_owned(), value.to_owned());
        }
        // Fields of old releases without a meaning today.
        ["auid"] | ["uid"] => {}
        _ => return Err(KeyringError::Field { line, field: field.trim().to_owned() }),
    }
    Ok(())
}

/// Lines with their numbers; a backslash at the end of one joins the next.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut joins = false;
    for (index, line) in text.lines().enumerate() {
        let (content, continues) = match line.strip_suffix('\\') {
            Some(content) => (content, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, last)) if joins => last.push_str(content),
            _ => lines.push((index + 1, content.to_owned())),
        }
        joins = continues;
    }
    lines
}

/// Cuts at the first `#` or `;` outside of quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            '#' | ';' if quote.is_none() => return line.split_at(at).0,
            _ => {}
        }
    }
    line
}

/// Takes one pair of quotes off and backslashes out.
fn unquoted(value: &str) -> String {
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let inside = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    let mut out = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "[osd.0]\n\tkey = AQByaAFruKl8AxAA8Z0JFankF/SExDa9BmtaFw==\n\
        [client.admin]\n\tkey = AQByaAFr1ofsAhAA+YNiS3U315IVnRUNqyGxfg==\n\
        \tcaps mon = \"allow *\"\n\tcaps osd = \"allow rwx pool=\\\"a b\\\", profile rbd\"\n";

    #[test]
    fn what_the_reference_tool_prints_reads_and_prints_the_same() {
        let ring = Keyring::parse(PRINTED).expect("a valid keyring");
        let admin = ring.get(&AuthName::parse("client.admin").expect("a name")).expect("an entity");
        assert_eq!(admin.caps["osd"], "allow rwx pool=\"a b\", profile rbd");
        assert_eq!(ring.to_string(), PRINTED);
    }

    #[test]
    fn comments_spaces_and_joined_lines_are_understood() {
        let text = "; a comment\n  [ client.a.b ] # the second dot is part of the id\n\
            key=AQByaAFruKl8AxAA8Z0JFankF/SExDa9BmtaFw== ; end\n\
            caps_mon = 'allow \\\nr' \n\tcaps   osd =\"allow rw namespace=\\\"a;b\\\"\"\nauid = 7\n\n";
        let ring = Keyring::parse(text).expect("a valid keyring");
        let entity = ring.get(&AuthName::parse("client.a.b").expect("a name")).expect("an entity");
        assert_eq!(entity.caps["mon"], "allow r");
        assert_eq!(entity.caps["osd"], "allow rw namespace=\"a;b\"");
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("key = x", KeyringError::NoSection(1)),
            ("\n[client.a\n", KeyringError::Syntax(2)),
            ("[client.a]\nnonsense", KeyringError::Syntax(2)),
            ("[nobody]", KeyringError::Entity { line: 1, name: "nobody".to_owned() }),
            (
                "[osd.0]\nkey =",
                KeyringError::Key { line: 2, source: CryptoKey::parse("").expect_err("no key") },
            ),
            ("[osd.0]\nshape = x", KeyringError::Field { line: 2, field: "shape".to_owned() }),
        ];
        for (text, want) in cases {
            assert_eq!(Keyring::parse(text), Err(want), "{text}");
        }
    }
}
