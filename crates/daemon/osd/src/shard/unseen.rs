//! PGs whose past this OSD must learn before it may take part: it has not seen the maps, or cannot read what it stored.

use super::Shard;
use crate::control::OsdControl;
use crate::shard_msg::ShardMsg;
use nacre_msg::MOsdMap;
use nacre_osd_core::{CopyFacts, CreateDecision, CreateFacts, Past, decide_create};
use nacre_pg::{Event, PgCreateInfo};
use nacre_types::{Epoch, SpgId};

impl Shard {
    /// Whether a copy is to be made now, as it was called for. What is to be done first, or instead, is done.
    pub(super) fn is_to_create(&mut self, spg: SpgId, create_info: &PgCreateInfo, first_map: Epoch) -> bool {
        let mut copy = self.pgs.get(&spg).map(|pg| CopyFacts {
            epoch_created: pg.info().history.epoch_created,
            is_activated: pg.is_activated(),
        });
        let (osd, epoch) = (self.config.id, create_info.epoch);
        loop {
            let facts = CreateFacts {
                map: self.pgs.map(),
                all_since: self.pgs.all_since(),
                first_map,
                copy,
                is_coming: self.pgs.is_coming(&spg),
                is_unread: self.pgs.is_unread(&spg),
            };
            match decide_create(&facts, &spg, create_info) {
                CreateDecision::Create => return true,
                CreateDecision::Ignore => (),
                CreateDecision::Hold => self.pgs.hold_create(spg, create_info.clone()),
                CreateDecision::LookUp(past) => self.router.send(0, ShardMsg::Past(spg, past)),
                CreateDecision::TooOld => {
                    tracing::info!(osd, pg = %spg, epoch, "a peer's old call is ignored");
                }
                CreateDecision::GiveUp => {
                    self.give_up(spg, create_info.history.epoch_created);
                    copy = None;
                    continue;
                }
            }
            return false;
        }
    }

    fn give_up(&mut self, spg: SpgId, epoch: Epoch) {
        tracing::error!(
            osd = self.config.id,
            pg = %spg,
            epoch,
            phase = self.pgs.get(&spg).map_or("", |pg| pg.phase_name()),
            "the PG is made anew by order; what it held is given up"
        );
        self.deliver(spg, Event::GiveUp);
    }

    /// The records of a copy are damaged, which the maps up to `through` may have brought something: it begins with nothing
    /// once it is known who served the PG, and says what it lost.
    pub(crate) fn begin_in_rubble(&mut self, spg: SpgId, through: Epoch) {
        self.pgs.set_unread(spg);
        self.router.send(0, ShardMsg::Past(spg, Past::Lost(through)));
    }

    /// Asks the monitor for what is wanted of the past.
    pub(super) fn ask_for_past(&mut self) {
        let now = self.now;
        if self.control.as_ref().is_some_and(OsdControl::has_monitor)
            && let Some(ask) = self.walk.ask(now)
        {
            self.with_control(|control, cx| control.ask_monitor(cx, ask.into()));
        }
    }

    /// Maps came from the monitor, perhaps those that were asked for.
    pub(super) fn learn_past(&mut self, message: &MOsdMap) {
        if self.walk.is_idle() {
            return;
        }
        for (spg, create_info) in self.walk.take(message, self.pgs.map().epoch) {
            match create_info {
                Some(create_info) => {
                    self.router.send(self.router.shard_of(&spg), ShardMsg::Create(spg, Box::new(create_info)))
                }
                None => tracing::warn!(
                    osd = self.config.id,
                    pg = %spg,
                    "ordered as if new, but the monitor has no map of its creation any more: it was clean since, and whoever has \
                     it will call for a copy"
                ),
            }
        }
        self.ask_for_past();
    }
}
