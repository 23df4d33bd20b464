//! `bill`: which clients and images the OSDs spend their processor time on. Our own command.

use super::call::{Answer, Call, refuse};
use super::table::{Command, command};
use crate::overview::clients;
use nacre_format::{Align, Table, bytes, fixed};
use nacre_mgr::{BILL_WINDOW_MAX, BillLine, BillWindow};
use nacre_types::Errno;
use std::time::Duration;

pub(super) const COMMANDS: &[Command] = &[command(
    "bill name=seconds,type=CephInt,req=false name=limit,type=CephInt,req=false",
    "mgr",
    "r",
    "Processor time of OSDs by client and image in the last SECONDS (30), the LIMIT (20) costliest first",
    bill,
)];

const SECONDS_USUAL: i64 = 30;
const LINES_USUAL: i64 = 20;

fn bill(call: &mut Call<'_>) -> Answer {
    let longest = BILL_WINDOW_MAX.as_secs();
    let seconds = u64::try_from(call.args.int("seconds").unwrap_or(SECONDS_USUAL)).unwrap_or(0);
    if !(5..=longest).contains(&seconds) {
        return Err(refuse(
            Errno::EINVAL,
            format!("OSDs report every 5 s, and {longest} s are kept: ask for 5 to {longest}"),
        ));
    }
    let limit = usize::try_from(call.args.int("limit").unwrap_or(LINES_USUAL));
    let limit = limit
        .ok()
        .filter(|limit| *limit > 0)
        .ok_or_else(|| refuse(Errno::EINVAL, "LIMIT is a number from 1 on"))?;
    let stats = &call.state.stats;
    let window = stats.bill.window(Duration::from_secs(seconds), &stats.images, call.now);
    let text = plain(call, &window, limit);
    let tree = clients::tree(call.state.osd.map(), &window, limit);
    call.either("bill", text, tree)
}

fn name_of(call: &Call<'_>, line: &BillLine) -> String {
    let map = call.state.osd.map();
    let pool = map.pool_name(line.pool).map_or_else(|| line.pool.to_string(), str::to_owned);
    match (line.image.is_empty(), line.namespace.is_empty()) {
        (true, _) => pool,
        (false, true) => format!("{pool}/{}", line.image),
        (false, false) => format!("{pool}/{}/{}", line.namespace, line.image),
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn plain(call: &Call<'_>, window: &BillWindow, limit: usize) -> String {
    if window.seconds == 0 {
        return "no OSD has reported for whom it works; see option nacre_bill\n".to_owned();
    }
    let (total_ns, seconds) = (window.total_ns(), window.seconds as f64);
    let share = |ns: u64| format!("{} %", fixed(100.0 * ns as f64 / total_ns.max(1) as f64, 1));
    let per_second = |ns: u64| fixed(ns as f64 / 1000.0 / seconds, 0);
    let mut table = Table::new(&[
        ("CLIENT", Align::Left, Align::Left),
        ("ENTITY", Align::Left, Align::Left),
        ("HOST", Align::Left, Align::Left),
        ("POOL/IMAGE", Align::Left, Align::Left),
        ("CPU us/s", Align::Right, Align::Right),
        ("SHARE", Align::Right, Align::Right),
        ("OPS/s", Align::Right, Align::Right),
        ("BYTES/s", Align::Right, Align::Right),
        ("CPU us/op", Align::Right, Align::Right),
    ]);
    for line in window.lines.iter().take(limit) {
        let account = &line.account;
        let us_per_op = account.cpu_ns as f64 / 1000.0 / account.ops.max(1) as f64;
        table.row([
            line.instance.to_string(),
            line.client.entity.clone(),
            line.client.host.clone(),
            name_of(call, line),
            per_second(account.cpu_ns),
            share(account.cpu_ns),
            fixed(account.ops as f64 / seconds, 1),
            bytes(account.bytes / window.seconds),
            if account.ops > 0 { fixed(us_per_op, 1) } else { "-".to_owned() },
        ]);
    }
    let left = window.lines.get(limit..).unwrap_or_default();
    let left_ns = left.iter().map(|line| line.account.cpu_ns).fold(0, u64::saturating_add);
    let left = (left_ns > 0).then_some(("other lines", left_ns));
    for (class, ns) in left.into_iter().chain(window.classes_ns.iter().copied()).filter(|(_, ns)| *ns > 0) {
        let cells =
            ["-".to_owned(), class.to_owned(), String::new(), String::new(), per_second(ns), share(ns)];
        table.row(cells);
    }
    let total = per_second(total_ns);
    format!(
        "{}in the last {} s, {total} us of processor time a second on all OSDs\n",
        table.render(),
        window.seconds
    )
}
