//! The map's bytes, as they stand in an OSD map and in `crushtool`'s binary files.
//!
//! Source: Ceph `src/crush/CrushWrapper.cc` (`encode`, `decode`) at v16.2.15, written with all features of that
//! release. Maps of older releases end before the tunables, the device classes or the weight sets.

use crate::{
    BUCKET_ITEMS_MAX, BUCKETS_MAX, Bucket, BucketBody, ChooseArg, ChooseArgs, CrushMap, RULE_STEPS_MAX,
    RULES_MAX, Rule, RuleKind, Step, Tunables,
};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;

fn invalid(what: &'static str, value: impl Into<i64>) -> DecodeError {
    DecodeError::Invalid { what, value: value.into().cast_unsigned() }
}

/// A count that is bounded by the bytes left and by `max`.
fn bounded(
    r: &mut Reader,
    what: &'static str,
    element_bytes_min: usize,
    max: usize,
) -> Result<usize, DecodeError> {
    let count = r.count(element_bytes_min)?;
    if count > max {
        return Err(DecodeError::Invalid { what, value: count as u64 });
    }
    Ok(count)
}

impl Encode for CrushMap {
    fn encode(&self, w: &mut Writer) {
        w.u32(MAGIC);
        w.count(self.buckets.len());
        w.count(self.rules.len());
        w.i32(self.max_devices);
        for bucket in &self.buckets {
            match bucket {
                Some(bucket) => encode_bucket(bucket, w),
                None => w.u32(0),
            }
        }
        for rule in &self.rules {
            w.u32(u32::from(rule.is_some()));
            if let Some(rule) = rule {
                encode_rule(rule, w);
            }
        }
        w.put(&self.type_names);
        w.put(&self.item_names);
        w.put(&self.rule_names);
        encode_tunables(&self.tunables, w);
        w.put(&self.item_classes);
        w.put(&self.class_names);
        w.put(&self.class_buckets);
        encode_choose_args(&self.choose_args, w);
    }
}

impl Decode for CrushMap {
    const MIN_BYTES: usize = 28;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(invalid("crush magic", magic));
        }
        let mut map = Self { tunables: Tunables::LEGACY, ..Self::default() };
        // The counts stand before the slots, but every slot takes four bytes at least.
        let buckets = bounded(r, "crush max_buckets", 4, BUCKETS_MAX)?;
        let rules = bounded(r, "crush max_rules", 4, RULES_MAX)?;
        r.skip(4)?; // max_devices: computed, see `devices_end`
        for slot in 0..buckets {
            map.buckets.push(decode_bucket(r, slot)?);
        }
        for _ in 0..rules {
            map.rules.push(if r.u32()? == 0 { None } else { Some(decode_rule(r)?) });
        }
        map.type_names = decode_names(r)?;
        map.item_names = decode_names(r)?;
        map.rule_names = decode_names(r)?;
        decode_tunables(&mut map.tunables, r)?;
        if !r.is_empty() {
            map.item_classes = r.get()?;
            map.class_names = r.get()?;
            map.class_buckets = r.get()?;
        }
        if !r.is_empty() {
            map.choose_args = decode_choose_args(r)?;
        }
        map.max_devices = map.devices_end();
        Ok(map)
    }
}

/// Names by id. Old releases wrote ids of 64 bits, and Ceph's decoder (`decode_32_or_64_string_map`) takes an empty name for the upper half of
/// one: with such a map no client can start.
fn decode_names(r: &mut Reader) -> Result<BTreeMap<i32, String>, DecodeError> {
    let names: BTreeMap<i32, String> = r.get()?;
    match names.iter().find(|(_, name)| name.is_empty()) {
        Some((id, _)) => Err(invalid("empty name in a crush map", *id)),
        None => Ok(names),
    }
}

fn encode_pairs(w: &mut Writer, left: &[u32], right: &[u32]) {
    for (left, right) in left.iter().zip(right) {
        w.u32(*left);
        w.u32(*right);
    }
}

fn encode_bucket(bucket: &Bucket, w: &mut Writer) {
    let alg = bucket.alg() as u8;
    w.u32(alg.into());
    w.i32(bucket.id);
    w.u16(bucket.kind);
    w.u8(alg);
    w.u8(bucket.hash);
    w.u32(bucket.weight);
    w.put(&bucket.items);
    match &bucket.body {
        BucketBody::Uniform { item_weight } => w.u32(*item_weight),
        BucketBody::List { item_weights, sum_weights } => encode_pairs(w, item_weights, sum_weights),
        BucketBody::Tree { node_weights } => {
            // Node counts are powers of two of at most 128 (see `bucket::TREE_ITEMS_MAX`).
            w.u8(u8::try_from(node_weights.len()).unwrap_or(0));
            node_weights.iter().for_each(|weight| w.u32(*weight));
        }
        BucketBody::Straw { item_weights, straws } => encode_pairs(w, item_weights, straws),
        BucketBody::Straw2 { item_weights } => item_weights.iter().for_each(|weight| w.u32(*weight)),
    }
}

fn decode_bucket(r: &mut Reader, slot: usize) -> Result<Option<Bucket>, DecodeError> {
    if r.u32()? == 0 {
        return Ok(None);
    }
    let id = r.i32()?;
    if i64::from(id) != -1 - slot as i64 {
        return Err(invalid("crush bucket id", id));
    }
    let kind = r.u16()?;
    let alg = r.u8()?;
    let hash = r.u8()?;
    let weight = r.u32()?;
    let size = bounded(r, "crush bucket size", 4, BUCKET_ITEMS_MAX)?;
    let items = (0..size).map(|_| r.i32()).collect::<Result<_, _>>()?;
    let body = decode_body(r, alg, size)?;
    Ok(Some(Bucket { id, kind, hash, weight, items, body }))
}

fn decode_body(r: &mut Reader, alg: u8, size: usize) -> Result<BucketBody, DecodeError> {
    Ok(match alg {
        1 => BucketBody::Uniform { item_weight: r.u32()? },
        2 => {
            let (item_weights, sum_weights) = decode_pairs(r, size)?;
            BucketBody::List { item_weights, sum_weights }
        }
        3 => {
            let nodes = usize::from(r.u8()?);
            BucketBody::Tree { node_weights: decode_weights(r, nodes)? }
        }
        4 => {
            let (item_weights, straws) = decode_pairs(r, size)?;
            BucketBody::Straw { item_weights, straws }
        }
        5 => BucketBody::Straw2 { item_weights: decode_weights(r, size)? },
        alg => return Err(invalid("crush bucket alg", alg)),
    })
}

fn decode_weights(r: &mut Reader, count: usize) -> Result<Vec<u32>, DecodeError> {
    (0..count).map(|_| r.u32()).collect()
}

fn decode_pairs(r: &mut Reader, count: usize) -> Result<(Vec<u32>, Vec<u32>), DecodeError> {
    let pairs = (0..count).map(|_| r.get::<(u32, u32)>()).collect::<Result<Vec<_>, _>>()?;
    Ok(pairs.into_iter().unzip())
}

fn encode_rule(rule: &Rule, w: &mut Writer) {
    w.count(rule.steps.len());
    w.u8(rule.ruleset);
    w.u8(rule.kind.0);
    w.u8(rule.min_size);
    w.u8(rule.max_size);
    for step in &rule.steps {
        let (op, arg1, arg2) = step.to_wire();
        w.u32(op);
        w.i32(arg1);
        w.i32(arg2);
    }
}

fn decode_rule(r: &mut Reader) -> Result<Rule, DecodeError> {
    let count = bounded(r, "crush rule length", 4, RULE_STEPS_MAX)?;
    let mut rule = Rule {
        ruleset: r.u8()?,
        kind: RuleKind(r.u8()?),
        min_size: r.u8()?,
        max_size: r.u8()?,
        steps: Vec::new(),
    };
    for _ in 0..count {
        rule.steps.push(Step::from_wire(r.u32()?, r.i32()?, r.i32()?));
    }
    Ok(rule)
}

impl Step {
    /// Operation code and arguments. Ceph `crush_rule_step`.
    fn to_wire(self) -> (u32, i32, i32) {
        match self {
            Self::Take(item) => (1, item, 0),
            Self::ChooseFirstN { count, kind } => (2, count, kind),
            Self::ChooseIndep { count, kind } => (3, count, kind),
            Self::Emit => (4, 0, 0),
            Self::ChooseLeafFirstN { count, kind } => (6, count, kind),
            Self::ChooseLeafIndep { count, kind } => (7, count, kind),
            Self::SetChooseTries(n) => (8, n, 0),
            Self::SetChooseLeafTries(n) => (9, n, 0),
            Self::SetChooseLocalTries(n) => (10, n, 0),
            Self::SetChooseLocalFallbackTries(n) => (11, n, 0),
            Self::SetChooseLeafVaryR(n) => (12, n, 0),
            Self::SetChooseLeafStable(n) => (13, n, 0),
            Self::Other { op, arg1, arg2 } => (op, arg1, arg2),
        }
    }

    /// Arguments that a step's kind does not use are dropped; Ceph's own maps have zeros there.
    fn from_wire(op: u32, arg1: i32, arg2: i32) -> Self {
        match op {
            1 => Self::Take(arg1),
            2 => Self::ChooseFirstN { count: arg1, kind: arg2 },
            3 => Self::ChooseIndep { count: arg1, kind: arg2 },
            4 => Self::Emit,
            6 => Self::ChooseLeafFirstN { count: arg1, kind: arg2 },
            7 => Self::ChooseLeafIndep { count: arg1, kind: arg2 },
            8 => Self::SetChooseTries(arg1),
            9 => Self::SetChooseLeafTries(arg1),
            10 => Self::SetChooseLocalTries(arg1),
            11 => Self::SetChooseLocalFallbackTries(arg1),
            12 => Self::SetChooseLeafVaryR(arg1),
            13 => Self::SetChooseLeafStable(arg1),
            _ => Self::Other { op, arg1, arg2 },
        }
    }
}

fn encode_tunables(tunables: &Tunables, w: &mut Writer) {
    w.u32(tunables.choose_local_tries);
    w.u32(tunables.choose_local_fallback_tries);
    w.u32(tunables.choose_total_tries);
    w.u32(tunables.chooseleaf_descend_once);
    w.u8(tunables.chooseleaf_vary_r);
    w.u8(tunables.straw_calc_version);
    w.u32(tunables.allowed_bucket_algs);
    w.u8(tunables.chooseleaf_stable);
}

/// Each release appended some; what is missing keeps its legacy value.
fn decode_tunables(tunables: &mut Tunables, r: &mut Reader) -> Result<(), DecodeError> {
    if r.is_empty() {
        return Ok(());
    }
    tunables.choose_local_tries = r.u32()?;
    tunables.choose_local_fallback_tries = r.u32()?;
    tunables.choose_total_tries = r.u32()?;
    if !r.is_empty() {
        tunables.chooseleaf_descend_once = r.u32()?;
    }
    if !r.is_empty() {
        tunables.chooseleaf_vary_r = r.u8()?;
    }
    if !r.is_empty() {
        tunables.straw_calc_version = r.u8()?;
    }
    if !r.is_empty() {
        tunables.allowed_bucket_algs = r.u32()?;
    }
    if !r.is_empty() {
        tunables.chooseleaf_stable = r.u8()?;
    }
    Ok(())
}

fn encode_choose_args(all: &BTreeMap<i64, ChooseArgs>, w: &mut Writer) {
    w.count(all.len());
    for (id, args) in all {
        w.i64(*id);
        w.count(args.len());
        for (slot, arg) in args {
            w.u32(*slot);
            w.put(&arg.weight_set);
            w.put(&arg.ids);
        }
    }
}

fn decode_choose_args(r: &mut Reader) -> Result<BTreeMap<i64, ChooseArgs>, DecodeError> {
    let mut all = BTreeMap::new();
    for _ in 0..r.count(12)? {
        let id = r.i64()?;
        let mut args = ChooseArgs::new();
        for _ in 0..r.count(12)? {
            args.insert(r.u32()?, ChooseArg { weight_set: r.get()?, ids: r.get()? });
        }
        all.insert(id, args);
    }
    Ok(all)
}
