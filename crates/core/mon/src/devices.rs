//! The disks on which OSDs lie, by what these said at boot.

use crate::device_samples::Sample;
use crate::state::State;
use nacre_msg::DEVICE_ID_BYTES_MAX;
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// Of `osd metadata`, as Ceph's OSDs say it: `NAME=ID` for each disk that has an id.
const DEVICE_IDS: &str = "device_ids";
/// Disks that are taken from one OSD.
const OF_ONE_OSD_COUNT_MAX: usize = 32;
/// Bytes of a host's name, and of the kernel's name of a disk.
const NAME_BYTES_MAX: usize = 256;

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

    /// Why nothing that is said of this id can be believed, if so: several hosts have a disk of it. Hypervisors give all their disks one
    /// serial number, and one disk's word must not stand for others.
    pub(crate) fn ambiguity(&self) -> Option<String> {
        let hosts: BTreeSet<&str> = self.places.iter().map(|(host, _)| host.as_str()).collect();
        let several = |(one, other): (&&str, &&str)| {
            format!(
                "OSDs of several hosts ({one}, {other}{}) name a device with this id: nobody can tell them apart, so none is asked or \
                 judged; give each a serial number of its own, or purge the OSD that has it no more",
                if hosts.len() > 2 { ", ..." } else { "" }
            )
        };
        hosts.first().zip(hosts.last()).filter(|(one, other)| one != other).map(several)
    }
}

/// Whether tables, health and metrics can show what an OSD says: short enough, and without letters that move a terminal's cursor.
fn is_shown(text: &str, bytes_max: usize) -> bool {
    text.len() <= bytes_max && !text.chars().any(char::is_control)
}

/// Names and ids of the disks that these facts of an OSD name, as far as they can be shown.
pub(crate) fn named(facts: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let ids = facts.get(DEVICE_IDS).map_or("", String::as_str);
    let pairs = ids.split(',').filter_map(|word| word.split_once('='));
    let shown = pairs.filter(|(name, id)| {
        !id.is_empty() && is_shown(id, DEVICE_ID_BYTES_MAX) && is_shown(name, NAME_BYTES_MAX)
    });
    shown.take(OF_ONE_OSD_COUNT_MAX)
}

/// All disks of the map's OSDs, by id.
pub(crate) fn devices(state: &State) -> BTreeMap<String, Device> {
    let mut devices: BTreeMap<String, Device> = BTreeMap::new();
    for osd in state.osd.map().osds() {
        let Some(facts) = state.osd.metadata(osd) else { continue };
        let host = facts.get("hostname").filter(|host| is_shown(host, NAME_BYTES_MAX));
        let host = host.cloned().unwrap_or_default();
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

/// What a device said last, where it is known which one said it.
pub(crate) fn newest<'a>(state: &'a State, id: &str, device: &Device) -> Option<&'a Sample> {
    state.device_samples.newest(id).filter(|_| device.ambiguity().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_an_osd_names_that_which_can_be_shown_is_taken_and_not_too_much() {
        let named = |ids: &str| -> Vec<(String, String)> {
            let facts = BTreeMap::from([(DEVICE_IDS.to_owned(), ids.to_owned())]);
            named(&facts).map(|(name, id)| (name.to_owned(), id.to_owned())).collect()
        };
        let long = "x".repeat(DEVICE_ID_BYTES_MAX + 1);
        let hostile = format!("sda=AC\u{1b}[2JME,sd\nb=ACME_2,sdc={long},{long}=ACME_4,sde=,sdf,sdg=ACME_7");
        assert_eq!(named(&hostile), [("sdg".to_owned(), "ACME_7".to_owned())]);
        let many: Vec<String> = (0..1000).map(|nth| format!("sd{nth}=ACME_{nth}")).collect();
        let named = named(&many.join(","));
        assert_eq!((named.len(), named[0].1.as_str()), (OF_ONE_OSD_COUNT_MAX, "ACME_0"));
    }

    #[test]
    fn an_id_that_several_hosts_have_means_none_of_their_devices() {
        let device = |hosts: &[&str]| Device {
            places: hosts.iter().map(|host| ((*host).to_owned(), "sda".to_owned())).collect(),
            osds: BTreeSet::new(),
        };
        assert_eq!(device(&["a"]).ambiguity(), None);
        let said = |hosts: &[&str]| device(hosts).ambiguity().expect("ambiguous");
        assert!(said(&["a", "b"]).contains("(a, b)") && said(&["a", "b", "c"]).contains("(a, c, ...)"));
        let mut two_ways = device(&["a"]);
        two_ways.places.insert(("a".to_owned(), "sdb".to_owned()));
        assert_eq!(two_ways.ambiguity(), None, "two ways to one device");
    }
}
