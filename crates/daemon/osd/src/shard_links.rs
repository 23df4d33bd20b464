//! [`ShardLinks`]: what a shard beside the first one needs for links with its counterparts in other OSDs: where it listens, under which name it
//! dials, and the ticket that OSD control lends it. On the first shard all of that is OSD control's.

use crate::links::{ClusterMode, Dialler, LentTicket, NetCx};
use crate::peer_links::{Counterpart, PeerLinks, Waited};
use nacre_auth::ServiceAccess;
use nacre_env::ListenerId;
use nacre_maps::OsdMap;
use nacre_msgr::{Config as MsgrConfig, Event as ConnEvent};
use nacre_options::Values;
use nacre_service::{ConnId, Messenger};
use nacre_types::{AddrVec, EntityAddr, OsdId, Stamp};
use std::net::SocketAddr;
use std::sync::Arc;

/// Where a shard beside the first one listens for its counterparts, at the OSD's address for others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardListener {
    pub(crate) id: ListenerId,
    pub(crate) socket: SocketAddr,
}

impl ShardListener {
    /// Lets counterparts in. They know the OSD by its address for others, and this shard by one more.
    fn serve(&self, cluster: &MsgrConfig, messenger: &mut Messenger) {
        let nonce = cluster.addrs.front().nonce;
        let addrs = cluster.addrs.0.iter().copied().chain([EntityAddr::msgr2(self.socket, nonce)]).collect();
        let config = MsgrConfig { addrs: AddrVec(addrs), ..cluster.clone() };
        messenger.serve(self.id, Arc::new(config));
    }
}

/// Links between shards that are not the first ones.
pub(crate) struct ShardLinks {
    osd: OsdId,
    listener: ShardListener,
    /// The name of the OSD towards others, under which the shard dials.
    as_whom: Arc<MsgrConfig>,
    ticket: LentTicket,
    cluster_mode: ClusterMode,
    /// The newest map that the first shard has; PGs may be kept from it yet.
    map: Arc<OsdMap>,
}

impl ShardLinks {
    /// Listens for counterparts as the OSD that others know by the addresses of `as_whom`.
    pub(crate) fn new(
        osd: OsdId,
        listener: ShardListener,
        as_whom: Arc<MsgrConfig>,
        messenger: &mut Messenger,
    ) -> Self {
        listener.serve(&as_whom, messenger);
        Self {
            osd,
            listener,
            as_whom,
            ticket: LentTicket::default(),
            cluster_mode: ClusterMode::default(),
            map: Arc::default(),
        }
    }

    /// The OSD goes on as a new instance: what was sent to and by the old one counts no more.
    pub(crate) fn rebind(
        &mut self,
        as_whom: Arc<MsgrConfig>,
        peers: &mut PeerLinks,
        messenger: &mut Messenger,
    ) {
        self.listener.serve(&as_whom, messenger);
        self.as_whom = as_whom;
        peers.hang_up(messenger);
        messenger.forget_sessions();
        peers.follow(&self.map, &self.as_whom, messenger);
    }

    /// Links follow the map; those that are new are dialled with the next [`ShardLinks::dial`].
    pub(crate) fn follow(&mut self, map: Arc<OsdMap>, peers: &mut PeerLinks, messenger: &mut Messenger) {
        peers.follow(&map, &self.as_whom, messenger);
        self.map = map;
    }

    /// The first shard has heard how the same shard of `osd` is reached. Yields what is to go another way.
    pub(crate) fn learn_counterpart(
        &self,
        osd: OsdId,
        counterpart: Counterpart,
        peers: &mut PeerLinks,
    ) -> Waited {
        peers.learn_counterpart(osd, counterpart, &self.as_whom)
    }

    /// OSD control has a ticket for other OSDs, another one than before.
    pub(crate) fn learn_access(&mut self, access: Arc<ServiceAccess>) {
        self.ticket.access = Some(access);
    }

    /// When a link is to be dialled, if there is something to dial with.
    pub(crate) fn next_deadline(&self, peers: &PeerLinks) -> Option<Stamp> {
        self.ticket.access.as_ref().and_then(|_| peers.next_deadline())
    }

    /// Dials what is due.
    pub(crate) fn dial(&mut self, peers: &mut PeerLinks, net: &mut NetCx<'_>, options: &Values) {
        let mut dialler = self.dialler(net, options);
        for link in peers.links() {
            link.dial(&mut dialler);
        }
    }

    fn dialler<'a>(&'a mut self, net: &'a mut NetCx<'_>, options: &'a Values) -> Dialler<'a> {
        net.dialler(self.osd, &mut self.ticket, options)
    }

    /// An event of a connection that this shard has dialled.
    pub(crate) fn conn_event(
        &mut self,
        (conn, event): (ConnId, ConnEvent),
        peers: &mut PeerLinks,
        net: &mut NetCx<'_>,
        options: &Values,
    ) {
        let Some(link) = peers.link_of(conn) else { return };
        match event {
            ConnEvent::Established(_) => link.opened(conn, net.messenger),
            event => link.authenticate(&mut self.dialler(net, options), event),
        }
    }

    /// The ticket, if it was refused since this was asked: another one is needed.
    pub(crate) fn take_refused(&mut self) -> Option<Arc<ServiceAccess>> {
        self.ticket.refused.take()
    }

    /// Options have changed: connections that we dialled are made anew when their protection is to be another.
    pub(crate) fn follow_options(
        &mut self,
        options: &Values,
        (peers, messenger): (&mut PeerLinks, &mut Messenger),
    ) {
        if self.cluster_mode.follow(options) {
            peers.links().for_each(|link| link.redial(messenger));
        }
    }
}
