//! [`OsdConfig`]: identity, key, addresses and store of an OSD, as whatever starts it gives them.

use crate::storage::StoreConfig;
use nacre_auth::{AuthMethod, CryptoKey};
use nacre_types::{EntityAddr, OsdId, Uuid};
use std::net::IpAddr;

/// Identity, place and size of one OSD.
#[derive(Debug, Clone)]
pub struct OsdConfig {
    /// Number of the OSD.
    pub id: OsdId,
    /// Identity of its store.
    pub uuid: Uuid,
    /// Id of the cluster.
    pub fsid: Uuid,
    /// Key of the entity `osd.<id>`.
    pub key: CryptoKey,
    /// Where monitors listen.
    pub monitors: Vec<EntityAddr>,
    /// Methods of authentication that it accepts.
    pub methods: Vec<AuthMethod>,
    /// Address to listen on; the port is chosen by the system.
    pub listen: IpAddr,
    /// Threads that share its PGs, at least 1. More than one only with stores in memory: the
    /// device store has one owner.
    pub shards: usize,
    /// Where its objects are.
    pub store: StoreConfig,
    /// The machine, as CRUSH and people know it.
    pub host: String,
    /// Gives memory that the calling thread has freed back to the system.
    pub give_back_memory: fn(),
}
