//! OSDs that are upgraded one after the other. Each program speaks a version of the messages between OSDs that the one before it speaks,
//! and one more: two that follow each other understand each other, and no others do. Whoever is two programs ahead of somebody who
//! is up may not come up: it waits until the others are upgraded, or it is set back.

use super::{Later, Story};
use crate::world::Proc;
use nacre_msg::peer::PeerVersions;
use nacre_types::OsdId;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an upgrade takes.
const RESTART: Duration = Duration::from_secs(5);

/// Which program each OSD runs, or will with its next start; the first one where nothing is said.
#[derive(Debug, Default)]
pub(super) struct Programs {
    of: BTreeMap<OsdId, u32>,
    /// The OSD that is too new for the others.
    ahead: Option<OsdId>,
}

impl Programs {
    fn of(&self, osd: OsdId) -> u32 {
        self.of.get(&osd).copied().unwrap_or(0)
    }
}

/// The versions that a program speaks.
pub(super) fn versions(program: u32) -> PeerVersions {
    let oldest = PeerVersions::OURS.oldest + program;
    PeerVersions { oldest, newest: oldest + 1 }
}

impl Story {
    /// An OSD is started anew with another program: the next one, if all have the present one at least; the one before; or, now and
    /// then, one that others do not understand.
    pub(super) fn upgrade(&mut self, osd: OsdId) -> &'static str {
        if self.programs.ahead.is_some() {
            return "one is ahead";
        }
        let others: Vec<u32> = self.world.osd_ids().into_iter().map(|osd| self.programs.of(osd)).collect();
        let (oldest, newest) = (others.iter().min().copied(), others.iter().max().copied());
        let (Some(oldest), Some(newest)) = (oldest, newest) else { return "no OSDs" };
        let own = self.programs.of(osd);
        if self.below(4) == 0 {
            self.programs.ahead = Some(osd);
            self.run_program(osd, newest.max(oldest + 1) + 1);
            let long = self.while_(Duration::from_secs(30));
            self.at(RESTART + long, Later::SetBack(osd));
            return "too new";
        }
        if own == newest && newest > oldest {
            if self.below(4) == 0 {
                self.run_program(osd, oldest);
                return "downgrade";
            }
            return "upgraded already";
        }
        self.run_program(osd, own + 1);
        "upgrade"
    }

    /// The OSD that was too new gets the program that the oldest of the others has.
    pub(super) fn set_back(&mut self, osd: OsdId) {
        if self.programs.ahead != Some(osd) {
            return;
        }
        self.programs.ahead = None;
        let others = self.world.osd_ids().into_iter().filter(|other| *other != osd);
        let oldest = others.map(|other| self.programs.of(other)).min().unwrap_or(0);
        self.run_program(osd, oldest);
    }

    fn run_program(&mut self, osd: OsdId, program: u32) {
        let versions = versions(program);
        self.note(|| format!("osd.{osd} gets the program that speaks {versions}"));
        self.programs.of.insert(osd, program);
        self.world.set_versions(osd, versions);
        let power = self.below(4) == 0;
        if self.world.runs(Proc::Osd(osd)) {
            self.world.stop_osd(osd, power);
        }
        let back = self.while_(RESTART);
        self.at(back, Later::Start(Proc::Osd(osd)));
    }

    /// No two that do not understand each other are up, by what they said as they came up.
    pub(super) fn check_versions(&self) {
        let Some(mon) = self.world.mon().filter(|_| self.plan.upgrades) else { return };
        let maps = &mon.state().osd;
        let said = |osd: OsdId| maps.metadata(osd)?.get(PeerVersions::METADATA_KEY);
        let up: Vec<(OsdId, PeerVersions)> =
            maps.map().up_osds().filter_map(|osd| Some((osd, PeerVersions::parse(said(osd)?)?))).collect();
        for (one, ours) in &up {
            if let Some((other, theirs)) = up.iter().find(|(_, theirs)| ours.agree(theirs).is_none()) {
                self.fail(&format!("osd.{one} speaks {ours}, osd.{other} {theirs}, and both are up"));
            }
        }
    }
}
