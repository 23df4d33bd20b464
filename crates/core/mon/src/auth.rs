//! Keys, caps, rotating secrets and global ids: [`KeyServer`] kept durable, and what the leader decides about it.

use crate::batch::{Batch, Snapshot};
use crate::config::ConfigDb;
use nacre_auth::{
    AuthChange, ChangedCaps, EntityAuth, GLOBAL_IDS_PER_GRANT, KeyServer, TicketLifetimes, VoidTickets,
};
use nacre_denc::{Decode, DecodeError, Encode};
use nacre_types::{AuthName, EntityKind, Entropy, UTime};
use std::collections::BTreeSet;
use std::ops::Range;

const PREFIX: &str = "auth";
/// The table of entities.
pub(crate) const ENTITY_PREFIX: &str = "auth-entity";
const ROTATING_KEY: &str = "rotating";
pub(crate) const GLOBAL_ID_KEY: &str = "global_id_end";
const VOID_KEY: &str = "void_tickets";
const CAPS_KEY: &str = "changed_caps";
/// Table and key of the rotating secrets.
pub(crate) const ROTATING: (&str, &str) = (PREFIX, ROTATING_KEY);
/// Table and key of the tickets that are void.
pub(crate) const CHANGED_VOID: (&str, &str) = (PREFIX, VOID_KEY);

/// The key server and what of it is not durable yet.
#[derive(Debug, Default)]
pub struct AuthDb {
    keys: KeyServer,
    /// End of the global ids that were granted.
    granted_end: u64,
    /// Entities whose sessions must end, since their key is not theirs any more.
    revoked: BTreeSet<AuthName>,
    /// Entities whose sessions must take their caps over anew.
    recapped: BTreeSet<AuthName>,
    void: VoidTickets,
    /// Rises with each change of `void`.
    void_version: u64,
    /// Caps at OSDs that have changed since tickets were made.
    caps: ChangedCaps,
    /// Rises with each change of `caps`.
    caps_version: u64,
    changes: Batch,
}

impl AuthDb {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let keys = open_keys(snapshot)?;
        let end = snapshot.get(PREFIX, GLOBAL_ID_KEY).map(u64::from_bytes).transpose()?;
        let granted_end = end.unwrap_or(0).max(1);
        let void = open_void(snapshot)?;
        let caps = snapshot.get(PREFIX, CAPS_KEY).map(ChangedCaps::from_bytes).transpose()?;
        Ok(Self { keys, granted_end, void, caps: caps.unwrap_or_default(), ..Self::default() })
    }

    /// Entities and secrets, for the decisions of `auth` commands.
    #[must_use]
    pub fn keys(&self) -> &KeyServer {
        &self.keys
    }

    /// Carries out what a command decided.
    pub fn apply(&mut self, change: AuthChange) {
        let (AuthChange::Put(name, _) | AuthChange::Remove(name)) = &change;
        if let Some(held) = self.keys.entity(name) {
            match &change {
                AuthChange::Put(_, auth) if auth == held => (),
                AuthChange::Put(_, auth) if auth.key.secret() == held.key.secret() => {
                    self.recapped.insert(name.clone());
                }
                _ => {
                    self.revoked.insert(name.clone());
                }
            }
        }
        match &change {
            AuthChange::Put(name, auth) => self.changes.put(ENTITY_PREFIX, name.to_string(), auth.to_bytes()),
            AuthChange::Remove(name) => self.changes.delete(ENTITY_PREFIX, name.to_string()),
        }
        self.keys.apply(change);
    }

    /// Entities whose sessions must end, see [`AuthDb::apply`].
    pub(crate) fn take_revoked(&mut self) -> BTreeSet<AuthName> {
        std::mem::take(&mut self.revoked)
    }

    /// Entities whose caps are others now, while their key is the same.
    pub(crate) fn take_recapped(&mut self) -> BTreeSet<AuthName> {
        std::mem::take(&mut self.recapped)
    }

    /// Tickets that hold no more although they have not expired.
    pub(crate) fn void(&self) -> &VoidTickets {
        &self.void
    }

    /// Rises with each change of [`AuthDb::void`].
    pub(crate) fn void_version(&self) -> u64 {
        self.void_version
    }

    /// Caps at OSDs that valid tickets may say otherwise.
    pub(crate) fn changed_caps(&self) -> &ChangedCaps {
        &self.caps
    }

    /// Rises with each change of [`AuthDb::changed_caps`].
    pub(crate) fn caps_version(&self) -> u64 {
        self.caps_version
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
        if self.caps.expire(wall) {
            self.caps_changed();
        }
    }

    fn caps_changed(&mut self) {
        self.caps_version += 1;
        self.changes.put(PREFIX, CAPS_KEY, self.caps.to_bytes());
    }

    /// Notes what these entities may do at OSDs by now, whatever the tickets say that they have.
    pub(crate) fn note_caps(&mut self, names: &BTreeSet<AuthName>, wall: UTime) {
        let until = wall.after(self.keys.lifetimes().service);
        let mut displaced = BTreeSet::new();
        for name in names {
            let caps = self.keys.caps_of(name, EntityKind::OSD).unwrap_or_default().to_owned();
            displaced.extend(self.caps.add(name.clone(), wall, until, caps));
        }
        if !displaced.is_empty() {
            self.make_void(displaced.iter(), wall);
        }
        self.caps_changed();
    }

    /// Renews rotating secrets when their time has come.
    pub(crate) fn refresh(&mut self, config: &ConfigDb, wall: UTime, entropy: &mut dyn Entropy) {
        self.keys.set_lifetimes(lifetimes(config));
        if self.keys.rotate(wall, entropy) {
            self.changes.put(PREFIX, ROTATING_KEY, self.keys.encode_rotating());
        }
    }

    /// Global ids for one monitor to hand out. They are its own once the batch that says so is durable; what it does not hand out is lost.
    pub(crate) fn grant_ids(&mut self) -> Range<u64> {
        let start = self.granted_end;
        self.granted_end = start.saturating_add(GLOBAL_IDS_PER_GRANT);
        self.changes.put(PREFIX, GLOBAL_ID_KEY, self.granted_end.to_bytes());
        start..self.granted_end
    }

    /// What lets global ids go on behind those of these tables, with so many left out.
    pub(crate) fn skip_ids(tables: &dyn Snapshot, count: u64, batch: &mut Batch) -> Result<(), DecodeError> {
        let end = tables.get(PREFIX, GLOBAL_ID_KEY).map(u64::from_bytes).transpose()?.unwrap_or(0);
        batch.put(PREFIX, GLOBAL_ID_KEY, end.saturating_add(count).to_bytes());
        Ok(())
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}

/// Entities and secrets of the store.
pub(crate) fn open_keys(snapshot: &dyn Snapshot) -> Result<KeyServer, DecodeError> {
    let mut keys = KeyServer::new(TicketLifetimes::default());
    for (name, value) in snapshot.scan(ENTITY_PREFIX) {
        if let Some(name) = AuthName::parse(&name) {
            keys.apply(AuthChange::Put(name, EntityAuth::from_bytes(value)?));
        }
    }
    if let Some(rotating) = snapshot.get(PREFIX, ROTATING_KEY) {
        keys.restore_rotating(rotating)?;
    }
    Ok(keys)
}

/// Tickets of the store that are void.
pub(crate) fn open_void(snapshot: &dyn Snapshot) -> Result<VoidTickets, DecodeError> {
    Ok(snapshot.get(PREFIX, VOID_KEY).map(VoidTickets::from_bytes).transpose()?.unwrap_or_default())
}

/// How long tickets made from now on last.
pub(crate) fn lifetimes(config: &ConfigDb) -> TicketLifetimes {
    let seconds = |name: &str, fallback: u32| {
        nacre_types::seconds(config.number_of_monitor(name, fallback.into()).max(1.0))
    };
    TicketLifetimes {
        auth: seconds("auth_mon_ticket_ttl", 72 * 3600),
        service: seconds("auth_service_ticket_ttl", 3600),
    }
}

/// Entities of a new cluster, written by mkfs.
pub(crate) fn create(entities: &[(AuthName, EntityAuth)], batch: &mut Batch) {
    for (name, auth) in entities {
        batch.put(ENTITY_PREFIX, name.to_string(), auth.to_bytes());
    }
}
