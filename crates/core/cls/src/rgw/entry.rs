//! [`DirEntry`]: what a bucket index knows of one object or version.
//! Formats: Ceph `src/cls/rgw/cls_rgw_types.h`, versions as v16.2.15 writes them.

use nacre_buf::ByteStr;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::UTime;

/// Bits of [`DirEntry::flags`].
pub(super) mod flag {
    /// One version of a versioned object.
    pub(crate) const VERSION: u16 = 1;
    /// The version that readers without a version id see.
    pub(crate) const CURRENT: u16 = 2;
    /// It says that the object is deleted.
    pub(crate) const DELETE_MARKER: u16 = 4;
    /// Stands under the plain name of a versioned object, whose versions are elsewhere.
    pub(crate) const PLACEHOLDER: u16 = 8;
    /// Not an object: what all names up to a delimiter have in common. Only in listings.
    pub(crate) const COMMON_PREFIX: u16 = 0x8000;
}

/// Writes an integer in the fewest of 1, 2, 3, 5 or 9 bytes. 65,536 becomes 0, as from Ceph.
pub(super) fn put_packed(w: &mut Writer, value: u64) {
    let [b0, b1, b2, b3, ..] = value.to_le_bytes();
    match value {
        0..=0x7f => w.u8(b0),
        0x80..=0xff => w.raw(&[0x81, b0]),
        0x100..=0x1_0000 => w.raw(&[0x82, b0, b1]),
        0x1_0001..=0x100_0000 => w.raw(&[0x84, b0, b1, b2, b3]),
        _ => {
            w.u8(0x88);
            w.u64(value);
        }
    }
}

/// Reads what [`put_packed`] writes.
pub(super) fn packed(r: &mut Reader) -> Result<u64, DecodeError> {
    match r.u8()? {
        small @ 0..=0x7f => Ok(small.into()),
        0x81 => Ok(r.u8()?.into()),
        0x82 => Ok(r.u16()?.into()),
        0x84 => Ok(r.u32()?.into()),
        0x88 => r.u64(),
        other => Err(DecodeError::Invalid { what: "packed integer", value: other.into() }),
    }
}

/// `cls_rgw_obj_key`: an object, or with an instance one version of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) name: ByteStr,
    pub(super) instance: ByteStr,
}

impl Key {
    /// The object itself.
    pub(super) fn plain(name: ByteStr) -> Self {
        Self { name, instance: ByteStr::EMPTY }
    }
}

impl Encode for Key {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.name);
            w.put(&self.instance);
        });
    }
}

impl Decode for Key {
    const MIN_BYTES: usize = 14;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("cls_rgw_obj_key", 1, |_, r| Ok(Self { name: r.get()?, instance: r.get()? }))
    }
}

/// `rgw_bucket_entry_ver`: which write of the data an entry speaks of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    /// Id of the data pool, `u64::MAX` (-1) when not known.
    pub(super) pool: u64,
    pub(super) epoch: u64,
}

impl Default for Version {
    fn default() -> Self {
        Self { pool: u64::MAX, epoch: 0 }
    }
}

impl Encode for Version {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_packed(w, self.pool);
            put_packed(w, self.epoch);
        });
    }
}

impl Decode for Version {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_entry_ver", 1, |_, r| Ok(Self { pool: packed(r)?, epoch: packed(r)? }))
    }
}

/// `rgw_bucket_dir_entry_meta`
#[derive(Clone, Default)]
pub(super) struct Meta {
    /// `RGWObjCategory`: 0 none, 1 main, 2 shadow, 3 multipart.
    pub(super) category: u8,
    /// Bytes that are stored.
    pub(super) size: u64,
    pub(super) mtime: UTime,
    pub(super) etag: ByteStr,
    pub(super) owner: ByteStr,
    pub(super) owner_name: ByteStr,
    pub(super) content_type: ByteStr,
    /// Bytes that the client sees; more than are stored when they were compressed.
    pub(super) accounted_size: u64,
    pub(super) user_data: ByteStr,
    pub(super) storage_class: ByteStr,
    pub(super) appendable: bool,
}

impl Encode for Meta {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 3, |w| {
            w.u8(self.category);
            w.u64(self.size);
            w.put(&self.mtime);
            w.put(&self.etag);
            w.put(&self.owner);
            w.put(&self.owner_name);
            w.put(&self.content_type);
            w.u64(self.accounted_size);
            w.put(&self.user_data);
            w.put(&self.storage_class);
            w.bool(self.appendable);
        });
    }
}

impl Decode for Meta {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_dir_entry_meta", 6, |version, r| {
            let mut meta = Self {
                category: r.u8()?,
                size: r.u64()?,
                mtime: r.get()?,
                etag: r.get()?,
                owner: r.get()?,
                owner_name: r.get()?,
                ..Self::default()
            };
            if version >= 2 {
                meta.content_type = r.get()?;
            }
            meta.accounted_size = if version >= 4 { r.u64()? } else { meta.size };
            if version >= 5 {
                meta.user_data = r.get()?;
            }
            if version >= 6 {
                meta.storage_class = r.get()?;
            }
            if version >= 7 {
                meta.appendable = r.bool()?;
            }
            Ok(meta)
        })
    }
}

/// `rgw_bucket_pending_info`: a change that was announced and not completed yet.
#[derive(Clone)]
pub(super) struct Pending {
    pub(super) state: u8,
    pub(super) since: UTime,
    pub(super) op: u8,
}

impl Encode for Pending {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.u8(self.state);
            w.put(&self.since);
            w.u8(self.op);
        });
    }
}

impl Decode for Pending {
    const MIN_BYTES: usize = 16;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_pending_info", 2, |_, r| {
            Ok(Self { state: r.u8()?, since: r.get()?, op: r.u8()? })
        })
    }
}

/// `rgw_bucket_dir_entry`
#[derive(Clone, Default)]
pub(super) struct DirEntry {
    pub(super) key: Key,
    pub(super) version: Version,
    pub(super) locator: ByteStr,
    /// False while a first write is pending, or after a removal with others pending.
    pub(super) exists: bool,
    pub(super) meta: Meta,
    /// By tag, in order; one tag may stand several times.
    pub(super) pending: Vec<(ByteStr, Pending)>,
    /// [`super::header::Header::version`] when it was completed.
    pub(super) index_version: u64,
    pub(super) tag: ByteStr,
    pub(super) flags: u16,
    /// Orders the versions of an object; 0 before it is one.
    pub(super) versioned_epoch: u64,
}

impl DirEntry {
    pub(super) fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Readers without a version id see it.
    pub(super) fn is_visible(&self) -> bool {
        let is_current = !self.has(flag::VERSION) || self.has(flag::CURRENT);
        is_current && !self.has(flag::DELETE_MARKER)
    }

    /// Notes a change that begins.
    pub(super) fn announce(&mut self, tag: ByteStr, pending: Pending) {
        let at = self.pending.partition_point(|(other, _)| *other <= tag);
        self.pending.insert(at, (tag, pending));
    }

    /// Forgets an announced change; false when there was none.
    pub(super) fn withdraw(&mut self, tag: &ByteStr) -> bool {
        let found = self.pending.iter().position(|(other, _)| other == tag);
        found.map(|index| self.pending.remove(index)).is_some()
    }
}

impl Encode for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 3, |w| {
            w.put(&self.key.name);
            w.u64(self.version.epoch);
            w.bool(self.exists);
            w.put(&self.meta);
            w.put(&self.pending);
            w.put(&self.locator);
            w.put(&self.version);
            put_packed(w, self.index_version);
            w.put(&self.tag);
            w.put(&self.key.instance);
            w.u16(self.flags);
            w.u64(self.versioned_epoch);
        });
    }
}

impl Decode for DirEntry {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_dir_entry", 8, |version, r| {
            let mut entry = Self { key: Key::plain(r.get()?), ..Self::default() };
            entry.version.epoch = r.u64()?;
            entry.exists = r.bool()?;
            entry.meta = r.get()?;
            entry.pending = r.get()?;
            entry.pending.sort_by(|(one, _), (other, _)| one.cmp(other));
            if version >= 2 {
                entry.locator = r.get()?;
            }
            if version >= 4 {
                entry.version = r.get()?;
            }
            if version >= 5 {
                entry.index_version = packed(r)?;
                entry.tag = r.get()?;
            }
            if version >= 6 {
                entry.key.instance = r.get()?;
            }
            if version >= 7 {
                entry.flags = r.u16()?;
            }
            if version >= 8 {
                entry.versioned_epoch = r.u64()?;
            }
            Ok(entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_integers_take_the_fewest_bytes() {
        let lengths =
            [(0x7f, 1), (0x80, 2), (0xff, 2), (0x100, 3), (0xffff, 3), (0x1_0001, 5), (0x100_0001, 9)];
        for (value, length) in lengths {
            let mut w = Writer::new();
            put_packed(&mut w, value);
            assert_eq!(w.len(), length, "{value}");
            assert_eq!(packed(&mut Reader::new(w.finish())), Ok(value));
        }
        let mut w = Writer::new();
        put_packed(&mut w, 0x1_0000);
        assert_eq!(packed(&mut Reader::new(w.finish())), Ok(0), "as Ceph has it");
    }
}
