//! The CRUSH map, its rules and tunables.

use nacre_crush::{Bucket, CrushMap, Rule, Step, Tunables};
use nacre_format::{Node, Section};

fn step(crush: &CrushMap, step: &Step) -> Section {
    let choose = |op: &str, count: i32, kind: i32| {
        let kind = crush.type_names.get(&kind).cloned().unwrap_or_else(|| kind.to_string());
        Section::new().with("op", op).with("num", count).with("type", kind)
    };
    let set = |name: &str, value: i32| Section::new().with("op", name).with("num", value);
    match step {
        Step::Take(item) => Section::new()
            .with("op", "take")
            .with("item", *item)
            .with("item_name", crush.item_name(*item).unwrap_or_default()),
        Step::Emit => Section::new().with("op", "emit"),
        Step::ChooseFirstN { count, kind } => choose("choose_firstn", *count, *kind),
        Step::ChooseIndep { count, kind } => choose("choose_indep", *count, *kind),
        Step::ChooseLeafFirstN { count, kind } => choose("chooseleaf_firstn", *count, *kind),
        Step::ChooseLeafIndep { count, kind } => choose("chooseleaf_indep", *count, *kind),
        Step::SetChooseTries(value) => set("set_choose_tries", *value),
        Step::SetChooseLeafTries(value) => set("set_chooseleaf_tries", *value),
        Step::SetChooseLocalTries(value) => set("set_choose_local_tries", *value),
        Step::SetChooseLocalFallbackTries(value) => set("set_choose_local_fallback_tries", *value),
        Step::SetChooseLeafVaryR(value) => set("set_chooseleaf_vary_r", *value),
        Step::SetChooseLeafStable(value) => set("set_chooseleaf_stable", *value),
        Step::Other { op: 0, .. } => Section::new().with("op", "noop"),
        Step::Other { op, arg1, arg2 } => {
            Section::new().with("opcode", *op).with("arg1", *arg1).with("arg2", *arg2)
        }
    }
}

/// One rule. Ceph `CrushWrapper::dump_rule`.
pub(in crate::commands) fn crush_rule(crush: &CrushMap, id: i32, rule: &Rule) -> Section {
    Section::new()
        .with("rule_id", id)
        .with("rule_name", crush.rule_names.get(&id).map_or("", String::as_str))
        .with("ruleset", rule.ruleset)
        .with("type", rule.kind.0)
        .with("min_size", rule.min_size)
        .with("max_size", rule.max_size)
        .with("steps", Node::array("step", rule.steps.iter().map(|at| step(crush, at))))
}

fn bucket(crush: &CrushMap, bucket: &Bucket) -> Section {
    let items = bucket.entries().enumerate().map(|(position, (id, weight))| {
        Section::new().with("id", id).with("weight", weight).with("pos", position)
    });
    let kind = i32::from(bucket.kind);
    Section::new()
        .with("id", bucket.id)
        .with("name", crush.item_name(bucket.id).unwrap_or_default())
        .with("type_id", kind)
        .with("type_name", crush.type_names.get(&kind).map_or("", String::as_str))
        .with("weight", bucket.weight)
        .with("alg", bucket.alg().as_str())
        .with("hash", "rjenkins1")
        .with("items", Node::array("item", items))
}

fn has_optimal(tunables: &Tunables) -> bool {
    tunables_profile(tunables) == "jewel"
}

/// The name of the profile that has these values.
pub(in crate::commands) fn tunables_profile(tunables: &Tunables) -> &'static str {
    let values = (
        tunables.choose_local_tries,
        tunables.choose_local_fallback_tries,
        tunables.choose_total_tries,
        tunables.chooseleaf_descend_once,
        tunables.chooseleaf_vary_r,
        tunables.chooseleaf_stable,
        tunables.allowed_bucket_algs,
    );
    match values {
        (2, 5, 19, 0, 0, 0, 22) => "argonaut",
        (0, 0, 50, 1, 0, 0, 22) => "bobtail",
        (0, 0, 50, 1, 1, 0, 22) => "firefly",
        (0, 0, 50, 1, 1, 0, 54) => "hammer",
        (0, 0, 50, 1, 1, 1, 54) => "jewel",
        _ => "unknown",
    }
}

/// Tunables and what they ask of clients. Ceph `CrushWrapper::dump_tunables`.
pub(in crate::commands) fn tunables(crush: &CrushMap) -> Section {
    let tunables = &crush.tunables;
    let profile = tunables_profile(tunables);
    let of_argonaut = profile == "argonaut";
    let uses = |wanted: fn(&Bucket) -> bool| u32::from(crush.each_bucket().any(wanted));
    let straw2 = uses(|bucket| bucket.alg().as_str() == "straw2");
    let required = if tunables.chooseleaf_stable != 0 {
        "jewel"
    } else if straw2 != 0 {
        "hammer"
    } else if tunables.chooseleaf_vary_r != 0 {
        "firefly"
    } else if of_argonaut {
        "argonaut"
    } else {
        "bobtail"
    };
    let indep = crush.rules.iter().flatten().any(|rule| {
        rule.steps.iter().any(|step| matches!(step, Step::ChooseIndep { .. } | Step::ChooseLeafIndep { .. }))
    });
    Section::new()
        .with("choose_local_tries", tunables.choose_local_tries)
        .with("choose_local_fallback_tries", tunables.choose_local_fallback_tries)
        .with("choose_total_tries", tunables.choose_total_tries)
        .with("chooseleaf_descend_once", tunables.chooseleaf_descend_once)
        .with("chooseleaf_vary_r", tunables.chooseleaf_vary_r)
        .with("chooseleaf_stable", tunables.chooseleaf_stable)
        .with("straw_calc_version", tunables.straw_calc_version)
        .with("allowed_bucket_algs", tunables.allowed_bucket_algs)
        .with("profile", profile)
        .with("optimal_tunables", u32::from(has_optimal(tunables)))
        .with("legacy_tunables", u32::from(of_argonaut))
        .with("minimum_required_version", required)
        .with("require_feature_tunables", u32::from(!of_argonaut))
        .with("require_feature_tunables2", tunables.chooseleaf_descend_once)
        .with("has_v2_rules", u32::from(indep))
        .with("require_feature_tunables3", u32::from(tunables.chooseleaf_vary_r != 0))
        .with("has_v3_rules", 0)
        .with("has_v4_buckets", straw2)
        .with("require_feature_tunables5", u32::from(tunables.chooseleaf_stable != 0))
        .with("has_v5_rules", 0)
}

/// `osd crush dump`.
pub(in crate::commands) fn crush_map(crush: &CrushMap) -> Section {
    let devices = crush.item_names.iter().filter(|(id, _)| **id >= 0).map(|(id, name)| {
        let section = Section::new().with("id", *id).with("name", name.as_str());
        match crush.item_class_name(*id) {
            Some(class) => section.with("class", class),
            None => section,
        }
    });
    let types = crush
        .type_names
        .iter()
        .map(|(id, name)| Section::new().with("type_id", *id).with("name", name.as_str()));
    let mut buckets: Vec<&Bucket> = crush.each_bucket().collect();
    buckets.sort_by_key(|bucket| std::cmp::Reverse(bucket.id));
    let rules = (0..).zip(&crush.rules).filter_map(|(id, rule)| Some(crush_rule(crush, id, rule.as_ref()?)));
    Section::new()
        .with("devices", Node::array("device", devices))
        .with("types", Node::array("type", types))
        .with("buckets", Node::array("bucket", buckets.into_iter().map(|at| bucket(crush, at))))
        .with("rules", Node::array("rule", rules))
        .with("tunables", tunables(crush))
        .with("choose_args", choose_args(crush))
}

fn choose_args(crush: &CrushMap) -> Section {
    let arg = |(id, arg): (&u32, &nacre_crush::ChooseArg)| {
        let bucket = -1 - i64::from(*id);
        let sets = arg.weight_set.iter().map(|set| {
            Node::array("weight", set.iter().map(|weight| Node::Float(f64::from(*weight) / 65536.0)))
        });
        Section::new().with("bucket_id", bucket).with("weight_set", Node::array("weights", sets))
    };
    crush
        .choose_args
        .iter()
        .map(|(key, args)| (key.to_string(), Node::array("choose_args", args.iter().map(arg))))
        .collect()
}
