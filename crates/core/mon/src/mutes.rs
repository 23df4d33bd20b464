//! [`Check`]: one thing that is wrong; and [`Health`]: which checks operators have muted, and which of them the cluster log knows.

use crate::batch::{Batch, Snapshot};
use crate::health_history::{HealthHistory, SeenCheck};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_msg::LogPriority;
use nacre_types::UTime;
use std::borrow::Cow;
use std::collections::BTreeMap;

const PREFIX: &str = "health-mute";

/// Lines of detail per check.
pub const DETAILS_COUNT_MAX: usize = 1000;
/// Mutes that are kept at most.
pub const MUTES_COUNT_MAX: usize = 1000;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// Look into it.
    Warn,
    /// Data or service is at risk now.
    Error,
}

impl Severity {
    /// `HEALTH_OK` and so on.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "HEALTH_OK",
            Self::Warn => "HEALTH_WARN",
            Self::Error => "HEALTH_ERR",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Such as `OSD_DOWN`.
    pub code: Cow<'static, str>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one line.
    pub summary: String,
    /// One line per culprit.
    pub detail: Vec<String>,
    /// How many things are affected; a mute ends when it grows.
    pub count: i64,
    /// An operator has muted it.
    pub muted: bool,
}

impl Check {
    pub(crate) fn new(
        code: impl Into<Cow<'static, str>>,
        severity: Severity,
        summary: impl Into<String>,
        detail: Vec<String>,
    ) -> Self {
        let count = i64::try_from(detail.len()).unwrap_or(i64::MAX);
        let mut detail = detail;
        detail.truncate(DETAILS_COUNT_MAX);
        Self { code: code.into(), severity, summary: summary.into(), detail, count, muted: false }
    }

    pub(crate) fn counting(mut self, count: impl TryInto<i64>) -> Self {
        self.count = count.try_into().unwrap_or(i64::MAX);
        self
    }
}

/// A check that an operator does not want to hear about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mute {
    /// When it ends; `None` for never.
    pub until: Option<UTime>,
    /// Survives the check's going away and its growing.
    pub sticky: bool,
    /// The check's line when it was muted.
    pub summary: String,
    /// The check's count when it was muted.
    pub count: i64,
}

impl Encode for Mute {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.until);
            w.bool(self.sticky);
            w.str(&self.summary);
            w.i64(self.count);
        });
    }
}

impl Decode for Mute {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("health mute", 1, |_, r| {
            Ok(Self { until: r.get()?, sticky: r.bool()?, summary: r.text()?, count: r.i64()? })
        })
    }
}

/// Mutes, and the checks as the cluster log knows them.
#[derive(Debug, Default)]
pub struct Health {
    mutes: BTreeMap<String, Mute>,
    logged: Known,
    changes: Batch,
    history: HealthHistory,
}

impl Health {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let pairs = snapshot.scan(PREFIX).into_iter();
        let mutes = pairs.map(|(code, value)| Ok((code, Mute::from_bytes(value)?)));
        let history = HealthHistory::open(snapshot);
        Ok(Self { mutes: mutes.collect::<Result<_, DecodeError>>()?, history, ..Self::default() })
    }

    /// Checks that were ever on.
    #[must_use]
    pub fn history(&self) -> &BTreeMap<String, SeenCheck> {
        self.history.known()
    }

    /// Forgets which checks were ever on; those that are come back at once.
    pub fn clear_history(&mut self) {
        self.history.clear();
    }

    /// Mutes by check.
    #[must_use]
    pub fn mutes(&self) -> &BTreeMap<String, Mute> {
        &self.mutes
    }

    /// Mutes a check; false when there are too many mutes.
    pub fn mute(&mut self, code: &str, mute: Mute) -> bool {
        let has_room = self.mutes.len() < MUTES_COUNT_MAX || self.mutes.contains_key(code);
        if has_room {
            self.changes.put(PREFIX, code, mute.to_bytes());
            self.mutes.insert(code.to_owned(), mute);
        }
        has_room
    }

    /// Lets a check be heard again; false when it was not muted.
    pub fn unmute(&mut self, code: &str) -> bool {
        let was_muted = self.mutes.remove(code).is_some();
        if was_muted {
            self.changes.delete(PREFIX, code);
        }
        was_muted
    }

    pub(crate) fn expire_mutes(&mut self, wall: UTime) {
        let over = |mute: &Mute| mute.until.is_some_and(|until| until <= wall);
        let expired: Vec<String> =
            self.mutes.iter().filter(|(_, mute)| over(mute)).map(|(code, _)| code.clone()).collect();
        for code in expired {
            self.unmute(&code);
        }
    }

    pub(crate) fn is_muted(&self, check: &Check) -> bool {
        self.mutes.get(&*check.code).is_some_and(|mute| mute.sticky || check.count <= mute.count)
    }

    /// Ends the mutes that are not sticky and whose check went away or grew, and yields the lines that the
    /// cluster log wants since the last call.
    pub(crate) fn news(&mut self, checks: Vec<Check>, wall: UTime) -> Vec<(LogPriority, String)> {
        let on = checks.iter().map(|check| (&*check.code, check.severity.as_str()));
        self.history.look(&on.collect(), wall);
        let counts: BTreeMap<&str, i64> = checks.iter().map(|check| (&*check.code, check.count)).collect();
        let stale = |(code, mute): (&String, &Mute)| {
            let count = counts.get(code.as_str()).copied();
            (!mute.sticky && count.is_none_or(|count| count > mute.count)).then(|| code.clone())
        };
        let stale: Vec<String> = self.mutes.iter().filter_map(stale).collect();
        for code in stale {
            self.unmute(&code);
        }
        let now: Known = checks
            .into_iter()
            .filter(|check| !check.muted)
            .map(|check| (check.code, (check.severity, check.summary)))
            .collect();
        let lines = news(&self.logged, &now);
        self.logged = now;
        lines
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty() || self.history.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
        self.history.flush(batch);
    }
}

type Known = BTreeMap<Cow<'static, str>, (Severity, String)>;

fn news(before: &Known, now: &Known) -> Vec<(LogPriority, String)> {
    let mut lines = Vec::new();
    for (code, (severity, summary)) in now {
        let priority = if *severity == Severity::Error { LogPriority::ERROR } else { LogPriority::WARN };
        match before.get(code) {
            None => lines.push((priority, format!("Health check failed: {summary} ({code})"))),
            Some((_, old)) if old != summary => {
                lines.push((priority, format!("Health check update: {summary} ({code})")));
            }
            Some(_) => (),
        }
    }
    for (code, (_, summary)) in before.iter().filter(|(code, _)| !now.contains_key(*code)) {
        lines.push((LogPriority::INFO, format!("Health check cleared: {code} (was: {summary})")));
    }
    if now.is_empty() && !before.is_empty() {
        lines.push((LogPriority::INFO, "Cluster is now healthy".to_owned()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(summary: &str) -> Check {
        Check::new("OSD_DOWN", Severity::Warn, summary, vec!["osd.1 is down".to_owned()])
    }

    #[test]
    fn the_log_hears_of_changes_only() {
        let mut health = Health::default();
        let texts =
            |lines: Vec<(LogPriority, String)>| lines.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(
            texts(health.news(vec![check("1 osds down")], UTime::ZERO)),
            ["Health check failed: 1 osds down (OSD_DOWN)"]
        );
        assert!(health.news(vec![check("1 osds down")], UTime::ZERO).is_empty());
        assert_eq!(
            texts(health.news(vec![check("2 osds down")], UTime::ZERO)),
            ["Health check update: 2 osds down (OSD_DOWN)"]
        );
        assert_eq!(texts(health.news(Vec::new(), UTime::ZERO)).len(), 2);
    }

    #[test]
    fn a_mute_ends_when_the_check_grows_or_goes_unless_it_is_sticky() {
        let mute = |sticky| Mute { until: None, sticky, summary: String::new(), count: 1 };
        let mut health = Health::default();
        assert!(health.mute("OSD_DOWN", mute(false)));
        assert!(health.is_muted(&check("")));
        assert!(!health.is_muted(&check("").counting(2)));
        health.news(vec![check("").counting(2)], UTime::ZERO);
        assert!(health.mutes().is_empty());
        health.mute("OSD_DOWN", mute(true));
        health.news(Vec::new(), UTime::ZERO);
        assert_eq!(health.mutes().len(), 1);
        health.mute("OSD_DOWN", Mute { until: Some(UTime { sec: 5, nsec: 0 }), ..mute(true) });
        health.expire_mutes(UTime { sec: 5, nsec: 0 });
        assert!(health.mutes().is_empty());
    }
}
