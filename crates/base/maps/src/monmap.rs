//! [`MonMap`]: the monitors of a cluster, with their names, addresses and ranks.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AddrVec, Epoch, UTime, Uuid};
use std::collections::{BTreeMap, BTreeSet};

/// One monitor. Ceph `mon_info_t`, version 5.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonInfo {
    /// Its name, such as `a`.
    pub name: String,
    /// Where it listens.
    pub addrs: AddrVec,
    /// Clients prefer lower values.
    pub priority: u16,
    /// Among equals, clients choose in proportion to it.
    pub weight: u16,
    /// Where it stands, level to name.
    pub crush_location: BTreeMap<String, String>,
}

/// The monitors of a cluster. Ceph `MonMap`, version 9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonMap {
    /// Id of the cluster.
    pub fsid: Uuid,
    /// Version of this map.
    pub epoch: Epoch,
    /// When this version was made.
    pub last_changed: UTime,
    /// When the cluster was made.
    pub created: UTime,
    /// `mon_feature_t` bits that every monitor must know.
    pub persistent_features: u64,
    /// `mon_feature_t` bits that may be dropped again.
    pub optional_features: u64,
    /// Monitors by name.
    pub mons: BTreeMap<String, MonInfo>,
    /// Names in order of rank.
    pub ranks: Vec<String>,
    /// Oldest monitor release allowed.
    pub min_mon_release: u8,
    /// Ranks freed by removals.
    pub removed_ranks: BTreeSet<u32>,
    /// Election strategy: [`STRATEGY_CLASSIC`], [`STRATEGY_DISALLOW`], or 3 for connectivity.
    pub strategy: u8,
    /// Monitors that may not lead, unless the strategy is classic.
    pub disallowed_leaders: BTreeSet<String>,
    /// The monitors are in stretch mode.
    pub stretch_mode_enabled: bool,
    /// Tie-breaker of stretch mode.
    pub tiebreaker_mon: String,
    /// Monitors that stretch mode counts as down.
    pub stretch_marked_down_mons: BTreeSet<String>,
}

/// Features that every monitor of 16.2 has: kraken, luminous, mimic, osdmap-prune, nautilus, octopus, pacific,
/// elector-pinging.
pub const MON_FEATURES: u64 = 0xff;

/// Any monitor may lead; Ceph `MonMap::CLASSIC`.
pub const STRATEGY_CLASSIC: u8 = 1;
/// Some monitors may not lead; Ceph `MonMap::DISALLOW`.
pub const STRATEGY_DISALLOW: u8 = 2;

const VERSION: u8 = 9;
const INFO_VERSION: u8 = 5;

impl MonMap {
    /// The first map of a cluster, with the given monitors in order of rank.
    #[must_use]
    pub fn fresh(fsid: Uuid, now: UTime, mons: &[(String, AddrVec)]) -> Self {
        let info = |name: &String, addrs: &AddrVec| MonInfo {
            name: name.clone(),
            addrs: addrs.clone(),
            ..MonInfo::default()
        };
        Self {
            fsid,
            epoch: 1,
            last_changed: now,
            created: now,
            persistent_features: MON_FEATURES,
            optional_features: 0,
            mons: mons.iter().map(|(name, addrs)| (name.clone(), info(name, addrs))).collect(),
            ranks: mons.iter().map(|(name, _)| name.clone()).collect(),
            min_mon_release: crate::RELEASE_PACIFIC,
            removed_ranks: BTreeSet::new(),
            strategy: STRATEGY_CLASSIC,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode_enabled: false,
            tiebreaker_mon: String::new(),
            stretch_marked_down_mons: BTreeSet::new(),
        }
    }

    /// Rank of the monitor of this name.
    #[must_use]
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|found| found == name)
    }

    /// Whether the monitor of this name may lead.
    #[must_use]
    pub fn may_lead(&self, name: &str) -> bool {
        self.strategy == STRATEGY_CLASSIC || !self.disallowed_leaders.contains(name)
    }

    /// The monitor of this rank.
    #[must_use]
    pub fn mon(&self, rank: usize) -> Option<&MonInfo> {
        self.mons.get(self.ranks.get(rank)?)
    }
}

impl Encode for MonInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(INFO_VERSION, 1, |w| {
            w.str(&self.name);
            w.put(&self.addrs);
            w.u16(self.priority);
            w.u16(self.weight);
            w.put(&self.crush_location);
        });
    }
}

impl Decode for MonInfo {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("mon_info_t", INFO_VERSION, |version, r| {
            let mut info = Self { name: r.text()?, addrs: r.get()?, ..Self::default() };
            if version >= 2 {
                info.priority = r.u16()?;
            }
            if version >= 4 {
                info.weight = r.u16()?;
            }
            if version >= 5 {
                info.crush_location = r.get()?;
            }
            Ok(info)
        })
    }
}

fn put_features(w: &mut Writer, features: u64) {
    w.envelope(1, 1, |w| w.u64(features));
}

fn features(r: &mut Reader) -> Result<u64, DecodeError> {
    r.envelope("mon_feature_t", 1, |_, r| r.u64())
}

/// As it stands in a store; messages and `monmaptool` carry it as a blob.
impl Encode for MonMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(VERSION, 6, |w| {
            w.put(&self.fsid);
            w.u32(self.epoch);
            w.put(&self.last_changed);
            w.put(&self.created);
            put_features(w, self.persistent_features);
            put_features(w, self.optional_features);
            w.put(&self.mons);
            w.put(&self.ranks);
            w.u8(self.min_mon_release);
            w.put(&self.removed_ranks);
            w.u8(self.strategy);
            w.put(&self.disallowed_leaders);
            w.bool(self.stretch_mode_enabled);
            w.str(&self.tiebreaker_mon);
            w.put(&self.stretch_marked_down_mons);
        });
    }
}

impl Decode for MonMap {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MonMap", VERSION, |version, r| {
            // Older encodings are written for older peers only.
            if version < VERSION {
                return Err(DecodeError::Invalid { what: "MonMap version", value: version.into() });
            }
            Ok(Self {
                fsid: r.get()?,
                epoch: r.u32()?,
                last_changed: r.get()?,
                created: r.get()?,
                persistent_features: features(r)?,
                optional_features: features(r)?,
                mons: r.get()?,
                ranks: r.get()?,
                min_mon_release: r.u8()?,
                removed_ranks: r.get()?,
                strategy: r.u8()?,
                disallowed_leaders: r.get()?,
                stretch_mode_enabled: r.bool()?,
                tiebreaker_mon: r.text()?,
                stretch_marked_down_mons: r.get()?,
            })
        })
    }
}
