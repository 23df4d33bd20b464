//! Keys, caps, rotating secrets and global ids: [`KeyServer`] kept durable.

use crate::batch::{Batch, Snapshot};
use nacre_auth::{AuthChange, EntityAuth, KeyServer, TicketLifetimes, VoidTickets};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_types::{AuthName, Entropy, UTime};
use std::collections::BTreeMap;

const PREFIX: &str = "auth";
const ENTITY_PREFIX: &str = "auth-entity";
const ROTATING_KEY: &str = "rotating";
const GLOBAL_ID_KEY: &str = "global_id_end";
const VOID_KEY: &str = "void_tickets";

/// The key server and what of it is not durable yet.
#[derive(Debug, Default)]
pub struct AuthDb {
    keys: KeyServer,
    /// End of the global ids reserved by the batch that is being collected or committed.
    reserving: Option<u64>,
    /// Entities whose sessions must end: true when their key is not theirs any more, false when only their caps are others.
    revoked: BTreeMap<AuthName, bool>,
    void: VoidTickets,
    /// Rises with each change of `void`.
    void_version: u64,
    changes: Batch,
}

impl AuthDb {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let mut keys = KeyServer::new(TicketLifetimes::default());
        for (name, value) in snapshot.scan(ENTITY_PREFIX) {
            if let Some(name) = AuthName::parse(&name) {
                keys.apply(AuthChange::Put(name, EntityAuth::from_bytes(value)?));
            }
        }
        if let Some(rotating) = snapshot.get(PREFIX, ROTATING_KEY) {
            keys.restore_rotating(rotating)?;
        }
        let end = snapshot.get(PREFIX, GLOBAL_ID_KEY).map(u64::from_bytes).transpose()?;
        keys.global_ids = nacre_auth::GlobalIds::starting_at(end.unwrap_or(0));
        let void = snapshot.get(PREFIX, VOID_KEY).map(VoidTickets::from_bytes).transpose()?;
        let void = void.unwrap_or_default();
        Ok(Self { keys, void, ..Self::default() })
    }

    /// Entities and secrets, for the decisions of `auth` commands.
    #[must_use]
    pub fn keys(&self) -> &KeyServer {
        &self.keys
    }

    /// What handshakes need.
    pub(crate) fn keys_mut(&mut self) -> &mut KeyServer {
        &mut self.keys
    }

    /// Carries out what a command decided.
    pub fn apply(&mut self, change: AuthChange) {
        let (AuthChange::Put(name, _) | AuthChange::Remove(name)) = &change;
        if let Some(held) = self.keys.entity(name) {
            let revoked = match &change {
                AuthChange::Put(_, auth) if auth == held => None,
                AuthChange::Put(_, auth) => Some(auth.key.secret() != held.key.secret()),
                AuthChange::Remove(_) => Some(true),
            };
            if let Some(by_key) = revoked {
                *self.revoked.entry(name.clone()).or_default() |= by_key;
            }
        }
        match &change {
            AuthChange::Put(name, auth) => self.changes.put(ENTITY_PREFIX, name.to_string(), auth.to_bytes()),
            AuthChange::Remove(name) => self.changes.delete(ENTITY_PREFIX, name.to_string()),
        }
        self.keys.apply(change);
    }

    /// Entities whose sessions must end, see [`AuthDb::apply`], and whether for their key.
    pub(crate) fn take_revoked(&mut self) -> BTreeMap<AuthName, bool> {
        std::mem::take(&mut self.revoked)
    }

    /// Tickets that hold no more although they have not expired.
    pub(crate) fn void(&self) -> &VoidTickets {
        &self.void
    }

    /// Rises with each change of [`AuthDb::void`].
    pub(crate) fn void_version(&self) -> u64 {
        self.void_version
    }

    /// Makes all tickets void that these entities have by now, and forgets what has expired.
    pub(crate) fn make_void<'a>(&mut self, names: impl Iterator<Item = &'a AuthName>, wall: UTime) {
        let mut changed = self.void.expire(wall);
        let until = wall.after(self.keys.lifetimes().service);
        for name in names {
            self.void.add(name.clone(), wall, until);
            changed = true;
        }
        if changed {
            self.void_version += 1;
            self.changes.put(PREFIX, VOID_KEY, self.void.to_bytes());
        }
    }

    /// Renews rotating secrets and reserves global ids when their time has come.
    pub(crate) fn refresh(&mut self, wall: UTime, entropy: &mut dyn Entropy) {
        if self.keys.rotate(wall, entropy) {
            self.changes.put(PREFIX, ROTATING_KEY, self.keys.encode_rotating());
        }
        if self.reserving.is_none()
            && let Some(end) = self.keys.global_ids.wanted_reservation()
        {
            self.reserving = Some(end);
            self.changes.put(PREFIX, GLOBAL_ID_KEY, end.to_bytes());
        }
    }

    /// The batch that held our changes is durable: the reserved ids may be handed out.
    pub(crate) fn committed(&mut self) {
        if !self.is_dirty()
            && let Some(end) = self.reserving.take()
        {
            self.keys.global_ids.reserved(end);
        }
    }

    /// True while a reservation of global ids is not durable.
    pub(crate) fn is_reserving(&self) -> bool {
        self.reserving.is_some()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}

/// Entities of a new cluster, written by mkfs.
pub(crate) fn create(entities: &[(AuthName, EntityAuth)], batch: &mut Batch) {
    for (name, auth) in entities {
        batch.put(ENTITY_PREFIX, name.to_string(), auth.to_bytes());
    }
}
