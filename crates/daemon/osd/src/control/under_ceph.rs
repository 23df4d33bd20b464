//! [`UnderCeph`]: what an OSD does for itself under Ceph's monitors. `core/osd` decides it; here it becomes commands and messages.

use crate::config::{CephConfig, OsdConfig};
use crate::mon_link::MonLink;
use nacre_maps::OsdMap;
use nacre_msg::OsdFull;
use nacre_options::Values;
use nacre_osd_core::{
    Fullness, Place, Placement, PlacementAnswer, PlacementCommand, PlacementSettings, Room,
};
use nacre_types::{OsdId, Stamp};
use serde_json::{Value, json};

/// Its place in the CRUSH map, and how full it is.
pub(super) struct UnderCeph {
    osd: OsdId,
    placement: Placement,
    /// The command of the placement that is under way.
    command: Option<u64>,
    fullness: Fullness,
}

/// What the options say of its place.
fn settings(options: &Values) -> PlacementSettings {
    PlacementSettings {
        updates_place: options.flag("osd_crush_update_on_start"),
        updates_class: options.flag("osd_class_update_on_start"),
        initial_weight: options.number("osd_crush_initial_weight"),
    }
}

fn command(osd: OsdId, command: PlacementCommand) -> Value {
    match command {
        PlacementCommand::SetDeviceClass { class } => {
            json!({ "prefix": "osd crush set-device-class", "class": class, "ids": [osd.to_string()] })
        }
        PlacementCommand::CreateOrMove { weight, location } => {
            json!({ "prefix": "osd crush create-or-move", "id": osd, "weight": weight, "args": location })
        }
    }
}

impl UnderCeph {
    /// Of the OSD `config.id`, whose device is of `device_class`.
    pub(super) fn new(config: &OsdConfig, ceph: &CephConfig, device_class: String, size_bytes: u64) -> Self {
        let place = Place { location: ceph.crush_location.clone(), device_class, size_bytes };
        let placement = Placement::new(config.id, place);
        Self { osd: config.id, placement, command: None, fullness: Fullness::default() }
    }

    /// True when it may boot.
    pub(super) fn is_placed(&self) -> bool {
        self.placement.is_done()
    }

    /// When [`UnderCeph::tick`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Stamp> {
        self.placement.next_deadline()
    }

    /// The monitor has said which options hold for us.
    pub(super) fn follow_options(&mut self, options: &Values, mon: &mut MonLink, now: Stamp) {
        self.placement.set(settings(options));
        self.tick(mon, now);
    }

    /// Gives the next command, if one is due.
    pub(super) fn tick(&mut self, mon: &mut MonLink, now: Stamp) {
        if let Some(next) = self.placement.next_command(now) {
            self.command = mon.command(&command(self.osd, next));
            if self.command.is_none() {
                // As if the monitor were busy: it is given again.
                self.placement.answered(nacre_types::Errno::EAGAIN.negated(), now);
            }
        }
    }

    /// A command was answered; true when it may boot now.
    pub(super) fn command_done(
        &mut self,
        (tid, result, status): (u64, i32, &str),
        mon: &mut MonLink,
        now: Stamp,
    ) -> bool {
        if self.command != Some(tid) {
            return false;
        }
        self.command = None;
        if let PlacementAnswer::Refused(errno) = self.placement.answered(result, now) {
            tracing::error!(
                osd = self.osd,
                %errno,
                status,
                "the monitor does not let this OSD take its place in the CRUSH map, so it does not boot; it asks again. Give it caps with \
                 'mon allow profile osd', or switch off osd_crush_update_on_start and osd_class_update_on_start"
            );
        }
        self.tick(mon, now);
        self.placement.is_done()
    }

    /// Tells the monitor how full we are, if the map says otherwise. `room` is what the store has for clients.
    pub(super) fn tell_fullness(&mut self, map: &OsdMap, room: Room, mon: &mut MonLink, now: Stamp) {
        if let Some(state) = self.fullness.next_word(map, self.osd, room, now) {
            mon.send(OsdFull { version: map.epoch.into(), map_epoch: map.epoch, state }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_cephs_monitors() {
        let class = command(3, PlacementCommand::SetDeviceClass { class: "ssd".to_owned() });
        assert_eq!(class.to_string(), r#"{"prefix":"osd crush set-device-class","class":"ssd","ids":["3"]}"#);
        let location = vec!["root=a\"b".to_owned(), "host=h".to_owned()];
        let place = command(3, PlacementCommand::CreateOrMove { weight: 0.5, location });
        let wanted =
            r#"{"prefix":"osd crush create-or-move","id":3,"weight":0.5,"args":["root=a\"b","host=h"]}"#;
        assert_eq!(place.to_string(), wanted);
    }
}
