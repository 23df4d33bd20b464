//! Changes of the hierarchy. Weights of all buckets above a change follow; weight sets keep their shape.
//!
//! Behaviour as Ceph `src/crush/CrushWrapper.cc` at v16.2.15. Call [`CrushMap::rebuild_shadow_trees`] after
//! the last change of a batch.

use crate::{BUCKET_ITEMS_MAX, BUCKETS_MAX, Bucket, BucketAlg, BucketBody, CrushMap, TREE_ITEMS_MAX};
use std::collections::BTreeMap;

/// Why a change of the map is refused; the map is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The name is in use.
    #[error("name {0} is in use")]
    NameTaken(String),
    /// Names are letters, digits, `-`, `_`, `.`, and not empty.
    #[error("{0:?} is not a valid name")]
    BadName(String),
    /// No device or bucket of this name or id.
    #[error("item {0} does not exist")]
    NoSuchItem(String),
    /// No level of this name.
    #[error("type {0} does not exist")]
    NoSuchType(String),
    /// No rule of this name.
    #[error("rule {0} does not exist")]
    NoSuchRule(String),
    /// No device class of this name.
    #[error("device class {0} does not exist")]
    NoSuchClass(String),
    /// The bucket still has items.
    #[error("bucket {0} is not empty")]
    NotEmpty(String),
    /// The item would stand below itself, or below something of a lower level.
    #[error("item {item} cannot stand below {parent}")]
    BadParent {
        /// What was to be put there.
        item: String,
        /// The bucket that it was to be put in.
        parent: String,
    },
    /// A rule takes the item.
    #[error("item {item} is in use by rule {rule}")]
    InUse {
        /// Name of the item.
        item: String,
        /// Name of the rule.
        rule: String,
    },
    /// No room: buckets, items or rules.
    #[error("too many {0}")]
    TooMany(&'static str),
}

/// Steps from a leaf to a root that a search follows; deeper trees are taken for cycles.
const DEPTH_MAX: usize = 64;

/// Level name to bucket name, such as `host` to `node-7`.
pub type Location = BTreeMap<String, String>;

/// Letters, digits, `-`, `_` and `.`, and at least one of them.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn slot_of(id: i32) -> Option<usize> {
    usize::try_from(-1 - i64::from(id)).ok()
}

impl CrushMap {
    /// How errors name an item.
    pub(crate) fn label(&self, item: i32) -> String {
        self.item_name(item).map_or_else(|| item.to_string(), str::to_owned)
    }

    pub(crate) fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(slot_of(id)?)?.as_mut()
    }

    fn existing(&self, id: i32) -> Result<&Bucket, EditError> {
        self.bucket(id).ok_or_else(|| EditError::NoSuchItem(self.label(id)))
    }

    /// Every bucket that holds `item`, shadow buckets left out.
    pub fn parents(&self, item: i32) -> impl Iterator<Item = i32> + '_ {
        self.each_bucket()
            .filter(move |bucket| bucket.items.contains(&item) && !self.is_shadow(bucket.id))
            .map(|bucket| bucket.id)
    }

    /// The bucket that holds `item`, if any; the first when several do.
    #[must_use]
    pub fn parent(&self, item: i32) -> Option<i32> {
        self.parents(item).next()
    }

    /// Buckets that no bucket holds, shadow trees left out, in order of slots.
    pub fn roots(&self) -> impl Iterator<Item = i32> + '_ {
        self.each_bucket()
            .map(|bucket| bucket.id)
            .filter(|id| !self.is_shadow(*id) && self.parent(*id).is_none())
    }

    /// Level of an item; 0 for devices.
    #[must_use]
    pub fn type_of(&self, item: i32) -> i32 {
        self.bucket(item).map_or(0, |bucket| bucket.kind.into())
    }

    /// Level names and bucket names from the item's parent up to the root.
    #[must_use]
    pub fn location(&self, item: i32) -> Location {
        let mut location = Location::new();
        let mut at = item;
        for _ in 0..DEPTH_MAX {
            let Some(parent) = self.parent(at) else { break };
            let level = self.type_names.get(&self.type_of(parent)).cloned().unwrap_or_default();
            location.insert(level, self.label(parent));
            at = parent;
        }
        location
    }

    /// True when `item` is `root` or stands anywhere below it.
    #[must_use]
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        self.walk(root).contains(&item)
    }

    /// All devices below `root` (or `root` itself if it is one), each once, ascending.
    #[must_use]
    pub fn devices_below(&self, root: i32) -> Vec<i32> {
        let mut devices: Vec<i32> = self.walk(root).into_iter().filter(|item| *item >= 0).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// `root` and everything below it, parents first; each bucket is entered once.
    fn walk(&self, root: i32) -> Vec<i32> {
        let mut found = vec![root];
        let mut entered = vec![false; self.buckets.len()];
        let mut at = 0;
        while let Some(item) = found.get(at).copied() {
            at += 1;
            let Some(seen) = slot_of(item).and_then(|slot| entered.get_mut(slot)) else { continue };
            if !std::mem::replace(seen, true) {
                found.extend(self.bucket(item).iter().flat_map(|bucket| &bucket.items));
            }
        }
        found
    }

    /// Weight of an item where it stands first, 16.16.
    #[must_use]
    pub fn item_weight(&self, item: i32) -> Option<u32> {
        let parent = self.bucket(self.parent(item)?)?;
        parent.items.iter().position(|found| *found == item).map(|index| parent.item_weight(index))
    }

    /// The lowest id of no bucket.
    ///
    /// # Errors
    /// [`EditError::TooMany`].
    pub(crate) fn free_bucket_id(&self) -> Result<i32, EditError> {
        let slot = self.buckets.iter().position(Option::is_none).unwrap_or(self.buckets.len());
        if slot >= BUCKETS_MAX {
            return Err(EditError::TooMany("buckets"));
        }
        i32::try_from(slot).map(|slot| -1 - slot).map_err(|_| EditError::TooMany("buckets"))
    }

    pub(crate) fn put_bucket(&mut self, bucket: Bucket) {
        let Some(slot) = slot_of(bucket.id) else { return };
        if self.buckets.len() <= slot {
            // Ceph grows the table in powers of two from 8.
            self.buckets.resize((slot + 1).next_power_of_two().max(8), None);
        }
        if let Some(place) = self.buckets.get_mut(slot) {
            *place = Some(bucket);
        }
    }

    /// Checks a name that is to be given.
    fn check_name(&self, name: &str) -> Result<(), EditError> {
        if !is_valid_name(name) {
            return Err(EditError::BadName(name.to_owned()));
        }
        match self.item_by_name(name) {
            Some(_) => Err(EditError::NameTaken(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Adds an empty straw2 bucket of level `kind`, standing nowhere yet; returns its id.
    ///
    /// # Errors
    /// [`EditError::BadName`], [`EditError::NameTaken`], [`EditError::NoSuchType`], [`EditError::TooMany`].
    pub fn add_bucket(&mut self, kind: i32, name: &str) -> Result<i32, EditError> {
        self.check_name(name)?;
        let level = u16::try_from(kind)
            .ok()
            .filter(|kind| *kind != 0 && self.type_names.contains_key(&(*kind).into()));
        let level = level.ok_or_else(|| EditError::NoSuchType(kind.to_string()))?;
        let id = self.free_bucket_id()?;
        self.put_bucket(Bucket::new(id, level, BucketAlg::Straw2));
        self.item_names.insert(id, name.to_owned());
        Ok(id)
    }

    /// Puts `item` with `weight` (16.16) below bucket `parent`.
    ///
    /// # Errors
    /// [`EditError::NoSuchItem`], [`EditError::BadParent`], [`EditError::TooMany`].
    pub fn link(&mut self, item: i32, parent: i32, weight: u32) -> Result<(), EditError> {
        let bucket = self.existing(parent)?;
        let fits = self.type_of(item) < i32::from(bucket.kind) && !bucket.items.contains(&item);
        if !fits || self.subtree_contains(item, parent) {
            return Err(EditError::BadParent { item: self.label(item), parent: self.label(parent) });
        }
        let items_max = if bucket.alg() == BucketAlg::Tree { TREE_ITEMS_MAX } else { BUCKET_ITEMS_MAX };
        if bucket.items.len() >= items_max {
            return Err(EditError::TooMany("items in one bucket"));
        }
        let mut entries: Vec<(i32, u32)> = bucket.entries().collect();
        entries.push((item, weight));
        for arg in self.args_of(parent) {
            arg.weight_set.iter_mut().for_each(|weights| weights.push(weight));
            if !arg.ids.is_empty() {
                arg.ids.push(item);
            }
        }
        self.set_entries(parent, &entries);
        Ok(())
    }

    /// Takes `item` out of bucket `parent`; nothing happens if it is not there.
    pub fn unlink(&mut self, item: i32, parent: i32) {
        let Some(bucket) = self.bucket(parent) else { return };
        let Some(index) = bucket.items.iter().position(|found| *found == item) else { return };
        let mut entries: Vec<(i32, u32)> = bucket.entries().collect();
        entries.remove(index);
        for arg in self.args_of(parent) {
            let lists = arg.weight_set.iter_mut().filter(|weights| index < weights.len());
            lists.for_each(|weights| {
                weights.remove(index);
            });
            if index < arg.ids.len() {
                arg.ids.remove(index);
            }
        }
        self.set_entries(parent, &entries);
    }

    /// The weight sets' entries for one bucket.
    fn args_of(&mut self, id: i32) -> impl Iterator<Item = &mut crate::ChooseArg> {
        let slot = slot_of(id).and_then(|slot| u32::try_from(slot).ok());
        self.choose_args.values_mut().filter_map(move |args| args.get_mut(&slot?))
    }

    /// Replaces a bucket's items and carries its new weight up to the roots.
    fn set_entries(&mut self, id: i32, entries: &[(i32, u32)]) {
        let version = self.tunables.straw_calc_version;
        if let Some(bucket) = self.bucket_mut(id) {
            bucket.set_entries(entries, version);
        }
        self.carry_weight(id, DEPTH_MAX);
    }

    fn carry_weight(&mut self, id: i32, depth: usize) {
        let Some(weight) = self.bucket(id).map(|bucket| bucket.weight) else { return };
        let parents: Vec<i32> = if depth == 0 { Vec::new() } else { self.parents(id).collect() };
        for parent in parents {
            self.set_weight_in(id, parent, weight);
            self.carry_weight(parent, depth - 1);
        }
    }

    /// Also in the weight sets, which the balancer then corrects again: Ceph's default
    /// (`osd_crush_update_weight_set`).
    fn set_weight_in(&mut self, item: i32, parent: i32, weight: u32) {
        let version = self.tunables.straw_calc_version;
        let Some(bucket) = self.bucket_mut(parent) else { return };
        let Some(index) = bucket.items.iter().position(|found| *found == item) else { return };
        let mut entries: Vec<(i32, u32)> = bucket.entries().collect();
        // All items of a uniform bucket share one weight.
        let uniform = matches!(bucket.body, BucketBody::Uniform { .. });
        for entry in entries.iter_mut().filter(|entry| uniform || entry.0 == item) {
            entry.1 = weight;
        }
        bucket.set_entries(&entries, version);
        let lists = self.args_of(parent).flat_map(|arg| &mut arg.weight_set);
        lists.filter_map(|weights| weights.get_mut(index)).for_each(|place| *place = weight);
    }

    /// Sets the weight (16.16) of a device wherever it stands; returns the number of places.
    ///
    /// # Errors
    /// [`EditError::NoSuchItem`] when it stands nowhere.
    pub fn set_item_weight(&mut self, item: i32, weight: u32) -> Result<usize, EditError> {
        let parents: Vec<i32> = self.parents(item).collect();
        if parents.is_empty() {
            return Err(EditError::NoSuchItem(self.label(item)));
        }
        for parent in &parents {
            self.set_weight_in(item, *parent, weight);
            self.carry_weight(*parent, DEPTH_MAX);
        }
        Ok(parents.len())
    }

    /// Sets the weight of every device below `root`; returns their number.
    ///
    /// # Errors
    /// [`EditError::NoSuchItem`].
    pub fn set_subtree_weight(&mut self, root: i32, weight: u32) -> Result<usize, EditError> {
        self.existing(root)?;
        let devices = self.devices_below(root);
        for device in &devices {
            self.set_item_weight(*device, weight)?;
        }
        Ok(devices.len())
    }

    /// Finds or makes the buckets of `location` from the bottom up; returns the lowest.
    fn make_location(&mut self, item: i32, location: &Location) -> Result<i32, EditError> {
        let mut levels = Vec::new();
        for (level, name) in location {
            let kind = self.type_by_name(level).ok_or_else(|| EditError::NoSuchType(level.clone()))?;
            levels.push((kind, name.as_str()));
        }
        levels.sort_unstable();
        let above = self.type_of(item);
        let mut below: Option<i32> = None;
        let mut lowest = None;
        for (kind, name) in levels.into_iter().filter(|(kind, _)| *kind > above) {
            let found = self.item_by_name(name);
            let id = match found {
                Some(id) if self.type_of(id) != kind => return Err(EditError::NameTaken(name.to_owned())),
                Some(id) => id,
                None => self.add_bucket(kind, name)?,
            };
            if let Some(below) = below {
                let weight = self.bucket(below).map_or(0, |bucket| bucket.weight);
                self.link(below, id, weight)?;
            }
            lowest = lowest.or(Some(id));
            below = Some(id);
            if found.is_some() {
                // What exists already stands where it stands.
                break;
            }
        }
        lowest.ok_or_else(|| EditError::NoSuchItem("location".to_owned()))
    }

    /// Puts device `item` with `weight` (16.16) and `name` at `location`, making the buckets that are missing.
    /// A device that stands elsewhere is moved.
    ///
    /// # Errors
    /// [`EditError`]; names and levels are checked before anything changes.
    pub fn insert_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<(), EditError> {
        match self.item_by_name(name) {
            Some(found) if found != item => return Err(EditError::NameTaken(name.to_owned())),
            _ if !is_valid_name(name) => return Err(EditError::BadName(name.to_owned())),
            _ => {}
        }
        let mut next = self.clone();
        let parent = next.make_location(item, location)?;
        for old in next.parents(item).collect::<Vec<_>>() {
            next.unlink(item, old);
        }
        next.item_names.insert(item, name.to_owned());
        next.max_devices = next.max_devices.max(item.saturating_add(1));
        next.link(item, parent, weight)?;
        *self = next;
        Ok(())
    }

    /// Moves an item with all below it to `location`.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn move_item(&mut self, item: i32, location: &Location) -> Result<(), EditError> {
        let mut next = self.clone();
        let weight = match next.bucket(item) {
            Some(bucket) => bucket.weight,
            None => next.item_weight(item).ok_or_else(|| EditError::NoSuchItem(self.label(item)))?,
        };
        for old in next.parents(item).collect::<Vec<_>>() {
            next.unlink(item, old);
        }
        let parent = next.make_location(item, location)?;
        next.link(item, parent, weight)?;
        *self = next;
        Ok(())
    }

    /// Removes a device or an empty bucket with its name, class and shadow buckets.
    ///
    /// # Errors
    /// [`EditError::NoSuchItem`], [`EditError::NotEmpty`], [`EditError::InUse`].
    pub fn remove_item(&mut self, item: i32) -> Result<(), EditError> {
        if !self.item_names.contains_key(&item) && self.bucket(item).is_none() {
            return Err(EditError::NoSuchItem(item.to_string()));
        }
        if self.bucket(item).is_some_and(|bucket| !bucket.items.is_empty()) {
            return Err(EditError::NotEmpty(self.label(item)));
        }
        let shadows: Vec<i32> =
            self.class_buckets.get(&item).into_iter().flat_map(|ids| ids.values()).copied().collect();
        for id in shadows.iter().chain([&item]) {
            if let Some(rule) = self.rule_that_takes(*id) {
                return Err(EditError::InUse { item: self.label(item), rule });
            }
        }
        for parent in self.parents(item).collect::<Vec<_>>() {
            self.unlink(item, parent);
        }
        for id in shadows {
            let holders: Vec<i32> = self
                .each_bucket()
                .filter(|bucket| bucket.items.contains(&id))
                .map(|bucket| bucket.id)
                .collect();
            for holder in holders {
                self.unlink(id, holder);
            }
            self.drop_bucket(id);
        }
        self.class_buckets.remove(&item);
        self.item_classes.remove(&item);
        self.item_names.remove(&item);
        self.drop_bucket(item);
        Ok(())
    }

    pub(crate) fn drop_bucket(&mut self, id: i32) {
        let Some(slot) = slot_of(id) else { return };
        if let Some(place) = self.buckets.get_mut(slot) {
            *place = None;
        }
        self.item_names.remove(&id);
        if let Ok(slot) = u32::try_from(slot) {
            self.choose_args.values_mut().for_each(|args| {
                args.remove(&slot);
            });
        }
    }

    /// Gives an item another name; shadow buckets follow.
    ///
    /// # Errors
    /// [`EditError::NoSuchItem`], [`EditError::NameTaken`], [`EditError::BadName`].
    pub fn rename_item(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let item = self.item_by_name(from).ok_or_else(|| EditError::NoSuchItem(from.to_owned()))?;
        self.check_name(to)?;
        self.item_names.insert(item, to.to_owned());
        for (class, id) in self.class_buckets.get(&item).into_iter().flatten() {
            let class = self.class_names.get(class).cloned().unwrap_or_default();
            self.item_names.insert(*id, format!("{to}~{class}"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
