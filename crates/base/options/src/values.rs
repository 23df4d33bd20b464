//! [`Values`]: what the options of one daemon are set to.

use crate::{OptionInfo, all, find};
use nacre_types::seconds;
use std::collections::BTreeMap;
use std::time::Duration;

/// The values of one daemon: what an operator set until it restarts, before what its `ceph.conf` has, before what the configuration
/// database has for it, before the default.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Values {
    told: BTreeMap<&'static str, String>,
    file: BTreeMap<&'static str, String>,
    stored: BTreeMap<&'static str, String>,
}

/// Where an option was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// In the configuration database.
    Stored,
    /// In its `ceph.conf`.
    File,
    /// Until it restarts.
    Told,
}

/// Names and values that are known, in their normal form.
fn known(config: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    let known = |(name, value): (&String, &String)| {
        let option = find(name)?;
        Some((option.name, option.check(value).ok()?))
    };
    config.iter().filter_map(known).collect()
}

impl Values {
    /// Takes in what the configuration database has for this daemon, all of it. Names and values that are not
    /// known here are left out: the monitor may be newer.
    pub fn store(&mut self, config: &BTreeMap<String, String>) {
        self.stored = known(config);
    }

    /// Takes in what its `ceph.conf` has for this daemon, all of it, but for names and values that are not known here.
    pub fn read_file(&mut self, config: &BTreeMap<String, String>) {
        self.file = known(config);
    }

    /// All that is set, layer by layer.
    pub fn set_in(&self) -> impl Iterator<Item = (&'static str, Layer, &str)> {
        let layers = [(Layer::Stored, &self.stored), (Layer::File, &self.file), (Layer::Told, &self.told)];
        layers.into_iter().flat_map(|(layer, values)| {
            values.iter().map(move |(name, value)| (*name, layer, value.as_str()))
        })
    }

    /// Sets a checked value until the daemon restarts.
    pub fn tell(&mut self, option: &'static OptionInfo, value: String) {
        self.told.insert(option.name, value);
    }

    /// The value in effect, in its normal form.
    #[must_use]
    pub fn of(&self, option: &'static OptionInfo) -> &str {
        let set = [&self.told, &self.file, &self.stored].into_iter().find_map(|layer| layer.get(option.name));
        set.map_or(option.default, String::as_str)
    }

    /// The value of an option of the table.
    ///
    /// # Panics
    /// When the table has no such option: our own mistake.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        let option = find(name);
        self.of(option.expect("options that daemons read are in the table"))
    }

    /// The value of a numeric option.
    ///
    /// # Panics
    /// When the table has no such option, or it is no number: our own mistake.
    #[must_use]
    pub fn number(&self, name: &str) -> f64 {
        self.text(name).parse().expect("checked when it was set")
    }

    /// The value of an option that counts something.
    ///
    /// # Panics
    /// When the table has no such option, or it is no number: our own mistake.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        // Rounds towards zero, and negative numbers to zero.
        self.number(name) as usize
    }

    /// The value of an option in seconds; negative ones mean none.
    ///
    /// # Panics
    /// When the table has no such option, or it is no number: our own mistake.
    #[must_use]
    pub fn seconds(&self, name: &str) -> Duration {
        seconds(self.number(name))
    }

    /// The value of an option that is true or false.
    ///
    /// # Panics
    /// When the table has no such option: our own mistake.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    /// Options whose values differ from their defaults.
    pub fn changed(&self) -> impl Iterator<Item = &'static OptionInfo> + '_ {
        all().filter(|option| self.of(option) != option.default)
    }
}

/// What the configuration database has, as names and values: see [`Values::store`].
impl<'a> FromIterator<(&'a str, &'a str)> for Values {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(config: T) -> Self {
        let mut values = Self::default();
        values.store(&config.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_comes_before_stored_comes_before_default() {
        let mut values = Values::default();
        assert_eq!(values.count("osd_max_backfills"), 3);
        let pairs = [("osd_max_backfills", "4"), ("no_such_option", "1"), ("osd_heartbeat_grace", "soon")];
        let config = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        values.store(&BTreeMap::from(config));
        assert_eq!(values.count("osd_max_backfills"), 4);
        let option = find("osd_max_backfills").expect("known");
        values.tell(option, "5".to_owned());
        values.store(&BTreeMap::new());
        assert_eq!(values.count("osd_max_backfills"), 5);
        assert_eq!(values.changed().collect::<Vec<_>>(), [option]);
    }

    #[test]
    fn a_file_comes_between_what_is_told_and_what_is_stored() {
        let mut values = Values::default();
        let of = |value: &str| BTreeMap::from([("osd_max_backfills".to_owned(), value.to_owned())]);
        values.store(&of("4"));
        values.read_file(&of("5"));
        values.store(&of("6"));
        assert_eq!(values.count("osd_max_backfills"), 5);
        values.tell(find("osd_max_backfills").expect("known"), "7".to_owned());
        assert_eq!(values.count("osd_max_backfills"), 7);
        let set: Vec<_> = values.set_in().map(|(_, layer, value)| (layer, value)).collect();
        assert_eq!(set, [(Layer::Stored, "6"), (Layer::File, "5"), (Layer::Told, "7")]);
    }

    #[test]
    fn values_are_read_by_kind() {
        let mut values = Values::default();
        let set = [("osd_heartbeat_grace", "12"), ("osd_fast_fail_on_connection_refused", "no")];
        let config = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        values.store(&BTreeMap::from(config));
        assert_eq!(values.seconds("osd_heartbeat_grace"), Duration::from_secs(12));
        assert!(!values.flag("osd_fast_fail_on_connection_refused"));
        assert_eq!(values.seconds("osd_crush_initial_weight"), Duration::ZERO, "negative");
    }
}
