//! [`SealedSnapshot`]: the monitors' tables in one piece that only the recovery key opens.

use super::{DatedKey, tables};
use crate::batch::{Batch, Snapshot};
use crate::monmap::read_monmap;
use crate::osd::OsdMapsError;
use nacre_auth::{RecoveryKey, SEAL_OVERHEAD_BYTES};
use nacre_buf::Bytes;
use nacre_denc::{Decode, DecodeError, Reader, Writer};
use nacre_msg::RecoverySnapshotPart;
use nacre_types::{Entropy, UTime, Uuid};

/// Longest snapshot, sealed. With more in its tables a cluster has none.
pub const SNAPSHOT_BYTES_MAX: usize = 64 << 20;
const _: () =
    assert!(SNAPSHOT_BYTES_MAX == RecoverySnapshotPart::BYTES_MAX * RecoverySnapshotPart::COUNT_MAX as usize);

const MAGIC: [u8; 8] = *b"NACRERCV";
const VERSION: u16 = 1;
/// Magic, version, fsid, when it was made, which key: what anybody may read, and nobody change.
const HEAD_BYTES: usize = 8 + 2 + 16 + 8 + 8;

/// Where in the monitors' log tables were as they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPlace {
    /// How often the cluster had begun anew before.
    pub incarnation: u64,
    /// Index of the last entry that the tables have.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
}

/// A snapshot as OSDs keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSnapshot {
    /// The cluster that it is of.
    pub fsid: Uuid,
    /// When it was made.
    pub made: UTime,
    /// Which key it is sealed with.
    key_id: [u8; 8],
    /// All of it.
    pub bytes: Bytes,
}

/// What a snapshot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSnapshot {
    /// The cluster that it is of.
    pub fsid: Uuid,
    /// When it was made.
    pub made: UTime,
    /// Where in the log it was made; the newest of several is that of the greatest place.
    pub place: LogPlace,
    /// What puts the tables into an empty store.
    pub(crate) tables: Batch,
}

/// Why there is no snapshot, or it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// It is sealed with another key.
    #[error("sealed with another recovery key")]
    OtherKey,
    /// It is sealed with this key and does not open.
    #[error("damaged")]
    Damaged,
    /// It is a newer program's.
    #[error("of version {0}, which a newer program wrote; use that")]
    Version(u16),
    /// It is no snapshot, or what it holds does not decode.
    #[error("no recovery snapshot, or damaged: {0}")]
    Decode(#[from] DecodeError),
    /// The tables have no map.
    #[error(transparent)]
    Map(#[from] OsdMapsError),
    /// There is no cluster in the tables.
    #[error("the tables hold no cluster")]
    NoCluster,
    /// The tables are too large.
    #[error(
        "a recovery snapshot would be {0} bytes long, and at most {SNAPSHOT_BYTES_MAX} are kept: see what is large in `ceph config-key ls`"
    )]
    TooLong(usize),
}

/// Seals what of these tables is needed to begin anew, with the key that is among them; none where there is no key.
///
/// # Errors
/// [`SnapshotError`].
pub fn take_snapshot(
    tables: &dyn Snapshot,
    place: LogPlace,
    wall: UTime,
    entropy: &mut dyn Entropy,
) -> Result<Option<SealedSnapshot>, SnapshotError> {
    let Some(dated) = DatedKey::read(tables)? else { return Ok(None) };
    let fsid = read_monmap(tables)?.ok_or(SnapshotError::NoCluster)?.fsid;
    let picked = tables::pick(tables)?;
    let bytes = HEAD_BYTES + SEAL_OVERHEAD_BYTES + PLACE_BYTES + picked.bytes();
    if bytes > SNAPSHOT_BYTES_MAX {
        return Err(SnapshotError::TooLong(bytes));
    }
    let key_id = dated.key.id();
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        w.u64(place.incarnation);
        w.u64(place.index);
        w.u64(place.term);
        w.put(&picked);
    });
    let head = head_bytes(fsid, wall, key_id);
    let sealed = dated.key.seal(&head, Vec::from(w.finish()), entropy);
    Ok(Some(SealedSnapshot { fsid, made: wall, key_id, bytes: [head, sealed].concat().into() }))
}

/// An envelope and three numbers.
const PLACE_BYTES: usize = 6 + 3 * 8;

fn head_bytes(fsid: Uuid, made: UTime, key_id: [u8; 8]) -> Vec<u8> {
    let mut w = Writer::with_capacity(HEAD_BYTES);
    w.raw(&MAGIC);
    w.u16(VERSION);
    w.put(&fsid);
    w.put(&made);
    w.raw(&key_id);
    w.finish().to_vec()
}

impl SealedSnapshot {
    /// Reads what is not sealed.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn parse(bytes: Bytes) -> Result<Self, SnapshotError> {
        let mut r = Reader::new(bytes.clone());
        if r.array()? != MAGIC {
            return Err(DecodeError::Invalid { what: "recovery snapshot", value: 0 }.into());
        }
        let version = r.u16()?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        Ok(Self { fsid: r.get()?, made: r.get()?, key_id: r.array()?, bytes })
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn open(&self, key: &RecoveryKey) -> Result<OpenedSnapshot, SnapshotError> {
        if key.id() != self.key_id {
            return Err(SnapshotError::OtherKey);
        }
        let (head, sealed) = self.bytes.split_at_checked(HEAD_BYTES).ok_or(SnapshotError::Damaged)?;
        let plain = key.open(head, sealed).map_err(|_| SnapshotError::Damaged)?;
        let (place, tables) =
            Reader::new(Bytes::copy_from_slice(&plain)).envelope("recovery snapshot", 1, |_, r| {
                let place = LogPlace { incarnation: r.u64()?, index: r.u64()?, term: r.u64()? };
                Ok((place, Batch::decode(r)?))
            })?;
        Ok(OpenedSnapshot { fsid: self.fsid, made: self.made, place, tables })
    }

    /// The messages that carry it to an OSD.
    pub(crate) fn part(&self, index: u32) -> Option<RecoverySnapshotPart> {
        let size = RecoverySnapshotPart::BYTES_MAX;
        let from = (index as usize).checked_mul(size).filter(|from| *from < self.bytes.len())?;
        let bytes = self.bytes.slice(from..self.bytes.len().min(from + size));
        let count = u32::try_from(self.bytes.len().div_ceil(size)).ok()?;
        Some(RecoverySnapshotPart { made: self.made.sec.into(), index, count, bytes: bytes.into() })
    }
}
