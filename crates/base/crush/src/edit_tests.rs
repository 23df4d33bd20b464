//! Changes of the hierarchy, on a small cluster.

use super::*;
use crate::{ChooseArg, RuleKind, RuleMode, SimpleRule};
use nacre_denc::{Decode, Encode};

fn at(levels: &[(&str, &str)]) -> Location {
    levels.iter().map(|(level, name)| ((*level).to_owned(), (*name).to_owned())).collect()
}

/// default { r0 { h0 { 0 1 } } r1 { h1 { 2 3 } } }, all of weight 1, even devices ssd.
fn small() -> CrushMap {
    let mut map = CrushMap::fresh("host");
    for osd in 0..4 {
        let (rack, host) = (format!("r{}", osd / 2), format!("h{}", osd / 2));
        let location = at(&[("root", "default"), ("rack", &rack), ("host", &host)]);
        map.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &location).expect("a new device");
        map.set_item_class(osd, if osd % 2 == 0 { "ssd" } else { "hdd" });
    }
    map.rebuild_shadow_trees().expect("few buckets");
    map
}

fn weight_of(map: &CrushMap, name: &str) -> u32 {
    map.bucket(map.item_by_name(name).expect("a bucket")).expect("a bucket").weight
}

#[test]
fn inserting_makes_the_way_down_and_weighs_it() {
    let map = small();
    assert_eq!(weight_of(&map, "default"), 0x4_0000);
    assert_eq!(weight_of(&map, "default~ssd"), 0x2_0000);
    assert_eq!(map.location(2), at(&[("root", "default"), ("rack", "r1"), ("host", "h1")]));
    assert_eq!(map.devices_below(map.item_by_name("r1").expect("a rack")), [2, 3]);
    assert_eq!(map.roots().collect::<Vec<_>>(), [-1]);
    assert_eq!(map.max_devices, 4);
}

#[test]
fn reweighting_reaches_the_root_and_the_weight_sets() {
    let mut map = small();
    let host = map.parent(0).expect("a host");
    let slot = u32::try_from(-1 - host).expect("a slot");
    let arg = ChooseArg { weight_set: vec![vec![7, 8]], ids: Vec::new() };
    map.choose_args.insert(-1, [(slot, arg)].into());
    map.set_item_weight(0, 0x3_0000).expect("it stands somewhere");
    assert_eq!(weight_of(&map, "default"), 0x6_0000);
    assert_eq!(map.choose_args[&-1][&slot].weight_set, [[0x3_0000, 8]]);
    assert_eq!(map.set_item_weight(9, 1), Err(EditError::NoSuchItem("9".into())));
}

#[test]
fn moving_takes_weight_and_everything_below_along() {
    let mut map = small();
    let host = map.item_by_name("h1").expect("a host");
    map.move_item(host, &at(&[("rack", "r0")])).expect("a rack may hold a host");
    assert_eq!(
        (weight_of(&map, "r0"), weight_of(&map, "r1"), weight_of(&map, "default")),
        (0x4_0000, 0, 0x4_0000)
    );
    assert_eq!(map.location(3).get("rack").map(String::as_str), Some("r0"));
    let rack = map.item_by_name("r0").expect("a rack");
    let into_itself = map.move_item(rack, &at(&[("host", "h0")]));
    assert!(into_itself.is_err());
    assert_eq!(map.location(rack), at(&[("root", "default")]), "a refused move changes nothing");
}

#[test]
fn a_bucket_goes_only_when_empty_and_untaken() {
    let mut map = small();
    let host = map.item_by_name("h1").expect("a host");
    assert_eq!(map.remove_item(host), Err(EditError::NotEmpty("h1".into())));
    assert!(map.remove_item(2).is_ok() && map.remove_item(3).is_ok());
    assert!(map.remove_item(host).is_ok());
    assert_eq!((map.item_by_name("h1"), map.item_by_name("h1~ssd")), (None, None));
    assert_eq!(weight_of(&map, "default"), 0x2_0000);
    let lone = map.add_bucket(11, "other").expect("a new name");
    let rule = SimpleRule {
        name: "lone",
        root: "other",
        failure_domain: "osd",
        device_class: "",
        mode: RuleMode::FirstN,
        kind: RuleKind::REPLICATED,
        sizes: (1, 10),
    };
    map.add_simple_rule(&rule).expect("a new rule");
    assert_eq!(map.remove_item(lone), Err(EditError::InUse { item: "other".into(), rule: "lone".into() }));
    map.remove_rule("lone").expect("the rule is there");
    assert_eq!(map.remove_item(lone), Ok(()));
}

#[test]
fn rules_of_a_class_take_its_shadow_tree() {
    let mut map = small();
    let rule = SimpleRule {
        name: "fast",
        root: "default",
        failure_domain: "host",
        device_class: "ssd",
        mode: RuleMode::FirstN,
        kind: RuleKind::REPLICATED,
        sizes: (1, 10),
    };
    let id = usize::from(map.add_simple_rule(&rule).expect("a new rule"));
    for x in 0..20 {
        let mut found = map.do_rule(id, x, 2, &[0x1_0000; 4], None).to_vec();
        found.sort_unstable();
        assert_eq!(found, [0, 2]);
    }
    let shadow = map.item_by_name("default~ssd");
    map.clear_item_class(0);
    map.rebuild_shadow_trees().expect("few buckets");
    assert_eq!(map.item_by_name("default~ssd"), shadow, "rules name shadow buckets by id");
    assert_eq!(map.rename_class("ssd", "nvme"), Ok(()));
    assert_eq!(map.item_by_name("h0~nvme").is_some(), map.item_by_name("h0~ssd").is_none());
}

#[test]
fn bad_names_and_taken_names_are_refused() {
    let mut map = small();
    assert_eq!(map.add_bucket(1, "a b"), Err(EditError::BadName("a b".into())));
    assert_eq!(map.add_bucket(1, "h0"), Err(EditError::NameTaken("h0".into())));
    assert_eq!(map.add_bucket(0, "x"), Err(EditError::NoSuchType("0".into())));
    assert_eq!(map.rename_item("h0", "node0"), Ok(()));
    assert!(map.item_by_name("node0~ssd").is_some());
}

/// Stock clients abort on a map with an empty name: they read it as the upper half of a 64-bit id.
#[test]
fn no_map_has_an_empty_name() {
    let mut map = small();
    let id = map.rule_names.keys().next().copied();
    if let Some(rule) = id.and_then(|id| map.rule_names.get(&id).cloned()) {
        assert_eq!(map.rename_rule(&rule, ""), Err(EditError::BadName(String::new())));
    }
    assert!(CrushMap::from_bytes(map.to_bytes()).is_ok());
    for place in 0..3 {
        let mut broken = map.clone();
        let names = [&mut broken.type_names, &mut broken.item_names, &mut broken.rule_names];
        names.into_iter().nth(place).expect("three").insert(7, String::new());
        assert!(CrushMap::from_bytes(broken.to_bytes()).is_err());
    }
}
