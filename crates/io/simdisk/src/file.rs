//! [`SimFile`], a file in memory that loses, tears and reorders what was not synced, and [`SimFileHandle`], a database's hold on it.

use crate::platter::{BLOCK, Platter, below};
use nacre_buf::BufList;
use nacre_env::disk::BLOCK_BYTES;
use nacre_env::{File, FileRoom};
use nacre_types::entropy::SeededEntropy;
use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which calls of [`File::sync`] do what they say. All but the first are mistakes that a test must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Syncs {
    /// All of them.
    #[default]
    Done,
    /// Of two only the second.
    EverySecond,
    /// Nothing of it.
    Skipped,
}

struct Inner {
    rng: SeededEntropy,
    platter: Platter,
    length: u64,
    /// Since the last sync: a loss of power leaves one of them.
    lengths: Vec<u64>,
    allocated: BTreeSet<u64>,
    quota_bytes: u64,
    reserved_bytes: u64,
    /// Which handle is the one; older ones are cut off.
    holder: u64,
    /// Changes until the power goes.
    power_for: Option<u64>,
    is_dead: bool,
    syncs: Syncs,
    synced: u64,
    changes: u64,
}

/// A simulated file. Copies are the same file.
#[derive(Clone)]
pub struct SimFile(Arc<Mutex<Inner>>);

/// A hold on a [`SimFile`]. Cut off by the next [`SimFile::open`] or [`SimFile::crash`]: then all that it asks fails.
pub struct SimFileHandle {
    file: SimFile,
    holder: u64,
}

impl std::fmt::Debug for SimFileHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimFileHandle").field("holder", &self.holder).finish_non_exhaustive()
    }
}

impl SimFile {
    /// An empty file in a file system without bounds.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            rng: SeededEntropy(seed),
            platter: Platter::new(),
            length: 0,
            lengths: vec![0],
            allocated: BTreeSet::new(),
            quota_bytes: u64::MAX,
            reserved_bytes: 0,
            holder: 0,
            power_for: None,
            is_dead: false,
            syncs: Syncs::Done,
            synced: 0,
            changes: 0,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes hold of the file. An earlier holder is cut off, as one that was killed: what it wrote can be read.
    #[must_use]
    pub fn open(&self) -> SimFileHandle {
        let mut inner = self.inner();
        inner.holder += 1;
        SimFileHandle { file: self.clone(), holder: inner.holder }
    }

    /// The file system has so many bytes for the file from now on.
    pub fn set_quota(&self, bytes: u64) {
        self.inner().quota_bytes = bytes;
    }

    /// Bytes that the file takes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.inner().allocated_bytes()
    }

    /// Bytes of the file system that are kept for it.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.inner().reserved_bytes
    }

    /// Sets which syncs are done.
    pub fn set_syncs(&self, syncs: Syncs) {
        self.inner().syncs = syncs;
    }

    /// Lets so many writes, syncs and changes of the length happen; the next is under way when the power goes. Until
    /// [`SimFile::crash`] everything fails then.
    pub fn lose_power_after(&self, changes: u64) {
        self.inner().power_for = Some(changes);
    }

    /// The power went in a call.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.inner().is_dead
    }

    /// Writes, syncs and changes of the length so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner().changes
    }

    /// The power goes, if it has not gone yet, and comes back. Of what was not synced all, a part or nothing is there.
    pub fn crash(&self) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        inner.platter.crash(&mut inner.rng);
        let pick = below(&mut inner.rng, inner.lengths.len() as u64);
        inner.length = inner.lengths.get(usize::try_from(pick).unwrap_or(0)).copied().unwrap_or(0);
        inner.cut_off();
        inner.sync();
        (inner.power_for, inner.is_dead) = (None, false);
        inner.holder += 1;
    }
}

impl Inner {
    fn allocated_bytes(&self) -> u64 {
        self.allocated.len() as u64 * BLOCK
    }

    /// What lies behind the end is gone: a file that grows again has zeros there.
    fn cut_off(&mut self) {
        let first = self.length.div_ceil(BLOCK);
        let gone: Vec<u64> = self.allocated.split_off(&first).into_iter().collect();
        for block in gone {
            self.platter.write(block * BLOCK, BufList::from(vec![0; BLOCK_BYTES]));
        }
    }

    fn sync(&mut self) {
        self.platter.set_all_known(0);
        self.platter.flush(1, &mut self.rng);
        self.lengths = vec![self.length];
    }

    /// A change begins; an error when the power is gone. True when it goes in this one.
    fn change(&mut self) -> Result<bool> {
        self.changes += 1;
        match &mut self.power_for {
            Some(0) => {
                self.is_dead = true;
                Ok(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// Takes room for a block, if there is some.
    fn allocate(&mut self, block: u64) -> bool {
        let free = self.quota_bytes.saturating_sub(self.reserved_bytes);
        let fits = self.allocated.contains(&block) || self.allocated_bytes() + BLOCK <= free;
        if fits {
            self.allocated.insert(block);
        }
        fits
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        let first = offset / BLOCK * BLOCK;
        let end = (offset + out.len() as u64).next_multiple_of(BLOCK);
        let mut blocks = vec![0; usize::try_from(end - first).unwrap_or(0)];
        self.platter.read(first, &mut blocks);
        let skip = usize::try_from(offset - first).unwrap_or(0);
        out.copy_from_slice(&blocks[skip..skip + out.len()]);
    }

    /// As much of it as there is room for.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (block, skip) = (at / BLOCK, usize::try_from(at % BLOCK).unwrap_or(0));
            let (now, later) = rest.split_at(rest.len().min(BLOCK_BYTES - skip));
            if !self.allocate(block) {
                return Err(ErrorKind::StorageFull.into());
            }
            let mut content = vec![0; BLOCK_BYTES];
            self.platter.read(block * BLOCK, &mut content);
            content[skip..skip + now.len()].copy_from_slice(now);
            self.platter.write(block * BLOCK, BufList::from(content));
            (at, rest) = (at + now.len() as u64, later);
        }
        Ok(())
    }
}

fn gone() -> Error {
    Error::other("the power is gone")
}

impl SimFileHandle {
    fn held(&self) -> Result<MutexGuard<'_, Inner>> {
        let inner = self.file.inner();
        if inner.holder == self.holder && !inner.is_dead { Ok(inner) } else { Err(gone()) }
    }
}

impl File for SimFileHandle {
    fn length(&self) -> Result<u64> {
        Ok(self.held()?.length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let inner = self.held()?;
        if offset + out.len() as u64 > inner.length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        inner.read(offset, out);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut inner = self.held()?;
        let goes = inner.change()?;
        if offset + data.len() as u64 > inner.length {
            inner.length = offset + data.len() as u64;
            let length = inner.length;
            inner.lengths.push(length);
        }
        inner.write(offset, data)?;
        if goes { Err(gone()) } else { Ok(()) }
    }

    fn set_length(&self, length: u64) -> Result<()> {
        let mut inner = self.held()?;
        let goes = inner.change()?;
        inner.length = length;
        inner.lengths.push(length);
        inner.cut_off();
        if goes { Err(gone()) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        let mut inner = self.held()?;
        if inner.change()? {
            return Err(gone());
        }
        inner.synced += 1;
        match inner.syncs {
            Syncs::Done => inner.sync(),
            Syncs::EverySecond if inner.synced.is_multiple_of(2) => inner.sync(),
            Syncs::EverySecond | Syncs::Skipped => (),
        }
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        let mut inner = self.held()?;
        if inner.allocated_bytes().saturating_add(bytes) > inner.quota_bytes {
            return Err(ErrorKind::StorageFull.into());
        }
        inner.reserved_bytes = bytes;
        Ok(())
    }

    fn room(&self) -> Result<FileRoom> {
        let inner = self.held()?;
        let used_bytes = inner.allocated_bytes();
        let taken = used_bytes.saturating_add(inner.reserved_bytes);
        let available_bytes = inner.quota_bytes.saturating_sub(taken);
        Ok(FileRoom { used_bytes, available_bytes, total_bytes: inner.quota_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_by_chance() {
        let (mut whole, mut torn, mut lost, mut short) = (0, 0, 0, 0);
        for seed in 0..60 {
            let file = SimFile::new(seed);
            let handle = file.open();
            handle.set_length(8192).expect("room");
            handle.write(0, &[1; 4096]).expect("room");
            handle.sync().expect("healthy");
            handle.write(100, &[2; 3000]).expect("room");
            handle.set_length(4096).expect("room");
            file.crash();
            assert!(handle.read(0, &mut [0; 10]).is_err(), "cut off");
            let handle = file.open();
            let mut found = [0; 4096];
            handle.read(0, &mut found).expect("healthy");
            assert!(found[..100] == [1; 100] && found[3100..] == [1; 996]);
            match found[100..3100].iter().filter(|byte| **byte == 2).count() {
                3000 => whole += 1,
                0 => lost += 1,
                _ => torn += 1,
            }
            short += usize::from(handle.length().expect("healthy") == 4096);
        }
        assert!(
            whole > 5 && torn > 5 && lost > 5 && short > 10 && short < 50,
            "{whole} {torn} {lost} {short}"
        );
    }

    #[test]
    fn power_goes_in_the_middle_of_things() {
        let file = SimFile::new(1);
        let handle = file.open();
        file.lose_power_after(2);
        handle.set_length(4096).expect("power");
        handle.write(0, &[1; 512]).expect("power");
        assert!(handle.sync().is_err() && file.is_dead() && handle.length().is_err());
        file.crash();
        assert!(file.open().length().is_ok());
    }

    #[test]
    fn a_full_file_system_says_so_and_keeps_a_reserve() {
        let file = SimFile::new(1);
        let handle = file.open();
        file.set_quota(3 * BLOCK);
        handle.set_length(8 * BLOCK).expect("no room is needed");
        handle.write(0, &[1; BLOCK_BYTES]).expect("room");
        handle.reserve(BLOCK).expect("room");
        let room = FileRoom { used_bytes: BLOCK, available_bytes: BLOCK, total_bytes: 3 * BLOCK };
        assert_eq!(handle.room().expect("healthy"), room);
        let refused = handle.write(BLOCK, &[2; 2 * BLOCK_BYTES]);
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
        handle.reserve(0).expect("room");
        handle.write(BLOCK, &[2; 2 * BLOCK_BYTES]).expect("what was reserved");
        assert_eq!(handle.reserve(BLOCK).map_err(|error| error.kind()), Err(ErrorKind::StorageFull));
    }
}
