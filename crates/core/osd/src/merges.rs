//! [`Merges`]: when two PGs may be merged, as their primaries say on one OSD (`OSD::send_ready_to_merge`).

use nacre_maps::OsdMap;
use nacre_msg::OsdPgReadyToMerge;
use nacre_pg::{MergeRole, MergeState};
use nacre_types::PgId;
use std::collections::BTreeMap;

/// PGs that are to be merged, by the source: what it and its target said last.
#[derive(Debug, Default)]
pub struct Merges(BTreeMap<PgId, (Option<MergeState>, Option<MergeState>)>);

impl Merges {
    /// One of two PGs that are to be merged says how far it is; yields what the monitor is to hear. When both stand still it may
    /// go on; when one cannot, it should let both serve again. Nor may PGs go on of which each is in a store of its own, between
    /// which nothing moves (`same_store` is false). Repeated by the PGs on each tick: nothing of it need be kept.
    pub fn heard(&mut self, map: &OsdMap, state: MergeState, same_store: bool) -> Option<OsdPgReadyToMerge> {
        let state = MergeState { clean: state.clean && same_store, ..state };
        let pool = map.pool(state.source.pool);
        if pool
            .is_none_or(|pool| pool.pg_num_pending != state.source.seed || pool.pg_num <= state.source.seed)
        {
            self.0.remove(&state.source);
            return None;
        }
        let pair = self.0.entry(state.source).or_default();
        // Under another map the other PG may not stand still any more: it says so again.
        let is_of_now = |other: &Option<MergeState>| other.is_some_and(|other| other.epoch == state.epoch);
        *pair = (pair.0.filter(|_| is_of_now(&pair.0)), pair.1.filter(|_| is_of_now(&pair.1)));
        match state.role {
            MergeRole::Source => pair.0 = Some(state),
            MergeRole::Target => pair.1 = Some(state),
        }
        let (source, target) = match *pair {
            (Some(source), Some(target)) => (source, target),
            _ if !state.clean => (state, state),
            _ => return None,
        };
        self.0.remove(&state.source);
        Some(OsdPgReadyToMerge {
            version: source.epoch.min(target.epoch).into(),
            pg: state.source,
            source_version: source.version,
            target_version: target.version,
            last_epoch_started: target.last_epoch_started,
            last_epoch_clean: target.last_epoch_clean,
            ready: source.clean && target.clean,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::Pool;
    use nacre_types::Eversion;

    /// Pool 1 goes from 4 PGs to 3: 1.3 goes into 1.1.
    fn map() -> OsdMap {
        let pool = Pool { pg_num: 4, pg_num_pending: 3, ..Pool::default() };
        OsdMap { pools: BTreeMap::from([(1, pool)]), ..OsdMap::default() }
    }

    fn state(role: MergeRole) -> MergeState {
        let of_source = role == MergeRole::Source;
        MergeState {
            role,
            source: PgId::new(1, 3),
            target: PgId::new(1, 1),
            clean: true,
            version: Eversion::new(5, if of_source { 30 } else { 10 }),
            last_epoch_started: if of_source { 6 } else { 7 },
            last_epoch_clean: if of_source { 8 } else { 9 },
            epoch: 20,
        }
    }

    const SOURCE: MergeRole = MergeRole::Source;
    const TARGET: MergeRole = MergeRole::Target;

    #[test]
    fn the_monitor_hears_when_both_stand_still() {
        let ready = OsdPgReadyToMerge {
            version: 20,
            pg: PgId::new(1, 3),
            source_version: Eversion::new(5, 30),
            target_version: Eversion::new(5, 10),
            last_epoch_started: 7,
            last_epoch_clean: 9,
            ready: true,
        };
        for (first, second) in [(SOURCE, TARGET), (TARGET, SOURCE)] {
            let mut merges = Merges::default();
            assert_eq!(merges.heard(&map(), state(first), true), None, "one is not enough");
            assert_eq!(merges.heard(&map(), state(first), true), None);
            assert_eq!(merges.heard(&map(), state(second), true), Some(ready.clone()));
            assert_eq!(merges.heard(&map(), state(first), true), None, "told once");
        }
    }

    #[test]
    fn the_monitor_hears_at_once_when_one_is_not_clean() {
        let mut merges = Merges::default();
        let unclean = MergeState { clean: false, ..state(TARGET) };
        let told = merges.heard(&map(), unclean, true).expect("something to tell");
        assert!(!told.ready && told.source_version == unclean.version);
        assert_eq!(merges.heard(&map(), state(SOURCE), true), None);
        let told = merges.heard(&map(), unclean, true).expect("something to tell");
        assert!(!told.ready && told.source_version == state(SOURCE).version);
        let unclean = MergeState { clean: false, ..state(SOURCE) };
        assert_eq!(merges.heard(&map(), state(TARGET), true), None);
        let told = merges.heard(&map(), unclean, true).expect("something to tell");
        assert!(!told.ready && told.target_version == state(TARGET).version);
    }

    #[test]
    fn what_one_said_under_another_map_does_not_count() {
        let mut merges = Merges::default();
        assert_eq!(merges.heard(&map(), state(SOURCE), true), None);
        let later = MergeState { epoch: 25, ..state(TARGET) };
        assert_eq!(merges.heard(&map(), later, true), None, "the source may serve again since");
        let told = merges.heard(&map(), MergeState { epoch: 25, ..state(SOURCE) }, true);
        assert_eq!(told.map(|told| (told.ready, told.version)), Some((true, 25)));
    }

    #[test]
    fn pgs_in_stores_of_their_own_are_not_merged() {
        let mut merges = Merges::default();
        assert!(merges.heard(&map(), state(SOURCE), false).is_some_and(|told| !told.ready));
    }

    #[test]
    fn who_is_not_to_be_merged_any_more_is_forgotten() {
        let change = |pg_num, pg_num_pending| {
            let mut map = map();
            let pool = map.pools.get_mut(&1).expect("the pool");
            (pool.pg_num, pool.pg_num_pending) = (pg_num, pg_num_pending);
            map
        };
        for map_then in [change(4, 4), change(3, 3), OsdMap::default()] {
            let mut merges = Merges::default();
            assert_eq!(merges.heard(&map(), state(SOURCE), true), None);
            assert_eq!(merges.heard(&map_then, state(TARGET), true), None);
            assert_eq!(merges.heard(&map(), state(TARGET), true), None, "what the source said then");
        }
    }
}
