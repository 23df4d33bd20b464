//! How an OSD takes up again after a restart: the PGs that its store holds, led to the newest map that it has.

use crate::own_collection::BENCH_COLLECTION;
use crate::pg_driver::PgDriver;
use crate::relocations::partitions;
use crate::shard_msg::ShardMsg;
use crate::shard_net::ShardCx;
use nacre_osd_core::Past;
use nacre_pg::{Event, Pg};
use nacre_txn::{Op, StoreToken};
use nacre_types::{Epoch, SpgId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The store has placement groups and no map: without the maps since theirs nobody knows who served them.
#[derive(Debug)]
pub(crate) struct NoMaps;

impl PgDriver {
    /// Loads the PGs that the store holds, and leads them together through the maps that it has: where one is
    /// merged into another, both have come to the map before. They stay silent until the monitor's next map, the one
    /// in which this OSD is up again. Of what cannot be read the others must hear that it is lost.
    ///
    /// # Errors
    /// [`NoMaps`]: this OSD must not go on.
    pub(crate) fn load_pgs(&mut self, cx: &mut ShardCx<'_>) -> Result<(), NoMaps> {
        self.forget_bench(cx);
        self.load_all(cx)?;
        self.depart_misplaced(cx);
        Ok(())
    }

    /// What is left of a bench that ended with an earlier life of the OSD.
    fn forget_bench(&mut self, cx: &mut ShardCx<'_>) {
        let parts = partitions(self.store.as_ref(), cx.net.router.me).into_iter();
        let left = parts.filter(|(_, store)| store.collections().contains(&BENCH_COLLECTION));
        for number in left.map(|(number, _)| number).collect::<Vec<_>>() {
            let token = StoreToken::without_pg(0);
            self.submit_to(cx, number, BENCH_COLLECTION, vec![Op::RemoveCollection], token);
        }
    }

    fn load_all(&mut self, cx: &mut ShardCx<'_>) -> Result<(), NoMaps> {
        let (mut oldest, mut behind) = (None, Vec::new());
        let epochs = self.map_epochs();
        // Read once each: there may be many PGs for one.
        let mut firsts = BTreeMap::new();
        for spg in self.in_place(cx) {
            let epoch = Pg::stored_epoch(&*self.store, &spg);
            let from = epoch.unwrap_or(0);
            let first = firsts.entry(from).or_insert_with(|| self.first_map_from(&epochs, from));
            let first = Arc::clone(first);
            if first.epoch == 0 {
                tracing::error!(
                    osd = self.osd,
                    %spg,
                    "the store has PGs and no OSD map: without the maps since theirs it is unknown which OSDs served them; \
                     this OSD stops: repair or replace its store"
                );
                return Err(NoMaps);
            }
            let pg = epoch.and_then(|_| Pg::load(&*self.store, self.osd, spg, &first));
            let Some(pg) = pg else {
                // Its parent, which comes before it, goes on to split it off.
                if !self.pgs.is_coming(&spg) {
                    self.note_damage(cx, spg);
                }
                continue;
            };
            oldest = Some(oldest.map_or(first.epoch, |oldest: Epoch| oldest.min(first.epoch)));
            if epoch.is_some_and(|epoch| first.epoch > epoch) {
                behind.push((first, spg));
            }
            self.pgs.insert(pg);
        }
        let Some(oldest) = oldest else { return Ok(()) };
        // The first map left is the PG's first to see, too: it may be the one whose change it had no time to store.
        for (map, spg) in behind {
            self.deliver_under(cx, &map, spg, Event::Map);
            self.finish_moving(cx, spg);
        }
        for epoch in epochs.range(oldest..) {
            if let Some(map) = self.map_of(*epoch) {
                self.advance_pgs(cx, &map, true);
            }
        }
        Ok(())
    }

    /// The records of a copy, or its log, are damaged: it begins with nothing once it is known which OSDs served the PG, and says what it
    /// lost.
    pub(crate) fn note_damage(&mut self, cx: &mut ShardCx<'_>, spg: SpgId) {
        let (through, note) = Pg::note_damage(&*self.store, spg, self.pgs.map().epoch);
        tracing::error!(
            osd = self.osd,
            %spg,
            epoch = through,
            "a placement group's records are damaged: what this OSD stored of it is lost, if no other has it"
        );
        if let Some(txn) = note {
            self.submit(cx, txn, StoreToken::without_pg(0));
        }
        self.pgs.set_unread(spg);
        cx.net.router.send(0, ShardMsg::Past(spg, Past::Lost(through)));
    }
}
