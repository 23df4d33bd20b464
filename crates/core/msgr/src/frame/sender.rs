//! [`Sender`]: frames on their way out, ready for a vectored write.
//!
//! Small parts (preambles, headers, fronts, epilogues) of successive frames are gathered in recycled chunks;
//! payloads are passed on by reference. A stream of small replies costs no allocation and one slice per
//! chunk. In secure mode everything is copied once, into a chunk, and sealed there.

use super::secure::{Cipher, INLINE_BYTES, Layout, SEAL_BYTES, padded};
use super::workspace::SPARE_COUNT_MAX;
use super::{
    EPILOGUE_BYTES, LATE_COMPLETE, MESSAGE_HEADER_BYTES, MessageHeader, Preamble, SEGMENT_CRC_SEED, Tag,
};
use crate::RawMessage;
use nacre_buf::{BufList, Bytes, crc::crc32c};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Room of a fresh chunk: some fifteen replies, or one sealed 4 KiB payload with its header.
const CHUNK_BYTES: usize = 5 << 10;
/// Slices up to this length are copied: cheaper than another entry in the vector and a shared count.
const COPY_BYTES_MAX: usize = 1 << 10;

/// What stands before the front of a message in CRC mode: preamble, header, the header's checksum.
const PLAIN_HEAD_BYTES: usize = Preamble::BYTES + MESSAGE_HEADER_BYTES + 4;

enum Chunk {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// The outgoing half of a connection.
#[derive(Default)]
pub(crate) struct Sender {
    chunks: VecDeque<Chunk>,
    spare: Vec<Vec<u8>>,
    /// Bytes of the first chunk that are sent.
    offset: usize,
    queued: usize,
    cipher: Option<Cipher>,
    /// Everything sent so far, while the handshake is to be signed.
    transcript: Option<Vec<u8>>,
}

impl Sender {
    /// A sender that records what it sends for the handshake's signature.
    pub(crate) fn recording() -> Self {
        Self { transcript: Some(Vec::new()), ..Self::default() }
    }

    /// Ends the recording.
    pub(crate) fn take_transcript(&mut self) -> Vec<u8> {
        self.transcript.take().unwrap_or_default()
    }

    /// Bytes recorded so far.
    pub(crate) fn transcript_bytes(&self) -> usize {
        self.transcript.as_ref().map_or(0, Vec::len)
    }

    /// All further frames are sealed.
    pub(crate) fn seal_with(&mut self, cipher: Cipher) {
        self.cipher = Some(cipher);
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Fills `out` with what to write next; returns how many entries are used.
    pub(crate) fn out_slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut skip = self.offset;
        let mut used = 0;
        for (entry, chunk) in out.iter_mut().zip(&self.chunks) {
            *entry = IoSlice::new(chunk.bytes().get(skip..).unwrap_or_default());
            skip = 0;
            used += 1;
        }
        used
    }

    /// Notes that the first `count` queued bytes were written.
    ///
    /// # Panics
    /// When fewer bytes are queued.
    pub(crate) fn sent(&mut self, count: usize) {
        assert!(count <= self.queued, "{count} bytes sent of {}", self.queued);
        self.queued -= count;
        self.offset += count;
        while let Some(first) = self.chunks.front() {
            let length = first.bytes().len();
            if self.offset < length {
                break;
            }
            self.offset -= length;
            if let Some(Chunk::Own(chunk)) = self.chunks.pop_front() {
                self.recycle(chunk);
            }
        }
    }

    fn recycle(&mut self, mut chunk: Vec<u8>) {
        if self.spare.len() < SPARE_COUNT_MAX && chunk.capacity() == CHUNK_BYTES {
            chunk.clear();
            self.spare.push(chunk);
        }
    }

    /// Exchanges its emptied chunks for others': those of all connections of a thread, and back.
    pub(crate) fn swap_spare(&mut self, chunks: &mut Vec<Vec<u8>>) {
        std::mem::swap(&mut self.spare, chunks);
    }

    /// A chunk at the end of the queue with room for `want` bytes.
    fn chunk(&mut self, want: usize) -> &mut Vec<u8> {
        let fits = |chunk: &Chunk| matches!(chunk, Chunk::Own(own) if own.capacity() - own.len() >= want);
        if !self.chunks.back().is_some_and(fits) {
            let spare = if want <= CHUNK_BYTES { self.spare.pop() } else { None };
            let fresh = spare.unwrap_or_else(|| Vec::with_capacity(want.max(CHUNK_BYTES)));
            self.chunks.push_back(Chunk::Own(fresh));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Own(own)) => own,
            _ => unreachable!("pushed above if it was not there"),
        }
    }

    /// Copies `bytes` to the end of the queue.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.chunk(bytes.len()).extend_from_slice(bytes);
        self.queued += bytes.len();
        if let Some(transcript) = &mut self.transcript {
            transcript.extend_from_slice(bytes);
        }
    }

    fn share(&mut self, bytes: &Bytes) {
        if bytes.len() <= COPY_BYTES_MAX {
            return self.copy(bytes);
        }
        debug_assert!(self.transcript.is_none(), "only control frames are recorded, and they are copied");
        self.queued += bytes.len();
        self.chunks.push_back(Chunk::Shared(bytes.clone()));
    }

    /// Queues a control frame.
    pub(crate) fn control(&mut self, tag: Tag, payload: &[u8]) {
        let preamble = Preamble::new(tag, [payload.len(), 0, 0, 0]);
        if self.cipher.is_some() {
            return self.sealed(&preamble, payload, &[], &[], &BufList::new());
        }
        self.copy(&preamble.encode());
        if !payload.is_empty() {
            self.copy(payload);
            self.copy(&crc32c(SEGMENT_CRC_SEED, payload).to_le_bytes());
        }
    }

    /// Queues a MESSAGE frame.
    pub(crate) fn message(&mut self, header: &MessageHeader, message: &RawMessage) {
        let lengths = [MESSAGE_HEADER_BYTES, message.front.len(), message.middle.len(), message.data.len()];
        let (preamble, header) = (Preamble::new(Tag::Message, lengths), header.encode());
        match self.cipher {
            Some(_) => self.sealed(&preamble, &header, &message.front, &message.middle, &message.data),
            None => self.plain(&preamble, &header, message),
        }
    }

    fn plain(&mut self, preamble: &Preamble, header: &[u8; MESSAGE_HEADER_BYTES], message: &RawMessage) {
        let mut head = [0; PLAIN_HEAD_BYTES];
        let mut rest = head.as_mut_slice();
        super::put(&mut rest, &preamble.encode());
        super::put(&mut rest, header);
        super::put(&mut rest, &crc32c(SEGMENT_CRC_SEED, header).to_le_bytes());
        self.copy(&head);
        self.share(&message.front);
        self.share(&message.middle);
        message.data.slices().iter().for_each(|slice| self.share(slice));
        if !preamble.has_epilogue() {
            return;
        }
        let mut epilogue = [0; EPILOGUE_BYTES];
        let mut rest = epilogue.as_mut_slice();
        super::put(&mut rest, &[LATE_COMPLETE]);
        let crcs = [
            crc32c(SEGMENT_CRC_SEED, &message.front),
            crc32c(SEGMENT_CRC_SEED, &message.middle),
            message.data.crc32c(SEGMENT_CRC_SEED),
        ];
        // A segment that is not counted has checksum 0, an empty but counted one that of no bytes.
        let counted = usize::from(preamble.count) - 1;
        crcs.iter().take(counted).for_each(|crc| super::put(&mut rest, &crc.to_le_bytes()));
        self.copy(&epilogue);
    }

    fn sealed(&mut self, preamble: &Preamble, first: &[u8], front: &[u8], middle: &[u8], data: &BufList) {
        debug_assert!(self.transcript.is_none(), "sealing starts when the recording ends");
        let Some(mut cipher) = self.cipher.take() else { return };
        let layout = Layout::of(preamble);
        let total = super::secure::FIRST_PART_BYTES + layout.sealed;
        let out = self.chunk(total);
        let start = out.len();
        let (inline, tail) = first.split_at(first.len().min(INLINE_BYTES));
        out.extend_from_slice(&preamble.encode());
        put_padded(out, inline, INLINE_BYTES);
        cipher.seal(out, start);
        if layout.sealed > 0 {
            let second = out.len();
            put_padded(out, tail, layout.tail);
            put_padded(out, front, padded(front.len()));
            put_padded(out, middle, padded(middle.len()));
            data.slices().iter().for_each(|slice| out.extend_from_slice(slice));
            out.resize(out.len() + padded(data.len()) - data.len(), 0);
            if preamble.has_epilogue() {
                put_padded(out, &[LATE_COMPLETE], super::secure::BLOCK_BYTES);
            }
            debug_assert_eq!(out.len() - second + SEAL_BYTES, layout.sealed);
            cipher.seal(out, second);
        }
        debug_assert_eq!(out.len() - start, total);
        self.queued += total;
        self.cipher = Some(cipher);
    }

    /// Verifies: `queued` is the sum of the chunks less what is sent of the first; no chunk is empty.
    pub(crate) fn check(&self) {
        let held: usize = self.chunks.iter().map(|chunk| chunk.bytes().len()).sum();
        assert_eq!(held - self.offset, self.queued, "queued bytes");
        assert!(self.chunks.iter().all(|chunk| !chunk.bytes().is_empty()), "an empty chunk");
        assert!(self.transcript.is_none() || self.cipher.is_none(), "sealed while recording");
    }
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8], length: usize) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + length - bytes.len(), 0);
}
