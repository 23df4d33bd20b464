//! [`Boot`]: an OSD's life as the monitor sees it.
//!
//! ```text
//!            monitor, secrets, a map, placed, healthy, no promise   the map has us up
//!  starting ------------------------------------------> asked ----------------------> booted --+
//!     ^                                                  |  ^                          |  ^  | beacons
//!     |        no answer, or another monitor             +--+     leave: mark me down  |  +--+
//!     +------------------------------------------------------- wrongly marked down ----+
//!                                                                                      v
//!                         removed, marked down too often, the monitor's goodbye ----> end
//! ```
//! Source of the behaviour: Ceph `src/osd/OSD.cc` at v16.2.15 (`start_boot`, `_preboot`, `_send_boot`, `send_beacon`,
//! `_committed_osd_maps`, `queue_want_up_thru`, `queue_want_pg_temp`, `prepare_to_stop`).

use nacre_maps::OsdMap;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_types::{AddrVec, Epoch, OsdId, PgId, Stamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A boot that the monitor does not answer is repeated.
const BOOT_RETRY: Duration = Duration::from_secs(5);
/// Times that this OSD was marked down while it ran, kept for `osd_max_markdown_count`.
const MARKDOWNS_KEPT_MAX: usize = 1000;

/// What the options say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Time between beacons, Ceph's `osd_beacon_report_interval`.
    pub beacon_interval: Duration,
    /// So often an OSD may be marked down in [`Settings::markdown_period`] and go on, Ceph's `osd_max_markdown_count`.
    pub markdown_count_max: usize,
    /// Ceph's `osd_max_markdown_period`.
    pub markdown_period: Duration,
    /// How long an OSD that leaves waits for the monitor's answer, Ceph's `osd_mon_shutdown_timeout`.
    pub leave_timeout: Duration,
}

/// What the driver knows as an event comes.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// The time of the event.
    pub now: Stamp,
    /// The newest map.
    pub map: &'a OsdMap,
    /// Where we serve clients.
    pub addrs: &'a AddrVec,
    /// A session with a monitor is open.
    pub monitor_open: bool,
    /// Enough of our heartbeat peers answer, so that it is not this OSD that is cut off.
    pub healthy: bool,
    /// Until when the PGs must not see `map`: see [`crate::keeps_maps_until`].
    pub maps_kept_until: Stamp,
    /// It has its place in the CRUSH map, or gets it as it boots: see [`crate::Placement`].
    pub placed: bool,
}

/// What happens to the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session with a monitor is open, which may know nothing of what was said in earlier ones.
    MonitorOpened,
    /// The secrets are here by which clients are let in.
    Keyed,
    /// [`Present::map`] is a new one.
    Map,
    /// The heartbeats follow the map: [`Present::healthy`] may be another.
    HeartbeatsFollow,
    /// Time has passed. To be said every second, and at [`Boot::next_deadline`].
    Tick,
    /// We are to end, and others should not have to find out.
    Leave,
    /// The monitor says that it has marked us down as we asked.
    MarkedMeDown,
    /// The monitor's history of maps is another than ours.
    MapsForked,
    /// A PG is to be served, and needs this `up_thru` before.
    WantUpThru(Epoch),
    /// Let these serve the PG for now.
    WantPgTemp(PgId, Vec<OsdId>),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Ask the monitor to mark us up (`MOSDBoot`).
    Boot {
        /// Epoch in which this process first came up; 0 before.
        first_up: Epoch,
    },
    /// Give the monitor a sign of life (`MOSDBeacon`).
    Beacon {
        /// When the next is due.
        interval: Duration,
    },
    /// Ask for an `up_thru` (`MOSDAlive`).
    Alive {
        /// The epoch that is wanted as `up_thru`.
        up_thru: Epoch,
    },
    /// Ask for all of these acting sets (`MOSDPGTemp`).
    PgTemp(BTreeMap<PgId, Vec<OsdId>>),
    /// Give up all read leases: serve nobody until [`Effect::ReopenLeases`].
    CloseLeases,
    /// What others promise from now on counts again.
    ReopenLeases,
    /// Say that we are dead, and that nobody has to wait for our leases (`MOSDMarkMeDead`).
    MarkMeDead,
    /// Ask to be marked down and dead (`MOSDMarkMeDown`).
    MarkMeDown,
    /// Go on as a new instance: new addresses, and new sessions with everybody, the monitor included.
    Rebind,
    /// End the OSD.
    End(EndReason),
}

/// Why an OSD ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// It was to end, and the monitor knows, or need not.
    Left,
    /// It was to end, and the monitor does not say goodbye.
    NoGoodbye,
    /// The map no longer has this OSD.
    Removed,
    /// Marked down too often while it ran.
    MarkedDownTooOften {
        /// So often of late.
        count: usize,
        /// Within the last so much time.
        period: Duration,
    },
    /// See [`Event::MapsForked`].
    MapsForked,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Boot {
    osd: OsdId,
    settings: Settings,
    /// The newest epoch that the store had when this process started.
    started_at: Epoch,
    keyed: bool,
    booted: bool,
    boot_sent: Option<Stamp>,
    /// Epoch in which this process first came up.
    first_up: Epoch,
    /// When we were marked down while we ran, oldest first.
    markdowns: VecDeque<Stamp>,
    /// We have asked to be marked down, and wait for that until then.
    leaving: Option<Stamp>,
    /// When the last beacon was sent: an interval that gets shorter holds at once.
    beaconed_at: Option<Stamp>,
    /// `up_thru` asked for and not granted yet.
    up_thru_wanted: Epoch,
    pg_temp_wanted: BTreeMap<PgId, Vec<OsdId>>,
    effects: Vec<Effect>,
}

impl Boot {
    /// An OSD that has just started.
    #[must_use]
    pub fn new(osd: OsdId, settings: Settings) -> Self {
        Self {
            osd,
            settings,
            started_at: 0,
            keyed: false,
            booted: false,
            boot_sent: None,
            first_up: 0,
            markdowns: VecDeque::new(),
            leaving: None,
            beaconed_at: None,
            up_thru_wanted: 0,
            pg_temp_wanted: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Options have changed.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Takes the newest epoch that the store has as this process starts.
    pub fn set_started_at(&mut self, epoch: Epoch) {
        self.started_at = epoch;
    }

    /// The newest epoch that the store had when this process started.
    #[must_use]
    pub fn started_at(&self) -> Epoch {
        self.started_at
    }

    /// True while the map has us up under our addresses.
    #[must_use]
    pub fn is_booted(&self) -> bool {
        self.booted
    }

    /// When [`Event::Tick`] is due at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        self.leaving
    }

    /// Moves the effects since the last call to the end of `effects`, in the order in which they are to be carried out.
    pub fn drain(&mut self, effects: &mut Vec<Effect>) {
        effects.append(&mut self.effects);
    }

    /// Handles one event.
    pub fn handle(&mut self, present: &Present<'_>, event: Event) {
        match event {
            Event::MonitorOpened => self.monitor_opened(present),
            Event::Keyed => {
                self.keyed = true;
                self.consider_boot(present);
            }
            Event::Map => self.map(present),
            Event::HeartbeatsFollow => self.consider_boot(present),
            Event::Tick => self.tick(present),
            Event::Leave => self.leave(present),
            Event::MarkedMeDown if self.leaving.is_some() => self.end(present, EndReason::Left),
            Event::MarkedMeDown => (),
            Event::MapsForked => self.end(present, EndReason::MapsForked),
            Event::WantUpThru(wanted) => {
                if wanted > self.up_thru_wanted {
                    self.up_thru_wanted = wanted;
                    self.effects.push(Effect::Alive { up_thru: wanted });
                }
            }
            Event::WantPgTemp(pg, acting) => {
                self.pg_temp_wanted.insert(pg, acting);
                self.ask_for_pg_temp();
            }
        }
    }

    fn monitor_opened(&mut self, present: &Present<'_>) {
        self.boot_sent = None;
        self.consider_boot(present);
        if self.up_thru_wanted > 0 {
            self.effects.push(Effect::Alive { up_thru: self.up_thru_wanted });
        }
        self.ask_for_pg_temp();
    }

    fn ask_for_pg_temp(&mut self) {
        if !self.pg_temp_wanted.is_empty() {
            self.effects.push(Effect::PgTemp(self.pg_temp_wanted.clone()));
        }
    }

    fn tick(&mut self, present: &Present<'_>) {
        let now = present.now;
        let interval = self.settings.beacon_interval;
        let is_due = self.beaconed_at.is_none_or(|at| now >= at + interval);
        if self.booted && is_due {
            self.beaconed_at = Some(now);
            self.effects.push(Effect::Beacon { interval });
        }
        if self.leaving.is_some_and(|until| now >= until) {
            self.end(present, EndReason::NoGoodbye);
        }
        self.consider_boot(present);
        if present.monitor_open && !self.booted && self.boot_sent.is_some_and(|at| now >= at + BOOT_RETRY) {
            self.boot(present);
        }
    }

    fn map(&mut self, present: &Present<'_>) {
        let (osd, map) = (self.osd, present.map);
        let info = map.info(osd);
        if info.up_thru >= self.up_thru_wanted {
            self.up_thru_wanted = 0;
        }
        self.pg_temp_wanted
            .retain(|pg, acting| map.pg_temp.get(pg).map_or(&[][..], Vec::as_slice) != acting.as_slice());
        let up = map.is_up(osd) && map.client_addr(osd) == Some(present.addrs);
        if self.booted && !up {
            self.marked_down(present);
        }
        if up && !self.booted && self.first_up > 0 {
            self.effects.push(Effect::ReopenLeases);
        }
        if up && self.first_up == 0 {
            self.first_up = info.up_from;
        }
        self.booted = up;
    }

    /// The map has us down though we run: as we asked, because we are removed, or wrongly.
    fn marked_down(&mut self, present: &Present<'_>) {
        if self.leaving.is_some() {
            return self.end(present, EndReason::Left);
        }
        if !present.map.exists(self.osd) {
            return self.end(present, EndReason::Removed);
        }
        let period = self.settings.markdown_period;
        self.markdowns.push_back(present.now);
        while self.markdowns.len() > MARKDOWNS_KEPT_MAX
            || self.markdowns.front().is_some_and(|at| present.now.since(*at) > period)
        {
            self.markdowns.pop_front();
        }
        let count = self.markdowns.len();
        if count > self.settings.markdown_count_max {
            return self.end(present, EndReason::MarkedDownTooOften { count, period });
        }
        self.boot_sent = None;
        // What was promised to the instance that is down counts no more; so others may take over at once.
        self.effects.push(Effect::CloseLeases);
        if !present.map.is_up(self.osd) {
            self.effects.push(Effect::MarkMeDead);
        }
        self.effects.push(Effect::Rebind);
    }

    /// Asks the monitor to mark us down, so that nobody has to find out; ends when there is nothing to ask for.
    fn leave(&mut self, present: &Present<'_>) {
        if !self.booted || !present.monitor_open {
            return self.end(present, EndReason::Left);
        }
        self.leaving = Some(present.now + self.settings.leave_timeout);
        // Others need not wait for our leases once we are dead: so we serve nobody from now on.
        self.effects.extend([Effect::CloseLeases, Effect::MarkMeDown]);
    }

    fn end(&mut self, present: &Present<'_>, reason: EndReason) {
        // Maps that come before the last turn ends change nothing any more.
        self.leaving.get_or_insert(present.now);
        self.effects.push(Effect::End(reason));
    }

    fn consider_boot(&mut self, present: &Present<'_>) {
        let ready = present.monitor_open
            && self.keyed
            && present.map.epoch > 0
            && self.leaving.is_none()
            && present.healthy
            && present.placed
            && present.maps_kept_until <= present.now;
        if ready && !self.booted && self.boot_sent.is_none() {
            self.boot(present);
        }
    }

    fn boot(&mut self, present: &Present<'_>) {
        self.boot_sent = Some(present.now);
        self.effects.push(Effect::Boot { first_up: self.first_up });
    }
}

/// The oldest epoch that our PGs still need, for the beacon; `epoch`, the newest, when there are none. Maps since then
/// are needed by each OSD that has to learn what happened to these PGs. One that is clean was so in the map under which it said so.
pub fn min_last_epoch_clean<'a>(pgs: impl Iterator<Item = &'a PgStat>, epoch: Epoch) -> Epoch {
    let clean = |stat: &PgStat| match stat.state & pg_state::CLEAN {
        0 => stat.last_epoch_clean,
        _ => stat.reported_epoch,
    };
    pgs.map(clean).min().unwrap_or(epoch)
}

#[cfg(test)]
mod tests;
