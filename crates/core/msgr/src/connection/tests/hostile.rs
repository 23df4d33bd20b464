//! Peers that mean no good, and networks that change bytes: a fault, never a panic, never much memory.

use super::*;
use crate::frame::{Sender, tests::preamble_of};

fn conversation(mode: u32, flip: Option<Flip>) -> (Pair, Result<(), Fault>) {
    let mut pair = Pair::lossy(mode, 3);
    pair.flip = flip;
    pair.client.connection.send(message(1, 40, 60)).expect("room");
    let mut outcome = pair.settle();
    if outcome.is_ok() && pair.server.established.is_some() {
        outcome = pair.server.connection.send(message(2, 40, 60)).and_then(|()| pair.settle());
    }
    (pair, outcome)
}

#[test]
fn every_changed_byte_is_noticed() {
    for mode in [mode::CRC, mode::SECURE] {
        let (good, outcome) = conversation(mode, None);
        outcome.expect("no fault");
        for (to_server, length) in [(false, good.carried[0]), (true, good.carried[1])] {
            for at in 0..length {
                for with in [0x01, 0x80] {
                    let (pair, outcome) = conversation(mode, Some(Flip { to_server, at, with }));
                    let got_through = pair.server.received.len() == 1 && pair.client.received.len() == 1;
                    // Only the high half of `late_status` in CRC mode may change unseen.
                    let harmless = mode == mode::CRC && with == 0x80 && at == length - 13;
                    assert!(outcome.is_err() || !got_through || harmless, "byte {at}, to server {to_server}");
                }
            }
        }
    }
}

/// Feeds anything to `connection`, answering nothing, until it fails or the bytes end.
fn throw(connection: &mut Connection, mut bytes: &[u8]) -> Option<Fault> {
    while !bytes.is_empty() && connection.wants_read() {
        let space = connection.recv_space();
        let count = bytes.len().min(space.len());
        space[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        if let Err(fault) = connection.received(Stamp(0), count) {
            return Some(fault);
        }
    }
    None
}

#[test]
fn garbage_from_the_start_faults() {
    let mut entropy = SeededEntropy(1);
    let config = osd_config(SERVER_ADDR, 1);
    for _ in 0..100_000 {
        let mut garbage = [0; 64];
        entropy.fill(&mut garbage);
        let mut server = accepted(config.clone(), 1);
        assert!(matches!(throw(&mut server, &garbage), Some(Fault::Banner { .. })));
    }
}

/// A client's bytes up to several points of the handshake, for garbage to follow.
fn prefix_of_conversation() -> Vec<Vec<u8>> {
    let mut prefixes = vec![Vec::new()];
    let mut client = Connection::connect(Arc::new(Config::client(55)), target(EntityKind::OSD), opening(1));
    let greeting = take(&mut client);
    prefixes.push(greeting[..26].to_vec());
    prefixes.push(greeting.clone());
    let mut frames = Sender::default();
    let request = crate::control::AuthRequest { method: 2, modes: vec![1], payload: Bytes::new() };
    frames.control(Tag::AuthRequest, &request.to_bytes());
    prefixes.push([greeting, bytes_of(&frames)].concat());
    prefixes
}

fn bytes_of(frames: &Sender) -> Vec<u8> {
    let mut slices = [IoSlice::new(&[]); 4];
    let used = frames.out_slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

/// A frame with a good preamble and good checksums around random bytes.
fn random_frame(entropy: &mut SeededEntropy) -> Vec<u8> {
    let tags = [Tag::Hello, Tag::AuthRequest, Tag::AuthRequestMore, Tag::ClientIdent, Tag::SessionReconnect];
    let tag = tags[usize::try_from(entropy.u64() % 5).expect("small")];
    let mut payload = vec![0; usize::try_from(entropy.u64() % 200).expect("small")];
    entropy.fill(&mut payload);
    // Small counts and known markers lead deeper into the decoders.
    let keep = entropy.u64() % 4;
    payload.iter_mut().for_each(|byte| *byte = if keep == 0 { *byte } else { *byte % 3 });
    let mut frames = Sender::default();
    frames.control(tag, &payload);
    bytes_of(&frames)
}

#[test]
fn garbage_at_any_point_never_panics() {
    let mut entropy = SeededEntropy(2);
    let (config, prefixes) = (osd_config(SERVER_ADDR, 1), prefix_of_conversation());
    for round in 0..100_000_usize {
        let mut server = accepted(config.clone(), 1);
        assert_eq!(throw(&mut server, &prefixes[round % prefixes.len()]), None);
        let mut bytes = random_frame(&mut entropy);
        if round % 3 == 0 {
            entropy.fill(&mut bytes);
        }
        let _fault_or_more_wanted = throw(&mut server, &bytes);
        server.check();
    }
}

/// An open server and what its client would write next.
fn open_pair() -> Pair {
    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.settle().expect("no fault");
    pair
}

#[test]
fn garbage_behind_the_handshake_never_panics() {
    let mut entropy = SeededEntropy(3);
    for round in 0..3_000 {
        let mut pair = open_pair();
        let mut bytes = if round % 2 == 0 { random_frame(&mut entropy) } else { vec![0; 300] };
        if round % 2 == 1 {
            entropy.fill(&mut bytes);
        }
        assert!(throw(&mut pair.server.connection, &bytes).is_some());
        pair.server.connection.check();
    }
}

#[test]
fn a_stranger_cannot_make_us_hold_much() {
    // A huge frame before the session is open.
    let mut server = accepted(osd_config(SERVER_ADDR, 1), 1);
    assert_eq!(throw(&mut server, &prefix_of_conversation()[2]), None);
    let huge = preamble_of(Tag::Message, [41, 0, 0, 90 << 20]);
    assert!(matches!(throw(&mut server, &huge), Some(Fault::Unexpected { tag: Tag::Message, .. })));
    assert_eq!(server.incoming_bytes(), 0);
    // An endless handshake.
    let mut pair = Pair::lossy(mode::CRC, 1);
    pair.client.connection.auth_start_after_hello(&mut pair.server.connection);
    let fault = loop {
        match pair.server.connection.next_event() {
            Some(Event::AuthRequest { .. }) => {
                pair.server.connection.auth_bad(1, -13, &[2], &[1]).expect("owed");
            }
            other => panic!("{other:?}"),
        }
        let bytes = take(&mut pair.server.connection);
        put(&mut pair.client.connection, &bytes).expect("good bytes");
        while pair.client.connection.next_event().is_some() {}
        pair.client.connection.auth_start(1, &[1], &[0; 1000]).expect("idle");
        let bytes = take(&mut pair.client.connection);
        if let Err(fault) = put(&mut pair.server.connection, &bytes) {
            break fault;
        }
    };
    assert!(matches!(fault, Fault::Rounds { .. }));
}

#[test]
fn a_handshake_of_too_many_bytes_is_ended() {
    let mut server = accepted(osd_config(SERVER_ADDR, 1), 1);
    assert_eq!(throw(&mut server, &prefix_of_conversation()[2]), None);
    let request = crate::control::AuthRequest { method: 2, modes: vec![1], payload: vec![0; 60_000].into() };
    let mut frames = Sender::default();
    frames.control(Tag::AuthRequest, &request.to_bytes());
    let frame = bytes_of(&frames);
    let fault = loop {
        if let Some(fault) = throw(&mut server, &frame) {
            break fault;
        }
        while server.next_event().is_some() {}
        server.auth_bad(2, -13, &[2], &[1]).expect("owed");
    };
    assert_eq!(fault, Fault::HandshakeBytes { max: crate::HANDSHAKE_BYTES_MAX });
}

#[test]
fn frames_out_of_place_are_refused() {
    for tag in [Tag::Hello, Tag::AuthDone, Tag::ServerIdent, Tag::ClientIdent, Tag::Wait] {
        let mut pair = open_pair();
        let mut frames = Sender::default();
        frames.control(tag, &[0; 9]);
        let frame = bytes_of(&frames);
        let fault = throw(&mut pair.server.connection, &frame);
        assert_eq!(fault, Some(Fault::Unexpected { tag, phase: "open" }));
    }
}
