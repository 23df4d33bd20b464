//! Streams that a daemon must survive before anybody has authenticated: what a port scan, a broken client or
//! somebody with bad intentions sends.
//!
//! Formats: messenger v2.1, Ceph `src/msg/async/frames_v2.h` at v16.2.15. Written down here a second time on
//! purpose: a generator that used our own encoder could not make what our encoder refuses.

use crate::Random;
use nacre_buf::crc::crc32c;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const BANNER: &[u8] = b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const TAG_HELLO: u8 = 1;
const TAG_AUTH_REQUEST: u8 = 2;
const TAG_LAST: usize = 24;
const TAG_MESSAGE: u8 = 17;
const MESSAGE_HEADER_BYTES: usize = 41;
/// Connections that are kept open at a time, without ever completing anything.
const HALF_OPEN_MAX: usize = 200;
/// A peer that has seen the end of the stream closes its side within this time.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// Makes hostile streams from a seed.
#[derive(Debug)]
pub struct Hostile {
    random: Random,
}

/// A frame in CRC mode with these segments, all checksums right.
fn frame(tag: u8, segments: &[&[u8]]) -> Vec<u8> {
    let lengths: Vec<u32> = segments.iter().map(|s| u32::try_from(s.len()).expect("short")).collect();
    let mut out = preamble(tag, u8::try_from(segments.len()).expect("few"), &lengths);
    for (index, segment) in segments.iter().enumerate() {
        out.extend_from_slice(segment);
        if index == 0 && !segment.is_empty() {
            out.extend_from_slice(&crc32c(u32::MAX, segment).to_le_bytes());
        }
    }
    if segments.len() > 1 {
        out.push(0x0e);
        for index in 1..4 {
            let crc = segments.get(index).map_or(0, |segment| crc32c(u32::MAX, segment));
            out.extend_from_slice(&crc.to_le_bytes());
        }
    }
    out
}

/// A preamble with a right checksum, whatever it says.
fn preamble(tag: u8, count: u8, lengths: &[u32]) -> Vec<u8> {
    let mut out = vec![tag, count];
    for index in 0..4 {
        out.extend_from_slice(&lengths.get(index).copied().unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&8_u16.to_le_bytes());
    }
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&crc32c(0, &out).to_le_bytes());
    out
}

fn hello() -> Vec<u8> {
    // A client, and an IPv4 address of type "any".
    let mut payload =
        vec![8, 1, 1, 1, 28, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 127, 0, 0, 1];
    payload.extend_from_slice(&[0; 8]);
    payload
}

/// A cephx request of client.admin that asks for a challenge.
fn auth_request(method: u32) -> Vec<u8> {
    let mut payload = method.to_le_bytes().to_vec();
    for word in [2_u32, 2, 1] {
        payload.extend_from_slice(&word.to_le_bytes());
    }
    let mut blob = vec![10];
    blob.extend_from_slice(&8_u32.to_le_bytes());
    blob.extend_from_slice(&5_u32.to_le_bytes());
    blob.extend_from_slice(b"admin");
    blob.extend_from_slice(&0_u64.to_le_bytes());
    payload.extend_from_slice(&u32::try_from(blob.len()).expect("short").to_le_bytes());
    payload.extend_from_slice(&blob);
    payload
}

impl Hostile {
    /// Streams of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }

    /// The next stream.
    pub fn stream(&mut self) -> Vec<u8> {
        match self.random.below(12) {
            0 => self.noise(),
            1 => [BANNER.to_vec(), self.noise()].concat(),
            2 => self.cut(),
            3 => self.flipped(),
            4 => self.huge(),
            5 => self.any_frame(),
            6 => self.early_message(),
            7 => self.banner_lies(),
            8 => self.auth_lies(),
            9 => self.many_requests(),
            10 => self.edited_payload(),
            _ => self.greeting(),
        }
    }

    fn noise(&mut self) -> Vec<u8> {
        let count = 1 + self.random.below(4096);
        self.random.bytes(count)
    }

    /// What a good client begins with.
    fn greeting(&self) -> Vec<u8> {
        [BANNER.to_vec(), frame(TAG_HELLO, &[&hello()]), frame(TAG_AUTH_REQUEST, &[&auth_request(2)])]
            .concat()
    }

    fn opened(&self) -> Vec<u8> {
        [BANNER.to_vec(), frame(TAG_HELLO, &[&hello()])].concat()
    }

    fn cut(&mut self) -> Vec<u8> {
        let mut all = self.greeting();
        all.truncate(self.random.below(all.len()));
        all
    }

    fn flipped(&mut self) -> Vec<u8> {
        let mut all = self.greeting();
        self.random.edit(&mut all);
        all
    }

    /// Payloads of handshake frames changed, with right checksums.
    fn edited_payload(&mut self) -> Vec<u8> {
        let (mut first, mut second) = (hello(), auth_request(2));
        match self.random.below(2) {
            0 => self.random.edit(&mut first),
            _ => self.random.edit(&mut second),
        }
        [BANNER.to_vec(), frame(TAG_HELLO, &[&first]), frame(TAG_AUTH_REQUEST, &[&second])].concat()
    }

    fn lengths(&mut self) -> [u32; 4] {
        let all = [0, 1, 41, 0x1000, 0x10_0000, 0x400_0000, 0x1000_0000, 0x7fff_ffff, u32::MAX];
        std::array::from_fn(|_| *self.random.pick(&all))
    }

    /// Announces more than anybody should keep room for, and sends a little of it.
    fn huge(&mut self) -> Vec<u8> {
        let tag = *self.random.pick(&[TAG_HELLO, TAG_AUTH_REQUEST, TAG_MESSAGE, 5, 8, 11]);
        let count = 1 + u8::try_from(self.random.below(6)).expect("small");
        let lengths = self.lengths();
        [self.opened(), preamble(tag, count, &lengths), self.noise()].concat()
    }

    fn any_frame(&mut self) -> Vec<u8> {
        let mut out = self.opened();
        for _ in 0..=self.random.below(4) {
            let tag = u8::try_from(self.random.below(TAG_LAST)).expect("small");
            let segments: Vec<Vec<u8>> = (0..=self.random.below(4))
                .map(|_| {
                    let count = self.random.below(300);
                    self.random.bytes(count)
                })
                .collect();
            let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
            out.extend(frame(tag, &segments));
        }
        out
    }

    /// A message before any authentication.
    fn early_message(&mut self) -> Vec<u8> {
        let mut header = self.random.bytes(MESSAGE_HEADER_BYTES);
        let kind: u16 = *self.random.pick(&[15, 16, 42, 43, 50, 71, 0x7000, u16::MAX]);
        header[16..18].copy_from_slice(&kind.to_le_bytes());
        let front = self.noise();
        [self.opened(), frame(TAG_MESSAGE, &[&header, &front])].concat()
    }

    fn banner_lies(&mut self) -> Vec<u8> {
        let length: u16 = *self.random.pick(&[0, 1, 15, 17, 1024, u16::MAX]);
        let mut out = b"ceph v2\n".to_vec();
        out.extend_from_slice(&length.to_le_bytes());
        let count = self.random.below(usize::from(length) + 1).min(8192);
        out.extend(self.random.bytes(count));
        out
    }

    /// Counts and lengths inside of an authentication request that are not true.
    fn auth_lies(&mut self) -> Vec<u8> {
        let mut payload = auth_request(*self.random.pick(&[0, 1, 2, 4, u32::MAX]));
        let at = 4 * self.random.below(payload.len() / 4);
        let lie = self.random.nasty().to_le_bytes();
        payload[at..at + 4].copy_from_slice(&lie[..4]);
        [self.opened(), frame(TAG_AUTH_REQUEST, &[&payload])].concat()
    }

    /// The same request again and again, without waiting for an answer.
    fn many_requests(&mut self) -> Vec<u8> {
        let request = frame(TAG_AUTH_REQUEST, &[&auth_request(2)]);
        let repeats = 1 + self.random.below(100);
        [self.opened(), request.repeat(repeats)].concat()
    }
}

/// Sends `count` hostile streams of `seed` to a port: some connections end abruptly, some politely, many stay
/// half open for a while.
///
/// # Errors
/// When the port does not take connections any more, or does not close one that has ended.
pub fn attack(port: SocketAddr, seed: u64, count: usize) -> std::io::Result<()> {
    let mut hostile = Hostile::new(seed);
    let mut half_open = Vec::new();
    for _ in 0..count {
        let mut socket = TcpStream::connect(port)?;
        let stream = hostile.stream();
        // A peer that has seen enough closes while we still send: that is its right.
        let sent = socket.write_all(&stream).is_ok();
        match hostile.random.below(3) {
            0 => drop(socket),
            1 if sent => await_end(socket)?,
            _ => half_open.push(socket),
        }
        if half_open.len() > HALF_OPEN_MAX {
            half_open.swap_remove(hostile.random.below(HALF_OPEN_MAX));
        }
    }
    Ok(())
}

fn await_end(mut socket: TcpStream) -> std::io::Result<()> {
    if socket.shutdown(Shutdown::Write).is_err() {
        return Ok(()); // closed already
    }
    socket.set_read_timeout(Some(CLOSED_WITHIN))?;
    let mut answer = [0; 4096];
    loop {
        match socket.read(&mut answer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(_) => return Ok(()), // a reset is an end as well
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_streams_and_they_differ() {
        let streams = |seed| {
            let mut hostile = Hostile::new(seed);
            (0..200).map(|_| hostile.stream()).collect::<Vec<_>>()
        };
        assert_eq!(streams(1), streams(1));
        let different: std::collections::BTreeSet<_> = streams(1).into_iter().collect();
        assert!(different.len() > 150, "{}", different.len());
    }
}
