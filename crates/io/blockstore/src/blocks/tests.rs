use super::*;
use crate::clean_records::CleanRecords;
use crate::device::{DeviceBlock, Run};
use crate::failure::Failure;
use crate::object_pages::ObjectPages;
use crate::objects;
use crate::onode::Onode;
use nacre_kv::{Durability, KvBatch, KvStore, MemoryKv};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

const OBJECT: u64 = 5;

fn at_home(block: u64) -> Slot {
    Slot::Device(DeviceBlock { block, crc: 0 })
}

fn in_memory() -> Slot {
    Slot::Memory(Arc::new(Dirty::over(None)))
}

fn number(slot: &Slot) -> u64 {
    slot.device().map_or(u64::MAX, |device| device.block)
}

const AREA: Run = Run { start: 0, count: 1 << 40 };

/// What is around an object: the KV store, and room for a few clean pages.
struct Around {
    kv: MemoryKv,
    clean: RefCell<CleanRecords>,
    looked_up: (Cell<u64>, Cell<u64>),
    failure: Failure,
}

impl Around {
    fn new(clean_bytes_max: usize) -> Self {
        let clean = RefCell::new(CleanRecords::new(clean_bytes_max));
        Self { kv: MemoryKv::new(), clean, looked_up: Default::default(), failure: Failure::default() }
    }

    fn pages(&self) -> ObjectPages<'_> {
        let Self { kv, clean, looked_up, failure } = self;
        ObjectPages { object: OBJECT, kv, clean, looked_up, failure, area: AREA }
    }

    /// A checkpoint of a period commits the object as it was at its cut. Gives what came home.
    fn commit(
        &mut self,
        cut: &Blocks,
        period: Period,
        homes: &mut u64,
    ) -> Vec<(u32, Arc<Dirty>, DeviceBlock)> {
        let onode = Onode { id: OBJECT, size: u64::MAX, blocks: Arc::new(cut.clone()), ..Onode::default() };
        let (mut batch, mut targets) = (KvBatch::default(), Vec::new());
        objects::encode(&mut batch, &onode, period, |index| {
            *homes += 1;
            let target = DeviceBlock { block: *homes, crc: 0 };
            targets.push((index, target));
            target.into()
        });
        self.kv.commit(&batch, Durability::Durable).expect("memory");
        let dirty = cut.in_memory().map(|(_, dirty)| Arc::clone(dirty));
        targets.into_iter().zip(dirty).map(|((index, target), dirty)| (index, dirty, target)).collect()
    }

    fn keep(&self, clean: Vec<(u32, Arc<Page>)>) {
        clean.into_iter().for_each(|(number, page)| self.clean.borrow_mut().keep_page(OBJECT, number, page));
    }

    fn insert(&self, blocks: &mut Blocks, index: u32, slot: Slot, period: Period) -> Option<u64> {
        self.pages().take_in(blocks, index, index);
        blocks.insert(index, slot, period).as_ref().map(number)
    }

    /// As `Space::punch`; gives what was there.
    fn remove(&self, blocks: &mut Blocks, first: u32, last: u32, period: Period) -> Vec<u64> {
        let mut removed = Vec::new();
        self.pages().take_in_each(blocks, first, last, |blocks, page| {
            let (begin, end) = (page * PAGE_BLOCKS, page * PAGE_BLOCKS + (PAGE_BLOCKS - 1));
            blocks.remove(first.max(begin), last.min(end), period, |slot, _| removed.push(number(slot)));
        });
        blocks.remove(first, last, period, |slot, _| removed.push(number(slot)));
        removed
    }

    fn all(&self, blocks: &Blocks) -> Vec<(u32, u64)> {
        let mut all = Vec::new();
        self.pages().each(blocks, |index, slot| all.push((index, number(slot))));
        all
    }
}

/// The checkpoint under way, if any, is committed, and what it wrote is clean.
fn end(
    around: &mut Around,
    blocks: &mut Blocks,
    model: &mut BTreeMap<u32, u64>,
    homes: &mut u64,
    cut: Option<(Blocks, Period)>,
) {
    let Some((frozen, ended)) = cut else { return };
    let home = around.commit(&frozen, ended, homes);
    adopt(blocks, &home, model);
    let clean = blocks.settle(ended);
    around.keep(clean);
}

/// What came home is there in `blocks`, if it is still the same.
fn adopt(blocks: &mut Blocks, homes: &[(u32, Arc<Dirty>, DeviceBlock)], model: &mut BTreeMap<u32, u64>) {
    for (index, dirty, home) in homes {
        if matches!(blocks.get(*index), Some(Slot::Memory(found)) if Arc::ptr_eq(found, dirty)) {
            blocks.came_home(*index, (*home).into());
            model.insert(*index, home.block);
        }
    }
}

/// The same as a map by index, whatever is done, with checkpoints that run meanwhile and pages that go and come; a copy stays as it was.
fn is_a_map(clean_bytes_max: usize, mut seed: u32) {
    let (mut around, mut blocks, mut model) =
        (Around::new(clean_bytes_max), Blocks::default(), BTreeMap::new());
    let mut next = |bound: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) % bound
    };
    let (mut period, mut homes, mut cut, mut copies) = (1, (1 << 32) - 500, None, Vec::new());
    for step in 0..4000 {
        let index = if next(50) == 0 { u32::MAX - next(40) } else { next(300) };
        match next(8) {
            0 => {
                let last = if next(8) == 0 { u32::MAX } else { index.saturating_add(next(90)) };
                let mut removed = around.remove(&mut blocks, index, last, period);
                let gone: Vec<u32> = model.range(index..=last).map(|(index, _)| *index).collect();
                let mut gone: Vec<u64> = gone.iter().filter_map(|index| model.remove(index)).collect();
                removed.sort_unstable();
                gone.sort_unstable();
                assert_eq!(removed, gone);
            }
            1 | 2 => {
                assert_eq!(
                    around.insert(&mut blocks, index, in_memory(), period),
                    model.insert(index, u64::MAX)
                );
                assert!(blocks.in_memory_mut(index, period).is_some());
            }
            _ => {
                assert_eq!(
                    around.insert(&mut blocks, index, at_home(step), period),
                    model.insert(index, step)
                );
                assert!(blocks.in_memory_mut(index, period).is_none());
            }
        }
        match (next(20), &cut) {
            (0, None) => {
                cut = Some((blocks.clone(), period));
                period += 1;
            }
            (1, Some(_)) => end(&mut around, &mut blocks, &mut model, &mut homes, cut.take()),
            _ => (),
        }
        if step % 500 == 0 {
            copies.push((around.pages().copied(&blocks), model.clone()));
        }
        let last = index.saturating_add(next(100));
        let found = around.pages().range(&blocks, index, last);
        let found = found.iter().map(|(index, slot)| (index, number(slot)));
        assert!(found.eq(model.range(index..=last).map(|(index, block)| (*index, *block))));
        let records = model.keys().map(|index| page_of(*index)).filter(|page| *page > INLINE_PAGE);
        assert!(blocks.records().numbers().eq(records.collect::<std::collections::BTreeSet<_>>()));
    }
    end(&mut around, &mut blocks, &mut model, &mut homes, cut);
    copies.push((blocks.clone(), model.clone()));
    for (blocks, model) in copies {
        assert_eq!(
            around.all(&blocks),
            model.iter().map(|(index, block)| (*index, *block)).collect::<Vec<_>>()
        );
        let in_memory = blocks.in_memory().map(|(index, _)| index);
        let expected = model.iter().filter(|(_, block)| **block == u64::MAX).map(|(index, _)| *index);
        assert!(in_memory.eq(expected));
        assert!(blocks.pages.iter().all(|entry| entry.page.count() > 0 || entry.number > INLINE_PAGE));
    }
    // And as it is read after a checkpoint of it.
    let home = around.commit(&blocks, period, &mut homes);
    adopt(&mut blocks, &home, &mut model);
    let read = objects::read(&around.kv, OBJECT, AREA).expect("memory").expect("committed");
    let around = Around { clean: RefCell::new(CleanRecords::new(0)), ..around };
    assert_eq!(around.all(&read.blocks), model.into_iter().collect::<Vec<_>>());
    assert_eq!(around.failure.reason(), None);
}

#[test]
fn is_a_map_whose_copies_do_not_change() {
    is_a_map(usize::MAX, 7);
    is_a_map(0, 8);
    (0..8).for_each(|seed| is_a_map(2000, 100 + seed));
}

/// Numbers of the pages that a checkpoint of the period writes, negative those that go.
fn to_store(blocks: &Blocks, period: Period) -> Vec<i64> {
    let number = |page| match page {
        StoredPage::Slots(number, _) => i64::from(number),
        StoredPage::Gone(number) => -i64::from(number),
    };
    blocks.to_store(period).map(number).collect()
}

/// Numbers of the pages that are here.
fn here(blocks: &Blocks) -> Vec<u32> {
    blocks.pages(0, u32::MAX).map(|(number, _)| number).collect()
}

#[test]
fn a_page_is_written_by_the_checkpoint_of_the_period_in_which_it_was_changed_and_goes_then() {
    let mut blocks: Blocks = (0..5 * PAGE_BLOCKS).map(|index| (index, at_home(index.into()))).collect();
    let mut around = Around::new(0);
    let homes = &mut 1000;
    assert_eq!(to_store(&blocks, 1), [0, 1, 2, 3, 4], "the first one has all of it");
    let cut = blocks.clone();
    // The checkpoint runs; what is changed meanwhile is the next one's.
    blocks.insert(2 * PAGE_BLOCKS, at_home(1000), 2);
    around.commit(&cut, 1, homes);
    let clean: Vec<u32> = blocks.settle(1).into_iter().map(|(number, _)| number).collect();
    assert_eq!((clean, here(&blocks)), (vec![1, 3, 4], vec![0, 2]), "what was changed again stays");
    assert_eq!((to_store(&cut, 1), to_store(&blocks, 2)), (vec![0, 1, 2, 3, 4], vec![0, 2]));
    around.commit(&blocks, 2, homes);
    blocks.settle(2);
    assert_eq!((to_store(&blocks, 3), here(&blocks)), (vec![0], vec![0]), "with the object's own record");
    assert_eq!(around.all(&blocks).get(2 * PAGE_BLOCKS as usize), Some(&(2 * PAGE_BLOCKS, 1000)));
    // One without blocks goes, and is gone.
    around.remove(&mut blocks, 3 * PAGE_BLOCKS, 4 * PAGE_BLOCKS - 1, 3);
    assert_eq!((to_store(&blocks, 3), blocks.records().runs().len()), (vec![0, -3], 2));
    let cut = blocks.clone();
    around.insert(&mut blocks, 3 * PAGE_BLOCKS + 1, at_home(2000), 4);
    around.commit(&cut, 3, homes);
    assert!(blocks.settle(3).is_empty());
    assert_eq!((to_store(&cut, 3), to_store(&blocks, 4)), (vec![0, -3], vec![0, 3]));
    around.commit(&blocks, 4, homes);
    blocks.settle(4);
    around.remove(&mut blocks, PAGE_BLOCKS, u32::MAX, 5);
    assert_eq!(to_store(&blocks, 5), [0, -1, -2, -3, -4]);
    assert!(blocks.is_to_settle(5) && blocks.may_have_records());
    around.commit(&blocks, 5, homes);
    blocks.settle(5);
    assert!(to_store(&blocks, 6) == [0] && !blocks.is_to_settle(5) && !blocks.may_have_records());
    // Another object has nothing stored.
    around.insert(&mut blocks, PAGE_BLOCKS + 2, at_home(3000), 6);
    around.commit(&blocks, 6, homes);
    blocks.settle(6);
    let copy = around.pages().copied(&blocks);
    assert_eq!((to_store(&blocks, 7), to_store(&copy, 7), here(&copy)), (vec![0], vec![0, 1], vec![0, 1]));
}

#[test]
#[should_panic(expected = "page 1 is looked for where it is not")]
fn a_page_that_is_in_the_kv_store_does_not_read_as_zeros() {
    let mut blocks: Blocks = (0..2 * PAGE_BLOCKS).map(|index| (index, at_home(index.into()))).collect();
    blocks.settle(1);
    blocks.get(PAGE_BLOCKS);
}

/// What the object's record promises and the KV store does not have.
#[test]
fn a_missing_page_is_a_failure() {
    let mut blocks: Blocks = (0..6 * PAGE_BLOCKS).map(|index| (index, at_home(index.into()))).collect();
    let committed = || {
        let mut around = Around::new(0);
        around.commit(&blocks, 1, &mut 0);
        let mut batch = KvBatch::default();
        batch.delete(crate::kv_schema::page_key(OBJECT, 3));
        around.kv.commit(&batch, Durability::Durable).expect("memory");
        around
    };
    let arounds: Vec<Around> = (0..5).map(|_| committed()).collect();
    blocks.settle(1);
    let page = |nth: u32| (nth * PAGE_BLOCKS, (nth + 1) * PAGE_BLOCKS - 1);
    let reason = |around: &Around| around.failure.reason().unwrap_or_default();
    let [one, range, each, punched, written] = &arounds[..] else { unreachable!("five") };
    assert_eq!(one.pages().range(&blocks, page(2).0, page(2).1).iter().count(), PAGE_BLOCKS as usize);
    assert_eq!(one.failure.reason(), None);
    one.pages().range(&blocks, page(3).0, page(3).0);
    range.pages().range(&blocks, 0, page(4).1);
    each.all(&blocks);
    punched.remove(&mut blocks.clone(), PAGE_BLOCKS, u32::MAX, 2);
    written.pages().take_in(&mut blocks.clone(), page(2).0, page(4).1);
    for around in &arounds {
        assert_eq!(reason(around), "metadata cannot be read: page 3 of object 5 is not there");
    }
}
