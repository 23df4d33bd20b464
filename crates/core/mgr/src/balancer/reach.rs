//! [`Reach`]: the OSDs that a pool's rule chooses from, their failure domains, and how many copies each should have.

use nacre_crush::{ITEM_NONE, Step};
use nacre_maps::{OsdMap, Pool, WEIGHT_ONE};
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// One OSD of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    /// The bucket that holds no second copy; the OSD itself where that is the failure domain.
    domain: i32,
    /// CRUSH weight times the share that the OSD is in with.
    weight: f64,
}

/// The OSDs that a rule of one root chooses from.
#[derive(Debug, Clone, PartialEq)]
pub struct Reach {
    places: BTreeMap<OsdId, Place>,
    /// The rule chooses at several levels: copies move within a domain only, which keeps what the upper levels want.
    is_nested: bool,
}

/// Level of the last choice, and whether there are several; `None` when the rule takes from more than one root.
fn choice(steps: &[Step]) -> Option<(i32, i32, bool)> {
    let takes: Vec<i32> = steps
        .iter()
        .filter_map(|step| if let Step::Take(root) = step { Some(*root) } else { None })
        .collect();
    let levels: Vec<i32> = steps
        .iter()
        .filter_map(|step| match step {
            Step::ChooseFirstN { kind, .. }
            | Step::ChooseIndep { kind, .. }
            | Step::ChooseLeafFirstN { kind, .. }
            | Step::ChooseLeafIndep { kind, .. } => Some(*kind),
            _ => None,
        })
        .collect();
    match (takes.as_slice(), levels.as_slice()) {
        ([root], [.., level]) => Some((*root, *level, levels.len() > 1)),
        _ => None,
    }
}

impl Reach {
    /// Of a pool; `None` when its rule is not one that we understand.
    #[must_use]
    pub fn of(map: &OsdMap, pool: &Pool) -> Option<Self> {
        let at = map.crush.find_rule(pool.crush_rule, pool.kind as u8, pool.size)?;
        let rule = map.crush.rule(i32::try_from(at).ok()?)?;
        let (root, level, is_nested) = choice(&rule.steps)?;
        let mut reach = Self { places: BTreeMap::new(), is_nested };
        reach.collect(map, (root, level), None, &mut BTreeSet::new());
        Some(reach)
    }

    /// What is below an item, with `level` as that of failure domains.
    fn collect(
        &mut self,
        map: &OsdMap,
        (id, level): (i32, i32),
        domain: Option<i32>,
        seen: &mut BTreeSet<i32>,
    ) {
        let Some(bucket) = map.crush.bucket(id).filter(|_| seen.insert(id)) else { return };
        let domain = domain.or_else(|| (map.crush.type_of(id) == level).then_some(id));
        for (item, weight) in bucket.entries().filter(|(item, _)| *item != ITEM_NONE) {
            if item < 0 {
                self.collect(map, (item, level), domain, seen);
            } else if map.is_up(item) && map.weight(item) > 0 && weight > 0 {
                let one = f64::from(WEIGHT_ONE);
                let weight = f64::from(weight) / one * f64::from(map.weight(item)) / one;
                self.places.insert(item, Place { domain: domain.unwrap_or(item), weight });
            }
        }
    }

    /// Its OSDs and their weights.
    pub fn weights(&self) -> impl Iterator<Item = (OsdId, f64)> + '_ {
        self.places.iter().map(|(osd, place)| (*osd, place.weight))
    }

    /// Whether copies may lie so: none outside, no two in one failure domain. Holes may be anywhere.
    #[must_use]
    pub fn allows(&self, set: &[OsdId]) -> bool {
        let mut domains = BTreeSet::new();
        let mut there = set.iter().filter(|osd| **osd != ITEM_NONE);
        there.all(|osd| self.places.get(osd).is_some_and(|place| domains.insert(place.domain)))
    }

    /// Whether the copy on `from` of a PG may lie on `to` instead.
    #[must_use]
    pub fn allows_move(&self, set: &[OsdId], from: OsdId, to: OsdId) -> bool {
        let domain = |osd: OsdId| self.places.get(&osd).map(|place| place.domain);
        let Some(wanted) = domain(to) else { return false };
        !set.contains(&to)
            && (!self.is_nested || domain(from) == Some(wanted))
            && set.iter().all(|osd| *osd == from || domain(*osd) != Some(wanted))
    }

    /// How many copies each OSD should have of `pg_count` PGs with `size` copies each. A domain takes at most one copy of each PG; what
    /// it cannot take is for the others, by weight. `counts` is what is there, which stays in its domain where copies cannot leave it.
    #[must_use]
    pub fn targets(&self, pg_count: f64, size: f64, counts: &dyn Fn(OsdId) -> f64) -> BTreeMap<OsdId, f64> {
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
            shares(&domains, size)
        };
        let target = |place: &Place| {
            let (share, whole) = (shares.get(&place.domain), domains.get(&place.domain));
            share.zip(whole).map_or(0.0, |(share, whole)| share * pg_count * place.weight / whole)
        };
        self.places.iter().map(|(osd, place)| (*osd, target(place))).collect()
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
