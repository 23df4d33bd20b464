//! The map as data: buckets, rules, tunables, names, device classes and weight sets.

use std::collections::BTreeMap;

/// How a bucket picks one of its items; the value is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketAlg {
    /// All items weigh the same: a permutation.
    Uniform = 1,
    /// Newest item first, each against the sum of the older ones.
    List = 2,
    /// A binary tree of weights.
    Tree = 3,
    /// Longest scaled straw; scaling depends on the other items (historic).
    Straw = 4,
    /// Longest straw with independent draws: the only one we create.
    Straw2 = 5,
}

impl BucketAlg {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Uniform, Self::List, Self::Tree, Self::Straw, Self::Straw2];

    /// The name in text maps and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::List => "list",
            Self::Tree => "tree",
            Self::Straw => "straw",
            Self::Straw2 => "straw2",
        }
    }

    /// The algorithm named `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| alg.as_str() == text)
    }
}

/// What a bucket's algorithm keeps beside the items. Weights are 16.16 fixed point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketBody {
    /// `crush_bucket_uniform`.
    Uniform {
        /// Weight of every item.
        item_weight: u32,
    },
    /// `crush_bucket_list`.
    List {
        /// Weight of each item.
        item_weights: Vec<u32>,
        /// Sum of the weights up to and with each item.
        sum_weights: Vec<u32>,
    },
    /// `crush_bucket_tree`.
    Tree {
        /// Weights of the nodes of an implicit binary tree; leaves at odd indices.
        node_weights: Vec<u32>,
    },
    /// `crush_bucket_straw`.
    Straw {
        /// Weight of each item.
        item_weights: Vec<u32>,
        /// Scaling factor of each item's straw, 16.16.
        straws: Vec<u32>,
    },
    /// `crush_bucket_straw2`.
    Straw2 {
        /// Weight of each item.
        item_weights: Vec<u32>,
    },
}

/// An inner node: host, rack, root and so on. Ceph `crush_bucket`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Negative id; slot `-1 - id` of the map.
    pub id: i32,
    /// Level of the hierarchy, a key of [`CrushMap::type_names`]; 0 is a device, so never 0 here.
    pub kind: u16,
    /// Hash function, 0 = rjenkins1, the only one.
    pub hash: u8,
    /// Sum of the items' weights, 16.16.
    pub weight: u32,
    /// Devices (ids from 0) and buckets (negative ids).
    pub items: Vec<i32>,
    /// What the algorithm keeps.
    pub body: BucketBody,
}

/// What kind of pool a rule is for; only shown, the mapper does not look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleKind(pub u8);

impl RuleKind {
    /// Rule of replicated pools.
    pub const REPLICATED: Self = Self(1);
    /// Rule of erasure-coded pools.
    pub const ERASURE: Self = Self(3);
}

/// A placement rule. Ceph `crush_rule` with its mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Historic rule set number; equals the rule's id in all maps of today.
    pub ruleset: u8,
    /// Kind of pool.
    pub kind: RuleKind,
    /// Smallest pool size it is meant for.
    pub min_size: u8,
    /// Largest pool size it is meant for.
    pub max_size: u8,
    /// What to do, in order.
    pub steps: Vec<Step>,
}

/// One step of a rule. Ceph `crush_rule_step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Start over with one item.
    Take(i32),
    /// Choose `count` (0: as many as wanted, negative: fewer) distinct items of type `kind`; failures shift left.
    ChooseFirstN {
        /// Items to choose; 0 for as many as the pool has copies, fewer by so many when negative.
        count: i32,
        /// Level of the hierarchy.
        kind: i32,
    },
    /// As above; failures leave holes.
    ChooseIndep {
        /// As of [`Step::ChooseFirstN`].
        count: i32,
        /// Level of the hierarchy.
        kind: i32,
    },
    /// Append the chosen items to the result.
    Emit,
    /// Choose items of type `kind` and one device under each; failures shift left.
    ChooseLeafFirstN {
        /// As of [`Step::ChooseFirstN`].
        count: i32,
        /// Level of the hierarchy.
        kind: i32,
    },
    /// As above; failures leave holes.
    ChooseLeafIndep {
        /// As of [`Step::ChooseFirstN`].
        count: i32,
        /// Level of the hierarchy.
        kind: i32,
    },
    /// Overrides the total number of tries.
    SetChooseTries(i32),
    /// Overrides the tries of the descent to a leaf.
    SetChooseLeafTries(i32),
    /// Overrides [`Tunables::choose_local_tries`].
    SetChooseLocalTries(i32),
    /// Overrides [`Tunables::choose_local_fallback_tries`].
    SetChooseLocalFallbackTries(i32),
    /// Overrides [`Tunables::chooseleaf_vary_r`].
    SetChooseLeafVaryR(i32),
    /// Overrides [`Tunables::chooseleaf_stable`].
    SetChooseLeafStable(i32),
    /// A step that we do not know; the mapper passes over it, as Ceph's does.
    Other {
        /// Operation code, which this release does not know.
        op: u32,
        /// First argument of the operation.
        arg1: i32,
        /// Second argument of the operation.
        arg2: i32,
    },
}

/// Knobs of the mapper that every client must know. The default is Ceph's `jewel` profile, as in 16.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// Retries within one bucket after a collision.
    pub choose_local_tries: u32,
    /// Retries by permutation of one bucket.
    pub choose_local_fallback_tries: u32,
    /// Retries from the top.
    pub choose_total_tries: u32,
    /// 1: a failed leaf restarts from the top instead of retrying below.
    pub chooseleaf_descend_once: u32,
    /// Varies the leaf choice with the parent's try.
    pub chooseleaf_vary_r: u8,
    /// Which bug of the straw length computation to reproduce.
    pub straw_calc_version: u8,
    /// Bit `1 << alg` for each bucket algorithm that may be created.
    pub allowed_bucket_algs: u32,
    /// Leaf choice independent of the position in the set.
    pub chooseleaf_stable: u8,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            choose_local_tries: 0,
            choose_local_fallback_tries: 0,
            choose_total_tries: 50,
            chooseleaf_descend_once: 1,
            chooseleaf_vary_r: 1,
            straw_calc_version: 1,
            allowed_bucket_algs: 54,
            chooseleaf_stable: 1,
        }
    }
}

impl Tunables {
    /// What a map without any tunables means: Ceph's `argonaut` profile.
    pub const LEGACY: Self = Self {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: 22,
        chooseleaf_stable: 0,
    };

    /// The tunables that Ceph calls by this name (`ceph osd crush tunables`).
    #[must_use]
    pub fn profile(name: &str) -> Option<Self> {
        let hammer = Self { chooseleaf_stable: 0, ..Self::default() };
        let firefly = Self { allowed_bucket_algs: 22, ..hammer };
        Some(match name {
            "legacy" | "argonaut" => Self::LEGACY,
            "bobtail" => Self { chooseleaf_vary_r: 0, ..firefly },
            "firefly" => firefly,
            "hammer" => hammer,
            "jewel" | "optimal" | "default" => Self::default(),
            _ => return None,
        })
    }
}

/// Weights and ids that replace those of one bucket in one set. Ceph `crush_choose_arg`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChooseArg {
    /// Per position in the result (the last one serves all further positions): a weight per item.
    pub weight_set: Vec<Vec<u32>>,
    /// Ids to hash instead of the items, or empty.
    pub ids: Vec<i32>,
}

/// One weight set: bucket slot (`-1 - id`) to its replacement.
pub type ChooseArgs = BTreeMap<u32, ChooseArg>;

/// The whole map. Ceph `CrushWrapper`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrushMap {
    /// Slot `i` holds bucket `-1 - i`.
    pub buckets: Vec<Option<Bucket>>,
    /// Slot `i` holds rule `i`.
    pub rules: Vec<Option<Rule>>,
    /// Devices have ids below this.
    pub max_devices: i32,
    /// Level of the hierarchy to its name; 0 is `osd`.
    pub type_names: BTreeMap<i32, String>,
    /// Device or bucket to its name; shadow buckets are named `bucket~class`.
    pub item_names: BTreeMap<i32, String>,
    /// Rule to its name.
    pub rule_names: BTreeMap<i32, String>,
    /// How many tries the mapper makes, and by which generation's rules.
    pub tunables: Tunables,
    /// Device to its class.
    pub item_classes: BTreeMap<i32, i32>,
    /// Class to its name.
    pub class_names: BTreeMap<i32, String>,
    /// Bucket to class to the shadow bucket that holds only that class.
    pub class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Weight sets: by pool id, or -1 for the default set ("compat").
    pub choose_args: BTreeMap<i64, ChooseArgs>,
}

impl CrushMap {
    /// The bucket with this (negative) id.
    #[must_use]
    #[inline]
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        let slot = usize::try_from(-1 - i64::from(id)).ok()?;
        self.buckets.get(slot)?.as_ref()
    }

    /// The rule of this id.
    #[must_use]
    pub fn rule(&self, id: i32) -> Option<&Rule> {
        self.rules.get(usize::try_from(id).ok()?)?.as_ref()
    }

    /// The rule that a pool's settings select: first of this rule set and kind whose sizes include `size`.
    /// Ceph `crush_find_rule`.
    #[must_use]
    pub fn find_rule(&self, ruleset: u8, kind: u8, size: u8) -> Option<usize> {
        self.rules.iter().position(|rule| {
            rule.as_ref().is_some_and(|rule| {
                rule.ruleset == ruleset
                    && rule.kind.0 == kind
                    && (rule.min_size..=rule.max_size).contains(&size)
            })
        })
    }

    /// The weight set for a pool: its own, else the default one.
    #[must_use]
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgs> {
        self.choose_args.get(&pool).or_else(|| self.choose_args.get(&-1))
    }

    /// Id of the device or bucket of this name.
    #[must_use]
    pub fn item_by_name(&self, name: &str) -> Option<i32> {
        find(&self.item_names, name)
    }

    /// Id of the rule of this name.
    #[must_use]
    pub fn rule_by_name(&self, name: &str) -> Option<i32> {
        find(&self.rule_names, name)
    }

    /// Level of the hierarchy of this name.
    #[must_use]
    pub fn type_by_name(&self, name: &str) -> Option<i32> {
        find(&self.type_names, name)
    }

    /// Id of the device class of this name.
    #[must_use]
    pub fn class_by_name(&self, name: &str) -> Option<i32> {
        find(&self.class_names, name)
    }

    /// Name of a device or bucket.
    #[must_use]
    pub fn item_name(&self, item: i32) -> Option<&str> {
        self.item_names.get(&item).map(String::as_str)
    }

    /// Name of a device's class.
    #[must_use]
    pub fn item_class_name(&self, item: i32) -> Option<&str> {
        self.class_names.get(self.item_classes.get(&item)?).map(String::as_str)
    }

    /// True for the filtered copy of a bucket that a device class needs.
    #[must_use]
    pub fn is_shadow(&self, id: i32) -> bool {
        self.item_name(id).is_some_and(|name| name.contains('~'))
    }

    /// One more than the largest device that a bucket holds or that has a name.
    ///
    /// Ceph computes `max_devices` so after reading a map, whatever the bytes said; maps that are applied and
    /// written again must agree.
    #[must_use]
    pub fn devices_end(&self) -> i32 {
        let named = self.item_names.last_key_value().map(|(item, _)| *item);
        let held = self.each_bucket().flat_map(|bucket| &bucket.items).copied().max();
        named.max(held).map_or(0, |item| item.max(-1).saturating_add(1))
    }

    /// All buckets, without the empty slots.
    pub fn each_bucket(&self) -> impl Iterator<Item = &Bucket> + '_ {
        self.buckets.iter().flatten()
    }
}

fn find(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    names.iter().find(|(_, found)| found.as_str() == name).map(|(id, _)| *id)
}
