//! Frames through a [`Sender`] and a [`Receiver`], without a connection around them.

use super::*;
use nacre_buf::{ALIGNMENT_BYTES, BufList, Bytes};
use std::io::IoSlice;

fn written(sender: &mut Sender) -> Vec<u8> {
    let mut out = Vec::new();
    while sender.queued() > 0 {
        let mut slices = [IoSlice::new(&[]); 3];
        let used = sender.out_slices(&mut slices);
        let before = out.len();
        slices[..used].iter().for_each(|slice| out.extend_from_slice(slice));
        let count = out.len() - before;
        sender.sent(count);
        sender.check();
    }
    out
}

/// Feeds `bytes` in pieces of at most `piece` bytes and returns the frames.
fn parsed(receiver: &mut Receiver, mut bytes: &[u8], piece: usize) -> Result<Vec<Inbound>, Fault> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let space = receiver.space();
        let count = bytes.len().min(space.len()).min(piece);
        assert!(count > 0, "no room to read");
        space[..count].copy_from_slice(&bytes[..count]);
        receiver.received(count);
        receiver.check();
        bytes = &bytes[count..];
        while let Some(frame) = receiver.next_frame(true)? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

fn opened() -> (Sender, Receiver) {
    let (sender, mut receiver) = (Sender::default(), Receiver::recording(false));
    receiver.take_transcript();
    receiver.widen(true);
    (sender, receiver)
}

fn sealed() -> (Sender, Receiver) {
    let (mut sender, mut receiver) = opened();
    let secret: Vec<u8> = (0..40).collect();
    sender.seal_with(Keys::new(&secret, true).expect("long enough").send);
    receiver.open_with(Keys::new(&secret, false).expect("long enough").receive);
    (sender, receiver)
}

fn bytes(length: usize) -> Bytes {
    (0..length).map(|at| (at * 7 % 251).to_le_bytes()[0]).collect()
}

fn message(front: usize, middle: usize, data: &[usize]) -> RawMessage {
    let data: BufList = data.iter().map(|length| bytes(*length)).collect();
    RawMessage {
        tid: 9,
        kind: 42,
        version: 8,
        compat: 7,
        priority: 127,
        front: bytes(front),
        middle: bytes(middle),
        data,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: String = text.lines().filter_map(|line| line.strip_prefix("server ")).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex")).collect()
}

#[test]
fn a_real_message_is_read_and_written_alike() {
    let golden = unhex(include_str!("../../tests/golden/message-crc.txt"));
    let (mut sender, mut receiver) = opened();
    let mut frames = parsed(&mut receiver, &golden, usize::MAX).expect("a real frame");
    let Some(Inbound::Message { header, front, middle, data }) = frames.pop() else { panic!() };
    assert_eq!((header.seq, header.ack_seq, header.kind, header.tid), (7, 6, 51, 2));
    let MessageHeader { tid, kind, version, compat, priority, .. } = header;
    let again = RawMessage { tid, kind, version, compat, priority, front, middle, data };
    assert_eq!(again.data.len(), 37);
    sender.message(&header, &again);
    assert_eq!(written(&mut sender), golden);
}

/// A message whose data is one byte longer than what is kept.
fn long_message() -> RawMessage {
    let whole = DATA_BYTES_MAX as usize / 4;
    message(3, 2, &[whole, whole, whole, whole, 1])
}

#[test]
fn data_that_is_too_long_is_checked_and_comes_as_zeros() {
    let (mut sender, mut receiver) = opened();
    receiver.blank_long_data();
    sender.message(&MessageHeader::default(), &long_message());
    sender.control(Tag::Wait, &[]);
    let mut wire = written(&mut sender);
    let frames = parsed(&mut receiver, &wire, 100_000).expect("good frames");
    let [Inbound::Message { front, middle, data, .. }, Inbound::Control { tag: Tag::Wait, .. }] = &frames[..]
    else {
        panic!("{} frames", frames.len())
    };
    assert_eq!((front.len(), middle.len(), data.len()), (3, 2, DATA_BYTES_MAX as usize + 1));
    assert!(data.slices().iter().all(|piece| piece.iter().all(|byte| *byte == 0)));
    let pieces: Vec<_> = data.slices().iter().map(|piece| piece.as_ptr()).collect();
    assert!(pieces.iter().all(|start| *start == pieces[0]), "one piece of memory stands for all");

    let middle_of_data = wire.len() / 2;
    wire[middle_of_data] ^= 1;
    let (_, mut receiver) = opened();
    receiver.blank_long_data();
    let fault = parsed(&mut receiver, &wire, usize::MAX).map(|_| ());
    assert!(matches!(fault, Err(Fault::SegmentCrc { segment: 3, .. })), "{fault:?}");
}

#[test]
fn data_that_is_too_long_is_refused_where_nobody_answers_it() {
    for (make, blank) in [(opened as fn() -> _, false), (sealed, false), (sealed, true)] {
        let (mut sender, mut receiver) = make();
        if blank {
            receiver.blank_long_data();
        }
        sender.message(&MessageHeader::default(), &long_message());
        let fault = parsed(&mut receiver, &written(&mut sender), usize::MAX).map(|_| ());
        assert!(matches!(fault, Err(Fault::SegmentLength { segment: 3, .. })), "{fault:?}");
    }
}

#[test]
fn all_shapes_in_both_modes_and_any_pieces() {
    let shapes: [(usize, usize, &[usize]); 12] = [
        (0, 0, &[]),
        (1, 0, &[]),
        (300, 0, &[4096]),
        (0, 0, &[5]),
        (0, 3, &[]),
        (7, 16, &[16]),
        (5000, 2000, &[3, 1500, 70_000]),
        (48, 0, &[1 << 20]),
        (100_000, 0, &[]),
        (300, 0, &[40_000]),
        (300, 0, &[8192]),
        (20, 3, &[1 << 16]),
    ];
    for make in [opened, sealed] {
        for piece in [1, 13, 4096, usize::MAX] {
            let (mut sender, mut receiver) = make();
            let mut seq = 0;
            let sent = shapes.map(|(front, middle, data)| message(front, middle, data));
            for message in &sent {
                seq += 1;
                sender.message(&MessageHeader { seq, ..MessageHeader::default() }, message);
                sender.control(Tag::Ack, &[seq.to_le_bytes()[0]; 8]);
                sender.control(Tag::Wait, &[]);
            }
            sender.check();
            let frames = parsed(&mut receiver, &written(&mut sender), piece).expect("good frames");
            assert_eq!(frames.len(), 3 * sent.len());
            for (frames, sent) in frames.chunks(3).zip(&sent) {
                let [Inbound::Message { front, middle, data, .. }, ack, wait] = frames else { panic!() };
                assert_eq!((front, middle, data), (&sent.front, &sent.middle, &sent.data));
                assert!(matches!(ack, Inbound::Control { tag: Tag::Ack, payload } if payload.len() == 8));
                assert!(matches!(wait, Inbound::Control { tag: Tag::Wait, payload } if payload.is_empty()));
                let aligned = |slice: &Bytes| (slice.as_ptr() as usize).is_multiple_of(ALIGNMENT_BYTES);
                assert!(data.slices().len() <= 1 && data.slices().iter().all(aligned), "one aligned slice");
            }
        }
    }
}

#[test]
fn data_comes_with_the_checksums_of_its_blocks() {
    for length in [4096, 2 * 4096, 16 * 4096, 1 << 20] {
        for piece in [13, 4095, 4096, 5000, usize::MAX] {
            let (mut sender, mut receiver) = opened();
            sender.message(&MessageHeader::default(), &message(100, 0, &[length]));
            let frames = parsed(&mut receiver, &written(&mut sender), piece).expect("a good frame");
            let [Inbound::Message { data, .. }] = &frames[..] else { panic!("{} frames", frames.len()) };
            let plain = BufList::from(data.to_bytes());
            assert_eq!(data.known_crc(), Some(plain.crc32c(SEGMENT_CRC_SEED)));
            for at in (0..length).step_by(4096) {
                let block = plain.slice(at, 4096).crc32c(SEGMENT_CRC_SEED);
                assert_eq!(data.slice(at, 4096).known_crc(), Some(block), "{at} of {length} by {piece}");
            }
        }
    }
    // What is not whole blocks is known as a whole.
    let (mut sender, mut receiver) = opened();
    sender.message(&MessageHeader::default(), &message(100, 0, &[9000]));
    let frames = parsed(&mut receiver, &written(&mut sender), usize::MAX).expect("a good frame");
    let [Inbound::Message { data, .. }] = &frames[..] else { panic!("{} frames", frames.len()) };
    assert!(data.known_crc().is_some() && data.slice(0, 4096).known_crc().is_none());
}

#[test]
fn a_wrong_byte_in_any_block_is_found() {
    for at in [0, 4095, 4096, 40_000, 65_535] {
        let (mut sender, mut receiver) = opened();
        sender.message(&MessageHeader::default(), &message(0, 0, &[1 << 16]));
        let mut wire = written(&mut sender);
        let data_end = wire.len() - EPILOGUE_BYTES;
        wire[data_end - (1 << 16) + at] ^= 4;
        let fault = parsed(&mut receiver, &wire, 10_000).map(|_| ());
        assert!(matches!(fault, Err(Fault::SegmentCrc { segment: 3, .. })), "{at}: {fault:?}");
    }
}

#[test]
fn a_large_payload_is_read_in_place() {
    for make in [opened, sealed] {
        let (mut sender, mut receiver) = make();
        sender.message(&MessageHeader::default(), &message(100, 0, &[1 << 20]));
        let stream = written(&mut sender);
        let space = receiver.space();
        let first = space.len();
        space.copy_from_slice(&stream[..first]);
        receiver.received(first);
        assert!(receiver.next_frame(true).expect("good so far").is_none());
        let space = receiver.space();
        assert_eq!(space.len(), 256 << 10, "more than the staging buffer has: the payload's own");
        let (start, length) = (space.as_ptr().addr(), space.len());
        space.copy_from_slice(&stream[first..first + length]);
        receiver.received(length);
        assert!(receiver.next_frame(true).expect("good so far").is_none());
        assert_eq!(receiver.space().as_ptr().addr(), start + length, "right behind it");
        assert!(receiver.held_bytes() >= 1 << 20);
        let first = first + length;
        assert_eq!(parsed(&mut receiver, &stream[first..], usize::MAX).expect("good").len(), 1);
        assert_eq!(receiver.held_bytes(), 0);
    }
}

#[test]
fn small_frames_share_one_slice() {
    let (mut sender, _) = opened();
    (0..10).for_each(|_| sender.message(&MessageHeader::default(), &message(200, 0, &[])));
    let mut slices = [IoSlice::new(&[]); 8];
    assert_eq!(sender.out_slices(&mut slices), 1);
    let payload = message(200, 0, &[4096]);
    sender.message(&MessageHeader::default(), &payload);
    let mut slices = [IoSlice::new(&[]); 8];
    assert_eq!(sender.out_slices(&mut slices), 3);
    assert_eq!(slices[1].as_ptr(), payload.data.slices()[0].as_ptr(), "by reference");
}

#[test]
fn an_aborted_frame_counts_as_never_sent() {
    let (mut sender, mut receiver) = opened();
    sender.message(&MessageHeader::default(), &message(4, 0, &[]));
    let mut stream = written(&mut sender);
    let late_status = stream.len() - EPILOGUE_BYTES;
    stream[late_status] = LATE_ABORTED;
    assert_eq!(parsed(&mut receiver, &stream, usize::MAX).expect("no fault").len(), 0);
    stream[late_status] = 0;
    let found = parsed(&mut receiver, &stream, usize::MAX).map(|frames| frames.len());
    assert_eq!(found, Err(Fault::LateStatus { tag: Tag::Message, status: 0 }));
}

#[test]
fn any_changed_byte_is_found() {
    for make in [opened, sealed] {
        let (mut sender, _) = make();
        sender.message(&MessageHeader::default(), &message(60, 5, &[100]));
        sender.control(Tag::Ack, &[1; 8]);
        let good = written(&mut sender);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let (_, mut receiver) = make();
            match parsed(&mut receiver, &bad, usize::MAX) {
                Err(_) => {}
                // The high half of `late_status` has no meaning.
                Ok(frames) => assert!(frames.len() < 2 || at == 32 + 41 + 4 + 60 + 5 + 100, "byte {at}"),
            }
        }
    }
}

#[test]
fn tags_and_codes_agree() {
    for tag in Tag::ALL {
        assert_eq!(preamble::tag_of(tag as u8), Ok(tag));
    }
    for code in [0, 21, 22, 255] {
        assert_eq!(preamble::tag_of(code), Err(Fault::UnknownTag { tag: code }));
    }
}

#[test]
fn message_headers_round_trip() {
    let header = MessageHeader { seq: 1, tid: 2, kind: 3, priority: 4, version: 5, compat: 6, ack_seq: 7 };
    assert_eq!(MessageHeader::decode(&header.encode()), Ok(header));
    assert_eq!(MessageHeader::decode(&[0; 40]), Err(Fault::MessageHeader { length: 40 }));
}

/// The bytes of a good preamble.
pub(crate) fn preamble_of(tag: Tag, lengths: [usize; SEGMENT_COUNT_MAX]) -> [u8; Preamble::BYTES] {
    Preamble::new(tag, lengths).encode()
}
