//! Slabs that go from one partition to another, and the room that each has for itself.

use super::model::{drain, newest, object, pg, read};
use super::partitions::{BLOCK, Rig, SLAB_BLOCKS, check_slabs, removal};
use crate::{BlockStore, Options};
use nacre_buf::BufList;
use nacre_env::Clock;
use nacre_store::{ObjectStore, StoreError};
use nacre_txn::{Op, StoreToken, Transaction};

/// Writes whole objects until there is no room; how many. They are named from 100 on.
pub(super) fn fill(stores: &mut [BlockStore], nth: usize) -> u64 {
    let data = vec![nth as u8 + 1; 8 * crate::BLOCK];
    // A partition that had to wait for others goes on when they have given what they could spare.
    let (mut written, mut refused) = (0, 0);
    while refused < 20 {
        let mut txn = Transaction::new(pg());
        txn.push(Op::Write { object: object(100 + written), offset: 0, data: BufList::from(data.clone()) });
        match stores[nth].submit(txn, StoreToken::without_pg(written + 1)) {
            Ok(()) => (written, refused) = (written + 1, 0),
            Err(StoreError::Full { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        settle(stores);
    }
    written
}

/// Lets all partitions do what they have to do.
pub(super) fn settle(stores: &mut [BlockStore]) {
    for _ in 0..200 {
        stores.iter_mut().for_each(|store| drop(drain(store, &mut Vec::new())));
    }
}

pub(super) fn remove_all(stores: &mut [BlockStore], nth: usize, count: u64) {
    let number = newest(&stores[nth]) + 1;
    let txn = removal(number, 100..100 + count);
    stores[nth].submit(txn, StoreToken::without_pg(number)).expect("a removal needs no room");
    settle(stores);
}

fn held(stores: &[BlockStore]) -> Vec<u64> {
    stores.iter().map(|store| store.slabs().expect("divided").held).collect()
}

/// One partition has need of all, and then another one.
#[test]
fn a_partition_can_have_all_that_others_do_not_need() {
    let slabs = 64;
    let mut rig = Rig::new(1, slabs * u64::from(SLAB_BLOCKS), 3, Options::tiny());
    let mut stores = rig.open();
    let mut before = None;
    for nth in [1, 2, 0, 1] {
        let context = format!("partition {nth}");
        let written = fill(&mut stores, nth);
        let others = [0, 1, 2].into_iter().filter(|other| *other != nth).map(|other| held(&stores)[other]);
        let of_others: u64 = others.sum();
        // Each keeps what it needs to go on: a reserve and half a slab.
        assert!(of_others <= 6, "{context}: others have {of_others} slabs of {slabs}");
        assert_eq!(held(&stores).iter().sum::<u64>(), slabs, "{context}: {:?}", held(&stores));
        assert!(
            written * 8 >= (slabs - 8) * u64::from(SLAB_BLOCKS),
            "{context}: {written} objects are not all"
        );
        let before = before.replace(written).unwrap_or(written);
        assert!(before.abs_diff(written) <= 4, "{context}: {written} objects, the one before had {before}");
        check_slabs(&stores, &context);
        drop(stores);
        stores = rig.open();
        let data = read(&mut stores[nth], &object(100), 0, 8 * BLOCK, &mut Vec::new()).expect("it is there");
        assert!(data.iter().all(|byte| usize::from(*byte) == nth + 1), "{context}");
        remove_all(&mut stores, nth, written);
    }
    settle(&mut stores);
    assert!(stores.iter_mut().all(|store| store.check(true).damaged.is_empty()));
}

/// Small writes in turn, without a turn of the store between them; how many bytes it took.
fn burst(store: &mut BlockStore, blocks: u64) -> Result<(), StoreError> {
    for nth in 0..blocks.div_ceil(4) {
        let mut txn = Transaction::new(pg());
        let data = BufList::from(vec![9; 4 * crate::BLOCK]);
        txn.push(Op::Write { object: object(500 + nth), offset: 0, data });
        store.submit(txn, StoreToken::without_pg(nth))?;
    }
    Ok(())
}

/// Nobody else can fill what is kept for what is under way, however little there was of the partition before.
#[test]
fn a_partition_has_room_for_what_is_under_way_when_another_has_filled_the_device() {
    let options = Options { ready_bytes: 160 * BLOCK, ..Options::tiny() };
    let mut rig = Rig::new(4, 1024, 2, options);
    for nth in [1, 0] {
        let mut stores = rig.open();
        settle(&mut stores);
        let written = fill(&mut stores, nth);
        let usages: Vec<_> = stores.iter().map(|store| store.usage().total_bytes / BLOCK).collect();
        assert_eq!(usages, [512, 512], "whoever has the slabs");
        // What such a write asks for is two blocks more than it takes.
        burst(&mut stores[1 - nth], 160 - 8)
            .unwrap_or_else(|error| panic!("beside partition {nth}: {error}"));
        assert!(written * 8 > 512 + 128, "{written} objects");
        settle(&mut stores);
        remove_all(&mut stores, nth, written);
        let txn = removal(newest(&stores[1 - nth]) + 1, 500..600);
        stores[1 - nth].submit(txn, StoreToken::without_pg(1)).expect("a removal needs no room");
        settle(&mut stores);
    }
}

/// Two partitions of which one has all slabs, and has emptied them.
fn with_empty_slabs(seed: u64) -> (Rig, Vec<BlockStore>, usize) {
    with_empty_slabs_under(seed, Options::tiny())
}

fn with_empty_slabs_under(seed: u64, options: Options) -> (Rig, Vec<BlockStore>, usize) {
    let mut rig = Rig::new(seed, 1024, 2, options);
    let mut stores = rig.open();
    let written = fill(&mut stores, 0);
    remove_all(&mut stores, 0, written);
    assert_eq!(stores[0].leases.as_ref().expect("divided").ledger().free_blocks(), 0);
    (rig, stores, 0)
}

/// The removal of the last object comes home by the last checkpoint, which has looked for empty slabs before it frees anything.
#[test]
fn a_partition_that_was_emptied_gives_its_slabs_back_as_nobody_uses_the_store() {
    let mut rig = Rig::new(8, 1024, 2, Options::tiny());
    let mut stores = rig.open();
    burst(&mut stores[0], 480).expect("room");
    settle(&mut stores);
    let number = newest(&stores[0]) + 1;
    stores[0].submit(removal(number, 500..700), StoreToken::without_pg(number)).expect("no room needed");
    settle(&mut stores);
    let rests = |store: &mut BlockStore| {
        let is_left = store.idle_trim();
        (0..200).for_each(|_| drop(drain(store, &mut Vec::new())));
        !is_left
    };
    let rounds =
        (0..20).take_while(|_| stores.iter_mut().map(rests).filter(|rests| !rests).count() > 0).count();
    assert!(rounds < 12, "there always is something left to do");
    // A sixteenth, two slabs more, and what each has to keep.
    let held = held(&stores);
    assert!(held[0] <= 8 && held[1] <= 2, "{held:?}");
    let available = stores[1].usage().available_bytes / BLOCK;
    assert!(available > 400, "{available} blocks of 512");
    check_slabs(&stores, "all at rest");
}

/// What a partition gives back is its own until that is durable.
#[test]
fn a_burst_takes_back_what_is_being_given() {
    let (_rig, mut stores, full) = with_empty_slabs(5);
    stores[1].need_slabs(400);
    let going = |store: &BlockStore| store.leases.as_ref().map_or(0, crate::leases::Leases::going_blocks);
    while going(&stores[full]) < 400 {
        drain(&mut stores[full], &mut Vec::new());
    }
    let free = stores[full].table.space.alloc.free_count();
    burst(&mut stores[full], free + 200).expect("it is the partition's still");
}

#[test]
fn a_partition_without_room_waits_until_another_has_given_what_it_can_spare() {
    let (_rig, mut stores, _) = with_empty_slabs(6);
    let [other, store] = &mut stores[..] else { panic!("two partitions") };
    store.set_clock(Box::new(nacre_env::RealClock::start()));
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                drain(other, &mut Vec::new());
            }
        });
        let outcome = burst(store, 400);
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome
    });
    outcome.expect("the other one has far more than that");
}

fn write(count: usize) -> Transaction {
    let mut txn = Transaction::new(pg());
    let data = BufList::from(vec![9; count * crate::BLOCK]);
    txn.push(Op::Write { object: object(500), offset: 0, data });
    txn
}

/// Both are one thread's: the other one has no turn while this one waits.
#[test]
fn a_partition_gets_at_once_what_another_of_its_thread_can_spare() {
    let (_rig, mut stores, _) = with_empty_slabs_under(9, Options { others_run: false, ..Options::tiny() });
    let [other, store] = &mut stores[..] else { panic!("two partitions") };
    assert!(!store.lacks_room(&write(1)), "it has some of its own");
    assert!(!store.lacks_room(&removal(1, 0..9)), "which needs none");
    let large = write(400);
    assert!(store.lacks_room(&large));
    other.spare_room();
    assert!(!store.lacks_room(&large));
    let given = other.slabs().expect("divided").given;
    store.submit(large, StoreToken::without_pg(1)).expect("the other one had far more than that");
    // It keeps what it needs.
    assert!(store.lacks_room(&write(1000)));
    other.spare_room();
    assert!(store.lacks_room(&write(1000)));
    assert!(given > 0 && other.slabs().expect("divided").held > 0);
    check_slabs(&stores, "after that");
}

/// What such writes bring takes its blocks only by a checkpoint, which seems to free as many.
#[test]
fn small_writes_that_wait_for_a_checkpoint_get_what_another_of_the_thread_can_spare() {
    let (_rig, mut stores, _) = with_empty_slabs_under(12, Options { others_run: false, ..Options::tiny() });
    let [other, store] = &mut stores[..] else { panic!("two partitions") };
    for nth in 0..200 {
        let mut txn = Transaction::new(pg());
        let data = BufList::from(vec![9; 2 * crate::BLOCK]);
        txn.push(Op::Write { object: object(500 + nth), offset: 0, data });
        if store.lacks_room(&txn) {
            other.spare_room();
            assert!(!store.lacks_room(&txn), "write {nth}");
        }
        store.submit(txn, StoreToken::without_pg(nth)).unwrap_or_else(|error| panic!("write {nth}: {error}"));
        store.drain(&mut Vec::new());
    }
    assert!(other.slabs().expect("divided").given > 0);
    check_slabs(&stores, "after that");
}

/// What was released is given, too: it comes free by one checkpoint, and goes by the next.
#[test]
fn a_partition_spares_what_is_released_and_not_free_yet() {
    let mut rig = Rig::new(10, 1024, 2, Options { others_run: false, ..Options::tiny() });
    let mut stores = rig.open();
    let written = fill(&mut stores, 0);
    let [full, store] = &mut stores[..] else { panic!("two partitions") };
    let number = newest(full) + 1;
    full.submit(removal(number, 100..100 + written), StoreToken::without_pg(number)).expect("no room needed");
    assert!(store.lacks_room(&write(400)));
    full.spare_room();
    store.submit(write(400), StoreToken::without_pg(1)).expect("room of the other one");
    check_slabs(&stores, "after that");
}

#[test]
fn a_partition_waits_for_no_other_where_none_has_a_turn() {
    let waits = |others_run| {
        let options = Options { others_run, ..Options::tiny() };
        let (_rig, mut stores, _) = with_empty_slabs_under(11, options);
        let clock = nacre_env::RealClock::start();
        stores[1].set_clock(Box::new(clock));
        let before = clock.now();
        let outcome = stores[1].submit(write(400), StoreToken::without_pg(1));
        assert!(matches!(outcome, Err(StoreError::Full { .. })), "{outcome:?}");
        clock.now().since(before)
    };
    let second = std::time::Duration::from_secs(1);
    assert!(waits(true) > second && waits(false) < second);
}
