//! Plots, as SVG elements. Labels are escaped by the caller.

use std::collections::BTreeMap;
use std::fmt::Write;

const COLORS: [&str; 4] = ["#3b6fb6", "#d9822b", "#4a9c5d", "#8a5bb0"];
const LABEL_WIDTH: f64 = 220.0;
const PLOT_WIDTH: f64 = 260.0;
const LINE_HEIGHT: f64 = 17.0;
const COLUMNS_HEIGHT: f64 = 120.0;

/// A value with what it varied between.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) color: usize,
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Shares by power of two of nanoseconds.
pub(super) struct Series {
    pub(super) label: String,
    pub(super) color: usize,
    pub(super) shares: BTreeMap<u32, f64>,
}

fn color(number: usize) -> &'static str {
    COLORS.get(number % COLORS.len()).copied().unwrap_or("#000")
}

fn frame(width: f64, height: f64, content: &str) -> String {
    format!("<svg width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">{content}</svg>")
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _infallible = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn rect(out: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
    let _infallible = write!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"/>",
        width.max(0.0),
        height.max(0.0)
    );
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), stroke: &str) {
    let _infallible = write!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\"/>"
    );
}

/// Horizontal bars from 0.
pub(super) fn bars(bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.high).fold(f64::MIN_POSITIVE, f64::max);
    let mut out = String::new();
    for (nth, bar) in bars.iter().enumerate() {
        let y = nth as f64 * LINE_HEIGHT;
        let width = |value: f64| value / most * PLOT_WIDTH;
        text(&mut out, LABEL_WIDTH - 6.0, y + 12.0, "end", &bar.label);
        rect(&mut out, (LABEL_WIDTH, y + 3.0), (width(bar.value), LINE_HEIGHT - 6.0), color(bar.color));
        let middle = y + LINE_HEIGHT / 2.0;
        let (low, high) = (LABEL_WIDTH + width(bar.low), LABEL_WIDTH + width(bar.high));
        line(&mut out, (low, middle), (high, middle), "#000");
        text(&mut out, high + 6.0, y + 12.0, "start", &crate::table::number(Some(bar.value)));
    }
    frame(LABEL_WIDTH + PLOT_WIDTH + 60.0, bars.len() as f64 * LINE_HEIGHT + 2.0, &out)
}

/// Columns by power of two, the series side by side.
pub(super) fn columns(series: &[Series]) -> String {
    let powers = || series.iter().flat_map(|series| series.shares.keys().copied());
    let (Some(first), Some(last)) = (powers().min(), powers().max()) else { return String::new() };
    let most =
        series.iter().flat_map(|series| series.shares.values().copied()).fold(f64::MIN_POSITIVE, f64::max);
    let slot = 34.0;
    let width = (slot - 6.0) / series.len() as f64;
    let mut out = String::new();
    for (nth, series) in series.iter().enumerate() {
        for (power, share) in &series.shares {
            let x = f64::from(power - first) * slot + 3.0 + nth as f64 * width;
            // A single operation among millions still shows.
            let height = (share / most * COLUMNS_HEIGHT).max(1.0);
            rect(&mut out, (x, 14.0 + COLUMNS_HEIGHT - height), (width, height), color(series.color));
        }
        let x = 3.0 + nth as f64 * 60.0;
        rect(&mut out, (x, 2.0), (8.0, 8.0), color(series.color));
        text(&mut out, x + 11.0, 10.0, "start", &series.label);
    }
    for power in first..=last {
        let middle = f64::from(power - first) * slot + slot / 2.0;
        text(&mut out, middle, COLUMNS_HEIGHT + 27.0, "middle", &time(power));
    }
    let width = (f64::from(last - first + 1) * slot).max(3.0 + series.len() as f64 * 60.0);
    frame(width, COLUMNS_HEIGHT + 32.0, &out)
}

/// How long 2^power nanoseconds are, in a unit that reads well.
fn time(power: u32) -> String {
    let ns = 2_f64.powi(power as i32);
    match ns {
        _ if ns < 1e3 => format!("{ns:.0}ns"),
        _ if ns < 1e6 => format!("{:.0}us", ns / 1e3),
        _ if ns < 1e9 => format!("{:.0}ms", ns / 1e6),
        _ => format!("{:.0}s", ns / 1e9),
    }
}

/// A point and an interval on each line, around 0. Shares: 0.05 is 5 % to the right.
pub(super) fn intervals(lines: &[(String, f64, f64, f64)]) -> String {
    // Half and double fit; what is beyond ends at the edge.
    let reach = lines.iter().flat_map(|(_, _, low, high)| [low.abs(), high.abs()]);
    let reach = reach.filter(|end| end.is_finite()).fold(0.02, f64::max).min(1.0);
    let (label_width, plot_width) = (LABEL_WIDTH * 1.5, PLOT_WIDTH * 2.0);
    let x = |share: f64| label_width + (share.clamp(-reach, reach) / reach + 1.0) / 2.0 * plot_width;
    let height = lines.len() as f64 * LINE_HEIGHT;
    let mut out = String::new();
    line(&mut out, (x(0.0), 0.0), (x(0.0), height), "#999");
    for (nth, (label, effect, low, high)) in lines.iter().enumerate() {
        let middle = (nth as f64 + 0.5) * LINE_HEIGHT;
        text(&mut out, label_width - 6.0, middle + 4.0, "end", &super::escape(label));
        line(&mut out, (x(*low), middle), (x(*high), middle), color(0));
        let _infallible = write!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"3\" fill=\"{}\"/>",
            x(*effect),
            color(0)
        );
    }
    for (share, anchor) in [(-reach, "start"), (0.0, "middle"), (reach, "end")] {
        text(&mut out, x(share), height + 13.0, anchor, &format!("{:+.1} %", share * 100.0));
    }
    frame(label_width + plot_width + 10.0, height + 18.0, &out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_have_a_mark_for_each_value() {
        let bar = |value| Bar { label: "x".to_owned(), color: 9, value, low: value, high: value };
        assert_eq!(bars(&[bar(1.0), bar(0.0)]).matches("<rect").count(), 2);
        let shares = BTreeMap::from([(10, 0.5), (12, 0.5)]);
        let series = Series { label: "a".to_owned(), color: 0, shares };
        // Two columns and the sample in the legend; three powers on the axis.
        let drawn = columns(&[series]);
        assert_eq!((drawn.matches("<rect").count(), drawn.matches("us<").count()), (3, 3));
        assert_eq!(columns(&[]), "");
        let drawn = intervals(&[("c".to_owned(), 0.1, -1.0, f64::INFINITY)]);
        assert_eq!(drawn.matches("<circle").count(), 1);
        assert!(!drawn.contains("inf") && !drawn.contains("NaN"), "{drawn}");
        assert_eq!((time(16).as_str(), time(20).as_str()), ("66us", "1ms"));
    }
}
