//! What several maps' codecs share.

use nacre_buf::crc::crc32c;
use nacre_denc::{Encode, Writer};
use nacre_types::{AddrKind, EntityAddr, UTime};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Writes the checksum of everything since `start` into a place `from_end` bytes before the end; the bytes
/// behind that place are covered too.
pub(crate) fn seal(w: &mut Writer, start: usize, from_end: usize) {
    let at = w.len() - from_end;
    let bytes = w.as_slice();
    let front = crc32c(u32::MAX, bytes.get(start..at).unwrap_or_default());
    let crc = crc32c(front, bytes.get(at + 4..).unwrap_or_default());
    w.patch_u32(at, crc);
}

/// Ceph compares addresses by their bytes in memory: kind and nonce little-endian, then the socket address.
fn memory_order(addr: &EntityAddr) -> ([u8; 8], Vec<u8>) {
    let kind = match addr.kind {
        AddrKind::None => 0,
        AddrKind::Legacy => 1,
        AddrKind::Msgr2 => 2,
        AddrKind::Any => 3,
        AddrKind::Cidr => 4,
    };
    let mut head = [0; 8];
    head[0] = kind;
    head[4..].copy_from_slice(&addr.nonce.to_le_bytes());
    let socket = match addr.socket {
        None => Vec::new(),
        Some(SocketAddr::V4(v4)) => [&socket_head(2, v4.port())[..], &v4.ip().octets()].concat(),
        Some(SocketAddr::V6(v6)) => [
            &socket_head(10, v6.port())[..],
            &v6.flowinfo().to_le_bytes(),
            &v6.ip().octets(),
            &v6.scope_id().to_le_bytes(),
        ]
        .concat(),
    };
    (head, socket)
}

fn socket_head(family: u8, port: u16) -> [u8; 4] {
    let [low, high] = port.to_le_bytes();
    [family, 0, high, low]
}

/// Version from which OSD sections carry ranges of blocklisted addresses.
pub(crate) const RANGES_VERSION: u8 = 11;

/// A blocklist, in Ceph's order of addresses.
pub(crate) fn put_blocklist(w: &mut Writer, blocklist: &BTreeMap<EntityAddr, UTime>) {
    let mut entries: Vec<_> = blocklist.iter().collect();
    entries.sort_by_cached_key(|(addr, _)| memory_order(addr));
    w.count(entries.len());
    for (addr, until) in entries {
        addr.encode(w);
        until.encode(w);
    }
}
