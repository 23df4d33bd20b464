//! [`OsdAddrs`]: the addresses of an OSD: for clients and monitors, for other OSDs, and for heartbeats on both networks.
//!
//! An OSD has four: for clients and monitors, for other OSDs, and for heartbeats on either network; and one more for each shard beside the
//! first one, which others hear of from the first (`ShardListener`). They share
//! a nonce, which names this instance. One that was marked down while it ran goes on under a new nonce: nobody
//! mistakes what the earlier instance has sent for the new one's, and sessions begin anew.

use crate::config::Bind;
use nacre_env::ListenerId;
use nacre_msgr::Config as MsgrConfig;
use nacre_service::{ConnId, Messenger};
use nacre_types::{AddrVec, EntityAddr, OsdId};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The addresses, as the map has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) public: AddrVec,
    pub(crate) cluster: AddrVec,
    pub(crate) hb_back: AddrVec,
    pub(crate) hb_front: AddrVec,
}

/// Our number and addresses towards clients and monitors, other OSDs, and their heartbeats.
#[derive(Debug, Clone)]
pub(crate) struct OsdAddrs {
    osd: OsdId,
    pub(crate) public: Arc<MsgrConfig>,
    pub(crate) cluster: Arc<MsgrConfig>,
    pub(crate) hb_back: Arc<MsgrConfig>,
    pub(crate) hb_front: Arc<MsgrConfig>,
}

/// What the control shard listens with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listeners {
    pub(crate) public: ListenerId,
    pub(crate) cluster: ListenerId,
    pub(crate) hb_back: ListenerId,
    pub(crate) hb_front: ListenerId,
}

/// Where they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sockets {
    pub(crate) public: SocketAddr,
    pub(crate) cluster: SocketAddr,
    pub(crate) hb_back: SocketAddr,
    pub(crate) hb_front: SocketAddr,
}

/// Listens at `addr` on a port that the system chooses, or on the first free one of those given.
pub(crate) fn listen(
    messenger: &mut Messenger,
    addr: IpAddr,
    bind: &Bind,
    shared: bool,
) -> io::Result<(ListenerId, SocketAddr)> {
    let Some(ports) = &bind.ports else { return messenger.listen(SocketAddr::new(addr, 0), shared) };
    for port in ports.clone() {
        match messenger.listen(SocketAddr::new(addr, port), shared) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => (),
            outcome => return outcome,
        }
    }
    let (first, last) = (ports.start(), ports.end());
    let text = format!("all ports from {first} to {last} (ms_bind_port_min, ms_bind_port_max) are in use");
    Err(io::Error::new(io::ErrorKind::AddrInUse, text))
}

impl Listeners {
    /// Opens all but the public one, which other shards share.
    pub(crate) fn open(
        messenger: &mut Messenger,
        public: (ListenerId, SocketAddr),
        bind: &Bind,
    ) -> io::Result<(Self, Sockets)> {
        let mut open = |addr| listen(messenger, addr, bind, false);
        let (cluster, hb_back, hb_front) = (open(bind.cluster)?, open(bind.cluster)?, open(bind.public)?);
        let listeners =
            Self { public: public.0, cluster: cluster.0, hb_back: hb_back.0, hb_front: hb_front.0 };
        let sockets =
            Sockets { public: public.1, cluster: cluster.1, hb_back: hb_back.1, hb_front: hb_front.1 };
        Ok((listeners, sockets))
    }

    /// Whether a connection came in for heartbeats.
    pub(crate) fn hears_pings(&self, messenger: &Messenger, conn: ConnId) -> bool {
        let listener = messenger.listener(conn);
        listener.is_some_and(|listener| listener == self.hb_back || listener == self.hb_front)
    }

    /// Lets peers in, which know us by `osd_addrs`.
    pub(crate) fn serve(&self, osd_addrs: &OsdAddrs, messenger: &mut Messenger) {
        messenger.serve(self.public, Arc::clone(&osd_addrs.public));
        messenger.serve(self.cluster, Arc::clone(&osd_addrs.cluster));
        messenger.serve(self.hb_back, Arc::clone(&osd_addrs.hb_back));
        messenger.serve(self.hb_front, Arc::clone(&osd_addrs.hb_front));
    }
}

impl OsdAddrs {
    /// At most `conn_max` messages wait in a connection with a client or another OSD.
    pub(crate) fn new(osd: OsdId, sockets: &Sockets, nonce: u32, conn_max: usize) -> Self {
        let at = |socket| AddrVec::of(EntityAddr::msgr2(socket, nonce));
        let id = osd.into();
        let bounded = |config: MsgrConfig| {
            let queued_count_max = config.queued_count_max.min(conn_max);
            Arc::new(MsgrConfig { queued_count_max, ..config })
        };
        Self {
            osd,
            public: bounded(MsgrConfig::osd(at(sockets.public), id)),
            cluster: bounded(MsgrConfig::osd(at(sockets.cluster), id)),
            hb_back: Arc::new(MsgrConfig::osd_heartbeat(at(sockets.hb_back), id)),
            hb_front: Arc::new(MsgrConfig::osd_heartbeat(at(sockets.hb_front), id)),
        }
    }

    /// The same listeners under another nonce.
    pub(crate) fn rebound(&self, nonce: u32) -> Self {
        let again = |config: &Arc<MsgrConfig>| {
            let addrs = config.addrs.0.iter().map(|addr| EntityAddr { nonce, ..*addr }).collect();
            Arc::new(MsgrConfig { addrs: AddrVec(addrs), ..MsgrConfig::clone(config) })
        };
        Self {
            osd: self.osd,
            public: again(&self.public),
            cluster: again(&self.cluster),
            hb_back: again(&self.hb_back),
            hb_front: again(&self.hb_front),
        }
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses {
            public: self.public.addrs.clone(),
            cluster: self.cluster.addrs.clone(),
            hb_back: self.hb_back.addrs.clone(),
            hb_front: self.hb_front.addrs.clone(),
        }
    }
}
