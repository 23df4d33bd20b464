//! An OSD whose device is replaced: it goes out, ends, is removed when the monitor says that it can be spared, and another one comes
//! under its number. Or its device is gone at once, for good: then it is marked lost, removed by force, and another one comes.

use super::{Flaw, Kind, Later, Story};
use crate::workload::Kept;
use crate::world::Proc;
use nacre_client::Finished;
use nacre_msg::stats::{PgStat, pg_state};
use nacre_types::{OsdId, PgId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the monitor is asked whether the OSD can be spared.
const ASKING: Duration = Duration::from_secs(2);

/// States of a PG whose copies, or some of them, lack something.
const RECOVERS: u64 = pg_state::RECOVERING
    | pg_state::RECOVERY_WAIT
    | pg_state::RECOVERY_TOOFULL
    | pg_state::RECOVERY_UNFOUND
    | pg_state::BACKFILLING
    | pg_state::BACKFILL_WAIT
    | pg_state::BACKFILL_TOOFULL;

/// The OSD that is being replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    osd: OsdId,
    /// Its place in the hierarchy goes as well, not only its key.
    purged: bool,
    /// Its device is gone: it never starts again, whoever may need what it had. Whether it still is to be marked lost.
    gone: Option<IsLost>,
    /// The question that has no answer yet. One at a time: what its client sends again later would remove the OSD that came.
    asked: Option<u64>,
}

/// Whether the monitor knows that an OSD is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IsLost {
    NotYet,
    Yes,
}

impl Story {
    /// Starts an OSD, unless it is being replaced; what does not open is.
    pub(super) fn start(&mut self, osd: OsdId) {
        if self.is_leaving(osd) {
            return;
        }
        if let Err(error) = self.world.try_start_osd(osd) {
            self.note(|| format!("osd.{osd} does not open: {error}"));
            if self.bad != Some(osd) {
                self.fail(&format!("the store of osd.{osd}, whose device is good, does not open: {error}"));
            }
            self.replace(osd);
        }
    }

    pub(super) fn is_leaving(&self, osd: OsdId) -> bool {
        self.leaving.is_some_and(|leaving| leaving.osd == osd)
    }

    /// An OSD is to be replaced.
    pub(super) fn replace(&mut self, osd: OsdId) {
        if self.leaving.is_some() {
            return;
        }
        self.note(|| format!("osd.{osd} is to be replaced"));
        let purged = self.below(2) == 0;
        self.leaving = Some(Leaving { osd, purged, gone: None, asked: None });
        self.order(&format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#));
        if self.below(2) == 0 {
            self.stop(osd);
        }
        self.at(ASKING, Later::Leave);
    }

    /// The device of an OSD is gone, with all that it held. Some time later an operator says so.
    pub(super) fn lose(&mut self, osd: OsdId) -> &'static str {
        if self.leaving.is_some() {
            return "another one is leaving";
        }
        self.note(|| format!("osd.{osd} is gone for good"));
        if self.world.runs(Proc::Osd(osd)) {
            self.world.stop_osd(osd, true);
        }
        if self.loses() {
            self.note_kept();
            self.work.lose();
            self.lost_in = self.world.mon().map_or(self.lost_in, |mon| mon.state().osd.map().epoch);
        }
        let purged = self.below(2) == 0;
        self.leaving = Some(Leaving { osd, purged, gone: Some(IsLost::NotYet), asked: None });
        let noticed = self.while_(Duration::from_secs(20));
        self.at(noticed, Later::Leave);
        "device lost"
    }

    /// What only the bad device had is lost with it, by right.
    pub(super) fn loses(&self) -> bool {
        self.plan.flaw == Some(Flaw::Dies) && self.plan.kind == Kind::OneServes
    }

    /// Writes down what is lost by no death of the bad device. A PG that has nothing to recover has all writes that were answered
    /// before on all members of its acting set; as soon as one of these is another OSD, there always is another one that has them: they
    /// leave a copy only when as many as the pool wants, which are two at least, have all of it.
    pub(super) fn note_kept(&mut self) {
        let (Some(bad), Some(mon), true) = (self.bad, self.world.mon(), self.loses()) else { return };
        let map = mon.state().osd.map();
        let pg_num = map.pool(super::POOL).map_or(0, |pool| pool.pg_num);
        if pg_num != self.divided.0 {
            self.divided = (pg_num, map.epoch);
        }
        let since = self.divided.1;
        let is_kept = |stat: &PgStat| {
            let whole = stat.state & pg_state::ACTIVE != 0 && stat.state & RECOVERS == 0;
            whole && stat.reported_epoch > since && stat.acting.iter().any(|osd| *osd >= 0 && *osd != bad)
        };
        let pgs = mon.state().stats.pgs.pgs(map).filter(|(_, stat)| is_kept(stat));
        let kept: BTreeMap<PgId, Kept> =
            pgs.map(|(pg, stat)| (pg, (stat.version, stat.last_fresh))).collect();
        self.work.note_kept(map, &kept);
    }

    /// The OSD with the bad device serves alone for a while, and then is gone.
    pub(super) fn lose_alone(&mut self, osd: OsdId) -> &'static str {
        if self.leaving.is_some() {
            return "another one is leaving";
        }
        self.note(|| format!("osd.{osd} is left alone"));
        let alone = Duration::from_millis(1000 + self.below(6000));
        for other in self.world.osd_ids().into_iter().filter(|other| *other != osd) {
            self.world.stop_osd(other, false);
            let back = alone + self.while_(Duration::from_secs(10));
            self.at(back, Later::Start(Proc::Osd(other)));
        }
        self.at(alone, Later::Lose(osd));
        "device lost alone"
    }

    /// The OSD with the bad device serves with one other, which is away as it is lost: whoever comes back meanwhile may not go on without
    /// that one.
    pub(super) fn lose_beside(&mut self, osd: OsdId) -> &'static str {
        if self.leaving.is_some() {
            return "another one is leaving";
        }
        let mut others = self.world.osd_ids();
        others.retain(|other| *other != osd);
        let at = self.below(others.len() as u64);
        let twin = others.remove(usize::try_from(at).unwrap_or(0));
        self.note(|| format!("osd.{osd} is left alone with osd.{twin}"));
        let beside = Duration::from_millis(3000 + self.below(6000));
        for other in others {
            self.world.stop_osd(other, false);
            let back = beside + self.while_(Duration::from_secs(2));
            self.at(back, Later::Start(Proc::Osd(other)));
        }
        self.at(beside, Later::Stop(twin));
        self.at(beside, Later::Lose(osd));
        let back = beside + Duration::from_secs(10) + self.while_(Duration::from_secs(20));
        self.at(back, Later::Start(Proc::Osd(twin)));
        "device lost beside another"
    }

    /// There are PGs of which nobody has anything: all copies were lost, and no OSD has reported them since.
    pub(super) fn has_lost_pgs(&self) -> bool {
        let (Some(mon), true) = (self.world.mon(), self.loses()) else { return false };
        let map = mon.state().osd.map();
        let stats = mon.state().stats.pgs.pgs(map);
        let reported = stats.filter(|(_, stat)| stat.reported_epoch > self.lost_in).count();
        map.pool(super::POOL).is_some_and(|pool| reported < pool.pg_num as usize)
    }

    pub(super) fn stop(&mut self, osd: OsdId) {
        if self.world.runs(Proc::Osd(osd)) {
            self.world.stop_osd(osd, false);
        }
    }

    /// Asks whether it can be spared, by removing it.
    pub(super) fn leave(&mut self) {
        let Some(Leaving { osd, purged, gone, asked }) = self.leaving else { return };
        self.at(ASKING, Later::Leave);
        if asked.is_some() {
            return;
        }
        if gone == Some(IsLost::NotYet) {
            self.order(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"], "definitely_dead": true}}"#));
            return self
                .ask(&format!(r#"{{"prefix": "osd lost", "id": {osd}, "yes_i_really_mean_it": true}}"#));
        }
        if self.below(4) == 0 {
            self.stop(osd);
        }
        // Somebody may have taken it in again.
        self.order(&format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#));
        let how = if purged { "purge" } else { "destroy" };
        let force = gone.is_some();
        self.ask(&format!(
            r#"{{"prefix": "osd {how}", "id": {osd}, "force": {force}, "yes_i_really_mean_it": true}}"#
        ));
    }

    /// Gives the command that the OSD's leaving waits for.
    fn ask(&mut self, json: &str) {
        self.note(|| format!("command {json}"));
        let asked = self.world.order(self.admin, |client| client.command(json));
        if let Some(leaving) = &mut self.leaving {
            leaving.asked = Some(asked);
        }
    }

    /// Commands were answered. If an OSD is removed, another one comes.
    pub(super) fn hear(&mut self) {
        for finished in self.world.take_finished(self.admin) {
            self.hear_of_fencing(&finished);
            let Finished::Command { tid, result, ref status, .. } = finished else { continue };
            if result != 0 || self.verbose {
                self.note(|| format!("command {tid} is answered {result}: {status}"));
            }
            let asked = self.leaving.filter(|leaving| leaving.asked == Some(tid));
            if let Some(leaving) = asked {
                self.leaving = Some(Leaving { asked: None, ..leaving });
                self.heard_of_leaving(leaving, result);
            }
        }
    }

    fn heard_of_leaving(&mut self, leaving: Leaving, result: i32) {
        match (leaving.gone, result) {
            (Some(IsLost::NotYet), 0) => {
                self.note(|| format!("osd.{} is lost", leaving.osd));
                self.leaving = Some(Leaving { gone: Some(IsLost::Yes), asked: None, ..leaving });
            }
            (Some(_), result) if result != 0 => {} // it is asked again
            (_, 0) => self.come(leaving),
            _ => {
                self.note(|| format!("osd.{} cannot be removed: {result}", leaving.osd));
                self.bring_back(leaving.osd);
            }
        }
    }

    /// It cannot be spared yet: somebody may need what it has, if it still opens.
    fn bring_back(&mut self, osd: OsdId) {
        if !self.world.runs(Proc::Osd(osd))
            && let Err(error) = self.world.try_start_osd(osd)
        {
            self.note(|| format!("osd.{osd}, which cannot be spared, does not open: {error}"));
        }
    }

    fn come(&mut self, Leaving { osd, .. }: Leaving) {
        self.leaving = None;
        self.stop(osd);
        let (uuid, key) = self.world.replace_device(osd);
        self.copy = None;
        self.note(|| format!("osd.{osd} comes anew"));
        let secret = format!(r#"{{"cephx_secret": "{}"}}"#, key.to_text()).into_bytes();
        let json = format!(r#"{{"prefix": "osd new", "uuid": "{uuid}", "id": "{osd}"}}"#);
        self.world.order(self.admin, |client| client.command_with(&json, secret.into()));
        self.order(&format!(
            r#"{{"prefix": "osd crush create-or-move", "id": {osd}, "weight": 1.0, "args": ["host=host{osd}", "root=default"]}}"#
        ));
        self.order(&format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#));
        self.at(Duration::from_secs(2), Later::Start(Proc::Osd(osd)));
    }
}
