//! [`Platter`]: the bytes, twice: as reads see them and as a loss of power would leave them, with the writes
//! in between.

use nacre_buf::BufList;
use nacre_env::disk::{BLOCK_BYTES, SECTOR_BYTES};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

type Block = Arc<[u8; BLOCK_BYTES]>;

/// A number below `bound`; the slight bias does not matter here.
pub(crate) fn below(rng: &mut SeededEntropy, bound: u64) -> u64 {
    rng.u64() % bound
}

/// True `ppm` times in a million. Draws nothing for zero, so that a fault switched on changes little else.
pub(crate) fn chance(rng: &mut SeededEntropy, ppm: u32) -> bool {
    ppm > 0 && below(rng, 1_000_000) < u64::from(ppm)
}

/// The order in which writes took effect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WriteId(u64);

/// A write that took effect and is not durable.
struct Unsynced {
    id: WriteId,
    offset: u64,
    content: BufList,
    /// When its owner learned that it is done, in the owner's own count of events.
    known_at: Option<u64>,
    /// A flush failed on it: no later one brings it back.
    dropped: bool,
}

/// How much of a write a crash or an error leaves.
enum Fate {
    Whole,
    Torn,
    Nothing,
}

/// What a device held at some time, as a loss of power would have left it then.
#[derive(Clone)]
pub struct Image(BTreeMap<u64, Block>);

pub(crate) struct Platter {
    /// What reads see; what is missing is zeros.
    now: BTreeMap<u64, Block>,
    /// What survives, with the write that made it. Equal to `now` except where `unsynced` wrote.
    durable: BTreeMap<u64, (WriteId, Block)>,
    /// Ascending by id.
    unsynced: Vec<Unsynced>,
    writes: u64,
    zeros: Block,
}

impl Platter {
    pub(crate) fn new() -> Self {
        let zeros = Arc::new([0; BLOCK_BYTES]);
        Self { now: BTreeMap::new(), durable: BTreeMap::new(), unsynced: Vec::new(), writes: 0, zeros }
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, out) in (offset / BLOCK..).zip(into.chunks_mut(BLOCK_BYTES)) {
            let block = self.now.get(&index).unwrap_or(&self.zeros);
            out.copy_from_slice(&block[..out.len()]);
        }
    }

    /// A write takes effect: reads see it from now on.
    pub(crate) fn write(&mut self, offset: u64, content: BufList) -> WriteId {
        self.writes += 1;
        let id = WriteId(self.writes);
        for (index, block) in self.blocks(offset, &content) {
            self.now.insert(index, block);
        }
        self.unsynced.push(Unsynced { id, offset, content, known_at: None, dropped: false });
        id
    }

    /// A discard takes effect: each block stays, is zeros, or is something that nobody has written.
    pub(crate) fn discard(&mut self, offset: u64, length: u64, rng: &mut SeededEntropy) -> WriteId {
        let mut content = BufList::new();
        for index in offset / BLOCK..(offset + length) / BLOCK {
            let old = self.now.get(&index).unwrap_or(&self.zeros);
            let bytes = match below(rng, 4) {
                0 => **old,
                1 => *self.zeros,
                _ => garbage(rng),
            };
            content.push(nacre_buf::Bytes::copy_from_slice(&bytes));
        }
        self.write(offset, content)
    }

    /// The newest write, just made, is durable at once.
    pub(crate) fn sync_newest(&mut self) {
        if let Some(write) = self.unsynced.pop() {
            self.keep(&write);
        }
    }

    /// A write that failed: any of its sectors may have got through.
    pub(crate) fn write_torn(&mut self, offset: u64, content: &BufList, rng: &mut SeededEntropy) {
        let mut torn = BufList::new();
        for (index, block) in self.blocks(offset, content) {
            let old = self.now.get(&index).unwrap_or(&self.zeros);
            let mixed = mix(old, &block, rng);
            torn.push(nacre_buf::Bytes::copy_from_slice(&mixed[..]));
        }
        self.write(offset, torn);
    }

    /// The owner of a write learned at its event `at` that it is done.
    pub(crate) fn set_known(&mut self, id: WriteId, at: u64) {
        if let Ok(index) = self.unsynced.binary_search_by_key(&id, |write| write.id) {
            self.unsynced[index].known_at = Some(at);
        }
    }

    /// The owner of what was written so far is gone, and all of it is done.
    pub(crate) fn set_all_known(&mut self, at: u64) {
        self.unsynced.iter_mut().for_each(|write| write.known_at = write.known_at.or(Some(at)));
    }

    /// A flush takes effect: writes known to be done before it was queued survive, others may.
    pub(crate) fn flush(&mut self, queued_at: u64, rng: &mut SeededEntropy) {
        for write in std::mem::take(&mut self.unsynced) {
            let covered = write.known_at.is_some_and(|at| at < queued_at);
            if !write.dropped && (covered || below(rng, 2) == 0) {
                self.keep(&write);
            } else {
                self.unsynced.push(write);
            }
        }
    }

    /// A flush fails: the system believes its pages clean, and each write it held may never reach the device.
    pub(crate) fn flush_failed(&mut self, rng: &mut SeededEntropy) {
        for write in &mut self.unsynced {
            write.dropped |= below(rng, 2) == 0;
        }
    }

    /// The power goes: of each write that was not durable, all, some sectors or nothing stays.
    pub(crate) fn crash(&mut self, rng: &mut SeededEntropy) {
        let unsynced = std::mem::take(&mut self.unsynced);
        for write in &unsynced {
            match fate(rng) {
                Fate::Whole if !write.dropped => self.keep(write),
                Fate::Torn if !write.dropped => self.keep_torn(write, rng),
                _ => (),
            }
        }
        for write in &unsynced {
            self.revert(write);
        }
    }

    /// Flips one bit of a durable block in `offset .. offset + length`; false when there is none.
    pub(crate) fn rot(&mut self, offset: u64, length: u64, rng: &mut SeededEntropy) -> bool {
        let range = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        let clean: Vec<u64> = self.durable.range(range).map(|(index, _)| *index).collect();
        let Some(count) = u64::try_from(clean.len()).ok().filter(|count| *count > 0) else { return false };
        let index = clean[usize::try_from(below(rng, count)).unwrap_or_default()];
        let bit = usize::try_from(below(rng, BLOCK * 8)).unwrap_or_default();
        let Some((_, block)) = self.durable.get_mut(&index) else { return false };
        let same = self.now.get(&index).is_some_and(|now| Arc::ptr_eq(now, block));
        Arc::make_mut(block)[bit / 8] ^= 1 << (bit % 8);
        if same {
            self.now.insert(index, Arc::clone(block));
        }
        true
    }

    /// All that is durable.
    pub(crate) fn image(&self) -> Image {
        Image(self.durable.iter().map(|(index, (_, block))| (*index, Arc::clone(block))).collect())
    }

    /// Everything is as it was, durably.
    pub(crate) fn restore(&mut self, image: &Image) {
        self.unsynced.clear();
        self.now.clone_from(&image.0);
        let id = WriteId(self.writes);
        self.durable = image.0.iter().map(|(index, block)| (*index, (id, Arc::clone(block)))).collect();
    }

    /// The offset of a block that was written once.
    pub(crate) fn any_written(&self, rng: &mut SeededEntropy) -> Option<u64> {
        let count = u64::try_from(self.now.len()).ok().filter(|count| *count > 0)?;
        let nth = usize::try_from(below(rng, count)).unwrap_or_default();
        self.now.keys().nth(nth).map(|index| index * BLOCK)
    }

    /// The content of a write cut into blocks with their indices.
    fn blocks(&self, offset: u64, content: &BufList) -> Vec<(u64, Block)> {
        let pieces = content.slices().iter().flat_map(|slice| slice.chunks(BLOCK_BYTES));
        (offset / BLOCK..).zip(pieces.map(|piece| self.block(piece))).collect()
    }

    fn block(&self, bytes: &[u8]) -> Block {
        let bytes: &[u8; BLOCK_BYTES] = bytes.try_into().expect("writes are whole blocks");
        // A log filled with zeros should not take its size in memory.
        if *bytes == *self.zeros { Arc::clone(&self.zeros) } else { Arc::new(*bytes) }
    }

    /// A write survives, except where a younger one already does.
    fn keep(&mut self, write: &Unsynced) {
        for (index, block) in self.blocks(write.offset, &write.content) {
            // The very block that reads see, when nothing wrote since: `rot` tells by that.
            let block = self.now.get(&index).filter(|now| ***now == *block).map_or(block, Arc::clone);
            let kept = self.durable.entry(index).or_insert_with(|| (write.id, Arc::clone(&block)));
            if kept.0 <= write.id {
                *kept = (write.id, block);
            }
        }
    }

    fn keep_torn(&mut self, write: &Unsynced, rng: &mut SeededEntropy) {
        for (index, block) in self.blocks(write.offset, &write.content) {
            let old = self.durable.get(&index).map(|(id, block)| (*id, Arc::clone(block)));
            let (id, old) = old.unwrap_or_else(|| (write.id, Arc::clone(&self.zeros)));
            if id <= write.id {
                self.durable.insert(index, (write.id, mix(&old, &block, rng)));
            }
        }
    }

    /// What reads see where `write` wrote is again what survived.
    fn revert(&mut self, write: &Unsynced) {
        for index in write.offset / BLOCK..(write.offset + write.content.len() as u64) / BLOCK {
            match self.durable.get(&index) {
                Some((_, block)) => self.now.insert(index, Arc::clone(block)),
                None => self.now.remove(&index),
            };
        }
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }
}

fn garbage(rng: &mut SeededEntropy) -> [u8; BLOCK_BYTES] {
    let mut out = [0; BLOCK_BYTES];
    out.chunks_mut(8).for_each(|word| word.copy_from_slice(&rng.u64().to_le_bytes()));
    out
}

fn fate(rng: &mut SeededEntropy) -> Fate {
    match below(rng, 3) {
        0 => Fate::Whole,
        1 => Fate::Torn,
        _ => Fate::Nothing,
    }
}

/// Each sector from `old` or `new`, half of the time a run of new ones as a transfer cut short leaves it.
fn mix(old: &Block, new: &Block, rng: &mut SeededEntropy) -> Block {
    const SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
    let taken = if below(rng, 2) == 0 { (1 << below(rng, SECTORS + 1)) - 1 } else { rng.u64() };
    let mut out = **old;
    let sectors = out.chunks_mut(SECTOR_BYTES).zip(new.chunks(SECTOR_BYTES));
    for (bit, (out, new)) in sectors.enumerate() {
        if taken >> bit & 1 == 1 {
            out.copy_from_slice(new);
        }
    }
    Arc::new(out)
}
