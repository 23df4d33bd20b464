//! The disks on which OSDs lie, by what these said at boot.

use crate::state::State;
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// Of `osd metadata`, as Ceph's OSDs say it: `NAME=ID` for each disk that has an id.
const DEVICE_IDS: &str = "device_ids";

/// A disk, and who uses it.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// Host and the kernel's name there.
    pub(crate) places: BTreeSet<(String, String)>,
    /// OSDs that are on it.
    pub(crate) osds: BTreeSet<OsdId>,
}

impl Device {
    /// `HOST:NAME` of each place.
    pub(crate) fn places_text(&self) -> String {
        let places: Vec<String> = self.places.iter().map(|(host, name)| format!("{host}:{name}")).collect();
        places.join(" ")
    }

    /// `osd.0` and so on.
    pub(crate) fn daemons(&self) -> Vec<String> {
        self.osds.iter().map(|osd| format!("osd.{osd}")).collect()
    }
}

/// Names and ids of the disks that these facts of an OSD name.
pub(crate) fn named(facts: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let ids = facts.get(DEVICE_IDS).map_or("", String::as_str);
    ids.split(',').filter_map(|word| word.split_once('=')).filter(|(_, id)| !id.is_empty())
}

/// All disks of the map's OSDs, by id.
pub(crate) fn devices(state: &State) -> BTreeMap<String, Device> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    for osd in state.osd.map().osds() {
        let Some(facts) = state.osd.metadata(osd) else { continue };
        let host = facts.get("hostname").cloned().unwrap_or_default();
        for (name, id) in named(facts) {
            let device = devices.entry(id.to_owned()).or_default();
            device.places.insert((host.clone(), name.to_owned()));
            device.osds.insert(osd);
        }
    }
    devices
}

/// Whether the OSD has said that it is on this disk.
pub(crate) fn names(state: &State, osd: OsdId, device: &str) -> bool {
    state.osd.metadata(osd).is_some_and(|facts| named(facts).any(|(_, id)| id == device))
}
