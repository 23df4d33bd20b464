//! Who leads what, what each should lead, and the steps of affinity that bring one nearer to the other.

use super::Evenness;
use nacre_maps::{OsdMap, WEIGHT_ONE, wants_to_lead};
use nacre_types::OsdId;
use std::collections::{BTreeMap, BTreeSet};

/// Steps of one chain.
const CHAIN_MAX: usize = 16;
/// OSDs with which chains begin, of the busiest and of the others each.
const STARTS_MAX: usize = 32;
/// Squares that a chain takes away at least: as one does that begins at an OSD with one PG and a quarter more, by its share, than the one
/// at which it ends. Anything less would come and go for ever.
const GAIN_MIN: f64 = 0.5;

/// What one OSD leads, and what it should lead.
#[derive(Debug, Clone, Default)]
struct Seat {
    affinity: u32,
    /// As the map has it.
    affinity_before: u32,
    is_fixed: bool,
    /// Indices of the PGs that it has a copy of, with the number below which an affinity does not lead them.
    member_of: Vec<(usize, u32)>,
    leads: f64,
    share: f64,
}

impl Seat {
    fn excess(&self) -> f64 {
        self.leads - self.share
    }

    fn wants(&self, refusal: u32) -> bool {
        wants_to_lead(self.affinity, refusal)
    }
}

/// An affinity at which one PG gets another primary, and who leads that then, or led it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    affinity: u32,
    other: OsdId,
}

/// Whether affinities are lowered, so that PGs go to others, or raised, so that they come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Down,
    Up,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Seats {
    osds: BTreeMap<OsdId, Seat>,
    /// Of each PG who may lead it, in order.
    pgs: Vec<Vec<(OsdId, u32)>>,
    leaders: Vec<OsdId>,
    /// PGs that steps have given another primary.
    pub(super) moves: usize,
    looks: u64,
}

impl Seats {
    pub(super) fn new(map: &OsdMap, fixed: &BTreeSet<OsdId>) -> Self {
        let seat = |osd: OsdId| {
            let affinity = map.primary_affinity(osd);
            let is_fixed = fixed.contains(&osd);
            (osd, Seat { affinity, affinity_before: affinity, is_fixed, ..Seat::default() })
        };
        Self {
            osds: map.up_osds().map(seat).collect(),
            pgs: Vec::new(),
            leaders: Vec::new(),
            moves: 0,
            looks: 0,
        }
    }

    /// Takes in a PG, by who may lead it.
    pub(super) fn add(&mut self, candidates: Vec<(OsdId, u32)>) {
        if let Some(leader) = self.leader(&candidates) {
            self.add_led(candidates, leader);
        }
    }

    /// Likewise, by who leads it.
    pub(super) fn add_led(&mut self, candidates: Vec<(OsdId, u32)>, leader: OsdId) {
        for (osd, refusal) in &candidates {
            if let Some(seat) = self.osds.get_mut(osd) {
                seat.member_of.push((self.pgs.len(), *refusal));
                seat.leads += f64::from(u8::from(*osd == leader));
            }
        }
        self.pgs.push(candidates);
        self.leaders.push(leader);
    }

    /// All PGs are in: what each should lead. What one of fixed affinity leads is its share; the others' PGs belong to all of their members
    /// alike.
    pub(super) fn share_out(&mut self) {
        for (candidates, leader) in self.pgs.iter().zip(&self.leaders) {
            let is_fixed = |osd: &OsdId| self.osds.get(osd).is_none_or(|seat| seat.is_fixed);
            let heirs: Vec<OsdId> = if is_fixed(leader) {
                vec![*leader]
            } else {
                candidates.iter().map(|(osd, _)| *osd).filter(|osd| !is_fixed(osd)).collect()
            };
            let part = 1.0 / f64::from(u32::try_from(heirs.len()).unwrap_or(u32::MAX).max(1));
            for osd in heirs {
                self.osds.entry(osd).and_modify(|seat| seat.share += part);
            }
        }
    }

    /// Who leads; the first where nobody wants to.
    fn leader(&self, candidates: &[(OsdId, u32)]) -> Option<OsdId> {
        self.leader_with(candidates, None)
    }

    /// Likewise, when this OSD has that affinity instead of its own.
    fn leader_with(&self, candidates: &[(OsdId, u32)], other: Option<(OsdId, u32)>) -> Option<OsdId> {
        let affinity = |osd: OsdId| match other {
            Some((other, affinity)) if other == osd => Some(affinity),
            _ => self.osds.get(&osd).map(|seat| seat.affinity),
        };
        let wants = |(osd, refusal): &&(OsdId, u32)| {
            affinity(*osd).is_some_and(|affinity| wants_to_lead(affinity, *refusal))
        };
        let chosen = candidates.iter().find(wants).or_else(|| candidates.first());
        chosen.map(|(osd, _)| *osd)
    }

    pub(super) fn evenness(&self) -> Evenness {
        let measured = self.osds.iter().filter(|(_, seat)| seat.share >= 1.0);
        let ratios = measured.map(|(osd, seat)| (*osd, seat.leads / seat.share));
        let busiest = ratios.max_by(|one, other| one.1.total_cmp(&other.1));
        let deviations = self.osds.values().map(|seat| seat.excess().abs());
        Evenness {
            busiest: busiest.map(|(osd, _)| osd),
            spread: busiest.map_or(1.0, |(_, ratio)| ratio),
            deviation: deviations.fold(0.0, f64::max),
        }
    }

    /// Affinities that are not as they were.
    pub(super) fn changed(&self) -> BTreeMap<OsdId, u32> {
        let changed = self.osds.iter().filter(|(_, seat)| seat.affinity != seat.affinity_before);
        changed.map(|(osd, seat)| (*osd, seat.affinity)).collect()
    }

    /// Finds a chain of steps that makes the primaries more even, beginning with one of the busiest OSDs or of those that lead least, and
    /// carries it out: what it cost in looks; `None` where there is none. The end of one step is the beginning of the next: an OSD that
    /// inherits a PG and has enough gives another one away.
    pub(super) fn improve(&mut self) -> Option<u64> {
        let free = self.osds.iter().filter(|(_, seat)| !seat.is_fixed);
        let mut order: Vec<(f64, OsdId)> = free.map(|(osd, seat)| (seat.excess(), *osd)).collect();
        order.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let busiest = order.iter().filter(|(excess, _)| *excess > 0.0).map(|(_, osd)| (*osd, Way::Down));
        let idlest = order.iter().rev().filter(|(excess, _)| *excess < 0.0).map(|(_, osd)| (*osd, Way::Up));
        let starts: Vec<(OsdId, Way)> = busiest.take(STARTS_MAX).chain(idlest.take(STARTS_MAX)).collect();
        self.looks = order.len() as u64;
        let found = starts.into_iter().any(|(osd, way)| self.chain(osd, way));
        found.then_some(self.looks)
    }

    /// A chain from one OSD, if it is worth it.
    fn chain(&mut self, start: OsdId, way: Way) -> bool {
        let (mut undo, mut osd, mut gained) = (Vec::new(), start, 0.0);
        for _ in 0..CHAIN_MAX {
            self.looks += self.osds.get(&osd).map_or(0, |seat| seat.member_of.len() as u64);
            let step = if way == Way::Down { self.lower(osd) } else { self.raise(osd) };
            let Some(step) = step.filter(|step| self.is_allowed(step)) else { break };
            undo.push((osd, self.osds.get(&osd).map_or(WEIGHT_ONE, |seat| seat.affinity)));
            gained += self.set(osd, step.affinity);
            if gained > GAIN_MIN {
                self.moves += undo.len();
                return true;
            }
            osd = step.other;
        }
        for (osd, affinity) in undo.into_iter().rev() {
            self.set(osd, affinity);
        }
        false
    }

    /// The highest affinity at which the OSD leads one PG less, and who leads that one then.
    fn lower(&self, osd: OsdId) -> Option<Step> {
        let seat = self.osds.get(&osd)?;
        let led = seat
            .member_of
            .iter()
            .filter(|(pg, refusal)| self.leaders.get(*pg) == Some(&osd) && seat.wants(*refusal));
        let (pg, affinity) = *led.max_by_key(|(pg, refusal)| (*refusal, *pg))?;
        let other = self.leader_with(self.pgs.get(pg)?, Some((osd, affinity)))?;
        (other != osd).then_some(Step { affinity, other })
    }

    /// The lowest affinity at which the OSD leads one PG more.
    fn raise(&self, osd: OsdId) -> Option<Step> {
        let seat = self.osds.get(&osd)?;
        let refused = seat.member_of.iter().filter(|(_, refusal)| !seat.wants(*refusal));
        let mut refused: Vec<(u32, usize)> = refused.map(|(pg, refusal)| (*refusal, *pg)).collect();
        refused.sort_unstable();
        refused.into_iter().find_map(|(refusal, pg)| {
            let affinity = refusal + 1;
            let other = *self.leaders.get(pg).filter(|leader| **leader != osd)?;
            let gains = self.leader_with(self.pgs.get(pg)?, Some((osd, affinity))) == Some(osd);
            gains.then_some(Step { affinity, other })
        })
    }

    fn is_allowed(&self, step: &Step) -> bool {
        self.osds.get(&step.other).is_some_and(|seat| !seat.is_fixed)
    }

    /// Gives an OSD another affinity; by how much the squares of what OSDs lead too many or too few become less. An affinity may decide
    /// about several PGs when they share a number: all of the OSD's are asked again.
    fn set(&mut self, osd: OsdId, affinity: u32) -> f64 {
        let Some(seat) = self.osds.get_mut(&osd) else { return 0.0 };
        seat.affinity = affinity;
        let members: Vec<usize> = seat.member_of.iter().map(|(pg, _)| *pg).collect();
        self.looks += members.len() as u64;
        let mut gained = 0.0;
        for pg in members {
            let leader = self.pgs.get(pg).and_then(|candidates| self.leader(candidates));
            let (Some(new), Some(old)) = (leader, self.leaders.get_mut(pg)) else { continue };
            if new != *old {
                let old = std::mem::replace(old, new);
                gained += self.add_led_by(old, -1.0) + self.add_led_by(new, 1.0);
            }
        }
        gained
    }

    fn add_led_by(&mut self, osd: OsdId, more: f64) -> f64 {
        let Some(seat) = self.osds.get_mut(&osd) else { return 0.0 };
        let before = seat.excess().powi(2);
        seat.leads += more;
        before - seat.excess().powi(2)
    }
}
