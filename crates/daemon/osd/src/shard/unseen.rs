//! PGs whose past this OSD must learn before it may take part: it has not seen the maps, or cannot read what it stored.

use super::Shard;
use crate::control::OsdControl;
use crate::shard_msg::ShardMsg;
use crate::walk::Past;
use nacre_msg::OsdMap as MapMessage;
use nacre_pg::{Event, PgCreateInfo};
use nacre_types::{Epoch, SpgId};

impl Shard {
    /// Learns the past of a PG that is to begin under a map that we do not have, or some behind it; false when we have
    /// them all, or a peer told. Never to be guessed: others may have served it meanwhile.
    pub(super) fn looks_up(&mut self, spg: SpgId, create_info: &PgCreateInfo) -> bool {
        let past = match create_info.lost_through {
            0 if create_info.is_ordered => Past::Created(create_info.history.epoch_created),
            0 => return false,
            through => Past::Lost(through),
        };
        if self.pgs.has_all_since(create_info.epoch) {
            return false;
        }
        self.router.send(0, ShardMsg::Past(spg, past));
        true
    }

    /// Whether there is a copy, and it stays. The monitor creates a PG only once: a later creation is an operator's, who gives
    /// up all that the PG held (`osd force-create-pg`). One that serves holds something.
    pub(super) fn keeps(&mut self, spg: &SpgId, create_info: &PgCreateInfo) -> bool {
        let Some(pg) = self.pgs.get(spg) else { return false };
        let (created, known) = (create_info.history.epoch_created, pg.info().history.epoch_created);
        if !create_info.is_ordered || created <= known || pg.is_activated() {
            return true;
        }
        tracing::error!(
            osd = self.config.id,
            pg = %spg,
            epoch = created,
            phase = pg.phase_name(),
            "the PG is made anew by order; what it held is given up"
        );
        self.deliver(*spg, Event::GiveUp);
        false
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
    pub(super) fn learn_past(&mut self, message: &MapMessage) {
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
