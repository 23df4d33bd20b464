//! Beginning anew when all monitors are lost: every OSD keeps a *recovery snapshot*, the monitors' tables sealed to the *recovery key*, which
//! is shown once and kept by the administrator. An OSD's disk alone opens nothing.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the key, as the tables have it, and which OSD has which snapshot |
//! | `tables` | what of the tables goes into a snapshot |
//! | `sealed` | the snapshot's layout, and sealing and opening it |
//!
//! Which OSD gets one when is in `handout`, what a monitor begins with that begins anew in `restore`. Layouts: `docs/formats/recovery-snapshot.md`.

mod sealed;
mod tables;

pub use sealed::{
    LogPlace, OpenedSnapshot, SNAPSHOT_BYTES_MAX, SealedSnapshot, SnapshotError, take_snapshot,
};
pub(crate) use tables::concerns;
#[cfg(test)]
pub(crate) use tables::is_known;

use crate::batch::{Batch, Snapshot};
use nacre_auth::{RECOVERY_KEY_BYTES, RecoveryKey};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Entropy, OsdId, UTime};
use std::collections::BTreeMap;

const TABLE: &str = "recovery";
const KEY: &str = "key";

/// The recovery key, and since when it is the one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatedKey {
    /// What seals snapshots and opens them.
    pub key: RecoveryKey,
    /// When it was made; snapshots of before are sealed with another one.
    pub made: UTime,
}

impl DatedKey {
    /// The key of the tables; none in a cluster that has not been given one.
    pub(crate) fn read(snapshot: &dyn Snapshot) -> Result<Option<Self>, DecodeError> {
        snapshot.get(TABLE, KEY).map(Self::from_bytes).transpose()
    }

    /// Adds it to a batch, in place of the key before.
    pub(crate) fn store(&self, batch: &mut Batch) {
        batch.put(TABLE, KEY, self.to_bytes());
    }
}

/// In an envelope (version 1, compat 1): when it was made, the key's bytes.
impl Encode for DatedKey {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.made);
            w.raw(self.key.secret());
        });
    }
}

impl Decode for DatedKey {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("recovery key", 1, |_, r| {
            let made = r.get()?;
            Ok(Self { key: RecoveryKey::from_secret(r.array::<RECOVERY_KEY_BYTES>()?), made })
        })
    }
}

/// The recovery key and what is known of the OSDs' snapshots.
#[derive(Debug, Default)]
pub struct Recovery {
    key: Option<DatedKey>,
    /// When the snapshot was made that an OSD says to have, in seconds since 1970; 0 for none. Not durable: OSDs say so as they subscribe.
    pub(crate) held: BTreeMap<OsdId, u64>,
    /// Why the last try to make a snapshot failed, for `health`; none after one that did not, and until a new leader has tried.
    pub(crate) failure: Option<String>,
    changes: Batch,
}

impl Recovery {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        Ok(Self { key: DatedKey::read(snapshot)?, ..Self::default() })
    }

    /// The key, if the cluster has one.
    #[must_use]
    pub fn key(&self) -> Option<&DatedKey> {
        self.key.as_ref()
    }

    /// When the snapshot was made that each OSD says to have, in seconds since 1970; 0 for none. Only of OSDs that have subscribed.
    #[must_use]
    pub fn held(&self) -> &BTreeMap<OsdId, u64> {
        &self.held
    }

    /// Makes a new key; what is sealed with the one before is replaced as soon as the OSDs are reached.
    pub(crate) fn rotate(&mut self, wall: UTime, entropy: &mut dyn Entropy) -> RecoveryKey {
        let key = RecoveryKey::generate(entropy);
        let dated = DatedKey { key: key.clone(), made: wall };
        self.changes = Batch::default(); // the same key of the table
        dated.store(&mut self.changes);
        self.key = Some(dated);
        key
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}

#[cfg(test)]
mod tests;
