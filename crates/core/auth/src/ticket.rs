//! What a ticket says, and the forms in which it is sealed.
//!
//! A ticket is opened by the daemon that it is for and by no other: to the client that carries it, it is opaque bytes. So the
//! form is a matter between the monitor that makes it and the daemons of its own cluster, see `docs/formats/ticket.md`.
//! Ceph's form is AES-CBC with a fixed IV and no MAC: a change of one bit of a block garbles that block and changes the same
//! bit of the next one, so that any holder can make `allow_all` of its own ticket with a few hundred tries. Ours is authenticated.

use crate::cephx::{TicketBlob, service_bit};
use crate::entity_auth::AUID_DEFAULT;
use crate::{CryptoError, CryptoKey};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{AuthName, EntityKind, Entropy, UTime};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac::{self, HMAC_SHA256};

/// How the tickets for a service are sealed. It follows from whose daemons open them, which is configuration: nothing that a
/// peer sends chooses it, and there is no falling back, or a forged ticket would only have to say that it is of the weak form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketForm {
    /// Ours: AES-128-GCM, bound to the service, the secret's id and the instance. For daemons of ours under our monitor.
    Sealed,
    /// Ceph's (`CephXServiceTicketInfo` in AES-CBC): for stock daemons under our monitor, and ours under Ceph's.
    Ceph,
    /// Ceph's with an HMAC-SHA256 behind it, over what [`TicketForm::Sealed`] authenticates. Ceph's daemons decrypt all of it and read as
    /// far as they understand; ours look at the HMAC first. For the manager, which may be a stock one now and ours in a second, while
    /// clients keep a ticket for an hour.
    CephWithMac,
}

impl TicketForm {
    /// The form of the tickets that our monitor makes for `service`: metadata servers are Ceph's, managers may be, all else is ours.
    #[must_use]
    pub const fn under_our_monitor(service: EntityKind) -> Self {
        match service {
            EntityKind::MDS => Self::Ceph,
            EntityKind::MGR => Self::CephWithMac,
            _ => Self::Sealed,
        }
    }
}

/// First byte of a sealed ticket, also in what is authenticated with it.
const FORM_VERSION: u8 = 1;
/// Sets the key of the tickets apart from every other use of a rotating secret.
const KEY_DOMAIN: &[u8] = b"nacre ticket 1";
/// The same for the HMAC behind a ticket in Ceph's form.
const MAC_DOMAIN: &[u8] = b"nacre ticket mac 1";
/// Whole blocks of Ceph's cipher, or its daemons could not decrypt what stands in front.
const MAC_BYTES: usize = 32;

/// What a ticket is good for; the daemon that opens it must name the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding<'a> {
    /// AUTH for the ticket that buys others.
    pub(crate) service: EntityKind,
    /// The instance that shows it.
    pub(crate) global_id: u64,
    /// Known before a ticket is opened at the monitor only, which therefore opens no other than the session's own.
    pub(crate) name: Option<&'a AuthName>,
}

impl Binding<'_> {
    /// What is authenticated beside the ticket's inside.
    fn associated(&self, secret_id: u64) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(FORM_VERSION);
        w.u32(service_bit(self.service));
        w.u64(secret_id);
        w.u64(self.global_id);
        if let Some(name) = self.name {
            w.put(name);
        }
        w.finish().to_vec()
    }
}

/// What a ticket says about its holder. Ceph `AuthTicket` and `CephXServiceTicketInfo` in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) name: AuthName,
    pub(crate) global_id: u64,
    pub(crate) created: UTime,
    pub(crate) expires: UTime,
    /// Only Ceph's form can say so, and no ticket of ours does.
    pub(crate) allow_all: bool,
    /// Caps text for the service, empty for none.
    pub(crate) caps: String,
    pub(crate) session_key: CryptoKey,
}

impl Ticket {
    /// Seals the ticket for `service`; only its own daemons, which have `secret`, can open it.
    ///
    /// # Panics
    /// When it allows everything: no ticket that we make does.
    pub(crate) fn seal(
        &self,
        form: TicketForm,
        service: EntityKind,
        (secret_id, secret): (u64, &CryptoKey),
        entropy: &mut dyn Entropy,
    ) -> TicketBlob {
        assert!(!self.allow_all, "rights come from caps");
        let blob = match form {
            TicketForm::Ceph => secret.seal(|w| self.encode_ceph(w)),
            TicketForm::CephWithMac => {
                let sealed = secret.seal(|w| self.encode_ceph(w));
                let mac = mac_of(&self.binding(service), secret_id, secret, &sealed);
                [&sealed, mac.as_ref()].concat()
            }
            TicketForm::Sealed => self.seal_ours(&self.binding(service), secret_id, secret, entropy),
        };
        TicketBlob { secret_id, blob: blob.into() }
    }

    fn binding(&self, service: EntityKind) -> Binding<'_> {
        let name = (service == EntityKind::AUTH).then_some(&self.name);
        Binding { service, global_id: self.global_id, name }
    }

    /// Opens a ticket that is shown for `binding`.
    ///
    /// # Errors
    /// [`CryptoError::Decrypt`] for one of another form, secret, service, instance or name, or that anybody has changed;
    /// in Ceph's form changes go through undetected, but for those that make it unreadable.
    pub(crate) fn open(
        blob: &TicketBlob,
        form: TicketForm,
        binding: &Binding<'_>,
        secret: &CryptoKey,
    ) -> Result<Self, CryptoError> {
        let ticket = match form {
            TicketForm::Ceph => secret.open(&blob.blob, Self::decode_ceph)?,
            TicketForm::CephWithMac => Self::open_with_mac(blob, binding, secret)?,
            TicketForm::Sealed => Self::open_ours(blob, binding, secret)?,
        };
        let is_bound = ticket.global_id == binding.global_id
            && binding.name.is_none_or(|name| *name == ticket.name)
            && (form == TicketForm::Ceph || !ticket.allow_all);
        if is_bound { Ok(ticket) } else { Err(CryptoError::Decrypt) }
    }

    fn seal_ours(
        &self,
        binding: &Binding<'_>,
        secret_id: u64,
        secret: &CryptoKey,
        entropy: &mut dyn Entropy,
    ) -> Vec<u8> {
        let mut w = Writer::new();
        w.put(&self.name);
        w.u64(self.global_id);
        w.put(&self.created);
        w.put(&self.expires);
        w.str(&self.caps);
        w.put(&self.session_key);
        // Random: a secret seals far fewer than 2^32 tickets in the days that it lives.
        let mut nonce = [0; NONCE_LEN];
        entropy.fill(&mut nonce);
        let mut sealed = w.finish().to_vec();
        ticket_key(secret)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(binding.associated(secret_id)),
                &mut sealed,
            )
            .expect("a ticket is far shorter than what the cipher can take");
        [&[FORM_VERSION], nonce.as_slice(), &sealed].concat()
    }

    fn open_ours(blob: &TicketBlob, binding: &Binding<'_>, secret: &CryptoKey) -> Result<Self, CryptoError> {
        let (&version, rest) = blob.blob.split_first().ok_or(CryptoError::Decrypt)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(CryptoError::Decrypt)?;
        if version != FORM_VERSION {
            return Err(CryptoError::Decrypt);
        }
        let mut sealed = sealed.to_vec();
        let plain = ticket_key(secret)
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(binding.associated(blob.secret_id)),
                &mut sealed,
            )
            .map_err(|_| CryptoError::Decrypt)?;
        Ok(Self::decode_ours(&mut Reader::new(plain.to_vec().into()))?)
    }

    /// Nothing is decrypted before the HMAC has been found right: an answer that depends on the padding would give the inside away.
    fn open_with_mac(
        blob: &TicketBlob,
        binding: &Binding<'_>,
        secret: &CryptoKey,
    ) -> Result<Self, CryptoError> {
        let (sealed, mac) = blob.blob.split_last_chunk::<MAC_BYTES>().ok_or(CryptoError::Decrypt)?;
        let said = [&binding.associated(blob.secret_id), sealed].concat();
        hmac::verify(&mac_key(secret), &said, mac).map_err(|_| CryptoError::Decrypt)?;
        secret.open(sealed, Self::decode_ceph)
    }

    fn decode_ours(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            name: r.get()?,
            global_id: r.u64()?,
            created: r.get()?,
            expires: r.get()?,
            allow_all: false,
            caps: r.text()?,
            session_key: r.get()?,
        })
    }

    fn encode_ceph(&self, w: &mut Writer) {
        w.u8(1);
        w.u8(2);
        w.put(&self.name);
        w.u64(self.global_id);
        w.u64(AUID_DEFAULT);
        w.put(&self.created);
        w.put(&self.expires);
        w.u8(1);
        w.bool(self.allow_all);
        if self.caps.is_empty() {
            w.u32(0)
        } else {
            w.nested(|w| w.str(&self.caps))
        }
        w.u32(0);
        w.put(&self.session_key);
    }

    fn decode_ceph(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        let version = r.u8()?;
        let (name, global_id) = (r.get()?, r.u64()?);
        if version >= 2 {
            r.u64()?;
        }
        let (created, expires) = (r.get()?, r.get()?);
        r.u8()?;
        let allow_all = r.bool()?;
        let caps = r.blob()?;
        let caps = if caps.is_empty() { String::new() } else { Reader::new(caps).text()? };
        r.u32()?;
        Ok(Self { name, global_id, created, expires, allow_all, caps, session_key: r.get()? })
    }
}

/// The key that `secret`'s tickets are sealed with.
fn ticket_key(secret: &CryptoKey) -> LessSafeKey {
    let extracted = Salt::new(HKDF_SHA256, KEY_DOMAIN).extract(secret.secret());
    let key = extracted.expand(&[], &AES_128_GCM).expect("a key is shorter than what the function gives");
    LessSafeKey::new(UnboundKey::from(key))
}

fn mac_key(secret: &CryptoKey) -> hmac::Key {
    let extracted = Salt::new(HKDF_SHA256, MAC_DOMAIN).extract(secret.secret());
    let key = extracted.expand(&[], HMAC_SHA256).expect("a key is shorter than what the function gives");
    hmac::Key::from(key)
}

fn mac_of(binding: &Binding<'_>, secret_id: u64, secret: &CryptoKey, sealed: &[u8]) -> hmac::Tag {
    hmac::sign(&mac_key(secret), &[&binding.associated(secret_id), sealed].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::entropy::SeededEntropy;

    fn key(seed: u64) -> CryptoKey {
        CryptoKey::generate(&mut SeededEntropy(seed), UTime::ZERO)
    }

    fn ticket(number: u64) -> Ticket {
        Ticket {
            name: AuthName::new(EntityKind::CLIENT, "x"),
            global_id: 4107 + number,
            created: UTime { sec: 100, nsec: 1 },
            expires: UTime { sec: 3700, nsec: 1 },
            allow_all: false,
            caps: format!("allow r pool=p{number}"),
            session_key: key(9 + number),
        }
    }

    fn at(service: EntityKind, ticket: &Ticket) -> Binding<'_> {
        let name = (service == EntityKind::AUTH).then_some(&ticket.name);
        Binding { service, global_id: ticket.global_id, name }
    }

    /// The blob with one bit of it, or of the id in front, turned over.
    fn flipped(blob: &TicketBlob, bit: usize) -> TicketBlob {
        if bit < 64 {
            return TicketBlob { secret_id: blob.secret_id ^ (1 << bit), blob: blob.blob.clone() };
        }
        let mut bytes = blob.blob.to_vec();
        bytes[(bit - 64) / 8] ^= 1 << (bit % 8);
        TicketBlob { secret_id: blob.secret_id, blob: bytes.into() }
    }

    #[test]
    fn tickets_open_with_their_secret_only() {
        for form in [TicketForm::Sealed, TicketForm::Ceph, TicketForm::CephWithMac] {
            let ticket = ticket(0);
            let blob = ticket.seal(form, EntityKind::OSD, (7, &key(1)), &mut SeededEntropy(1));
            let binding = at(EntityKind::OSD, &ticket);
            assert_eq!(Ticket::open(&blob, form, &binding, &key(1)), Ok(ticket.clone()));
            assert!(Ticket::open(&blob, form, &binding, &key(2)).is_err());
        }
    }

    #[test]
    fn no_single_bit_of_1024_tickets_can_be_changed() {
        let mut entropy = SeededEntropy(3);
        let secret = key(1);
        for number in 0..1024 {
            let ticket = ticket(number);
            let service = if number % 2 == 0 { EntityKind::OSD } else { EntityKind::AUTH };
            let blob = ticket.seal(TicketForm::Sealed, service, (7, &secret), &mut entropy);
            let binding = at(service, &ticket);
            assert_eq!(Ticket::open(&blob, TicketForm::Sealed, &binding, &secret).as_ref(), Ok(&ticket));
            for bit in 0..64 + 8 * blob.blob.len() {
                let opened = Ticket::open(&flipped(&blob, bit), TicketForm::Sealed, &binding, &secret);
                assert_eq!(opened, Err(CryptoError::Decrypt), "ticket {number}, bit {bit}");
            }
        }
    }

    #[test]
    fn no_single_bit_of_a_ticket_with_an_hmac_can_be_changed() {
        let secret = key(1);
        let form = TicketForm::CephWithMac;
        for number in 0..64 {
            let ticket = ticket(number);
            let blob = ticket.seal(form, EntityKind::MGR, (7, &secret), &mut SeededEntropy(3));
            let binding = at(EntityKind::MGR, &ticket);
            assert_eq!(Ticket::open(&blob, form, &binding, &secret).as_ref(), Ok(&ticket));
            for bit in 0..64 + 8 * blob.blob.len() {
                let opened = Ticket::open(&flipped(&blob, bit), form, &binding, &secret);
                assert_eq!(opened, Err(CryptoError::Decrypt), "ticket {number}, bit {bit}");
            }
        }
    }

    /// Ceph's daemons decrypt all blocks and read the front; so what they read is what they would read without the HMAC.
    #[test]
    fn in_front_of_the_hmac_stands_a_ticket_of_cephs_form() {
        let (ticket, secret) = (ticket(0), key(1));
        let seal = |form| ticket.seal(form, EntityKind::MGR, (7, &secret), &mut SeededEntropy(3)).blob;
        let (plain, with_mac) = (seal(TicketForm::Ceph), seal(TicketForm::CephWithMac));
        assert_eq!(with_mac.slice(..with_mac.len() - MAC_BYTES), plain);
        assert_eq!(MAC_BYTES % 16, 0, "whole blocks");
    }

    /// What Ceph's form cannot prevent: it is used where Ceph's daemons open the ticket, and nowhere else.
    #[test]
    fn a_bit_of_a_ticket_of_cephs_form_makes_an_administrator() {
        let secret = key(1);
        let mut forged = 0;
        for number in 0..1024 {
            let ticket = ticket(number);
            let binding = at(EntityKind::MDS, &ticket);
            let blob = ticket.seal(TicketForm::Ceph, EntityKind::MDS, (7, &secret), &mut SeededEntropy(3));
            let opened = (64..64 + 8 * blob.blob.len()).filter_map(|bit| {
                Ticket::open(&flipped(&blob, bit), TicketForm::Ceph, &binding, &secret).ok()
            });
            forged += usize::from(opened.into_iter().any(|ticket| ticket.allow_all));
        }
        assert!(forged > 0, "the weakness that the other form is for");
    }

    #[test]
    fn no_form_is_taken_for_another() {
        let (ticket, secret) = (ticket(0), key(1));
        let binding = at(EntityKind::OSD, &ticket);
        let forms = [TicketForm::Sealed, TicketForm::Ceph, TicketForm::CephWithMac];
        for (made, opened) in forms.into_iter().flat_map(|made| forms.map(|opened| (made, opened))) {
            if made == opened || (made, opened) == (TicketForm::CephWithMac, TicketForm::Ceph) {
                continue;
            }
            let blob = ticket.seal(made, EntityKind::OSD, (7, &secret), &mut SeededEntropy(3));
            assert!(Ticket::open(&blob, opened, &binding, &secret).is_err());
        }
    }

    #[test]
    fn a_ticket_serves_its_service_its_instance_and_its_name_only() {
        let (ticket, secret) = (ticket(0), key(1));
        let open = |blob: &TicketBlob, binding: &Binding<'_>| {
            Ticket::open(blob, TicketForm::Sealed, binding, &secret).is_ok()
        };
        let seal = |service| ticket.seal(TicketForm::Sealed, service, (7, &secret), &mut SeededEntropy(3));
        let blob = seal(EntityKind::OSD);
        let binding = at(EntityKind::OSD, &ticket);
        assert!(open(&blob, &binding));
        assert!(!open(&blob, &Binding { service: EntityKind::MGR, ..binding }));
        assert!(!open(&blob, &Binding { global_id: 1, ..binding }));
        assert!(!open(&TicketBlob { secret_id: 8, ..blob }, &binding));
        let blob = seal(EntityKind::AUTH);
        let other = AuthName::new(EntityKind::CLIENT, "admin");
        let binding = at(EntityKind::AUTH, &ticket);
        assert!(open(&blob, &binding));
        assert!(!open(&blob, &Binding { name: Some(&other), ..binding }));
        assert!(!open(&blob, &Binding { name: None, ..binding }));
    }

    #[test]
    fn tickets_of_any_length_are_refused_without_a_panic() {
        let (ticket, secret) = (ticket(0), key(1));
        for form in [TicketForm::Sealed, TicketForm::CephWithMac] {
            let blob = ticket.seal(form, EntityKind::OSD, (7, &secret), &mut SeededEntropy(3));
            for length in 0..blob.blob.len() {
                let cut = TicketBlob { secret_id: 7, blob: blob.blob.slice(..length) };
                let opened = Ticket::open(&cut, form, &at(EntityKind::OSD, &ticket), &secret);
                assert_eq!(opened, Err(CryptoError::Decrypt));
            }
        }
    }
}
