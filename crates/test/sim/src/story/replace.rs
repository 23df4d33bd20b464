//! An OSD whose device is replaced: it goes out, ends, is removed when the monitor says that it can be spared, and another one comes
//! under its number.

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
    /// The question that has no answer yet. One at a time: what its client sends again later would remove the OSD that came.
    asked: Option<u64>,
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
        self.leaving = Some(Leaving { osd, purged, asked: None });
        self.order(&format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#));
        if self.below(2) == 0 {
            self.stop_leaving(osd);
        }
        self.at(ASKING, Later::Leave);
    }

    fn stop_leaving(&mut self, osd: OsdId) {
        if self.world.runs(Proc::Osd(osd)) {
            self.world.stop_osd(osd, false);
        }
    }

    /// Asks whether it can be spared, by removing it.
    pub(super) fn leave(&mut self) {
        let Some(Leaving { osd, purged, asked }) = self.leaving else { return };
        self.at(ASKING, Later::Leave);
        if asked.is_some() {
            return;
        }
        if self.below(4) == 0 {
            self.stop_leaving(osd);
        }
        // Somebody may have taken it in again.
        self.order(&format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#));
        let how = if purged { "purge" } else { "destroy" };
        let json = format!(r#"{{"prefix": "osd {how}", "id": {osd}, "yes_i_really_mean_it": true}}"#);
        self.note(|| format!("command {json}"));
        let asked = self.world.order(self.admin, |client| client.command(&json));
        self.leaving = Some(Leaving { osd, purged, asked: Some(asked) });
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
                self.note(|| format!("osd.{} can be removed: {result}", leaving.osd));
                self.leaving = Some(Leaving { asked: None, ..leaving });
                if result == 0 {
                    self.come(leaving);
                } else {
                    self.bring_back(leaving.osd);
                }
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
