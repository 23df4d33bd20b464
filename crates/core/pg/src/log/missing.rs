//! [`Missing`]: objects that one copy lacks in the version that the log demands.

use nacre_msg::peer::MissingItem;
use nacre_types::{Eversion, HObject, SnapId};
use std::collections::BTreeMap;

/// Objects to the version that is needed; zero where the object must not exist.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    items: BTreeMap<HObject, Eversion>,
}

impl Missing {
    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// True when nothing is missing.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The oldest version above `tail` that is needed.
    pub(crate) fn oldest_need_above(&self, tail: Eversion) -> Option<Eversion> {
        self.items.values().filter(|need| **need > tail).min().copied()
    }

    /// Notes that `need` is needed of `object`.
    pub(crate) fn insert(&mut self, object: HObject, need: Eversion) {
        self.items.insert(object, need);
    }

    /// Notes that `object` is as it should be.
    pub(crate) fn remove(&mut self, object: &HObject) -> Option<Eversion> {
        self.items.remove(object)
    }

    /// The version that is needed of `object`, if it is missing.
    pub(crate) fn need(&self, object: &HObject) -> Option<Eversion> {
        self.items.get(object).copied()
    }

    /// Head and clones of `object` that are missing.
    pub(crate) fn family(&self, object: &HObject) -> impl Iterator<Item = (&HObject, Eversion)> + '_ {
        // Most PGs miss nothing most of the time: no keys are made then.
        let range = (!self.items.is_empty())
            .then(|| self.items.range(object.with_snap(SnapId(0))..=object.with_snap(SnapId::SNAPDIR)));
        range.into_iter().flatten().map(|(object, need)| (object, *need))
    }

    /// True when head or a clone of `object` is missing.
    pub(crate) fn has_family(&self, object: &HObject) -> bool {
        self.family(object).next().is_some()
    }

    /// All objects in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HObject, Eversion)> + '_ {
        self.items.iter().map(|(object, need)| (object, *need))
    }

    /// Those from `from` on, before `until`.
    pub(crate) fn between(
        &self,
        from: &HObject,
        until: &HObject,
    ) -> impl Iterator<Item = (&HObject, Eversion)> + '_ {
        let range = (from < until).then(|| self.items.range(from..until));
        range.into_iter().flatten().map(|(object, need)| (object, *need))
    }

    /// The first missing object at or behind `from`.
    pub(crate) fn next_from(&self, from: &HObject) -> Option<&HObject> {
        self.items.range(from..).next().map(|(object, _)| object)
    }

    /// As messages carry it.
    pub(crate) fn to_items(&self) -> Vec<MissingItem> {
        self.iter().map(|(object, need)| MissingItem { object: object.clone(), need }).collect()
    }
}

impl FromIterator<MissingItem> for Missing {
    fn from_iter<I: IntoIterator<Item = MissingItem>>(items: I) -> Self {
        Self { items: items.into_iter().map(|item| (item.object, item.need)).collect() }
    }
}
