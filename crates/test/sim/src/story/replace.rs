//! An OSD whose device is replaced: it goes out, ends, is removed when the monitor says that it can be spared, and another one comes
//! under its number. Or its device is gone at once, for good: then it is marked lost, removed by force, and another one comes.

use super::{Later, Story};
use crate::world::Proc;
use nacre_client::Finished;
use nacre_types::OsdId;
use std::time::Duration;

/// How often the monitor is asked whether the OSD can be spared.
const ASKING: Duration = Duration::from_secs(2);

/// Who is being replaced.
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
            self.stop_leaving(osd);
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
        let purged = self.below(2) == 0;
        self.leaving = Some(Leaving { osd, purged, gone: Some(IsLost::NotYet), asked: None });
        let noticed = self.while_(Duration::from_secs(20));
        self.at(noticed, Later::Leave);
        "device lost"
    }

    fn stop_leaving(&mut self, osd: OsdId) {
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
            self.stop_leaving(osd);
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
        self.stop_leaving(osd);
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
