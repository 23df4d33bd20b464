//! [`Samples`]: which messages were under way at some moments of the window. What is there half of the time waits half of the time, so shares
//! of samples are shares of waiting.

use crate::cluster::session::Answer;
use nacre_types::OsdId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Clients or images of one window that are told apart; those beyond count as others.
const KEYS_MAX: usize = 10_000;
const SHOWN_MAX: usize = 10;
const OTHERS: &str = "others";

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// Moments at which all OSDs were asked.
    pub(crate) taken: usize,
    /// Messages, all moments together.
    pub(crate) messages: f64,
    /// By the OSD that leads and the one that it waits for: messages that only other OSDs still lack.
    waits_for: BTreeMap<OsdId, BTreeMap<OsdId, f64>>,
    /// By OSD, of those that wait to be executed: what for.
    reasons: BTreeMap<OsdId, BTreeMap<String, f64>>,
    clients: BTreeMap<String, f64>,
    images: BTreeMap<String, f64>,
    /// Those that have been under way for longer than the window, at the last moment: nothing of them is in the counters.
    pub(crate) stuck: usize,
}

fn count(map: &mut BTreeMap<String, f64>, key: &str) {
    let key = if map.len() < KEYS_MAX || map.contains_key(key) { key } else { OTHERS };
    *map.entry(key.to_owned()).or_default() += 1.0;
}

/// The prefix of the objects of the image to which an object belongs, as `rbd info` calls it (`block_name_prefix`).
fn image_of(description: &str) -> Option<String> {
    let object = description.split(' ').nth(2)?;
    let rest = object.strip_prefix("rbd_data.")?;
    let prefix = rest.rsplit_once('.')?.0;
    Some(format!("rbd_data.{prefix}"))
}

/// The OSDs in `waiting for the disks of osd.[1,2]`.
fn waited_for(event: &str) -> Option<Vec<OsdId>> {
    let list = event.strip_prefix("waiting for the disks of osd.[")?.strip_suffix(']')?;
    list.split(',').map(|osd| osd.parse().ok()).collect()
}

impl Samples {
    /// One moment: what each OSD has under way.
    pub(crate) fn add(&mut self, in_flight: &BTreeMap<OsdId, Answer>, window_s: f64) {
        self.taken += 1;
        self.stuck = 0;
        for (osd, answer) in in_flight {
            let Ok(answer) = answer else { continue };
            for op in answer["ops"].as_array().into_iter().flatten() {
                self.message(*osd, op);
                self.stuck += usize::from(op["age"].as_f64().is_some_and(|age_s| age_s > window_s));
            }
        }
    }

    fn message(&mut self, osd: OsdId, op: &Value) {
        self.messages += 1.0;
        count(&mut self.clients, op["type_data"]["client_info"]["client"].as_str().unwrap_or("unknown"));
        if let Some(image) = op["description"].as_str().and_then(image_of) {
            count(&mut self.images, &image);
        }
        let events = op["type_data"]["events"].as_array();
        let Some(event) = events.and_then(|events| events.last()?["event"].as_str()) else { return };
        match waited_for(event) {
            Some(osds) if !osds.contains(&osd) => {
                let part = 1.0 / osds.len().max(1) as f64;
                let of = self.waits_for.entry(osd).or_default();
                osds.into_iter().for_each(|other| *of.entry(other).or_default() += part);
            }
            Some(_) => {}
            None => count(self.reasons.entry(osd).or_default(), event),
        }
    }

    /// Messages under way on average.
    pub(crate) fn in_flight(&self) -> f64 {
        self.messages / self.taken.max(1) as f64
    }

    /// Whom writes that `osd` leads were seen waiting for, most first, each with its share; and of how many.
    pub(crate) fn waits_of(&self, osd: OsdId) -> (Vec<(OsdId, f64)>, f64) {
        let of: Vec<(OsdId, f64)> =
            self.waits_for.get(&osd).into_iter().flatten().map(|(osd, seen)| (*osd, *seen)).collect();
        shares(of)
    }

    /// What messages on `osd` that had not begun were seen waiting for, likewise.
    pub(crate) fn reasons_of(&self, osd: OsdId) -> (Vec<(String, f64)>, f64) {
        shares(self.reasons.get(&osd).into_iter().flatten().map(|(why, seen)| (why.clone(), *seen)).collect())
    }

    /// The clients whose messages waited most, with their shares of all that were seen.
    pub(crate) fn clients(&self) -> Vec<(String, f64)> {
        self.top(&self.clients)
    }

    /// The same of images; what goes to no image is not among them.
    pub(crate) fn images(&self) -> Vec<(String, f64)> {
        self.top(&self.images)
    }

    fn top(&self, map: &BTreeMap<String, f64>) -> Vec<(String, f64)> {
        let mut all: Vec<(String, f64)> =
            map.iter().map(|(key, seen)| (key.clone(), seen / self.messages.max(1.0))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(SHOWN_MAX);
        all
    }

    pub(crate) fn to_json(&self) -> Value {
        let ranked = |top: Vec<(String, f64)>| {
            top.into_iter().map(|(name, share)| json!({ "name": name, "share": share })).collect::<Vec<_>>()
        };
        let waits = self.waits_for.keys().map(|osd| {
            let shares = self
                .waits_of(*osd)
                .0
                .into_iter()
                .map(|(other, share)| json!({ "osd": other, "share": share }));
            (osd.to_string(), json!(shares.collect::<Vec<_>>()))
        });
        json!({
            "taken": self.taken,
            "in_flight": self.in_flight(),
            "clients": ranked(self.clients()),
            "images": ranked(self.images()),
            "waits_for": Value::Object(waits.collect()),
            "stuck": self.stuck,
        })
    }
}

/// Shares of the whole, the largest first, and the whole.
fn shares<K>(mut seen: Vec<(K, f64)>) -> (Vec<(K, f64)>, f64) {
    let all: f64 = seen.iter().map(|(_, seen)| seen).sum();
    seen.iter_mut().for_each(|(_, seen)| *seen /= all.max(f64::MIN_POSITIVE));
    seen.sort_by(|a, b| b.1.total_cmp(&a.1));
    (seen, all)
}
