//! [`Placement`]: an OSD puts itself into the CRUSH map before it boots, where the monitors are Ceph's.
//!
//! ```text
//!             the monitor's options       answered, or not wanted          answered, or not wanted
//!  unknown ------------------------> class ----------------------> place ------------------------> placed
//!                                      |  ^                          |  ^
//!                                      +--+ refused: again later     +--+ refused: again later
//! ```
//! A monitor of ours places an OSD that boots by itself; one of Ceph leaves that to the OSD, which gives two commands through its own
//! session. Source of the behaviour: Ceph `OSD::update_crush_device_class` and `OSD::update_crush_location`, v16.2.15.

use nacre_types::{Errno, OsdId, Stamp};
use std::time::Duration;

/// A command that was refused is given again after this time.
const RETRY: Duration = Duration::from_secs(5);
/// The least weight: a device of weight 0 would get nothing.
const WEIGHT_MIN: f64 = 0.00001;
const TIB: f64 = (1_u64 << 40) as f64;

/// What the options say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementSettings {
    /// Go to the place that the configuration names, Ceph's `osd_crush_update_on_start`.
    pub updates_place: bool,
    /// Set the device class unless there is one, Ceph's `osd_class_update_on_start`.
    pub updates_class: bool,
    /// Weight of an OSD that has no place yet; negative means by its size. Ceph's `osd_crush_initial_weight`.
    pub initial_weight: f64,
}

/// Where an OSD belongs, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Type and name of each bucket above it, such as `host` and `node-3`.
    pub location: Vec<(String, String)>,
    /// `ssd`, `hdd`, ...
    pub device_class: String,
    /// Bytes of its store.
    pub size_bytes: u64,
}

/// One command to the monitor.
#[derive(Debug, Clone, PartialEq)]
pub enum PlacementCommand {
    /// `osd crush set-device-class`.
    SetDeviceClass {
        /// Name of the class, such as `ssd`.
        class: String,
    },
    /// `osd crush create-or-move`.
    CreateOrMove {
        /// Weight in TiB; counts for an OSD only that has no place yet.
        weight: f64,
        /// Each `type=name`.
        location: Vec<String>,
    },
}

/// What is to be done about the answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementAnswer {
    /// Nothing: it is done, or was so before.
    Done,
    /// The operator is to hear of it. The command is given again later.
    Refused(Errno),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The monitor's options are not known yet.
    Unknown,
    Class,
    Place,
    Placed,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Placement {
    osd: OsdId,
    place: Place,
    settings: PlacementSettings,
    step: Step,
    /// The step's command is under way.
    asked: bool,
    /// Not before this time.
    retry_at: Stamp,
}

impl Placement {
    /// Of an OSD under monitors of Ceph.
    #[must_use]
    pub fn new(osd: OsdId, place: Place) -> Self {
        let settings = PlacementSettings { updates_place: true, updates_class: true, initial_weight: -1.0 };
        Self { osd, place, settings, step: Step::Unknown, asked: false, retry_at: Stamp::default() }
    }

    /// Number of the OSD.
    #[must_use]
    pub fn osd(&self) -> OsdId {
        self.osd
    }

    /// True when the OSD may boot.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.step == Step::Placed
    }

    /// The options are known, the monitor's included. Later changes count for commands that are not given yet.
    pub fn set(&mut self, settings: PlacementSettings) {
        self.settings = settings;
        if self.step == Step::Unknown {
            self.step = Step::Class;
        }
    }

    /// When [`Placement::next_command`] has something to say again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        (!self.asked && matches!(self.step, Step::Class | Step::Place)).then_some(self.retry_at)
    }

    /// The command to give now, if any; its answer goes to [`Placement::answered`].
    pub fn next_command(&mut self, now: Stamp) -> Option<PlacementCommand> {
        if self.asked || now < self.retry_at {
            return None;
        }
        if self.step == Step::Class && (!self.settings.updates_class || self.place.device_class.is_empty()) {
            self.step = Step::Place;
        }
        if self.step == Step::Place && !self.settings.updates_place {
            self.step = Step::Placed;
        }
        let command = match self.step {
            Step::Unknown | Step::Placed => return None,
            Step::Class => PlacementCommand::SetDeviceClass { class: self.place.device_class.clone() },
            Step::Place => {
                PlacementCommand::CreateOrMove { weight: self.weight(), location: self.location() }
            }
        };
        self.asked = true;
        Some(command)
    }

    fn weight(&self) -> f64 {
        match self.settings.initial_weight {
            weight if weight >= 0.0 => weight,
            _ => (self.place.size_bytes as f64 / TIB).max(WEIGHT_MIN),
        }
    }

    fn location(&self) -> Vec<String> {
        self.place.location.iter().map(|(kind, name)| format!("{kind}={name}")).collect()
    }

    /// The command under way was answered: with 0 or a negative errno, as Ceph's monitors say it.
    pub fn answered(&mut self, result: i32, now: Stamp) -> PlacementAnswer {
        self.asked = false;
        let errno = Errno(result.saturating_neg());
        // Busy: it has a class, which an operator gave it.
        let has_class = self.step == Step::Class && errno == Errno::EBUSY;
        if result < 0 && !has_class {
            self.retry_at = now + RETRY;
            return PlacementAnswer::Refused(errno);
        }
        self.step = match self.step {
            Step::Class => Step::Place,
            Step::Place => Step::Placed,
            step => step,
        };
        PlacementAnswer::Done
    }
}

/// Reads a `crush location`: words `type=name`.
///
/// # Errors
/// The word that is none, for people.
pub fn parse_crush_location(text: &str) -> Result<Vec<(String, String)>, String> {
    let words = text.split([' ', ',', ';', '\t']).filter(|word| !word.is_empty());
    let pair = |word: &str| match word.split_once('=') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok((kind.to_owned(), name.to_owned())),
        _ => Err(format!("'{word}' in a CRUSH location is no TYPE=NAME")),
    };
    words.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(seconds)
    }

    fn placement() -> Placement {
        let location = parse_crush_location("root=nacre host=h1").expect("a location");
        let place = Place { location, device_class: "ssd".to_owned(), size_bytes: 1 << 39 };
        Placement::new(3, place)
    }

    const ALL: PlacementSettings =
        PlacementSettings { updates_place: true, updates_class: true, initial_weight: -1.0 };

    #[test]
    fn class_and_place_are_asked_for_one_after_the_other_once_the_options_are_known() {
        let mut placement = placement();
        assert_eq!(placement.next_command(at(1)), None, "the monitor may have other options for us");
        placement.set(ALL);
        let class = PlacementCommand::SetDeviceClass { class: "ssd".to_owned() };
        assert_eq!(placement.next_command(at(1)), Some(class));
        assert_eq!(placement.next_command(at(9)), None, "it is under way");
        assert_eq!(placement.answered(0, at(9)), PlacementAnswer::Done);
        let location = vec!["root=nacre".to_owned(), "host=h1".to_owned()];
        assert_eq!(
            placement.next_command(at(9)),
            Some(PlacementCommand::CreateOrMove { weight: 0.5, location })
        );
        assert!(!placement.is_done());
        assert_eq!(placement.answered(0, at(10)), PlacementAnswer::Done);
        assert!(placement.is_done() && placement.next_command(at(20)).is_none());
    }

    #[test]
    fn options_switch_off_each_of_the_two_and_give_the_weight() {
        let mut neither = placement();
        neither.set(PlacementSettings { updates_place: false, updates_class: false, ..ALL });
        assert!(neither.next_command(at(1)).is_none() && neither.is_done());
        let mut place = placement();
        place.set(PlacementSettings { updates_class: false, initial_weight: 0.0, ..ALL });
        let asked = place.next_command(at(1));
        assert!(matches!(asked, Some(PlacementCommand::CreateOrMove { weight: 0.0, .. })), "{asked:?}");
    }

    #[test]
    fn a_class_that_an_operator_gave_stays_and_what_is_refused_is_asked_for_again() {
        let mut placement = placement();
        placement.set(ALL);
        assert!(placement.next_command(at(1)).is_some());
        assert_eq!(placement.answered(-Errno::EBUSY.0, at(1)), PlacementAnswer::Done);
        assert!(placement.next_command(at(1)).is_some());
        assert_eq!(placement.answered(-Errno::EPERM.0, at(2)), PlacementAnswer::Refused(Errno::EPERM));
        assert_eq!((placement.next_deadline(), placement.next_command(at(6))), (Some(at(7)), None));
        assert!(placement.next_command(at(7)).is_some() && !placement.is_done());
    }

    #[test]
    fn a_location_is_pairs_of_type_and_name() {
        assert_eq!(parse_crush_location("").map(|pairs| pairs.len()), Ok(0));
        assert!(parse_crush_location("root=a host").is_err_and(|error| error.contains("'host'")));
    }
}
