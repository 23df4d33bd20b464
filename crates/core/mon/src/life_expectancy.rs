//! [`LifeExpectancies`]: when devices are expected to fail, by the word of a person or of a tool that predicts it. Ceph's manager keeps the
//! same among the config keys, as `device/<id>` (`src/mgr/DaemonState.cc: DeviceState` at v16.2.15), and so do we: a stock manager that takes
//! over knows of it.

use crate::config_key::ConfigKeys;
use nacre_buf::Bytes;
use nacre_types::UTime;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the keys begin with.
const PREFIX: &str = "device/";
const MIN: &str = "life_expectancy_min";
const MAX: &str = "life_expectancy_max";
const STAMP: &str = "life_expectancy_stamp";

/// When a device is expected to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LifeExpectancy {
    /// It is not expected to fail before.
    pub(crate) min: UTime,
    /// It is expected to have failed by then, where that is known.
    pub(crate) max: Option<UTime>,
    /// When somebody said so.
    pub(crate) stamp: UTime,
}

impl LifeExpectancy {
    fn of(value: &Bytes) -> Option<Self> {
        let kept: Map<String, Value> = serde_json::from_slice(value).ok()?;
        // No moment is written as that of a clock that never ran.
        let at = |name: &str| UTime::parse(kept.get(name)?.as_str()?).filter(|at| !at.is_zero());
        Some(Self { min: at(MIN)?, max: at(MAX), stamp: at(STAMP).unwrap_or_default() })
    }

    /// What is left of its life, as `ceph device ls` shows it.
    pub(crate) fn text(&self, wall: UTime) -> String {
        let left = |until: UTime| nacre_format::age(until.since(wall));
        match self.max {
            _ if self.min <= wall => "now".to_owned(),
            None => format!(">{}", left(self.min)),
            Some(max) if left(max) == left(self.min) => left(max),
            Some(max) => format!("{} to {}", left(self.min), left(max)),
        }
    }

    /// The same as moments.
    pub(crate) fn moments(&self) -> String {
        let max = self.max.map_or_else(|| "an unknown time".to_owned(), |max| max.to_string());
        format!("between {} and {max}", self.min)
    }

    /// Whether it may be over within this time, for all that is known.
    pub(crate) fn ends_within(&self, span: Duration, wall: UTime) -> bool {
        self.max.is_some_and(|max| max.since(wall) <= span)
    }
}

/// All of them, read once: health looks at them each second.
#[derive(Debug, Default)]
pub(crate) struct LifeExpectancies {
    /// [`ConfigKeys::version`] of what is known.
    version: u64,
    known: BTreeMap<String, LifeExpectancy>,
}

impl LifeExpectancies {
    pub(crate) fn open(keys: &ConfigKeys) -> Self {
        let mut all = Self::default();
        all.refresh(keys);
        all
    }

    /// Takes in what has changed since the last time. Cheap when nothing has.
    pub(crate) fn refresh(&mut self, keys: &ConfigKeys) {
        if self.version != keys.version() {
            self.version = keys.version();
            let all = keys.iter_prefix(PREFIX);
            let known = all.filter_map(|(key, value)| {
                Some((key.strip_prefix(PREFIX)?.to_owned(), LifeExpectancy::of(value)?))
            });
            self.known = known.collect();
        }
    }

    pub(crate) fn of(&self, device: &str) -> Option<&LifeExpectancy> {
        self.known.get(device)
    }

    /// All of them by device.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &LifeExpectancy)> {
        self.known.iter().map(|(device, life)| (device.as_str(), life))
    }
}

/// Notes when a device is expected to fail, or that nobody knows any more; what else is kept of it stays. False when there is no room.
pub(crate) fn set(keys: &mut ConfigKeys, device: &str, life: Option<LifeExpectancy>) -> bool {
    let key = format!("{PREFIX}{device}");
    let kept = keys.value(&key).and_then(|value| serde_json::from_slice(value).ok());
    let mut kept: Map<String, Value> = kept.unwrap_or_default();
    for name in [MIN, MAX, STAMP] {
        kept.remove(name);
    }
    if let Some(life) = life {
        let moments = [(MIN, Some(life.min)), (MAX, life.max), (STAMP, Some(life.stamp))];
        let moments = moments.into_iter().filter_map(|(name, at)| Some((name, at?)));
        kept.extend(moments.map(|(name, at)| (name.to_owned(), Value::from(at.to_string()))));
    }
    if kept.is_empty() {
        keys.remove(&key);
        return true;
    }
    let value = Bytes::from(Value::Object(kept).to_string());
    let has_room = keys.has_room(&key, value.len());
    if has_room {
        keys.set(&key, value);
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    #[test]
    fn what_is_left_is_shown_in_large_units() {
        const DAY: u32 = 86_400;
        let now = at(1000 * DAY);
        let life = |min: u32, max: Option<u32>| LifeExpectancy {
            min: at((1000 + min) * DAY),
            max: max.map(|max| at((1000 + max) * DAY)),
            stamp: now,
        };
        assert_eq!(life(0, Some(9)).text(now), "now");
        assert_eq!(life(21, None).text(now), ">3w");
        assert_eq!(life(21, Some(42)).text(now), "3w to 6w");
        assert_eq!(life(21, Some(22)).text(now), "3w");
        assert!(life(21, Some(22)).ends_within(Duration::from_secs(22 * 86_400), now));
        assert!(!life(21, Some(22)).ends_within(Duration::from_secs(21 * 86_400), now));
        assert!(!life(21, None).ends_within(Duration::MAX, now), "nobody says that it ends");
    }

    #[test]
    fn it_is_kept_beside_what_others_keep_of_a_device() {
        let mut keys = ConfigKeys::default();
        keys.set("device/a", Bytes::from_static(br#"{"wear_level":"0.5","life_expectancy_max":"0.000000"}"#));
        keys.set("device/b", Bytes::from_static(b"nonsense"));
        let life = LifeExpectancy { min: at(86_400), max: None, stamp: at(3600) };
        for device in ["a", "b"] {
            assert!(set(&mut keys, device, Some(life)));
        }
        let mut all = LifeExpectancies::open(&keys);
        assert_eq!((all.of("a"), all.of("b"), all.iter().count()), (Some(&life), Some(&life), 2));
        for device in ["a", "b", "c"] {
            assert!(set(&mut keys, device, None));
        }
        all.refresh(&keys);
        assert_eq!(all.iter().count(), 0);
        assert_eq!(keys.value("device/a").map(|value| &value[..]), Some(&br#"{"wear_level":"0.5"}"#[..]));
        assert_eq!(keys.value("device/b"), None);
        assert!(!set(&mut keys, &"x".repeat(crate::config_key::KEY_BYTES_MAX), Some(life)), "no room");
    }
}
