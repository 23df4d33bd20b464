//! What each fuzz target does with its input. Nothing may panic, and what is accepted must be stable:
//! encoding it, decoding that and encoding again gives the same bytes.
//!
//! `cargo +nightly fuzz run --features libfuzzer message` and the like; the captured messages and maps of `testdata` make good
//! beginnings. `smoke` runs every target over a few inputs with the stable compiler.

#![expect(clippy::missing_panics_doc, reason = "a target panics where it finds something")]

mod auth;
mod classes;
mod device;
mod frames;
mod input;
mod metadata;
mod monitors;
pub mod program;
mod seeds;
#[cfg(test)]
mod smoke;

pub use auth::auth;
pub use classes::class_calls;
pub use device::device_label;
pub use frames::frames;
pub use metadata::store_metadata;
pub use monitors::{mon_link, recovery_key, recovery_snapshot};
pub use seeds::{Seed, seeds};

use input::Input;
use nacre_auth::Keyring;
use nacre_auth::caps::{MgrCaps, MonCaps, OsdCaps};
use nacre_buf::{BufList, Bytes};
use nacre_crush::CrushMap;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_maps::{FsMap, Incremental, MgrMap, MonMap, OsdMap};
use nacre_msg::{Message, RawMessage};
use nacre_txn::Transaction;
use nacre_types::{AuthName, EntityKind, PgId};

/// A message: type, versions and the length of the front come from the first bytes.
pub fn message(input: &[u8]) {
    let mut input = Input::new(input);
    let (kind, version, compat) = (input.u16(), u16::from(input.u8()), u16::from(input.u8()));
    let front = Bytes::copy_from_slice(input.chunk());
    let data = Bytes::copy_from_slice(input.rest()).into();
    let raw = RawMessage { tid: 1, kind, version, compat, priority: 127, front, middle: Bytes::new(), data };
    let Ok(message) = Message::decode(raw) else { return };
    let once = message.encode(1);
    let twice = Message::decode(once.clone()).expect("what was encoded decodes").encode(1);
    assert_eq!(once, twice);
}

fn stable<T: Decode + Encode>(input: &[u8]) -> Option<T> {
    stable_or(input, |_, _| None)
}

/// Checksums would hide everything behind them: `repaired` gets the one that would have been right.
fn stable_or<T: Decode + Encode>(
    input: &[u8],
    repaired: impl Fn(&[u8], u32) -> Option<Vec<u8>>,
) -> Option<T> {
    let value = match T::from_bytes(Bytes::copy_from_slice(input)) {
        Ok(value) => value,
        Err(DecodeError::Checksum { computed, .. }) => {
            T::from_bytes(repaired(input, computed)?.into()).ok()?
        }
        Err(_) => return None,
    };
    let once = value.to_bytes();
    let again = T::from_bytes(once.clone()).expect("what was encoded decodes");
    assert_eq!(once, again.to_bytes());
    Some(value)
}

/// `input` with `word` written `from_end` bytes before the end of the envelope at its beginning.
fn patched(input: &[u8], from_end: usize, word: u32) -> Option<Vec<u8>> {
    let mut bytes = input.to_vec();
    let length = u32::from_le_bytes(*bytes.get(2..)?.first_chunk()?);
    let at = usize::try_from(length).ok()?.checked_add(6)?.checked_sub(from_end)?;
    bytes.get_mut(at..at + 4)?.copy_from_slice(&word.to_le_bytes());
    Some(bytes)
}

/// A full map of the OSDs, and where it puts a placement group of its first pools.
pub fn osdmap(input: &[u8]) {
    let Some(map) = stable_or::<OsdMap>(input, |input, crc| patched(input, 4, crc)) else { return };
    for pool in map.pools.keys().take(2) {
        drop(map.pg_to_up_acting(PgId::new(*pool, 1)));
    }
}

/// An incremental map of the OSDs, applied to an empty map.
pub fn osdmap_incremental(input: &[u8]) {
    let Some(inc) = stable_or::<Incremental>(input, |input, crc| patched(input, 8, crc)) else { return };
    let mut map = OsdMap { epoch: inc.epoch.wrapping_sub(1), fsid: inc.fsid, ..OsdMap::default() };
    if map.apply(&inc).is_ok() {
        stable::<OsdMap>(&map.to_bytes());
    }
}

/// A CRUSH map, and placement with it: the mapper must end on whatever the decoder lets through.
pub fn crush(input: &[u8]) {
    let Some(map) = stable::<CrushMap>(input) else { return };
    let weights = [0x1_0000; 8];
    for rule in 0..2 {
        let devices = map.do_rule(rule, 1, 3, &weights, map.choose_args_for(-1));
        assert!(devices.len() <= 3);
    }
}

/// A map of the monitors.
pub fn monmap(input: &[u8]) {
    stable::<MonMap>(input);
}

/// A map of the managers.
pub fn mgrmap(input: &[u8]) {
    stable::<MgrMap>(input);
}

/// A map of the file systems.
pub fn fsmap(input: &[u8]) {
    stable::<FsMap>(input);
}

/// A transaction from another OSD: the ops, then the data that travels beside them.
pub fn transaction(input: &[u8]) {
    let mut input = Input::new(input);
    let ops = Bytes::copy_from_slice(input.chunk());
    let data: BufList = Bytes::copy_from_slice(input.rest()).into();
    let Ok(transaction) = Transaction::decode_parts(&mut Reader::new(ops), &data) else { return };
    let mut w = Writer::new();
    let data = transaction.encode_parts(&mut w);
    let again = Transaction::decode_parts(&mut Reader::new(w.finish()), &data);
    assert!(again.is_ok());
}

/// The text of a keyring, and of the caps of each service.
pub fn keyring(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(keyring) = Keyring::parse(&text) {
        drop(keyring);
    }
    let name = AuthName::new(EntityKind::CLIENT, "fuzz");
    drop((OsdCaps::parse(&text), MonCaps::parse(&text, &name), MgrCaps::parse(&text, &name)));
}
