//! The report of a history for people: a plot for each series, in one HTML file that loads nothing and runs no script.

use super::{Change, Series, show, when};
use crate::html::{STYLE, escape};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 140.0;
const MARGIN: f64 = 60.0;

pub(super) fn report(all: &[(Series, Vec<Change>)]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>nacre bench history</title><style>{STYLE}</style>\n\
         <h1>nacre bench history</h1>\n<p>A dot for each run, a line for the median between changes. Runs are one beside the \
         other, however long apart.</p>\n"
    );
    for (series, changes) in all {
        let heading = escape(&format!("{} {}", series.cell, series.metric.name()));
        let (svg, text) = (plot(series, changes), escape(&show(series, changes)));
        let _infallible = writeln!(out, "<h2>{heading}</h2>\n{svg}\n<pre>{text}</pre>");
    }
    out + "</html>\n"
}

fn plot(series: &Series, changes: &[Change]) -> String {
    let values = || series.points.iter().map(|point| point.value);
    let most = values().fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let slot = WIDTH / series.points.len().max(1) as f64;
    let (x, y) = (|at: f64| MARGIN + at * slot, |value: f64| 10.0 + (1.0 - value / most) * HEIGHT);
    let mut out =
        format!("<svg width=\"{:.0}\" height=\"{:.0}\" role=\"img\">", WIDTH + MARGIN + 10.0, HEIGHT + 30.0);
    for value in [0.0, most / 2.0, most] {
        let (at, text) = (y(value), crate::table::number(Some(value)));
        let _infallible = write!(
            out,
            "<line x1=\"{MARGIN}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            MARGIN + WIDTH,
            MARGIN - 6.0,
            at + 4.0,
        );
    }
    for (nth, point) in series.points.iter().enumerate() {
        let title = escape(&format!("{}: {} {}", when(point), point.value, point.program));
        let _infallible = write!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#3b6fb6\"><title>{title}</title></circle>",
            x(nth as f64 + 0.5),
            y(point.value),
        );
    }
    for (nth, change) in changes.iter().enumerate() {
        let from = nth.checked_sub(1).and_then(|nth| changes.get(nth)).map_or(0, |before| before.at);
        let to = changes.get(nth + 1).map_or(series.points.len(), |after| after.at);
        let color = if change.verdict(series.metric) == "worse" { "#b3261e" } else { "#06783a" };
        let at = x(change.at as f64);
        let _infallible = write!(
            out,
            "<line x1=\"{at:.1}\" y1=\"5\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{color}\">{}</text>",
            HEIGHT + 10.0,
            at,
            HEIGHT + 25.0,
            crate::table::percent(change.share()),
        );
        for (from, to, value) in [(from, change.at, change.before), (change.at, to, change.after)] {
            let at = y(value);
            let (x1, x2) = (x(from as f64), x(to as f64));
            let _infallible = write!(
                out,
                "<line x1=\"{x1:.1}\" y1=\"{at:.1}\" x2=\"{x2:.1}\" y2=\"{at:.1}\" stroke=\"#777\"/>"
            );
        }
    }
    out + "</svg>"
}
