//! What OSDs tell the monitor: boots, failures, beacons, peering's subscriptions, statistics.

use crate::event::SessionId;
use crate::mon::{Cx, Mon};
use crate::osd::{BootOutcome, BootRefusal, BootRequest, FailureReport};
use nacre_auth::Rwx;
use nacre_msg::stats::pg_state;
use nacre_msg::{
    LogPriority, MarkMeDead, MarkMeDown, Message, OsdAlive, OsdBoot, OsdFailure, OsdPgTemp, PgStats,
    SLOW_REQUESTS_COUNT_MAX, SlowRequest, failure_flag,
};
use nacre_types::{AddrVec, Epoch, OsdId, PgId};
use std::time::Duration;

fn epoch(version: u64) -> Epoch {
    Epoch::try_from(version).unwrap_or(Epoch::MAX)
}

/// The sender's epoch, where the message tells that of a map that it has; 0 where not.
fn epoch_of(message: &Message) -> Epoch {
    match message {
        Message::OsdBeacon(beacon) => epoch(beacon.version),
        Message::OsdAlive(alive) => epoch(alive.version),
        Message::OsdFailure(failure) => epoch(failure.version),
        Message::OsdPgTemp(temp) => epoch(temp.version),
        _ => 0,
    }
}

fn of_boot(osd: OsdId, client_addrs: AddrVec, boot: OsdBoot) -> BootRequest {
    let superblock = boot.superblock;
    BootRequest {
        osd,
        epoch: epoch(boot.version).max(superblock.newest_map),
        store: superblock.osd_fsid,
        client_addrs,
        cluster_addrs: boot.cluster_addrs,
        hb_back_addrs: boot.hb_back_addrs,
        hb_front_addrs: boot.hb_front_addrs,
        last_clean: (superblock.mounted, superblock.clean_thru),
        boot_epoch: boot.boot_epoch,
        features: boot.features,
        metadata: boot.metadata,
    }
}

impl Mon {
    pub(crate) fn osd_message(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, message: Message) {
        // Everything here speaks for one OSD, so its key must be that OSD's and its caps those of a daemon.
        let osd = self.sessions.get(&session).and_then(crate::session::Session::osd);
        let Some(osd) = osd.filter(|_| self.allows(session, "osd", Rwx::X)) else { return };
        self.hear_epoch(cx, osd, epoch_of(&message));
        match message {
            Message::OsdBoot(boot) => self.osd_boot(cx, session, osd, boot),
            Message::OsdFailure(failure) => self.osd_failure(cx, osd, &failure),
            Message::OsdBeacon(beacon) => {
                self.state.osd.beacon(osd, &beacon.pgs, beacon.min_last_epoch_clean, cx.now);
            }
            Message::OsdAlive(alive) => self.osd_alive(session, osd, &alive),
            Message::OsdPgTemp(temp) => self.osd_pg_temp(session, osd, &temp),
            Message::OsdPgReadyToMerge(ready) => self.state.osd.ready_to_merge(osd, &ready),
            Message::OsdPgCreated(created) => self.state.osd.pg_created(created.pg),
            Message::DeviceReport(report) => self.device_report(cx, osd, report),
            Message::DeviceHealthReport(report) => self.device_health(cx, osd, report),
            Message::BillReport(report) => {
                let series_max = self.state.config.number_of_monitor("nacre_bill_series_max", 1000.0);
                // What it says of its host when it boots holds, and only while it is up.
                let facts = self.state.osd.metadata(osd).filter(|_| self.state.osd.map().is_up(osd));
                let host = facts.and_then(|facts| facts.get("hostname")).map(String::as_str);
                self.state.stats.bill.report((osd, host), &report, series_max as usize, cx.now);
            }
            Message::SlowRequests(slow) => self.slow_requests(cx, osd, slow.requests),
            Message::MarkMeDown(down) => self.mark_me_down(cx, session, tid, osd, down),
            Message::MarkMeDead(dead) => self.mark_me_dead(osd, &dead),
            // Nothing here handles it, or it answers what we never asked for.
            _ => (),
        }
    }

    fn slow_requests(&mut self, cx: &Cx<'_>, osd: OsdId, mut requests: Vec<SlowRequest>) {
        requests.truncate(SLOW_REQUESTS_COUNT_MAX);
        self.state.stats.slow_requests.report(osd, requests, cx.now);
    }

    /// An OSD says which map it has. No OSD has one that we have not published, unless our store is older than what we published.
    pub(crate) fn hear_epoch(&mut self, cx: &Cx<'_>, osd: OsdId, epoch: Epoch) {
        let newest = self.state.osd.published().epoch;
        if epoch > newest && self.state.osd.is_ahead(osd, epoch) {
            let text = format!(
                "osd.{osd} has map epoch {epoch}, and the newest of this monitor is {newest}: the monitor's store is an older \
                 copy. OSDs that know more than it stop rather than follow another history; start the monitor on its newest store"
            );
            self.state.clog(LogPriority::ERROR, cx.wall, text);
        }
    }

    /// The OSD has maps up to `epoch` and waits for what is newer.
    fn catch_up(&mut self, session: SessionId, epoch: Epoch) {
        if epoch > 0 {
            self.knows_epoch(session, epoch);
            self.send_osdmaps(session);
        }
    }

    fn osd_boot(&mut self, cx: &mut Cx<'_>, session: SessionId, osd: OsdId, boot: OsdBoot) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let (ours, same) = (self.is_ours(boot.superblock.cluster_fsid), boot.superblock.whoami == osd);
        if !ours || !same {
            let text =
                format!("osd.{osd} tried to boot as osd.{} of another cluster", boot.superblock.whoami);
            self.state.clog(LogPriority::WARN, cx.wall, text);
            return;
        }
        let known = epoch(boot.version);
        let request = of_boot(osd, entry.addrs.clone(), boot);
        if known > 0 {
            self.knows_epoch(session, known);
        }
        self.boot(cx, session, request);
    }

    fn boot(&mut self, cx: &mut Cx<'_>, session: SessionId, request: BootRequest) {
        let osd = request.osd;
        match self.state.osd.boot(&request, cx.now, cx.wall, &self.state.config) {
            BootOutcome::Booted => {
                self.state.osd.refused_boots.remove(&osd);
                let text = format!("osd.{osd} {} boot", request.client_addrs);
                self.state.clog(LogPriority::INFO, cx.wall, text);
                self.state.ask_devices_of(osd);
            }
            BootOutcome::AlreadyUp => self.send_osdmaps(session),
            BootOutcome::Deferred => drop(self.deferred_boots.insert(session, request)),
            BootOutcome::Refused(reason) => {
                if let BootRefusal::Ahead { own, .. } = reason {
                    self.state.osd.is_ahead(osd, own);
                }
                // It tries again every few seconds.
                let kind = |refusal: &BootRefusal| std::mem::discriminant(refusal);
                let before = self.state.osd.refused_boots.insert(osd, reason);
                if before.as_ref().map(kind) != Some(kind(&reason)) {
                    let text = format!("osd.{osd} may not boot: {reason}");
                    self.state.clog(LogPriority::WARN, cx.wall, text);
                }
            }
        }
    }

    /// The epoch that marked predecessors down is there: their successors may come up.
    pub(crate) fn retry_boots(&mut self, cx: &mut Cx<'_>) {
        for (session, request) in std::mem::take(&mut self.deferred_boots) {
            // One that was removed meanwhile has no key any more: it would be there for nobody, and its number taken.
            if self.state.osd.upcoming().exists(request.osd) {
                self.boot(cx, session, request);
            }
        }
    }

    fn osd_failure(&mut self, cx: &mut Cx<'_>, reporter: OsdId, failure: &OsdFailure) {
        if !self.is_ours(failure.fsid) {
            return;
        }
        let report = FailureReport {
            reporter,
            target: failure.target,
            target_addrs: failure.target_addrs.clone(),
            failed: failure.flags & failure_flag::FAILED != 0,
            immediate: failure.flags & failure_flag::IMMEDIATE != 0,
            failed_for: Duration::from_secs(u64::try_from(failure.failed_for_s).unwrap_or(0)),
            epoch: failure.epoch,
        };
        let failed = self.state.osd.report_failure(&report, cx.now, cx.wall, &self.state.config);
        if let Some(failed) = failed {
            self.state.clog(LogPriority::INFO, cx.wall, failed.to_string());
        }
    }

    fn osd_alive(&mut self, session: SessionId, osd: OsdId, alive: &OsdAlive) {
        if !self.state.osd.alive(osd, alive.want, epoch(alive.version)) {
            self.catch_up(session, epoch(alive.version));
        }
    }

    fn osd_pg_temp(&mut self, session: SessionId, osd: OsdId, temp: &OsdPgTemp) {
        if !self.state.osd.pg_temp(osd, &temp.pg_temp) {
            self.catch_up(session, temp.map_epoch);
        }
    }

    fn mark_me_down(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, osd: OsdId, down: MarkMeDown) {
        if !self.is_ours(down.fsid) || down.osd != osd {
            return;
        }
        let map = self.state.osd.upcoming();
        let this_instance = map.client_addr(osd) == Some(&down.addrs);
        if this_instance && self.state.osd.may_mark_down(osd, &self.state.config) {
            self.state.osd.mark_down(osd, cx.wall);
            if down.down_and_dead {
                self.state.osd.mark_dead(osd);
            }
            self.state.clog(LogPriority::INFO, cx.wall, format!("osd.{osd} marked itself down"));
        }
        if down.request_ack {
            self.send(session, tid, MarkMeDown { request_ack: false, ..down });
        }
    }

    /// An OSD finds itself down in the map. What it says of another instance than the last one that went down comes too late.
    fn mark_me_dead(&mut self, osd: OsdId, dead: &MarkMeDead) {
        let down_at = self.state.osd.upcoming().info(osd).down_at;
        if self.is_ours(dead.fsid) && dead.osd == osd && dead.epoch >= down_at {
            self.state.osd.mark_dead(osd);
        }
    }

    pub(crate) fn pg_stats(&mut self, cx: &mut Cx<'_>, session: SessionId, mut stats: PgStats) {
        let osd = self.sessions.get(&session).and_then(crate::session::Session::osd);
        let Some(osd) = osd.filter(|_| self.is_ours(stats.fsid)) else { return };
        // It speaks for PGs that it has, and nobody knows a map that is not out yet: such a report would never be replaced.
        let map = self.state.osd.map();
        let has = |pg: PgId| {
            let placed = map.pg_to_up_acting(pg);
            placed.acting_primary == osd || placed.acting.contains(&osd) || placed.up.contains(&osd)
        };
        stats.pg_stat.retain(|pg, stat| stat.reported_epoch <= map.epoch && has(*pg));
        for (pg, stat) in &stats.pg_stat {
            // One that serves is on the disks of all its OSDs, even when the word of it got lost. While it peers or
            // activates it may not be, and a loss of power leaves nothing.
            if stat.state & (pg_state::ACTIVE | pg_state::CREATING) == pg_state::ACTIVE {
                self.state.osd.pg_created(*pg);
            }
        }
        self.state.stats.pg_stats(osd, stats, cx.wall);
        self.state.warm_up(cx.now);
    }
}
