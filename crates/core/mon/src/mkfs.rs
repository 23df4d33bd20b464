//! The first state of a cluster.

use crate::auth;
use crate::batch::Batch;
use crate::config::{ConfigDb, ConfigError, Who};
use crate::monmap::MonMaps;
use crate::osd::OsdMaps;
use crate::osd::crush_edit::{self, CrushPlace, LocationError};
use nacre_auth::{CryptoKey, EntityAuth};
use nacre_crush::CrushMap;
use nacre_maps::{MonMap, OsdMap, RELEASE_LUMINOUS, RELEASE_PACIFIC, flags};
use nacre_types::{AddrVec, AuthName, EntityKind, Entropy, OsdId, UTime, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An OSD that exists from the beginning.
#[derive(Debug, Clone)]
pub struct MkfsOsd {
    /// Its number.
    pub id: OsdId,
    /// Identity of its store, if that is known already.
    pub store: Option<Uuid>,
    /// Its key.
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
    /// The cluster.
    pub fsid: Uuid,
    /// Name of the monitor, such as `a`.
    pub name: String,
    /// Where the monitor listens.
    pub addrs: AddrVec,
    /// Key of `mon.`.
    pub mon_key: CryptoKey,
    /// Key of `client.admin`, which may do everything.
    pub admin_key: CryptoKey,
    /// OSDs that exist from the beginning.
    pub osds: Vec<MkfsOsd>,
    /// Copies of a PG may share a host: for clusters on one machine.
    pub osds_are_failure_domains: bool,
    /// First values of the configuration database: section, option, value.
    pub config: Vec<(String, String, String)>,
}

impl MkfsOptions {
    /// A cluster with fresh keys and no OSDs.
    #[must_use]
    pub fn new(fsid: Uuid, name: &str, addrs: AddrVec, wall: UTime, entropy: &mut dyn Entropy) -> Self {
        Self {
            fsid,
            name: name.to_owned(),
            addrs,
            mon_key: CryptoKey::generate(entropy, wall),
            admin_key: CryptoKey::generate(entropy, wall),
            osds: Vec::new(),
            osds_are_failure_domains: false,
            config: Vec::new(),
        }
    }
}

/// Why a cluster cannot begin like that.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// An OSD's number is negative or too large.
    #[error("osd.{0} cannot exist")]
    OsdId(OsdId),
    /// An OSD's place is impossible.
    #[error("place of osd.{osd}: {source}")]
    Place {
        /// The OSD.
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
    let mut batch = Batch::default();
    let mons = [(options.name.clone(), options.addrs.clone())];
    MonMaps::create(MonMap::fresh(options.fsid, wall, &mons), &mut batch);
    OsdMaps::create(&first_osdmap(options, wall)?, &mut batch);
    auth::create(&entities(options), &mut batch);
    let mut config = ConfigDb::default();
    for (section, name, value) in &options.config {
        let who = Who::parse(section).ok_or_else(|| MkfsError::Section(section.clone()))?;
        config.set(&who, name, value, false)?;
    }
    config.flush(wall, &mut batch);
    Ok(batch)
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
    let profile = [("k", "2"), ("m", "2"), ("plugin", "jerasure"), ("technique", "reed_sol_van")];
    let failure_domain = if options.osds_are_failure_domains { "osd" } else { "host" };
    let mut crush = CrushMap::fresh(failure_domain);
    for osd in &options.osds {
        let of_osd = |source| MkfsError::Place { osd: osd.id, source };
        crush_edit::create_or_move(&mut crush, osd.id, osd.weight, &CrushPlace::host(&osd.host))
            .map_err(of_osd)?;
        if let Some(class) = &osd.class {
            crush_edit::set_class(&mut crush, osd.id, Some(class)).map_err(of_osd)?;
        }
    }
    let mut map = OsdMap {
        fsid: options.fsid,
        epoch: 1,
        created: wall,
        modified: wall,
        pool_max: 0,
        flags: flags::osdmap::FRESH,
        crush: Arc::new(crush),
        erasure_code_profiles: BTreeMap::from([("default".to_owned(), caps(&profile))]),
        nearfull_ratio: 0.85,
        backfillfull_ratio: 0.9,
        full_ratio: 0.95,
        require_min_compat_client: RELEASE_LUMINOUS,
        require_osd_release: RELEASE_PACIFIC,
        ..OsdMap::default()
    };
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
