//! What stays in the cache and what goes.

use super::*;

fn run(fill: u8, blocks: usize) -> Bytes {
    vec![fill; blocks * BLOCK].into()
}

#[test]
fn newer_content_hides_older() {
    let mut cache = Cache::new(100 * BLOCK);
    cache.insert(4, run(1, 4), Pin::None);
    cache.insert(6, run(2, 1), Pin::None);
    let content: Vec<_> = (3..9).map(|block| cache.block(block).map(|bytes| bytes[0])).collect();
    assert_eq!(content, [None, Some(1), Some(1), Some(2), Some(1), None]);
    // The block that was hidden is still in memory, with those around it.
    assert_eq!(cache.bytes, 5 * BLOCK);
}

#[test]
fn what_was_forgotten_hides_nothing() {
    let mut cache = Cache::new(100 * BLOCK);
    cache.insert(4, run(1, 2), Pin::None);
    cache.forget(Run { start: 4, count: 2 });
    cache.insert(3, run(2, 3), Pin::None);
    assert!((3..6).all(|block| cache.block(block).is_some_and(|bytes| bytes[0] == 2)));
    assert_eq!((cache.entries.len(), cache.bytes), (1, 4 * BLOCK), "memory comes in powers of two");
}

#[test]
fn parts_of_a_run_keep_all_of_its_memory() {
    let mut cache = Cache::new(100 * BLOCK);
    cache.insert(5, run(1, 2), Pin::None);
    let part = |start, count| Run { start, count };
    cache.insert_parts(part(4, 8), &run(2, 8), &[part(4, 1), part(7, 5)], Pin::Fetch(3));
    let content: Vec<_> = (4..12).map(|block| cache.block(block).map(|bytes| bytes[0])).collect();
    assert_eq!(content, [2, 1, 1, 2, 2, 2, 2, 2].map(Some));
    assert_eq!(cache.bytes, 10 * BLOCK);
    cache.unpin(4, Pin::Fetch(3));
    assert!(cache.buffers.iter().all(|(_, buffer)| buffer.pin == Pin::None));
    cache.forget(part(7, 5));
    assert_eq!(cache.bytes, 3 * BLOCK, "one block of it shows, and has memory of its own now");
    cache.forget(part(4, 1));
    assert_eq!(cache.bytes, 2 * BLOCK);
}

#[test]
fn a_cut_buffer_is_shared_and_counts_whole_until_less_than_half_of_it_shows() {
    let mut cache = Cache::new(100 * BLOCK);
    let whole = run(1, 4);
    cache.insert(4, whole.clone(), Pin::None);
    cache.forget(Run { start: 5, count: 1 });
    let address = |cache: &Cache, block| cache.block(block).map(|bytes| bytes.as_ptr());
    let in_whole = |nth: usize| Some(whole.slice(nth * BLOCK..).as_ptr());
    let found: Vec<_> = (4..8).map(|block| address(&cache, block)).collect();
    assert_eq!(found, [in_whole(0), None, in_whole(2), in_whole(3)]);
    cache.forget(Run { start: 6, count: 1 });
    assert_eq!((cache.entries.len(), cache.bytes), (2, 4 * BLOCK));
    cache.forget(Run { start: 7, count: 9 });
    assert_eq!((cache.entries.len(), cache.bytes), (1, BLOCK));
    assert_ne!(address(&cache, 4), in_whole(0));
    assert_eq!(cache.block(4).as_deref(), Some(&whole[..BLOCK]));
    cache.forget(Run { start: 0, count: 5 });
    assert_eq!((cache.entries.len(), cache.buffers.len(), cache.bytes), (0, 0, 0));
}

#[test]
fn what_was_read_stays_once_more() {
    let evict_one = |cut: u64| {
        let mut cache = Cache::new(12 * BLOCK);
        cache.insert(0, run(1, 8), Pin::None);
        cache.insert(10, run(2, 4), Pin::None);
        cache.forget(Run { start: 1, count: cut });
        assert!([0, 7].iter().all(|block| cache.find(*block).is_some()));
        cache.insert(2, run(3, 1), Pin::Write);
        cache.next_turn(12 * BLOCK);
        let found: Vec<_> = [0, 7, 2, 10].map(|block| cache.block(block).map(|bytes| bytes[0])).into();
        (found, cache.entries.len(), cache.bytes / BLOCK)
    };
    assert_eq!(evict_one(4), (vec![Some(1), Some(1), Some(3), None], 3, 9));
    // Of eight blocks three are left, which is less than half: they have memory of their own.
    assert_eq!(evict_one(5), (vec![Some(1), Some(1), Some(3), Some(2)], 4, 8));
}

/// A read of one block, as the store makes it. Yields whether the block was here.
fn read(cache: &mut Cache, block: u64) -> bool {
    cache.next_turn(cache.bytes_max);
    let was_here = cache.find(block).is_some();
    if !was_here {
        cache.insert_parts(
            Run { start: block, count: 1 },
            &run(1, 1),
            &[Run { start: block, count: 1 }],
            Pin::Fetch(0),
        );
        cache.unpin(block, Pin::Fetch(0));
        assert!(cache.find(block).is_some(), "who asked for it finds it");
    }
    was_here
}

fn touch(cache: &mut Cache, block: u64) {
    let _was_here = read(cache, block);
}

#[test]
fn a_scan_leaves_what_is_read_again_where_it_is() {
    let mut cache = Cache::new(100 * BLOCK);
    let hot = 0..50;
    (0..2).for_each(|_| hot.clone().for_each(|block| touch(&mut cache, block)));
    (1000..2000).for_each(|block| assert!(!read(&mut cache, block)));
    assert!((0..50).all(|block| cache.holds(block)));
    assert!((1900..2000).filter(|block| cache.holds(*block)).count() > 40, "there is room for them");
    // What is hot changes: the new ones come for good, the old ones go.
    let hotter = 5000..5090;
    for _ in 0..20 {
        hotter.clone().for_each(|block| touch(&mut cache, block));
    }
    assert!((5000..5090).filter(|block| cache.holds(*block)).count() > 80);
}

#[test]
fn what_comes_back_soon_is_not_young_again() {
    let mut cache = Cache::new(16 * BLOCK);
    (0..32).for_each(|block| touch(&mut cache, block));
    assert!(!cache.holds(3));
    assert!(!read(&mut cache, 3), "it went");
    (100..200).for_each(|block| touch(&mut cache, block));
    assert!(cache.holds(3));
    assert_eq!(cache.young_bytes + BLOCK, cache.bytes);
    cache.forget(Run { start: 0, count: 1000 });
    assert_eq!((cache.young_bytes, cache.bytes), (0, 0));
}

/// A run goes by on its way to its reader. Yields whether it is here since.
fn pass(cache: &mut Cache, block: u64, blocks: usize) -> bool {
    cache.next_turn(cache.bytes_max);
    let count = blocks as u64;
    cache.passed(Run { start: block, count }, &run(1, blocks));
    cache.holds(block)
}

#[test]
fn what_goes_by_stays_while_there_is_room_and_makes_nothing_go_without() {
    let mut cache = Cache::new(16 * BLOCK);
    assert!((0..12).all(|block| pass(&mut cache, block, 1)), "there is room");
    assert!(!pass(&mut cache, 20, 8), "but not for so much");
    assert!((12..16).all(|block| pass(&mut cache, block, 1)));
    assert!((100..140).all(|block| !pass(&mut cache, block, 1)));
    assert!((0..16).all(|block| cache.holds(block)) && cache.bytes == 16 * BLOCK);
    // What comes back soon takes the place of what was read once.
    assert!((130..140).all(|block| pass(&mut cache, block, 1)));
    cache.next_turn(16 * BLOCK);
    assert!((130..140).all(|block| cache.holds(block)) && cache.bytes == 16 * BLOCK);
    assert_eq!((0..16).filter(|block| cache.holds(*block)).count(), 6);
}

#[test]
fn what_goes_by_leaves_what_is_here_as_it_is() {
    let mut cache = Cache::new(100 * BLOCK);
    cache.insert(5, run(7, 2), Pin::Write);
    assert!(!pass(&mut cache, 4, 4), "some of it is here");
    assert_eq!(cache.block(6).map(|bytes| bytes[0]), Some(7));
    assert!(cache.is_being_written(5) && cache.bytes == 2 * BLOCK);
}

#[test]
fn what_is_only_written_is_not_kept() {
    let mut cache = Cache::new(100 * BLOCK);
    cache.insert(0, run(1, 4), Pin::Write);
    cache.insert(4, run(2, 4), Pin::Write);
    assert!(cache.find(2).is_some());
    [0, 4].into_iter().for_each(|first| cache.written(first));
    assert!(cache.find(0).is_some() && cache.find(4).is_none());
    assert_eq!((cache.entries.len(), cache.bytes), (1, 4 * BLOCK));
    cache.written(0);
    assert!(cache.find(0).is_some(), "it is not pinned any more");
}

#[test]
fn the_limit_is_kept_but_for_pinned_and_fresh_runs() {
    let mut cache = Cache::new(2 * BLOCK);
    cache.insert(0, run(0, 1), Pin::Write);
    (1..6).for_each(|block| cache.insert(block, run(1, 1), Pin::None));
    assert_eq!(cache.bytes, 6 * BLOCK);
    cache.next_turn(2 * BLOCK);
    assert_eq!(cache.bytes, 2 * BLOCK);
    assert!(cache.find(0).is_some());
}
