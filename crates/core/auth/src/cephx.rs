//! The structs of cephx and their formulas; the machines that exchange them are in the sibling files.
//!
//! Source: Ceph `src/auth/cephx/CephxProtocol.h` and `src/auth/Auth.h` at v16.2.15. None of these has an
//! envelope: a bare version byte stands in front where there is one. `sealed` means `u32` length and
//! [`CryptoKey::seal`].

use crate::{CryptoError, CryptoKey};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AuthName, EntityKind, UTime};
use std::time::Duration;

/// `CEPHX_GET_AUTH_SESSION_KEY`: proves the client's key, and yields the ticket that buys others.
pub(crate) const GET_AUTH_SESSION_KEY: u16 = 0x0100;
/// `CEPHX_GET_PRINCIPAL_SESSION_KEY`: here is that ticket, give me tickets for services.
pub(crate) const GET_SERVICE_TICKETS: u16 = 0x0200;
/// `CEPHX_GET_ROTATING_KEY`: I am a service, give me its secrets.
pub(crate) const GET_ROTATING_KEYS: u16 = 0x0400;

/// `AUTH_MODE_AUTHORIZER`, also the version byte of an authorizer.
pub(crate) const MODE_AUTHORIZER: u8 = 1;
/// `AUTH_MODE_MON`.
pub(crate) const MODE_MON: u8 = 10;

/// Tickets in one reply: one per bit of the service mask.
const TICKETS_MAX: u32 = 32;

/// The service bit of a ticket.
pub(crate) fn service_bit(service: EntityKind) -> u32 {
    u32::from(service.0)
}

/// The opening frame to a monitor, of both methods.
pub(crate) struct MonRequest {
    pub(crate) name: AuthName,
    /// 0 for a new instance.
    pub(crate) global_id: u64,
}

impl Encode for MonRequest {
    fn encode(&self, w: &mut Writer) {
        w.u8(MODE_MON);
        w.put(&self.name);
        w.u64(self.global_id);
    }
}

impl Decode for MonRequest {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            MODE_MON => Ok(Self { name: r.get()?, global_id: r.u64()? }),
            mode => Err(DecodeError::Invalid { what: "auth_mode", value: mode.into() }),
        }
    }
}

/// A ticket as its holder carries it: sealed with a secret that only the service and the monitor know.
/// Ceph `CephXTicketBlob`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TicketBlob {
    pub(crate) secret_id: u64,
    pub(crate) blob: Bytes,
}

impl Encode for TicketBlob {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.secret_id);
        w.blob(&self.blob);
    }
}

impl Decode for TicketBlob {
    const MIN_BYTES: usize = 13;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { secret_id: r.u64()?, blob: r.blob()? })
    }
}

/// The answer to the monitor's challenge. Ceph `CephXAuthenticate`, struct_v 3 written, 1 to 3 read.
pub(crate) struct Authenticate {
    pub(crate) client_challenge: u64,
    pub(crate) proof: u64,
    pub(crate) old_ticket: TicketBlob,
    /// Services whose tickets are wanted along.
    pub(crate) other_keys: u32,
}

impl Encode for Authenticate {
    fn encode(&self, w: &mut Writer) {
        w.u8(3);
        w.u64(self.client_challenge);
        w.u64(self.proof);
        w.put(&self.old_ticket);
        w.u32(self.other_keys);
    }
}

impl Decode for Authenticate {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let (client_challenge, proof, old_ticket) = (r.u64()?, r.u64()?, r.get()?);
        let other_keys = if version >= 2 { r.u32()? } else { 0 };
        Ok(Self { client_challenge, proof, old_ticket, other_keys })
    }
}

/// What only the holder of `key` can compute from both challenges: the sealed pair, its length in front,
/// folded to one word. Ceph `cephx_calc_client_server_challenge`.
pub(crate) fn proof(key: &CryptoKey, server_challenge: u64, client_challenge: u64) -> u64 {
    let mut w = Writer::new();
    key.seal_into(&mut w, |w| {
        w.u64(server_challenge);
        w.u64(client_challenge);
    });
    let (words, _) = w.as_slice().as_chunks::<8>();
    words.iter().fold(0, |folded, word| folded ^ u64::from_le_bytes(*word))
}

/// The monitor's or a service's challenge, bare. Ceph `CephXServerChallenge`, `CephXAuthorizeChallenge`.
pub(crate) fn encode_challenge(challenge: u64, w: &mut Writer) {
    w.u8(1);
    w.u64(challenge);
}

pub(crate) fn decode_challenge(r: &mut Reader) -> Result<u64, DecodeError> {
    r.u8()?;
    r.u64()
}

/// One ticket on its way from the monitor to its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TicketGrant {
    /// The service that the ticket is for, as a bit of `CEPH_ENTITY_TYPE_*`.
    pub(crate) service: u32,
    pub(crate) session_key: CryptoKey,
    pub(crate) validity: Duration,
    pub(crate) ticket: TicketBlob,
}

/// Encodes grants for the holder of `principal`; a ticket that replaces an older one is also sealed with
/// that one's session key `old_key`, so that only its owner can use it.
/// Ceph `cephx_build_service_ticket_reply`.
pub(crate) fn encode_grants(
    w: &mut Writer,
    grants: &[TicketGrant],
    principal: &CryptoKey,
    old_key: Option<&CryptoKey>,
) {
    w.u8(1);
    w.count(grants.len());
    for grant in grants {
        w.u32(grant.service);
        w.u8(1);
        principal.seal_into(w, |w| {
            w.u8(1);
            w.put(&grant.session_key);
            w.put(&UTime::from_unix(grant.validity));
        });
        w.bool(old_key.is_some());
        match old_key {
            Some(key) => key.seal_into(w, |w| w.nested(|w| w.put(&grant.ticket))),
            None => w.nested(|w| w.put(&grant.ticket)),
        }
    }
}

/// Decodes grants; `old_key` gives the session key of the ticket now held for a service.
/// Ceph `CephXTicketManager::verify_service_ticket_reply`.
pub(crate) fn decode_grants(
    r: &mut Reader,
    principal: &CryptoKey,
    old_key: impl Fn(u32) -> Option<CryptoKey>,
) -> Result<Vec<TicketGrant>, CryptoError> {
    r.u8()?;
    let count = r.u32()?;
    if count > TICKETS_MAX {
        return Err(DecodeError::Invalid { what: "ticket count", value: count.into() }.into());
    }
    (0..count).map(|_| decode_grant(r, principal, &old_key)).collect()
}

fn decode_grant(
    r: &mut Reader,
    principal: &CryptoKey,
    old_key: &impl Fn(u32) -> Option<CryptoKey>,
) -> Result<TicketGrant, CryptoError> {
    let service = r.u32()?;
    r.u8()?;
    let (session_key, validity) = principal.open(&r.blob()?, |r| {
        r.u8()?;
        Ok((r.get()?, r.get::<UTime>()?))
    })?;
    let double_sealed = r.bool()?;
    let mut ticket = r.blob()?;
    if double_sealed {
        let key = old_key(service).ok_or(CryptoError::Decrypt)?;
        ticket = key.open(&ticket, Reader::blob)?;
    }
    Ok(TicketGrant {
        service,
        session_key,
        validity: validity.to_unix(),
        ticket: TicketBlob::from_bytes(ticket)?,
    })
}

/// The part of an authorizer that does not depend on the challenge.
pub(crate) struct AuthorizerHead {
    pub(crate) global_id: u64,
    pub(crate) service: u32,
    pub(crate) ticket: TicketBlob,
}

impl Encode for AuthorizerHead {
    fn encode(&self, w: &mut Writer) {
        w.u8(MODE_AUTHORIZER);
        w.u64(self.global_id);
        w.u32(self.service);
        w.put(&self.ticket);
    }
}

impl Decode for AuthorizerHead {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            MODE_AUTHORIZER => Ok(Self { global_id: r.u64()?, service: r.u32()?, ticket: r.get()? }),
            version => Err(DecodeError::Invalid { what: "authorizer version", value: version.into() }),
        }
    }
}

/// The part that proves possession of the session key. Ceph `CephXAuthorize`, struct_v 2 written, 1 and 2 read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Authorize {
    pub(crate) nonce: u64,
    /// The service's challenge plus one, once it has been sent.
    pub(crate) answer: Option<u64>,
}

impl Encode for Authorize {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.u64(self.nonce);
        w.bool(self.answer.is_some());
        w.u64(self.answer.unwrap_or(0));
    }
}

impl Decode for Authorize {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let nonce = r.u64()?;
        if version < 2 {
            return Ok(Self { nonce, answer: None });
        }
        let answered = r.bool()?;
        let answer = r.u64()?;
        Ok(Self { nonce, answer: answered.then_some(answer) })
    }
}

/// The service's proof that it could read the ticket. Ceph `CephXAuthorizeReply`.
pub(crate) struct AuthorizeReply {
    pub(crate) nonce_plus_one: u64,
    /// Empty in crc mode.
    pub(crate) connection_secret: Bytes,
}

impl Encode for AuthorizeReply {
    fn encode(&self, w: &mut Writer) {
        let has_secret = !self.connection_secret.is_empty();
        w.u8(if has_secret { 2 } else { 1 });
        w.u64(self.nonce_plus_one);
        if has_secret {
            w.blob(&self.connection_secret);
        }
    }
}

impl Decode for AuthorizeReply {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        let nonce_plus_one = r.u64()?;
        let connection_secret = if version >= 2 { r.blob()? } else { Bytes::new() };
        Ok(Self { nonce_plus_one, connection_secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;

    fn key(seed: u64) -> CryptoKey {
        CryptoKey::generate(&mut SeededEntropy(seed), UTime::ZERO)
    }

    /// Computed by openssl and a few lines of another language.
    #[test]
    fn the_proof_has_the_value_of_another_implementation() {
        let key = CryptoKey::from_parts([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], UTime::ZERO);
        assert_eq!(proof(&key, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210), 0xda40_f592_32ab_17c2);
    }

    #[test]
    fn a_replaced_ticket_needs_the_old_session_key() {
        let ticket = TicketBlob { secret_id: 3, blob: Bytes::from_static(b"opaque") };
        let validity = Duration::from_secs(60);
        let grants = vec![TicketGrant { service: 32, session_key: key(3), validity, ticket }];
        let mut w = Writer::new();
        encode_grants(&mut w, &grants, &key(1), Some(&key(2)));
        let bytes = w.finish();
        let decode =
            |old: Option<CryptoKey>| decode_grants(&mut Reader::new(bytes.clone()), &key(1), |_| old.clone());
        assert_eq!(decode(Some(key(2))), Ok(grants));
        assert!(decode(None).is_err());
        assert!(decode(Some(key(4))).is_err());
    }
}
