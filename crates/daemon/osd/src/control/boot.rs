//! What [`nacre_osd_core::Boot`] decides, carried out: messages to the monitor, lines of the log, and going on as a new instance.

use super::{ControlCx, OsdControl, UnderCeph};
use crate::config::OsdConfig;
use crate::control_event::ControlEvent;
use crate::osd_addrs::{Addresses, OsdAddrs};
use crate::report::{self, StoreFacts};
use nacre_msg::peer::PeerVersions;
use nacre_msg::stats::PgStat;
use nacre_msg::{
    LogPriority, MarkMeDead, MarkMeDown, Message, OsdAlive, OsdBeacon, OsdBoot, OsdPgTemp, Superblock,
};
use nacre_options::Values;
use nacre_osd_core::{Effect, EndReason, Event as BootEvent, Present, Settings, min_last_epoch_clean};
use nacre_types::{AddrVec, Epoch, OsdId, PgId, UTime, features};
use std::sync::Arc;
use std::time::Duration;

/// What the options say of boot, beacons and leave.
pub(super) fn settings(options: &Values) -> Settings {
    Settings {
        beacon_interval: options.seconds("osd_beacon_report_interval"),
        markdown_count_max: options.count("osd_max_markdown_count"),
        markdown_period: options.seconds("osd_max_markdown_period"),
        leave_timeout: options.seconds("osd_mon_shutdown_timeout"),
    }
}

/// Says why this OSD ends.
pub(super) fn log_end(osd: OsdId, epoch: Epoch, reason: EndReason) {
    match reason {
        EndReason::Left => (),
        EndReason::MapsForked => (), // logged with what was found
        EndReason::NoGoodbye => {
            tracing::warn!(
                osd,
                "the monitor did not mark this OSD down in time; it stops, and other OSDs will report it"
            );
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

/// Asks the monitor to mark us up at `addrs`. `first_up`: the epoch in which this process first came up, 0 before.
pub(super) fn boot(
    config: &OsdConfig,
    (versions, store): (PeerVersions, StoreFacts),
    addrs: &Addresses,
    epoch: Epoch,
    first_up: Epoch,
) -> OsdBoot {
    let superblock = Superblock {
        cluster_fsid: config.fsid,
        whoami: config.id,
        current_epoch: epoch,
        oldest_map: epoch, // no older one is kept whole
        newest_map: epoch,
        osd_fsid: config.uuid,
        ..Superblock::default()
    };
    OsdBoot {
        version: epoch.into(),
        superblock,
        metadata: report::metadata(config, versions, store, addrs),
        hb_back_addrs: addrs.hb_back.clone(),
        cluster_addrs: addrs.cluster.clone(),
        boot_epoch: first_up,
        hb_front_addrs: addrs.hb_front.clone(),
        features: features::SUPPORTED | features::NACRE_OSD,
    }
}

/// The sign of life that the monitor gets every few minutes, and what it says of the PGs that we lead.
pub(super) fn beacon<'a>(
    pgs: impl Iterator<Item = &'a (PgId, PgStat)> + Clone,
    epoch: Epoch,
    interval: Duration,
) -> OsdBeacon {
    OsdBeacon {
        version: epoch.into(),
        pgs: pgs.clone().map(|(pg, _)| *pg).collect(),
        min_last_epoch_clean: min_last_epoch_clean(pgs.map(|(_, stat)| stat), epoch),
        last_purged_snaps_scrub: UTime::ZERO,
        interval_s: u32::try_from(interval.as_secs()).unwrap_or(u32::MAX),
    }
}

/// Asks the monitor to mark us down and dead, and to say so.
pub(super) fn mark_me_down(config: &OsdConfig, addrs: &AddrVec, epoch: Epoch) -> MarkMeDown {
    MarkMeDown {
        version: epoch.into(),
        fsid: config.fsid,
        osd: config.id,
        addrs: addrs.clone(),
        epoch,
        request_ack: true,
        down_and_dead: true,
    }
}

impl OsdControl {
    /// Tells the boot machine, and does what it wants.
    pub(super) fn boot_event(&mut self, cx: &mut ControlCx<'_>, event: BootEvent) {
        let map = cx.maps.newest();
        let present = Present {
            now: cx.net.now,
            map,
            addrs: &self.osd_addrs.public.addrs,
            monitor_open: self.mon.is_open(),
            healthy: self.heartbeats.is_healthy(cx.net.now),
            maps_kept_until: self.keeps_maps_until(map),
            placed: self.ceph.as_ref().is_none_or(UnderCeph::is_placed),
        };
        self.boot.handle(&present, event);
        let mut effects = Vec::new();
        self.boot.drain(&mut effects);
        effects.into_iter().for_each(|effect| self.boot_effect(cx, effect));
    }

    fn boot_effect(&mut self, cx: &mut ControlCx<'_>, effect: Effect) {
        let (osd, epoch) = (self.config.id, cx.maps.newest().epoch);
        let message: Message = match effect {
            Effect::Boot { first_up } => {
                let facts = (self.versions, self.store);
                boot(&self.config, facts, &self.osd_addrs.addresses(), epoch, first_up).into()
            }
            Effect::Beacon { interval } => beacon(self.mgr.pgs(), epoch, interval).into(),
            Effect::Alive { up_thru } => OsdAlive { version: epoch.into(), want: up_thru }.into(),
            Effect::PgTemp(pg_temp) => {
                OsdPgTemp { version: epoch.into(), map_epoch: epoch, pg_temp, forced: false }.into()
            }
            Effect::MarkMeDown => mark_me_down(&self.config, &self.osd_addrs.public.addrs, epoch).into(),
            Effect::MarkMeDead => {
                MarkMeDead { version: epoch.into(), fsid: self.config.fsid, osd, epoch }.into()
            }
            Effect::CloseLeases => {
                self.heartbeats.leases.close();
                return self.share_leases(cx);
            }
            Effect::ReopenLeases => {
                self.heartbeats.leases.reopen();
                return self.share_leases(cx);
            }
            Effect::Rebind => {
                tracing::warn!(
                    osd,
                    epoch,
                    "wrongly marked down by the map; going on as a new instance, with a new nonce"
                );
                let text =
                    format!("osd.{osd} runs, and the map of epoch {epoch} has it down; it comes up again");
                self.say(cx, LogPriority::WARN, text);
                return self.rebind(cx);
            }
            Effect::End(reason) => {
                log_end(osd, epoch, reason);
                return cx.events.push(ControlEvent::End);
            }
        };
        self.mon.send(message);
    }

    fn share_leases(&self, cx: &mut ControlCx<'_>) {
        cx.events.push(ControlEvent::Leases(Arc::new(self.heartbeats.leases.clone())));
    }

    /// Goes on as a new instance: what was sent to and by the old one counts no more.
    fn rebind(&mut self, cx: &mut ControlCx<'_>) {
        let nonce = (cx.net.entropy.u64() as u32).max(1);
        self.osd_addrs = self.osd_addrs.rebound(nonce);
        self.listeners.serve(&self.osd_addrs, cx.net.messenger);
        cx.peers.hang_up(cx.net.messenger);
        self.heartbeats.hang_up(cx.net.messenger);
        cx.net.messenger.forget_sessions();
        let OsdAddrs { public, cluster, .. } = self.osd_addrs.clone();
        cx.events.push(ControlEvent::Rebound { public, cluster });
        // The monitor takes our address for clients from the session.
        self.mon.restart(&mut cx.net);
        let maps = cx.maps;
        self.follow_peers(cx, maps.newest());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::OsdMap;
    use nacre_maps::flags::osd::{EXISTS, UP};
    use nacre_osd_core::{Boot, Effect, Event, Present};
    use nacre_types::{EntityAddr, Stamp};

    /// An OSD that is up and to end, and its monitor does not answer: in which second it does not wait any more.
    fn leaves_after(options: &[(&str, &str)]) -> Option<u64> {
        let addrs = AddrVec(vec![EntityAddr::default()]);
        let mut map = OsdMap { epoch: 10, ..OsdMap::default() };
        map.set_max_osd(1);
        map.osd_state[0] = EXISTS | UP;
        map.client_addrs[0] = addrs.clone();
        let mut boot = Boot::new(0, settings(&options.iter().copied().collect()));
        let mut handle = |second: u64, event| {
            let present = Present {
                now: Stamp::default() + Duration::from_secs(1000 + second),
                map: &map,
                addrs: &addrs,
                monitor_open: true,
                healthy: true,
                maps_kept_until: Stamp::default(),
                placed: true,
            };
            boot.handle(&present, event);
            let mut effects = Vec::new();
            boot.drain(&mut effects);
            effects
        };
        for event in [Event::MonitorOpened, Event::Keyed, Event::Map, Event::Leave] {
            handle(0, event);
        }
        (0..100).find(|second| handle(*second, Event::Tick).contains(&Effect::End(EndReason::NoGoodbye)))
    }

    #[test]
    fn who_leaves_waits_for_the_monitor_as_long_as_the_option_says() {
        assert_eq!(leaves_after(&[]), Some(5));
        assert_eq!(leaves_after(&[("osd_mon_shutdown_timeout", "17")]), Some(17));
    }
}
