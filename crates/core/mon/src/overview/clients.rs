//! Clients as the overview shows them: whom OSDs worked for of late, by the bill.

use crate::state::State;
use nacre_format::{Node, Section};
use nacre_maps::OsdMap;
use nacre_mgr::{BillLine, BillWindow};
use nacre_types::Stamp;
use std::time::Duration;

/// Of so many seconds.
const WINDOW: Duration = Duration::from_secs(30);
/// Lines, the costliest.
const LINES_COUNT_MAX: usize = 50;

/// OSDs tell it to our own manager alone; and not at all where the option `nacre_bill` has it so.
pub(super) fn all(state: &State, map: &OsdMap, now: Stamp) -> Node {
    if !state.mgr.own_is_active() {
        return super::null();
    }
    let window = state.stats.bill.window(WINDOW, &state.stats.images, now);
    if window.seconds == 0 {
        return super::null();
    }
    tree(map, &window, LINES_COUNT_MAX)
}

/// A bill with its `limit` costliest lines.
pub(crate) fn tree(map: &OsdMap, window: &BillWindow, limit: usize) -> Node {
    let line = |line: &BillLine| {
        Section::new()
            .with("client", line.instance.to_string())
            .with("entity", line.client.entity.as_str())
            .with("host", line.client.host.as_str())
            .with("pool", map.pool_name(line.pool).unwrap_or_default())
            .with("namespace", line.namespace.as_str())
            .with("image", line.image.as_str())
            .with("cpu_us", line.account.cpu_ns / 1000)
            .with("ops", line.account.ops)
            .with("bytes", line.account.bytes)
    };
    let mut classes = Section::new();
    for (class, ns) in &window.classes_ns {
        classes.put(*class, ns / 1000);
    }
    Section::new()
        .with("seconds", window.seconds)
        .with("total_cpu_us", window.total_ns() / 1000)
        .with("lines", Node::array("line", window.lines.iter().take(limit).map(line)))
        .with("classes_cpu_us", classes)
        .into()
}
