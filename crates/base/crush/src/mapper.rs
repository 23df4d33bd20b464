//! Runs a rule: input number in, list of devices out.
//!
//! Source: Ceph `src/crush/mapper.c` at v16.2.15 (`crush_do_rule`, `crush_choose_firstn`,
//! `crush_choose_indep`). Hostile maps (cyclic trees, absurd numbers of tries) end by a budget of work.

use crate::choose::{bits, choose, permute};
use crate::hash::hash2;
use crate::{Bucket, BucketBody, ChooseArgs, CrushMap, ITEM_NONE, Rule, Step};
use smallvec::SmallVec;

/// Result or working set: on the stack for sets of usual size.
pub type Items = SmallVec<[i32; 16]>;

/// A slot that is still to be filled. Ceph `CRUSH_ITEM_UNDEF`.
const ITEM_UNDEF: i32 = 0x7fff_fffe;
/// Items that one run may look at before it gives up; far above what a sane map can need.
pub const DRAWS_MAX: u64 = 1 << 24;
/// Slots of one result; Ceph's callers ask for at most a pool's size.
pub const RESULT_MAX: usize = 4096;

impl CrushMap {
    /// Maps input `x` to at most `result_max` devices by rule `rule`; `weights` are the OSD map's (16.16, 0 is
    /// out), `args` the weight set to use.
    ///
    /// An unknown rule yields the empty set. Holes of `indep` steps are [`ITEM_NONE`].
    #[must_use]
    pub fn do_rule(
        &self,
        rule: usize,
        x: u32,
        result_max: usize,
        weights: &[u32],
        args: Option<&ChooseArgs>,
    ) -> Items {
        let result_max = result_max.min(RESULT_MAX);
        match self.rules.get(rule) {
            Some(Some(rule)) => Run::new(self, x, result_max, weights, args).rule(rule),
            _ => Items::new(),
        }
    }
}

/// Numbers of tries in force, changed by `set_*` steps.
#[derive(Clone, Copy)]
struct Tries {
    total: u32,
    leaf: u32,
    local: u32,
    local_fallback: u32,
    vary_r: u32,
    stable: bool,
}

/// What one choose step looks for.
#[derive(Clone, Copy)]
struct Goal {
    kind: i32,
    /// How many the rule wants; also the stride of retries.
    count: u32,
    tries: u32,
    /// Tries below each item for a device, or `None` to stay at this level.
    leaf_tries: Option<u32>,
    parent_r: u32,
}

/// Outcome of one descent from a bucket.
enum Found {
    /// An item of the wanted type, under this bucket's child list.
    Item(i32),
    /// A bucket without items on the way.
    Empty,
    /// Something that no further try can repair.
    Bad,
}

struct Run<'a> {
    map: &'a CrushMap,
    x: u32,
    result_max: usize,
    weights: &'a [u32],
    args: Option<&'a ChooseArgs>,
    tries: Tries,
    draws_left: u64,
}

/// Overrides `field` by a step's argument when that is at least `least`.
fn set(field: &mut u32, argument: i32, least: i32) {
    if argument >= least {
        *field = argument.cast_unsigned();
    }
}

impl<'a> Run<'a> {
    fn new(
        map: &'a CrushMap,
        x: u32,
        result_max: usize,
        weights: &'a [u32],
        args: Option<&'a ChooseArgs>,
    ) -> Self {
        let tunables = &map.tunables;
        let tries = Tries {
            // The tunable once counted retries, hence one more try.
            total: tunables.choose_total_tries.saturating_add(1),
            leaf: 0,
            local: tunables.choose_local_tries,
            local_fallback: tunables.choose_local_fallback_tries,
            vary_r: tunables.chooseleaf_vary_r.into(),
            stable: tunables.chooseleaf_stable != 0,
        };
        Self { map, x, result_max, weights, args, tries, draws_left: DRAWS_MAX }
    }

    fn rule(&mut self, rule: &Rule) -> Items {
        let (mut result, mut working) = (Items::new(), Items::new());
        for step in &rule.steps {
            match *step {
                Step::Take(item) if self.exists(item) => working = Items::from_elem(item, 1),
                Step::Take(_) | Step::Other { .. } => {}
                Step::ChooseFirstN { count, kind } => working = self.step(&working, count, kind, true, false),
                Step::ChooseIndep { count, kind } => working = self.step(&working, count, kind, false, false),
                Step::ChooseLeafFirstN { count, kind } => {
                    working = self.step(&working, count, kind, true, true)
                }
                Step::ChooseLeafIndep { count, kind } => {
                    working = self.step(&working, count, kind, false, true)
                }
                Step::Emit => {
                    let room = self.result_max - result.len();
                    result.extend(working.drain(..).take(room));
                }
                Step::SetChooseTries(n) => set(&mut self.tries.total, n, 1),
                Step::SetChooseLeafTries(n) => set(&mut self.tries.leaf, n, 1),
                Step::SetChooseLocalTries(n) => set(&mut self.tries.local, n, 0),
                Step::SetChooseLocalFallbackTries(n) => set(&mut self.tries.local_fallback, n, 0),
                Step::SetChooseLeafVaryR(n) => set(&mut self.tries.vary_r, n, 0),
                Step::SetChooseLeafStable(n) if n >= 0 => self.tries.stable = n != 0,
                Step::SetChooseLeafStable(_) => {}
            }
        }
        result
    }

    fn exists(&self, item: i32) -> bool {
        if item >= 0 { item < self.map.max_devices } else { self.map.bucket(item).is_some() }
    }

    /// One choose step over every bucket of the working set.
    fn step(&mut self, working: &Items, count: i32, kind: i32, firstn: bool, to_leaf: bool) -> Items {
        let (mut out, mut leaves) = (Items::new(), Items::new());
        let wanted = if count > 0 { i64::from(count) } else { i64::from(count) + self.result_max as i64 };
        let Some(wanted) = u32::try_from(wanted).ok().filter(|wanted| *wanted > 0) else {
            return out;
        };
        for item in working {
            let Some(bucket) = self.map.bucket(*item) else { continue };
            let room = self.result_max - out.len();
            let leaf_tries = to_leaf.then(|| self.leaf_tries(firstn));
            let goal = Goal { kind, count: wanted, tries: self.tries.total, leaf_tries, parent_r: 0 };
            let (mut found, mut under) = (Items::new(), Items::new());
            if firstn {
                self.firstn(bucket, goal, &mut found, room, &mut under);
            } else {
                let slots = room.min(wanted as usize);
                self.indep(bucket, goal, 0, slots, &mut found, &mut under);
            }
            out.append(&mut found);
            leaves.append(&mut under);
        }
        if to_leaf { leaves } else { out }
    }

    fn leaf_tries(&self, firstn: bool) -> u32 {
        match (self.tries.leaf, firstn, self.map.tunables.chooseleaf_descend_once) {
            (0, true, 0) => self.tries.total,
            (0, _, _) => 1,
            (set, _, _) => set,
        }
    }

    /// Charges one choice among the items of `bucket`; false when the budget is spent.
    fn charge(&mut self, bucket: &Bucket) -> bool {
        let draws = bucket.items.len() as u64 + 1;
        let enough = self.draws_left >= draws;
        self.draws_left = self.draws_left.saturating_sub(draws);
        enough
    }

    fn kind_of(&self, item: i32) -> Option<i32> {
        if item >= 0 {
            return (item < self.map.max_devices).then_some(0);
        }
        self.map.bucket(item).map(|bucket| i32::from(bucket.kind))
    }

    fn pick(&self, bucket: &Bucket, r: u32, position: usize) -> Option<i32> {
        let slot = u32::try_from(-1 - i64::from(bucket.id)).ok()?;
        let arg = self.args.and_then(|args| args.get(&slot));
        choose(bucket, self.x, r, arg, position)
    }

    fn is_out(&self, item: i32) -> bool {
        let weight = usize::try_from(item).ok().and_then(|item| self.weights.get(item)).copied().unwrap_or(0);
        weight < 0x1_0000 && (weight == 0 || hash2(self.x, bits(item)) & 0xffff >= weight)
    }

    /// Fills `out` with up to `room` distinct items, closing up where none is found; `leaves` gets the
    /// devices below them. Each entry of `out` beyond those it starts with is new.
    fn firstn(&mut self, bucket: &'a Bucket, goal: Goal, out: &mut Items, room: usize, leaves: &mut Items) {
        for rep in 0..goal.count {
            if out.len() >= room || self.draws_left == 0 {
                break;
            }
            if let Some(item) = self.firstn_one(bucket, goal, rep, out, leaves) {
                out.push(item);
            }
        }
    }

    /// One replica: descend, and on a reject retry in the same bucket, by permutation, or from the top.
    fn firstn_one(
        &mut self,
        top: &'a Bucket,
        goal: Goal,
        rep: u32,
        out: &Items,
        leaves: &mut Items,
    ) -> Option<i32> {
        let mut failures: u32 = 0;
        'descent: loop {
            let mut bucket = top;
            let mut local_failures: u32 = 0;
            loop {
                let r = rep.wrapping_add(goal.parent_r).wrapping_add(failures);
                let found = self.firstn_pick(&mut bucket, goal, r, local_failures, out.len());
                let collides = match found {
                    Found::Bad => return None,
                    Found::Empty => false,
                    Found::Item(item) if out.contains(&item) => true,
                    Found::Item(item) if self.accept(item, goal, r, out.len(), leaves) => return Some(item),
                    Found::Item(_) => false,
                };
                failures += 1;
                local_failures += 1;
                if collides && local_failures <= self.tries.local {
                    continue;
                }
                let fallback = self.tries.local_fallback;
                let exhaustive = bucket.items.len() as u64 + u64::from(fallback);
                if fallback > 0 && u64::from(local_failures) <= exhaustive {
                    continue;
                }
                if failures < goal.tries {
                    continue 'descent;
                }
                return None;
            }
        }
    }

    /// Goes down to an item of the wanted type. Leaves `bucket` where the last choice was made, for local retries.
    fn firstn_pick(
        &mut self,
        bucket: &mut &'a Bucket,
        goal: Goal,
        r: u32,
        local_failures: u32,
        position: usize,
    ) -> Found {
        loop {
            if !self.charge(bucket) {
                return Found::Bad;
            }
            if bucket.items.is_empty() {
                return Found::Empty;
            }
            let fallback = self.tries.local_fallback;
            let by_permutation = fallback > 0
                && local_failures as usize >= bucket.items.len() >> 1
                && local_failures > fallback;
            let item =
                if by_permutation { permute(bucket, self.x, r) } else { self.pick(bucket, r, position) };
            match self.classify(item, goal.kind) {
                Ok(found) => return found,
                Err(below) => *bucket = below,
            }
        }
    }

    /// An item of the wanted type, a dead end, or (as `Err`) the bucket to go on from.
    fn classify(&self, item: Option<i32>, kind: i32) -> Result<Found, &'a Bucket> {
        let Some(item) = item else { return Ok(Found::Bad) };
        match self.kind_of(item) {
            Some(found) if found == kind => Ok(Found::Item(item)),
            Some(_) => self.map.bucket(item).map_or(Ok(Found::Bad), Err),
            None => Ok(Found::Bad),
        }
    }

    /// True when `item` (at `position` of the set) is usable; for chooseleaf, also finds the device below.
    fn accept(&mut self, item: i32, goal: Goal, r: u32, position: usize, leaves: &mut Items) -> bool {
        if let Some(leaf_tries) = goal.leaf_tries {
            match self.map.bucket(item) {
                Some(below) => return self.leaf(below, leaf_tries, r, position, leaves),
                None if goal.kind == 0 && self.is_out(item) => return false,
                None => leaves.push(item),
            }
            return true;
        }
        goal.kind != 0 || !self.is_out(item)
    }

    fn leaf(&mut self, below: &'a Bucket, tries: u32, r: u32, position: usize, leaves: &mut Items) -> bool {
        let vary_r = self.tries.vary_r;
        let parent_r = if vary_r > 0 { r.checked_shr(vary_r - 1).unwrap_or(0) } else { 0 };
        let goal = Goal { kind: 0, count: 1, tries, leaf_tries: None, parent_r };
        let first = if self.tries.stable { 0 } else { u32::try_from(position).unwrap_or(u32::MAX) };
        let found = self.firstn_one(below, goal, first, leaves, &mut Items::new());
        leaves.extend(found);
        found.is_some()
    }

    /// Fills slots `from .. from + slots`, each on its own; what cannot be filled becomes a hole.
    fn indep(
        &mut self,
        bucket: &'a Bucket,
        goal: Goal,
        from: usize,
        slots: usize,
        out: &mut Items,
        leaves: &mut Items,
    ) {
        out.resize(slots, ITEM_UNDEF);
        leaves.resize(slots, ITEM_UNDEF);
        let mut left = slots;
        for round in 0..goal.tries {
            if left == 0 || self.draws_left == 0 {
                break;
            }
            for slot in 0..slots {
                if out.get(slot) == Some(&ITEM_UNDEF)
                    && self.indep_one(bucket, goal, from, slot, round, out, leaves)
                {
                    left -= 1;
                }
            }
        }
        for item in out.iter_mut().chain(leaves.iter_mut()).filter(|item| **item == ITEM_UNDEF) {
            *item = ITEM_NONE;
        }
    }

    /// One try for one slot; true when the slot is settled, be it as a hole.
    #[allow(clippy::too_many_arguments, reason = "the state of one loop, spelled out")]
    fn indep_one(
        &mut self,
        top: &'a Bucket,
        goal: Goal,
        from: usize,
        slot: usize,
        round: u32,
        out: &mut Items,
        leaves: &mut Items,
    ) -> bool {
        let rep = u32::try_from(from + slot).unwrap_or(u32::MAX);
        let mut bucket = top;
        let (item, r) = loop {
            let charged = self.charge(bucket);
            if charged && bucket.items.is_empty() {
                return false;
            }
            let r =
                rep.wrapping_add(goal.parent_r).wrapping_add(stride(bucket, goal.count).wrapping_mul(round));
            let item = if charged { self.pick(bucket, r, from) } else { None };
            match self.classify(item, goal.kind) {
                Ok(Found::Item(item)) => break (item, r),
                Ok(_) => {
                    put(out, slot, ITEM_NONE);
                    put(leaves, slot, ITEM_NONE);
                    return true;
                }
                Err(below) => bucket = below,
            }
        };
        if out.contains(&item) || !self.indep_leaf(item, goal, from + slot, r, slot, leaves) {
            return false;
        }
        if goal.kind == 0 && self.is_out(item) {
            return false;
        }
        put(out, slot, item);
        true
    }

    /// For chooseleaf: puts the device below `item` into the slot of `leaves`. An out device that was itself
    /// the item stays there even if the slot ends as a hole, as in Ceph.
    fn indep_leaf(
        &mut self,
        item: i32,
        goal: Goal,
        rep: usize,
        r: u32,
        slot: usize,
        leaves: &mut Items,
    ) -> bool {
        let Some(tries) = goal.leaf_tries else { return true };
        let Some(below) = self.map.bucket(item) else {
            put(leaves, slot, item);
            return true;
        };
        let goal = Goal { kind: 0, count: goal.count, tries, leaf_tries: None, parent_r: r };
        let mut found = Items::new();
        self.indep(below, goal, rep, 1, &mut found, &mut Items::new());
        let device = found.first().copied().unwrap_or(ITEM_NONE);
        put(leaves, slot, device);
        device != ITEM_NONE
    }
}

/// How far `r` moves per round: one more than the set's size where that size divides a uniform bucket's, so
/// that rounds do not meet the same items again.
fn stride(bucket: &Bucket, count: u32) -> u32 {
    let uniform = matches!(bucket.body, BucketBody::Uniform { .. });
    if uniform && bucket.items.len().is_multiple_of(count as usize) { count.wrapping_add(1) } else { count }
}

fn put(items: &mut Items, slot: usize, item: i32) {
    if let Some(at) = items.get_mut(slot) {
        *at = item;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketAlg, RuleKind};

    /// A root over itself through two buckets: no descent ends by itself.
    #[test]
    fn a_cyclic_tree_ends_by_the_budget() {
        let mut map = CrushMap::fresh("osd");
        let (mut a, mut b) = (Bucket::new(-1, 11, BucketAlg::Straw2), Bucket::new(-2, 3, BucketAlg::Straw2));
        a.set_entries(&[(-2, 0x1_0000)], 1);
        b.set_entries(&[(-1, 0x1_0000)], 1);
        map.buckets[0] = Some(a);
        map.buckets[1] = Some(b);
        assert!(map.do_rule(0, 1, 3, &[0x1_0000; 4], None).is_empty());
    }

    #[test]
    fn absurd_steps_end_too() {
        let mut map = CrushMap::fresh("osd");
        let steps = vec![
            Step::SetChooseTries(i32::MAX),
            Step::Take(-1),
            Step::ChooseFirstN { count: i32::MAX, kind: 0 },
            Step::ChooseIndep { count: i32::MIN, kind: 0 },
            Step::Emit,
        ];
        map.rules[0] = Some(Rule { ruleset: 0, kind: RuleKind::REPLICATED, min_size: 1, max_size: 9, steps });
        assert!(map.do_rule(0, 1, usize::MAX, &[], None).is_empty(), "an empty root");
        map.buckets[0].as_mut().expect("the root").set_entries(&[(0, 0), (1, 0)], 1);
        map.max_devices = 2;
        assert!(map.do_rule(0, 1, usize::MAX, &[], None).is_empty(), "all devices out");
    }
}
