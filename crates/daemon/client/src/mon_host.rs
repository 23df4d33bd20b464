//! `mon host` in the forms that Ceph takes: addresses, names, lists, and several addresses of one monitor in brackets.
//!
//! Source: Ceph `entity_addrvec_t::parse`, `MonMap::init_with_hosts` and `MonMap::_add_ambiguous_addr`, v16.2.15.

use nacre_types::EntityAddr;
use std::cmp::Ordering;
use std::net::{IpAddr, SocketAddr};

/// Where monitors listen with messenger v2 unless told otherwise.
pub const MSGR2_PORT: u16 = 3300;
/// Where they listen with messenger v1, which is not spoken.
const OLD_PORT: u16 = 6789;
/// Entries of one `mon host`.
const HOSTS_MAX: usize = 256;

/// One place where a monitor may listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonHost {
    /// An address, or a name for the resolver.
    pub host: String,
    /// TCP port; 3300 where none is given.
    pub port: u16,
    /// It is of messenger v1, which is not spoken.
    pub is_old: bool,
}

/// Why a text is no list of monitors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MonHostError {
    /// One entry is neither address nor name.
    #[error("'{0}' is neither an address nor the name of a host")]
    Entry(String),
    /// More than any cluster has.
    #[error("it has more than 256 entries")]
    Many,
    /// It names nobody.
    #[error("it is empty")]
    Empty,
}

impl MonHost {
    /// Its address; `None` where the resolver must be asked.
    #[must_use]
    pub fn addr(&self) -> Option<EntityAddr> {
        let ip: IpAddr = self.host.parse().ok()?;
        Some(EntityAddr::msgr2(SocketAddr::new(ip, self.port), 0))
    }
}

/// Reads all of `mon host`: entries with commas, semicolons or spaces between them; `[v2:...,v1:...]` is one monitor with several addresses.
///
/// # Errors
/// [`MonHostError`].
pub fn parse(text: &str) -> Result<Vec<MonHost>, MonHostError> {
    let words = text.split([',', ';', ' ', '\t', '\n']).map(bare);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).take(HOSTS_MAX + 1).collect();
    if words.len() > HOSTS_MAX {
        return Err(MonHostError::Many);
    }
    if words.is_empty() {
        return Err(MonHostError::Empty);
    }
    words.iter().map(|word| entry(word).ok_or_else(|| MonHostError::Entry((*word).to_owned()))).collect()
}

/// A word without the brackets of a list; those around a v6 address stay.
fn bare(word: &str) -> &str {
    let count = |bracket| word.matches(bracket).count();
    match count('[').cmp(&count(']')) {
        Ordering::Greater => word.strip_prefix('[').unwrap_or(word),
        Ordering::Less => word.strip_suffix(']').unwrap_or(word),
        Ordering::Equal if word.starts_with("[v") => {
            word.trim_start_matches('[').strip_suffix(']').unwrap_or(word)
        }
        Ordering::Equal => word,
    }
}

fn entry(word: &str) -> Option<MonHost> {
    let (kind, rest) = match (word.strip_prefix("v2:"), word.strip_prefix("v1:")) {
        (Some(rest), _) => (Some(2), rest),
        (_, Some(rest)) => (Some(1), rest),
        _ => (None, word),
    };
    // A nonce means nothing at a monitor.
    let rest = rest.split_once('/').map_or(rest, |(rest, _)| rest);
    let (host, port) = host_and_port(rest)?;
    // Ceph takes 6789 alone for v1, and any other port for either.
    let is_old = kind == Some(1) || (kind.is_none() && port == Some(OLD_PORT));
    Some(MonHost { host, port: port.unwrap_or(MSGR2_PORT), is_old })
}

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Some((socket.ip().to_string(), Some(socket.port()).filter(|port| *port > 0)));
    }
    if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Some((ip.to_string(), None));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?)),
        None => (text, None),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    // All digits and dots would have been an address.
    let is_host =
        !host.is_empty() && host.chars().all(is_name) && host.contains(|c: char| c.is_ascii_alphabetic());
    is_host.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let show =
            |host: &MonHost| format!("{} {}{}", host.host, host.port, if host.is_old { " old" } else { "" });
        parse(text).expect(text).iter().map(show).collect()
    }

    #[test]
    fn every_form_is_understood() {
        let vector = shown("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0],[v2:10.0.0.2:3301/0,v1:10.0.0.2:6789/0]");
        assert_eq!(vector, ["10.0.0.1 3300", "10.0.0.1 6789 old", "10.0.0.2 3301", "10.0.0.2 6789 old"]);
        assert_eq!(
            shown("10.0.0.1, 10.0.0.2;10.0.0.3:3301 v2:10.0.0.4"),
            ["10.0.0.1 3300", "10.0.0.2 3300", "10.0.0.3 3301", "10.0.0.4 3300"]
        );
        assert_eq!(shown("10.0.0.1:6789"), ["10.0.0.1 6789 old"]);
        assert_eq!(
            shown("mon-a.example.org,mon-b:3301,v1:mon-c"),
            ["mon-a.example.org 3300", "mon-b 3301", "mon-c 3300 old"]
        );
        assert_eq!(
            shown("[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0],[fd00::2]:3301,fd00::3,[fd00::4]"),
            ["fd00::1 3300", "fd00::1 6789 old", "fd00::2 3301", "fd00::3 3300", "fd00::4 3300"]
        );
        assert_eq!(
            shown("[v2:[fd00::1]:3300] [10.0.0.1:3300,10.0.0.1:6789]"),
            ["fd00::1 3300", "10.0.0.1 3300", "10.0.0.1 6789 old"]
        );
    }

    #[test]
    fn what_names_no_host_is_refused() {
        assert_eq!(parse(" ,"), Err(MonHostError::Empty));
        for wrong in ["10.0.0.1:port", "10.0.0.256", "a b:0", "$host", "v2:"] {
            assert!(matches!(parse(wrong), Err(MonHostError::Entry(_))), "{wrong}: {:?}", parse(wrong));
        }
        assert_eq!(parse(&"a,".repeat(257)), Err(MonHostError::Many));
    }
}
