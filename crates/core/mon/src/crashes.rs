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

impl Crash {
    /// `None` for what is no report.
    fn of(report: &Value) -> Option<Self> {
        let text = |name: &str| report.get(name).and_then(Value::as_str);
        let timestamp = text("timestamp")?.to_owned();
        Some(Self {
            at: UTime::parse(&timestamp)?,
            timestamp,
            entity: text("entity_name").unwrap_or("unidentified daemon").to_owned(),
            process: text("process_name").filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned(),
            host: text("utsname_hostname").unwrap_or("(unknown)").to_owned(),
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
