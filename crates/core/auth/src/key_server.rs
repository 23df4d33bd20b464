//! [`KeyServer`]: the entities and rotating secrets that monitors keep.
//!
//! Plain data. The monitors store it in two places: one value per entity ([`EntityAuth`]), one for the rotating
//! secrets ([`KeyServer::encode_rotating`]).
//! Commands are decided here ([`KeyServer::decide_get_or_create`] and friends give an [`AuthChange`]), made
//! durable by the monitor, then applied.

use crate::caps::{self, CapsError};
use crate::{Caps, CryptoKey, EntityAuth, Keyring, RotatingKeys};
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{AuthName, EntityKind, Entropy, Errno, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// Services whose secrets rotate. AUTH is the monitor's own: it seals the tickets that buy other tickets.
pub const ROTATING_SERVICES: [EntityKind; 5] =
    [EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MDS, EntityKind::MGR];

/// How long tickets last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketLifetimes {
    /// The ticket that buys service tickets (`auth_mon_ticket_ttl`).
    pub auth: Duration,
    /// Service tickets (`auth_service_ticket_ttl`).
    pub service: Duration,
}

/// Ceph's defaults at v16: 72 hours and one hour.
impl Default for TicketLifetimes {
    fn default() -> Self {
        Self { auth: Duration::from_secs(72 * 3600), service: Duration::from_secs(3600) }
    }
}

impl TicketLifetimes {
    /// The lifetime of `service`'s tickets and secrets.
    #[must_use]
    pub fn of(&self, service: EntityKind) -> Duration {
        if service == EntityKind::AUTH { self.auth } else { self.service }
    }
}

/// A change of the entity table: to be made durable, then applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthChange {
    /// Insert or replace.
    Put(AuthName, EntityAuth),
    /// The entity exists no more.
    Remove(AuthName),
}

/// Why an `auth` command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthCommandError {
    /// `auth add`: the entity exists with another key.
    #[error("entity {0} exists but key does not match")]
    KeyMismatch(AuthName),
    /// `auth add`: the entity exists with other caps.
    #[error("entity {0} exists but caps do not match")]
    CapsDiffer(AuthName),
    /// `auth get-or-create`: the entity exists with other caps for this service.
    #[error("key for {name} exists but cap {service} does not match")]
    CapsMismatch {
        /// Name of the entity.
        name: AuthName,
        /// The service whose caps differ.
        service: String,
    },
    /// No such entity.
    #[error("couldn't find entry {0}")]
    NotFound(AuthName),
    /// Caps that do not parse.
    #[error(transparent)]
    Caps(#[from] CapsError),
}

impl From<&AuthCommandError> for Errno {
    fn from(error: &AuthCommandError) -> Self {
        match error {
            AuthCommandError::NotFound(_) => Self::ENOENT,
            _ => Self::EINVAL,
        }
    }
}

/// Entities, rotating secrets, ticket lifetimes.
#[derive(Debug, Clone, Default)]
pub struct KeyServer {
    entities: BTreeMap<AuthName, EntityAuth>,
    rotating: BTreeMap<u8, RotatingKeys>,
    lifetimes: TicketLifetimes,
}

impl KeyServer {
    /// An empty book.
    #[must_use]
    pub fn new(lifetimes: TicketLifetimes) -> Self {
        Self { lifetimes, ..Self::default() }
    }

    /// The ticket lifetimes in use.
    #[must_use]
    pub fn lifetimes(&self) -> TicketLifetimes {
        self.lifetimes
    }

    /// Changes the ticket lifetimes for tickets and secrets made from now on.
    pub fn set_lifetimes(&mut self, lifetimes: TicketLifetimes) {
        self.lifetimes = lifetimes;
    }

    /// Key and caps of `name`.
    #[must_use]
    pub fn entity(&self, name: &AuthName) -> Option<&EntityAuth> {
        self.entities.get(name)
    }

    /// All entities in the order of `auth ls`.
    pub fn entities(&self) -> impl Iterator<Item = (&AuthName, &EntityAuth)> {
        self.entities.iter()
    }

    /// Carries out what a command decided, once it is durable.
    pub fn apply(&mut self, change: AuthChange) {
        match change {
            AuthChange::Put(name, auth) => self.entities.insert(name, auth),
            AuthChange::Remove(name) => self.entities.remove(&name),
        };
    }

    /// Caps text of `name` at `service`; `None` when the entity does not exist, empty when it has none.
    #[must_use]
    pub fn caps_of(&self, name: &AuthName, service: EntityKind) -> Option<&str> {
        self.entity(name).map(|auth| auth.caps.get(service.as_str()).map_or("", String::as_str))
    }

    /// The secrets of `service`; none before the first [`KeyServer::rotate`].
    #[must_use]
    pub fn rotating(&self, service: EntityKind) -> Option<&RotatingKeys> {
        self.rotating.get(&service.0)
    }

    /// Renews secrets whose time has come; when it says true, [`KeyServer::encode_rotating`] must become
    /// durable before a ticket is made.
    pub fn rotate(&mut self, wall: UTime, entropy: &mut dyn Entropy) -> bool {
        ROTATING_SERVICES.into_iter().fold(false, |changed, service| {
            let lifetime = self.lifetimes.of(service);
            self.rotating.entry(service.0).or_default().rotate(wall, lifetime, entropy) || changed
        })
    }

    /// When [`KeyServer::rotate`] has something to do next; [`UTime::ZERO`] for at once.
    #[must_use]
    pub fn next_rotation(&self) -> UTime {
        let of = |service: EntityKind| self.rotating(service).and_then(RotatingKeys::next_rotation);
        ROTATING_SERVICES
            .into_iter()
            .map(|service| of(service).unwrap_or(UTime::ZERO))
            .min()
            .unwrap_or(UTime::ZERO)
    }

    /// All rotating secrets, for the monitor's durable store.
    #[must_use]
    pub fn encode_rotating(&self) -> Bytes {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| w.put(&self.rotating));
        w.finish()
    }

    /// Takes over what [`KeyServer::encode_rotating`] gave.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not that.
    pub fn restore_rotating(&mut self, bytes: Bytes) -> Result<(), DecodeError> {
        self.rotating = Reader::new(bytes).envelope("rotating secrets", 1, |_, r| r.get())?;
        Ok(())
    }

    /// `auth get-or-create`: the change that creates `name`; `None` when it exists with these caps.
    ///
    /// # Errors
    /// [`AuthCommandError::CapsMismatch`], [`AuthCommandError::Caps`].
    pub fn decide_get_or_create(
        &self,
        name: &AuthName,
        caps: &Caps,
        wall: UTime,
        entropy: &mut dyn Entropy,
    ) -> Result<Option<AuthChange>, AuthCommandError> {
        validate_all(caps)?;
        let Some(auth) = self.entity(name) else {
            let key = CryptoKey::generate(entropy, wall);
            return Ok(Some(AuthChange::Put(name.clone(), EntityAuth { key, caps: caps.clone() })));
        };
        same_caps(name, auth, caps)?;
        Ok(None)
    }

    /// `auth add`: the change that adds `name` with `key`, or a new key when none is given; `None` when it
    /// exists just so.
    ///
    /// # Errors
    /// [`AuthCommandError::KeyMismatch`], [`AuthCommandError::CapsDiffer`], [`AuthCommandError::Caps`].
    pub fn decide_add(
        &self,
        name: &AuthName,
        key: Option<CryptoKey>,
        caps: &Caps,
        wall: UTime,
        entropy: &mut dyn Entropy,
    ) -> Result<Option<AuthChange>, AuthCommandError> {
        validate_all(caps)?;
        let Some(auth) = self.entity(name) else {
            let key = key.unwrap_or_else(|| CryptoKey::generate(entropy, wall));
            return Ok(Some(AuthChange::Put(name.clone(), EntityAuth { key, caps: caps.clone() })));
        };
        if key.is_some_and(|key| key.secret() != auth.key.secret()) {
            return Err(AuthCommandError::KeyMismatch(name.clone()));
        }
        if auth.caps != *caps {
            return Err(AuthCommandError::CapsDiffer(name.clone()));
        }
        Ok(None)
    }

    /// `auth caps`: replaces all caps of `name`; services without text in `caps` lose theirs.
    ///
    /// # Errors
    /// [`AuthCommandError::NotFound`], [`AuthCommandError::Caps`].
    pub fn decide_caps(&self, name: &AuthName, caps: &Caps) -> Result<AuthChange, AuthCommandError> {
        validate_all(caps)?;
        let auth = self.entity(name).ok_or_else(|| AuthCommandError::NotFound(name.clone()))?;
        Ok(AuthChange::Put(name.clone(), EntityAuth { key: auth.key.clone(), caps: caps.clone() }))
    }

    /// `auth import`: every entity of the keyring, replacing what is there.
    ///
    /// # Errors
    /// [`AuthCommandError::Caps`].
    pub fn decide_import(&self, keyring: &Keyring) -> Result<Vec<AuthChange>, AuthCommandError> {
        keyring
            .iter()
            .map(|(name, auth)| {
                validate_all(&auth.caps)?;
                Ok(AuthChange::Put(name.clone(), auth.clone()))
            })
            .collect()
    }

    /// `auth export` and `auth get`: the keyring of all entities, or of one.
    #[must_use]
    pub fn keyring(&self, only: Option<&AuthName>) -> Keyring {
        let wanted = self.entities().filter(|(name, _)| only.is_none_or(|only| only == *name));
        wanted.map(|(name, auth)| (name.clone(), auth.clone())).collect()
    }
}

fn validate_all(caps: &Caps) -> Result<(), CapsError> {
    caps.iter().try_for_each(|(service, text)| caps::validate(service, text))
}

fn same_caps(name: &AuthName, auth: &EntityAuth, caps: &Caps) -> Result<(), AuthCommandError> {
    match caps.iter().find(|(service, text)| auth.caps.get(*service) != Some(*text)) {
        None => Ok(()),
        Some((service, _)) => {
            Err(AuthCommandError::CapsMismatch { name: name.clone(), service: service.clone() })
        }
    }
}
