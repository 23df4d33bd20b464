//! Keys, caps, rotating secrets and global ids: [`KeyServer`] kept durable.

use crate::batch::{Batch, Snapshot};
use nacre_auth::{AuthChange, EntityAuth, KeyServer, TicketLifetimes};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_types::{AuthName, Entropy, UTime};

const PREFIX: &str = "auth";
const ENTITY_PREFIX: &str = "auth-entity";
const ROTATING_KEY: &str = "rotating";
const GLOBAL_ID_KEY: &str = "global_id_end";

/// The key server and what of it is not durable yet.
#[derive(Debug, Default)]
pub struct AuthDb {
    keys: KeyServer,
    /// End of the global ids reserved by the batch that is being collected or committed.
    reserving: Option<u64>,
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
        Ok(Self { keys, reserving: None, changes: Batch::default() })
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
        match &change {
            AuthChange::Put(name, auth) => self.changes.put(ENTITY_PREFIX, name.to_string(), auth.to_bytes()),
            AuthChange::Remove(name) => self.changes.delete(ENTITY_PREFIX, name.to_string()),
        }
        self.keys.apply(change);
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
