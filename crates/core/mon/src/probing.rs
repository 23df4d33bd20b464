//! When pools are probed as a client sees them, and with which key. Who does it is the monitor's daemon, by a client of its own; what comes of
//! it is judged by `nacre_mgr::probes`.

use crate::mon::{Cx, Mon};
use crate::prober::{PROBE_NAMESPACE, PROBE_USER, ProbeOrder, Probing, RETRY};
use crate::state::State;
use nacre_auth::Caps;
use nacre_mgr::probes::{PoolLayout, PoolProbe};
use nacre_msg::LogPriority;
use nacre_types::{AuthName, EntityKind, PoolId, Stamp, UTime, seconds};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two rounds; zero where nobody wants any.
pub(crate) fn interval(state: &State) -> Duration {
    seconds(state.config.number_of_monitor("nacre_probe_interval", 60.0))
}

/// What is not answered by then has failed.
pub(crate) fn patience(state: &State) -> Duration {
    seconds(state.config.number_of_monitor("nacre_probe_timeout", 10.0)).max(Duration::from_secs(1))
}

fn user() -> AuthName {
    AuthName::new(EntityKind::CLIENT, PROBE_USER)
}

impl Mon {
    /// Makes the client's key when the first round comes near: a cluster that is never probed has none.
    pub(crate) fn tick_probing(&mut self, cx: &mut Cx<'_>) {
        if interval(&self.state).is_zero() {
            self.state.probing = Probing::default();
            return self.state.stats.probes.clear();
        }
        let interval = interval(&self.state);
        let due_at = *self.state.probing.due_at.get_or_insert(cx.now + interval);
        // An interval that was made shorter holds at once.
        self.state.probing.due_at = Some(due_at.min(cx.now + interval));
        let (auth, has_pools) = (&self.state.auth, !self.state.osd.map().pools.is_empty());
        if cx.now < due_at || !has_pools || auth.keys().entity(&user()).is_some() {
            return;
        }
        let osd = format!("allow rw namespace={PROBE_NAMESPACE}");
        let caps = Caps::from_iter([("mon".to_owned(), "allow r".to_owned()), ("osd".to_owned(), osd)]);
        match auth.keys().decide_get_or_create(&user(), &caps, cx.wall, cx.entropy) {
            Ok(Some(change)) => self.state.auth.apply(change),
            Ok(None) => (),
            Err(error) => {
                let text = format!("pools are not probed: no key for client.{PROBE_USER}: {error}");
                self.state.clog(LogPriority::ERROR, cx.wall, text);
            }
        }
    }

    /// What is to be probed now, if anything is. [`Mon::probed`] ends the round.
    pub fn probe_order(&mut self, now: Stamp) -> Option<ProbeOrder> {
        let interval = interval(&self.state);
        if interval.is_zero() || !self.state.is_warm() || self.state.osd.map().pools.is_empty() {
            return None;
        }
        let (failing, patience) = (self.state.stats.probes.failing(), patience(&self.state));
        let key = self.state.auth.keys().entity(&user())?.key.clone();
        let probing = &mut self.state.probing;
        if probing.is_under_way {
            return None;
        }
        let is_due = probing.due_at.is_some_and(|at| now >= at);
        let pools = match is_due {
            true => None,
            false if now < probing.retry_at => return None,
            false if probing.error.is_some() => None,
            false if !failing.is_empty() => Some(failing),
            false => return None,
        };
        if is_due {
            probing.due_at = Some(now + interval);
            probing.round += 1;
        }
        probing.is_under_way = true;
        Some(ProbeOrder { key, pools, round: probing.round, patience })
    }

    /// A round has ended, or could not begin.
    pub fn probed(&mut self, outcome: Result<BTreeMap<PoolId, PoolProbe>, String>, now: Stamp, wall: UTime) {
        let probing = &mut self.state.probing;
        (probing.is_under_way, probing.retry_at) = (false, now + RETRY);
        match outcome {
            Ok(found) => {
                (probing.error, probing.failed_rounds) = (None, 0);
                let map = std::sync::Arc::clone(self.state.osd.map());
                for (id, pool) in &map.pools {
                    let rule = map.crush.rules.get(usize::from(pool.crush_rule)).cloned().flatten();
                    self.state.stats.probes.follow_layout(*id, PoolLayout { rule, size: pool.size });
                }
                self.state.stats.probes.round(found, now);
                self.state.stats.probes.retain(|pool| map.pools.contains_key(&pool));
            }
            Err(error) => {
                probing.failed_rounds = probing.failed_rounds.saturating_add(1);
                let is_new = probing.error.as_ref() != Some(&error);
                probing.error = Some(error.clone());
                // Whatever was found out before may be otherwise by now.
                self.state.stats.probes.round_failed();
                if is_new {
                    self.state.clog(LogPriority::WARN, wall, format!("pools could not be probed: {error}"));
                }
            }
        }
    }
}
