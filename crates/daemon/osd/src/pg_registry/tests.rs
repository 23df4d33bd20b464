//! Completions that come when the PG they are for is gone, and another copy of it is here.

use super::*;
use nacre_maps::Pool;
use nacre_maps::flags::osd::{EXISTS, UP};
use nacre_pg::{Effect, Effects, RecoveryThrottle};
use nacre_store::{MemStore, ObjectStore};
use nacre_types::entropy::SeededEntropy;

const ME: OsdId = 0;

fn spg() -> SpgId {
    SpgId::replicated(PgId::new(1, 3))
}

/// This OSD alone serves pool 1.
fn map() -> Arc<OsdMap> {
    let pool = Pool { pg_num: 4, pgp_num: 4, size: 1, min_size: 1, ..Pool::default() };
    let mut map = OsdMap { epoch: 10, pools: BTreeMap::from([(1, pool)]), ..OsdMap::default() };
    map.set_max_osd(1);
    map.osd_state.fill(EXISTS | UP);
    map.pg_temp.insert(spg().pg, vec![ME]);
    Arc::new(map)
}

/// The PGs of a shard and its store, which completes nothing before [`Rig::drain`].
struct Rig {
    pgs: PgRegistry,
    store: MemStore,
    entropy: SeededEntropy,
    throttle: RecoveryThrottle,
    effects: Effects,
}

impl Rig {
    fn new() -> Self {
        let mut pgs = PgRegistry::new(Tuning::default());
        pgs.set_map(map());
        let (store, entropy) = (MemStore::new(1 << 20), SeededEntropy(1));
        Self { pgs, store, entropy, throttle: RecoveryThrottle::new(), effects: Effects::new() }
    }

    fn with_cx<T>(&mut self, work: impl FnOnce(&mut PgRegistry, &mut Cx<'_>) -> T) -> T {
        let map = map();
        let mut cx = Cx {
            now: Stamp::default(),
            wall: UTime::default(),
            map: &map,
            view: &self.store,
            room: Default::default(),
            entropy: &mut self.entropy,
            throttle: &mut self.throttle,
            effects: &mut self.effects,
        };
        work(&mut self.pgs, &mut cx)
    }

    /// Carries effects out as a shard does; yields under which tokens the PG submitted.
    fn execute_effects(&mut self) -> Vec<StoreToken> {
        let mut tokens = Vec::new();
        loop {
            let (mut resume, effects) = (false, self.effects.drain().collect::<Vec<_>>());
            for effect in effects {
                match effect {
                    Effect::Submit { txn, token } => {
                        let token = StoreToken::new(spg(), token);
                        self.pgs.submitted(token);
                        self.store.submit(txn, token).expect("room");
                        tokens.push(token);
                    }
                    Effect::Resume => resume = true,
                    _ => {}
                }
            }
            if !resume {
                return tokens;
            }
            self.handle(Event::Resume);
        }
    }

    fn handle(&mut self, event: Event) {
        self.with_cx(|pgs, cx| pgs.handle_under(cx, &spg(), event));
    }

    fn create(&mut self) -> Vec<StoreToken> {
        let pg = self.with_cx(|_, cx| Pg::create(cx, ME, spg(), PgCreateInfo::ordered(10)));
        self.pgs.insert(pg);
        self.execute_effects()
    }

    fn stored(&self) -> Pg {
        Pg::load(&self.store, ME, spg(), &map()).expect("a sound copy")
    }

    /// The PG hears of the map, and submits what begins its interval.
    fn begin(&mut self) -> Vec<StoreToken> {
        self.handle(Event::Map);
        self.execute_effects()
    }

    fn is_active(&self) -> bool {
        self.pgs.get(&spg()).is_some_and(Pg::is_active)
    }

    /// Hands all completions out; yields how many came before the PG was active, it being none.
    fn drain(&mut self) -> usize {
        assert!(!self.is_active());
        let (mut done, mut before) = (Vec::new(), 0);
        self.store.drain(&mut done);
        for completion in done {
            before += usize::from(!self.is_active());
            let Completed::OfToken(of, event) = self.pgs.completed(completion) else {
                panic!("nobody has asked for metadata");
            };
            assert!(of.is_of_pg() && of.spg == spg());
            self.handle(event);
            self.execute_effects();
        }
        before
    }
}

/// What the tokens `first` were for comes when there is a copy that has submitted under `second`.
fn assert_told_apart(rig: &mut Rig, first: &[StoreToken], second: &[StoreToken]) {
    assert!(!first.is_empty() && !second.is_empty());
    assert!(first.iter().all(|token| !second.contains(token)), "{first:?} {second:?}");
    let before = rig.drain();
    assert!(rig.is_active());
    assert!(before > first.len(), "active by what an earlier copy had submitted: {before} {first:?}");
}

#[test]
fn what_a_removed_copy_had_under_way_is_not_taken_for_the_next_ones() {
    let mut rig = Rig::new();
    let first = rig.create();
    rig.pgs.remove(&spg());
    let second = rig.create();
    assert_told_apart(&mut rig, &first, &second);
}

#[test]
fn what_a_merged_copy_had_under_way_is_not_taken_for_a_childs() {
    let mut rig = Rig::new();
    rig.create();
    rig.drain();
    rig.pgs.remove(&spg());
    // As after a restart, which is followed by a merge and by a split.
    let loaded = rig.stored();
    rig.pgs.insert(loaded);
    let mut earlier = rig.begin();
    let child = |rig: &mut Rig| {
        assert!(rig.pgs.take(&spg()).is_some(), "merged");
        let child = rig.stored();
        rig.pgs.insert_child(child);
        rig.begin()
    };
    earlier.extend(child(&mut rig));
    let newest = child(&mut rig);
    assert_told_apart(&mut rig, &earlier, &newest);
}

#[test]
fn completions_find_nobody_where_no_copy_is_left() {
    let mut rig = Rig::new();
    let submitted = rig.create();
    rig.pgs.remove(&spg());
    assert_eq!(rig.drain(), submitted.len());
    assert!(!rig.pgs.contains(&spg()) && !rig.pgs.wait_for_peers());
}
