//! [`MonLinkAuth`]: how monitors of one cluster authenticate each other.
//!
//! A monitor that dials another makes itself the ticket that a client would get from a monitor, for service `mon` and under the key of
//! `mon.`, which only monitors have; what follows is the handshake of [`crate::ServiceServer`]. So both sides prove that they know the key:
//! the acceptor by reading the ticket, the dialler by answering the challenge under the session key that is in it. A ticket serves the
//! one connection that it was made for, so clocks are not compared. Only SECURE mode is offered and accepted.

use crate::ticket::Ticket;
use crate::{
    Authorizer, ConnectionMode, CryptoKey, Offer, RotatingKeys, ServiceAuthContext, ServiceServer, Step,
    TicketForm,
};
use nacre_buf::Bytes;
use nacre_types::{AuthName, EntityKind, Entropy, UTime};

/// Id of the only secret: the key of `mon.` does not rotate by itself.
const SECRET_ID: u64 = 1;
/// A ticket does not end by the clock.
const NEVER: UTime = UTime { sec: u32::MAX, nsec: 0 };

fn offer() -> Offer {
    Offer { modes: vec![ConnectionMode::Secure], ..Offer::secure_first() }
}

/// The dialling side. `monitor` is our name, such as `a`, and `member` our number in the monitors' log; the other side learns both.
#[must_use]
pub fn dial_monitor(
    key: &CryptoKey,
    monitor: &str,
    member: u64,
    wall: UTime,
    entropy: &mut dyn Entropy,
) -> Authorizer {
    let name = AuthName::new(EntityKind::MON, monitor);
    let ticket = Ticket {
        name: name.clone(),
        global_id: member,
        created: wall,
        expires: NEVER,
        allow_all: false,
        caps: String::new(),
        session_key: CryptoKey::generate(entropy, wall),
    };
    let blob = ticket.seal(TicketForm::Sealed, EntityKind::MON, (SECRET_ID, key), entropy);
    Authorizer::new(name, member, EntityKind::MON, &offer(), Some((blob, ticket.session_key)), entropy)
}

/// The accepting side of one connection, at a monitor. The identity that it yields has the other's name, and as `global_id` its number in
/// the monitors' log.
#[derive(Debug)]
pub struct MonLinkAuth {
    server: ServiceServer,
}

impl Default for MonLinkAuth {
    fn default() -> Self {
        Self { server: ServiceServer::new(EntityKind::MON, TicketForm::Sealed, offer()) }
    }
}

/// What a monitor says in its handshake.
#[derive(Debug)]
pub enum MonLinkInput {
    /// AUTH_REQUEST: the method, the modes that it accepts, the payload.
    Request(u32, Vec<u32>, Bytes),
    /// The payload of AUTH_REQUEST_MORE.
    More(Bytes),
}

impl MonLinkAuth {
    /// Takes one step; `key` is that of `mon.` as our own tables have it.
    pub fn step(
        &mut self,
        key: &CryptoKey,
        wall: UTime,
        entropy: &mut dyn Entropy,
        input: MonLinkInput,
    ) -> Step {
        let keys = RotatingKeys::only(SECRET_ID, key.clone());
        let mut cx = ServiceAuthContext { keys: &keys, wall, entropy };
        match input {
            MonLinkInput::Request(method, modes, payload) => {
                self.server.request(&mut cx, method, &modes, payload)
            }
            MonLinkInput::More(payload) => self.server.more(&mut cx, payload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use crate::{AuthMethod, Reason};
    use nacre_types::entropy::SeededEntropy;

    fn key(seed: u64) -> CryptoKey {
        CryptoKey::generate(&mut SeededEntropy(seed), at(1))
    }

    /// The handshake of a dialler with the one key and an acceptor with the other, whose clock shows another year.
    fn handshake(dialler: &CryptoKey, acceptor: &CryptoKey) -> Step {
        let (entropy, mut server) = (&mut SeededEntropy(3), MonLinkAuth::default());
        let mut authorizer = dial_monitor(dialler, "b", 7, at(100), entropy);
        let start = authorizer.start();
        let input = MonLinkInput::Request(start.method, start.modes, start.payload);
        let step = server.step(acceptor, at(40_000_000), entropy, input);
        let Step::More(challenge) = step else { return step };
        let answer = authorizer.more(&challenge).expect("a challenge under our session key");
        let step = server.step(acceptor, at(40_000_000), entropy, MonLinkInput::More(answer));
        if let Step::Done(done) = &step {
            let keys = authorizer.done(done.mode.code(), done.payload.clone()).expect("a proof");
            assert_eq!(keys.connection_secret, done.connection_secret);
            assert_eq!(keys.mode, ConnectionMode::Secure);
        }
        step
    }

    #[test]
    fn monitors_with_the_same_key_know_each_other() {
        let Step::Done(done) = handshake(&key(1), &key(1)) else { panic!("the same key") };
        assert_eq!(done.identity.name, AuthName::new(EntityKind::MON, "b"));
        assert_eq!((done.identity.global_id, done.identity.allow_all), (7, false));
    }

    #[test]
    fn another_clusters_monitor_and_weaker_modes_are_refused() {
        let Step::Bad(refusal) = handshake(&key(1), &key(2)) else { panic!("another key") };
        assert_eq!(refusal.reason, Reason::BadTicket);
        let entropy = &mut SeededEntropy(3);
        let start = dial_monitor(&key(1), "b", 7, at(100), entropy).start();
        for (method, modes) in [
            (AuthMethod::Cephx, vec![ConnectionMode::Crc.code()]),
            (AuthMethod::None, vec![ConnectionMode::Secure.code()]),
        ] {
            let input = MonLinkInput::Request(method.code(), modes, start.payload.clone());
            let step = MonLinkAuth::default().step(&key(1), at(100), entropy, input);
            assert!(matches!(step, Step::Bad(_)), "{method:?}");
        }
    }
}
