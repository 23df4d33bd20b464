//! The facts as text, for `--once`.

use crate::facts::Facts;
use crate::tables::{self, Line, Table};
use std::fmt::Write;

/// All of them.
pub(crate) fn text(facts: &Facts) -> String {
    let mut out = String::new();
    let lines = |out: &mut String, lines: Vec<Line>| {
        for (_, line) in lines {
            let _infallible = writeln!(out, "{line}");
        }
        out.push('\n');
    };
    lines(&mut out, tables::health(facts));
    lines(&mut out, tables::figures(facts));
    let parts = [
        ("OSDs", tables::osds(facts)),
        ("Durable writes of devices, per cent by time", tables::devices(facts)),
        ("Pools", tables::pools(facts)),
        ("Images", tables::images(facts)),
        ("Clients, by processor time of OSDs", tables::clients(facts)),
        ("Slow requests", tables::requests(facts)),
    ];
    for (title, table) in parts {
        let _infallible = write!(out, "{title}\n{}\n", aligned(&table));
    }
    out
}

fn aligned(table: &Table) -> String {
    if table.rows.is_empty() {
        return format!("  {}\n", table.none);
    }
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>());
    let head: Vec<&str> = table.head.iter().map(String::as_str).collect();
    let all: Vec<Vec<&str>> = [head].into_iter().chain(rows).collect();
    let width = |column: usize| {
        all.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let mut out = String::new();
    for row in &all {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _infallible = writeln!(out, "  {}", line.trim_end());
    }
    out
}
