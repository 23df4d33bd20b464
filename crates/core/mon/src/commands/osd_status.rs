//! `osd status`: how full OSDs are, and what clients do with them, by what they reported last (Ceph v16.2.15:
//! `src/pybind/mgr/status/module.py`).

use super::call::{Answer, Call, refuse};
use super::table::{Command, command};
use nacre_format::{Align, Node, Section, Table, bytes, si};
use nacre_maps::OsdMap;
use nacre_types::{Errno, OsdId};
use std::collections::BTreeSet;

pub(super) const COMMANDS: &[Command] = &[command(
    "osd status name=bucket,type=CephString,req=false",
    "mgr",
    "r",
    "How full OSDs are, and what clients do with them each second",
    status,
)];

/// OSDs that lie in the bucket itself.
fn inside(map: &OsdMap, name: &str) -> Option<BTreeSet<OsdId>> {
    let bucket = map.crush.bucket(map.crush.item_by_name(name)?)?;
    Some(bucket.items.iter().copied().filter(|item| *item >= 0).collect())
}

fn status(call: &mut Call<'_>) -> Answer {
    let (state, map) = (&*call.state, call.state.osd.map());
    let wanted = match call.args.text_opt("bucket") {
        Some(name) => Some(
            inside(map, name).ok_or_else(|| refuse(Errno::ENOENT, format!("Bucket '{name}' not found")))?,
        ),
        None => None,
    };
    let columns = [
        ("ID", Align::Right),
        ("HOST", Align::Left),
        ("USED", Align::Right),
        ("AVAIL", Align::Right),
        ("WR OPS", Align::Right),
        ("WR DATA", Align::Right),
        ("RD OPS", Align::Right),
        ("RD DATA", Align::Right),
        ("STATE", Align::Left),
    ];
    let mut table = Table::aligned(&columns);
    let mut sections = Vec::new();
    for osd in map.osds().filter(|osd| wanted.as_ref().is_none_or(|wanted| wanted.contains(osd))) {
        let reported = state.shown_pgs().osd(osd);
        let facts = reported.and_then(|_| state.osd.metadata(osd));
        let host = facts.and_then(|facts| facts.get("hostname")).cloned().unwrap_or_default();
        let size = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        let used = reported.map_or(0, |stat| size(stat.statfs.used_raw()));
        let avail = reported.map_or(0, |stat| size(stat.statfs.available));
        let daemon = format!("osd.{osd}");
        let rates = ["osd.op_w", "osd.op_in_bytes", "osd.op_r", "osd.op_out_bytes"];
        let [writes, written, reads, read] = rates
            .map(|path| state.stats.counters.rate(&daemon, path).filter(|_| map.is_up(osd)).unwrap_or(0));
        let states = map.state_names(osd);
        table.row([
            osd.to_string(),
            host.clone(),
            bytes(used),
            bytes(avail),
            si(writes),
            bytes(written),
            si(reads),
            bytes(read),
            states.clone(),
        ]);
        let section = Section::new()
            .with("id", osd)
            .with("host name", host)
            .with("kb used", used >> 10)
            .with("kb available", avail >> 10)
            .with("write ops rate", writes)
            .with("write byte rate", written)
            .with("read ops rate", reads)
            .with("read byte rate", read)
            .with("state", Node::array("state", states.split(',')));
        sections.push(section);
    }
    let tree = Section::new().with("OSDs", Node::array("osd", sections));
    call.either("osd_status", table.render(), tree)
}
