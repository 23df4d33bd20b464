//! Messages of other OSDs for PGs, and copies that these or the monitor call for. What becomes of a call `core/osd` decides
//! (`decide_create`).

use crate::pg_driver::PgDriver;
use crate::shard_msg::{ShardMsg, Way};
use crate::shard_net::ShardCx;
use nacre_msg::peer::PeerMessage;
use nacre_osd_core::{CopyFacts, CreateDecision, CreateFacts, PeerDecision, decide_create};
use nacre_pg::{Event, Pg, PgCreateInfo};
use nacre_types::{Epoch, OsdId, SpgId};
use std::sync::Arc;

impl PgDriver {
    /// A message of another OSD for a PG that lives here, if it exists, with nothing to wait for.
    pub(crate) fn admit_peer_message(&mut self, cx: &mut ShardCx<'_>, from: OsdId, message: PeerMessage) {
        let spg = message.header().spg;
        match cx.net.router.way_of(&spg) {
            Way::Here => (),
            Way::Forward(shard) => {
                return cx.net.router.send(shard, ShardMsg::Peer(from, Box::new(message)));
            }
            Way::Hold => return self.pgs.hold_peer(from, message),
        }
        match self.admit_peer(cx, from, &message) {
            PeerDecision::Drop => (),
            PeerDecision::Deliver => self.deliver(cx, spg, Event::Peer { from, message }),
            PeerDecision::Hold => self.pgs.hold_peer(from, message),
            PeerDecision::Create(create_info) => {
                self.create_pg(cx, spg, *create_info);
                self.deliver(cx, spg, Event::Peer { from, message });
            }
            PeerDecision::AnswerWithoutPg => {
                let map = Arc::clone(self.pgs.map());
                self.with_pgs(cx, &map, spg, |_, pg_cx| nacre_pg::reply_without_pg(pg_cx, from, &message));
            }
        }
    }

    /// Makes a copy, beginning with the map in which it was called for, and leads it to the present one.
    pub(crate) fn create_pg(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, create_info: PgCreateInfo) {
        if self.is_broken(cx.net) {
            return;
        }
        match cx.net.router.way_of(&spg) {
            Way::Here => (),
            Way::Forward(shard) => {
                return cx.net.router.send(shard, ShardMsg::Create(spg, Box::new(create_info)));
            }
            Way::Hold => return self.pgs.hold_create(spg, create_info),
        }
        let maps = self.pgs.maps_from(create_info.epoch);
        let Some(first) = maps.first() else { return };
        if !self.is_to_create(cx, spg, &create_info, first.epoch) {
            return;
        }
        let osd = self.osd;
        let partition = cx.net.router.partition_of(&spg);
        if !self.store.place(&spg, partition) {
            let reason =
                format!("{spg} is of partition {partition} of the store, which this shard does not have");
            return self.break_down(cx.net, &reason);
        }
        self.with_pgs(cx, first, spg, |pgs, pg_cx| pgs.insert(Pg::create(pg_cx, osd, spg, create_info)));
        for map in maps.iter().skip(1) {
            self.deliver_under(cx, map, spg, Event::Map);
        }
        for (from, message) in self.pgs.take_held_peer() {
            self.admit_peer_message(cx, from, message);
        }
        for op in self.pgs.take_held_for(&spg) {
            self.admit_op(cx, spg, op);
        }
    }

    /// Whether a copy is to be made now, as it was called for. What is to be done first, or instead, is done.
    fn is_to_create(
        &mut self,
        cx: &mut ShardCx<'_>,
        spg: SpgId,
        create_info: &PgCreateInfo,
        first_map: Epoch,
    ) -> bool {
        let mut copy = self.pgs.get(&spg).map(|pg| CopyFacts {
            epoch_created: pg.info().history.epoch_created,
            is_activated: pg.is_activated(),
        });
        let (osd, epoch) = (self.osd, create_info.epoch);
        loop {
            let facts = CreateFacts {
                map: self.pgs.map(),
                all_since: self.pgs.all_since(),
                first_map,
                copy,
                is_coming: self.pgs.is_coming(&spg) || self.relocations.expects(&spg),
                is_unread: self.pgs.is_unread(&spg),
            };
            match decide_create(&facts, &spg, create_info) {
                CreateDecision::Create => return true,
                CreateDecision::Ignore => (),
                CreateDecision::Hold => self.pgs.hold_create(spg, create_info.clone()),
                CreateDecision::LookUp(past) => cx.net.router.send(0, ShardMsg::Past(spg, past)),
                CreateDecision::TooOld => {
                    tracing::info!(osd, pg = %spg, epoch, "a peer's request for a copy of this PG is older than the maps that are kept; ignored");
                }
                CreateDecision::GiveUp => {
                    self.give_up(cx, spg, create_info.history.epoch_created);
                    copy = None;
                    continue;
                }
            }
            return false;
        }
    }

    fn give_up(&mut self, cx: &mut ShardCx<'_>, spg: SpgId, epoch: Epoch) {
        tracing::warn!(
            osd = self.osd,
            pg = %spg,
            epoch,
            phase = self.pgs.get(&spg).map_or("", |pg| pg.phase_name()),
            "the PG is made anew by order; what it held is given up"
        );
        self.deliver(cx, spg, Event::GiveUp);
    }
}
