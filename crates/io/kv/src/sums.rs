//! [`Summed`]: a database's file with a checksum of every page, which is looked at whenever a page is read.
//!
//! redb sums its pages as well, but looks at that only when it repairs a file that was not closed. What a device gives back wrong
//! later would be taken for an absent key, another value, or make it panic, which ends every OSD of the process. A checksum of key
//! and value would find neither the absence nor the panic; here nothing reaches redb that was not written so. Drawn in
//! `docs/formats/kv-file.md`.

use nacre_buf::crc::crc32c;
use nacre_env::File;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Unit of the file, of checksums, and least of redb's pages.
const PAGE: u64 = 4096;
const PAGE_BYTES: usize = PAGE as usize;
/// Bytes of a page's checksum.
const SUM_BYTES: usize = 4;
/// Pages whose checksums fill one page.
const GROUP: u64 = (PAGE_BYTES / SUM_BYTES) as u64;
/// Copies of the head, a page each.
const HEADS: u64 = 2;
/// What of each is used: written in one go, which no device that we know of tears.
const HEAD_BYTES: usize = 512;
const MAGIC: [u8; 8] = *b"nacre-kv";
const VERSION: u32 = 1;
/// Behind magic, version, checksum and number.
const HEAD_BODY_AT: usize = 24;
/// Room for what redb keeps at the beginning of its file: 320 bytes.
const HEAD_BODY_BYTES: usize = HEAD_BYTES - HEAD_BODY_AT;
/// Pages of checksums that are kept in memory: 4 MiB, for 4 GiB of pages. Those with changes come on top until they are written.
const SUMS_KEPT_MAX: usize = 1024;

/// What redb's own files begin with, which is what stores were before.
const REDB_MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

/// What a file is, by its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing yet, or the beginnings of a file that was being made when the power went.
    Empty,
    /// Pages have checksums beside them.
    Summed,
    /// redb's own, without.
    Plain,
}

/// A page of checksums.
struct Sums {
    of: Box<[u32]>,
    is_changed: bool,
}

struct Head {
    body: [u8; HEAD_BODY_BYTES],
    /// Grows with each write, so that the newer copy is known.
    number: u64,
}

struct State {
    head: Head,
    groups: BTreeMap<u64, Sums>,
}

/// The file of a database, as redb sees it.
pub(crate) struct Summed {
    file: Arc<dyn File>,
    state: Mutex<State>,
    /// redb walks the file and looks at its own checksums: see [`Summed::set_walking`].
    walking: AtomicBool,
    /// redb has given it no length yet: what there is of it is ours.
    is_new: AtomicBool,
    /// The first page that was not as it was written.
    damage: Mutex<Option<String>>,
}

impl std::fmt::Debug for Summed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Summed").finish_non_exhaustive()
    }
}

/// Where page `page` of redb's file is; the first is in the heads.
fn place_of(page: u64) -> u64 {
    let nth = page - 1;
    (HEADS + nth / GROUP * (GROUP + 1) + 1 + nth % GROUP) * PAGE
}

fn place_of_sums(group: u64) -> u64 {
    (HEADS + group * (GROUP + 1)) * PAGE
}

/// Length of our file when redb's has so many bytes.
fn outer_len(inner: u64) -> u64 {
    match inner.div_ceil(PAGE) {
        0 => 0,
        1 => HEADS * PAGE,
        pages => place_of(pages - 1) + PAGE,
    }
}

fn inner_len(outer: u64) -> u64 {
    let pages = outer / PAGE;
    if pages == 0 {
        return 0;
    }
    let behind = pages.saturating_sub(HEADS);
    let (whole, rest) = (behind / (GROUP + 1), behind % (GROUP + 1));
    (1 + whole * GROUP + rest.saturating_sub(1)) * PAGE
}

/// Never 0, which stands for a page that was never written.
fn sum_of(page: u64, content: &[u8]) -> u32 {
    crc32c(crc32c(0, &page.to_le_bytes()), content).max(1)
}

fn fits(page: u64, content: &[u8], sum: u32) -> bool {
    if sum == 0 { content.iter().all(|byte| *byte == 0) } else { sum_of(page, content) == sum }
}

fn damaged(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

impl Head {
    const fn of_new() -> Self {
        Self { body: [0; HEAD_BODY_BYTES], number: 0 }
    }

    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[HEAD_BODY_AT..].copy_from_slice(&self.body);
        let sum = crc32c(0, &bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` when it is no whole head.
    fn decode(bytes: &[u8; HEAD_BYTES]) -> io::Result<Option<Self>> {
        let mut bare = *bytes;
        bare[12..16].fill(0);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..8] != MAGIC || crc32c(0, &bare) != word(12) {
            return Ok(None);
        }
        if word(8) != VERSION {
            let found = word(8);
            return Err(damaged(format!("it has format {found}, this program knows up to {VERSION}")));
        }
        let mut body = [0; HEAD_BODY_BYTES];
        body.copy_from_slice(&bytes[HEAD_BODY_AT..]);
        Ok(Some(Self { body, number: u64::from(word(16)) | u64::from(word(20)) << 32 }))
    }
}

/// What the file is.
///
/// # Errors
/// `InvalidData` for one that is no store.
pub(crate) fn kind_of(file: &dyn File) -> io::Result<Kind> {
    let len = file.length()?;
    if len == 0 {
        return Ok(Kind::Empty);
    }
    let mut begin = [0; REDB_MAGIC.len()];
    if len >= PAGE {
        file.read(0, &mut begin)?;
    }
    if begin == REDB_MAGIC {
        return Ok(Kind::Plain);
    }
    match newest_head(file)? {
        // Until redb has written its magic number, the file is being made: nobody has used it.
        Some(head) if head.body[..REDB_MAGIC.len()] != REDB_MAGIC => Ok(Kind::Empty),
        Some(_) => Ok(Kind::Summed),
        None if len <= HEADS * PAGE && is_blank(file, len)? => Ok(Kind::Empty),
        None => Err(damaged("the file begins like no store, in both copies of its head".to_owned())),
    }
}

fn is_blank(file: &dyn File, len: u64) -> io::Result<bool> {
    let mut heads = vec![0; usize::try_from(len.min(HEADS * PAGE)).unwrap_or(0)];
    file.read(0, &mut heads)?;
    Ok(heads.iter().all(|byte| *byte == 0))
}

fn newest_head(file: &dyn File) -> io::Result<Option<Head>> {
    let len = file.length()?;
    let mut newest: Option<Head> = None;
    for copy in 0..HEADS {
        let mut bytes = [0; HEAD_BYTES];
        if len >= (copy + 1) * PAGE {
            file.read(copy * PAGE, &mut bytes)?;
        }
        if let Some(head) = Head::decode(&bytes)?
            && newest.as_ref().is_none_or(|other| other.number < head.number)
        {
            newest = Some(head);
        }
    }
    Ok(newest)
}

impl Summed {
    /// Over a file that is [`Kind::Summed`].
    pub(crate) fn open(file: Arc<dyn File>) -> io::Result<Self> {
        let head = newest_head(file.as_ref())?.unwrap_or_else(Head::of_new);
        Ok(Self::with_head(file, head, false))
    }

    /// Over a file that is [`Kind::Empty`]. From the first sync on its head says that it is a file of ours, so that one whose
    /// making was cut short is told from a damaged one.
    pub(crate) fn create(file: Arc<dyn File>) -> io::Result<Self> {
        // Heads of one that was being made stay until these are written over them: the file may have its old length when the power goes.
        file.set_length(HEADS * PAGE)?;
        let head = Head::of_new();
        (0..HEADS).try_for_each(|copy| file.write(copy * PAGE, &head.encode()))?;
        file.sync()?;
        Ok(Self::with_head(file, head, true))
    }

    fn with_head(file: Arc<dyn File>, head: Head, is_new: bool) -> Self {
        let state = Mutex::new(State { head, groups: BTreeMap::new() });
        let (walking, is_new) = (AtomicBool::new(false), AtomicBool::new(is_new));
        Self { file, state, walking, is_new, damage: Mutex::default() }
    }

    /// While redb repairs a file that was not closed, what it reads may have been under way when the machine went down, and so may
    /// its checksum. redb then believes only what its own checksums prove: so what it reads is taken to be what was written, and
    /// summed anew. What it does not believe, it never reads again.
    pub(crate) fn set_walking(&self, walking: bool) {
        self.walking.store(walking, Ordering::Release);
    }

    /// What the first damaged page was, if one has been read.
    pub(crate) fn damage(&self) -> Option<String> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The checksums of a group, read when they are not in memory.
    fn sums<'a>(&self, state: &'a mut State, group: u64) -> io::Result<&'a mut Sums> {
        if !state.groups.contains_key(&group) {
            if state.groups.len() >= SUMS_KEPT_MAX {
                let idle = state.groups.iter().find(|(_, sums)| !sums.is_changed).map(|(group, _)| *group);
                idle.and_then(|idle| state.groups.remove(&idle));
            }
            let mut bytes = vec![0; PAGE_BYTES];
            if self.file.length()? >= place_of_sums(group) + PAGE {
                self.file.read(place_of_sums(group), &mut bytes)?;
            }
            let of = bytes
                .chunks_exact(SUM_BYTES)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
            state.groups.insert(group, Sums { of: of.collect(), is_changed: false });
        }
        state.groups.get_mut(&group).ok_or_else(|| io::Error::other("checksums that were just read"))
    }

    fn sum(&self, page: u64) -> io::Result<u32> {
        let mut state = self.state();
        Ok(self.sums(&mut state, (page - 1) / GROUP)?.of[slot(page)])
    }

    fn set_sums(&self, sums: impl Iterator<Item = (u64, u32)>) -> io::Result<()> {
        let mut state = self.state();
        for (page, sum) in sums {
            let group = self.sums(&mut state, (page - 1) / GROUP)?;
            group.of[slot(page)] = sum;
            group.is_changed = true;
        }
        Ok(())
    }

    /// Hands the checksums that have changed to the system.
    fn write_sums(&self, state: &mut State) -> io::Result<()> {
        for (group, sums) in state.groups.iter_mut().filter(|(_, sums)| sums.is_changed) {
            let bytes: Vec<u8> = sums.of.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            self.file.write(place_of_sums(*group), &bytes)?;
            sums.is_changed = false;
        }
        Ok(())
    }

    fn read_page(&self, page: u64, out: &mut [u8]) -> io::Result<()> {
        let mut sum = self.sum(page)?;
        if fits(page, out, sum) {
            return Ok(());
        }
        if self.walking.load(Ordering::Acquire) {
            return self.set_sums([(page, sum_of(page, out))].into_iter());
        }
        // Once more: a bit may have been lost on the way.
        self.file.read(place_of(page), out)?;
        sum = self.sum(page)?;
        if fits(page, out, sum) {
            return Ok(());
        }
        let what = format!("page {page} of the file, at byte {}, is not as it was written", place_of(page));
        let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        damage.get_or_insert_with(|| what.clone());
        Err(damaged(what))
    }

    fn read_head(&self, offset: usize, out: &mut [u8]) {
        let state = self.state();
        for (nth, byte) in out.iter_mut().enumerate() {
            *byte = state.head.body.get(offset + nth).copied().unwrap_or(0);
        }
    }

    /// What was written before comes first: a process that is killed after this has written all that the head points to.
    fn write_head(&self, offset: usize, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        self.write_sums(state)?;
        let room = state.head.body.get_mut(offset..offset + data.len());
        room.ok_or_else(|| io::Error::other("redb's header has grown"))?.copy_from_slice(data);
        state.head.number += 1;
        let bytes = state.head.encode();
        (0..HEADS).try_for_each(|copy| self.file.write(copy * PAGE, &bytes))
    }

    /// The runs of pages within `length` bytes from `offset` that are beside each other in our file, too: first page and bytes.
    fn runs(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize)> {
        let (mut page, end) = (offset / PAGE, (offset + length) / PAGE);
        std::iter::from_fn(move || {
            let first = page;
            let of_group = GROUP - (first.checked_sub(1)? % GROUP);
            page = end.min(first + of_group);
            (page > first).then(|| (first, ((page - first) * PAGE) as usize))
        })
    }

    /// Whether redb asks for whole pages behind the first, as it does but for its header.
    fn check_whole(offset: u64, length: usize) -> io::Result<()> {
        if offset.is_multiple_of(PAGE) && length.is_multiple_of(PAGE_BYTES) {
            return Ok(());
        }
        Err(io::Error::other(format!("redb asks for {length} bytes at {offset}, which are no whole pages")))
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        if self.is_new.load(Ordering::Acquire) {
            return Ok(0);
        }
        Ok(inner_len(self.file.length()?))
    }

    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset < PAGE {
            if offset as usize + out.len() > PAGE_BYTES {
                return Err(io::Error::other("redb reads beyond its header"));
            }
            self.read_head(offset as usize, out);
            return Ok(());
        }
        Self::check_whole(offset, out.len())?;
        let mut rest = out;
        for (first, bytes) in Self::runs(offset, rest.len() as u64) {
            let (run, others) = rest.split_at_mut(bytes);
            self.file.read(place_of(first), run)?;
            for (nth, page) in run.chunks_exact_mut(PAGE_BYTES).enumerate() {
                self.read_page(first + nth as u64, page)?;
            }
            rest = others;
        }
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset < PAGE {
            return self.write_head(offset as usize, data);
        }
        Self::check_whole(offset, data.len())?;
        let mut rest = data;
        for (first, bytes) in Self::runs(offset, rest.len() as u64) {
            let (run, others) = rest.split_at(bytes);
            self.file.write(place_of(first), run)?;
            let pages = (first..).zip(run.chunks_exact(PAGE_BYTES));
            self.set_sums(pages.map(|(page, content)| (page, sum_of(page, content))))?;
            rest = others;
        }
        Ok(())
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        if len < old {
            // What comes back when the file grows again is zeros.
            let cut = len.div_ceil(PAGE).max(1)..old / PAGE;
            self.set_sums(cut.map(|page| (page, 0)))?;
            let mut state = self.state();
            self.write_sums(&mut state)?;
            let kept = len.div_ceil(PAGE).saturating_sub(1).div_ceil(GROUP);
            state.groups.split_off(&kept);
        }
        self.file.set_length(outer_len(len).max(HEADS * PAGE))?;
        self.is_new.store(false, Ordering::Release);
        Ok(())
    }

    pub(crate) fn sync_data(&self) -> io::Result<()> {
        self.write_sums(&mut self.state())?;
        self.file.sync()
    }
}

fn slot(page: u64) -> usize {
    ((page - 1) % GROUP) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_places_agree() {
        for pages in (0..10).chain(1020..1030).chain(2040..2060).chain([100_000]) {
            let outer = outer_len(pages * PAGE);
            assert_eq!(inner_len(outer), pages * PAGE, "{pages}");
            if pages > 1 {
                assert_eq!(place_of(pages - 1) + PAGE, outer);
            }
        }
        let places: Vec<u64> = (1..2060).map(place_of).chain((0..3).map(place_of_sums)).collect();
        let mut apart = places.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), places.len());
        assert_eq!(apart.first(), Some(&(HEADS * PAGE)));
    }

    #[test]
    fn runs_end_where_checksums_lie_between() {
        let runs: Vec<(u64, usize)> = Summed::runs(1020 * PAGE, 8 * PAGE).collect();
        assert_eq!(runs, [(1020, 5 * PAGE_BYTES), (1025, 3 * PAGE_BYTES)]);
        assert_eq!(Summed::runs(PAGE, PAGE).collect::<Vec<_>>(), [(1, PAGE_BYTES)]);
    }
}
