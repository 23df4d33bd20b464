//! What monitors tell each other, and what a cluster begins anew from that has lost all of them.

use crate::input::Input;
use nacre_auth::RecoveryKey;
use nacre_buf::Bytes;
use nacre_denc::{Decode, Encode};
use nacre_mon::recovery::{LogPlace, SealedSnapshot, take_snapshot};
use nacre_mon::{Batch, MemorySnapshot, MkfsOptions, restore};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AddrVec, EntityAddr, UTime, Uuid};

const WALL: UTime = UTime { sec: 5000, nsec: 0 };
/// Bytes of a snapshot that are not sealed: docs/formats/recovery-snapshot.md.
const HEAD_BYTES: usize = 42;

/// The data of a message between monitors.
pub fn mon_link(input: &[u8]) {
    let Ok(once) = nacre_monitor::testing::reencode(Bytes::copy_from_slice(input)) else { return };
    let twice = nacre_monitor::testing::reencode(once.clone()).expect("what was encoded decodes");
    assert_eq!(once, twice);
}

pub(crate) fn link_seeds() -> Vec<Vec<u8>> {
    nacre_monitor::testing::encoded_samples().iter().map(|data| data.to_vec()).collect()
}

/// The text of a recovery key, as somebody types it.
pub fn recovery_key(input: &[u8]) {
    let Ok(key) = RecoveryKey::parse(&String::from_utf8_lossy(input)) else { return };
    assert_eq!(RecoveryKey::parse(&key.to_text()), Ok(key));
}

/// Keys that are well written, and one as somebody types it.
pub(crate) fn key_seeds() -> Vec<Vec<u8>> {
    let known = RecoveryKey::from_secret(std::array::from_fn(|at| u8::try_from(at).expect("small")));
    let texts = [key().to_text(), known.to_text(), key().to_text().to_lowercase().replace('-', " ")];
    texts.into_iter().map(String::into_bytes).collect()
}

fn key() -> RecoveryKey {
    RecoveryKey::from_secret([7; 32])
}

/// First byte 0: the rest is a recovery snapshot as an OSD has it. Else: what is sealed in one, and the cluster begins anew from it.
pub fn recovery_snapshot(input: &[u8]) {
    let mut input = Input::new(input);
    let bytes = if input.u8() == 0 {
        Bytes::copy_from_slice(input.rest())
    } else {
        let honest = snapshot();
        let head = honest.bytes.get(..HEAD_BYTES).expect("it has a head");
        let sealed = key().seal(head, input.rest().to_vec(), &mut SeededEntropy(2));
        [head, &sealed].concat().into()
    };
    let Ok(snapshot) = SealedSnapshot::parse(bytes.clone()) else { return };
    assert_eq!(snapshot.bytes, bytes, "it is kept as it came");
    let Ok(opened) = snapshot.open(&key()) else { return };
    let Ok(restored) = restore(&opened, &key(), None, ("z", addr(9)), WALL) else { return };
    let tables = restored.tables.to_bytes();
    assert_eq!(Batch::from_bytes(tables.clone()).map(|again| again.to_bytes()), Ok(tables));
}

/// One as it is, and what is in it.
pub(crate) fn snapshot_seeds() -> Vec<Vec<u8>> {
    let snapshot = snapshot();
    let (head, sealed) = snapshot.bytes.split_at(HEAD_BYTES);
    let content = key().open(head, sealed).expect("it is sealed with this key");
    vec![[&[0][..], &snapshot.bytes].concat(), [&[1][..], &content].concat()]
}

fn addr(port: u16) -> AddrVec {
    AddrVec::of(EntityAddr::parse(&format!("v2:127.0.0.1:{port}/0")).expect("an address"))
}

/// That of a new cluster with three monitors.
fn snapshot() -> SealedSnapshot {
    let mons = ["a", "b", "c"].into_iter().zip(1..).map(|(name, port)| (name.to_owned(), addr(port)));
    let mut entropy = SeededEntropy(1);
    let mut options = MkfsOptions::new(Uuid::from_random([7; 16]), mons.collect(), WALL, &mut entropy);
    options.recovery_key = Some(key());
    let mut tables = MemorySnapshot::default();
    tables.apply(&nacre_mon::mkfs(&options, WALL).expect("valid options"));
    let place = LogPlace { incarnation: 0, index: 900, term: 30 };
    let taken = take_snapshot(&tables, place, WALL, &mut entropy);
    taken.expect("a cluster").expect("it has a key")
}
