//! [`ShardLinks`]: what a shard beside the first one needs for links with its counterparts in other OSDs: where it listens, under which name it
//! dials, and the ticket that OSD control lends it. On the first shard all of that is OSD control's.

use crate::links::{Dialler, LentTicket, NetCx};
use crate::osd_addrs::{OsdAddrs, ShardListener};
use crate::peer_links::{Counterpart, PeerLinks, Waited};
use nacre_auth::ServiceAccess;
use nacre_maps::OsdMap;
use nacre_msgr::{Config as MsgrConfig, Event as ConnEvent};
use nacre_options::Values;
use nacre_service::{ConnId, Messenger};
use nacre_types::{OsdId, Stamp};
use std::sync::Arc;

/// Links between shards that are not the first ones.
pub(crate) struct ShardLinks {
    osd: OsdId,
    listener: ShardListener,
    /// The name of the OSD towards others, under which the shard dials.
    as_whom: Arc<MsgrConfig>,
    ticket: LentTicket,
    /// `ms_cluster_mode`, as connections were made.
    cluster_mode: String,
}

impl ShardLinks {
    /// Listens for counterparts as the OSD's addresses say.
    pub(crate) fn new(
        osd: OsdId,
        listener: ShardListener,
        osd_addrs: &OsdAddrs,
        messenger: &mut Messenger,
    ) -> Self {
        let mut links = Self {
            osd,
            listener,
            as_whom: Arc::clone(&osd_addrs.cluster),
            ticket: LentTicket::default(),
            cluster_mode: Values::default().text("ms_cluster_mode").to_owned(),
        };
        links.serve(osd_addrs, messenger);
        links
    }

    fn serve(&mut self, osd_addrs: &OsdAddrs, messenger: &mut Messenger) {
        self.as_whom = Arc::clone(&osd_addrs.cluster);
        self.listener.serve(osd_addrs, messenger);
    }

    /// The OSD goes on as a new instance: what was sent to and by the old one counts no more.
    pub(crate) fn rebind(
        &mut self,
        osd_addrs: &OsdAddrs,
        map: &OsdMap,
        (peers, messenger): (&mut PeerLinks, &mut Messenger),
    ) {
        self.serve(osd_addrs, messenger);
        peers.hang_up(messenger);
        messenger.forget_sessions();
        peers.follow(map, &self.as_whom, messenger);
    }

    /// Links follow the map; those that are new are dialled with the next [`ShardLinks::tick`].
    pub(crate) fn follow(&self, map: &OsdMap, peers: &mut PeerLinks, messenger: &mut Messenger) {
        peers.follow(map, &self.as_whom, messenger);
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
    pub(crate) fn tick(&mut self, peers: &mut PeerLinks, net: &mut NetCx<'_>, options: &Values) {
        if self.ticket.access.is_none() {
            return;
        }
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

    /// Whether the ticket was refused since this was asked; another one is needed then.
    pub(crate) fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.ticket.is_refused)
    }

    /// Options have changed: connections that we dialled are made anew when their protection is to be another.
    pub(crate) fn follow_options(
        &mut self,
        options: &Values,
        (peers, messenger): (&mut PeerLinks, &mut Messenger),
        now: Stamp,
    ) {
        let mode = options.text("ms_cluster_mode");
        if self.cluster_mode != mode {
            mode.clone_into(&mut self.cluster_mode);
            peers.links().for_each(|link| link.redial(messenger, now));
        }
    }
}
