//! [`Reach`]: the OSDs that a pool's rule chooses from, their failure domains, and how many copies each should have.

use nacre_crush::{CrushMap, ITEM_NONE, Rule, Step};
use nacre_maps::{OsdMap, Pool, WEIGHT_ONE};
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// One OSD of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    /// The bucket that holds no second copy, not its shadow of one device class; the OSD itself where that is the failure domain.
    domain: i32,
    /// CRUSH weight times the share that the OSD is in with.
    weight: f64,
}

/// What a rule chooses from one root.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    places: BTreeMap<OsdId, Place>,
    /// Copies of a PG that it chooses.
    copies: f64,
    /// It chooses at several levels: copies move within a domain only, which keeps what the upper levels want.
    is_nested: bool,
}

/// The OSDs that a rule chooses from: of one root, or of several that share none, such as one copy on flash and the others on disks. Each
/// copy moves within the root that it was chosen from.
#[derive(Debug, Clone, PartialEq)]
pub struct Reach {
    parts: Vec<Part>,
}

/// What a rule does between a root and what it gives out.
#[derive(Debug, Clone, Copy)]
struct Choice {
    root: i32,
    /// Level of the last choice.
    level: i32,
    /// Choices at other levels come before.
    is_nested: bool,
    /// Copies that it gives out at most.
    copies: u32,
}

/// The choices of a rule for so many copies; `None` for rules of another form.
fn choices(rule: &Rule, size: u32) -> Option<Vec<Choice>> {
    let (mut out, mut given): (Vec<Choice>, u32) = (Vec::new(), 0);
    let (mut root, mut levels, mut copies) = (None, Vec::new(), 1);
    for step in &rule.steps {
        match step {
            Step::Take(item) => (root, levels, copies) = (Some(*item), Vec::new(), 1),
            Step::ChooseFirstN { kind, count }
            | Step::ChooseIndep { kind, count }
            | Step::ChooseLeafFirstN { kind, count }
            | Step::ChooseLeafIndep { kind, count } => {
                levels.push(*kind);
                // None or fewer than none: as many as there are copies, or so many fewer.
                let wanted =
                    if *count > 0 { count.unsigned_abs() } else { size.saturating_sub(count.unsigned_abs()) };
                copies = wanted.saturating_mul(copies);
            }
            Step::Emit => {
                let level = *levels.last()?;
                let copies = copies.min(size.saturating_sub(given));
                given += copies;
                out.push(Choice { root: root.take()?, level, is_nested: levels.len() > 1, copies });
            }
            _ => {}
        }
    }
    (!out.is_empty()).then_some(out)
}

/// Shadows of buckets, which hold the OSDs of one device class, to the bucket itself.
fn originals(crush: &CrushMap) -> BTreeMap<i32, i32> {
    let of = |(original, shadows): (&i32, &BTreeMap<i32, i32>)| {
        let original = *original;
        shadows.values().map(move |shadow| (*shadow, original)).collect::<Vec<_>>()
    };
    crush.class_buckets.iter().flat_map(of).collect()
}

impl Part {
    /// What is below an item, with `level` as that of failure domains.
    fn collect(
        &mut self,
        map: &OsdMap,
        originals: &BTreeMap<i32, i32>,
        (id, level): (i32, i32),
        domain: Option<i32>,
        seen: &mut BTreeSet<i32>,
    ) {
        let Some(bucket) = map.crush.bucket(id).filter(|_| seen.insert(id)) else { return };
        let own = originals.get(&id).copied().unwrap_or(id);
        let domain = domain.or_else(|| (map.crush.type_of(id) == level).then_some(own));
        for (item, weight) in bucket.entries().filter(|(item, _)| *item != ITEM_NONE) {
            if item < 0 {
                self.collect(map, originals, (item, level), domain, seen);
            } else if map.is_up(item) && map.weight(item) > 0 && weight > 0 {
                let one = f64::from(WEIGHT_ONE);
                let weight = f64::from(weight) / one * f64::from(map.weight(item)) / one;
                self.places.insert(item, Place { domain: domain.unwrap_or(item), weight });
            }
        }
    }

    fn targets(&self, pg_count: f64, counts: &dyn Fn(OsdId) -> f64) -> BTreeMap<OsdId, f64> {
        let mut domains: BTreeMap<i32, f64> = BTreeMap::new();
        for place in self.places.values() {
            *domains.entry(place.domain).or_default() += place.weight;
        }
        let shares = if self.is_nested {
            let mut held: BTreeMap<i32, f64> = BTreeMap::new();
            for (osd, place) in &self.places {
                *held.entry(place.domain).or_default() += counts(*osd) / pg_count;
            }
            held
        } else {
            shares(&domains, self.copies)
        };
        let target = |place: &Place| {
            let (share, whole) = (shares.get(&place.domain), domains.get(&place.domain));
            share.zip(whole).map_or(0.0, |(share, whole)| share * pg_count * place.weight / whole)
        };
        self.places.iter().map(|(osd, place)| (*osd, target(place))).collect()
    }
}

impl Reach {
    /// Of a pool; `None` when its rule is not one that we understand, or takes from roots that share OSDs: nobody can tell then which of
    /// them a copy was chosen from.
    #[must_use]
    pub fn of(map: &OsdMap, pool: &Pool) -> Option<Self> {
        let at = map.crush.find_rule(pool.crush_rule, pool.kind as u8, pool.size)?;
        let rule = map.crush.rule(i32::try_from(at).ok()?)?;
        let originals = originals(&map.crush);
        let mut parts = Vec::new();
        for choice in choices(rule, pool.size.into())? {
            let (copies, is_nested) = (f64::from(choice.copies), choice.is_nested);
            let mut part = Part { places: BTreeMap::new(), copies, is_nested };
            part.collect(map, &originals, (choice.root, choice.level), None, &mut BTreeSet::new());
            parts.push(part);
        }
        let (mut seen, mut osds) = (BTreeSet::new(), parts.iter().flat_map(|part| part.places.keys()));
        osds.all(|osd| seen.insert(*osd)).then_some(Self { parts })
    }

    /// Its OSDs and their weights.
    pub fn weights(&self) -> impl Iterator<Item = (OsdId, f64)> + '_ {
        self.places().map(|(osd, place)| (*osd, place.weight))
    }

    fn places(&self) -> impl Iterator<Item = (&OsdId, &Place)> {
        self.parts.iter().flat_map(|part| &part.places)
    }

    /// Which of its roots an OSD belongs to, counted in the order of the rule.
    #[must_use]
    pub fn part_of(&self, osd: OsdId) -> Option<usize> {
        self.parts.iter().position(|part| part.places.contains_key(&osd))
    }

    fn place(&self, osd: OsdId) -> Option<&Place> {
        self.parts.iter().find_map(|part| part.places.get(&osd))
    }

    /// Whether copies may lie so: none outside, from no root more than the rule wants, no two of one root in one failure domain. Holes may
    /// be anywhere.
    #[must_use]
    pub fn allows(&self, set: &[OsdId]) -> bool {
        let (mut domains, mut counts) = (BTreeSet::new(), vec![0.0; self.parts.len()]);
        let mut there = set.iter().filter(|osd| **osd != ITEM_NONE);
        let is_inside = there.all(|osd| {
            let Some((part, place)) = self.part_of(*osd).zip(self.place(*osd)) else { return false };
            counts.get_mut(part).into_iter().for_each(|count| *count += 1.0);
            domains.insert((part, place.domain))
        });
        is_inside && counts.iter().zip(&self.parts).all(|(count, part)| *count <= part.copies)
    }

    /// Whether the copy on `from` of a PG may lie on `to` instead.
    #[must_use]
    pub fn allows_move(&self, set: &[OsdId], from: OsdId, to: OsdId) -> bool {
        let domain = |osd: OsdId| self.place(osd).map(|place| place.domain);
        let Some((part, wanted)) = self.part_of(to).zip(domain(to)) else { return false };
        let is_nested = self.parts.get(part).is_some_and(|part| part.is_nested);
        !set.contains(&to)
            && self.part_of(from) == Some(part)
            && (!is_nested || domain(from) == Some(wanted))
            // Roots of two device classes have the same hosts.
            && set.iter().all(|osd| *osd == from || domain(*osd) != Some(wanted))
    }

    /// How many copies each OSD should have of `pg_count` PGs. A domain takes at most one copy of each PG from a root; what it cannot take
    /// is for the others, by weight. `counts` is what is there, which stays in its domain where copies cannot leave it.
    #[must_use]
    pub fn targets(&self, pg_count: f64, counts: &dyn Fn(OsdId) -> f64) -> BTreeMap<OsdId, f64> {
        self.parts.iter().flat_map(|part| part.targets(pg_count, counts)).collect()
    }
}

/// Copies of a PG that each domain should have on average: by weight, and at most one.
fn shares(domains: &BTreeMap<i32, f64>, size: f64) -> BTreeMap<i32, f64> {
    let (mut shares, mut left): (BTreeMap<i32, f64>, BTreeMap<i32, f64>) = (BTreeMap::new(), domains.clone());
    let mut copies = size;
    loop {
        let total: f64 = left.values().sum();
        let full: Vec<i32> =
            left.iter().filter(|(_, weight)| **weight * copies >= total).map(|(domain, _)| *domain).collect();
        if full.is_empty() || left.is_empty() {
            shares.extend(left.iter().map(|(domain, weight)| (*domain, copies * weight / total)));
            return shares;
        }
        for domain in full {
            left.remove(&domain);
            shares.insert(domain, 1.0);
            copies -= 1.0;
        }
        copies = copies.max(0.0);
    }
}
