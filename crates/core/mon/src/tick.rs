//! What the monitor does once per second: rotating secrets, sessions whose rights were revoked, OSDs that are silent or out for long,
//! snapshots to purge, changes of health in the cluster log.

use crate::config_key::CRASH_REPORTS;
use crate::crashes::{RETAIN_INTERVAL, RETAIN_S};
use crate::mon::{Cx, Mon};
use crate::osd::TimedOut;
use crate::session::Identity;
use crate::state::State;
use nacre_msg::LogPriority;
use nacre_types::{EntityAddr, EntityKind, IntervalSet, PoolId, UTime};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A client's instance, at the address that its connection comes from: what it says of its address may be another client's.
fn proven_addr(identity: &Identity) -> EntityAddr {
    let said = identity.addr.socket.map(|socket| socket.ip().to_canonical());
    match identity.seen_at {
        Some(seen) if said != Some(seen.to_canonical()) => {
            EntityAddr { socket: Some(SocketAddr::new(seen, 0)), ..identity.addr }
        }
        _ => identity.addr,
    }
}

impl Mon {
    pub(crate) fn tick(&mut self, cx: &mut Cx<'_>) {
        self.state.auth.refresh(&self.state.config, cx.wall, cx.entropy);
        self.state.stats.tick(cx.now);
        self.send_orders();
        self.state.warm_up(cx.now);
        self.tick_osds(cx);
        self.state.osd.expire_blocklist(cx.wall);
        let map = std::sync::Arc::clone(self.state.osd.map());
        let digest = self.state.stats.pgs.digest(&map);
        let is_warm = self.state.is_warm();
        self.state.osd.update_fullness(&self.state.stats.pgs, &digest, is_warm);
        if is_warm {
            self.purge_snaps();
            self.state.osd.shrink_pools(&self.state.stats.pgs);
            self.pace_pools(&digest);
            self.tick_autoscaler(cx, &digest);
            self.tick_balancer(cx);
            self.tick_slow_devices(cx);
            self.tick_probing(cx);
            self.tick_device_scrapes(cx);
        }
        self.tick_overview(cx);
        self.state.keep_stats(cx.now);
        self.state.osd.trim();
        self.state.health.expire_mutes(cx.wall);
        self.state.forget_old_crashes();
        let differ = crate::health::version_checks::differ(&self.state);
        let since = self.state.versions_differ_since.filter(|_| differ);
        self.state.versions_differ_since = since.or_else(|| differ.then_some(cx.wall));
        self.end_revoked(cx);
        self.state.budgets.tick(cx.now);
        for (name, count) in self.state.refusals.tick(cx.now) {
            self.state.audit(cx.wall, format!("entity='{name}': {count} more commands: access denied"));
        }
        self.run_delayed(cx);
        self.tick_managers(cx);
        self.tick_mds(cx);
        self.log_health(cx);
        self.hand_out_snapshots(cx.wall);
    }

    /// What people look at goes on by itself.
    fn tick_overview(&mut self, cx: &Cx<'_>) {
        let map = std::sync::Arc::clone(self.state.osd.map());
        self.state.stats.slow_requests.tick(cx.now, |osd| map.is_up(osd));
        self.state.stats.least_pings.tick(cx.now, |osd| map.is_up(osd));
        let mut history = std::mem::take(&mut self.state.stats.history);
        history.tick(cx.now, || crate::overview::sample(&self.state, cx.wall));
        self.state.stats.history = history;
    }

    /// Ends the sessions of entities whose key was removed or is another one, and makes the tickets void that they have, of which
    /// the OSDs hear. Such a client is shut out besides, by its address: an OSD that does not hear of it in time learns that
    /// with its next map.
    fn end_revoked(&mut self, cx: &Cx<'_>) {
        let revoked = self.state.auth.take_revoked();
        self.state.auth.make_void(revoked.iter(), cx.wall);
        let is_revoked = |entry: &crate::session::Session| revoked.contains(&entry.identity.auth_name);
        let ended: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, entry)| is_revoked(entry))
            .map(|(session, entry)| (*session, entry.kind, proven_addr(&entry.identity)))
            .collect();
        let until = cx.wall.after(self.state.auth.keys().lifetimes().service);
        for (session, kind, addr) in ended {
            // An address without a nonce would stand for all clients of a machine.
            if kind == EntityKind::CLIENT && addr.nonce != 0 {
                self.state.osd.blocklist_add(addr, until);
            }
            self.close(session);
        }
    }

    fn tick_osds(&mut self, cx: &mut Cx<'_>) {
        let config = &self.state.config;
        let failed = self.state.osd.judge_failures(cx.now, cx.wall, config);
        let timed_out = self.state.osd.tick(cx.now, cx.wall, config);
        for failed in failed {
            self.state.clog(LogPriority::INFO, cx.wall, failed.to_string());
        }
        for event in timed_out {
            let text = match event {
                TimedOut::Down(osd, silent) => {
                    format!("osd.{osd} marked down after no beacon for {:.6} seconds", silent.as_secs_f64())
                }
                TimedOut::Out(osd, down) => {
                    format!("Marking osd.{osd} out (has been down for {} seconds)", down.as_secs())
                }
            };
            self.state.clog(LogPriority::INFO, cx.wall, text);
        }
    }

    /// A removed snapshot leaves the queue once every PG of its pool says that it trimmed it.
    fn purge_snaps(&mut self) {
        let map = std::sync::Arc::clone(self.state.osd.map());
        if map.removed_snaps_queue.is_empty() {
            return;
        }
        let mut trimmed: BTreeMap<PoolId, (u32, Option<IntervalSet>)> = BTreeMap::new();
        for (pg, stat) in self.state.stats.pgs.pgs(&map) {
            let (count, common) = trimmed.entry(pg.pool).or_default();
            *count += 1;
            *common = Some(match common.take() {
                Some(common) => common.intersection(&stat.purged_snaps),
                None => stat.purged_snaps.clone(),
            });
        }
        for (id, (count, common)) in trimmed {
            let all_reported = map.pool(id).is_some_and(|pool| pool.pg_num == count);
            if let Some(common) = common.filter(|_| all_reported) {
                self.state.osd.purge_snaps(id, &common);
            }
        }
    }

    /// Writes changes of the health checks to the cluster log, and ends mutes of those that went away.
    fn log_health(&mut self, cx: &Cx<'_>) {
        if !self.state.is_warm() {
            return;
        }
        let checks = crate::health::checks(&self.state);
        for (priority, text) in self.state.health.news(checks, cx.wall) {
            self.state.clog(priority, cx.wall, text);
        }
    }
}

impl State {
    /// Forgets reports of crashes that are too old. A stock manager does it itself.
    fn forget_old_crashes(&mut self) {
        if !self.mgr.own_is_active() {
            return;
        }
        let interval = self.option_of_managers(RETAIN_INTERVAL).and_then(|text| text.parse().ok());
        let interval = Duration::from_secs(interval.unwrap_or(RETAIN_S));
        let since = UTime::from_unix(self.wall.to_unix().saturating_sub(interval));
        let old: Vec<String> =
            self.crashes.until(since).map(|(id, _)| format!("{CRASH_REPORTS}{id}")).collect();
        for key in old {
            self.config_keys.remove(&key);
        }
    }
}
