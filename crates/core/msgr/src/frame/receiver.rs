//! [`Receiver`]: bytes in, whole and verified frames out.
//!
//! The driver reads into [`Receiver::space`]. Usually that is the staging buffer, from which fronts are
//! copied into one small allocation and payloads into page-aligned buffers. While a long rest of a payload
//! is on the wire, `space` is the payload's own buffer, so that large writes are not copied. A payload that is too
//! long to be kept is read, checked and thrown away piece by piece; zeros of its length take its place.

use super::secure::{BLOCK_BYTES, Cipher, FIRST_PART_BYTES, INLINE_BYTES, Layout, SEAL_BYTES, padded};
use super::sum::DataSum;
use super::{
    DATA_BYTES_MAX, EPILOGUE_BYTES, LATE_ABORTED, LATE_COMPLETE, MessageHeader, PEER_BYTES_MAX, Preamble,
    SEGMENT_CRC_SEED, Tag, pull,
};
use crate::Fault;
use bytes::Buf;
use nacre_buf::{ALIGNMENT_BYTES, AlignedBuf, BufList, Bytes, crc::crc32c};
use std::ops::Range;

/// Room for reading before a session is open.
const STAGING_HANDSHAKE_BYTES: usize = 4 << 10;
/// Room for reading afterwards: some fifteen 4 KiB writes per system call.
const STAGING_BYTES: usize = 64 << 10;
/// From this length on, the rest of a payload is read directly into its buffer. Below, one copy is cheaper
/// than the system call that it saves.
const DIRECT_READ_BYTES_MIN: usize = 32 << 10;
/// What is read directly at a time: what was read is summed next, and should still be in the processor's own cache.
const DIRECT_READ_BYTES_MAX: usize = 256 << 10;
const CRC_BYTES: usize = 4;
/// Pieces in which a payload that is not kept is read.
const BLANK_BYTES: usize = 256 << 10;
// What is staged goes into one piece.
const _: () = assert!(STAGING_BYTES <= BLANK_BYTES);

// Otherwise the pieces that are parsed in place could never be complete in the buffer.
const _: () = assert!(STAGING_HANDSHAKE_BYTES >= FIRST_PART_BYTES && FIRST_PART_BYTES >= Preamble::BYTES);

/// A received frame.
#[derive(Debug)]
pub(crate) enum Inbound {
    Control { tag: Tag, payload: Bytes },
    Message { header: MessageHeader, front: Bytes, middle: Bytes, data: BufList },
}

/// Bytes read and not yet parsed.
#[derive(Default)]
struct Staging {
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl Staging {
    fn bytes(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free room, made as large as can be by moving what is left to the start.
    fn space(&mut self, size: usize) -> &mut [u8] {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buf.len() < size {
            self.buf.resize(size, 0);
        }
        self.buf.get_mut(self.end..size).unwrap_or_default() // a lent one may be longer
    }

    /// Goes on in `buf`, which is as large as the last one needed it, with what is left here.
    fn move_to(&mut self, mut buf: Vec<u8>) {
        let (left, room) = (self.bytes(), buf.len());
        let end = left.len();
        drop(buf.splice(..end.min(room), left.iter().copied()));
        *self = Self { end, buf, start: 0 };
    }

    /// Keeps what is left in memory of its size, and yields the buffer.
    fn leave(&mut self) -> Vec<u8> {
        let buf = self.bytes().to_vec();
        std::mem::replace(self, Self { end: buf.len(), buf, start: 0 }).buf
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }
}

/// Secure mode: what the first part has beside the preamble.
type Inline = [u8; INLINE_BYTES];

/// A frame whose preamble has come. Its bytes arrive in this order: `head`, `pages`, epilogue.
struct Partial {
    preamble: Preamble,
    /// Secure mode: the start of segment 0.
    inline: Inline,
    /// CRC mode: segment 0, its checksum, front, middle. Secure mode without data: the second part.
    head: Vec<u8>,
    head_bytes: usize,
    /// Length of `pages`, if there are any.
    pages_bytes: usize,
    /// CRC mode: the data. Secure mode with data: the second part, placed so that the data is aligned.
    pages: Option<AlignedBuf>,
    /// Bytes of `pages` in use; of a payload that is not kept, those that have come.
    filled: usize,
    /// Length of a payload that is not kept: each of its pieces is read into `pages`.
    blank: Option<usize>,
    /// CRC mode: of the filled part of `pages`.
    sum: DataSum,
}

impl Partial {
    fn pages_left(&self) -> usize {
        let whole = self.blank.or(self.pages.as_ref().map(|pages| pages.len()));
        whole.unwrap_or(0) - self.filled
    }

    /// What of `pages` the next `count` bytes go to, as far as there is room.
    fn next_pages(&self, count: usize) -> Range<usize> {
        let start = if self.blank.is_some() { 0 } else { self.filled };
        let room = self.pages.as_ref().map_or(0, |pages| pages.len() - start);
        start..start + count.min(room)
    }

    fn open_pages(&mut self) -> &mut [u8] {
        let open = self.next_pages(self.pages_left());
        self.pages.as_mut().and_then(|pages| pages.get_mut(open)).unwrap_or_default()
    }

    /// Notes that `count` more bytes stand in `pages`.
    fn pages_filled(&mut self, count: usize, sealed: bool) {
        let fresh = self.next_pages(count);
        self.filled += count;
        if !sealed && let Some(fresh) = self.pages.as_ref().and_then(|pages| pages.get(fresh)) {
            self.sum.add(fresh);
        }
    }
}

/// The incoming half of a connection.
pub(crate) struct Receiver {
    staging: Staging,
    staging_bytes: usize,
    partial: Option<Partial>,
    /// A frame that waits for room.
    waiting: Option<(Preamble, Inline)>,
    /// Memory of a frame from which on it waits for room.
    unasked_bytes: usize,
    /// `space` handed out the tail of the payload's buffer.
    direct: bool,
    cipher: Option<Cipher>,
    /// See [`crate::Config::blanks_long_data`].
    blanks_long_data: bool,
    /// Longest data that is kept.
    data_bytes_max: u32,
    /// Everything parsed so far, while the handshake is to be signed.
    transcript: Option<Vec<u8>>,
}

impl Receiver {
    /// A receiver that records what it parses for the handshake's signature.
    pub(crate) fn recording(blanks_long_data: bool) -> Self {
        Self {
            staging: Staging::default(),
            staging_bytes: STAGING_HANDSHAKE_BYTES,
            partial: None,
            waiting: None,
            unasked_bytes: usize::MAX,
            direct: false,
            cipher: None,
            blanks_long_data,
            data_bytes_max: DATA_BYTES_MAX,
            transcript: Some(Vec::new()),
        }
    }

    /// As [`crate::Config::blanks_long_data`] would have it.
    #[cfg(test)]
    pub(crate) fn blank_long_data(&mut self) {
        self.blanks_long_data = true;
    }

    /// Ends the recording.
    pub(crate) fn take_transcript(&mut self) -> Vec<u8> {
        self.transcript.take().unwrap_or_default()
    }

    /// All further frames are sealed.
    pub(crate) fn open_with(&mut self, cipher: Cipher) {
        self.cipher = Some(cipher);
    }

    /// The session is open: read in larger pieces. With a peer whose session is lossless, data is longer, and zeros in its
    /// place would be taken for what it sent.
    pub(crate) fn widen(&mut self, lossy: bool) {
        self.staging_bytes = STAGING_BYTES;
        if !lossy {
            (self.data_bytes_max, self.blanks_long_data) = (PEER_BYTES_MAX, false);
        }
    }

    /// Reads into `buf` until it is given back.
    pub(crate) fn lend(&mut self, buf: Vec<u8>) {
        self.staging.move_to(buf);
    }

    /// Gives the buffer back that is read into; what is in it and not parsed stays here.
    pub(crate) fn give_back(&mut self) -> Vec<u8> {
        self.staging.leave()
    }

    /// True while there is room to read into.
    pub(crate) fn has_space(&self) -> bool {
        self.waiting.is_none() && self.staging.end - self.staging.start < self.staging_bytes
    }

    /// Frames that take more memory than this wait for [`Receiver::give_room`].
    pub(crate) fn ask_above(&mut self, bytes: usize) {
        self.unasked_bytes = bytes;
    }

    /// Memory that the frame takes which waits for room.
    pub(crate) fn room_wanted(&self) -> Option<usize> {
        self.waiting.map(|(preamble, inline)| self.partial_of(preamble, inline).memory_bytes())
    }

    /// Begins the frame that waits for room.
    pub(crate) fn give_room(&mut self) {
        if let Some((preamble, inline)) = self.waiting.take() {
            let partial = self.partial_of(preamble, inline);
            self.partial = Some(partial.with_room(self.cipher.is_some()));
        }
    }

    /// Bytes of memory held by a peer that has not proved itself yet.
    pub(crate) fn handshake_bytes(&self) -> usize {
        let transcript = self.transcript.as_ref().map_or(0, Vec::capacity);
        self.staging.buf.capacity() + transcript + self.held_bytes()
    }

    /// Bytes of memory bound by the frame that is being received.
    pub(crate) fn held_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, Partial::memory_bytes)
    }

    /// Where to read next. Empty only when parsing waits for the owner.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.direct = self.staging.is_empty()
            && self.partial.as_ref().is_some_and(|partial| {
                partial.head.len() == partial.head_bytes && partial.pages_left() >= DIRECT_READ_BYTES_MIN
            });
        match &mut self.partial {
            Some(partial) if self.direct => {
                let open = partial.open_pages();
                let room = open.len().min(DIRECT_READ_BYTES_MAX);
                open.get_mut(..room).unwrap_or_default()
            }
            _ => self.staging.space(self.staging_bytes),
        }
    }

    /// Notes that `count` bytes were read into [`Receiver::space`].
    ///
    /// # Panics
    /// When there was no room for so many.
    pub(crate) fn received(&mut self, count: usize) {
        match &mut self.partial {
            Some(partial) if self.direct => {
                assert!(count <= partial.pages_left(), "{count} bytes read into less room");
                partial.pages_filled(count, self.cipher.is_some());
            }
            _ => {
                assert!(
                    count <= self.staging.buf.len() - self.staging.end,
                    "{count} bytes read into less room"
                );
                self.staging.end += count;
            }
        }
        self.direct = false;
    }

    fn consume(&mut self, count: usize) -> Result<(), Fault> {
        if let Some(transcript) = &mut self.transcript {
            let max = crate::HANDSHAKE_BYTES_MAX;
            if transcript.len() + count > max {
                return Err(Fault::HandshakeBytes { max });
            }
            transcript.extend_from_slice(self.staging.bytes().get(..count).unwrap_or_default());
        }
        self.staging.consume(count);
        Ok(())
    }

    /// The next `N` bytes once they are all there.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Fault> {
        let Some(bytes) = self.staging.bytes().first_chunk::<N>().copied() else { return Ok(None) };
        self.consume(N)?;
        Ok(Some(bytes))
    }

    /// The next `count` bytes once they are all there; `count` must fit the staging buffer.
    pub(crate) fn take(&mut self, count: usize) -> Result<Option<Vec<u8>>, Fault> {
        debug_assert!(count <= STAGING_HANDSHAKE_BYTES);
        let Some(bytes) = self.staging.bytes().get(..count).map(<[u8]>::to_vec) else { return Ok(None) };
        self.consume(count)?;
        Ok(Some(bytes))
    }

    /// The next complete frame. With `messages` false a MESSAGE is refused at its preamble.
    pub(crate) fn next_frame(&mut self, messages: bool) -> Result<Option<Inbound>, Fault> {
        loop {
            if self.waiting.is_some() {
                return Ok(None);
            }
            if self.partial.is_none() {
                let Some((preamble, inline)) = self.begin()? else { return Ok(None) };
                self.admit(preamble, inline, messages)?;
            }
            if !self.fill()? {
                return Ok(None);
            }
            match self.finish()? {
                Finished::Frame(frame) => return Ok(Some(frame)),
                Finished::Aborted => {}
                Finished::NotYet => return Ok(None),
            }
        }
    }

    fn admit(&mut self, preamble: Preamble, inline: Inline, messages: bool) -> Result<(), Fault> {
        let tag = preamble.tag;
        if tag == Tag::Message && !messages {
            return Err(Fault::Unexpected { tag, phase: "the session is not open" });
        }
        let (length, max) = (preamble.lengths[3], self.data_bytes_max);
        let is_long = length > max;
        // What is sealed can be checked only as a whole.
        if is_long && (self.cipher.is_some() || !self.blanks_long_data) {
            return Err(Fault::SegmentLength { tag, segment: 3, length, max });
        }
        let partial = self.partial_of(preamble, inline);
        match partial.memory_bytes() > self.unasked_bytes {
            true => self.waiting = Some((preamble, inline)),
            false => self.partial = Some(partial.with_room(self.cipher.is_some())),
        }
        Ok(())
    }

    /// The frame, nothing allocated yet. Its lengths are bounded by now.
    fn partial_of(&self, preamble: Preamble, inline: Inline) -> Partial {
        let mut partial = Partial::new(preamble, inline);
        match preamble.lengths[3] > self.data_bytes_max {
            false => partial.measure(self.cipher.is_some()),
            true => partial.measure_blanks(),
        }
        partial
    }

    /// Reads a preamble (in secure mode: the whole first part).
    fn begin(&mut self) -> Result<Option<(Preamble, Inline)>, Fault> {
        if self.cipher.is_none() {
            let Some(bytes) = self.array()? else { return Ok(None) };
            return Ok(Some((Preamble::decode(&bytes)?, [0; INLINE_BYTES])));
        }
        let Some(mut part) = self.array::<FIRST_PART_BYTES>()? else { return Ok(None) };
        if let Some(cipher) = &mut self.cipher {
            cipher.open(&mut part)?;
        }
        let mut rest = part.as_slice();
        let preamble = Preamble::decode(&pull(&mut rest))?;
        Ok(Some((preamble, pull(&mut rest))))
    }

    /// Moves what is staged into the frame; true when only the epilogue can be missing.
    fn fill(&mut self) -> Result<bool, Fault> {
        let Some(partial) = &mut self.partial else { return Ok(false) };
        let staged = self.staging.bytes();
        let (to_head, behind) = staged.split_at(staged.len().min(partial.head_bytes - partial.head.len()));
        partial.head.extend_from_slice(to_head);
        let mut taken = to_head.len();
        if partial.head.len() == partial.head_bytes {
            let to_pages = behind.get(..behind.len().min(partial.pages_left())).unwrap_or_default();
            if let Some(room) = partial.open_pages().get_mut(..to_pages.len()) {
                room.copy_from_slice(to_pages);
            }
            taken += to_pages.len();
            partial.pages_filled(to_pages.len(), self.cipher.is_some());
        }
        let complete = partial.head.len() == partial.head_bytes && partial.pages_left() == 0;
        self.consume(taken)?;
        Ok(complete)
    }

    fn finish(&mut self) -> Result<Finished, Fault> {
        if self.cipher.is_some() {
            return self.finish_sealed();
        }
        let has_epilogue = self.partial.as_ref().is_some_and(|partial| partial.preamble.has_epilogue());
        let epilogue = match has_epilogue {
            true => match self.array()? {
                Some(epilogue) => Some(epilogue),
                None => return Ok(Finished::NotYet),
            },
            false => None,
        };
        match self.partial.take() {
            Some(partial) => partial.finish_plain(epilogue),
            None => Ok(Finished::NotYet),
        }
    }

    fn finish_sealed(&mut self) -> Result<Finished, Fault> {
        match (self.partial.take(), &mut self.cipher) {
            (Some(partial), Some(cipher)) => partial.finish_sealed(cipher),
            _ => Ok(Finished::NotYet),
        }
    }

    /// Verifies: no frame is over-full; the staging buffer's bounds hold.
    pub(crate) fn check(&self) {
        assert!(self.staging.start <= self.staging.end && self.staging.end <= self.staging.buf.len());
        if let Some(partial) = &self.partial {
            assert!(partial.head.len() <= partial.head_bytes, "head is over-full");
            let pages = partial.blank.or(partial.pages.as_ref().map(|pages| pages.len()));
            assert!(partial.filled <= pages.unwrap_or(0), "pages are over-full");
        }
        assert!(self.transcript.is_none() || self.cipher.is_none(), "sealed while recording");
    }
}

enum Finished {
    Frame(Inbound),
    /// The sender gave the frame up; it counts as never sent.
    Aborted,
    NotYet,
}

impl Partial {
    fn new(preamble: Preamble, inline: Inline) -> Self {
        let sum = DataSum::of(0);
        let (head_bytes, pages_bytes) = (0, 0);
        Self {
            preamble,
            inline,
            head: Vec::new(),
            head_bytes,
            pages_bytes,
            pages: None,
            filled: 0,
            blank: None,
            sum,
        }
    }

    /// What a plain frame takes whose data is not kept.
    fn measure_blanks(&mut self) {
        self.blank = Some(self.preamble.length(3));
        self.head_bytes = self.plain_head_bytes();
        self.pages_bytes = BLANK_BYTES;
    }

    fn memory_bytes(&self) -> usize {
        self.head_bytes + self.pages_bytes
    }

    fn plain_head_bytes(&self) -> usize {
        let first = self.preamble.length(0) + self.first_crc_bytes();
        first + self.preamble.length(1) + self.preamble.length(2)
    }

    /// CRC mode: the checksum of segment 0 stands right behind it, if there is any of it.
    fn first_crc_bytes(&self) -> usize {
        if self.preamble.length(0) > 0 { CRC_BYTES } else { 0 }
    }

    /// What the announced lengths take.
    fn measure(&mut self, sealed: bool) {
        let data = self.preamble.length(3);
        if !sealed {
            self.head_bytes = self.plain_head_bytes();
            self.pages_bytes = data;
        } else if data > 0 {
            let layout = Layout::of(&self.preamble);
            self.filled = lead(layout.data_offset);
            self.pages_bytes = self.filled + layout.sealed;
        } else {
            self.head_bytes = Layout::of(&self.preamble).sealed;
        }
    }

    /// Allocates what was measured.
    fn with_room(mut self, sealed: bool) -> Self {
        self.head.reserve_exact(self.head_bytes);
        self.pages = (self.pages_bytes > 0).then(|| AlignedBuf::with_len(self.pages_bytes));
        if !sealed && self.blank.is_none() {
            self.sum = DataSum::of(self.pages_bytes);
        }
        self
    }

    fn finish_plain(self, epilogue: Option<[u8; EPILOGUE_BYTES]>) -> Result<Finished, Fault> {
        let tag = self.preamble.tag;
        let mut epilogue = epilogue.as_ref().map_or([].as_slice(), |bytes| bytes.as_slice());
        if !epilogue.is_empty() && !is_complete(tag, pull::<1>(&mut epilogue))? {
            return Ok(Finished::Aborted);
        }
        let (first, behind) = self.head.split_at_checked(self.preamble.length(0)).unwrap_or_default();
        let (crc, behind) = behind.split_at_checked(self.first_crc_bytes()).unwrap_or_default();
        if let Ok(crc) = crc.try_into() {
            verify(0, u32::from_le_bytes(crc), crc32c(SEGMENT_CRC_SEED, first))?;
        }
        if tag != Tag::Message {
            let payload = Bytes::copy_from_slice(first);
            return Ok(Finished::Frame(Inbound::Control { tag, payload }));
        }
        let (front, middle) = behind.split_at_checked(self.preamble.length(1)).unwrap_or_default();
        let computed = [crc32c(SEGMENT_CRC_SEED, front), crc32c(SEGMENT_CRC_SEED, middle), self.sum.crc()];
        for (segment, computed) in (1..usize::from(self.preamble.count)).zip(computed) {
            verify(segment, u32::from_le_bytes(pull(&mut epilogue)), computed)?;
        }
        let header = MessageHeader::decode(first)?;
        let (front_at, middle_at) = (self.head.len() - behind.len(), self.head.len() - middle.len());
        let mut front = Bytes::from(self.head);
        let middle = front.split_off(middle_at);
        front.advance(front_at);
        let data = match (self.blank, self.pages) {
            (Some(length), _) => zeros(length),
            (None, Some(pages)) => self.sum.tell(pages.freeze().into()),
            (None, None) => BufList::new(),
        };
        Ok(Finished::Frame(Inbound::Message { header, front, middle, data }))
    }

    fn finish_sealed(mut self, cipher: &mut Cipher) -> Result<Finished, Fault> {
        let (preamble, layout) = (self.preamble, Layout::of(&self.preamble));
        let start = if self.pages.is_some() { lead(layout.data_offset) } else { 0 };
        if layout.sealed > 0 {
            let part = match &mut self.pages {
                Some(pages) => pages.get_mut(start..),
                None => Some(self.head.as_mut_slice()),
            };
            cipher.open(part.unwrap_or_default())?;
        }
        let plain = match self.pages {
            Some(pages) => pages.freeze().slice(start..),
            None => Bytes::from(self.head),
        };
        if preamble.has_epilogue() {
            let at = layout.sealed - SEAL_BYTES - BLOCK_BYTES;
            if !is_complete(preamble.tag, [plain.get(at).copied().unwrap_or_default()])? {
                return Ok(Finished::Aborted);
            }
        }
        let length = preamble.length(0);
        if preamble.tag != Tag::Message {
            let payload = match self.inline.get(..length) {
                Some(whole) => Bytes::copy_from_slice(whole),
                None => self.inline.iter().chain(&plain).take(length).copied().collect(),
            };
            return Ok(Finished::Frame(Inbound::Control { tag: preamble.tag, payload }));
        }
        let header = MessageHeader::decode(self.inline.get(..length).unwrap_or_default())?;
        let part = |offset: usize, segment| plain.slice(offset..offset + preamble.length(segment));
        let middle = part(layout.tail + padded(preamble.length(1)), 2);
        let (front, data) = (part(layout.tail, 1), part(layout.data_offset, 3).into());
        Ok(Finished::Frame(Inbound::Message { header, front, middle, data }))
    }
}

/// Zeros that take hardly any memory: one piece, shared.
fn zeros(length: usize) -> BufList {
    let piece = Bytes::from(vec![0; BLANK_BYTES]);
    let mut list = BufList::new();
    while list.len() < length {
        list.push(piece.slice(..BLANK_BYTES.min(length - list.len())));
    }
    list
}

/// Unused bytes at the start of a buffer that put what stands at `offset` on a page boundary.
fn lead(offset: usize) -> usize {
    offset.next_multiple_of(ALIGNMENT_BYTES) - offset
}

fn is_complete(tag: Tag, [status]: [u8; 1]) -> Result<bool, Fault> {
    match status & 0x0f {
        LATE_COMPLETE => Ok(true),
        LATE_ABORTED => Ok(false),
        _ => Err(Fault::LateStatus { tag, status }),
    }
}

fn verify(segment: usize, found: u32, computed: u32) -> Result<(), Fault> {
    if found == computed { Ok(()) } else { Err(Fault::SegmentCrc { segment, found, computed }) }
}
