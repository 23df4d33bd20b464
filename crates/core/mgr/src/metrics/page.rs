//! [`Page`]: a page of metrics in Prometheus's text format.
//!
//! Format: "Text-based format" version 0.0.4 of Prometheus's exposition formats.

use std::fmt::{Display, Write};

/// What a family's values mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows, or begins anew.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Buckets with a sum and a count.
    Histogram,
    /// Ceph's word for what describes something, or says yes or no.
    Untyped,
}

/// Labels of one sample: names and values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The page while it is written.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes) }
    }

    /// Begins a family; its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Untyped => "untyped",
        };
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, help, false);
        // Writing to memory does not fail.
        let _written = write!(self.text, "\n# TYPE {name} {kind}\n");
    }

    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.text.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, text, true);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _written = writeln!(self.text, " {value}");
    }

    /// A family with one sample that has no labels.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Backslashes and line ends are escaped, and quotes in labels.
fn escape(out: &mut String, text: &str, is_label: bool) {
    for char in text.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_label => out.push_str("\\\""),
            char => out.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_name_things_does_not_break_the_page() {
        let mut page = Page::default();
        page.family("ceph_x", Kind::Gauge, "two\nlines \\");
        page.sample("ceph_x", &[("name", "a \"b\"\\\nc"), ("id", "1")], 0.5);
        page.single("ceph_y", Kind::Untyped, "", u64::MAX);
        assert_eq!(
            page.into_text(),
            "# HELP ceph_x two\\nlines \\\\\n# TYPE ceph_x gauge\nceph_x{name=\"a \\\"b\\\"\\\\\\nc\",id=\"1\"} 0.5\n\
             # HELP ceph_y \n# TYPE ceph_y untyped\nceph_y 18446744073709551615\n"
        );
    }
}
