//! Tables for people at a terminal.

use crate::figures::{Metric, median};
use crate::results::Results;

/// Heading, figure, and what divides it.
const COLUMNS: [(&str, Metric, f64); 16] = [
    ("IOPS", Metric::Iops, 1.0),
    ("MB/s", Metric::BytesPerS, 1e6),
    ("mean", Metric::MeanUs, 1.0),
    ("p50", Metric::P50Us, 1.0),
    ("p95", Metric::P95Us, 1.0),
    ("p99", Metric::P99Us, 1.0),
    ("p99.9", Metric::P999Us, 1.0),
    ("max", Metric::MaxUs, 1.0),
    ("flush", Metric::FlushMeanUs, 1.0),
    ("srv us", Metric::ServerCpuUs, 1.0),
    ("srv cs", Metric::ServerSwitches, 1.0),
    ("srv MB", Metric::ServerRssBytes, 1e6),
    ("dev KB", Metric::DeviceBytes, 1e3),
    ("cli us", Metric::ClientCpuUs, 1.0),
    ("cli cs", Metric::ClientSwitches, 1.0),
    ("mach us", Metric::MachineCpuUs, 1.0),
];
const WIDTH: usize = 9;

/// Medians over the repetitions: a line for each cell and side.
pub(crate) fn of(results: &Results) -> String {
    let mut out = String::new();
    let (cells, sides) = (results.cells(), results.sides());
    let cell_width = cells.iter().map(|cell| cell.len()).max().unwrap_or(0).max(4);
    let side_width = sides.iter().map(|side| side.len()).max().unwrap_or(0).max(4);
    out.push_str(&format!("{:cell_width$} {:side_width$}", "cell", "side"));
    COLUMNS.iter().for_each(|(name, ..)| out.push_str(&format!(" {name:>WIDTH$}")));
    out.push('\n');
    for cell in cells {
        for side in &sides {
            let rows = results.of(side, cell);
            if rows.is_empty() {
                continue;
            }
            out.push_str(&format!("{cell:cell_width$} {side:side_width$}"));
            for (_, metric, unit) in COLUMNS {
                let value = median(rows.iter().filter_map(|row| row.figures.get(metric)));
                out.push_str(&format!(" {:>WIDTH$}", number(value.map(|value| value / unit))));
            }
            out.push('\n');
        }
    }
    out.push_str(
        "Medians over the repetitions. Latencies in us; srv, cli: of servers and client per I/O: processor\n",
    );
    out.push_str(
        "time with the kernel's, cs: context switches; srv MB: memory of the largest OSD in the end;\n",
    );
    out.push_str(
        "dev: written to the device per I/O; mach: processor time of all that the machine did per I/O.\n",
    );
    out
}

/// With as many digits as fit and mean something.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// A share in percent, with its sign. Beyond tenfold the figure says no more than that.
pub(crate) fn percent(share: f64) -> String {
    if share > 9.995 { "> +999%".to_owned() } else { format!("{:+.1}%", share * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::row;

    #[test]
    fn a_line_has_the_median_of_each_figure() {
        let rows = [1000.0, 3000.0, 2000.0].iter().zip(0..);
        let rows = rows.map(|(iops, nth)| row("a", "read-4k-qd1", nth, *iops)).collect();
        let text = of(&Results { headers: Vec::new(), rows });
        let line = text.lines().nth(1).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.get(..4), Some(&["read-4k-qd1", "a", "2000", "-"][..]));
        assert_eq!(number(Some(99.96)), "100.0");
        let percents = [0.0512, -0.5, 9.0, f64::INFINITY].map(percent);
        assert_eq!(percents, ["+5.1%", "-50.0%", "+900.0%", "> +999%"]);
    }
}
