//! The facts as lines and tables, whoever shows them.

use crate::facts::{Facts, all, number, share, text};
use nacre_format::{age, bytes, si};
use serde_json::Value;
use std::time::Duration;

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mood {
    #[default]
    Plain,
    Good,
    Warning,
    Error,
    /// Less important than others.
    Soft,
    Heading,
}

/// A line of text.
pub(crate) type Line = (Mood, String);

/// A cell of a table: what is shown, and what it is sorted by where that is a number.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) order: Option<f64>,
    pub(crate) mood: Mood,
    /// Of a heat map: how much of the row it is.
    pub(crate) heat: Option<f64>,
}

/// A table. Its first columns are texts, the others numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// What is said instead of a table without rows.
    pub(crate) none: &'static str,
}

impl Table {
    /// Sorts by a column: numbers the largest first, texts by the alphabet; the other way when `reversed`.
    pub(crate) fn sort(&mut self, column: usize, reversed: bool) {
        self.rows.sort_by(|a, b| {
            let (Some(a), Some(b)) = (a.get(column), b.get(column)) else { return std::cmp::Ordering::Equal };
            let order = match (a.order, b.order) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => a.text.cmp(&b.text),
            };
            if reversed { order.reverse() } else { order }
        });
    }
}

fn word(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), ..Cell::default() }
}

#[expect(clippy::cast_precision_loss, reason = "an order")]
fn figure(value: u64, shown: impl Fn(u64) -> String) -> Cell {
    Cell { text: shown(value), order: Some(value as f64), ..Cell::default() }
}

fn known(value: Option<u64>, shown: impl Fn(u64) -> String) -> Cell {
    value.map_or_else(|| word("-"), |value| figure(value, shown))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn time(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// What clients do; a monitor that has just begun does not know it yet.
fn work(io: &Value, bytes: &str, ops: &str) -> String {
    match (io[bytes].as_u64(), io[ops].as_u64()) {
        (Some(bytes), Some(ops)) => format!("{}, {} op/s", per_second(bytes), si(ops)),
        _ => "not known yet".to_owned(),
    }
}

fn per_second(value: u64) -> String {
    format!("{}/s", bytes(value))
}

fn mood_of(severity: &str) -> Mood {
    match severity {
        "HEALTH_OK" => Mood::Good,
        "HEALTH_ERR" => Mood::Error,
        _ => Mood::Warning,
    }
}

/// What is wrong, what it means and what to do.
pub(crate) fn health(facts: &Facts) -> Vec<Line> {
    let health = &facts["health"];
    let status = text(&health["status"]);
    let mut lines = vec![(mood_of(&status), status)];
    for check in all(&health["checks"]) {
        let muted = if check["muted"].as_bool() == Some(true) { " (muted)" } else { "" };
        let summary = format!("{}{muted}: {}", text(&check["code"]), text(&check["summary"]));
        lines.push((mood_of(&text(&check["severity"])), summary));
        for part in [&check["means"], &check["advice"]] {
            let part = text(part);
            if !part.is_empty() {
                lines.push((Mood::Plain, format!("  {part}")));
            }
        }
        let detail =
            all(&check["detail"]).take(DETAILS).map(|line| (Mood::Soft, format!("    {}", text(line))));
        lines.extend(detail);
        let left_out =
            all(&check["detail"]).count().saturating_sub(DETAILS) as u64 + number(&check["details_left_out"]);
        if left_out > 0 {
            lines.push((Mood::Soft, format!("    and {left_out} more: 'ceph health detail'")));
        }
    }
    lines
}

/// Lines of each check.
const DETAILS: usize = 5;

/// Who serves, what is stored, what clients do.
pub(crate) fn figures(facts: &Facts) -> Vec<Line> {
    let (io, usage, pgs) = (&facts["io"], &facts["usage"], &facts["pgs"]);
    let is = |value: &Value| value.as_bool() == Some(true);
    let count = |name: &str| all(&facts["osds"]).filter(|osd| is(&osd[name])).count();
    let monitor = |mon: &Value| {
        let state = if is(&mon["leads"]) {
            " (leads)"
        } else if is(&mon["in_quorum"]) {
            ""
        } else {
            " (out of quorum)"
        };
        format!("{}{state}", text(&mon["name"]))
    };
    let monitors: Vec<String> = all(&facts["monitors"]).map(monitor).collect();
    let states: Vec<String> =
        pgs["states"].as_object().into_iter().flatten().map(|(name, n)| format!("{n} {name}")).collect();
    let used = share(number(&usage["used_bytes"]), number(&usage["total_bytes"]));
    let rows = [
        ("mons", monitors.join(", ")),
        ("osds", format!("{}, {} up, {} in", all(&facts["osds"]).count(), count("up"), count("in"))),
        (
            "pgs",
            if states.is_empty() {
                "none".to_owned()
            } else {
                format!("{}: {}", number(&pgs["count"]), states.join(", "))
            },
        ),
        (
            "usage",
            format!(
                "{} of {} ({:.1} %); {} objects, {}",
                bytes(number(&usage["used_bytes"])),
                bytes(number(&usage["total_bytes"])),
                100.0 * used,
                si(number(&usage["objects"])),
                bytes(number(&usage["data_bytes"]))
            ),
        ),
        ("read", work(io, "read_bytes", "read_ops")),
        ("write", work(io, "write_bytes", "write_ops")),
    ];
    let rows = rows.into_iter().map(|(name, value)| (Mood::Plain, format!("{name:<9}{value}")));
    rows.chain([recovery(facts)]).collect()
}

/// How far recovery is, and when it will have ended.
pub(crate) fn recovery(facts: &Facts) -> Line {
    let recovery = &facts["recovery"];
    let Some(done) = recovery["share_done"].as_f64() else {
        let pgs = &facts["pgs"];
        let left = number(&pgs["degraded"]).saturating_add(number(&pgs["misplaced"]));
        let are_known = facts["recovery_known"].as_bool() == Some(true) && number(&pgs["unknown"]) == 0;
        let text = match (are_known, left) {
            (true, 0) => "recovery nothing to do".to_owned(),
            (true, left) => format!("recovery not known yet: {} copies are missing or misplaced", si(left)),
            (false, _) => "recovery not known yet".to_owned(),
        };
        return (Mood::Plain, text);
    };
    let ends = recovery["remaining_s"].as_u64();
    let ends = ends.map_or_else(
        || "no forecast yet".to_owned(),
        |left| format!("ends in {}", age(Duration::from_secs(left))),
    );
    let speed =
        facts["io"]["recovered_bytes"].as_u64().map_or_else(|| "speed not known yet".to_owned(), per_second);
    let left = si(number(&recovery["copies_left"]));
    (Mood::Warning, format!("recovery {:.0} % done, {ends}; {left} copies left, {speed}", 100.0 * done))
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// OSDs: where, how full, how slow.
pub(crate) fn osds(facts: &Facts) -> Table {
    let row = |osd: &Value| {
        let (is_up, is_in) = (osd["up"].as_bool() == Some(true), osd["in"].as_bool() == Some(true));
        let slow = text(&osd["slow"]);
        let (state, mood) = match (is_up, is_in) {
            (false, _) => ("down", Mood::Error),
            (true, false) => ("out", Mood::Warning),
            (true, true) if !slow.is_empty() => ("slow", Mood::Warning),
            (true, true) => ("up", Mood::Good),
        };
        let used = share(number(&osd["used_bytes"]), number(&osd["total_bytes"]));
        let full = if used >= 0.9 {
            Mood::Error
        } else if used >= 0.8 {
            Mood::Warning
        } else {
            Mood::Plain
        };
        let p99 = |work: &str| {
            let of = &osd["device"][work];
            known((number(&of["count"]) > 0).then(|| number(&of["us_p99"])), time)
        };
        let commit = number(&osd["commit_us"]);
        vec![
            Cell {
                order: Some(-osd["id"].as_f64().unwrap_or(0.0)),
                ..word(format!("osd.{}", number(&osd["id"])))
            },
            word(text(&osd["host"])),
            word(text(&osd["class"])),
            Cell { mood, ..word(state) },
            Cell { text: format!("{:.1} %", 100.0 * used), order: Some(used), mood: full, ..Cell::default() },
            figure(number(&osd["total_bytes"]), bytes),
            figure(number(&osd["pgs"]), |n| n.to_string()),
            figure(number(&osd["primaries"]), |n| n.to_string()),
            known((is_up && commit > 0).then_some(commit), time),
            p99("read"),
            p99("durable_write"),
            p99("flush"),
        ]
    };
    let names = [
        "osd",
        "host",
        "class",
        "state",
        "used",
        "size",
        "pgs",
        "leads",
        "commit",
        "read p99",
        "write p99",
        "flush p99",
    ];
    Table { head: head(&names), rows: all(&facts["osds"]).map(row).collect(), none: "There are no OSDs." }
}

/// Durable writes of devices by how long they took, in powers of two.
pub(crate) fn devices(facts: &Facts) -> Table {
    let of = |osd: &Value| osd["device"]["durable_write"].clone();
    let counts = |osd: &Value| all(&of(osd)["counts"]).map(number).collect::<Vec<u64>>();
    let busy: Vec<&Value> = all(&facts["osds"]).filter(|osd| number(&of(osd)["count"]) > 0).collect();
    let first =
        busy.iter().filter_map(|osd| counts(osd).iter().position(|count| *count > 0)).min().unwrap_or(0);
    let last = busy.iter().map(|osd| counts(osd).len()).max().unwrap_or(0);
    let row = |osd: &&Value| {
        let (sums, counts) = (of(osd), counts(osd));
        let column = |at: usize| {
            let part = share(counts.get(at).copied().unwrap_or(0), number(&sums["count"]));
            let text = if part == 0.0 { String::new() } else { format!("{:.0}", 100.0 * part) };
            Cell { text, order: Some(part), heat: Some(part), ..Cell::default() }
        };
        let mood = if text(&osd["slow"]).is_empty() { Mood::Plain } else { Mood::Warning };
        let name = Cell {
            mood,
            order: Some(-osd["id"].as_f64().unwrap_or(0.0)),
            ..word(format!("osd.{}", number(&osd["id"])))
        };
        let ends = [figure(number(&sums["count"]), si), figure(number(&sums["us_p99"]), time)];
        [name].into_iter().chain((first..last).map(column)).chain(ends).collect()
    };
    let columns = (first..last).map(|power| format!("<{}", time(1 << power.min(40)).replace(' ', "")));
    let head = ["osd".to_owned()].into_iter().chain(columns).chain(["writes", "p99"].map(str::to_owned));
    Table {
        head: head.collect(),
        rows: busy.iter().map(row).collect(),
        none: if all(&facts["osds"]).any(|osd| osd["device"].is_object()) {
            "No device had durable writes in the last minute."
        } else {
            "Nothing is known of devices: see the option nacre_slow_device_ratio."
        },
    }
}

/// Pools: what they hold, and what goes on in them.
pub(crate) fn pools(facts: &Facts) -> Table {
    let row = |pool: &Value| {
        let io = &pool["io"];
        vec![
            word(text(&pool["name"])),
            figure(number(&pool["size"]), |n| n.to_string()),
            figure(number(&pool["pgs"]), |n| n.to_string()),
            figure(number(&pool["objects"]), si),
            figure(number(&pool["stored_bytes"]), bytes),
            figure(number(&pool["used_bytes"]), bytes),
            figure(number(&pool["available_bytes"]), bytes),
            known(io["read_bytes"].as_u64(), per_second),
            known(io["write_bytes"].as_u64(), per_second),
            known(io["read_ops"].as_u64(), si),
            known(io["write_ops"].as_u64(), si),
        ]
    };
    let names = [
        "pool", "copies", "pgs", "objects", "stored", "used", "can take", "read", "written", "reads/s",
        "writes/s",
    ];
    Table { head: head(&names), rows: all(&facts["pools"]).map(row).collect(), none: "There are no pools." }
}

/// `POOL/NAMESPACE/IMAGE`, without what is empty.
fn path(parts: [&Value; 3]) -> String {
    let parts: Vec<String> = parts.map(text).into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// Images: what clients do with them.
pub(crate) fn images(facts: &Facts) -> Table {
    let row = |image: &Value| {
        let rate = |count: &str| facts.image_rate(image, count);
        let mean = |us: &str, ops: &str| rate(us)?.checked_div(rate(ops)?);
        vec![
            word(path([&image["pool"], &image["namespace"], &image["name"]])),
            figure(number(&image["read_ops"]).saturating_add(number(&image["write_ops"])), si),
            known(rate("read_ops"), si),
            known(rate("write_ops"), si),
            known(rate("read_bytes"), per_second),
            known(rate("write_bytes"), per_second),
            known(mean("read_us", "read_ops"), time),
            known(mean("write_us", "write_ops"), time),
        ]
    };
    let names = ["image", "requests", "reads/s", "writes/s", "read", "written", "a read", "a write"];
    let none = if facts["images"].is_array() {
        "No image was used."
    } else {
        "Nothing is known of images: OSDs tell it to Nacre's own manager alone."
    };
    Table { head: head(&names), rows: all(&facts["images"]).map(row).collect(), none }
}

/// Clients: what OSDs worked for them.
pub(crate) fn clients(facts: &Facts) -> Table {
    let bill = &facts["clients"];
    let (seconds, all_us) = (number(&bill["seconds"]).max(1), number(&bill["total_cpu_us"]));
    let row = |line: &Value| {
        let (cpu_us, ops) = (number(&line["cpu_us"]), number(&line["ops"]));
        let part = share(cpu_us, all_us);
        vec![
            word(text(&line["entity"])),
            word(text(&line["host"])),
            word(text(&line["client"])),
            word(path([&line["pool"], &line["namespace"], &line["image"]])),
            figure(cpu_us / seconds, |us| format!("{}/s", time(us))),
            Cell { text: format!("{:.1} %", 100.0 * part), order: Some(part), ..Cell::default() },
            figure(ops / seconds, si),
            figure(number(&line["bytes"]) / seconds, per_second),
            known(cpu_us.checked_div(ops), time),
        ]
    };
    let names = [
        "entity",
        "host",
        "client",
        "pool or image",
        "processor",
        "share",
        "requests/s",
        "bytes",
        "for a request",
    ];
    let none = if bill.is_object() {
        "Clients did nothing."
    } else {
        "Nothing is known of clients: OSDs tell Nacre's own manager alone, and only with nacre_bill."
    };
    Table { head: head(&names), rows: all(&bill["lines"]).map(row).collect(), none }
}

/// Requests of clients that OSDs have had for too long.
pub(crate) fn requests(facts: &Facts) -> Table {
    let row = |request: &Value| {
        let stage = |stage: &Value| {
            format!("{} {}", text(&stage["stage"]), time(number(&stage["at_ms"]).saturating_mul(1000)))
        };
        let stages: Vec<String> = all(&request["stages"]).map(stage).collect();
        vec![
            word(format!("osd.{}", number(&request["osd"]))),
            figure(number(&request["age_ms"]).saturating_mul(1000), time),
            word(text(&request["waits_for"])),
            word(stages.join(", ")),
            word(text(&request["description"])),
        ]
    };
    let rows = all(&facts["slow_requests"]).map(row).collect();
    Table { head: head(&["on", "for", "waits for", "after", "request"]), rows, none: "No request is slow." }
}
