//! [`Account`]: where the time of clients' messages went between two looks at the OSDs' counters, part by part, so that parts and what is
//! left add up to the whole.

use super::samples::Samples;
use crate::cluster::session::Answer;
use crate::cluster::watched::busiest_thread_us;
use nacre_types::OsdId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Kinds of messages and stages, as `perf dump` names them in `osd-stages`.
const KINDS: [(&str, &str); 2] = [("r", "reads"), ("w", "writes")];
const STAGES: [&str; 5] = ["dispatched", "executed", "logged", "replicated", "replied"];

/// One stage of reads or writes on one OSD.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) osd: OsdId,
    /// `reads` or `writes`.
    pub(crate) kind: &'static str,
    pub(crate) stage: &'static str,
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

impl Part {
    pub(crate) fn mean_ms(&self) -> f64 {
        self.seconds * 1e3 / self.count.max(1) as f64
    }

    /// What the messages waited for in this stage.
    pub(crate) fn words(&self) -> String {
        let Self { osd, kind, .. } = self;
        match self.stage {
            "dispatched" => {
                format!("{kind} waited for osd.{osd} to take them up (its thread, a lease, a map)")
            }
            "executed" if *kind == "reads" => {
                format!("reads waited on osd.{osd} for their data, or for messages before them")
            }
            "executed" => format!(
                "writes waited on osd.{osd} to be executed (messages before them, data that they need, recovery)"
            ),
            "logged" => format!(
                "writes waited until osd.{osd} had them durably (its device, and its thread that must see it)"
            ),
            "replicated" => format!("writes waited for other OSDs, led by osd.{osd}"),
            _ => format!("{kind} waited on osd.{osd} for their answers to be made"),
        }
    }
}

/// What an OSD did in the window; `None` is what it does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Measured {
    /// The share of the window that its threads were on a processor.
    pub(crate) thread_share: Option<f64>,
    /// Mean time of reads and durable writes at its device; none where there were none.
    pub(crate) device_ms: Option<f64>,
    /// Requests of all kinds at its device at a time, on average.
    pub(crate) depth: Option<f64>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) window_s: f64,
    pub(crate) osds: usize,
    /// Number and seconds of reads and of writes that were answered, by their whole latency.
    pub(crate) whole: [(u64, f64); 2],
    /// The largest first.
    pub(crate) parts: Vec<Part>,
    /// Of each OSD's busiest thread, the share of the window that it was on a processor.
    pub(crate) busy: Vec<(OsdId, f64)>,
    /// Microseconds that all threads of each OSD that tells were on a processor.
    used_us: Vec<u64>,
    /// What each OSD did in the window.
    pub(crate) measured: BTreeMap<OsdId, Measured>,
    pub(crate) samples: Samples,
    /// OSDs that could not be looked at twice, and why.
    pub(crate) unknown: Vec<(OsdId, String)>,
}

/// A running average of `perf dump`: how many, and seconds.
fn clock(dump: &Value, section: &str, name: &str) -> Option<(u64, f64)> {
    let clock = &dump[section][name];
    Some((clock["avgcount"].as_u64()?, clock["sum"].as_f64()?))
}

/// What was added between two dumps; why not, when that cannot be said.
fn grown(before: &Value, after: &Value, section: &str, name: &str) -> Result<(u64, f64), String> {
    let both = clock(before, section, name).zip(clock(after, section, name));
    let ((count_before, s_before), (count, s)) =
        both.ok_or_else(|| format!("it has no {section} {name}: no OSD of Nacre"))?;
    let count = count.checked_sub(count_before).ok_or("it has started anew meanwhile")?;
    Ok((count, (s - s_before).max(0.0)))
}

impl Account {
    /// From dumps of all OSDs before and after.
    pub(crate) fn new(
        before: &BTreeMap<OsdId, Answer>,
        after: &BTreeMap<OsdId, Answer>,
        window_s: f64,
        samples: Samples,
    ) -> Self {
        let mut account = Self {
            window_s,
            osds: 0,
            whole: [(0, 0.0); 2],
            parts: Vec::new(),
            busy: Vec::new(),
            used_us: Vec::new(),
            measured: BTreeMap::new(),
            samples,
            unknown: Vec::new(),
        };
        for (osd, answer) in before {
            let pair = match (answer, after.get(osd)) {
                (Ok(before), Some(Ok(after))) => account.add(*osd, before, after),
                (Err(why), _) | (_, Some(Err(why))) => Err(why.clone()),
                (_, None) => Err("it is not up any more".to_owned()),
            };
            match pair {
                Ok(()) => account.osds += 1,
                Err(why) => account.unknown.push((*osd, why)),
            }
        }
        account.parts.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        account
    }

    /// Takes in one OSD: all of it, or nothing.
    fn add(&mut self, osd: OsdId, before: &Value, after: &Value) -> Result<(), String> {
        let (mut whole, mut parts) = (self.whole, Vec::new());
        for ((letter, kind), whole) in KINDS.into_iter().zip(&mut whole) {
            let (count, seconds) = grown(before, after, "osd", &format!("op_{letter}_latency"))?;
            *whole = (whole.0 + count, whole.1 + seconds);
            for stage in STAGES {
                let (count, seconds) = grown(before, after, "osd-stages", &format!("op_{letter}_{stage}"))?;
                if seconds > 0.0 {
                    parts.push(Part { osd, kind, stage, count, seconds });
                }
            }
        }
        let used_us = |dump: &Value| dump["osd-cpu"]["threads_us"].as_u64();
        // An OSD of an older version does not tell.
        let used_us = used_us(before).zip(used_us(after)).map(|(before, after)| after.saturating_sub(before));
        self.used_us.extend(used_us);
        let thread_share = busiest_thread_us(before, after).map(|us| us / 1e6 / self.window_s);
        self.busy.extend(thread_share.map(|share| (osd, share)));
        let at_device = |kinds: &[&str]| -> Option<(u64, f64)> {
            let of = kinds.iter().map(|kind| grown(before, after, "device", &format!("{kind}_latency")).ok());
            of.collect::<Option<Vec<_>>>()
                .map(|all| all.iter().fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
        };
        let waited = at_device(&["read", "durable_write"]).filter(|(count, _)| *count > 0);
        let device_ms = waited.map(|(count, seconds)| seconds * 1e3 / count as f64);
        let all = at_device(&["read", "durable_write", "cached_write", "flush"]);
        let depth = all.map(|(_, seconds)| seconds / self.window_s);
        self.measured.insert(osd, Measured { thread_share, device_ms, depth });
        self.whole = whole;
        self.parts.append(&mut parts);
        Ok(())
    }

    /// Seconds that clients waited, all messages together.
    pub(crate) fn total_s(&self) -> f64 {
        self.whole.iter().map(|(_, seconds)| seconds).sum()
    }

    /// What the parts do not explain; less than nothing when they explain too much.
    pub(crate) fn unexplained_s(&self) -> f64 {
        self.total_s() - self.parts.iter().map(|part| part.seconds).sum::<f64>()
    }

    /// Mean of the same stage on other OSDs, in milliseconds: their median. None where there are fewer than two.
    pub(crate) fn elsewhere_ms(&self, part: &Part) -> Option<f64> {
        let is_like =
            |other: &&Part| other.osd != part.osd && (other.kind, other.stage) == (part.kind, part.stage);
        let mut others: Vec<f64> = self.parts.iter().filter(is_like).map(Part::mean_ms).collect();
        others.sort_by(f64::total_cmp);
        (others.len() >= 2).then(|| others.get(others.len() / 2).copied()).flatten()
    }

    /// Of what the other OSDs tell, the middle one.
    pub(crate) fn median_of_others(&self, osd: OsdId, of: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        let others = self.measured.iter().filter(|(other, _)| **other != osd);
        let mut values: Vec<f64> = others.filter_map(|(_, measured)| of(measured)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// Microseconds of the OSDs' threads for each message that was answered, what they did for each other included; of those OSDs that tell.
    pub(crate) fn cpu_us_per_message(&self) -> Option<f64> {
        let count = self.whole.iter().map(|(count, _)| count).sum::<u64>();
        let all_tell = self.used_us.len() == self.osds && count > 0;
        all_tell.then(|| self.used_us.iter().sum::<u64>() as f64 / count as f64)
    }

    pub(crate) fn to_json(&self) -> Value {
        let total_s = self.total_s();
        let parts = self.parts.iter().map(|part| {
            json!({
                "osd": part.osd, "kind": part.kind, "stage": part.stage, "count": part.count, "seconds": part.seconds,
                "share": part.seconds / total_s.max(f64::MIN_POSITIVE), "mean_ms": part.mean_ms(),
                "elsewhere_ms": self.elsewhere_ms(part), "what": part.words(),
            })
        });
        let whole = |(count, seconds): (u64, f64)| json!({ "count": count, "seconds": seconds });
        json!({
            "window_s": self.window_s,
            "osds": self.osds,
            "reads": whole(self.whole[0]),
            "writes": whole(self.whole[1]),
            "total_s": total_s,
            "unexplained_s": self.unexplained_s(),
            "parts": parts.collect::<Vec<_>>(),
            "devices": self.measured.iter().map(|(osd, of)| json!({ "osd": osd, "mean_ms": of.device_ms, "at_a_time": of.depth })).collect::<Vec<_>>(),
            "busy": self.busy.iter().map(|(osd, share)| json!({ "osd": osd, "share": share })).collect::<Vec<_>>(),
            "cpu_us_per_message": self.cpu_us_per_message(),
            "samples": self.samples.to_json(),
            "unknown": self.unknown.iter().map(|(osd, why)| json!({ "osd": osd, "why": why })).collect::<Vec<_>>(),
        })
    }
}
