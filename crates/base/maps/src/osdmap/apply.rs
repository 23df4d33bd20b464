//! From one epoch to the next. Ceph `OSDMap::apply_incremental` at v16.2.15.
//!
//! Every daemon and client applies the same change to the same map and must arrive at the same bytes; the
//! order of the steps below is part of that.

use super::OsdMap;
use crate::flags::{osd, osdmap};
use crate::{Incremental, OSDS_MAX, OsdInfo, WEIGHT_ONE, XInfo};
use nacre_buf::Bytes;
use nacre_crush::CrushMap;
use nacre_denc::{Decode, DecodeError};
use nacre_types::{AddrVec, Epoch, OsdId, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a change cannot be applied; its sender is at fault, and the map is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The change is for another cluster.
    #[error("incremental is of cluster {found}, the map of {own}")]
    OtherCluster {
        /// The map's cluster.
        own: Uuid,
        /// Id of the cluster that the change is for.
        found: Uuid,
    },
    /// The change does not follow this map.
    #[error("incremental makes epoch {found}, the map is at {own}")]
    Epoch {
        /// The map's epoch.
        own: Epoch,
        /// The epoch that the change makes.
        found: Epoch,
    },
    /// The change names an OSD beyond the map's end.
    #[error("incremental names osd.{osd}, the map has {max_osd} slots")]
    UnknownOsd {
        /// Number of the OSD.
        osd: OsdId,
        /// Slots of the map.
        max_osd: usize,
    },
    /// `new_max_osd` beyond what we keep.
    #[error("incremental asks for {0} OSD slots")]
    TooManyOsds(i32),
    /// The map inside the change cannot be read.
    #[error("map inside of the incremental: {0}")]
    Nested(#[from] DecodeError),
    /// The result is not what the sender has.
    #[error("map of epoch {epoch} has checksum {computed:#010x}, the sender's {wanted:#010x}")]
    Checksum {
        /// Epoch that the change makes.
        epoch: Epoch,
        /// Checksum that the sender computed.
        wanted: u32,
        /// Checksum of the map that we made.
        computed: u32,
    },
}

/// Flags of releases before Luminous, replaced by `require_osd_release`.
const LEGACY_REQUIRE_FLAGS: u32 = 0x7_0000;
const RELEASE_LUMINOUS: u8 = 12;
const UNCHANGED: u8 = 255;

impl OsdMap {
    /// Turns this map into the next one.
    ///
    /// # Errors
    /// [`ApplyError`]; the map is then unchanged.
    pub fn apply(&mut self, inc: &Incremental) -> Result<(), ApplyError> {
        self.check(inc)?;
        if !inc.fullmap.is_empty() {
            *self = Self::from_bytes(inc.fullmap.clone())?;
            return Ok(());
        }
        let crush = match inc.crush.is_empty() {
            true => None,
            false => Some(Arc::new(CrushMap::from_bytes(inc.crush.clone())?)),
        };
        self.epoch = inc.epoch;
        self.fsid = inc.fsid;
        self.modified = inc.modified;
        self.apply_cluster(inc);
        self.apply_pools(inc);
        self.apply_weights(inc);
        self.apply_profiles(inc);
        self.apply_states(inc);
        self.apply_infos(inc);
        self.apply_exceptions(inc);
        self.apply_blocklist(inc);
        self.apply_settings(inc);
        if let Some(crush) = crush {
            self.crush = crush;
            self.crush_version = self.crush_version.wrapping_add(1);
        }
        Ok(())
    }

    /// As [`OsdMap::apply`], and proves that the result has the bytes that the sender has; returns them. A change that
    /// holds the map whole proves itself: the map has its own checksum.
    ///
    /// # Errors
    /// [`ApplyError`]; on [`ApplyError::Checksum`] the map has been changed and is not to be used.
    pub fn apply_verified(&mut self, inc: &Incremental) -> Result<Bytes, ApplyError> {
        self.apply(inc)?;
        let (bytes, computed) = self.to_bytes_and_crc();
        if inc.fullmap.is_empty() && computed != inc.full_crc {
            return Err(ApplyError::Checksum { epoch: inc.epoch, wanted: inc.full_crc, computed });
        }
        Ok(bytes)
    }

    fn check(&self, inc: &Incremental) -> Result<(), ApplyError> {
        if self.epoch.checked_add(1) != Some(inc.epoch) {
            return Err(ApplyError::Epoch { own: self.epoch, found: inc.epoch });
        }
        if inc.epoch != 1 && inc.fsid != self.fsid {
            return Err(ApplyError::OtherCluster { own: self.fsid, found: inc.fsid });
        }
        let max_osd = match usize::try_from(inc.new_max_osd) {
            Err(_) => self.max_osd(),
            Ok(wanted) if wanted <= OSDS_MAX => wanted,
            Ok(_) => return Err(ApplyError::TooManyOsds(inc.new_max_osd)),
        };
        let known = |osd: &OsdId| usize::try_from(*osd).is_ok_and(|osd| osd < max_osd);
        match inc.osds_named().find(|osd| !known(osd)) {
            Some(osd) if inc.fullmap.is_empty() => Err(ApplyError::UnknownOsd { osd, max_osd }),
            _ => Ok(()),
        }
    }

    fn apply_cluster(&mut self, inc: &Incremental) {
        if inc.new_flags >= 0 {
            self.flags = inc.new_flags.cast_unsigned();
        }
        if let Ok(max_osd) = usize::try_from(inc.new_max_osd) {
            self.set_max_osd(max_osd);
        }
        if inc.new_pool_max != -1 {
            // The change has 64 bits for it, the map 32.
            self.pool_max = i32::try_from(inc.new_pool_max).unwrap_or(i32::MAX);
        }
    }

    /// Cuts off or appends OSD slots; new ones do not exist yet.
    pub fn set_max_osd(&mut self, max_osd: usize) {
        self.osd_state.resize(max_osd, 0);
        self.osd_weight.resize(max_osd, 0);
        self.osd_info.resize(max_osd, OsdInfo::default());
        self.osd_xinfo.resize(max_osd, XInfo::default());
        self.osd_uuid.resize(max_osd, Uuid::NIL);
        for addrs in [
            &mut self.client_addrs,
            &mut self.cluster_addrs,
            &mut self.hb_back_addrs,
            &mut self.hb_front_addrs,
        ] {
            addrs.resize(max_osd, AddrVec::default());
        }
        if !self.osd_primary_affinity.is_empty() {
            self.osd_primary_affinity.resize(max_osd, WEIGHT_ONE);
        }
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = inc.epoch;
            self.pools.insert(*id, pool);
        }
        self.apply_removed_snaps(inc);
        self.pool_names.extend(inc.new_pool_names.iter().map(|(id, name)| (*id, name.clone())));
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
    }

    fn apply_removed_snaps(&mut self, inc: &Incremental) {
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (pool, snaps) in &inc.new_removed_snaps {
            self.removed_snaps_queue.entry(*pool).or_default().union_with(snaps);
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            if let Some(queue) = self.removed_snaps_queue.get_mut(pool) {
                queue.subtract(snaps);
                if queue.is_empty() {
                    self.removed_snaps_queue.remove(pool);
                }
            }
        }
    }

    fn apply_weights(&mut self, inc: &Incremental) {
        for (osd, weight) in &inc.new_weight {
            set(&mut self.osd_weight, *osd, *weight);
            if *weight == 0 {
                continue;
            }
            // Marking in ends what marking out automatically had begun.
            change(&mut self.osd_state, *osd, |state| {
                *state = (*state | osd::EXISTS) & !(osd::AUTOOUT | osd::NEW);
            });
            change(&mut self.osd_xinfo, *osd, |info| info.old_weight = 0);
        }
        for (osd, affinity) in &inc.new_primary_affinity {
            self.set_primary_affinity(*osd, *affinity);
        }
    }

    fn set_primary_affinity(&mut self, osd: OsdId, affinity: u32) {
        if self.osd_primary_affinity.is_empty() {
            self.osd_primary_affinity.resize(self.max_osd(), WEIGHT_ONE);
        }
        set(&mut self.osd_primary_affinity, osd, affinity);
    }

    fn apply_profiles(&mut self, inc: &Incremental) {
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        for (name, profile) in &inc.new_erasure_code_profiles {
            self.erasure_code_profiles.insert(name.clone(), profile.clone());
        }
    }

    fn apply_states(&mut self, inc: &Incremental) {
        for (osd, flip) in &inc.new_state {
            let flip = if *flip == 0 { osd::UP } else { *flip };
            let state = self.state(*osd);
            if state & flip & osd::UP != 0 {
                change(&mut self.osd_info, *osd, |info| info.down_at = inc.epoch);
                change(&mut self.osd_xinfo, *osd, |info| info.down_stamp = inc.modified);
            }
            if state & flip & osd::EXISTS != 0 {
                self.forget_osd(*osd);
            } else {
                set(&mut self.osd_state, *osd, state ^ flip);
            }
        }
        for (osd, addrs) in &inc.new_up_client {
            change(&mut self.osd_state, *osd, |state| *state |= osd::EXISTS | osd::UP);
            set(&mut self.client_addrs, *osd, addrs.clone());
            let of = |all: &BTreeMap<OsdId, AddrVec>| all.get(osd).cloned().unwrap_or_default();
            set(&mut self.hb_back_addrs, *osd, of(&inc.new_hb_back_up));
            set(&mut self.hb_front_addrs, *osd, of(&inc.new_hb_front_up));
            change(&mut self.osd_info, *osd, |info| info.up_from = inc.epoch);
        }
        for (osd, addrs) in &inc.new_up_cluster {
            set(&mut self.cluster_addrs, *osd, addrs.clone());
        }
    }

    /// The OSD is removed from the cluster; its number may be used again.
    fn forget_osd(&mut self, osd: OsdId) {
        set(&mut self.osd_uuid, osd, Uuid::NIL);
        set(&mut self.osd_info, osd, OsdInfo::default());
        set(&mut self.osd_xinfo, osd, XInfo::default());
        self.set_primary_affinity(osd, WEIGHT_ONE);
        set(&mut self.client_addrs, osd, AddrVec::default());
        set(&mut self.cluster_addrs, osd, AddrVec::default());
        set(&mut self.hb_front_addrs, osd, AddrVec::default());
        set(&mut self.hb_back_addrs, osd, AddrVec::default());
        set(&mut self.osd_state, osd, 0);
    }

    fn apply_infos(&mut self, inc: &Incremental) {
        for (osd, epoch) in &inc.new_up_thru {
            change(&mut self.osd_info, *osd, |info| info.up_thru = *epoch);
        }
        for (osd, (begin, end)) in &inc.new_last_clean_interval {
            change(&mut self.osd_info, *osd, |info| {
                (info.last_clean_begin, info.last_clean_end) = (*begin, *end);
            });
        }
        for (osd, epoch) in &inc.new_lost {
            change(&mut self.osd_info, *osd, |info| info.lost_at = *epoch);
        }
        for (osd, xinfo) in &inc.new_xinfo {
            set(&mut self.osd_xinfo, *osd, *xinfo);
        }
        for (osd, uuid) in &inc.new_uuid {
            set(&mut self.osd_uuid, *osd, *uuid);
        }
    }

    fn apply_exceptions(&mut self, inc: &Incremental) {
        overlay(&mut self.pg_temp, &inc.new_pg_temp, Vec::is_empty);
        overlay(&mut self.primary_temp, &inc.new_primary_temp, |osd| *osd == -1);
        overlay(&mut self.pg_upmap, &inc.new_pg_upmap, |_| false);
        self.pg_upmap.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
        overlay(&mut self.pg_upmap_items, &inc.new_pg_upmap_items, |_| false);
        self.pg_upmap_items.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
        overlay(&mut self.crush_node_flags, &inc.new_crush_node_flags, |flags| *flags == 0);
        overlay(&mut self.device_class_flags, &inc.new_device_class_flags, |flags| *flags == 0);
    }

    /// An address that is already blocked keeps its old end, as Ceph's map insert does.
    fn apply_blocklist(&mut self, inc: &Incremental) {
        for (held, new, old) in [
            (&mut self.blocklist, &inc.new_blocklist, &inc.old_blocklist),
            (&mut self.range_blocklist, &inc.new_range_blocklist, &inc.old_range_blocklist),
        ] {
            for (addr, until) in new {
                held.entry(*addr).or_insert(*until);
            }
            for addr in old {
                held.remove(addr);
            }
        }
    }

    fn apply_settings(&mut self, inc: &Incremental) {
        let ratios = [
            (&mut self.nearfull_ratio, inc.new_nearfull_ratio),
            (&mut self.full_ratio, inc.new_full_ratio),
            (&mut self.backfillfull_ratio, inc.new_backfillfull_ratio),
        ];
        for (ratio, new) in ratios {
            if new >= 0.0 {
                *ratio = new;
            }
        }
        if inc.new_require_min_compat_client != UNCHANGED {
            self.require_min_compat_client = inc.new_require_min_compat_client;
        }
        if inc.new_require_osd_release != UNCHANGED {
            self.require_osd_release = inc.new_require_osd_release;
            if self.require_osd_release >= RELEASE_LUMINOUS {
                self.flags = (self.flags & !LEGACY_REQUIRE_FLAGS) | osdmap::RECOVERY_DELETES;
            }
        }
        if !inc.new_last_up_change.is_zero() {
            self.last_up_change = inc.new_last_up_change;
        }
        if !inc.new_last_in_change.is_zero() {
            self.last_in_change = inc.new_last_in_change;
        }
    }
}

impl Incremental {
    /// Every OSD whose slot the change touches.
    fn osds_named(&self) -> impl Iterator<Item = OsdId> + '_ {
        let addrs = [&self.new_up_client, &self.new_up_cluster];
        let numbers = [&self.new_weight, &self.new_primary_affinity, &self.new_state];
        addrs
            .into_iter()
            .flat_map(BTreeMap::keys)
            .chain(numbers.into_iter().flat_map(BTreeMap::keys))
            .chain(self.new_up_thru.keys())
            .chain(self.new_lost.keys())
            .chain(self.new_last_clean_interval.keys())
            .chain(self.new_xinfo.keys())
            .chain(self.new_uuid.keys())
            .copied()
    }
}

/// Puts the new entries over the old ones; an entry for which `is_removal` holds takes the old one away.
fn overlay<K: Ord + Clone, V: Clone>(
    target: &mut BTreeMap<K, V>,
    changes: &BTreeMap<K, V>,
    is_removal: impl Fn(&V) -> bool,
) {
    for (key, value) in changes {
        if is_removal(value) {
            target.remove(key);
        } else {
            target.insert(key.clone(), value.clone());
        }
    }
}

fn change<T>(slots: &mut [T], osd: OsdId, with: impl FnOnce(&mut T)) {
    if let Some(slot) = usize::try_from(osd).ok().and_then(|osd| slots.get_mut(osd)) {
        with(slot);
    }
}

fn set<T>(slots: &mut [T], osd: OsdId, value: T) {
    change(slots, osd, |slot| *slot = value);
}
