use super::*;
use serde_json::Value;

fn file() -> Vec<Value> {
    let path = format!("{}/../../../testdata/autoscaler/cases.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).expect("cases")
}

fn count(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|value| value.try_into().ok())
}

fn osds(value: &Value) -> BTreeSet<OsdId> {
    value
        .as_array()
        .expect("OSDs")
        .iter()
        .map(|osd| osd.as_i64().expect("one").try_into().expect("small"))
        .collect()
}

fn pool(value: &Value) -> (PoolId, PoolFacts) {
    let mode = match value["mode"].as_str().expect("a mode") {
        "on" => AutoscaleMode::On,
        "warn" => AutoscaleMode::Warn,
        _ => AutoscaleMode::Off,
    };
    let facts = PoolFacts {
        root: value["root"].as_i64().and_then(|root| root.try_into().ok()),
        mode,
        pg_num_target: count(&value["pg_num"]).expect("a number"),
        size: value["size"].as_u64().and_then(|size| size.try_into().ok()).expect("a size"),
        stored_bytes: value["stored"].as_u64().expect("bytes"),
        raw_rate: value["rate"].as_f64().expect("a rate"),
        bias: value["pg_autoscale_bias"].as_f64().unwrap_or(1.0),
        target_bytes: value["target_size_bytes"].as_u64().unwrap_or(0),
        target_ratio: value["target_size_ratio"].as_f64().unwrap_or(0.0),
        pg_num_min: count(&value["pg_num_min"]),
        pg_num_max: count(&value["pg_num_max"]),
        is_bulk: value["bulk"].as_bool().expect("a flag"),
    };
    (value["id"].as_i64().expect("an id"), facts)
}

fn cluster(case: &Value) -> Cluster {
    let pairs = |name: &str| case[name].as_object().expect("an object").iter();
    Cluster {
        pools: case["pools"].as_array().expect("pools").iter().map(pool).collect(),
        roots: pairs("roots").map(|(root, below)| (root.parse().expect("a root"), osds(below))).collect(),
        capacities: pairs("osd_kb")
            .map(|(osd, kb)| (osd.parse().expect("an OSD"), kb.as_u64().expect("KiB") << 10))
            .collect(),
        target_pgs_per_osd: case["target_pgs_per_osd"].as_u64().expect("a number"),
    }
}

/// Clusters made at random: all that Ceph's module says of them.
#[test]
fn numbers_are_those_of_the_module() {
    let (mut rows, mut changes, mut left) = (0, 0, 0);
    for (at, case) in file().iter().enumerate() {
        let outlook = look(&cluster(case));
        let wanted = case["status"].as_array().expect("rows");
        let context = format!("case {at}: {outlook:#?}, {case}");
        assert_eq!(outlook.advice.len(), wanted.len(), "{context}");
        assert_eq!(
            outlook.advice.len() + outlook.left_alone.len(),
            case["pools"].as_array().expect("pools").len(),
            "each pool has a number or a reason; {context}"
        );
        for (ours, row) in outlook.advice.iter().zip(wanted) {
            assert_eq!(Some(ours.pool), row["pool_id"].as_i64(), "{context}");
            assert_eq!(Some(i64::from(ours.root)), row["crush_root_id"].as_i64(), "{context}");
            assert_eq!(Some(ours.capacity), row["subtree_capacity"].as_u64(), "{context}");
            assert_eq!(Some(ours.target_bytes), row["target_bytes"].as_u64(), "{context}");
            for (value, name) in [
                (ours.actual_raw_used, "actual_raw_used"),
                (ours.raw_used, "raw_used"),
                (ours.actual_ratio, "actual_capacity_ratio"),
                (ours.ratio, "capacity_ratio"),
                (ours.effective_target_ratio, "effective_target_ratio"),
            ] {
                // The parser of JSON is off by a bit here and there.
                let theirs = row[name].as_f64().expect("a number");
                assert!((value - theirs).abs() <= 1e-15 * theirs.abs(), "{name}, {context}");
            }
            assert_eq!(Some(ours.pg_num_ideal), row["pg_num_ideal"].as_i64(), "{context}");
            assert_eq!(Some(u64::from(ours.pg_num)), row["pg_num_final"].as_u64(), "{context}");
            // Real pools are never outside of their bounds, for Ceph refuses such bounds; ours are brought back.
            let pool = &cluster(case).pools[&ours.pool];
            let is_outside = pool.pg_num_min.is_some_and(|least| pool.pg_num_target < least)
                || pool.pg_num_max.is_some_and(|most| pool.pg_num_target > most);
            if !is_outside {
                assert_eq!(Some(ours.would_adjust), row["would_adjust"].as_bool(), "{context}");
            }
            rows += 1;
            changes += u32::from(ours.would_adjust);
        }
        left += outlook.left_alone.len();
    }
    assert!(rows > 400 && changes > 100 && left > 50, "{rows} rows, {changes} changes, {left} left alone");
}

fn one_pool(change: impl Fn(&mut PoolFacts)) -> Outlook {
    let mut pool = PoolFacts {
        root: Some(-1),
        mode: AutoscaleMode::On,
        pg_num_target: 8,
        size: 3,
        stored_bytes: 0,
        raw_rate: 3.0,
        bias: 1.0,
        target_bytes: 0,
        target_ratio: 0.0,
        pg_num_min: None,
        pg_num_max: None,
        is_bulk: false,
    };
    change(&mut pool);
    look(&Cluster {
        pools: [(1, pool)].into(),
        roots: [(-1, (0..10).collect())].into(),
        capacities: (0..10).map(|osd| (osd, 1 << 40)).collect(),
        target_pgs_per_osd: 100,
    })
}

/// Facts of the module's own tests and of Ceph's documentation.
#[test]
fn settings_do_what_they_say() {
    let number = |change: &dyn Fn(&mut PoolFacts)| {
        let outlook = one_pool(change);
        (outlook.advice[0].pg_num, outlook.advice[0].would_adjust)
    };
    assert_eq!(number(&|_| {}), (32, true), "at least 32, and 8 is off by more than three");
    assert_eq!(number(&|pool| pool.pg_num_target = 16), (32, false), "16 is near enough");
    assert_eq!(number(&|pool| pool.pg_num_min = Some(4)), (4, false));
    assert_eq!(number(&|pool| pool.pg_num_max = Some(16)), (16, false));
    // All of 1000 copies, three each: 333, and 256 is nearer than 512.
    assert_eq!(number(&|pool| pool.target_ratio = 0.1), (256, true), "the only one with a ratio gets all");
    assert_eq!(number(&|pool| pool.is_bulk = true), (256, true));
    assert_eq!(number(&|pool| pool.mode = AutoscaleMode::Off), (32, false));
    assert_eq!(number(&|pool| pool.mode = AutoscaleMode::Warn), (32, false));
    assert!(one_pool(|pool| pool.mode = AutoscaleMode::Warn).advice[0].is_off);
    // A third of the room.
    assert_eq!(number(&|pool| pool.target_bytes = (10 << 40) / 9), (128, true));
    assert_eq!(number(&|pool| pool.stored_bytes = (10 << 40) / 9), (128, true));
    assert_eq!(number(&|pool| (pool.target_bytes, pool.bias) = ((10 << 40) / 9, 4.0)), (512, true));
    assert_eq!(one_pool(|pool| pool.root = None).left_alone[&1], LeftAlone::NoRoot);
    for (number, nearest) in
        [(0.0, 0), (-3.5, 0), (0.9, 0), (1.0, 1), (3.0, 4), (5.9, 4), (6.0, 8), (33.0, 32), (1e300, 1 << 31)]
    {
        assert_eq!(nearest_power_of_two(number), nearest, "{number}");
    }
}

#[test]
fn a_pool_outside_of_its_bounds_is_brought_back_however_little_that_is() {
    let numbers = |outlook: Outlook| (outlook.advice[0].pg_num, outlook.advice[0].would_adjust);
    let of = |least: Option<u32>, most: Option<u32>, target: u32| {
        numbers(one_pool(|pool| {
            (pool.pg_num_min, pool.pg_num_max, pool.pg_num_target) = (least, most, target)
        }))
    };
    assert_eq!(of(Some(64), None, 32), (64, true));
    assert_eq!(of(None, Some(16), 32), (16, true));
    assert_eq!(of(Some(16), Some(64), 32), (16, false), "a factor of two is not enough");
}
