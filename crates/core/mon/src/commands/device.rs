//! `ceph device`: the disks on which OSDs lie, by what they said at boot; their wear by what they said of themselves last, and for how long
//! they will last by what somebody has said of them.

use super::call::{Answer, Call, Failure, refuse};
use super::table::{Command, command};
use crate::device_faults::faults;
use crate::devices::{self, Device, devices};
use nacre_format::{Align, Node, Section, Table};
use nacre_types::Errno;
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command("device ls", "mgr", "r", "Devices that daemons use", ls),
    command("device info name=devid,type=CephString", "mgr", "r", "One device", info),
    command("device ls-by-daemon name=who,type=CephString", "mgr", "r", "Devices of a daemon", ls_by_daemon),
    command("device ls-by-host name=host,type=CephString", "mgr", "r", "Devices of a host", ls_by_host),
];

/// How worn a device is, in per cent of its rated life.
fn wear(call: &Call<'_>, id: &str, device: &Device) -> Option<u32> {
    devices::newest(call.state, id, device)?.health.percentage_used
}

/// What is left of its life.
fn life(call: &Call<'_>, id: &str) -> String {
    call.state.life_expectancies.of(id).map(|life| life.text(call.wall)).unwrap_or_default()
}

fn section(call: &Call<'_>, id: &str, device: &Device) -> Section {
    let place = |(host, name): &(String, String)| {
        let path = format!("/dev/{name}");
        Section::new().with("host", host.as_str()).with("dev", name.as_str()).with("path", path)
    };
    let mut section = Section::new()
        .with("devid", id)
        .with("location", Node::array("attachment", device.places.iter().map(place)))
        .with("daemons", Node::array("daemon", device.daemons()));
    if let Some(life) = call.state.life_expectancies.of(id) {
        let max = life.max.map_or_else(|| "0.000000".to_owned(), |max| max.to_string());
        section = section
            .with("life_expectancy_min", life.min.to_string())
            .with("life_expectancy_max", max)
            .with("life_expectancy_stamp", life.stamp.to_string());
    }
    match wear(call, id, device) {
        Some(percent) => section.with("wear_level", f64::from(percent) / 100.0),
        None => section,
    }
}

fn sections(call: &Call<'_>, devices: &BTreeMap<String, Device>) -> Node {
    Node::array("device", devices.iter().map(|(id, device)| section(call, id, device)))
}

/// No daemon uses such a device.
pub(super) fn unknown(id: &str) -> Failure {
    let text = format!("no daemon says that it uses device '{id}'; 'ceph device ls' shows all");
    refuse(Errno::ENOENT, text)
}

fn ls(call: &mut Call<'_>) -> Answer {
    let devices = devices(call.state);
    let columns =
        ["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"].map(|name| (name, Align::Left));
    let mut table = Table::aligned(&columns);
    for (id, device) in &devices {
        let wear = wear(call, id, device).map(|percent| format!("{percent}%")).unwrap_or_default();
        let daemons = device.daemons().join(" ");
        table.row([id.clone(), device.places_text(), daemons, wear, life(call, id)]);
    }
    call.either("devices", table.render(), sections(call, &devices))
}

fn info(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("devid").to_owned();
    let devices = devices(call.state);
    let device = devices.get(&id).ok_or_else(|| unknown(&id))?;
    let mut plain =
        format!("device {id}\nattachment {}\ndaemons {}\n", device.places_text(), device.daemons().join(" "));
    plain += &told(call, &id, device);
    call.either("device", plain, section(call, &id, device))
}

/// Lines on what is known of a device's health.
fn told(call: &Call<'_>, id: &str, device: &Device) -> String {
    let mut lines = Vec::new();
    if let Some(life) = call.state.life_expectancies.of(id) {
        lines.push(format!("life expectancy {} (as of {})", life.moments(), life.stamp));
    }
    if let Some(why) = device.ambiguity() {
        lines.push(format!("health unknown: {why}"));
    }
    if let Some(newest) = devices::newest(call.state, id, device) {
        let faults = faults(&newest.health);
        let word = if faults.is_empty() { "nothing wrong".to_owned() } else { faults.join(", ") };
        lines.push(format!("health {word} (as of {})", newest.at));
    }
    if let Some(percent) = wear(call, id, device) {
        lines.push(format!("wear {percent}%"));
    }
    if let Some(error) = call.state.device_scrapes.error(id) {
        lines.push(format!("could not be asked: {error}"));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn ls_by_daemon(call: &mut Call<'_>) -> Answer {
    let who = call.args.text("who");
    let Some((kind, id)) = who.split_once('.') else {
        return Err(refuse(Errno::EINVAL, format!("'{who}' names no daemon: write osd.0")));
    };
    let osd = id.parse().ok().filter(|osd| kind == "osd" && call.state.osd.map().exists(*osd));
    let osd =
        osd.ok_or_else(|| refuse(Errno::ENOENT, format!("there is no daemon '{who}' that has devices")))?;
    let mut devices = devices(call.state);
    devices.retain(|_, device| device.osds.contains(&osd));
    let columns = ["DEVICE", "HOST:DEV", "EXPECTED FAILURE"].map(|name| (name, Align::Left));
    let mut table = Table::aligned(&columns);
    devices.iter().for_each(|(id, device)| table.row([id.clone(), device.places_text(), life(call, id)]));
    call.either("devices", table.render(), sections(call, &devices))
}

fn ls_by_host(call: &mut Call<'_>) -> Answer {
    let host = call.args.text("host");
    let mut devices = devices(call.state);
    devices.retain(|_, device| device.places.iter().any(|(at, _)| at == host));
    let columns = ["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"].map(|name| (name, Align::Left));
    let mut table = Table::aligned(&columns);
    for (id, device) in &devices {
        let names: Vec<&str> =
            device.places.iter().filter(|(at, _)| at == host).map(|(_, name)| name.as_str()).collect();
        table.row([id.clone(), names.join(" "), device.daemons().join(" "), life(call, id)]);
    }
    call.either("devices", table.render(), sections(call, &devices))
}
