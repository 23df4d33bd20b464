//! [`AuthView`]: keys, secrets and options as the tables of this monitor have them.

use crate::auth::{self, CHANGED_VOID, ROTATING};
use crate::batch::{BatchOp, Snapshot};
use crate::config::{self, ConfigDb};
use nacre_auth::{AuthChange, EntityAuth, KeyServer, RotatingKeys, TicketLifetimes, VoidTickets};
use nacre_denc::{Decode, DecodeError};
use nacre_types::{AuthName, EntityKind};

/// What the tables have of authentication.
#[derive(Debug)]
pub(super) struct AuthView {
    keys: KeyServer,
    void: VoidTickets,
    /// The values of options of the table.
    config: ConfigDb,
}

impl AuthView {
    pub(super) fn open(snapshot: &dyn Snapshot, monitor: &str) -> Result<Self, DecodeError> {
        let mut config = ConfigDb::of_monitor_named(monitor);
        for (key, value) in snapshot.scan(config::PREFIX) {
            config.take_in(&key, Some(&value));
        }
        let keys = auth::open_keys(snapshot)?;
        let void = auth::open_void(snapshot)?;
        let mut view = Self { keys, void, config };
        view.refresh_lifetimes();
        Ok(view)
    }

    /// Takes in a change. Yields an entity whose key is another now, or nobody's.
    pub(super) fn apply(&mut self, op: &BatchOp) -> Result<Option<AuthName>, DecodeError> {
        match (op.prefix.as_ref(), op.key.as_str()) {
            (auth::ENTITY_PREFIX, name) => return self.apply_entity(name, op),
            ROTATING => {
                if let Some(value) = &op.value {
                    self.keys.restore_rotating(value.clone())?;
                }
            }
            CHANGED_VOID => {
                let void = op.value.clone().map(VoidTickets::from_bytes).transpose()?;
                self.void = void.unwrap_or_default();
            }
            (config::PREFIX, key) => {
                self.config.take_in(key, op.value.as_ref());
                self.refresh_lifetimes();
            }
            _ => (),
        }
        Ok(None)
    }

    fn apply_entity(&mut self, name: &str, op: &BatchOp) -> Result<Option<AuthName>, DecodeError> {
        let Some(name) = AuthName::parse(name) else { return Ok(None) };
        let before = self.secret_of(&name).copied();
        self.keys.apply(match &op.value {
            Some(value) => AuthChange::Put(name.clone(), EntityAuth::from_bytes(value.clone())?),
            None => AuthChange::Remove(name.clone()),
        });
        let is_other = before.is_some() && before.as_ref() != self.secret_of(&name);
        Ok(is_other.then_some(name))
    }

    pub(super) fn keys(&self) -> &KeyServer {
        &self.keys
    }

    pub(super) fn secret_of(&self, name: &AuthName) -> Option<&[u8; nacre_auth::KEY_BYTES]> {
        self.keys.entity(name).map(|auth| auth.key.secret())
    }

    /// True once a leader has made the secrets of a new cluster.
    pub(super) fn has_secrets(&self) -> bool {
        self.keys.rotating(EntityKind::AUTH).is_some()
    }

    /// Secrets of tickets for the manager, with the tickets that are void.
    pub(super) fn mgr_keys(&self) -> RotatingKeys {
        let keys = self.keys.rotating(EntityKind::MGR).cloned().unwrap_or_default();
        keys.with_void(self.void.clone())
    }

    /// Per cent of free room with which no monitor starts.
    pub(super) fn disk_avail_crit(&self) -> u8 {
        let percent = self.config.of_monitor("mon_data_avail_crit");
        percent.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.config.of_monitor(name)
    }

    /// The options that this monitor goes by.
    pub(super) fn config(&self) -> &ConfigDb {
        &self.config
    }

    fn refresh_lifetimes(&mut self) {
        let lifetimes: TicketLifetimes = auth::lifetimes(&self.config);
        self.keys.set_lifetimes(lifetimes);
    }
}
