//! [`Holds`]: what peers sent while the monitor cannot serve them.

use super::input::Input;
use crate::event::SessionId;
use nacre_msg::Auth;
use nacre_types::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a handshake waits before its connection is closed: less than the 3 s after which stock clients try another monitor by themselves.
pub(super) const HELD_MAX: Duration = Duration::from_millis(2500);
/// After this the handshake of a new client goes on although nobody leads, for `tell` alone: it may ask this monitor how it is.
const TELL_AFTER: Duration = Duration::from_millis(2000);
/// Bytes that may wait: those of handshakes, and the same again those of renewals.
const HELD_BYTES_MAX: usize = 16 << 20;

/// Payloads that wait, one of each handshake and the newest renewal of each session.
#[derive(Debug, Default)]
pub(super) struct Holds {
    handshakes: BTreeMap<(Stamp, SessionId), Input>,
    /// When each of them came.
    since: BTreeMap<SessionId, Stamp>,
    handshake_bytes: usize,
    /// Those of them that may go on for `tell`.
    for_tell: BTreeSet<(Stamp, SessionId)>,
    renewals: BTreeMap<SessionId, (u64, Auth)>,
    renewal_bytes: usize,
}

impl Holds {
    /// Keeps a payload of a handshake; false when there is no room, or when one of it waits already: its peer does not wait for its turn.
    pub(super) fn handshake(&mut self, session: SessionId, now: Stamp, input: Input, for_tell: bool) -> bool {
        let bytes = input.len();
        if self.handshake_bytes + bytes > HELD_BYTES_MAX || self.since.contains_key(&session) {
            return false;
        }
        self.handshake_bytes += bytes;
        self.since.insert(session, now);
        self.handshakes.insert((now, session), input);
        if for_tell {
            self.for_tell.insert((now, session));
        }
        true
    }

    /// Keeps a renewal of tickets instead of an earlier one of the session. Where there is no room it is dropped, and its peer asks again.
    pub(super) fn renewal(&mut self, session: SessionId, tid: u64, auth: Auth) {
        self.forget_renewal(session);
        if self.renewal_bytes + auth.payload.len() <= HELD_BYTES_MAX {
            self.renewal_bytes += auth.payload.len();
            self.renewals.insert(session, (tid, auth));
        }
    }

    /// The payload that has waited longest.
    pub(super) fn next_handshake(&mut self) -> Option<(SessionId, Input)> {
        let (_, session) = *self.handshakes.first_key_value()?.0;
        self.take_handshake(session).map(|(_, input)| (session, input))
    }

    /// A payload that has waited long enough to go on for `tell`, and since when.
    pub(super) fn next_for_tell(&mut self, now: Stamp) -> Option<(SessionId, Stamp, Input)> {
        let (since, session) = *self.for_tell.first()?;
        if now.since(since) < TELL_AFTER {
            return None;
        }
        self.take_handshake(session).map(|(since, input)| (session, since, input))
    }

    fn take_handshake(&mut self, session: SessionId) -> Option<(Stamp, Input)> {
        let since = self.since.remove(&session)?;
        self.for_tell.remove(&(since, session));
        let input = self.handshakes.remove(&(since, session))?;
        self.handshake_bytes -= input.len();
        Some((since, input))
    }

    pub(super) fn next_renewal(&mut self) -> Option<(SessionId, u64, Auth)> {
        let session = *self.renewals.first_key_value()?.0;
        self.forget_renewal(session).map(|(tid, auth)| (session, tid, auth))
    }

    /// Handshakes that have waited too long; they stay until they are forgotten.
    pub(super) fn expired(&self, now: Stamp) -> Vec<SessionId> {
        let over = self.handshakes.keys().take_while(|(since, _)| now.since(*since) >= HELD_MAX);
        over.map(|(_, session)| *session).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Stamp> {
        let over = self.handshakes.first_key_value().map(|((since, _), _)| *since + HELD_MAX);
        let tell = self.for_tell.first().map(|(since, _)| *since + TELL_AFTER);
        over.into_iter().chain(tell).min()
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.take_handshake(session);
        self.forget_renewal(session);
    }

    fn forget_renewal(&mut self, session: SessionId) -> Option<(u64, Auth)> {
        let renewal = self.renewals.remove(&session)?;
        self.renewal_bytes -= renewal.1.payload.len();
        Some(renewal)
    }
}
