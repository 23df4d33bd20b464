//! Device classes: each root gets, per class, a filtered copy of its tree (the shadow tree) for rules to take.
//!
//! ```text
//! default            default~ssd
//! +- h0              +- h0~ssd
//! |  +- osd.0 ssd    |  +- osd.0
//! |  +- osd.1 hdd    +- h1~ssd        (empty copies stay)
//! +- h1
//!    +- osd.2 hdd
//! ```

use crate::{Bucket, ChooseArg, CrushMap, EditError};
use std::collections::BTreeMap;

/// Buckets that a copy may pass through; deeper trees are taken for cycles.
const DEPTH_MAX: usize = 64;

type Shadows = BTreeMap<i32, BTreeMap<i32, i32>>;

impl CrushMap {
    /// Id of the class of this name, made if it is new.
    pub fn class_or_new(&mut self, name: &str) -> i32 {
        if let Some(id) = self.class_by_name(name) {
            return id;
        }
        let id = (0..).find(|id| !self.class_names.contains_key(id)).unwrap_or(0);
        self.class_names.insert(id, name.to_owned());
        id
    }

    /// Gives device `item` a class. The caller rebuilds the shadow trees afterwards.
    pub fn set_item_class(&mut self, item: i32, class: &str) {
        let class = self.class_or_new(class);
        self.item_classes.insert(item, class);
    }

    /// Takes the class of device `item` away; true if it had one.
    pub fn clear_item_class(&mut self, item: i32) -> bool {
        self.item_classes.remove(&item).is_some()
    }

    /// Gives a class another name; shadow buckets follow.
    ///
    /// # Errors
    /// [`EditError::NoSuchClass`], [`EditError::NameTaken`].
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let class = self.class_by_name(from).ok_or_else(|| EditError::NoSuchClass(from.to_owned()))?;
        if self.class_by_name(to).is_some() {
            return Err(EditError::NameTaken(to.to_owned()));
        }
        self.class_names.insert(class, to.to_owned());
        for (original, shadows) in &self.class_buckets {
            let (Some(id), Some(name)) = (shadows.get(&class), self.item_names.get(original)) else {
                continue;
            };
            let name = format!("{name}~{to}");
            self.item_names.insert(*id, name);
        }
        Ok(())
    }

    /// Makes the shadow trees anew from the real ones. Shadow buckets keep their ids, because rules name them.
    ///
    /// Classes that no device has and no rule takes are dropped.
    ///
    /// # Errors
    /// [`EditError::TooMany`].
    pub fn rebuild_shadow_trees(&mut self) -> Result<(), EditError> {
        let old = std::mem::take(&mut self.class_buckets);
        self.drop_unused_classes(&old);
        for id in old.values().flat_map(|shadows| shadows.values()) {
            self.drop_bucket(*id);
        }
        let roots: Vec<i32> = self.roots().collect();
        let classes: Vec<i32> = self.class_names.keys().copied().collect();
        for root in roots {
            for class in &classes {
                self.copy_for_class(root, *class, &old, DEPTH_MAX)?;
            }
        }
        Ok(())
    }

    fn drop_unused_classes(&mut self, old: &Shadows) {
        let unused: Vec<i32> =
            self.class_names.keys().copied().filter(|class| !self.class_in_use(*class, old)).collect();
        for class in unused {
            self.class_names.remove(&class);
        }
    }

    fn class_in_use(&self, class: i32, shadows: &Shadows) -> bool {
        let taken = |id: &i32| self.rule_that_takes(*id).is_some();
        self.item_classes.values().any(|found| *found == class)
            || shadows.values().filter_map(|ids| ids.get(&class)).any(taken)
    }

    /// An id that no bucket has and no old shadow bucket will want back.
    fn free_shadow_id(&self, old: &Shadows) -> Result<i32, EditError> {
        let mut id = self.free_bucket_id()?;
        let wanted = |id: i32| old.values().any(|ids| ids.values().any(|found| *found == id));
        while self.bucket(id).is_some() || wanted(id) {
            id -= 1;
        }
        Ok(id)
    }

    /// Copies the tree below `original` with only the devices of `class`; returns the copy's root.
    fn copy_for_class(
        &mut self,
        original: i32,
        class: i32,
        old: &Shadows,
        depth: usize,
    ) -> Result<i32, EditError> {
        if let Some(id) = self.class_buckets.get(&original).and_then(|ids| ids.get(&class)) {
            return Ok(*id);
        }
        let Some(source) = self.bucket(original).cloned().filter(|_| depth > 0) else {
            return Err(EditError::TooMany("levels"));
        };
        let mut entries = Vec::new();
        let mut places = Vec::new();
        for (place, (item, weight)) in source.entries().enumerate() {
            if item < 0 {
                let below = self.copy_for_class(item, class, old, depth - 1)?;
                entries.push((below, self.bucket(below).map_or(0, |bucket| bucket.weight)));
                places.push(place);
            } else if self.item_classes.get(&item) == Some(&class) {
                entries.push((item, weight));
                places.push(place);
            }
        }
        let id = match old.get(&original).and_then(|ids| ids.get(&class)) {
            Some(id) => *id,
            None => self.free_shadow_id(old)?,
        };
        self.put_copy(&source, id, class, &entries);
        self.copy_weight_sets(original, id, &entries, &places);
        Ok(id)
    }

    fn put_copy(&mut self, source: &Bucket, id: i32, class: i32, entries: &[(i32, u32)]) {
        let mut copy = Bucket::new(id, source.kind, source.alg());
        copy.hash = source.hash;
        copy.set_entries(entries, self.tunables.straw_calc_version);
        self.put_bucket(copy);
        let class_name = self.class_names.get(&class).cloned().unwrap_or_default();
        let name = format!("{}~{class_name}", self.label(source.id));
        self.item_names.insert(id, name);
        self.item_classes.insert(id, class);
        self.class_buckets.entry(source.id).or_default().insert(class, id);
    }

    /// The copy's weight sets: devices weigh what they do in the original, buckets the sum of their copy.
    fn copy_weight_sets(&mut self, original: i32, copy: i32, entries: &[(i32, u32)], places: &[usize]) {
        let slot = |id: i32| u32::try_from(-1 - i64::from(id)).unwrap_or(u32::MAX);
        for args in self.choose_args.values_mut() {
            let Some(source) = args.get(&slot(original)) else { continue };
            let weight = |position: usize, (item, _): &(i32, u32), place: &usize| {
                if *item >= 0 {
                    return source.weight_set.get(position)?.get(*place).copied();
                }
                let below = args.get(&slot(*item))?.weight_set.get(position)?;
                Some(below.iter().fold(0_u32, |sum, weight| sum.wrapping_add(*weight)))
            };
            let list = |position: usize| -> Vec<u32> {
                let pairs = entries.iter().zip(places);
                pairs.map(|(entry, place)| weight(position, entry, place).unwrap_or(0)).collect()
            };
            let weight_set = (0..source.weight_set.len()).map(list).collect();
            args.insert(slot(copy), ChooseArg { weight_set, ids: Vec::new() });
        }
    }
}
