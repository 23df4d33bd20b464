//! [`Report`]: what was found, in order of what it costs, what could not be judged, and what was looked at.

use serde_json::{Value, json};
use std::path::PathBuf;

/// What a finding does to clients, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Rank {
    /// Data or service are in danger, or times are several times what they could be.
    Serious,
    /// Clients feel it.
    Costly,
    /// Little, or only under some loads.
    #[default]
    Hint,
}

impl Rank {
    const fn name(self) -> &'static str {
        match self {
            Self::Serious => "serious",
            Self::Costly => "costly",
            Self::Hint => "hint",
        }
    }
}

/// A value in a file of the kernel's that can be set, and set back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fix {
    /// Below the root.
    pub(crate) file: PathBuf,
    pub(crate) value: &'static str,
}

/// Something that was measured and is not as it should be.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Finding {
    /// Name of the check, as docs/doctor.md lists it.
    pub(crate) check: &'static str,
    pub(crate) rank: Rank,
    /// Orders findings of one rank, the largest first: how many times worse than it should be.
    pub(crate) weight: f64,
    /// What it is about: `sda`, `osd.3`, `8 of 8 processors`.
    pub(crate) subject: String,
    /// What was read, with its number.
    pub(crate) measured: String,
    pub(crate) cost: String,
    pub(crate) advice: String,
    /// What `--fix` sets; none where that is not safe or cannot be taken back.
    pub(crate) fixes: Vec<Fix>,
    /// Names that it is about, by which others find it: `osd.3`, `SLOW_OPS`.
    pub(crate) about: Vec<String>,
    /// What is there because of this.
    pub(crate) explains: Vec<Symptom>,
    /// The check whose finding is why this is there.
    pub(crate) explained_by: Option<&'static str>,
}

/// Which findings are there because of another: those of a check that are about all of these names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symptom {
    pub(crate) check: &'static str,
    pub(crate) about: Vec<String>,
}

impl Symptom {
    pub(crate) fn new(check: &'static str, about: &[&str]) -> Self {
        Self { check, about: about.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn is(&self, finding: &Finding) -> bool {
        self.check == finding.check && self.about.iter().all(|name| finding.about.contains(name))
    }
}

impl Finding {
    fn to_json(&self) -> Value {
        json!({
            "check": self.check,
            "rank": self.rank.name(),
            "weight": self.weight,
            "subject": self.subject,
            "measured": self.measured,
            "cost": self.cost,
            "advice": self.advice,
            "fixable": !self.fixes.is_empty(),
            "explained_by": self.explained_by,
        })
    }
}

/// Something that could not be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) check: &'static str,
    pub(crate) why: String,
}

/// What `--fix` did, or could not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fixed {
    pub(crate) file: PathBuf,
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) error: Option<String>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    pub(crate) unknown: Vec<Unknown>,
    /// Names of checks that had what they need.
    pub(crate) judged: Vec<&'static str>,
    /// What is neither good nor bad, but belongs to the picture.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) fixed: Vec<Fixed>,
    /// A cluster was asked for, and does not answer.
    pub(crate) is_cluster_lost: bool,
}

impl Report {
    /// A check had all that it needs.
    pub(crate) fn judged(&mut self, check: &'static str) {
        if !self.judged.contains(&check) {
            self.judged.push(check);
        }
    }

    /// A check lacks what it needs.
    pub(crate) fn unknown(&mut self, check: &'static str, why: impl Into<String>) {
        self.unknown.push(Unknown { check, why: why.into() });
    }

    pub(crate) fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.facts.push((name.into(), value.into()));
    }

    /// Findings of a check that no other finding explains.
    pub(crate) fn unexplained(&self, check: &'static str) -> impl Iterator<Item = &Finding> {
        let is_symptom = |one: &Finding| {
            self.findings.iter().any(|cause| cause.explains.iter().any(|symptom| symptom.is(one)))
        };
        self.findings.iter().filter(move |one| one.check == check && !is_symptom(one))
    }

    /// Says of each symptom what it comes from. What it comes from is as bad as its worst symptom.
    fn explain(&mut self) {
        for index in 0..self.findings.len() {
            let Some(cause) = self.findings.get(index) else { return };
            let (check, mut rank, symptoms) = (cause.check, cause.rank, cause.explains.clone());
            let others = self.findings.iter_mut().enumerate().filter(|(other, _)| *other != index);
            for (_, other) in others.filter(|(_, other)| symptoms.iter().any(|symptom| symptom.is(other))) {
                rank = rank.min(other.rank);
                other.explained_by = Some(check);
            }
            self.findings.get_mut(index).into_iter().for_each(|cause| cause.rank = rank);
        }
    }

    /// Causes before what they explain, and the worst first: who has read of a cause needs no symptom of it above the next one.
    pub(crate) fn sort(&mut self) {
        self.explain();
        let key = |finding: &Finding| (finding.explained_by.is_some(), finding.rank);
        self.findings.sort_by(|a, b| key(a).cmp(&key(b)).then(b.weight.total_cmp(&a.weight)));
    }

    /// Whether clients feel anything of what was found.
    pub(crate) fn is_costly(&self) -> bool {
        self.findings.iter().any(|finding| finding.rank < Rank::Hint)
    }

    pub(crate) fn to_json(&self) -> Value {
        let facts = self.facts.iter().map(|(name, value)| (name.clone(), json!(value)));
        let fixed = self.fixed.iter().map(|fixed| {
            json!({
                "file": fixed.file.display().to_string(),
                "before": fixed.before,
                "after": fixed.after,
                "error": fixed.error,
            })
        });
        json!({
            "findings": self.findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "unknown": self.unknown.iter().map(|one| json!({"check": one.check, "why": one.why})).collect::<Vec<_>>(),
            "judged": self.judged,
            "facts": Value::Object(facts.collect()),
            "fixed": fixed.collect::<Vec<_>>(),
        })
    }

    /// The same for people, line by line.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = Vec::new();
        for (index, finding) in self.findings.iter().enumerate() {
            let Finding { check, rank, subject, measured, cost, advice, explained_by, .. } = finding;
            let because = explained_by.map(|cause| format!(", because of {cause}")).unwrap_or_default();
            lines.push(format!("{}. {} ({}, {check}{because})", index + 1, subject, rank.name()));
            lines.push(format!("   measured: {measured}"));
            lines.push(format!("   costs:    {cost}"));
            lines.push(format!("   do:       {advice}"));
        }
        if self.findings.is_empty() {
            lines.push("Nothing found that costs anything.".to_owned());
        }
        for fixed in &self.fixed {
            lines.push(match &fixed.error {
                None => format!(
                    "fixed: {} was {}, is {} until the next start; to take it back: echo {} > {0}",
                    fixed.file.display(),
                    fixed.before,
                    fixed.after,
                    fixed.before,
                ),
                Some(error) => format!("not fixed: {}: {error}", fixed.file.display()),
            });
        }
        if !self.unknown.is_empty() {
            lines.push("Unknown:".to_owned());
            lines.extend(self.unknown.iter().map(|one| format!("   {}: {}", one.check, one.why)));
        }
        if !self.facts.is_empty() {
            lines.push("Seen:".to_owned());
            lines.extend(self.facts.iter().map(|(name, value)| format!("   {name}: {value}")));
        }
        lines.push(format!("Judged and in order unless named above: {}", self.judged.join(", ")));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(check: &'static str, rank: Rank, weight: f64) -> Finding {
        let text = || "x".to_owned();
        Finding {
            check,
            rank,
            weight,
            subject: text(),
            measured: text(),
            cost: text(),
            advice: text(),
            ..Finding::default()
        }
    }

    #[test]
    fn causes_come_before_what_they_explain_and_are_as_bad() {
        let about = |mut finding: Finding, name: &str| {
            finding.about.push(name.to_owned());
            finding
        };
        let mut report = Report::default();
        report.findings.push(about(finding("symptom", Rank::Serious, 60.0), "osd.2"));
        report.findings.push(about(finding("symptom", Rank::Serious, 5.0), "osd.3"));
        let mut cause = finding("cause", Rank::Costly, 2.0);
        cause.explains.push(Symptom::new("symptom", &["osd.2"]));
        report.findings.push(cause);
        report.sort();
        let order: Vec<_> =
            report.findings.iter().map(|one| (one.check, one.weight, one.explained_by)).collect();
        assert_eq!(order, [("symptom", 5.0, None), ("cause", 2.0, None), ("symptom", 60.0, Some("cause"))]);
        assert!(report.to_text().contains("3. x (serious, symptom, because of cause)"));
    }

    #[test]
    fn the_worst_comes_first() {
        let mut report = Report::default();
        assert!(report.to_text().starts_with("Nothing found") && !report.is_costly());
        report.findings.push(finding("a", Rank::Hint, 100.0));
        assert!(!report.is_costly());
        report.findings.push(finding("b", Rank::Costly, 2.0));
        report.findings.push(finding("c", Rank::Costly, 3.0));
        report.findings.push(finding("d", Rank::Serious, 1.0));
        report.sort();
        let order: Vec<&str> = report.findings.iter().map(|finding| finding.check).collect();
        assert_eq!(order, ["d", "c", "b", "a"]);
        assert!(report.is_costly());
        assert_eq!(report.to_json()["findings"][0]["rank"], "serious");
        assert!(report.to_text().starts_with("1. x (serious, d)\n   measured: x\n"));
    }
}
