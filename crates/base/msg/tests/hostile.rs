//! Malformed messages are errors: never a panic, never much memory.
//!
//! Mutates the captured messages with a fixed seed, and feeds long runs of one byte to every decoder. A
//! counting allocator proves that no message makes a decoder hold more than a fixed amount.
mod common;
mod counting;

use common::{Golden, messages};
use counting::measure;
use nacre_buf::{BufList, Bytes};
use nacre_msg::{Message, RawMessage};
use nacre_types::Entropy;
use nacre_types::entropy::SeededEntropy;

/// Malformed messages tried.
const INPUTS: usize = 150_000;
/// What decoding one message may hold at any time, the result included.
const PEAK_BYTES_MAX: usize = 64 << 20;
/// Length of the long inputs.
const LONG_BYTES: usize = 256 << 10;
/// A long input may cost this many times its length: the widest struct per byte on the wire.
const LONG_GROWTH_MAX: usize = 32;

/// Captured messages of Ceph, and samples of those between our OSDs. The samples need not follow every change
/// of the format: they are there to be malformed.
fn goldens() -> Vec<Golden> {
    let mut all = messages("messages");
    all.extend(messages("peer-messages"));
    all
}

struct Mutator {
    entropy: SeededEntropy,
}

impl Mutator {
    fn below(&mut self, limit: usize) -> usize {
        let word = usize::try_from(self.entropy.u64() >> 16).expect("48 bits fit");
        word % limit.max(1)
    }

    fn short(&mut self) -> u16 {
        u16::try_from(self.below(1 << 16)).expect("16 bits")
    }

    fn mutate_bytes(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len());
        match self.below(7) {
            0 => bytes.truncate(at),
            1 => (0..=self.below(8)).for_each(|_| self.flip(bytes)),
            2 => self.overwrite_word(bytes, at),
            3 => bytes.splice(at..at, other.iter().copied()).for_each(drop),
            4 => {
                let end = (at + self.below(64)).min(bytes.len());
                bytes.drain(at..end).for_each(drop);
            }
            5 => self.entropy.fill(&mut bytes[at..]),
            _ => bytes.extend_from_within(at..),
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.below(8);
        }
    }

    /// Counts and lengths are 32-bit words: the values that hurt most go over one.
    fn overwrite_word(&mut self, bytes: &mut [u8], at: usize) {
        let values = [0, 1, 0x7f, 0xffff, 0x0100_0000, 0x7fff_ffff, 0x8000_0000, u32::MAX];
        let value = values[self.below(values.len())];
        if let Some(place) = bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }

    fn mutate(&mut self, raw: &RawMessage, other: &RawMessage) -> RawMessage {
        let mut hostile = raw.clone();
        let (mut front, mut data) = (raw.front.to_vec(), raw.data.to_bytes().to_vec());
        for _ in 0..=self.below(3) {
            match self.below(12) {
                0 => hostile.kind = other.kind,
                1 => hostile.version = self.short() % 16,
                2 => hostile.compat = self.short() % 16,
                3 => self.mutate_bytes(&mut data, &other.front),
                _ => self.mutate_bytes(&mut front, &other.front),
            }
        }
        hostile.front = front.into();
        hostile.data = self.pieces(data);
        hostile
    }

    /// Payloads may come in several slices.
    fn pieces(&mut self, data: Vec<u8>) -> BufList {
        let cut = self.below(data.len() + 1);
        let data = Bytes::from(data);
        [data.slice(..cut), data.slice(cut..)].into_iter().collect()
    }
}

/// True when `raw` decodes. What was accepted is encoded too, since a daemon may pass on what it read.
fn is_accepted(raw: RawMessage) -> bool {
    let message = Message::decode(raw);
    message.is_ok_and(|message| {
        let kind = message.kind();
        message.encode(1).kind == kind
    })
}

#[test]
fn malformed_messages_are_errors_and_cost_little() {
    let goldens = goldens();
    let mut mutator = Mutator { entropy: SeededEntropy(1) };
    let (mut accepted, mut peak) = (0_usize, 0);
    for _ in 0..INPUTS {
        let (one, other) = (mutator.below(goldens.len()), mutator.below(goldens.len()));
        let hostile = mutator.mutate(&goldens[one].raw, &goldens[other].raw);
        let cost = measure(|| accepted += usize::from(is_accepted(hostile)));
        peak = peak.max(cost.peak_bytes);
    }
    println!("{accepted} of {INPUTS} still decoded, peak {peak} bytes");
    assert!(peak < PEAK_BYTES_MAX, "decoding held {peak} bytes");
    assert!(accepted > INPUTS / 10 && accepted < INPUTS, "the mutations are too weak or too strong");
}

#[test]
fn random_bytes_of_every_type_are_errors_and_cost_little() {
    let mut mutator = Mutator { entropy: SeededEntropy(2) };
    for Golden { raw, .. } in goldens() {
        for _ in 0..200 {
            let mut front = vec![0; mutator.below(512)];
            mutator.entropy.fill(&mut front);
            let hostile = RawMessage { front: front.into(), ..raw.clone() };
            let peak = measure(|| drop(Message::decode(hostile))).peak_bytes;
            assert!(peak < PEAK_BYTES_MAX, "type {} held {peak} bytes", raw.kind);
        }
    }
}

#[test]
fn long_runs_of_one_byte_cost_a_bounded_multiple() {
    for Golden { name, raw } in goldens() {
        for fill in [0, 1, 2, 4, 0xff] {
            // The captured beginning, then the run: so that the counts behind it are reached too.
            for keep in [0, 4, raw.front.len() / 2, raw.front.len()] {
                let mut front = raw.front[..keep.min(raw.front.len())].to_vec();
                front.resize(LONG_BYTES, fill);
                let hostile = RawMessage { front: front.into(), ..raw.clone() };
                let peak = measure(|| drop(Message::decode(hostile))).peak_bytes;
                assert!(peak < LONG_BYTES * LONG_GROWTH_MAX, "{name} of {fill}: {peak} bytes");
            }
        }
    }
}

/// The worst that fits: a list of as many of the smallest elements as there are bytes.
#[test]
fn lists_of_empty_elements_cost_a_bounded_multiple() {
    for Golden { name, raw } in goldens() {
        for at in (0..raw.front.len().min(256)).filter(|at| at + 4 <= raw.front.len()) {
            for element_bytes in [1_usize, 4, 6, 8] {
                let mut front = raw.front[..at].to_vec();
                let count = u32::try_from((LONG_BYTES - at - 4) / element_bytes).expect("a short list");
                front.extend_from_slice(&count.to_le_bytes());
                front.resize(LONG_BYTES, 0);
                let hostile = RawMessage { front: front.into(), ..raw.clone() };
                let peak = measure(|| drop(Message::decode(hostile))).peak_bytes;
                assert!(peak < LONG_BYTES * LONG_GROWTH_MAX, "{name} at {at}: {peak} bytes");
            }
        }
    }
}
