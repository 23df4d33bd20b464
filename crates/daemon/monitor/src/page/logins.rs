//! [`Logins`]: who is logged in to the web page, and how many tries have failed.

use nacre_mon::Reader;
use nacre_types::{Entropy, Stamp};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Who is logged in at a time; beyond that the one whose login ends first has to log in again.
const LOGINS_COUNT_MAX: usize = 64;
/// And of one entity: beyond that its own oldest one is over.
const LOGINS_OF_ONE_MAX: usize = 8;
/// How long a login lasts.
pub(super) const LOGIN_LASTS: Duration = Duration::from_secs(8 * 3600);
/// Tries that fail within [`TRIES_WINDOW`], of one address and of all, are told apart up to so many.
const FAILURES_OF_ONE_MAX: u32 = 5;
const FAILURES_MAX: u32 = 100;
const TRIES_WINDOW: Duration = Duration::from_secs(60);
/// Bytes of a token: more than can be guessed.
const TOKEN_BYTES: usize = 32;

type Token = [u8; TOKEN_BYTES];

/// Tries of the last minute that failed, by address; a network of IPv6 hosts counts as one.
#[derive(Debug, Default)]
struct Failures {
    since: Stamp,
    of: BTreeMap<IpAddr, u32>,
    all: u32,
}

/// Logins by token.
#[derive(Default)]
pub(super) struct Logins {
    of: Vec<(Token, Reader, Stamp)>,
    failures: Failures,
}

fn network(from: IpAddr) -> IpAddr {
    match from {
        IpAddr::V4(_) => from,
        IpAddr::V6(addr) => {
            let [a, b, c, d, ..] = addr.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

fn to_text(token: &Token) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The comparison takes as long whichever byte differs.
fn is_same(token: &Token, text: &str) -> bool {
    let own = to_text(token);
    let differs = own.bytes().zip(text.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    own.len() == text.len() && std::hint::black_box(differs) == 0
}

impl Failures {
    fn is_over(&self, now: Stamp) -> bool {
        now.since(self.since) >= TRIES_WINDOW
    }
}

impl Logins {
    /// Counts a try that has failed; false when there were too many already, of which no more is to be said. A key cannot be guessed,
    /// however often one tries, so the right one is let in all the same: else anybody could keep others out.
    pub(super) fn failed(&mut self, from: IpAddr, now: Stamp) -> bool {
        if self.failures.is_over(now) {
            self.failures = Failures { since: now, ..Failures::default() };
        }
        let Failures { of, all, .. } = &mut self.failures;
        if *all >= FAILURES_MAX || of.get(&network(from)).is_some_and(|count| *count >= FAILURES_OF_ONE_MAX) {
            return false;
        }
        *all += 1;
        *of.entry(network(from)).or_default() += 1;
        true
    }

    /// The reader is logged in under the token that is returned.
    pub(super) fn succeeded(&mut self, reader: Reader, now: Stamp, entropy: &mut dyn Entropy) -> String {
        self.of.retain(|(.., until)| *until > now);
        // They are in the order in which they end.
        let own = self.of.iter().enumerate().filter(|(_, (_, other, _))| other.name == reader.name);
        let own: Vec<usize> = own.map(|(at, _)| at).collect();
        let oldest_own = own.first().copied().filter(|_| own.len() >= LOGINS_OF_ONE_MAX);
        let oldest = (self.of.len() >= LOGINS_COUNT_MAX).then_some(0);
        if let Some(over) = oldest_own.or(oldest) {
            self.of.remove(over);
        }
        let mut token = [0; TOKEN_BYTES];
        entropy.fill(&mut token);
        self.of.push((token, reader, now + LOGIN_LASTS));
        to_text(&token)
    }

    /// Who has this token, while his login lasts.
    pub(super) fn find(&self, token: &str, now: Stamp) -> Option<&Reader> {
        let mut found = None;
        for (own, reader, until) in &self.of {
            if is_same(own, token) && *until > now {
                found = Some(reader);
            }
        }
        found
    }

    /// The login with this token is over.
    pub(super) fn end(&mut self, token: &str) {
        self.of.retain(|(own, ..)| !is_same(own, token));
    }

    /// All are over.
    pub(super) fn clear(&mut self) {
        self.of.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;

    fn at(second: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(1000 + second)
    }

    fn addr(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn reader(name: &str) -> Reader {
        // A key of sixteen zeros.
        Reader::parse(name, "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==", addr(1)).expect("a name and a key")
    }

    #[test]
    fn a_login_lasts_for_its_time_and_they_are_bounded() {
        let (mut logins, mut entropy) = (Logins::default(), SeededEntropy(1));
        let token = logins.succeeded(reader("admin"), at(0), &mut entropy);
        let name =
            |logins: &Logins, token: &str, now| logins.find(token, now).map(|reader| reader.name.to_string());
        assert_eq!(token.len(), 2 * TOKEN_BYTES);
        assert_eq!(name(&logins, &token, at(1)), Some("client.admin".to_owned()));
        assert_eq!(name(&logins, &token[1..], at(1)), None);
        assert_eq!(name(&logins, &"0".repeat(64), at(1)), None);
        assert_eq!(name(&logins, &token, at(LOGIN_LASTS.as_secs())), None);
        let others: Vec<String> = (0..LOGINS_COUNT_MAX)
            .map(|number| logins.succeeded(reader(&format!("reader{number}")), at(2), &mut entropy))
            .collect();
        assert_eq!(name(&logins, &token, at(3)), None, "it had to make room");
        assert!(others.iter().all(|token| logins.find(token, at(3)).is_some()));
        logins.end(&others[0]);
        assert!(logins.find(&others[0], at(3)).is_none() && logins.find(&others[1], at(3)).is_some());
        logins.clear();
        assert!(logins.find(&others[1], at(3)).is_none());
    }

    #[test]
    fn one_entity_cannot_crowd_out_others() {
        let (mut logins, mut entropy) = (Logins::default(), SeededEntropy(1));
        let admin = logins.succeeded(reader("admin"), at(0), &mut entropy);
        let own: Vec<String> =
            (0..LOGINS_COUNT_MAX).map(|_| logins.succeeded(reader("reader"), at(1), &mut entropy)).collect();
        let lasts = own.iter().map(|token| logins.find(token, at(2)).is_some()).collect::<Vec<_>>();
        let first = LOGINS_COUNT_MAX - LOGINS_OF_ONE_MAX;
        assert!(lasts[..first].iter().all(|lasts| !lasts) && lasts[first..].iter().all(|lasts| *lasts));
        assert!(logins.find(&admin, at(2)).is_some());
    }

    #[test]
    fn failures_are_counted_by_network_and_in_all() {
        let mut logins = Logins::default();
        assert!((0..FAILURES_OF_ONE_MAX).all(|_| logins.failed(addr(1), at(0))));
        assert!(!logins.failed(addr(1), at(59)));
        assert!(logins.failed(addr(2), at(59)), "another one");
        assert!(logins.failed(addr(1), at(60)));
        let many = |n: u32| IpAddr::from([10, 1, (n >> 8) as u8, n as u8]);
        let taken = (0..1000).filter(|n| logins.failed(many(*n), at(61))).count();
        assert_eq!(taken, FAILURES_MAX as usize - 1, "of many addresses");
        let v6 = |last: &str| format!("fd00:1:2:3::{last}").parse::<IpAddr>().expect("valid");
        assert!((0..FAILURES_OF_ONE_MAX).all(|n| logins.failed(v6(&n.to_string()), at(200))));
        assert!(!logins.failed(v6("ffff"), at(200)), "of one network");
    }
}
