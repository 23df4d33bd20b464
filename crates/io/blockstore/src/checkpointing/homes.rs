//! Dirty blocks of the cut: which there are, where each goes, and writing them there.

use super::{ENTRIES_PER_STEP, OBJECTS_PER_STEP};
use crate::BLOCK;
use crate::blob::{Blob, Place};
use crate::cache::Pin;
use crate::checkpoint::{BaseKey, Bases, Checkpoint, Home, Stage};
use crate::device::{DeviceBlock, Run};
use crate::fetch::DamageKind;
use crate::requests::Io;
use crate::store::BlockStore;
use crate::unpacking::unpack;
use nacre_buf::{AlignedBuf, BufList, Bytes, PAYLOAD_CRC_SEED, crc};
use nacre_env::disk::Durability;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Blocks written in one step.
const BLOCKS_PER_STEP: usize = 16;
/// Writes of dirty blocks in flight above which no more are begun, so that log writes do not queue behind many: with
/// 256 KiB of them a record waits for little more than for another record.
const WRITES_MAX: usize = 8;
/// Blocks that find a home in one step: among holes each is a search of its own.
const HOMES_PER_STEP: usize = 64;
/// Blobs that are decompressed in one step, of some 100 us each.
const UNPACKED_PER_STEP: usize = 2;

impl BlockStore {
    pub(super) fn gather(&mut self, checkpoint: &mut Checkpoint, from: u64) -> bool {
        let (mut looked_at, mut next) = (0, None);
        for (nth, (id, onode)) in self.table.onodes.frozen.range(from..).enumerate() {
            if nth == OBJECTS_PER_STEP || looked_at >= ENTRIES_PER_STEP {
                next = Some(*id);
                break;
            }
            let Some(onode) = onode else { continue };
            looked_at += onode.blocks.pages_count();
            for (index, dirty) in onode.blocks.in_memory() {
                looked_at += 1;
                let target = Place::Block(DeviceBlock { block: 0, crc: 0 });
                let base = dirty.base().cloned();
                let before = u64::from(index) * BLOCK as u64;
                let end = onode.size.saturating_sub(before).min(BLOCK as u64) as usize;
                checkpoint.homes.push(Home {
                    object: *id,
                    index,
                    shows_base: base.is_some() && !dirty.covers(0, end),
                    dirty: Arc::clone(dirty),
                    base,
                    target,
                });
            }
        }
        checkpoint.stage = next.map_or(Stage::Place { next: 0 }, |from| Stage::Gather { from });
        true
    }

    pub(super) fn place_homes(&mut self, checkpoint: &mut Checkpoint, next: usize) -> bool {
        let homes = checkpoint.homes.get(next..).unwrap_or_default();
        if homes.is_empty() {
            assert_eq!(checkpoint.held, 0, "each block that was dirty at the cut has a home now");
            checkpoint.stage = Stage::Write { next: 0 };
            return true;
        }
        match self.tried_together(homes) {
            Some(_) if checkpoint.writes >= WRITES_MAX => false,
            Some((count, packing)) => self.pack_homes(checkpoint, next, count, packing),
            None => {
                let count = self.not_tried(homes, HOMES_PER_STEP);
                self.place_as_they_are(checkpoint, next, count)
            }
        }
    }

    /// Gives blocks a place each, but for those that are on the device already.
    pub(super) fn place_as_they_are(
        &mut self,
        checkpoint: &mut Checkpoint,
        next: usize,
        count: usize,
    ) -> bool {
        let end = next + count;
        let homes = checkpoint.homes.get_mut(next..end).unwrap_or_default();
        let mut to_place: Vec<&mut Home> = Vec::with_capacity(homes.len());
        for home in homes {
            match &home.base {
                Some(base) if home.dirty.covers(0, BLOCK) => home.target = base.clone(),
                _ => to_place.push(home),
            }
        }
        let wanted = to_place.len() as u64;
        let Some(runs) = self.table.space.alloc.allocate_homes(wanted) else {
            self.fail(format!("no room for {wanted} dirty blocks that were promised room"));
            return false;
        };
        let targets = runs.into_iter().flat_map(Run::blocks);
        to_place.into_iter().zip(targets).for_each(|(home, block)| home.set_target(block));
        checkpoint.held -= count as u64;
        checkpoint.stage = Stage::Place { next: end };
        true
    }

    pub(super) fn write_home(&mut self, checkpoint: &mut Checkpoint, next: usize) -> bool {
        if checkpoint.writes >= WRITES_MAX || checkpoint.reads > 0 {
            return false;
        }
        let end = checkpoint.homes.len().min(next + BLOCKS_PER_STEP);
        let window = checkpoint.homes.get_mut(next..end).unwrap_or_default();
        match self.bases(window, &checkpoint.unreadable, &mut checkpoint.bases) {
            Bringing::All => (),
            Bringing::Some => return true,
            Bringing::Absent(mut absent) => {
                absent.sort_unstable_by_key(|device| device.block);
                absent.dedup_by_key(|device| device.block);
                checkpoint.reads = self.start_reads(&absent, None);
                return true;
            }
        }
        let bases = std::mem::take(&mut checkpoint.bases);
        checkpoint.pins.drain(..).for_each(|first| self.cache.unpin(first, Pin::Checkpoint));
        let mut rest = window;
        while !rest.is_empty() {
            let is_target = |home: &Home, block: u64| home.goes_to().is_some_and(|target| target == block);
            let Some(first) = rest.first().and_then(Home::goes_to) else {
                rest = rest.get_mut(1..).unwrap_or_default();
                continue;
            };
            let length = rest.iter().zip(first..).take_while(|(home, block)| is_target(home, *block)).count();
            let (group, behind) = rest.split_at_mut(length);
            rest = behind;
            checkpoint.writes += 1;
            let content = fill_homes(group, &bases);
            self.keep_cached(group, &content);
            self.start_write(first, content, Durability::Cached, Io::Home);
        }
        checkpoint.stage =
            if end == checkpoint.homes.len() { Stage::Settle } else { Stage::Write { next: end } };
        true
    }

    /// What replaces cached content is cached: somebody reads these blocks, and nobody reads from replicas.
    fn keep_cached(&mut self, group: &[Home], content: &BufList) {
        let blocks = content.slices().iter().flat_map(|slice| slice.chunks_exact(BLOCK));
        for (home, block) in group.iter().zip(blocks) {
            let Some(target) = home.goes_to() else { continue };
            if home.dirty.replaced().is_some_and(|replaced| self.cache.holds(replaced)) {
                let mut copy = AlignedBuf::with_len(BLOCK);
                copy.copy_from_slice(block);
                self.cache.insert(target, copy.freeze(), Pin::None);
            }
        }
    }

    /// Adds to `bases` contents of the blocks that show between the written pieces: `None` for a damaged one. Nothing is decompressed
    /// before all that is to be read for it is there, and then only so much as a step has time for.
    fn bases(&mut self, window: &[Home], unreadable: &BTreeSet<u64>, bases: &mut Bases) -> Bringing {
        let (mut absent, mut packed) = (Vec::new(), Vec::new());
        let shown = window.iter().filter(|home| home.goes_to().is_some()).filter_map(Home::shown_base);
        for base in shown {
            let key = key_of(base);
            if bases.contains_key(&key) || packed.iter().any(|(known, _, _)| *known == key) {
                continue;
            }
            let stored = match base {
                Place::Block(device) => std::slice::from_ref(device),
                Place::Blob(blob, _) => blob.stored(),
            };
            if let Place::Blob(blob, _) = base
                && let Some(bytes) = self.unpacked.get(blob)
            {
                bases.insert(key, Some(bytes.clone()));
                continue;
            }
            let (mut contents, missing) = (Vec::with_capacity(stored.len()), absent.len());
            for device in stored {
                match self.cache.block(device.block) {
                    Some(bytes) => contents.push(Some(bytes)),
                    None if self.is_lost(device.block, unreadable) => contents.push(None),
                    None => absent.push(*device),
                }
            }
            if absent.len() > missing {
                continue;
            }
            match (base, contents.into_iter().collect::<Option<Vec<Bytes>>>()) {
                (Place::Blob(blob, _), Some(contents)) => packed.push((key, blob, contents)),
                (_, contents) => {
                    bases.insert(key, contents.and_then(|contents| contents.into_iter().next()));
                }
            }
        }
        if !absent.is_empty() {
            return Bringing::Absent(absent);
        }
        let is_all = packed.len() <= UNPACKED_PER_STEP;
        for (key, blob, contents) in packed.into_iter().take(UNPACKED_PER_STEP) {
            bases.insert(key, self.unpack_base(blob, contents));
        }
        if is_all { Bringing::All } else { Bringing::Some }
    }

    /// That somebody could not read a block some time ago is no reason to lose it.
    fn is_lost(&self, block: u64, unreadable: &BTreeSet<u64>) -> bool {
        match self.damaged.get(&block) {
            Some(damage) => damage.kind == DamageKind::Lost || unreadable.contains(&block),
            None => false,
        }
    }

    /// What a blob holds; `None` when that is lost.
    fn unpack_base(&mut self, blob: &Blob, stored: Vec<Bytes>) -> Option<Bytes> {
        let unpacked = unpack(&mut self.codec, blob, stored);
        if let Err(error) = &unpacked {
            tracing::error!(block = blob.first(), %error, "a blob is damaged");
        }
        unpacked.ok()
    }

    pub(crate) fn home_written(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.writes -= 1;
        }
    }

    pub(crate) fn base_pinned(&mut self, first: u64) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.pins.push(first);
        }
    }

    pub(crate) fn base_unreadable(&mut self, block: u64) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.unreadable.insert(block);
        }
    }

    /// In place of one read there are `count` now.
    pub(crate) fn bases_split(&mut self, count: usize) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.reads += count - 1;
        }
    }

    pub(crate) fn base_read(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.reads -= 1;
        }
    }
}

/// How far bases have been brought together.
enum Bringing {
    All,
    /// The next step has more to decompress.
    Some,
    /// These blocks must be read first.
    Absent(Vec<DeviceBlock>),
}

fn key_of(base: &Place) -> BaseKey {
    match base {
        Place::Block(device) => (device.block, 0, 0),
        Place::Blob(blob, _) => (blob.first(), blob.blocks(), blob.bytes()),
    }
}

/// What shows of a base.
enum Base {
    Nothing,
    Lost,
    Content(Bytes),
}

fn base_of(home: &Home, bases: &Bases) -> Base {
    let Some(base) = home.shown_base() else { return Base::Nothing };
    let at = match base {
        Place::Block(_) => 0,
        Place::Blob(_, nth) => usize::from(*nth) * BLOCK,
    };
    match bases.get(&key_of(base)) {
        Some(Some(bytes)) => Base::Content(bytes.slice(at..at + BLOCK)),
        Some(None) => Base::Lost,
        None => Base::Nothing,
    }
}

impl Home {
    /// The block by itself that it is written to.
    fn goes_to(&self) -> Option<u64> {
        self.target.device().filter(|_| !self.stays()).map(|device| device.block)
    }

    fn set_target(&mut self, block: u64) {
        self.target = Place::Block(DeviceBlock { block, crc: 0 });
    }

    fn set_crc(&mut self, crc: u32) {
        if let Place::Block(device) = &mut self.target {
            device.crc = crc;
        }
    }
}

/// Puts the blocks of one write together, and notes their checksums. Blocks that came whole go as they came, with the
/// checksums that clients and primaries sent with them.
fn fill_homes(group: &mut [Home], bases: &Bases) -> BufList {
    let as_written = |home: &mut Home| {
        let whole = home.dirty.as_written()?.clone();
        let compute = || crc::crc32c(PAYLOAD_CRC_SEED, &whole);
        let crc = home.dirty.known_crc().unwrap_or_else(compute);
        debug_assert_eq!(crc, compute(), "what came with the block is not its checksum");
        home.set_crc(crc);
        Some(whole)
    };
    if group.iter().all(|home| home.dirty.as_written().is_some()) {
        return group.iter_mut().filter_map(as_written).collect();
    }
    let mut buffer = AlignedBuf::with_len(group.len() * BLOCK);
    for (home, block) in group.iter_mut().zip(buffer.chunks_exact_mut(BLOCK)) {
        let base = base_of(home, bases);
        let shown = if let Base::Content(bytes) = &base { Some(bytes) } else { None };
        home.dirty.fill(block, shown);
        let crc = crc::crc32c(PAYLOAD_CRC_SEED, block);
        // What lay below the pieces is lost: the block must stay damaged, not become good zeros.
        home.set_crc(if matches!(base, Base::Lost) { !crc } else { crc });
    }
    buffer.freeze().into()
}
