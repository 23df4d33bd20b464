//! [`Services`]: daemons of services (gateways, mirrors) that are connected to the manager, as they describe themselves.
//!
//! Ceph's `ServiceMap` at v16.2.15 keeps a daemon for 60 s after its last report, under whatever name any client gives. Here a
//! daemon is its session's: it is there while that lasts, no other session changes it, and its size is bounded.

use nacre_msg::{MgrOpen, MgrReport};
use nacre_types::AuthName;
use std::collections::BTreeMap;

/// Daemons at a time.
pub const SERVICE_DAEMONS_MAX: usize = 4096;
/// Bytes of what one says of itself: names, keys and values.
pub const SERVICE_BYTES_MAX: usize = 64 << 10;
/// Services that no client is part of.
const OWN: [&str; 5] = ["", "mds", "mgr", "mon", "osd"];

/// Service and name of a daemon, such as `("rgw", "4151")`.
pub type ServiceKey = (String, String);

/// A daemon of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDaemon {
    /// What it is, as it says.
    pub metadata: BTreeMap<String, String>,
    /// Its condition, as it said last.
    pub status: BTreeMap<String, String>,
    /// The entity that the session has proved to be.
    entity: AuthName,
    session: u64,
}

/// Why a daemon is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServiceRefused {
    /// Its service is one of the cluster's own.
    #[error("the cluster's own daemons are no service")]
    Own,
    /// Its name is that of a connected daemon of another entity.
    #[error("another entity's daemon has that name")]
    Taken,
    /// It says more than [`SERVICE_BYTES_MAX`].
    #[error("what the daemon reports of itself exceeds {SERVICE_BYTES_MAX} bytes")]
    Long,
    /// There are [`SERVICE_DAEMONS_MAX`].
    #[error("{SERVICE_DAEMONS_MAX} service daemons are registered already")]
    Many,
}

/// Those that are connected.
#[derive(Debug, Default)]
pub struct Services {
    daemons: BTreeMap<ServiceKey, ServiceDaemon>,
    /// Whose session it is: one daemon each.
    sessions: BTreeMap<u64, ServiceKey>,
}

impl ServiceDaemon {
    /// Number of the session that it is shown by.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }
}

fn bytes(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}

impl Services {
    /// A daemon of `entity` opens `session` with the manager. One that is no service's is not remembered.
    ///
    /// # Errors
    /// [`ServiceRefused`]; what the session had opened before is gone.
    pub fn open(&mut self, session: u64, entity: &AuthName, open: MgrOpen) -> Result<(), ServiceRefused> {
        self.closed(session);
        let Some((metadata, status)) = open.service else { return Ok(()) };
        if OWN.contains(&open.service_name.as_str()) {
            return Err(ServiceRefused::Own);
        }
        let names = open.service_name.len() + open.daemon_name.len();
        if names + bytes(&metadata) + bytes(&status) > SERVICE_BYTES_MAX {
            return Err(ServiceRefused::Long);
        }
        let key = (open.service_name, open.daemon_name);
        match self.daemons.get(&key) {
            Some(other) if other.entity != *entity => return Err(ServiceRefused::Taken),
            // It comes back before its former connection is known to be gone.
            Some(former) => self.closed(former.session),
            None if self.daemons.len() >= SERVICE_DAEMONS_MAX => return Err(ServiceRefused::Many),
            None => (),
        }
        self.sessions.insert(session, key.clone());
        self.daemons.insert(key, ServiceDaemon { metadata, status, entity: entity.clone(), session });
        Ok(())
    }

    /// A report, which may tell the condition of the session's daemon.
    ///
    /// # Errors
    /// [`ServiceRefused::Long`]; the condition stays what it was.
    pub fn report(&mut self, session: u64, report: MgrReport) -> Result<(), ServiceRefused> {
        let daemon = self.sessions.get(&session).and_then(|key| self.daemons.get_mut(key));
        let (Some(daemon), Some(status)) = (daemon, report.daemon_status) else { return Ok(()) };
        if bytes(&daemon.metadata) + bytes(&status) > SERVICE_BYTES_MAX {
            return Err(ServiceRefused::Long);
        }
        daemon.status = status;
        Ok(())
    }

    /// The session is over, or its daemon says goodbye.
    pub fn closed(&mut self, session: u64) {
        if let Some(key) = self.sessions.remove(&session) {
            self.daemons.remove(&key);
        }
    }

    /// All of them.
    pub fn daemons(&self) -> impl Iterator<Item = (&ServiceKey, &ServiceDaemon)> {
        self.daemons.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::EntityKind;

    fn entity(id: &str) -> AuthName {
        AuthName::new(EntityKind::CLIENT, id)
    }

    fn said(value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("state".to_owned(), value.to_owned())])
    }

    fn open(service: &str, name: &str, value: &str) -> MgrOpen {
        let (service_name, daemon_name) = (service.to_owned(), name.to_owned());
        let service = Some((BTreeMap::new(), said(value)));
        MgrOpen { service_name, daemon_name, service, ..MgrOpen::default() }
    }

    fn shown(services: &Services) -> Vec<(&str, &str)> {
        services
            .daemons()
            .map(|((_, name), daemon)| (name.as_str(), daemon.status["state"].as_str()))
            .collect()
    }

    #[test]
    fn a_daemon_is_there_while_its_session_lasts_and_says_how_it_is() {
        let mut services = Services::default();
        assert_eq!(services.open(1, &entity("rgw.a"), open("rgw", "a", "starts")), Ok(()));
        let report = |value: &str| MgrReport { daemon_status: Some(said(value)), ..MgrReport::default() };
        assert_eq!(services.report(1, report("serves")), Ok(()));
        assert_eq!(services.report(2, report("is nobody's")), Ok(()));
        assert_eq!(services.report(1, MgrReport::default()), Ok(()), "only counters");
        assert_eq!(shown(&services), [("a", "serves")]);
        // It comes back, and then its former connection ends.
        assert_eq!(services.open(3, &entity("rgw.a"), open("rgw", "a", "again")), Ok(()));
        services.closed(1);
        assert_eq!(shown(&services), [("a", "again")]);
        services.closed(3);
        assert_eq!(shown(&services), []);
    }

    #[test]
    fn nobody_takes_anothers_name_or_that_of_the_clusters_own() {
        let mut services = Services::default();
        assert_eq!(services.open(1, &entity("rgw.a"), open("rgw", "a", "serves")), Ok(()));
        assert_eq!(services.open(2, &entity("x"), open("rgw", "a", "gone")), Err(ServiceRefused::Taken));
        assert_eq!(services.open(2, &entity("x"), open("osd", "0", "gone")), Err(ServiceRefused::Own));
        services.closed(2);
        assert_eq!(shown(&services), [("a", "serves")]);
        // One daemon per session: names are not to be collected.
        for name in ["b", "c", "d"] {
            assert_eq!(services.open(2, &entity("x"), open("mirror", name, "on")), Ok(()));
        }
        assert_eq!(shown(&services), [("d", "on"), ("a", "serves")]);
    }

    #[test]
    fn what_daemons_say_is_bounded() {
        let mut services = Services::default();
        let (fits, long) = ("x".repeat(SERVICE_BYTES_MAX - 9), "x".repeat(SERVICE_BYTES_MAX - 8));
        assert_eq!(services.open(1, &entity("x"), open("rgw", "a", &long)), Err(ServiceRefused::Long));
        assert_eq!(services.open(1, &entity("x"), open("rgw", "a", &fits)), Ok(()));
        let report =
            MgrReport { daemon_status: Some(said(&"x".repeat(SERVICE_BYTES_MAX))), ..MgrReport::default() };
        assert_eq!(services.report(1, report), Err(ServiceRefused::Long));
        for session in 2..=SERVICE_DAEMONS_MAX as u64 {
            assert_eq!(services.open(session, &entity("x"), open("rgw", &session.to_string(), "on")), Ok(()));
        }
        assert_eq!(services.open(0, &entity("x"), open("rgw", "0", "on")), Err(ServiceRefused::Many));
        services.closed(1);
        assert_eq!(services.open(0, &entity("x"), open("rgw", "0", "on")), Ok(()));
    }
}
