//! [`RegionFile`]: a database's file in a region of a device, where there is no file system below it.
//!
//! ```text
//!  0            head                 2 * head                              end of the region
//!  | first head | second head | chunk 0 | chunk 1 | ...                          | (rest unused) |
//! ```
//!
//! What a file system would keep of a file is in the head: its length, and which of its chunks (1 MiB) have been written. A chunk that was
//! not reads as zeros, whatever the device held there before: so a region need not be emptied when it is made, and a file that grows
//! by gigabytes, as redb's does, costs nothing until it is written to. The length may exceed the region, as a sparse file's may exceed
//! its file system: what has no room is refused when it is written. Chunk `n` of the file is chunk `n` of the region; redb takes the
//! lowest free pages, so that those beyond the region's end come last.
//!
//! Order of a sync, such that at every moment a whole head on the device speaks of chunks that are there:
//!
//! 1. Flush: chunks, their zeros, and what step 4 of the sync before has written. Where the head did not change, that is all.
//! 2. Write one copy of the head with a greater number; of the two, one that is not whole, if there is such.
//! 3. Flush. From here on the new head counts.
//! 4. Write the other copy. If power fails before the next flush, it may be torn, or of before: the first one is whole.
//!
//! A new chunk is filled with zeros before anything is written into it, so that what a loss of power leaves of it is zeros or data.
//! Drawn in `docs/formats/device.md`.

use nacre_buf::crc::crc32c;
use nacre_env::{File, FileRoom};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAGIC: [u8; 8] = *b"NacreREG";
const VERSION: u32 = 1;
/// Unit of heads.
const BLOCK: u64 = 4096;
/// Of a head, what lies before the map of chunks.
const FIELDS_BYTES: usize = 64;
/// Bytes of a chunk, unless there would be too many.
const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks of a region at most: a head of 36 KiB, for 256 GiB of the smallest chunks. Larger regions have larger ones.
const CHUNKS_MAX: u64 = 1 << 18;
/// Bytes of a file at most: more than any region, and little enough that sums of two are numbers.
const LENGTH_MAX: u64 = 1 << 56;
/// Bytes of one write of zeros.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Where a region lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionPlace {
    /// First byte on the device.
    pub offset: u64,
    /// Bytes of the region.
    pub length: u64,
    /// Whose it is: heads of another owner are not taken for one's own.
    pub owner: [u8; 16],
}

/// Which bytes of the region are for what: follows from its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    chunk_bytes: u64,
    chunks: u64,
    head_bytes: u64,
}

impl Geometry {
    /// `None` for a region that is too small for one chunk.
    fn new(length: u64, chunk_bytes: u64) -> Option<Self> {
        let mut chunk_bytes = chunk_bytes;
        while length / chunk_bytes > CHUNKS_MAX {
            chunk_bytes *= 2;
        }
        let map_bytes = (length / chunk_bytes).div_ceil(8);
        let head_bytes = (FIELDS_BYTES as u64 + map_bytes).next_multiple_of(BLOCK);
        let chunks = length.checked_sub(2 * head_bytes)? / chunk_bytes;
        (chunks > 0).then_some(Self { chunk_bytes, chunks, head_bytes })
    }

    const fn capacity(&self) -> u64 {
        self.chunks * self.chunk_bytes
    }
}

/// What a file system would know.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Head {
    length: u64,
    written: Vec<u8>,
}

impl Head {
    fn new(geometry: &Geometry) -> Self {
        let bytes = usize::try_from(geometry.chunks.div_ceil(8)).unwrap_or(0);
        Self { length: 0, written: vec![0; bytes] }
    }

    fn has(&self, chunk: u64) -> bool {
        let byte = usize::try_from(chunk / 8).ok().and_then(|byte| self.written.get(byte));
        byte.is_some_and(|byte| byte & (1 << (chunk % 8)) != 0)
    }

    fn set(&mut self, chunk: u64, is_written: bool) {
        let Some(byte) = usize::try_from(chunk / 8).ok().and_then(|byte| self.written.get_mut(byte)) else {
            return;
        };
        if is_written { *byte |= 1 << (chunk % 8) } else { *byte &= !(1 << (chunk % 8)) }
    }

    fn encode(&self, place: &RegionPlace, geometry: &Geometry, number: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(usize::try_from(geometry.head_bytes).unwrap_or(0));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for word in [number, self.length, place.length, geometry.chunk_bytes] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&place.owner);
        debug_assert_eq!(bytes.len(), FIELDS_BYTES, "the map comes behind the fields");
        bytes.extend_from_slice(&self.written);
        bytes.resize(usize::try_from(geometry.head_bytes).unwrap_or(0), 0);
        let sum = crc32c(0, &bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The head and its number; `None` when it is no whole head of this region.
    fn decode(bytes: &[u8], place: &RegionPlace, geometry: &Geometry) -> io::Result<Option<(Self, u64)>> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let Some(fields) = bytes.get(..FIELDS_BYTES) else { return Ok(None) };
        let mut bare = bytes.to_vec();
        bare[12..16].fill(0);
        let [version, sum] = [word(8) as u32, (word(8) >> 32) as u32];
        if fields[..8] != MAGIC || crc32c(0, &bare) != sum || fields[48..] != place.owner {
            return Ok(None);
        }
        if version != VERSION {
            let what = format!("the region has format {version}, this program knows up to {VERSION}");
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        if (word(32), word(40)) != (place.length, geometry.chunk_bytes) {
            return Ok(None);
        }
        let mut head = Self::new(geometry);
        head.length = word(24);
        let map = bytes.get(FIELDS_BYTES..FIELDS_BYTES + head.written.len()).unwrap_or_default();
        head.written.copy_from_slice(map);
        // A chunk that the region does not have would be somebody else's bytes.
        let behind = geometry.chunks..geometry.chunks.next_multiple_of(8);
        // The next head has a greater number.
        let is_sound = head.length <= LENGTH_MAX
            && word(16) < u64::MAX
            && !behind.into_iter().any(|chunk| head.has(chunk));
        Ok(is_sound.then_some((head, word(16))))
    }
}

#[derive(Debug)]
struct State {
    head: Head,
    /// Chunks that are written.
    written: u64,
    /// The head differs from the one on the device, or its copies do.
    is_changed: bool,
    reserved_bytes: u64,
    /// A chunk was wanted that the region does not have, though it has others: as long as none is given back, there is no room.
    was_refused: bool,
}

/// The copies on the device.
#[derive(Debug)]
struct Copies {
    number: u64,
    /// Which one to write first.
    first: u64,
}

/// See the module's documentation. Its owner gives the same one again when the database is opened anew.
#[derive(Debug)]
pub struct RegionFile {
    device: Arc<dyn File>,
    place: RegionPlace,
    geometry: Geometry,
    state: Mutex<State>,
    /// Held by whoever syncs.
    copies: Mutex<Copies>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RegionFile {
    /// An empty file in a region, whatever was there before.
    ///
    /// # Errors
    /// When the region is too small, or the device fails.
    pub fn create(device: Arc<dyn File>, place: RegionPlace) -> io::Result<Self> {
        Self::create_with(device, place, CHUNK_BYTES)
    }

    fn create_with(device: Arc<dyn File>, place: RegionPlace, chunk_bytes: u64) -> io::Result<Self> {
        let geometry = Self::geometry(place, chunk_bytes)?;
        // A head of an earlier file here has a greater number.
        let blank = vec![0; usize::try_from(2 * geometry.head_bytes).unwrap_or(0)];
        device.write(place.offset, &blank)?;
        device.sync()?;
        let file = Self::with(device, place, geometry, Head::new(&geometry), Copies { number: 0, first: 0 });
        locked(&file.state).is_changed = true;
        file.sync()?;
        file.device.sync()?;
        Ok(file)
    }

    /// The file in a region.
    ///
    /// # Errors
    /// `InvalidData` when neither copy of the head is whole; or the device fails.
    pub fn open(device: Arc<dyn File>, place: RegionPlace) -> io::Result<Self> {
        Self::open_with(device, place, CHUNK_BYTES)
    }

    fn open_with(device: Arc<dyn File>, place: RegionPlace, chunk_bytes: u64) -> io::Result<Self> {
        let geometry = Self::geometry(place, chunk_bytes)?;
        let mut found = Vec::new();
        for copy in 0..2 {
            let mut bytes = vec![0; usize::try_from(geometry.head_bytes).unwrap_or(0)];
            device.read(place.offset + copy * geometry.head_bytes, &mut bytes)?;
            found.extend(Head::decode(&bytes, &place, &geometry)?.map(|(head, number)| (number, copy, head)));
        }
        let are_equal = matches!(&found[..], [a, b] if a.0 == b.0);
        let Some((number, copy, head)) = found.into_iter().max_by_key(|(number, ..)| *number) else {
            let what = "neither copy of the head of the metadata's region is whole";
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        };
        let file = Self::with(device, place, geometry, head, Copies { number, first: 1 - copy });
        locked(&file.state).is_changed = !are_equal;
        Ok(file)
    }

    /// With chunks of 64 KiB, for tests: as [`RegionFile::create`].
    #[cfg(test)]
    pub(crate) fn create_small(device: Arc<dyn File>, place: RegionPlace) -> io::Result<Self> {
        Self::create_with(device, place, 64 << 10)
    }

    /// As [`RegionFile::open`].
    #[cfg(test)]
    pub(crate) fn open_small(device: Arc<dyn File>, place: RegionPlace) -> io::Result<Self> {
        Self::open_with(device, place, 64 << 10)
    }

    fn geometry(place: RegionPlace, chunk_bytes: u64) -> io::Result<Geometry> {
        let too_small = || io::Error::new(ErrorKind::InvalidInput, "the region has no room for a chunk");
        Geometry::new(place.length, chunk_bytes).ok_or_else(too_small)
    }

    fn with(
        device: Arc<dyn File>,
        place: RegionPlace,
        geometry: Geometry,
        head: Head,
        copies: Copies,
    ) -> Self {
        let written = head.written.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let state = State { head, written, is_changed: false, reserved_bytes: 0, was_refused: false };
        Self { device, place, geometry, state: Mutex::new(state), copies: Mutex::new(copies) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Where byte `offset` of the file is on the device, if the region has it.
    const fn at(&self, offset: u64) -> u64 {
        self.place.offset + 2 * self.geometry.head_bytes + offset
    }

    /// The parts of a range that lie in one chunk each: chunk, offset in the file, bytes.
    fn parts(&self, offset: u64, length: usize) -> impl Iterator<Item = (u64, u64, usize)> + use<> {
        let (chunk_bytes, end) = (self.geometry.chunk_bytes, offset + length as u64);
        let mut at = offset;
        std::iter::from_fn(move || {
            let (chunk, from) = (at / chunk_bytes, at);
            at = end.min((chunk + 1) * chunk_bytes);
            let bytes = usize::try_from(at - from).ok()?;
            (bytes > 0).then_some((chunk, from, bytes))
        })
    }

    /// The end of a range, if a file can have it.
    fn end_of(offset: u64, length: usize) -> io::Result<u64> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= LENGTH_MAX);
        end.ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    /// Takes room for a chunk, and fills it with zeros.
    fn begin_chunk(&self, state: &mut State, chunk: u64) -> io::Result<()> {
        let chunk_bytes = self.geometry.chunk_bytes;
        let taken = (state.written + 1) * chunk_bytes + state.reserved_bytes;
        if chunk >= self.geometry.chunks || taken > self.geometry.capacity() {
            state.was_refused = true;
            return Err(ErrorKind::StorageFull.into());
        }
        self.zero(chunk * chunk_bytes, (chunk + 1) * chunk_bytes)?;
        state.head.set(chunk, true);
        (state.written, state.is_changed) = (state.written + 1, true);
        Ok(())
    }

    fn zero(&self, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let bytes = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.device.write(self.at(at), &ZEROS[..bytes])?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// The file ends earlier: chunks behind the end are as if they were never written.
    fn cut(&self, state: &mut State, length: u64) {
        for chunk in length.div_ceil(self.geometry.chunk_bytes)..self.geometry.chunks {
            if state.head.has(chunk) {
                state.head.set(chunk, false);
                state.written -= 1;
                state.was_refused = false;
            }
        }
    }

    /// The file grows by zeros: of the chunk in which it ended, the rest may hold what was cut off.
    fn grow(&self, state: &State, from: u64) -> io::Result<()> {
        let chunk = from / self.geometry.chunk_bytes;
        if from.is_multiple_of(self.geometry.chunk_bytes) || !state.head.has(chunk) {
            return Ok(());
        }
        self.zero(from, (chunk + 1) * self.geometry.chunk_bytes)
    }
}

impl File for RegionFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.state().head.length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Self::end_of(offset, out.len())?;
        let mut rest = out;
        for (chunk, at, bytes) in self.parts(offset, rest.len()) {
            let (part, others) = rest.split_at_mut(bytes);
            let (is_written, length) = {
                let state = self.state();
                (state.head.has(chunk), state.head.length)
            };
            if at + bytes as u64 > length {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match is_written {
                true => self.device.read(self.at(at), part)?,
                false => part.fill(0),
            }
            rest = others;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = Self::end_of(offset, data.len())?;
        {
            let mut state = self.state();
            for (chunk, ..) in self.parts(offset, data.len()) {
                if !state.head.has(chunk) {
                    self.begin_chunk(&mut state, chunk)?;
                }
            }
            if offset > state.head.length {
                self.grow(&state, state.head.length)?;
            }
            if end > state.head.length {
                (state.head.length, state.is_changed) = (end, true);
            }
        }
        self.device.write(self.at(offset), data)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        Self::end_of(length, 0)?;
        let mut state = self.state();
        let old = state.head.length;
        if length < old {
            self.cut(&mut state, length);
        } else if length > old {
            self.grow(&state, old)?;
        }
        state.is_changed |= length != old;
        state.head.length = length;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut copies = locked(&self.copies);
        let changed = {
            let mut state = self.state();
            std::mem::take(&mut state.is_changed).then(|| state.head.clone())
        };
        let outcome = self.device.sync().and_then(|()| {
            let Some(head) = &changed else { return Ok(()) };
            let number = copies.number + 1;
            let bytes = head.encode(&self.place, &self.geometry, number);
            let place = |copy: u64| self.place.offset + copy * self.geometry.head_bytes;
            self.device.write(place(copies.first), &bytes)?;
            self.device.sync()?;
            self.device.write(place(1 - copies.first), &bytes)?;
            copies.number = number;
            Ok(())
        });
        if outcome.is_err() {
            self.state().is_changed |= changed.is_some();
        }
        outcome
    }

    fn write_back(&self) -> io::Result<()> {
        self.device.write_back()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.written * self.geometry.chunk_bytes + bytes > self.geometry.capacity() {
            return Err(ErrorKind::StorageFull.into());
        }
        state.reserved_bytes = bytes;
        Ok(())
    }

    fn room(&self) -> io::Result<FileRoom> {
        let state = self.state();
        let (used_bytes, total_bytes) = (state.written * self.geometry.chunk_bytes, self.geometry.capacity());
        let left = total_bytes.saturating_sub(used_bytes + state.reserved_bytes);
        let available_bytes = if state.was_refused { 0 } else { left };
        Ok(FileRoom { used_bytes, available_bytes, total_bytes })
    }
}

#[cfg(test)]
mod tests;
