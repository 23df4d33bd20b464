//! The report for people: one HTML file with all its plots inside; it loads nothing and runs no script.

mod svg;

use crate::figures::{Metric, median};
use crate::finding::Finding;
use crate::results::{Results, Row};
use crate::table::{number, percent};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use svg::{Bar, Series};

pub(crate) const STYLE: &str = "body{font:14px/1.4 sans-serif;margin:2em auto;max-width:1100px;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}\
    th:first-child,td:first-child{text-align:left}.better{color:#06783a}.worse{color:#b3261e}.unsure{color:#777}\
    figure{display:inline-block;margin:0 16px 16px 0;vertical-align:top}figcaption{font-weight:bold}\
    svg text{font:11px sans-serif}pre{background:#f5f5f5;padding:8px;overflow:auto}";

/// Figures with bars of their own: heading, figure.
const PLOTTED: [(&str, Metric); 6] = [
    ("IOPS", Metric::Iops),
    ("mean latency, us", Metric::MeanUs),
    ("p99 latency, us", Metric::P99Us),
    ("p99.9 latency, us", Metric::P999Us),
    ("servers' processor time, us per I/O", Metric::ServerCpuUs),
    ("client's processor time, us per I/O", Metric::ClientCpuUs),
];

/// Writes the report of `results`; `findings` of a comparison may be empty.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(path: &Path, results: &Results, findings: &[Finding]) -> Result<()> {
    std::fs::write(path, render(results, findings)).with_context(|| path.display().to_string())
}

fn render(results: &Results, findings: &[Finding]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>nacre bench</title><style>{STYLE}</style>\n\
         <h1>nacre bench</h1>\n"
    );
    if !findings.is_empty() {
        out += &verdicts(findings);
    }
    out += &medians(results);
    out += "<h2>Figures by cell</h2>\n<p>Medians over the repetitions; the thin line goes from the lowest to the highest.</p>\n";
    for (heading, metric) in PLOTTED {
        let bars = bars(results, metric);
        if !bars.is_empty() {
            out += &figure(heading, &svg::bars(&bars));
        }
    }
    out += "<h2>Latencies</h2>\n<p>Share of the operations by power of two of microseconds.</p>\n";
    for cell in results.cells() {
        let series = histograms(results, cell);
        out += &figure(&escape(cell), &svg::columns(&series));
    }
    out += &stages(results);
    out += "<h2>What was measured on what</h2>\n";
    for header in &results.headers {
        let text = serde_json::to_string_pretty(header).unwrap_or_default();
        let _infallible = writeln!(out, "<pre>{}</pre>", escape(&text));
    }
    out + "</html>\n"
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{caption}</figcaption>{svg}</figure>\n")
}

fn verdicts(findings: &[Finding]) -> String {
    let mut out =
        "<h2>Verdicts: B compared with A</h2>\n<table><tr><th>A<th>B<th>cell<th>figure<th>A<th>B<th>B to A\
                   <th>from<th>to<th>size<th>visible<th>B is</tr>\n"
            .to_owned();
    for finding in findings {
        let (verdict, found) = (finding.verdict(), &finding.comparison);
        let class = if matches!(verdict, "better" | "worse") { verdict } else { "unsure" };
        let _infallible = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.2}<td>{}<td class=\"{class}\">{verdict}</tr>",
            escape(&finding.sides.0),
            escape(&finding.sides.1),
            escape(&finding.cell),
            finding.metric.name(),
            number(Some(finding.a)),
            number(Some(finding.b)),
            escape(&percent(found.effect)),
            escape(&percent(found.low)),
            escape(&percent(found.high)),
            found.effect_size,
            escape(percent(found.detectable).trim_start_matches('+')),
        );
    }
    let several =
        findings.iter().any(|finding| Some(&finding.sides) != findings.first().map(|first| &first.sides));
    let lines = findings.iter().map(|finding| {
        let found = &finding.comparison;
        // Where there are more than two sides, a line says which it is about.
        let side = if several { format!("{} ", finding.sides.1) } else { String::new() };
        (format!("{side}{} {}", finding.cell, finding.metric.name()), found.effect, found.low, found.high)
    });
    out + "</table>\n" + &figure("B to A, with intervals", &svg::intervals(&lines.collect::<Vec<_>>()))
}

fn medians(results: &Results) -> String {
    let mut out = "<h2>All figures</h2>\n<table><tr><th>cell<th>side".to_owned();
    Metric::ALL.iter().for_each(|metric| {
        out += "<th>";
        out += &metric.name().replace('_', " ");
    });
    out += "</tr>\n";
    for (cell, side, rows) in groups(results) {
        let _infallible = write!(out, "<tr><td>{}<td>{}", escape(cell), escape(side));
        for metric in Metric::ALL {
            out += "<td>";
            out += &number(median(rows.iter().filter_map(|row| row.figures.get(metric))));
        }
        out += "</tr>\n";
    }
    out + "</table>\n"
}

/// Rows by cell and side, in the order of the file.
fn groups(results: &Results) -> Vec<(&str, &str, Vec<&Row>)> {
    let sides = results.sides();
    let cells = results.cells().into_iter();
    let all = cells.flat_map(|cell| sides.iter().map(move |side| (cell, *side, results.of(side, cell))));
    all.filter(|(.., rows)| !rows.is_empty()).collect()
}

fn side_number(results: &Results, side: &str) -> usize {
    results.sides().iter().position(|known| *known == side).unwrap_or(0)
}

fn bars(results: &Results, metric: Metric) -> Vec<Bar> {
    let bar = |(cell, side, rows): (&str, &str, Vec<&Row>)| {
        let values: Vec<f64> = rows.iter().filter_map(|row| row.figures.get(metric)).collect();
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        let (label, color) = (escape(&format!("{cell} {side}")), side_number(results, side));
        Some(Bar { label, color, value: median(values)?, low, high })
    };
    groups(results).into_iter().filter_map(bar).collect()
}

/// One histogram for each side, over all repetitions.
fn histograms(results: &Results, cell: &str) -> Vec<Series> {
    let sides = results.sides().into_iter().zip(0..);
    let series = sides.map(|(side, color)| {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for row in results.of(side, cell) {
            for (power, count) in &row.figures.histogram {
                *counts.entry(*power).or_default() += count;
            }
        }
        let all = counts.values().sum::<u64>().max(1) as f64;
        let shares = counts.into_iter().map(|(power, count)| (power, count as f64 / all)).collect();
        Series { label: escape(side), color, shares }
    });
    series.filter(|series| !series.shares.is_empty()).collect()
}

/// Tables of the stage clocks, beside the latency that the client saw.
fn stages(results: &Results) -> String {
    let mut out = String::new();
    for (cell, side, rows) in groups(results) {
        let mut means: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (stage, mean) in rows.iter().filter_map(|row| row.stages.as_object()).flatten() {
            means.entry(stage).or_default().extend(mean.as_f64());
        }
        if means.is_empty() {
            continue;
        }
        let bars = means.into_iter().filter_map(|(stage, means)| {
            let value = median(means)?;
            let color = side_number(results, side);
            Some(Bar { label: escape(stage), color, value, low: value, high: value })
        });
        let latency = number(median(rows.iter().filter_map(|row| row.figures.get(Metric::MeanUs))));
        let heading = format!("{} {}: {latency} us at the client", escape(cell), escape(side));
        out += &figure(&heading, &svg::bars(&bars.collect::<Vec<_>>()));
    }
    if out.is_empty() {
        return out;
    }
    "<h2>Stages on the OSDs</h2>\n<p>Mean microseconds that an operation spent in each stage at its primary.</p>\n"
        .to_owned()
        + &out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::row;
    use serde_json::json;

    #[test]
    fn a_report_has_all_parts_and_no_markup_of_others() {
        let mut one = row("<i>", "read-4k-qd1", 0, 1000.0);
        one.figures.histogram = BTreeMap::from([(16, 5), (20, 1)]);
        one.stages = json!({"op_r_queue": 12.5});
        let results = Results { headers: vec![json!({"host": {"name": "<b>"}})], rows: vec![one] };
        let text = render(&results, &[]);
        for part in ["<h2>Latencies", "op_r_queue", "&lt;b&gt;", "&lt;i&gt;", "<svg", "IOPS"] {
            assert!(text.contains(part), "{part}");
        }
        for wrong in ["<b>", "<i>", "<script", "http"] {
            assert!(!text.contains(wrong), "{wrong}");
        }
        assert_eq!(text.matches("<figure>").count(), text.matches("</figure>").count());
    }
}
