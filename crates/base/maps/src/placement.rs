//! From an object to its PG, and from a PG to its OSDs.
//!
//! Source: Ceph `OSDMap::_pg_to_up_acting_osds` and what it calls, `pg_pool_t::raw_pg_to_pps`, at v16.2.15.
//!
//! ```text
//! name -> hash -> PG -> CRUSH input -> raw set -> upmap -> up (down OSDs leave) -> primary affinity
//!                                                                   \-> acting (pg_temp, primary_temp)
//! ```

use crate::{OSD_NONE, OsdMap, Pool, WEIGHT_ONE, flags};
use nacre_crush::hash::hash2;
use nacre_crush::{ITEM_NONE, Items};
use nacre_types::hash::{object_hash, stable_mod};
use nacre_types::{ObjectLocator, OsdId, PgId};

/// Where a PG belongs (`up`) and where it is served (`acting`).
///
/// Holes of erasure-coded sets are [`nacre_crush::ITEM_NONE`]; a primary that is not there is
/// [`crate::OSD_NONE`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpActing {
    /// The set that CRUSH and the exceptions yield, without down OSDs.
    pub up: Vec<OsdId>,
    /// Primary of `up`.
    pub up_primary: OsdId,
    /// The set that serves: `up`, unless `pg_temp` says otherwise.
    pub acting: Vec<OsdId>,
    /// The OSD that clients talk to.
    pub acting_primary: OsdId,
}

impl Default for UpActing {
    /// No OSD, and no primary.
    fn default() -> Self {
        Self { up: Vec::new(), up_primary: OSD_NONE, acting: Vec::new(), acting_primary: OSD_NONE }
    }
}

impl Pool {
    /// Folds a full object hash into a PG number.
    #[must_use]
    #[inline]
    pub fn fold_hash(&self, hash: u32) -> u32 {
        stable_mod(hash, self.pg_num)
    }

    /// The CRUSH input of a PG: PGs beyond `pgp_num` share one with their parent. Ceph `raw_pg_to_pps`.
    #[must_use]
    pub fn crush_input(&self, pg: PgId) -> u32 {
        let seed = stable_mod(pg.seed, self.pgp_num);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as Ceph's hash does")]
        let pool = pg.pool as u32;
        if self.has_flag(flags::pool::HASHPSPOOL) { hash2(seed, pool) } else { seed.wrapping_add(pool) }
    }
}

/// First member that is there.
fn first(set: &[OsdId]) -> OsdId {
    set.iter().copied().find(|osd| *osd != ITEM_NONE).unwrap_or(OSD_NONE)
}

/// Keeps members for which `keep` holds; the others leave (replicated) or leave a hole (erasure-coded).
fn filter(pool: &Pool, set: &mut Items, keep: impl Fn(OsdId) -> bool) {
    if pool.is_replicated() {
        set.retain(|osd| keep(*osd));
    } else {
        set.iter_mut().filter(|osd| !keep(**osd)).for_each(|osd| *osd = ITEM_NONE);
    }
}

impl OsdMap {
    /// The PG of an object; `None` when the pool does not exist.
    #[must_use]
    pub fn object_to_pg(&self, name: &[u8], locator: &ObjectLocator) -> Option<PgId> {
        let pool = self.pool(locator.pool)?;
        Some(PgId::new(locator.pool, pool.fold_hash(full_hash(name, locator))))
    }

    /// What CRUSH alone yields, without OSDs that do not exist.
    #[must_use]
    pub fn pg_to_raw_osds(&self, pg: PgId) -> Vec<OsdId> {
        self.pool(pg.pool).map_or_else(Vec::new, |pool| self.raw(pool, pg, pool.crush_input(pg)).into_vec())
    }

    /// What CRUSH and the upmap exceptions yield, down OSDs included.
    #[must_use]
    pub fn pg_to_raw_upmap(&self, pg: PgId) -> Vec<OsdId> {
        let Some(pool) = self.pool(pg.pool) else { return Vec::new() };
        let mut raw = self.raw(pool, pg, pool.crush_input(pg));
        self.apply_upmap(pg, &mut raw);
        raw.into_vec()
    }

    /// Where a PG belongs and where it is served; nowhere when the pool or the PG does not exist.
    #[must_use]
    pub fn pg_to_up_acting(&self, pg: PgId) -> UpActing {
        let Some(pool) = self.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else {
            return UpActing::default();
        };
        let input = pool.crush_input(pg);
        let mut up = self.raw(pool, pg, input);
        self.apply_upmap(pg, &mut up);
        filter(pool, &mut up, |osd| self.is_up(osd));
        let mut up_primary = first(&up);
        self.apply_affinity(pool, input, &mut up, &mut up_primary);
        let mut acting = self.temp(pool, pg);
        let mut acting_primary = self.primary_temp.get(&pg).copied().unwrap_or_else(|| first(&acting));
        if acting.is_empty() {
            acting = up.clone();
            if acting_primary == OSD_NONE {
                acting_primary = up_primary;
            }
        }
        UpActing { up: up.into_vec(), up_primary, acting: acting.into_vec(), acting_primary }
    }

    fn raw(&self, pool: &Pool, pg: PgId, input: u32) -> Items {
        let Some(rule) = self.crush.find_rule(pool.crush_rule, pool.kind as u8, pool.size) else {
            return Items::new();
        };
        let args = self.crush.choose_args_for(pg.pool);
        let mut raw = self.crush.do_rule(rule, input, pool.size.into(), &self.osd_weight, args);
        filter(pool, &mut raw, |osd| self.exists(osd));
        raw
    }

    /// A target that exists in the map and is marked out.
    fn is_marked_out(&self, osd: OsdId) -> bool {
        usize::try_from(osd).ok().and_then(|osd| self.osd_weight.get(osd)) == Some(&0)
    }

    fn apply_upmap(&self, pg: PgId, raw: &mut Items) {
        if let Some(targets) = self.pg_upmap.get(&pg) {
            if targets.iter().any(|osd| self.is_marked_out(*osd)) {
                return;
            }
            *raw = Items::from_slice(targets);
        }
        for (from, to) in self.pg_upmap_items.get(&pg).map(Vec::as_slice).unwrap_or_default() {
            if raw.contains(to) || self.is_marked_out(*to) {
                continue;
            }
            if let Some(place) = raw.iter_mut().find(|osd| *osd == from) {
                *place = *to;
            }
        }
    }

    /// Passes over OSDs of low affinity, each for its share of the PGs, when choosing the primary.
    fn apply_affinity(&self, pool: &Pool, input: u32, up: &mut Items, primary: &mut OsdId) {
        if self.osd_primary_affinity.is_empty() {
            return;
        }
        let there = |osd: &OsdId| *osd != ITEM_NONE;
        if up.iter().filter(|osd| there(osd)).all(|osd| self.primary_affinity(*osd) == WEIGHT_ONE) {
            return;
        }
        let takes = |osd: OsdId| wants_to_lead(self.primary_affinity(osd), refusal(input, osd));
        let willing = up.iter().position(|osd| there(osd) && takes(*osd));
        let Some(chosen) = willing.or_else(|| up.iter().position(there)) else { return };
        let Some(osd) = up.get(chosen).copied() else { return };
        *primary = osd;
        if pool.is_replicated() {
            up.remove(chosen);
            up.insert(0, osd);
        }
    }

    /// Who may lead a PG, in the order in which they are asked, each with the number that decides ([`wants_to_lead`]): the first that wants
    /// to leads, and the first of all where none does. Holes and OSDs that are down are left out.
    #[must_use]
    pub fn primary_candidates(&self, pg: PgId) -> Vec<(OsdId, u32)> {
        let Some(pool) = self.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else { return Vec::new() };
        let input = pool.crush_input(pg);
        let mut up = self.raw(pool, pg, input);
        self.apply_upmap(pg, &mut up);
        let there = up.iter().filter(|osd| **osd != ITEM_NONE && self.is_up(**osd));
        there.map(|osd| (*osd, refusal(input, *osd))).collect()
    }

    fn temp(&self, pool: &Pool, pg: PgId) -> Items {
        let mut set = self.pg_temp.get(&pg).map_or_else(Items::new, |set| Items::from_slice(set));
        filter(pool, &mut set, |osd| self.is_up(osd));
        set
    }
}

/// Whether an OSD of this primary affinity (of [`WEIGHT_ONE`]) wants to lead a PG for which it has this number.
#[must_use]
pub const fn wants_to_lead(affinity: u32, refusal: u32) -> bool {
    affinity >= WEIGHT_ONE || refusal < affinity
}

/// An OSD of this primary affinity or a lower one does not want to lead the PG of this input.
fn refusal(input: u32, osd: OsdId) -> u32 {
    hash2(input, osd.cast_unsigned()) >> 16
}

/// The full 32-bit hash that places an object: the locator's, if it has one, else that of key or name.
#[must_use]
pub fn full_hash(name: &[u8], locator: &ObjectLocator) -> u32 {
    if let Ok(hash) = u64::try_from(locator.hash) {
        #[allow(clippy::cast_possible_truncation, reason = "Ceph keeps the low half as well")]
        return hash as u32;
    }
    let key: &[u8] = if locator.key.is_empty() { name } else { &locator.key };
    object_hash(&locator.namespace, key)
}
