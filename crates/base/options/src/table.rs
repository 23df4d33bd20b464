//! All options, and the search by name.

use crate::{OptionInfo, client, common, debug, mds, mon, osd};

/// All options, topic by topic, names ascending within each.
pub fn all() -> impl Iterator<Item = &'static OptionInfo> {
    [common::TABLE, debug::TABLE, mon::TABLE, mds::TABLE, osd::TABLE, client::TABLE].into_iter().flatten()
}

/// The option of that name; spaces and hyphens count as underscores.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionInfo> {
    let name = name.trim().replace([' ', '-'], "_");
    all().find(|option| option.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_defaults_pass_their_own_check() {
        let mut seen = BTreeSet::new();
        for option in all() {
            assert!(seen.insert(option.name), "{} twice", option.name);
            if !option.default.is_empty() {
                assert!(option.check(option.default).is_ok(), "default of {}", option.name);
            }
        }
        assert!(seen.len() > 150);
    }

    #[test]
    fn names_are_found_with_spaces_too() {
        assert_eq!(find("osd max-backfills").map(|option| option.name), Some("osd_max_backfills"));
        assert_eq!(find("no_such_option"), None);
        assert_eq!(find("mon_allow_pool_delete").map(|option| option.default), Some("false"));
    }
}
