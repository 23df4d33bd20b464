//! What [`nacre_osd_core::Boot`] decides is carried out: its messages to the monitor, a new instance, the end.

use super::{ControlCx, ControlEvent, OsdControl};
use crate::report;
use nacre_monc::Context;
use nacre_msg::{MarkMeDown, Message, OsdAlive, OsdBeacon, OsdBoot, OsdPgTemp, Superblock};
use nacre_options::Values;
use nacre_osd_core::{Effect, EndReason, Event, Present, Settings, min_last_epoch_clean};
use nacre_types::{Epoch, UTime, features};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn settings(options: &Values) -> Settings {
    Settings {
        beacon_interval: options.seconds("osd_beacon_report_interval"),
        markdown_count_max: options.count("osd_max_markdown_count"),
        markdown_period: options.seconds("osd_max_markdown_period"),
        leave_timeout: options.seconds("osd_mon_shutdown_timeout"),
    }
}

impl OsdControl {
    /// Tells the boot machine, and does what it wants.
    pub(super) fn boot_event(&mut self, cx: &mut ControlCx<'_>, event: Event) {
        let map = cx.maps.newest();
        let present = Present {
            now: cx.now,
            map,
            addrs: &self.osd_addrs.public.addrs,
            monitor_open: self.monc.is_open(),
            healthy: self.pings.is_healthy(cx.now),
            maps_kept_until: self.keeps_maps_until(map),
        };
        self.boot.handle(&present, event);
        let mut effects = Vec::new();
        self.boot.drain(&mut effects);
        effects.into_iter().for_each(|effect| self.boot_effect(cx, effect));
    }

    fn boot_effect(&mut self, cx: &mut ControlCx<'_>, effect: Effect) {
        let epoch = cx.maps.newest().epoch;
        let message: Message = match effect {
            Effect::Boot { first_up } => self.boot_message(epoch, first_up).into(),
            Effect::Beacon { interval } => self.beacon(epoch, interval).into(),
            Effect::Alive { up_thru } => OsdAlive { version: epoch.into(), want: up_thru }.into(),
            Effect::PgTemp(pg_temp) => {
                OsdPgTemp { version: epoch.into(), map_epoch: epoch, pg_temp, forced: false }.into()
            }
            Effect::MarkMeDown => self.mark_me_down(epoch).into(),
            Effect::CloseLeases => {
                self.pings.leases.close();
                return cx.events.push(ControlEvent::Leases(Arc::new(self.pings.leases.clone())));
            }
            Effect::Rebind => {
                let osd = self.config.id;
                tracing::warn!(osd, epoch, "the map wrongly has us down; going on under a new name");
                return self.rebind(cx);
            }
            Effect::End(reason) => {
                self.log_end(epoch, reason);
                return cx.events.push(ControlEvent::End);
            }
        };
        self.tell_mon(message);
    }

    fn log_end(&self, epoch: Epoch, reason: EndReason) {
        let osd = self.config.id;
        match reason {
            EndReason::Left => (),
            EndReason::MapsForked => (), // logged with what was found
            EndReason::NoGoodbye => {
                tracing::warn!(osd, "the monitor does not say goodbye; others will notice our end");
            }
            EndReason::Removed => {
                tracing::error!(osd, epoch, "the map no longer has this OSD; it stops");
            }
            EndReason::MarkedDownTooOften { count, period } => tracing::error!(
                osd,
                epoch,
                count,
                ?period,
                "marked down too often (osd_max_markdown_count); it stops"
            ),
        }
    }

    /// Goes on as a new instance: what was sent to and by the old one counts no more.
    fn rebind(&mut self, cx: &mut ControlCx<'_>) {
        let nonce = (cx.entropy.u64() as u32).max(1);
        self.osd_addrs = self.osd_addrs.rebound(nonce);
        self.listeners.serve(&self.osd_addrs, cx.messenger);
        std::mem::take(&mut self.peers).into_values().for_each(|link| link.end(cx.messenger));
        self.pings.hang_up(cx.messenger);
        cx.messenger.forget_sessions();
        cx.events.push(ControlEvent::Rebound(Arc::clone(&self.osd_addrs.public)));
        // The monitor takes our address for clients from the session.
        self.monc.stop();
        self.monc.start(&mut Context { now: cx.now, wall: cx.wall, entropy: cx.entropy });
        self.follow_peers(cx, &Arc::clone(cx.maps.newest()));
    }

    /// Asks the monitor to mark us down, so that nobody has to find out, or ends where there is nothing to ask for.
    pub(crate) fn leave(&mut self, cx: &mut ControlCx<'_>) {
        self.boot_event(cx, Event::Leave);
        self.settle(cx);
    }

    fn boot_message(&self, epoch: Epoch, first_up: Epoch) -> OsdBoot {
        let addrs = self.osd_addrs.addresses();
        let superblock = Superblock {
            cluster_fsid: self.config.fsid,
            whoami: self.config.id,
            current_epoch: epoch,
            oldest_map: epoch, // no older one is kept whole
            newest_map: epoch,
            osd_fsid: self.config.uuid,
            ..Superblock::default()
        };
        OsdBoot {
            version: epoch.into(),
            superblock,
            metadata: report::metadata(&self.config, self.versions, self.capacity_bytes, &addrs),
            hb_back_addrs: addrs.hb_back,
            cluster_addrs: addrs.cluster,
            boot_epoch: first_up,
            hb_front_addrs: addrs.hb_front,
            features: features::SUPPORTED,
        }
    }

    /// The sign of life that the monitor gets every few minutes, and what it says of the PGs.
    fn beacon(&self, epoch: Epoch, interval: Duration) -> OsdBeacon {
        let pgs = || self.reports.values().flat_map(|report| &report.pgs);
        OsdBeacon {
            version: epoch.into(),
            pgs: pgs().map(|(pg, _)| *pg).collect(),
            min_last_epoch_clean: min_last_epoch_clean(pgs().map(|(_, stat)| stat), epoch),
            last_purged_snaps_scrub: UTime::ZERO,
            interval_s: u32::try_from(interval.as_secs()).unwrap_or(u32::MAX),
        }
    }

    fn mark_me_down(&self, epoch: Epoch) -> MarkMeDown {
        MarkMeDown {
            version: epoch.into(),
            fsid: self.config.fsid,
            osd: self.config.id,
            addrs: self.osd_addrs.public.addrs.clone(),
            epoch,
            request_ack: true,
            down_and_dead: true,
        }
    }
}
