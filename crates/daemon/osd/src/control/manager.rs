//! The connection to the manager: what the OSD reports of itself and its PGs, and what operators order through it.

use super::{ControlCx, ControlEvent, OsdControl};
use crate::links::{Link, WAITING_MAX};
use crate::report;
use crate::shard_msg::ShardReport;
use nacre_maps::MgrMap;
use nacre_msg::{Message, RawMessage};
use nacre_types::EntityKind;
use std::sync::Arc;
use std::time::Duration;

/// An alert of a peer's message that did not decode lasts for this time.
const MISUNDERSTOOD_KEPT: Duration = Duration::from_secs(600);

impl OsdControl {
    pub(super) fn mgr_map(&mut self, cx: &mut ControlCx<'_>, map: &MgrMap) {
        let wanted = map.available.then_some(&map.active_addrs).filter(|addrs| addrs.msgr2().is_some());
        if self.mgr.as_ref().map(Link::addrs) == wanted {
            return;
        }
        if let Some(link) = self.mgr.take() {
            link.end(cx.messenger);
        }
        self.mgr_open_sent = false;
        let msgr_config = Arc::clone(&self.osd_addrs.cluster);
        self.mgr =
            wanted.map(|addrs| Link::new(EntityKind::MGR, addrs.clone(), Some(msgr_config), WAITING_MAX));
        self.dial_all(cx);
    }

    pub(super) fn mgr_message(&mut self, cx: &mut ControlCx<'_>, raw: RawMessage) {
        match Message::decode(raw) {
            Ok(Message::OsdScrub2(scrub)) if scrub.fsid == self.config.fsid => {
                cx.events.push(ControlEvent::Scrub(Box::new(scrub)));
            }
            Ok(Message::OsdForceRecovery(order)) if order.fsid == self.config.fsid => {
                cx.events.push(ControlEvent::Force(Box::new(order)));
            }
            // How often to report: we do so when something changes.
            Ok(Message::MgrConfigure(_)) => (),
            Ok(other) => tracing::debug!(name = other.name(), "unexpected message from the manager"),
            Err(error) => tracing::error!(%error, "the manager sent what does not decode"),
        }
    }

    /// A shard's PGs have changed.
    pub(crate) fn heard_report(&mut self, cx: &mut ControlCx<'_>, report: ShardReport) {
        let before = self.reports.insert(report.shard, report).map(|report| report.sharers);
        if before != self.reports.values().next().map(|report| report.sharers.clone()) {
            self.follow_heartbeats(cx);
        }
        self.report_due = true;
        self.report(cx);
    }

    pub(super) fn report(&mut self, cx: &mut ControlCx<'_>) {
        let open = self.mgr.as_ref().is_some_and(Link::is_open);
        if !open || !(self.report_due || cx.now >= self.report_at) || self.reports.is_empty() {
            return;
        }
        self.report_due = false;
        self.report_at = cx.now + report::INTERVAL;
        self.report_seq += 1;
        let Some(link) = &mut self.mgr else { return };
        if !self.mgr_open_sent {
            self.mgr_open_sent = true;
            link.send(cx.messenger, Message::from(report::mgr_open(&self.config)).encode(0));
        }
        let map = cx.maps.newest();
        let hb_peers = self.pings.peers().into_iter();
        let mut stats = report::pg_stats(&self.config, map, self.report_seq, self.reports.values(), hb_peers);
        self.misunderstood.retain(|_, (_, at)| cx.now.since(*at) < MISUNDERSTOOD_KEPT);
        let misunderstood = self.misunderstood.values().map(|(text, _)| text.as_str());
        let alerts = report::alerts(misunderstood, self.reports.values());
        if !alerts.is_empty() {
            stats.osd_stat.alerts.insert(self.config.id, alerts);
        }
        link.send(cx.messenger, Message::from(stats).encode(0));
    }
}
