//! [`Crashes`]: which crashes are known and which of them nobody has looked at. The reports themselves are config keys, where Ceph's
//! manager module `crash` keeps them as well (`src/pybind/mgr/crash/module.py` at v16.2.15).

use crate::config_key::{CRASH_REPORTS, ConfigKeys};
use crate::own_module::{self, KIND_UINT, option};
use nacre_buf::Bytes;
use nacre_msg::ModuleInfo;
use nacre_types::UTime;
use serde_json::Value;
use std::collections::BTreeMap;

/// Reports kept; a daemon that crashes in a loop must not fill the store.
pub(crate) const REPORTS_MAX: usize = 1000;
/// Bytes of what health and lists show of a report: whoever may post one could fill them otherwise.
const SHOWN_BYTES_MAX: usize = 256;
/// Option of managers: seconds for which health speaks of a crash that nobody has archived.
pub(crate) const WARN_RECENT_INTERVAL: &str = "mgr/crash/warn_recent_interval";
/// Option of managers: seconds after which a report is forgotten.
pub(crate) const RETAIN_INTERVAL: &str = "mgr/crash/retain_interval";
/// Defaults of these: two weeks, a year.
pub(crate) const WARN_RECENT_S: u64 = 14 * 86_400;
pub(crate) const RETAIN_S: u64 = 365 * 86_400;

/// The module as our own manager has it.
pub(crate) fn module() -> ModuleInfo {
    let warn = option(
        "warn_recent_interval",
        KIND_UINT,
        &WARN_RECENT_S.to_string(),
        "Seconds for which health speaks of a crash that nobody has archived",
    );
    let retain = option(
        "retain_interval",
        KIND_UINT,
        &RETAIN_S.to_string(),
        "Seconds after which a report of a crash is forgotten",
    );
    own_module::module("crash", [warn, retain])
}

/// What a report says, as far as the monitor needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crash {
    /// When the daemon crashed.
    pub(crate) at: UTime,
    /// The same as the report says it.
    pub(crate) timestamp: String,
    /// The daemon, such as `osd.3`.
    pub(crate) entity: String,
    /// The name of its program, `unknown` where the report does not say.
    pub(crate) process: String,
    /// The name of the machine on which it ran.
    pub(crate) host: String,
    /// An operator has seen it.
    pub(crate) is_archived: bool,
}

/// One line of bounded length.
fn shown(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)];
    cut.chars().filter(|letter| !letter.is_control()).collect()
}

impl Crash {
    /// `None` for what is no report.
    fn of(report: &Value) -> Option<Self> {
        let text = |name: &str| report.get(name).and_then(Value::as_str);
        let timestamp = shown(text("timestamp")?);
        Some(Self {
            at: UTime::parse(&timestamp)?,
            timestamp,
            entity: shown(text("entity_name").unwrap_or("unidentified daemon")),
            process: shown(text("process_name").filter(|name| !name.is_empty()).unwrap_or("unknown")),
            host: shown(text("utsname_hostname").unwrap_or("(unknown)")),
            is_archived: report.get("archived").is_some(),
        })
    }
}

/// All reports, read once: health looks at them each second, and a report may be 64 KiB long.
#[derive(Debug, Default)]
pub(crate) struct Crashes {
    /// [`ConfigKeys::crash_reports_version`] of what is known.
    version: u64,
    /// Of each id the bytes that were read, and what they say, if that is a report.
    known: BTreeMap<String, (Bytes, Option<Crash>)>,
}

impl Crashes {
    pub(crate) fn open(keys: &ConfigKeys) -> Self {
        let mut crashes = Self::default();
        crashes.read(keys);
        crashes
    }

    /// Takes in what has changed since the last time. Cheap when nothing has.
    pub(crate) fn refresh(&mut self, keys: &ConfigKeys) {
        if self.version != keys.crash_reports_version() {
            self.read(keys);
        }
    }

    fn read(&mut self, keys: &ConfigKeys) {
        let mut before = std::mem::take(&mut self.known);
        for (key, report) in keys.iter_prefix(CRASH_REPORTS) {
            let id = key[CRASH_REPORTS.len()..].to_owned();
            let same = before.remove(&id).filter(|(bytes, _)| bytes == report);
            let read = || {
                let parsed = serde_json::from_slice::<Value>(report).ok();
                (report.clone(), parsed.as_ref().and_then(Crash::of))
            };
            self.known.insert(id, same.unwrap_or_else(read));
        }
        self.version = keys.crash_reports_version();
    }

    /// Ids with what is known, in order of ids, which begin with the time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Crash)> {
        self.known.iter().filter_map(|(id, (_, crash))| Some((id.as_str(), crash.as_ref()?)))
    }

    /// Those that happened at `since` or before.
    pub(crate) fn until(&self, since: UTime) -> impl Iterator<Item = (&str, &Crash)> {
        self.iter().filter(move |(_, crash)| crash.at <= since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_report_is_one_line_of_bounded_length() {
        let report = serde_json::json!({
            "timestamp": "2026-01-02T03:04:05.678901Z",
            "entity_name": "osd.1\nosd.2\u{1b}[2J",
            "process_name": "\u{e9}".repeat(4000),
            "utsname_hostname": "",
        });
        let crash = Crash::of(&report).expect("a report");
        assert_eq!((crash.entity.as_str(), crash.process.len()), ("osd.1osd.2[2J", 256));
        assert_eq!(crash.host, "");
    }
}
