//! What becomes of a call for a copy of a PG: the monitor's order or a peer's (`OSD::handle_pg_create_info`,
//! `OSD::build_initial_pg_history`).

use nacre_maps::OsdMap;
use nacre_pg::PgCreateInfo;
use nacre_types::{Epoch, PgId, SpgId};

/// Why a PG's past is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// The monitor orders a copy of a PG that it created in this epoch.
    Created(Epoch),
    /// The records of our copy are damaged, which saw maps up to this one. The monitor keeps all since the PG was clean.
    Lost(Epoch),
}

/// A copy of the PG that is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyFacts {
    /// When the PG was created, as far as the copy knows.
    pub epoch_created: Epoch,
    /// It serves, or is about to.
    pub is_activated: bool,
}

/// What is known as a call comes.
#[derive(Debug, Clone, Copy)]
pub struct CreateFacts<'a> {
    /// The newest map that our PGs may see.
    pub map: &'a OsdMap,
    /// The oldest map behind which we have all.
    pub all_since: Epoch,
    /// The oldest map that we have from [`PgCreateInfo::epoch`] on.
    pub first_map: Epoch,
    /// The copy that is here.
    pub copy: Option<CopyFacts>,
    /// It is about to be split off one of our PGs.
    pub is_coming: bool,
    /// Its records are damaged, or those of the PG of which it will be split off, and it is not known yet which OSDs served it.
    pub is_unread: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateDecision {
    /// Keep the call until a newer map is here, or what is under way is done.
    Hold,
    /// Nothing is to be done.
    Ignore,
    /// Give up what our copy holds; then decide again.
    GiveUp,
    /// Learn the PG's past first, by maps that we do not have.
    LookUp(Past),
    /// Nothing: the call is so old that its interval is over, and what came between we could not tell the PG.
    TooOld,
    /// Make a copy, and lead it through the maps from [`PgCreateInfo::epoch`] on.
    Create,
}

/// Decides about a call for a copy of `spg`.
#[must_use]
pub fn decide_create(facts: &CreateFacts<'_>, spg: &SpgId, create_info: &PgCreateInfo) -> CreateDecision {
    if create_info.epoch > facts.map.epoch || facts.is_coming {
        return CreateDecision::Hold;
    }
    if !pg_exists(facts.map, spg.pg) {
        return CreateDecision::Ignore;
    }
    if let Some(copy) = &facts.copy {
        return if is_made_anew(copy, create_info) { CreateDecision::GiveUp } else { CreateDecision::Ignore };
    }
    if facts.is_unread && create_info.lost_through == 0 {
        return CreateDecision::Ignore;
    }
    if let Some(past) = wanted_past(create_info)
        && create_info.epoch < facts.all_since
    {
        return CreateDecision::LookUp(past);
    }
    if facts.first_map > create_info.epoch { CreateDecision::TooOld } else { CreateDecision::Create }
}

/// True while the map has this PG: it may have been merged into another, or its pool is gone.
fn pg_exists(map: &OsdMap, pg: PgId) -> bool {
    map.pool(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num)
}

/// The monitor creates a PG only once: a later creation is an operator's, who gives up all that the PG held
/// (`osd force-create-pg`). One that serves holds something.
fn is_made_anew(copy: &CopyFacts, create_info: &PgCreateInfo) -> bool {
    create_info.is_ordered && create_info.history.epoch_created > copy.epoch_created && !copy.is_activated
}

/// The past that must be known of a PG that is to begin under a map that we do not have, or some behind it; `None` when a peer
/// told. Never to be guessed: others may have served it meanwhile.
fn wanted_past(create_info: &PgCreateInfo) -> Option<Past> {
    match create_info.lost_through {
        0 => create_info.is_ordered.then_some(Past::Created(create_info.history.epoch_created)),
        through => Some(Past::Lost(through)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::Pool;
    use std::collections::BTreeMap;

    /// We have the maps from 5 to 10; pool 1 has 4 PGs.
    fn map() -> OsdMap {
        let pools = BTreeMap::from([(1, Pool { pg_num: 4, ..Pool::default() })]);
        OsdMap { epoch: 10, pools, ..OsdMap::default() }
    }

    fn facts(map: &OsdMap) -> CreateFacts<'_> {
        CreateFacts { map, all_since: 5, first_map: 5, copy: None, is_coming: false, is_unread: false }
    }

    fn spg() -> SpgId {
        SpgId::replicated(PgId::new(1, 3))
    }

    fn called(epoch: Epoch) -> PgCreateInfo {
        PgCreateInfo { is_ordered: false, ..PgCreateInfo::ordered(epoch) }
    }

    #[test]
    fn a_call_ahead_of_our_map_or_for_what_is_being_split_off_is_held() {
        let map = map();
        assert_eq!(decide_create(&facts(&map), &spg(), &called(11)), CreateDecision::Hold);
        assert_eq!(decide_create(&facts(&map), &spg(), &called(10)), CreateDecision::Create);
        let coming = CreateFacts { is_coming: true, ..facts(&map) };
        assert_eq!(decide_create(&coming, &spg(), &called(10)), CreateDecision::Hold);
    }

    #[test]
    fn no_copy_is_made_of_a_pg_that_the_map_does_not_have() {
        let map = map();
        for pg in [PgId::new(1, 4), PgId::new(2, 0)] {
            let spg = SpgId::replicated(pg);
            assert_eq!(decide_create(&facts(&map), &spg, &called(10)), CreateDecision::Ignore);
        }
    }

    #[test]
    fn a_copy_stays_unless_a_later_creation_is_ordered_and_it_does_not_serve() {
        let map = map();
        let decide = |is_activated, create_info| {
            let copy = Some(CopyFacts { epoch_created: 7, is_activated });
            decide_create(&CreateFacts { copy, ..facts(&map) }, &spg(), &create_info)
        };
        assert_eq!(decide(false, PgCreateInfo::ordered(8)), CreateDecision::GiveUp);
        assert_eq!(decide(false, PgCreateInfo::ordered(7)), CreateDecision::Ignore, "the same creation");
        assert_eq!(decide(true, PgCreateInfo::ordered(8)), CreateDecision::Ignore, "it serves");
        assert_eq!(decide(false, called(8)), CreateDecision::Ignore, "a peer's call");
    }

    #[test]
    fn a_damaged_copy_begins_only_once_its_past_is_known() {
        let map = map();
        let unread = CreateFacts { is_unread: true, ..facts(&map) };
        assert_eq!(decide_create(&unread, &spg(), &called(10)), CreateDecision::Ignore);
        let known = PgCreateInfo { lost_through: 8, ..called(10) };
        assert_eq!(decide_create(&unread, &spg(), &known), CreateDecision::Create);
    }

    #[test]
    fn the_past_is_looked_up_where_maps_are_missing_and_nobody_told() {
        let map = map();
        let facts = CreateFacts { all_since: 6, ..facts(&map) };
        let decide = |create_info| decide_create(&facts, &spg(), &create_info);
        assert_eq!(decide(PgCreateInfo::ordered(5)), CreateDecision::LookUp(Past::Created(5)));
        assert_eq!(decide(PgCreateInfo::ordered(6)), CreateDecision::Create, "we have all maps since");
        assert_eq!(decide(called(5)), CreateDecision::Create, "the peer told");
        let lost = PgCreateInfo { lost_through: 8, ..called(5) };
        assert_eq!(decide(lost), CreateDecision::LookUp(Past::Lost(8)));
    }

    #[test]
    fn a_peers_call_from_before_our_oldest_map_is_ignored() {
        let map = map();
        assert_eq!(decide_create(&facts(&map), &spg(), &called(4)), CreateDecision::TooOld);
        assert_eq!(decide_create(&facts(&map), &spg(), &called(5)), CreateDecision::Create);
    }
}
