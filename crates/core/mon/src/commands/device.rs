//! `ceph device`: the disks on which OSDs lie, by what they said at boot. Nothing is known of their wear or of how long they will
//! last: those columns are empty, as they are in Ceph before anybody has measured.

use super::call::{Answer, Call, refuse};
use super::table::{Command, command};
use nacre_format::{Align, Node, Section, Table};
use nacre_types::{Errno, OsdId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const COMMANDS: &[Command] = &[
    command("device ls", "mgr", "r", "Devices that daemons use", ls),
    command("device info name=devid,type=CephString", "mgr", "r", "One device", info),
    command("device ls-by-daemon name=who,type=CephString", "mgr", "r", "Devices of a daemon", ls_by_daemon),
    command("device ls-by-host name=host,type=CephString", "mgr", "r", "Devices of a host", ls_by_host),
];

/// Of `osd metadata`, as Ceph's OSDs say it: `NAME=ID` for each disk that has an id.
const DEVICE_IDS: &str = "device_ids";

#[derive(Default)]
struct Device {
    /// Host and the kernel's name there.
    places: BTreeSet<(String, String)>,
    osds: BTreeSet<OsdId>,
}

impl Device {
    fn places_text(&self) -> String {
        let places: Vec<String> = self.places.iter().map(|(host, name)| format!("{host}:{name}")).collect();
        places.join(" ")
    }

    fn daemons(&self) -> Vec<String> {
        self.osds.iter().map(|osd| format!("osd.{osd}")).collect()
    }

    fn section(&self, id: &str) -> Section {
        let place = |(host, name): &(String, String)| {
            let path = format!("/dev/{name}");
            Section::new().with("host", host.as_str()).with("dev", name.as_str()).with("path", path)
        };
        Section::new()
            .with("devid", id)
            .with("location", Node::array("attachment", self.places.iter().map(place)))
            .with("daemons", Node::array("daemon", self.daemons()))
    }
}

fn devices(call: &Call<'_>) -> BTreeMap<String, Device> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    for osd in call.state.osd.map().osds() {
        let Some(metadata) = call.state.osd.metadata(osd) else { continue };
        let host = metadata.get("hostname").cloned().unwrap_or_default();
        let ids = metadata.get(DEVICE_IDS).map_or("", String::as_str);
        for (name, id) in
            ids.split(',').filter_map(|word| word.split_once('=')).filter(|(_, id)| !id.is_empty())
        {
            let device = devices.entry(id.to_owned()).or_default();
            device.places.insert((host.clone(), name.to_owned()));
            device.osds.insert(osd);
        }
    }
    devices
}

fn sections(devices: &BTreeMap<String, Device>) -> Node {
    Node::array("device", devices.iter().map(|(id, device)| device.section(id)))
}

fn ls(call: &mut Call<'_>) -> Answer {
    let devices = devices(call);
    let columns =
        ["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"].map(|name| (name, Align::Left));
    let mut table = Table::aligned(&columns);
    for (id, device) in &devices {
        table.row([id.clone(), device.places_text(), device.daemons().join(" ")]);
    }
    call.either("devices", table.render(), sections(&devices))
}

fn info(call: &mut Call<'_>) -> Answer {
    let id = call.args.text("devid").to_owned();
    let devices = devices(call);
    let device = devices.get(&id).ok_or_else(|| {
        refuse(
            Errno::ENOENT,
            format!("no daemon says that it uses device '{id}'; 'ceph device ls' shows all"),
        )
    })?;
    let plain =
        format!("device {id}\nattachment {}\ndaemons {}\n", device.places_text(), device.daemons().join(" "));
    call.either("device", plain, device.section(&id))
}

fn ls_by_daemon(call: &mut Call<'_>) -> Answer {
    let who = call.args.text("who");
    let Some((kind, id)) = who.split_once('.') else {
        return Err(refuse(Errno::EINVAL, format!("'{who}' names no daemon: write osd.0")));
    };
    let osd = id.parse().ok().filter(|osd| kind == "osd" && call.state.osd.map().exists(*osd));
    let osd =
        osd.ok_or_else(|| refuse(Errno::ENOENT, format!("there is no daemon '{who}' that has devices")))?;
    let mut devices = devices(call);
    devices.retain(|_, device| device.osds.contains(&osd));
    let columns = ["DEVICE", "HOST:DEV", "EXPECTED FAILURE"].map(|name| (name, Align::Left));
    let mut table = Table::aligned(&columns);
    devices.iter().for_each(|(id, device)| table.row([id.clone(), device.places_text()]));
    call.either("devices", table.render(), sections(&devices))
}

fn ls_by_host(call: &mut Call<'_>) -> Answer {
    let host = call.args.text("host");
    let mut devices = devices(call);
    devices.retain(|_, device| device.places.iter().any(|(at, _)| at == host));
    let columns = ["DEVICE", "DEV", "DAEMONS", "EXPECTED FAILURE"].map(|name| (name, Align::Left));
    let mut table = Table::aligned(&columns);
    for (id, device) in &devices {
        let names: Vec<&str> =
            device.places.iter().filter(|(at, _)| at == host).map(|(_, name)| name.as_str()).collect();
        table.row([id.clone(), names.join(" "), device.daemons().join(" ")]);
    }
    call.either("devices", table.render(), sections(&devices))
}
