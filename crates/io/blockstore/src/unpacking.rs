//! Decompressing blobs whose blocks are in memory: for fetches, a few in each turn, and for the checkpoint.

use crate::BLOCK;
use crate::blob::Blob;
use crate::codec::{Codec, UnpackError};
use crate::fetch::{Damage, DamageKind};
use crate::store::BlockStore;
use nacre_buf::{AlignedBuf, Bytes};
use std::sync::Arc;

/// What a blob holds, whose blocks on the device have this content.
pub(crate) fn unpack(
    codec: &mut Codec,
    blob: &Blob,
    stored: impl IntoIterator<Item = Bytes>,
) -> Result<Bytes, UnpackError> {
    let mut packed = Vec::with_capacity(blob.stored().len() * BLOCK);
    stored.into_iter().for_each(|block| packed.extend_from_slice(&block));
    packed.truncate(blob.bytes() as usize);
    let mut out = AlignedBuf::with_len(blob.blocks() as usize * BLOCK);
    codec.unpack(blob.algorithm, &packed, &mut out)?;
    Ok(out.freeze())
}

impl BlockStore {
    /// Decompresses what a fetch waits for, all of whose blocks are in memory, as far as the turn has time for it. True when the fetch has
    /// all of it; otherwise it goes on in the next turn.
    pub(crate) fn unpack_for(&mut self, id: usize, blobs: &[Arc<Blob>]) -> bool {
        for blob in blobs {
            let Some(fetch) = self.fetches.get_mut(id) else { return true };
            if fetch.unpacked.contains(&blob.first()) {
                continue;
            }
            if self.unpacked.pin(blob) {
                fetch.unpacked.push(blob.first());
                continue;
            }
            let is_its_turn = self.unpacking_now == Some(id);
            if is_its_turn && self.unpacks_left == 0 {
                self.unpacking.push_front(id);
                return false;
            }
            if !is_its_turn && (self.unpacks_left == 0 || !self.unpacking.is_empty()) {
                self.unpacking.push_back(id);
                return false;
            }
            self.unpacks_left -= 1;
            let stored = blob.stored().iter().map(|device| self.cache.block(device.block));
            // All of it is there: it was looked for just now.
            let Some(stored) = stored.collect::<Option<Vec<Bytes>>>() else { continue };
            match unpack(&mut self.codec, blob, stored) {
                Ok(bytes) => {
                    self.unpacked.insert(blob, bytes);
                    if let Some(fetch) = self.fetches.get_mut(id) {
                        fetch.unpacked.push(blob.first());
                    }
                }
                Err(error) => {
                    tracing::error!(block = blob.first(), %error, "a blob is damaged");
                    let damage = Damage { reason: error.to_string(), kind: DamageKind::Lost };
                    self.remember_damage(blob.first(), damage);
                }
            }
        }
        true
    }

    /// Fetches that wait for their turn go on, one after the other, so that few have what they need half.
    pub(crate) fn unpack_some(&mut self) {
        while self.unpacks_left > 0
            && let Some(id) = self.unpacking.pop_front()
        {
            self.unpacking_now = Some(id);
            self.continue_fetch(id);
        }
        self.unpacking_now = None;
    }

    /// Whether a block that the blob needs is known to be damaged, and how.
    pub(crate) fn damage_of(&self, blob: &Blob) -> Option<&Damage> {
        blob.stored().iter().find_map(|device| self.damaged.get(&{ device.block }))
    }
}
