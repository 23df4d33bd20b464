//! The configuration database: options by section and mask, and what of it concerns one entity.

mod who;

pub use who::{Target, Who};

use crate::batch::{Batch, Snapshot};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_options::{self as options, OptionError, OptionInfo};
use nacre_types::{EntityKind, Errno, UTime};
use std::collections::{BTreeMap, BTreeSet};

/// The table of values.
pub(crate) const PREFIX: &str = "config";

/// Values that are kept at most.
pub const VALUES_COUNT_MAX: usize = 10_000;
/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all values, their names and sections: what concerns a daemon is sent to it in one message.
pub const VALUES_BYTES_MAX: usize = 4 << 20;

const NO_MODULES: &str = "managers' modules are not built in, and no ceph-mgr is there that has such a one";

/// What the names of modules' options begin with: `mgr/MODULE/OPTION`.
pub(crate) const MODULES: &str = "mgr/";

/// Options that a daemon needs before it knows a monitor.
const LOCAL_ONLY: &[&str] = &["fsid", "host", "keyring", "mon_host", "osd_data", "mon_data"];

/// Why the database refused a change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The section or its mask has no such form.
    #[error("unrecognized config target '{0}'")]
    Who(String),
    /// No such option.
    #[error("unrecognized config option '{0}'")]
    Unknown(String),
    /// An option of a manager's module that is not known.
    #[error("{0} has no effect: {1}")]
    Module(String, &'static str),
    /// The option is read before a daemon knows a monitor.
    #[error(
        "{0} is needed before a daemon reaches the monitors: it stands in ceph.conf or on the command line"
    )]
    LocalOnly(String),
    /// The value does not fit.
    #[error("error parsing value: {0}")]
    Value(#[from] OptionError),
    /// No daemon of that section would read it.
    #[error("{name} has no effect for {who}: {instead}")]
    NotRead {
        /// Name of the option.
        name: &'static str,
        /// Section that it was to be set in.
        who: String,
        /// What holds, or where to set it.
        instead: String,
    },
    /// Too many values.
    #[error(
        "there is no room: {VALUES_COUNT_MAX} values of {VALUES_BYTES_MAX} bytes together are kept, and one of {VALUE_BYTES_MAX} at most; remove some with 'ceph config rm'"
    )]
    Full,
}

impl From<&ConfigError> for Errno {
    fn from(error: &ConfigError) -> Self {
        match error {
            ConfigError::NotRead { .. } | ConfigError::Module(..) => Self::EOPNOTSUPP,
            _ => Self::EINVAL,
        }
    }
}

impl Who {
    /// An option is kept only where a daemon or client reads it.
    fn check_readers(&self, option: &'static OptionInfo) -> Result<(), ConfigError> {
        let readers = option.readers();
        let fits = match self.kind {
            None => !readers.is_empty(),
            Some(EntityKind::OSD) => readers.contains(&"osd"),
            Some(EntityKind::MON) => readers.contains(&"mon"),
            Some(EntityKind::CLIENT) => readers.contains(&"client"),
            // A ceph-mgr is a client of the cluster as well.
            Some(EntityKind::MGR) => readers.contains(&"mgr") || readers.contains(&"client"),
            Some(EntityKind::MDS) => readers.contains(&"mds") || readers.contains(&"client"),
            Some(_) => false,
        };
        // Only OSDs have a place and a class.
        if fits && (self.mask.0.is_empty() || readers.contains(&"osd")) {
            return Ok(());
        }
        let instead = match option.missing() {
            Some(reason) => reason.to_owned(),
            None => format!("it is read by {}", readers.join(" and ")),
        };
        Err(ConfigError::NotRead { name: option.name, who: self.to_string(), instead })
    }
}

/// The values of the configuration database, by section and option.
#[derive(Debug, Default)]
pub struct ConfigDb {
    values: BTreeMap<(Who, String), String>,
    /// Which of them no option may have, and why.
    unusable: BTreeMap<(Who, String), OptionError>,
    /// Name of the monitor that we are, such as `a`.
    monitor: String,
    /// Grows with every change; subscribers compare it.
    version: u64,
    /// The newest changes, oldest first, by number.
    history: BTreeMap<u64, Changeset>,
    /// Changes that the next batch will hold.
    unstamped: Vec<Change>,
    /// Keys in the store of values that have changed since subscribers were told last.
    changed: BTreeSet<String>,
    changes: Batch,
}

/// Where the history is kept, and how many of its entries.
const HISTORY_PREFIX: &str = "config-history";
const HISTORY_COUNT_MAX: usize = 1000;

/// A value that was set or removed: section and option, before, after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// `section/option`.
    pub name: String,
    /// The value before; `None` when there was none.
    pub old: Option<String>,
    /// The value since; `None` when there is none.
    pub new: Option<String>,
}

/// What changed at once. Stored as an envelope (1, 1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changeset {
    /// When it was made.
    pub stamp: UTime,
    /// The values before and after.
    pub changes: Vec<Change>,
}

fn put_option(w: &mut Writer, value: Option<&String>) {
    w.u8(value.is_some().into());
    w.str(value.map_or("", String::as_str));
}

fn get_option(r: &mut Reader) -> Result<Option<String>, DecodeError> {
    let is_some = r.u8()? != 0;
    let value: String = r.get()?;
    Ok(is_some.then_some(value))
}

impl Encode for Change {
    fn encode(&self, w: &mut Writer) {
        w.str(&self.name);
        put_option(w, self.old.as_ref());
        put_option(w, self.new.as_ref());
    }
}

impl Decode for Change {
    const MIN_BYTES: usize = 14;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { name: r.get()?, old: get_option(r)?, new: get_option(r)? })
    }
}

impl Encode for Changeset {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.stamp);
            w.put(&self.changes);
        });
    }
}

impl Decode for Changeset {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("configuration changeset", 1, |_, r| Ok(Self { stamp: r.get()?, changes: r.get()? }))
    }
}

/// Key of a value in the store. A slash stands in the names of modules' options only, which begin with `mgr/`; else the last one separates.
fn key(who: &Who, name: &str) -> String {
    format!("{who}/{name}")
}

pub(crate) fn parse_key(key: &str) -> Option<(Who, String)> {
    let of_module = key.find("/mgr/").and_then(|at| Some((key.get(..at)?, key.get(at + 1..)?)));
    let (who, name) = of_module.or_else(|| key.rsplit_once('/'))?;
    Some((Who::parse(who)?, name.to_owned()))
}

fn bytes_of((who, name): &(Who, String), value: &str) -> usize {
    who.id.len() + who.mask.0.len() + who.mask.1.len() + name.len() + value.len()
}

/// An option as the manager `manager`, such as `a`, has it: what is kept for it alone (`mgr.a`), for all of them, or for everybody, and of a
/// module's option `mgr/MODULE/OPTION` before that what is kept for it as `mgr/MODULE/a/OPTION`.
pub(crate) fn of_manager<'a>(
    values: &'a BTreeMap<(Who, String), String>,
    manager: &str,
    name: &str,
) -> Option<&'a str> {
    let of_module = name.strip_prefix(MODULES).and_then(|rest| rest.split_once('/'));
    let own = of_module.map(|(module, option)| format!("{MODULES}{module}/{manager}/{option}"));
    let sections = [Who::parse(&format!("mgr.{manager}")), Who::parse("mgr"), Some(Who::global())];
    own.into_iter().chain([name.to_owned()]).find_map(|name| {
        let of = |who: &Who| values.get(&(who.clone(), name.clone())).map(String::as_str);
        sections.iter().flatten().find_map(of)
    })
}

impl ConfigDb {
    pub(crate) fn open(snapshot: &dyn Snapshot, monitor: &str) -> Self {
        let pairs = snapshot.scan(PREFIX).into_iter();
        let values = pairs.filter_map(|(key, value)| {
            Some((parse_key(&key)?, String::from_utf8_lossy(&value).into_owned()))
        });
        let values: BTreeMap<_, _> = values.collect();
        let unusable = values.iter().filter_map(|(entry, value)| {
            let error = options::find(&entry.1)?.check(value).err()?;
            Some((entry.clone(), error))
        });
        let history = snapshot.scan(HISTORY_PREFIX).into_iter();
        let history = history
            .filter_map(|(number, value)| Some((number.parse().ok()?, Changeset::from_bytes(value).ok()?)));
        Self {
            unusable: unusable.collect(),
            values,
            monitor: monitor.to_owned(),
            version: 1,
            history: history.collect(),
            unstamped: Vec::new(),
            changed: BTreeSet::new(),
            changes: Batch::default(),
        }
    }

    /// No values, for the monitor of this name; [`ConfigDb::take_in`] brings them.
    pub(crate) fn of_monitor_named(monitor: &str) -> Self {
        Self { monitor: monitor.to_owned(), ..Self::default() }
    }

    /// Takes over what the table has under `key` by now, if it is a value of an option that monitors read. A database that does so makes no
    /// changes of its own.
    pub(crate) fn take_in(&mut self, key: &str, value: Option<&Bytes>) {
        let is_read =
            |name: &str| options::find(name).is_some_and(|option| option.readers().contains(&"mon"));
        let Some(entry) = parse_key(key).filter(|(_, name)| is_read(name)) else { return };
        self.unusable.remove(&entry);
        match value {
            None => drop(self.values.remove(&entry)),
            Some(value) => {
                let value = String::from_utf8_lossy(value).into_owned();
                if let Some(error) = options::find(&entry.1).and_then(|option| option.check(&value).err()) {
                    self.unusable.insert(entry.clone(), error);
                }
                self.values.insert(entry, value);
            }
        }
    }

    /// Values that the store holds and no option may have: another version wrote them, or a person by hand. They have no effect.
    pub(crate) fn unusable(&self) -> impl Iterator<Item = (&Who, &str, &str, &OptionError)> {
        let value = |entry| self.values.get(entry).map_or("", String::as_str);
        self.unusable.iter().map(move |(entry, error)| (&entry.0, entry.1.as_str(), value(entry), error))
    }

    /// Grows with every change since the start.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// `SECTION/OPTION` of values that have changed since the last call, with what they are now.
    pub(crate) fn take_changed(&mut self) -> BTreeMap<String, Option<String>> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let value = |key: &str| self.values.get(&parse_key(key)?).cloned();
        changed.map(|key| (key.clone(), value(&key))).collect()
    }

    /// Every value: section, option, text.
    pub fn iter(&self) -> impl Iterator<Item = (&Who, &str, &str)> {
        self.values.iter().map(|((who, name), value)| (who, name.as_str(), value.as_str()))
    }

    /// What is stored for a section, whatever the option.
    #[must_use]
    pub fn value(&self, who: &Who, name: &str) -> Option<&str> {
        self.values.get(&(who.clone(), name.to_owned())).map(String::as_str)
    }

    /// An option as our own manager has it: see [`of_manager`].
    pub(crate) fn of_own_manager(&self, name: &str) -> Option<&str> {
        of_manager(&self.values, &self.monitor, name)
    }

    /// Stores a checked value and returns it as stored.
    ///
    /// # Errors
    /// [`ConfigError`] when the option is unknown (unless `force`), local, or the value does not fit.
    pub fn set(&mut self, who: &Who, name: &str, value: &str, force: bool) -> Result<String, ConfigError> {
        let (name, value) = match options::find(name) {
            Some(option) if LOCAL_ONLY.contains(&option.name) => {
                return Err(ConfigError::LocalOnly(option.name.to_owned()));
            }
            Some(option) => {
                who.check_readers(option)?;
                (option.name.to_owned(), option.check(value)?)
            }
            None if name.starts_with(MODULES) && !force => {
                return Err(ConfigError::Module(name.to_owned(), NO_MODULES));
            }
            None if force => (name.to_owned(), value.to_owned()),
            None => return Err(ConfigError::Unknown(name.to_owned())),
        };
        self.store(who, name, value)
    }

    /// Stores a value of an option of a manager's module. The caller has looked whether the module takes it.
    ///
    /// # Errors
    /// [`ConfigError::Full`], and [`ConfigError::NotRead`] for sections of others than managers.
    pub fn set_of_module(&mut self, who: &Who, name: &str, value: String) -> Result<String, ConfigError> {
        if who.kind.is_some_and(|kind| kind != EntityKind::MGR) || !who.mask.0.is_empty() {
            return Err(ConfigError::Module(name.to_owned(), "it is read by managers: set it for mgr"));
        }
        self.store(who, name.to_owned(), value)
    }

    fn store(&mut self, who: &Who, name: String, value: String) -> Result<String, ConfigError> {
        let entry = (who.clone(), name);
        let is_new = !self.values.contains_key(&entry);
        if value.len() > VALUE_BYTES_MAX
            || is_new && self.values.len() >= VALUES_COUNT_MAX
            || self.bytes_without(&entry) + bytes_of(&entry, &value) > VALUES_BYTES_MAX
        {
            return Err(ConfigError::Full);
        }
        if self.values.get(&entry) != Some(&value) {
            self.changes.put(PREFIX, key(who, &entry.1), Bytes::from(value.clone()));
            self.unusable.remove(&entry);
            let name = key(who, &entry.1);
            let old = self.values.insert(entry, value.clone());
            self.changed.insert(name.clone());
            self.unstamped.push(Change { name, old, new: Some(value.clone()) });
            self.version += 1;
        }
        Ok(value)
    }

    fn bytes_without(&self, entry: &(Who, String)) -> usize {
        self.values
            .iter()
            .filter(|(other, _)| *other != entry)
            .map(|(other, value)| bytes_of(other, value))
            .sum()
    }

    /// Removes a value; false when it was not there.
    pub fn remove(&mut self, who: &Who, name: &str) -> bool {
        let name = options::find(name).map_or(name, |option| option.name);
        let entry = (who.clone(), name.to_owned());
        self.unusable.remove(&entry);
        let old = self.values.remove(&entry);
        let was_there = old.is_some();
        if was_there {
            self.changed.insert(key(who, name));
            self.unstamped.push(Change { name: key(who, name), old, new: None });
            self.changes.delete(PREFIX, key(who, name));
            self.version += 1;
        }
        was_there
    }

    /// The values that concern `target`, with the section each comes from: of several, the most specific.
    #[must_use]
    pub fn effective(&self, target: &Target<'_>) -> BTreeMap<&str, (&Who, &str)> {
        let concerning = self.values.iter().filter(|(entry, _)| entry.0.concerns(target));
        let usable = concerning.filter(|(entry, _)| !self.unusable.contains_key(entry));
        let mut found: Vec<_> =
            usable.map(|((who, name), value)| (who, name.as_str(), value.as_str())).collect();
        found.sort_by_key(|(who, ..)| who.rank());
        found.into_iter().map(|(who, name, value)| (name, (who, value))).collect()
    }

    /// An option as the monitor itself is configured: the database's value, or the default.
    #[must_use]
    pub fn of_monitor(&self, name: &str) -> Option<&str> {
        self.of_other_monitor(name, &self.monitor)
    }

    /// An option as the monitor `monitor` is configured, such as `b`.
    #[must_use]
    pub fn of_other_monitor(&self, name: &str, monitor: &str) -> Option<&str> {
        let default = options::find(name).map(|option| option.default);
        let own = Who::parse(&format!("mon.{monitor}")).filter(|_| !monitor.is_empty());
        let sections = [own, Who::parse("mon"), Some(Who::global())];
        let stored = sections.into_iter().flatten().find_map(|who| {
            let entry = (who, name.to_owned());
            self.values.get(&entry).filter(|_| !self.unusable.contains_key(&entry))
        });
        stored.map(String::as_str).or(default)
    }

    /// [`ConfigDb::of_monitor`] as a number.
    #[must_use]
    pub fn number_of_monitor(&self, name: &str, fallback: f64) -> f64 {
        self.of_monitor(name).and_then(|text| text.parse().ok()).unwrap_or(fallback)
    }

    /// [`ConfigDb::of_monitor`] as a truth value.
    #[must_use]
    pub fn flag_of_monitor(&self, name: &str) -> bool {
        self.of_monitor(name) == Some("true")
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The newest changes that are stored, oldest first, by number.
    #[must_use]
    pub fn history(&self) -> &BTreeMap<u64, Changeset> {
        &self.history
    }

    pub(crate) fn flush(&mut self, wall: UTime, batch: &mut Batch) {
        if !self.unstamped.is_empty() {
            let number = self.history.last_key_value().map_or(1, |(number, _)| number + 1);
            let changeset = Changeset { stamp: wall, changes: std::mem::take(&mut self.unstamped) };
            self.changes.put(HISTORY_PREFIX, number.to_string(), changeset.to_bytes());
            self.history.insert(number, changeset);
            while self.history.len() > HISTORY_COUNT_MAX
                && let Some((oldest, _)) = self.history.pop_first()
            {
                self.changes.delete(HISTORY_PREFIX, oldest.to_string());
            }
        }
        batch.append(&mut self.changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::AuthName;

    fn who(text: &str) -> Who {
        Who::parse(text).expect("a valid section")
    }

    fn of(db: &ConfigDb, name: &str, option: &str) -> Option<String> {
        let name = AuthName::parse(name).expect("a valid name");
        let location = BTreeMap::from([("host".to_owned(), "a".to_owned())]);
        let target = Target { name: &name, device_class: None, location: &location };
        db.effective(&target).get(option).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_most_specific_section_wins() {
        let mut db = ConfigDb::default();
        for (section, value) in
            [("global", "1"), ("osd", "2"), ("osd.3", "3"), ("osd/host:a", "4"), ("osd/host:b", "5")]
        {
            db.set(&who(section), "osd_max_backfills", value, false).expect("a valid value");
        }
        assert_eq!(of(&db, "client.x", "osd_max_backfills").as_deref(), Some("1"));
        assert_eq!(of(&db, "osd.3", "osd_max_backfills").as_deref(), Some("3"));
        assert_eq!(of(&db, "osd.31", "osd_max_backfills").as_deref(), Some("4"));
    }

    #[test]
    fn names_match_whole_dotted_parts() {
        let mut db = ConfigDb::default();
        db.set(&who("client.rgw"), "rgw_frontends", "beast", false).expect("a valid value");
        assert!(of(&db, "client.rgw.a", "rgw_frontends").is_some());
        assert!(of(&db, "client.rgwx", "rgw_frontends").is_none());
    }

    #[test]
    fn sections_print_as_they_are_read_and_survive_the_store() {
        for text in ["global", "osd", "osd.3", "client.rgw.a", "osd/class:ssd", "global/rack:r1"] {
            assert_eq!(who(text).to_string(), text);
        }
        assert_eq!(who("host:a").to_string(), "global/host:a");
        assert_eq!(Who::parse("nonsense"), None);
        let mut db = ConfigDb::default();
        db.set(&who("osd/class:ssd"), "osd_max_backfills", "7", false).expect("a valid value");
        let mut batch = Batch::default();
        db.flush(UTime::ZERO, &mut batch);
        let mut kv = crate::batch::MemorySnapshot::default();
        kv.apply(&batch);
        assert_eq!(ConfigDb::open(&kv, "a").values, db.values);
    }

    #[test]
    fn options_of_modules_have_slashes_in_their_names() {
        let mut db = ConfigDb::default();
        let (name, value) = ("mgr/prometheus/server_port", "9284".to_owned());
        assert!(matches!(db.set(&who("mgr"), name, &value, false), Err(ConfigError::Module(..))));
        assert!(matches!(db.set_of_module(&who("osd"), name, value.clone()), Err(ConfigError::Module(..))));
        for section in ["global", "mgr", "mgr.x"] {
            db.set_of_module(&who(section), name, value.clone()).expect("a section of managers");
            assert_eq!(parse_key(&key(&who(section), name)), Some((who(section), name.to_owned())));
        }
        assert_eq!(of(&db, "mgr.x", name), Some(value));
        let plain = "osd_max_backfills".to_owned();
        assert_eq!(parse_key("osd/class:ssd/osd_max_backfills"), Some((who("osd/class:ssd"), plain)));
    }

    #[test]
    fn unknown_local_and_ill_typed_options_are_refused() {
        let mut db = ConfigDb::default();
        let refusal = |db: &mut ConfigDb, name: &str, value: &str| db.set(&Who::global(), name, value, false);
        assert!(matches!(refusal(&mut db, "no_such_option", "1"), Err(ConfigError::Unknown(_))));
        assert!(matches!(refusal(&mut db, "host", "a"), Err(ConfigError::LocalOnly(_))));
        assert!(matches!(refusal(&mut db, "osd_max_backfills", "x"), Err(ConfigError::Value(_))));
        assert!(!db.is_dirty());
    }
}
