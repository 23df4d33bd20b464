//! Boots: which OSDs may come up, and what the map has of them then.

use super::{CrushPlace, OsdMaps, crush_edit, view};
use crate::config::{ConfigDb, Target};
use nacre_ec::{Code, Technique};
use nacre_maps::{OsdMap, Pool, WEIGHT_ONE, XInfo, flags, weight_of};
use nacre_msg::peer::PeerVersions;
use nacre_types::{
    AddrVec, AuthName, Compression, CompressionAlgorithm, EntityKind, Epoch, OsdId, Stamp, UTime, Uuid,
    features,
};
use std::collections::BTreeMap;

/// What an OSD says when it boots, as `MOSDBoot` and its session carry it.
#[derive(Debug, Clone)]
pub struct BootRequest {
    /// Number of the OSD that boots.
    pub osd: OsdId,
    /// Epoch of its newest map.
    pub epoch: Epoch,
    /// Identity of its store.
    pub store: Uuid,
    /// Addresses for clients.
    pub client_addrs: AddrVec,
    /// Addresses for other OSDs.
    pub cluster_addrs: AddrVec,
    /// Heartbeat addresses, cluster network.
    pub hb_back_addrs: AddrVec,
    /// Heartbeat addresses, public network.
    pub hb_front_addrs: AddrVec,
    /// First epoch of the interval in which it last ran, and the epoch through which that was clean.
    pub last_clean: (Epoch, Epoch),
    /// Epoch in which it came up before, when it only was marked down wrongly; else 0.
    pub boot_epoch: Epoch,
    /// Its feature bits.
    pub features: u64,
    /// What it says of itself.
    pub metadata: BTreeMap<String, String>,
}

/// What became of a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootOutcome {
    /// The next epoch brings it up.
    Booted,
    /// The map has this instance up already.
    AlreadyUp,
    /// The map still has its predecessor up; the next epoch marks that down, then the boot is to be retried.
    Deferred,
    /// Flags forbid it for now, or the store is another one's.
    Refused(BootRefusal),
}

/// Why an OSD may not come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BootRefusal {
    /// Out of what a map may hold.
    #[error("id out of range")]
    Id,
    /// The id belongs to another store.
    #[error("the id belongs to a store with another fsid")]
    Store,
    /// The id was destroyed and waits for its replacement.
    #[error("the id is destroyed")]
    Destroyed,
    /// `noup` is set.
    #[error("noup is set")]
    NoUp,
    /// It has maps that we do not have.
    #[error(
        "it has map epoch {own}, and the newest of this monitor is {newest}: the monitor's store is an older copy; start the \
         monitor on its newest one"
    )]
    Ahead {
        /// The OSD's epoch.
        own: Epoch,
        /// The newest epoch of this monitor.
        newest: Epoch,
    },
    /// It is Ceph's.
    #[error("it is a ceph-osd, and what OSDs here say to each other it does not understand; use nacre osd")]
    Foreign,
    /// An OSD that is up could not talk to it.
    #[error(
        "it speaks versions {own} of the messages between OSDs, and osd.{osd}, which is up, {theirs}; upgrade the older one"
    )]
    Versions {
        /// What the OSD speaks.
        own: PeerVersions,
        /// One that is up.
        osd: OsdId,
        /// What that one speaks.
        theirs: PeerVersions,
    },
    /// It would give chunks other bytes than the others do.
    #[error(
        "there are erasure-coded pools with the codes of Ceph's plugins, which it does not know; upgrade it"
    )]
    Codes,
    /// It does not know what copies of coded PGs say that were merged.
    #[error("PGs of an erasure-coded pool were merged, and it cannot have copies of these: upgrade it")]
    Merges,
    /// Older than `require_osd_release`.
    #[error("require_osd_release is {0}, and it lacks features of that release")]
    TooOld(Release),
    /// So new that OSDs of `require_osd_release` cannot be expected to understand it.
    #[error("it is of {release}, and require_osd_release is {required}; set that to {wanted} at least")]
    TooNew {
        /// The OSD's release.
        release: Release,
        /// What the map requires.
        required: Release,
        /// What it would have to.
        wanted: Release,
    },
}

/// A release of Ceph by its number, shown by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u8);

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(nacre_maps::release_name(self.0))
    }
}

/// Metadata that only OSDs of ours have.
const NACRE_KEY: &str = "nacre_version";
/// An OSD may be two releases ahead of what the map requires of all.
const RELEASES_AHEAD_MAX: u8 = 2;
/// The first release that looks at `require_osd_release` of older ones.
const RELEASE_OCTOPUS: u8 = 15;

/// Whether the release that the OSD is of, by its features, is one that the map allows.
fn may_boot_release(map: &OsdMap, found: u64) -> Result<(), BootRefusal> {
    let required = map.require_osd_release;
    let lacks = |release: &u8| features::of_release(*release).is_some_and(|bits| found & bits != bits);
    if (1..=required).any(|release| lacks(&release)) {
        return Err(BootRefusal::TooOld(Release(required)));
    }
    let release = features::newest_release(found).unwrap_or(0);
    let wanted = release.saturating_sub(RELEASES_AHEAD_MAX);
    if release >= RELEASE_OCTOPUS && required < wanted {
        let [release, required, wanted] = [release, required, wanted].map(Release);
        return Err(BootRefusal::TooNew { release, required, wanted });
    }
    Ok(())
}

/// The versions that an OSD of ours speaks; `None` for one of Ceph's. The first programs did not say, and spoke the first version.
fn peer_versions(metadata: &BTreeMap<String, String>) -> Option<PeerVersions> {
    match metadata.get(PeerVersions::METADATA_KEY) {
        Some(text) => PeerVersions::parse(text),
        None => metadata.contains_key(NACRE_KEY).then_some(PeerVersions { oldest: 1, newest: 1 }),
    }
}

/// Metadata keys that may tell the size of the device in bytes.
const SIZE_KEYS: [&str; 2] = ["bluestore_bdev_size", "osd_size_bytes"];

/// CRUSH weight of a device: its size in TiB, as Ceph weighs. A device of unknown size counts as one TiB.
fn weight_by_size(metadata: &BTreeMap<String, String>) -> u32 {
    let size: Option<u64> = SIZE_KEYS.iter().find_map(|key| metadata.get(*key)?.parse().ok());
    size.filter(|size| *size > 0).map_or(WEIGHT_ONE, weight_of)
}

/// What the options say of an OSD that is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placing {
    /// It gets a place, `osd_crush_update_on_start`.
    place: bool,
    /// It gets a class, `osd_class_update_on_start`.
    class: bool,
    /// Its CRUSH weight: as `osd_crush_initial_weight` says, or by its size.
    weight: u32,
}

fn placing(request: &BootRequest, config: &ConfigDb) -> Placing {
    let name = AuthName::new(EntityKind::OSD, request.osd.to_string());
    let (device_class, location) = (request.metadata.get("default_device_class"), BTreeMap::new());
    let values = config.effective(&Target { name: &name, device_class, location: &location });
    let configured = values.get("osd_crush_initial_weight").and_then(|(_, text)| text.parse::<f64>().ok());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
    let weight = match configured.filter(|weight| *weight >= 0.0) {
        Some(weight) => (weight * f64::from(WEIGHT_ONE)) as u32,
        None => weight_by_size(&request.metadata),
    };
    Placing {
        place: values.get("osd_crush_update_on_start").is_none_or(|(_, text)| *text != "false"),
        class: values.get("osd_class_update_on_start").is_none_or(|(_, text)| *text != "false"),
        weight,
    }
}

fn may_boot(map: &OsdMap, request: &BootRequest) -> Result<(), BootRefusal> {
    let at =
        usize::try_from(request.osd).ok().filter(|at| *at < nacre_maps::OSDS_MAX).ok_or(BootRefusal::Id)?;
    let state = map.state(request.osd);
    if state & flags::osd::DESTROYED != 0 {
        return Err(BootRefusal::Destroyed);
    }
    let known = map.osd_uuid.get(at).copied().unwrap_or(Uuid::NIL);
    if state & flags::osd::EXISTS != 0 && known != Uuid::NIL && known != request.store {
        return Err(BootRefusal::Store);
    }
    let noup = map.flags & flags::osdmap::NOUP != 0
        || super::status::has_osd_flag(map, request.osd, flags::osd::NOUP);
    if noup { Err(BootRefusal::NoUp) } else { may_boot_release(map, request.features) }
}

impl OsdMaps {
    /// Brings an OSD up, creating its slot and its place in the hierarchy when it has none.
    pub fn boot(&mut self, request: &BootRequest, now: Stamp, wall: UTime, config: &ConfigDb) -> BootOutcome {
        if let Err(refusal) = self.may_talk(request) {
            return BootOutcome::Refused(refusal);
        }
        let map = self.upcoming();
        if let Err(refusal) = may_boot(map, request) {
            return BootOutcome::Refused(refusal);
        }
        if map.is_up(request.osd) {
            let at = usize::try_from(request.osd).unwrap_or(usize::MAX);
            let same = map.client_addrs.get(at) == Some(&request.client_addrs)
                && map.cluster_addrs.get(at) == Some(&request.cluster_addrs);
            if same {
                return BootOutcome::AlreadyUp;
            }
            let stamp = map.xinfo(request.osd).down_stamp;
            self.mark_down(request.osd, stamp);
            self.mark_dead(request.osd);
            return BootOutcome::Deferred;
        }
        if self.latest.is_up(request.osd) {
            // It goes down with the next epoch. Were it up again in the same, no OSD would see that it was away.
            self.mark_dead(request.osd);
            return BootOutcome::Deferred;
        }
        self.bring_up(request, wall, config);
        self.place_new(request, config);
        self.set_metadata(request.osd, request.metadata.clone());
        self.seen(request.osd, now);
        BootOutcome::Booted
    }

    /// Whether the OSD is one of ours, on our history of maps, and understands those that are up.
    fn may_talk(&mut self, request: &BootRequest) -> Result<(), BootRefusal> {
        let newest = self.published.epoch;
        if request.epoch > newest {
            return Err(BootRefusal::Ahead { own: request.epoch, newest });
        }
        let own = peer_versions(&request.metadata).ok_or(BootRefusal::Foreign)?;
        let map = self.upcoming();
        let of_plugin = |code: Code| code.technique() != Technique::Own;
        if own.newest < PeerVersions::CODES_OF_PLUGINS
            && map.pools.values().any(|pool| map.code_of(pool).is_some_and(of_plugin))
        {
            return Err(BootRefusal::Codes);
        }
        let merges = |pool: &Pool| pool.last_pg_merge.ready_epoch > 0 || pool.pg_num_pending < pool.pg_num;
        let is_merged = |pool: &Pool| !pool.is_replicated() && merges(pool);
        if own.newest < PeerVersions::MERGES_OF_CODED_PGS && map.pools.values().any(is_merged) {
            return Err(BootRefusal::Merges);
        }
        // Also those that come up with it.
        let others: Vec<OsdId> = self.upcoming().up_osds().filter(|osd| *osd != request.osd).collect();
        let versions = others.into_iter().filter_map(|osd| Some((osd, peer_versions(self.metadata(osd)?)?)));
        match { versions }.find(|(_, theirs)| own.agree(theirs).is_none()) {
            Some((osd, theirs)) => Err(BootRefusal::Versions { own, osd, theirs }),
            None => Ok(()),
        }
    }

    /// An OSD that is up and does not know this version of what OSDs say to each other.
    pub(super) fn older_than(&mut self, version: u32) -> Option<OsdId> {
        let up: Vec<OsdId> = self.upcoming().up_osds().collect();
        let knows = |osd: &OsdId| {
            let versions = self.metadata(*osd).and_then(peer_versions);
            versions.is_some_and(|versions| versions.newest >= version)
        };
        up.into_iter().find(|osd| !knows(osd))
    }

    /// Whether an OSD has said that it can compress, by this algorithm if it is one.
    pub(crate) fn can_compress(&self, osd: OsdId, algorithm: Option<CompressionAlgorithm>) -> bool {
        let said = self.metadata(osd).and_then(|facts| facts.get(Compression::METADATA_KEY));
        let has =
            |said: &String| algorithm.is_none_or(|wanted| said.split(' ').any(|name| name == wanted.name()));
        said.is_some_and(has)
    }

    /// An OSD that is up and cannot compress so.
    pub(crate) fn not_compressing(&mut self, algorithm: Option<CompressionAlgorithm>) -> Option<OsdId> {
        let up: Vec<OsdId> = self.upcoming().up_osds().collect();
        up.into_iter().find(|osd| !self.can_compress(*osd, algorithm))
    }

    fn bring_up(&mut self, request: &BootRequest, wall: UTime, config: &ConfigDb) {
        let osd = request.osd;
        let map = self.upcoming();
        let exists = map.exists(osd);
        let state = if exists { map.state(osd) } else { flags::osd::NEW };
        let weight = map.weight(osd);
        let info = map.info(osd);
        let mut xinfo = map.xinfo(osd);
        let slots = map.max_osd();
        let mark_in = goes_in(map, osd, state, weight, config);
        let known = usize::try_from(osd).ok().and_then(|at| map.osd_uuid.get(at)).copied();
        xinfo.features = request.features;
        remember_lag(&mut xinfo, request.boot_epoch > 0, wall, config);
        let old_weight = std::mem::take(&mut xinfo.old_weight);
        let change = self.change();
        if usize::try_from(osd).is_ok_and(|at| at >= slots) {
            change.new_max_osd = change.new_max_osd.max(osd + 1);
        }
        change.new_up_client.insert(osd, request.client_addrs.clone());
        change.new_up_cluster.insert(osd, request.cluster_addrs.clone());
        change.new_hb_back_up.insert(osd, request.hb_back_addrs.clone());
        change.new_hb_front_up.insert(osd, request.hb_front_addrs.clone());
        if known != Some(request.store) {
            change.new_uuid.insert(osd, request.store);
        }
        if request.last_clean > (info.last_clean_begin, info.last_clean_end) {
            change.new_last_clean_interval.insert(osd, request.last_clean);
        }
        if mark_in {
            change.new_weight.insert(osd, if old_weight > 0 { old_weight } else { WEIGHT_ONE });
        } else {
            xinfo.old_weight = old_weight;
            if !exists {
                *change.new_state.entry(osd).or_default() |= flags::osd::NEW;
            }
        }
        change.new_xinfo.insert(osd, xinfo);
    }

    /// Puts an OSD that stands nowhere yet under its host, below `root=default`.
    fn place_new(&mut self, request: &BootRequest, config: &ConfigDb) {
        let osd = request.osd;
        if view::parent(&self.upcoming().crush, osd).is_some() {
            return;
        }
        let host = request.metadata.get("hostname").map_or("localhost", String::as_str);
        let Placing { place, class, weight } = placing(request, config);
        if !place {
            return;
        }
        let place = CrushPlace::host(host);
        let class = request.metadata.get("default_device_class").filter(|_| class).cloned();
        // A name that cannot stand in the hierarchy leaves the OSD unplaced, to be placed by command.
        let placed = self.edit_crush(|crush| {
            crush_edit::create_or_move(crush, osd, weight, &place)?;
            match &class {
                Some(class) => crush_edit::set_class(crush, osd, Some(class)),
                None => Ok(()),
            }
        });
        debug_assert!(placed.is_ok() || !self.upcoming().crush.item_names.contains_key(&osd));
    }
}

/// What a boot says of how much the OSD lags: one that had only been marked down wrongly was slow for as long,
/// one that was started anew was not.
fn remember_lag(xinfo: &mut XInfo, was_slow: bool, wall: UTime, config: &ConfigDb) {
    let weight = config.number_of_monitor("mon_osd_laggy_weight", 0.3);
    let blend = |old: u32, new: f64| (new * weight + f64::from(old) * (1.0 - weight)) as u32;
    if !was_slow {
        xinfo.laggy_probability = blend(xinfo.laggy_probability, 0.0);
        xinfo.laggy_interval = blend(xinfo.laggy_interval, 0.0);
        return;
    }
    if !xinfo.down_stamp.is_zero() {
        let longest = config.number_of_monitor("mon_osd_laggy_max_interval", 300.0);
        let down = wall.since(xinfo.down_stamp).as_secs_f64().min(longest);
        xinfo.laggy_interval = blend(xinfo.laggy_interval, down);
    }
    xinfo.laggy_probability = blend(xinfo.laggy_probability, f64::from(u32::MAX));
}

/// Whether an OSD that boots is marked in, too.
fn goes_in(map: &OsdMap, osd: OsdId, state: u32, weight: u32, config: &ConfigDb) -> bool {
    let auto_out =
        state & flags::osd::AUTOOUT != 0 && config.flag_of_monitor("mon_osd_auto_mark_auto_out_in");
    let new = state & flags::osd::NEW != 0 && config.flag_of_monitor("mon_osd_auto_mark_new_in");
    let any = config.flag_of_monitor("mon_osd_auto_mark_in");
    let noin =
        map.flags & flags::osdmap::NOIN != 0 || super::status::has_osd_flag(map, osd, flags::osd::NOIN);
    weight == 0 && (auto_out || new || any) && !noin
}
