//! The bitmap beside a set of blocks, and the rules by which runs are found.

use super::*;
use nacre_env::{Clock, RealClock};
use std::collections::BTreeSet;

fn run(start: u64, count: u64) -> Run {
    Run { start, count }
}

/// Holes of one block from 0 on, then 300 blocks from 1000 on.
fn holes_and_a_long_run() -> FreeBitmap {
    let mut free = FreeBitmap::new(run(0, 1300));
    assert!(free.take(run(0, 1000)));
    (0..10).for_each(|nth| free.give(run(2 * nth, 1)));
    free
}

#[test]
fn large_writes_find_long_runs_and_homes_find_holes() {
    let mut free = holes_and_a_long_run();
    assert_eq!((free.blocks(), free.long_blocks(), free.runs()), (310, 300, 11));
    assert_eq!(free.find(256, 0), Some(run(1000, 300)));
    assert_eq!(free.find(1, 5), Some(run(6, 1)), "what is short is used up first");
    assert_eq!(free.find(1, 1000), Some(run(0, 1)), "also from behind");
    assert_eq!(free.find(2, 0), Some(run(1000, 300)));
    assert_eq!(free.find(5000, 0), Some(run(1000, 300)), "the longest, when none is long enough");
    assert_eq!(free.find_hole(100, 7), Some(run(8, 1)));
    assert_eq!(free.find_hole(100, 50), Some(run(0, 1)), "and begins anew at the end");
    assert_eq!(free.find_hole(100, 1200), Some(run(0, 1)), "the end of a long run is no hole");
    assert_eq!(FreeBitmap::new(run(0, 512)).find_hole(4, 0), Some(run(0, 512)));
    assert_eq!(FreeBitmap::new(run(0, 0)).find(1, 0), None);
}

#[test]
fn what_holds_twice_as_much_is_left_to_larger_writes() {
    let mut free = FreeBitmap::new(run(0, 200_000));
    assert!(free.take(run(0, 100_000)));
    free.give(run(100, 8000));
    free.give(run(8200, 40));
    free.give(run(8300, 20));
    free.give(run(8400, 600));
    assert_eq!(free.find(16, 0), Some(run(8300, 20)));
    assert_eq!(free.find(16, 150_000), Some(run(8300, 20)), "wherever the cursor is");
    assert_eq!(free.find(32, 0), Some(run(8200, 40)));
    assert_eq!(free.find(41, 0), Some(run(8400, 600)), "the shortest of the long ones");
    assert_eq!(free.find(400, 0), Some(run(8400, 600)));
    assert_eq!(free.find(1000, 0), Some(run(100, 8000)));
}

/// A free tail of 5 GiB behind the cursor hides no hole, nor do many long runs.
#[test]
fn homes_find_holes_wherever_they_are() {
    let mut free = FreeBitmap::new(run(0, 2_000_000));
    assert!(free.take(run(0, 700_000)));
    assert_eq!(free.find_hole(64, 700_000).map(|run| run.start), Some(700_000), "there are none");
    free.give(run(8, 1));
    free.give(run(SEGMENT - 3, 7));
    free.give(run(3 * SEGMENT, 5));
    assert_eq!(free.find_hole(64, 700_000), Some(run(SEGMENT - 3, 7)), "of seven: four and more");
    assert_eq!(free.find_hole(64, SEGMENT), Some(run(3 * SEGMENT, 5)), "the next one");
    assert_eq!(free.find_hole(1, 1_000_000), Some(run(8, 1)), "as long as is needed");
    (0..100).for_each(|nth| free.give(run(100_000 + 1000 * nth, 300)));
    assert_eq!(free.find_hole(64, 100_000), Some(run(SEGMENT - 3, 7)));
    // What ends with the area is a hole as well.
    let mut free = FreeBitmap::new(run(18, 10_000));
    assert!(free.take(run(18, 9_990)));
    assert_eq!(free.find_hole(4, 0), Some(run(10_008, 10)));
}

#[test]
fn what_is_given_back_grows_together() {
    let mut free = holes_and_a_long_run();
    assert!(!free.take(run(4, 2)) && !free.take(run(u64::from(u32::MAX), 2)) && !free.take(run(4, 0)));
    assert!(free.take(run(1100, 10)));
    assert_eq!(
        (free.blocks(), free.long_blocks(), free.runs()),
        (300, 0, 12),
        "neither part is long any more"
    );
    free.give(run(1100, 10));
    assert_eq!((free.blocks(), free.long_blocks()), (310, 300));
    free.give(run(1, 1));
    assert_eq!(free.iter().next(), Some(run(0, 3)));
}

#[test]
#[should_panic(expected = "freed twice")]
fn what_is_free_cannot_be_given_back() {
    holes_and_a_long_run().give(run(999, 2));
}

/// Runs of a set of blocks.
fn runs_of(model: &BTreeSet<u64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for block in model {
        match runs.last_mut() {
            Some(run) if run.end() == *block => run.count += 1,
            _ => runs.push(run(*block, 1)),
        }
    }
    runs
}

/// What `find` says, of all runs.
fn find(runs: &[Run], count: u64, cursor: u64) -> Option<Run> {
    let fitting = |candidates: &[Run], count: u64| {
        let behind: Vec<Run> = candidates.iter().copied().filter(|run| run.start >= cursor).collect();
        let few = if behind.is_empty() { candidates } else { &behind };
        let few = few.iter().take(PROBES_MAX);
        few.clone().find(|run| run.count / 2 < count).or_else(|| few.min_by_key(|run| run.count)).copied()
    };
    let holes: Vec<Run> = runs.iter().copied().filter(|run| run.count >= count && run.count < LONG).collect();
    if !holes.is_empty() {
        return fitting(&holes, count);
    }
    let fits = count.min(runs.iter().map(|run| run.count).max()?);
    // Of a run that goes on before the cursor, what is behind it.
    let cut = |run: &Run| {
        let start = if run.blocks().contains(&cursor) { cursor } else { run.start };
        Run { start, count: run.end() - start }
    };
    let behind: Vec<Run> =
        runs.iter().map(cut).filter(|run| run.count >= fits && run.start >= cursor).collect();
    if !behind.is_empty() {
        return fitting(&behind, fits);
    }
    fitting(&runs.iter().copied().filter(|run| run.count >= fits).collect::<Vec<_>>(), fits)
}

/// What `find_hole` says, of all runs.
fn find_hole(runs: &[Run], count: u64, cursor: u64) -> Option<Run> {
    let holes: Vec<&Run> = runs.iter().filter(|run| run.count < LONG).collect();
    let longest = holes.iter().map(|run| run.count).max().unwrap_or(0).min(count);
    let Some(power) = longest.checked_ilog2() else { return find(runs, count, cursor) };
    let mut long = holes.iter().filter(|run| run.count >= 1 << power);
    let next = long.clone().find(|run| run.start >= cursor);
    next.or_else(|| long.next()).map(|run| **run)
}

/// The same as a set of blocks, whatever is done, and what is found is what the rules say.
#[test]
fn is_a_set_of_blocks() {
    is_a_set_of_blocks_from(10);
}

/// Its segments begin where the area does, and nothing of it ends where 32 bits do.
#[test]
fn is_a_set_of_blocks_of_more_than_32_bits() {
    is_a_set_of_blocks_from((1 << 32) - 2 * SEGMENT + 13);
    is_a_set_of_blocks_from(crate::device::DEVICE_BLOCKS_MAX - 6 * SEGMENT);
}

fn is_a_set_of_blocks_from(start: u64) {
    let begin = start - start % SEGMENT;
    let end = begin + 5 * SEGMENT + 77;
    let area = run(start, end - start);
    let (mut free, mut model, mut seed) =
        (FreeBitmap::new(area), area.blocks().collect::<BTreeSet<_>>(), 5_u32);
    assert_eq!(free.segments.len(), 6);
    let mut next = |bound: u64| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u64::from(seed >> 8) % bound
    };
    for step in 0..6000 {
        // Single blocks, runs, and whole segments; mostly taken, then mostly given.
        let count = [1, 1 + next(4), 1 + next(700), SEGMENT + next(9)][next(4) as usize];
        let start = begin + next(end - begin - count + 1);
        let wanted = run(start, count);
        if next(10) < if step / 1000 % 2 == 0 { 7 } else { 3 } {
            let all_free = wanted.blocks().all(|block| model.contains(&block));
            assert_eq!(free.take(wanted), all_free);
            if all_free {
                model.retain(|block| !wanted.blocks().contains(block));
            } else {
                // What is free of it, piece by piece.
                for block in wanted.blocks().filter(|block| model.remove(block)).collect::<Vec<_>>() {
                    assert!(free.take(run(block, 1)));
                }
            }
        } else if start >= area.start && wanted.blocks().all(|block| !model.contains(&block)) {
            free.give(wanted);
            model.extend(wanted.blocks());
        }
        if step % 20 > 0 {
            continue;
        }
        let runs = runs_of(&model);
        assert!(free.iter().eq(runs.iter().copied()));
        let long: u64 = runs.iter().map(|run| long(run.count)).sum();
        assert_eq!(
            (free.blocks(), free.runs(), free.long_blocks()),
            (model.len() as u64, runs.len() as u64, long)
        );
        let (count, cursor) = (1 + next(2000), begin + next(end - begin));
        assert_eq!(free.find(count, cursor), find(&runs, count, cursor), "{count} from {cursor}");
        assert_eq!(free.find_hole(count, cursor), find_hole(&runs, count, cursor), "{count} from {cursor}");
        // All at once is as one after the other.
        free.refresh();
        let before = (free.blocks(), free.runs(), free.long_blocks(), free.tree.clone());
        free.loaded(Tally::default());
        assert_eq!((free.blocks(), free.runs(), free.long_blocks(), free.tree.clone()), before);
        assert_eq!(free.mixed, free.segments.iter().filter(|segment| segment.is_mixed()).count());
    }
}

#[test]
fn what_was_used_is_loaded_and_counted() {
    let area = run(5, 2 * SEGMENT);
    let mut free = FreeBitmap::new(area);
    let mut used = vec![0_u8; SEGMENT as usize / 4];
    used[1] = 0b11;
    used[600] = 0xff;
    let mut tally = Tally::default();
    assert_eq!(free.load(0, &used, &mut tally), Ok(()));
    free.loaded(tally);
    let expected = [run(5, 3), run(10, 4790), run(4808, 3389)];
    assert!(free.iter().eq(expected), "{:?}", free.iter().collect::<Vec<_>>());
    assert_eq!((free.blocks(), free.runs(), free.long_blocks()), (8182, 3, 8179));
    assert_eq!(free.find(4000, 0), Some(run(10, 4790)));
    used[0] = 1;
    assert_eq!(FreeBitmap::new(area).load(0, &used, &mut Tally::default()), Err(0), "outside of the area");
    let mut behind = FreeBitmap::new(area);
    assert_eq!(behind.load(8 * SEGMENT, &used, &mut Tally::default()), Err(8 * SEGMENT));
}

/// `cargo test --release -p nacre-blockstore --lib free_bitmap -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: half a gigabyte of bits"]
#[allow(clippy::print_stderr, reason = "figures are to be read")]
fn of_sixteen_terabytes_in_the_smallest_pieces() {
    let mut free = FreeBitmap::new(run(0, 3_906_250_000));
    let clock = RealClock::start();
    let began = clock.now();
    let (used, mut tally) = (vec![0x55; SEGMENT as usize], Tally::default());
    for first in (0..3_906_250_000 - 8 * SEGMENT).step_by(8 * SEGMENT as usize) {
        free.load(first, &used, &mut tally).expect("all was free");
    }
    let loaded = clock.now().since(began);
    free.loaded(tally);
    let counted = clock.now().since(began);
    let found = free.find(2, 0);
    assert!(found.is_some_and(|run| run.count >= 2) && free.bytes() < 600 << 20);
    eprintln!(
        "{} runs, {} MiB; loaded in {loaded:?}, counted in {:?}, {found:?} in {:?}",
        free.runs(),
        free.bytes() >> 20,
        counted - loaded,
        clock.now().since(began) - counted
    );
}
