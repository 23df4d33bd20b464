//! The first state of a cluster.

use crate::auth;
use crate::batch::Batch;
use crate::config::{ConfigDb, ConfigError, Who};
use crate::monmap::{MONS_MAX, MonMaps};
use crate::osd::OsdMaps;
use crate::osd::crush_edit::{self, CrushPlace, LocationError};
use crate::recovery::DatedKey;
use nacre_auth::{CryptoKey, EntityAuth, RecoveryKey};
use nacre_maps::{MonMap, OsdMap, flags};
use nacre_types::{AddrVec, AuthName, EntityKind, Entropy, OsdId, UTime, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An OSD that exists from the beginning.
#[derive(Debug, Clone)]
pub struct MkfsOsd {
    /// Number of the OSD.
    pub id: OsdId,
    /// Identity of its store, if that is known already.
    pub store: Option<Uuid>,
    /// Key of the entity `osd.<id>`.
    pub key: CryptoKey,
    /// Host that it stands in, below the default root.
    pub host: String,
    /// CRUSH weight, 16.16: 0x10000 per TiB.
    pub weight: u32,
    /// Device class, such as `ssd`.
    pub class: Option<String>,
}

/// What a new cluster begins with.
#[derive(Debug, Clone)]
pub struct MkfsOptions {
    /// Id of the cluster.
    pub fsid: Uuid,
    /// The monitors in order of rank: name, such as `a`, and where it listens. Each gets a store of its own, made with the same options
    /// and at the same time, and is the member of the log whose id is its place, from 1 on.
    pub mons: Vec<(String, AddrVec)>,
    /// Key of `mon.`.
    pub mon_key: CryptoKey,
    /// Key of `client.admin`, which may do everything.
    pub admin_key: CryptoKey,
    /// Opens the recovery snapshots that OSDs keep; none are made without it.
    pub recovery_key: Option<RecoveryKey>,
    /// OSDs that exist from the beginning.
    pub osds: Vec<MkfsOsd>,
    /// Copies of a PG may share a host: for clusters on one machine.
    pub osds_are_failure_domains: bool,
    /// First values of the configuration database: section, option, value.
    pub config: Vec<(String, String, String)>,
}

impl MkfsOptions {
    /// A cluster with fresh keys, but for the recovery key, and no OSDs.
    #[must_use]
    pub fn new(fsid: Uuid, mons: Vec<(String, AddrVec)>, wall: UTime, entropy: &mut dyn Entropy) -> Self {
        Self {
            fsid,
            mons,
            mon_key: CryptoKey::generate(entropy, wall),
            admin_key: CryptoKey::generate(entropy, wall),
            recovery_key: None,
            osds: Vec::new(),
            osds_are_failure_domains: false,
            config: Vec::new(),
        }
    }
}

/// Why a cluster cannot begin like that.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// No monitors, or too many.
    #[error("a cluster has from 1 to {MONS_MAX} monitors, not {0}")]
    MonCount(usize),
    /// Another monitor has its name or its address.
    #[error("mon.{0}: another monitor has the same name or address")]
    MonTwice(String),
    /// An OSD's number is negative or too large.
    #[error("osd.{0} cannot exist")]
    OsdId(OsdId),
    /// An OSD's place is impossible.
    #[error("place of osd.{osd}: {source}")]
    Place {
        /// Number of the OSD.
        osd: OsdId,
        /// What is wrong with it.
        source: LocationError,
    },
    /// An option's section does not exist.
    #[error("unknown section '{0}'")]
    Section(String),
    /// An option cannot be set so.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The batch that makes an empty store a cluster.
///
/// # Errors
/// [`MkfsError`].
pub fn mkfs(options: &MkfsOptions, wall: UTime) -> Result<Batch, MkfsError> {
    check_mons(&options.mons)?;
    let mut batch = Batch::default();
    MonMaps::create(&MonMap::fresh(options.fsid, wall, &options.mons), &mut batch);
    OsdMaps::create(&first_osdmap(options, wall)?, &mut batch);
    auth::create(&entities(options), &mut batch);
    if let Some(key) = options.recovery_key.clone() {
        DatedKey { key, made: wall }.store(&mut batch);
    }
    let mut config = ConfigDb::default();
    for (section, name, value) in &options.config {
        let who = Who::parse(section).ok_or_else(|| MkfsError::Section(section.clone()))?;
        config.set(&who, name, value, false)?;
    }
    config.flush(wall, &mut batch);
    Ok(batch)
}

/// Refuses monitors that clients or the monitors themselves could not tell apart.
fn check_mons(mons: &[(String, AddrVec)]) -> Result<(), MkfsError> {
    if mons.is_empty() || mons.len() > MONS_MAX {
        return Err(MkfsError::MonCount(mons.len()));
    }
    for (at, (name, addrs)) in mons.iter().enumerate() {
        if mons.iter().take(at).any(|(other, taken)| other == name || taken == addrs) {
            return Err(MkfsError::MonTwice(name.clone()));
        }
    }
    Ok(())
}

fn caps(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned())).collect()
}

fn entities(options: &MkfsOptions) -> Vec<(AuthName, EntityAuth)> {
    let everything = [("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")];
    let of_osd = [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];
    let mut out = vec![
        (
            AuthName::new(EntityKind::MON, ""),
            EntityAuth { key: options.mon_key.clone(), caps: caps(&[("mon", "allow *")]) },
        ),
        (
            AuthName::new(EntityKind::CLIENT, "admin"),
            EntityAuth { key: options.admin_key.clone(), caps: caps(&everything) },
        ),
    ];
    for osd in &options.osds {
        let auth = EntityAuth { key: osd.key.clone(), caps: caps(&of_osd) };
        out.push((AuthName::new(EntityKind::OSD, osd.id.to_string()), auth));
    }
    out
}

fn first_osdmap(options: &MkfsOptions, wall: UTime) -> Result<OsdMap, MkfsError> {
    let failure_domain = if options.osds_are_failure_domains { "osd" } else { "host" };
    let mut map = OsdMap::fresh(options.fsid, wall, failure_domain);
    let crush = Arc::make_mut(&mut map.crush);
    for osd in &options.osds {
        let of_osd = |source| MkfsError::Place { osd: osd.id, source };
        crush_edit::create_or_move(crush, osd.id, osd.weight, &CrushPlace::host(&osd.host))
            .map_err(of_osd)?;
        if let Some(class) = &osd.class {
            crush_edit::set_class(crush, osd.id, Some(class)).map_err(of_osd)?;
        }
    }
    for osd in &options.osds {
        add_osd(&mut map, osd)?;
    }
    Ok(map)
}

fn add_osd(map: &mut OsdMap, osd: &MkfsOsd) -> Result<(), MkfsError> {
    let at = usize::try_from(osd.id).ok().filter(|at| *at < nacre_maps::OSDS_MAX);
    let at = at.ok_or(MkfsError::OsdId(osd.id))?;
    map.set_max_osd(map.max_osd().max(at + 1));
    if let Some(state) = map.osd_state.get_mut(at) {
        *state = flags::osd::EXISTS | flags::osd::NEW;
    }
    if let (Some(place), Some(store)) = (map.osd_uuid.get_mut(at), osd.store) {
        *place = store;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::MemorySnapshot;
    use nacre_types::EntityAddr;
    use nacre_types::entropy::SeededEntropy;

    fn options(mons: &[(&str, u16)]) -> MkfsOptions {
        let addr = |port: u16| EntityAddr::parse(&format!("v2:127.0.0.1:{port}/0")).expect("an address");
        let mons = mons.iter().map(|(name, port)| ((*name).to_owned(), AddrVec::of(addr(*port)))).collect();
        MkfsOptions::new(Uuid::from_random([7; 16]), mons, UTime::default(), &mut SeededEntropy(7))
    }

    #[test]
    fn each_monitor_is_a_member_of_the_log() {
        let batch = mkfs(&options(&[("b", 1), ("a", 2), ("c", 3)]), UTime::default()).expect("valid options");
        let mut snapshot = MemorySnapshot::default();
        snapshot.apply(&batch);
        let maps = MonMaps::open(&snapshot).expect("its own encoding").expect("a cluster");
        assert_eq!(maps.map().ranks, ["b", "a", "c"]);
        assert_eq!(maps.members().iter().collect::<Vec<_>>(), [("a", 2), ("b", 1), ("c", 3)]);
    }

    #[test]
    fn a_cluster_without_osds_begins_with_the_map_that_ceph_begins_with() {
        let (options, wall) = (options(&[("a", 1)]), UTime { sec: 7, nsec: 0 });
        let domain = if options.osds_are_failure_domains { "osd" } else { "host" };
        let map = first_osdmap(&options, wall).expect("valid options");
        assert_eq!(map, OsdMap::fresh(options.fsid, wall, domain), "compared with a real one by nacre-maps");
        assert_eq!(map.crush_version, 1);
    }

    #[test]
    fn monitors_that_cannot_be_told_apart_are_refused() {
        let refusal = |mons: &[(&str, u16)]| mkfs(&options(mons), UTime::default()).expect_err("refused");
        assert!(matches!(refusal(&[]), MkfsError::MonCount(0)));
        assert!(matches!(refusal(&[("a", 1), ("a", 2)]), MkfsError::MonTwice(name) if name == "a"));
        assert!(matches!(refusal(&[("a", 1), ("b", 1)]), MkfsError::MonTwice(name) if name == "b"));
    }
}
