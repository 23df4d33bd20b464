//! A connection fed with frames.
//!
//! Random bytes die at the first checksum, so the input is a script: frames with any tag and segments get
//! correct checksums, and only now and then raw bytes stand between them.

use crate::input::Input;
use nacre_buf::crc::crc32c;
use nacre_msgr::{Config, Connection, Event, Opening, SessionAnswer, mode};
use nacre_types::{AddrVec, EntityAddr, Stamp};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Seed of all checksums but the preamble's.
const SEED: u32 = u32::MAX;
const SEGMENTS_MAX: usize = 4;
const PREAMBLE_BYTES: usize = 32;
/// "Complete" in the epilogue.
const LATE_COMPLETE: u8 = 0x0e;

/// A server takes whatever a client may send.
pub fn frames(input: &[u8]) {
    let mut input = Input::new(input);
    let mut server = server();
    let banner: &[u8] = b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut alive = feed(&mut server, banner);
    while alive && !input.is_empty() {
        let bytes = match input.u8() {
            0 => input.chunk().to_vec(),
            tag => frame(tag, &mut input),
        };
        alive = feed(&mut server, &bytes);
        server.check();
    }
}

fn server() -> Connection {
    let addr = EntityAddr::msgr2(SocketAddr::from((Ipv4Addr::LOCALHOST, 6800)), 7);
    let config = Arc::new(Config::osd(AddrVec::of(addr), 0));
    let opening = Opening { now: Stamp(0), global_seq: 1, cookie: 1 };
    Connection::accept(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000)), opening)
}

/// A frame of crc mode with up to four segments from the input.
fn frame(tag: u8, input: &mut Input<'_>) -> Vec<u8> {
    let count = 1 + usize::from(input.u8()) % SEGMENTS_MAX;
    let segments: Vec<&[u8]> = (0..count).map(|_| input.chunk()).collect();
    let mut out = vec![tag, u8::try_from(count).expect("at most four")];
    for segment in &segments {
        out.extend(u32::try_from(segment.len()).expect("16 bits").to_le_bytes());
        out.extend(8_u16.to_le_bytes());
    }
    out.resize(PREAMBLE_BYTES - 4, 0);
    out.extend(crc32c(0, &out).to_le_bytes());
    let mut epilogue = vec![LATE_COMPLETE];
    for (index, segment) in segments.iter().enumerate() {
        out.extend(*segment);
        let crc = crc32c(SEED, segment).to_le_bytes();
        match index {
            0 if segment.is_empty() => (),
            0 => out.extend(crc),
            _ => epilogue.extend(crc),
        }
    }
    if count > 1 {
        epilogue.resize(1 + 3 * 4, 0);
        out.extend(epilogue);
    }
    out
}

/// Hands `bytes` over as far as the connection takes them; false when it has ended.
fn feed(server: &mut Connection, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let space = server.recv_space();
        let count = space.len().min(bytes.len());
        if count == 0 {
            return false;
        }
        let (now, later) = bytes.split_at(count);
        space[..count].copy_from_slice(now);
        bytes = later;
        if server.received(Stamp(1), count).is_err() || !answer(server) {
            return false;
        }
    }
    true
}

/// Answers as a driver would that lets everybody in; false when the connection has ended.
fn answer(server: &mut Connection) -> bool {
    while let Some(event) = server.next_event() {
        let ended = match event {
            Event::AuthRequest { method: 1, .. } => server.auth_done(9, mode::CRC, b"", b"", b""),
            Event::AuthRequest { .. } => server.auth_reply_more(b"challenge"),
            Event::AuthMore { payload } if payload.is_empty() => server.auth_bad(2, -13, &[1, 2], &[1]),
            Event::AuthMore { .. } => server.auth_done(9, mode::CRC, b"", &[1; 16], &[2; 64]),
            Event::SessionRequest(_) => server.answer_session(SessionAnswer::New),
            _ => Ok(()),
        };
        if ended.is_err() {
            return false;
        }
    }
    let queued = server.queued_bytes();
    server.sent(queued);
    true
}
