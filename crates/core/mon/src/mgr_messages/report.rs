//! What the active stock manager reports, and what it is told.

use crate::event::SessionId;
use crate::managers::Reported;
use crate::mon::{Cx, Mon};
use nacre_auth::Rwx;
use nacre_buf::Bytes;
use nacre_denc::Decode;
use nacre_msg::{LogPriority, MgrDigest, MonMgrReport, ServiceMap};

/// The subscription to how the monitors and the cluster are.
pub(crate) const DIGEST_TOPIC: &str = "mgrdigest";
/// Health checks and long changes of one report that are taken.
const CHECKS_COUNT_MAX: usize = 1000;
const PROGRESS_COUNT_MAX: usize = 1000;
/// Bytes of a check's code.
const CODE_BYTES_MAX: usize = 128;

impl Mon {
    /// The active manager's findings. Its sums of PGs and OSDs are left aside: the OSDs report to us as well (`publish.rs`), so what
    /// monitors decide and commands show does not depend on who is the manager, nor on when it has summed up.
    pub(crate) fn manager_report(&mut self, cx: &Cx<'_>, session: SessionId, report: MonMgrReport) {
        let Some(identity) = self.identity_of(session) else { return };
        let is_its_own = identity.global_id == report.gid && self.state.mgr.map().active_gid == report.gid;
        if !is_its_own || !self.allows(session, "mgr", Rwx::X) || self.state.mgr.own_is_active() {
            return;
        }
        let mut checks = report.health_checks;
        checks.checks.retain(|code, _| code.len() <= CODE_BYTES_MAX);
        let checks_beyond = checks.checks.keys().nth(CHECKS_COUNT_MAX).cloned();
        checks_beyond.iter().for_each(|from| drop(checks.checks.split_off(from)));
        let mut progress = report.progress_events;
        let progress_beyond = progress.keys().nth(PROGRESS_COUNT_MAX).cloned();
        progress_beyond.iter().for_each(|from| drop(progress.split_off(from)));
        self.state.mgr.reported = Reported { checks, progress };
        if !report.service_map.is_empty() {
            match ServiceMap::from_bytes(report.service_map) {
                Ok(map) => self.state.services.replace(map),
                Err(error) => {
                    let text = format!("the service map of the active manager does not decode: {error}");
                    self.state.clog(LogPriority::WARN, cx.wall, text);
                }
            }
        }
    }

    /// Tells managers every few seconds how the monitors and the cluster are.
    pub(crate) fn send_digests(&mut self, cx: &Cx<'_>) {
        if cx.now < self.state.mgr.next_digest {
            return;
        }
        let period = self.state.config.number_of_monitor("mon_mgr_digest_period", 5.0);
        self.state.mgr.next_digest = cx.now + nacre_types::seconds(period);
        let wanted =
            self.sessions.iter().filter(|(_, entry)| entry.subscriptions.get(DIGEST_TOPIC).is_some());
        let wanted: Vec<SessionId> = wanted.map(|(session, _)| *session).collect();
        wanted.into_iter().for_each(|session| self.serve(session, DIGEST_TOPIC));
    }

    pub(crate) fn serve_digest(&mut self, session: SessionId) {
        let (mon_status_json, health_json) = crate::commands::digest_texts(&self.state);
        let digest = MgrDigest {
            mon_status_json: Bytes::from(mon_status_json),
            health_json: Bytes::from(health_json),
        };
        self.send(session, 0, digest);
    }
}
