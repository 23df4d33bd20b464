//! Every edit of the CRUSH map that commands and boots ask for, on the map itself and on that of the next epoch.
//!
//! Edits of buckets, devices and classes take names, happen whole or not at all, and leave the shadow trees up to date. How a map is edited
//! piece by piece is `nacre-crush`'s affair; what a reply says is that of `commands/crush.rs` and `commands/crush_rule.rs`.

use super::OsdMaps;
use nacre_crush::{CrushMap, EditError};
use nacre_types::OsdId;
use std::collections::BTreeMap;

/// Where an item belongs: names of buckets by the names of their types, such as `host=a root=default`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrushPlace(pub BTreeMap<String, String>);

impl CrushPlace {
    /// Below a host of the default root.
    #[must_use]
    pub fn host(host: &str) -> Self {
        let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        Self(BTreeMap::from([pair("host", host), pair("root", "default")]))
    }

    /// Reads `type=name` words.
    #[must_use]
    pub fn parse(words: &[String]) -> Option<Self> {
        let pair =
            |word: &String| word.split_once('=').map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        words.iter().map(pair).collect::<Option<_>>().map(Self)
    }
}

/// Why the hierarchy cannot be edited so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// No such type of bucket.
    #[error("unknown bucket type '{0}'")]
    Kind(String),
    /// A bucket of this name has another type.
    #[error("bucket '{0}' exists with another type")]
    OtherKind(String),
    /// None of the buckets named exists, so the item would hang nowhere.
    #[error("no bucket of the location exists")]
    Nowhere,
    /// The name is taken or not allowed.
    #[error("invalid or used name '{0}'")]
    Name(String),
    /// No such item.
    #[error("item '{0}' does not exist in the crush map")]
    NoItem(String),
    /// Something still hangs below it, or uses it.
    #[error("bucket '{0}' is not empty")]
    NotEmpty(String),
    /// A rule takes it.
    #[error("item {item} is in use by rule {rule}")]
    InUse {
        /// Name of the item.
        item: String,
        /// Name of the rule.
        rule: String,
    },
    /// It would hang below itself, or below something of a lower level.
    #[error("the item cannot stand there")]
    Cycle,
    /// No id is free for another bucket.
    #[error("too many buckets")]
    Full,
}

impl From<EditError> for LocationError {
    fn from(error: EditError) -> Self {
        match error {
            EditError::NoSuchItem(name) => Self::NoItem(name),
            EditError::NotEmpty(name) => Self::NotEmpty(name),
            EditError::NoSuchType(kind) => Self::Kind(kind),
            EditError::NameTaken(name) => Self::OtherKind(name),
            EditError::BadName(name) | EditError::NoSuchClass(name) | EditError::NoSuchRule(name) => {
                Self::Name(name)
            }
            EditError::BadParent { .. } => Self::Cycle,
            EditError::InUse { item, rule } => Self::InUse { item, rule },
            EditError::TooMany(_) => Self::Full,
        }
    }
}

/// Runs an edit on a copy and takes the copy, shadow trees rebuilt, when the edit succeeds.
fn edit<T>(
    crush: &mut CrushMap,
    edit: impl FnOnce(&mut CrushMap) -> Result<T, EditError>,
) -> Result<T, LocationError> {
    let mut edited = crush.clone();
    let outcome = edit(&mut edited)?;
    edited.rebuild_shadow_trees()?;
    *crush = edited;
    Ok(outcome)
}

fn item(crush: &CrushMap, name: &str) -> Result<i32, LocationError> {
    crush.item_by_name(name).ok_or_else(|| LocationError::NoItem(name.to_owned()))
}

/// Makes an empty bucket that hangs nowhere yet.
///
/// # Errors
/// [`LocationError`].
pub fn add_bucket(crush: &mut CrushMap, kind: &str, name: &str) -> Result<i32, LocationError> {
    let level = crush.type_by_name(kind).ok_or_else(|| LocationError::Kind(kind.to_owned()))?;
    edit(crush, |crush| crush.add_bucket(level, name))
}

/// Gives a bucket another name; its shadows follow.
///
/// # Errors
/// [`LocationError`]; the map is then as it was.
pub fn rename_bucket(crush: &mut CrushMap, from: &str, to: &str) -> Result<(), LocationError> {
    edit(crush, |crush| crush.rename_item(from, to))
}

/// Weight of an item where it hangs, 16.16; a bucket's own sum, an unplaced device's 0.
#[must_use]
pub fn weight_of(crush: &CrushMap, item: i32) -> u32 {
    match crush.bucket(item) {
        Some(bucket) => bucket.weight,
        None => crush.item_weight(item).unwrap_or(0),
    }
}

/// True when the nearest bucket that `place` names is the item's parent.
#[must_use]
pub fn is_at(crush: &CrushMap, item: i32, place: &CrushPlace) -> bool {
    let named = |kind: &i32| crush.type_names.get(kind).and_then(|kind| place.0.get(kind));
    let nearest = crush.type_names.keys().filter(|kind| **kind > 0).find_map(named);
    let parent = crush.parent(item).and_then(|parent| crush.item_name(parent));
    nearest.is_some() && nearest.map(String::as_str) == parent
}

/// A place none of whose buckets exists would begin a tree of its own, which no rule takes from.
fn check_place(crush: &CrushMap, place: &CrushPlace) -> Result<(), LocationError> {
    if let Some(kind) = place.0.keys().find(|kind| crush.type_by_name(kind).is_none()) {
        return Err(LocationError::Kind(kind.clone()));
    }
    if place.0.values().any(|name| crush.item_by_name(name).is_some()) {
        return Ok(());
    }
    Err(LocationError::Nowhere)
}

/// Puts a device where `place` says: a new one with `weight`, one that hangs elsewhere with the weight it has.
/// True when that changes anything.
///
/// # Errors
/// [`LocationError`].
pub fn create_or_move(
    crush: &mut CrushMap,
    osd: OsdId,
    weight: u32,
    place: &CrushPlace,
) -> Result<bool, LocationError> {
    if is_at(crush, osd, place) {
        return Ok(false);
    }
    place_device(crush, osd, crush.item_weight(osd).unwrap_or(weight), place)?;
    Ok(true)
}

/// Puts a device where `place` says, with `weight`, whether it hangs elsewhere or not.
///
/// # Errors
/// [`LocationError`]; the map is then as it was.
pub fn place_device(
    crush: &mut CrushMap,
    osd: OsdId,
    weight: u32,
    place: &CrushPlace,
) -> Result<(), LocationError> {
    check_place(crush, place)?;
    edit(crush, |crush| crush.insert_item(osd, weight, &format!("osd.{osd}"), &place.0))
}

/// Hangs a bucket, with all that is below it, elsewhere.
///
/// # Errors
/// [`LocationError`]; the map is then as it was.
pub fn move_bucket(crush: &mut CrushMap, name: &str, place: &CrushPlace) -> Result<(), LocationError> {
    let id = item(crush, name)?;
    check_place(crush, place)?;
    edit(crush, |crush| crush.move_item(id, &place.0))
}

/// Takes a device, or an empty bucket, out of the hierarchy.
///
/// # Errors
/// [`LocationError`]; the map is then as it was.
pub fn remove(crush: &mut CrushMap, name: &str) -> Result<(), LocationError> {
    let id = item(crush, name)?;
    edit(crush, |crush| crush.remove_item(id))
}

/// Gives a device another weight, 16.16.
///
/// # Errors
/// [`LocationError::NoItem`] when it hangs nowhere.
pub fn reweight(crush: &mut CrushMap, osd: OsdId, weight: u32) -> Result<(), LocationError> {
    edit(crush, |crush| crush.set_item_weight(osd, weight).map(drop))
}

/// Gives a device a class, or takes it away.
///
/// # Errors
/// [`LocationError`].
pub fn set_class(crush: &mut CrushMap, osd: OsdId, class: Option<&str>) -> Result<(), LocationError> {
    edit(crush, |crush| {
        match class {
            Some(class) => crush.set_item_class(osd, class),
            None => {
                crush.clear_item_class(osd);
            }
        }
        Ok(())
    })
}

/// Adds a device class; yields its id. The shadow trees stay as they are: they would drop a class that no device has.
pub fn add_class(crush: &mut CrushMap, class: &str) -> i32 {
    let id = crush.class_names.keys().next_back().map_or(0, |id| id + 1);
    crush.class_names.insert(id, class.to_owned());
    id
}

/// Removes a device class, also from the devices that have it.
///
/// # Errors
/// [`LocationError::Full`].
pub fn remove_class(crush: &mut CrushMap, class: i32) -> Result<(), LocationError> {
    edit(crush, |crush| {
        crush.item_classes.retain(|_, at| *at != class);
        crush.class_names.remove(&class);
        Ok(())
    })
}

/// Makes the shadow trees anew from the roots and the devices' classes.
///
/// # Errors
/// [`LocationError::Full`].
pub fn rebuild_shadows(crush: &mut CrushMap) -> Result<(), LocationError> {
    edit(crush, |_| Ok(()))
}

impl OsdMaps {
    /// Puts an OSD where `place` says, see [`create_or_move()`]. True when that changes anything.
    ///
    /// # Errors
    /// [`LocationError`].
    pub fn create_or_move(
        &mut self,
        osd: OsdId,
        weight: u32,
        place: &CrushPlace,
    ) -> Result<bool, LocationError> {
        if is_at(&self.upcoming().crush, osd, place) {
            return Ok(false);
        }
        self.edit_crush(|crush| create_or_move(crush, osd, weight, place))
    }

    /// Gives an OSD a device class. True when that changes anything.
    ///
    /// # Errors
    /// [`LocationError`].
    pub fn set_device_class(&mut self, osd: OsdId, class: &str) -> Result<bool, LocationError> {
        if self.upcoming().crush.item_class_name(osd) == Some(class) {
            return Ok(false);
        }
        self.edit_crush(|crush| set_class(crush, osd, Some(class)).map(|()| true))
    }

    /// Edits the next epoch's CRUSH map on a copy, which is taken only when the edit succeeds.
    ///
    /// # Errors
    /// The edit's.
    pub fn edit_crush<T, E>(&mut self, edit: impl FnOnce(&mut CrushMap) -> Result<T, E>) -> Result<T, E> {
        let mut edited = CrushMap::clone(&self.upcoming().crush);
        let outcome = edit(&mut edited)?;
        *self.change_crush() = edited;
        Ok(outcome)
    }

    /// Makes `crush` the next epoch's CRUSH map.
    pub fn set_crush(&mut self, crush: CrushMap) {
        *self.change_crush() = crush;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> CrushMap {
        CrushMap::fresh("host")
    }

    fn names(crush: &CrushMap, bucket: &str) -> Vec<String> {
        let id = crush.item_by_name(bucket).expect("a known bucket");
        let items = &crush.bucket(id).expect("a bucket").items;
        items.iter().map(|item| crush.item_name(*item).expect("a name").to_owned()).collect()
    }

    #[test]
    fn devices_hang_below_hosts_made_on_the_way_and_weights_add_up() {
        let mut crush = map();
        for (osd, host) in [(0, "a"), (1, "a"), (2, "b")] {
            assert_eq!(create_or_move(&mut crush, osd, 0x1_0000, &CrushPlace::host(host)), Ok(true));
        }
        assert_eq!(names(&crush, "default"), ["a", "b"]);
        assert_eq!(names(&crush, "a"), ["osd.0", "osd.1"]);
        assert_eq!(weight_of(&crush, -1), 0x3_0000);
        assert_eq!(create_or_move(&mut crush, 1, 7, &CrushPlace::host("a")), Ok(false));
        assert_eq!(create_or_move(&mut crush, 1, 7, &CrushPlace::host("b")), Ok(true));
        assert_eq!(weight_of(&crush, 1), 0x1_0000, "a move keeps the weight");
        assert_eq!(names(&crush, "b"), ["osd.2", "osd.1"]);
        assert_eq!(reweight(&mut crush, 0, 0x8000), Ok(()));
        assert_eq!(weight_of(&crush, -1), 0x2_8000);
    }

    #[test]
    fn shadow_trees_hold_one_class_and_keep_their_ids() {
        let mut crush = map();
        for osd in 0..2 {
            assert!(create_or_move(&mut crush, osd, 0x1_0000, &CrushPlace::host("a")).is_ok());
        }
        assert_eq!(set_class(&mut crush, 0, Some("ssd")), Ok(()));
        assert_eq!(names(&crush, "a~ssd"), ["osd.0"]);
        let before = crush.item_by_name("default~ssd");
        assert_eq!(set_class(&mut crush, 1, Some("ssd")), Ok(()));
        assert_eq!(names(&crush, "a~ssd"), ["osd.0", "osd.1"]);
        assert!(create_or_move(&mut crush, 2, 0x1_0000, &CrushPlace::host("b")).is_ok());
        assert_eq!(crush.item_by_name("default~ssd"), before);
        assert_eq!(names(&crush, "default~ssd"), ["a~ssd", "b~ssd"]);
        assert_eq!(weight_of(&crush, before.expect("a shadow")), 0x2_0000);
    }

    #[test]
    fn impossible_places_are_refused_and_change_nothing() {
        let mut crush = map();
        assert!(create_or_move(&mut crush, 0, 1, &CrushPlace::host("a")).is_ok());
        let before = crush.clone();
        let place = |kind: &str, name: &str| CrushPlace(BTreeMap::from([(kind.to_owned(), name.to_owned())]));
        let refusals = [
            (place("blade", "x"), LocationError::Kind("blade".into())),
            (place("rack", "a"), LocationError::OtherKind("a".into())),
            (place("host", "new"), LocationError::Nowhere),
            (CrushPlace::host("a b"), LocationError::Name("a b".into())),
        ];
        for (place, error) in refusals {
            assert_eq!(place_device(&mut crush, 0, 1, &place), Err(error));
            assert_eq!(crush, before);
        }
        assert!(move_bucket(&mut crush, "default", &place("host", "a")).is_err());
        assert_eq!(remove(&mut crush, "a"), Err(LocationError::NotEmpty("a".into())));
        assert_eq!(remove(&mut crush, "osd.0"), Ok(()));
        assert_eq!(remove(&mut crush, "a"), Ok(()));
        assert!(names(&crush, "default").is_empty());
    }
}
