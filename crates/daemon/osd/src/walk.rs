//! [`Walk`]: maps of the past, fetched from the monitor for PGs of which this OSD must know which others served them before the
//! maps that it keeps.

use nacre_maps::{OsdMap, newer_maps};
use nacre_msg::{MOsdMap, MonGetOsdMap};
use nacre_osd_core::Past;
use nacre_pg::{Lineage, PgCreateInfo};
use nacre_types::{Epoch, SpgId, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The monitor is asked again after this time.
const RETRY: Duration = Duration::from_secs(5);
/// Increments in one answer at most, Ceph's `osd_map_message_max`.
const MAPS_MAX: u32 = 40;
/// Placements computed in one turn, about.
const PLACEMENTS_MAX: usize = 2000;

/// One run through the maps, with all PGs that want something of it.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// What each PG wants to know, and what was found so far.
    pgs: BTreeMap<SpgId, (Past, Option<Lineage>)>,
    /// The map that it has come to; of epoch 0 at first.
    map: Arc<OsdMap>,
    /// The oldest that the monitor keeps, as far as it said.
    oldest: Epoch,
    asked_at: Option<Stamp>,
}

impl Walk {
    /// A PG's past is wanted. It is looked for from the beginning, and with it what was wanted before.
    pub(crate) fn add(&mut self, spg: SpgId, past: Past) {
        if self.pgs.get(&spg).is_none_or(|(known, _)| *known != past) {
            self.pgs.insert(spg, (past, None));
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.pgs.values_mut().for_each(|(_, lineage)| *lineage = None);
        (self.map, self.asked_at) = (Arc::default(), None);
    }

    /// The first epoch that somebody needs.
    fn first(&self) -> Epoch {
        let needs = self.pgs.values().map(|(past, _)| match past {
            Past::Created(epoch) => *epoch,
            Past::Lost(_) => self.oldest,
        });
        needs.min().unwrap_or(0).max(1)
    }

    /// What the monitor is to be asked for now, if anything.
    pub(crate) fn ask(&mut self, now: Stamp) -> Option<MonGetOsdMap> {
        if self.pgs.is_empty() || self.asked_at.is_some_and(|at| now < at + RETRY) {
            return None;
        }
        self.asked_at = Some(now);
        let next = if self.map.epoch == 0 { self.first() } else { self.map.epoch + 1 };
        let most = u32::try_from(PLACEMENTS_MAX / self.pgs.len()).unwrap_or(MAPS_MAX).clamp(1, MAPS_MAX);
        Some(MonGetOsdMap {
            full_first: next,
            full_last: next,
            inc_first: next + 1,
            inc_last: next + most,
            ..MonGetOsdMap::default()
        })
    }

    /// Nobody wants anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.pgs.is_empty()
    }

    /// Maps came from the monitor; `present` is the epoch that the PGs have come to. Yields the PGs whose past is known up to
    /// there, and how they begin with that map; nothing for those of which it cannot be known.
    pub(crate) fn take(&mut self, message: &MOsdMap, present: Epoch) -> Vec<(SpgId, Option<PgCreateInfo>)> {
        let mut out = self.give_up_trimmed(message.oldest);
        let before = self.map.epoch;
        for next in newer_maps(&self.map, message) {
            let map = match next {
                Ok(next) => next.map,
                Err(error) => {
                    tracing::error!(%error, "an old OSD map from the monitor cannot be used");
                    break;
                }
            };
            // The first must be the one that was asked for.
            let wanted = if self.map.epoch == 0 { self.first() } else { self.map.epoch + 1 };
            if map.epoch != wanted {
                break;
            }
            self.follow(map);
            if self.map.epoch >= present {
                out.extend(self.finish());
                return out;
            }
        }
        if self.map.epoch > before {
            self.asked_at = None; // for what follows
        }
        out
    }

    /// The monitor drops maps only when each PG was clean in one that is left. A PG that was created before them is
    /// no new one.
    fn give_up_trimmed(&mut self, oldest: Epoch) -> Vec<(SpgId, Option<PgCreateInfo>)> {
        if oldest <= self.oldest {
            return Vec::new();
        }
        self.oldest = oldest;
        let gone = |past: &Past| matches!(past, Past::Created(epoch) if *epoch < oldest);
        let gone = self.pgs.extract_if(.., |_, (past, _)| gone(past)).map(|(spg, _)| (spg, None)).collect();
        if self.map.epoch < oldest {
            self.begin();
        }
        gone
    }

    fn follow(&mut self, map: Arc<OsdMap>) {
        for (spg, (past, lineage)) in &mut self.pgs {
            match lineage {
                Some(lineage) => lineage.advance(&map),
                None if *past == Past::Created(map.epoch) => {
                    *lineage = Some(Lineage::begin(*spg, &map, true))
                }
                None if matches!(past, Past::Lost(_)) => *lineage = Some(Lineage::begin(*spg, &map, false)),
                None => (),
            }
        }
        self.map = map;
    }

    fn finish(&mut self) -> Vec<(SpgId, Option<PgCreateInfo>)> {
        let born = |(past, lineage): (Past, Option<Lineage>)| {
            Some(match past {
                Past::Created(_) => lineage?.into_ordered(),
                Past::Lost(through) => lineage?.into_lost(through),
            })
        };
        let pgs = std::mem::take(&mut self.pgs);
        (self.map, self.asked_at) = (Arc::default(), None);
        pgs.into_iter().map(|(spg, found)| (spg, born(found))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_denc::Encode;
    use nacre_types::PgId;

    fn map(epoch: Epoch) -> Arc<OsdMap> {
        let mut map = OsdMap { epoch, ..OsdMap::default() };
        map.pools
            .insert(1, nacre_maps::Pool { size: 1, pg_num: 1, pgp_num: 1, ..nacre_maps::Pool::default() });
        Arc::new(map)
    }

    fn spg() -> SpgId {
        SpgId::replicated(PgId::new(1, 0))
    }

    fn answer(oldest: Epoch, epochs: impl Iterator<Item = Epoch>) -> MOsdMap {
        let full = epochs.map(|epoch| (epoch, map(epoch).to_bytes())).collect();
        MOsdMap { full, oldest, newest: 99, ..MOsdMap::default() }
    }

    #[test]
    fn it_goes_from_the_creation_to_the_maps_that_are_known() {
        let (mut walk, now) = (Walk::default(), Stamp(1));
        assert!(walk.ask(now).is_none(), "nobody wants anything");
        walk.add(spg(), Past::Created(5));
        let asked = walk.ask(now).expect("a question");
        assert_eq!((asked.full_first, asked.inc_first), (5, 6));
        assert!(walk.ask(now).is_none(), "it was asked");
        assert!(walk.take(&answer(1, 7..9), 9).is_empty(), "not from there on");
        assert!(walk.take(&answer(1, 5..8), 9).is_empty());
        assert_eq!(walk.ask(now).expect("at once").full_first, 8);
        let found = walk.take(&answer(1, 8..12), 9);
        let [(_, Some(create_info))] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (create_info.epoch, create_info.history.epoch_created, create_info.is_ordered),
            (9, 5, true)
        );
        assert!(walk.ask(now).is_none());
    }

    #[test]
    fn what_the_monitor_does_not_keep_was_clean_since() {
        let (mut walk, now) = (Walk::default(), Stamp(1));
        walk.add(spg(), Past::Created(5));
        let found = walk.take(&answer(6, 6..7), 9);
        assert!(matches!(&found[..], [(_, None)]), "{found:?}");
        walk.add(spg(), Past::Lost(8));
        assert_eq!(walk.ask(now).expect("a question").full_first, 6);
        let found = walk.take(&answer(6, 6..10), 9);
        let [(_, Some(create_info))] = &found[..] else { panic!("{found:?}") };
        assert_eq!((create_info.epoch, create_info.lost_through, create_info.is_ordered), (9, 8, false));
    }
}
