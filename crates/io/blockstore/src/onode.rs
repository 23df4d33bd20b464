//! [`Onode`]: what the store knows of one object, and how a checkpoint keeps it in the KV store.

use crate::blocks::Blocks;
use crate::device::{DeviceBlock, Run};
use crate::memtable::Weigh;
use crate::slot::Slot;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{HObject, SpgId};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Written by this code, and the newest it reads. Version 1 named the object, and had an omap under the object's own
/// number or none.
const VERSION: u8 = 2;
/// Version, compat and length before the fields.
const ENVELOPE_BYTES: usize = 6;

type Attrs = BTreeMap<ByteStr, Bytes>;

/// Most objects have no attributes: they share it.
static NO_ATTRS: LazyLock<Arc<Attrs>> = LazyLock::new(Arc::default);

fn shared(attrs: Attrs) -> Arc<Attrs> {
    if attrs.is_empty() { Arc::clone(&NO_ATTRS) } else { Arc::new(attrs) }
}

/// One object. The large parts are shared with a running checkpoint and copied when changed meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Onode {
    /// Its number, never used again in this store.
    pub(crate) id: u64,
    pub(crate) meta: Bytes,
    /// Length in bytes. No slot lies behind it, and bytes behind it in the last slot are zeros.
    pub(crate) size: u64,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) attrs: Arc<Attrs>,
    /// Number of its omap, whose entries are in the KV store and above; zero while it never had one. Cleared, it
    /// gets a new one when it has entries again.
    pub(crate) omap: u64,
    /// Bytes of the omap's keys and values.
    pub(crate) omap_bytes: u64,
    pub(crate) omap_header: Bytes,
}

/// An onode as the KV store has it.
pub(crate) struct Stored {
    pub(crate) onode: Onode,
    /// Of version 1 only: where the object is.
    pub(crate) name: Option<(SpgId, HObject)>,
}

/// What a stretch of blocks takes beside their checksums.
const STRETCH_BYTES: usize = 12;
/// About the bytes of an onode without its parts.
const ONODE_BYTES: usize = 256;

impl Weigh for Arc<Onode> {
    fn weight(&self) -> usize {
        let attrs: usize = self.attrs.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
        ONODE_BYTES + self.blocks.bytes() + self.meta.len() + self.omap_header.len() + attrs
    }
}

/// Blocks side by side in the object and on the device, being written down.
struct Stretch {
    /// Behind the last one.
    index: u32,
    block: u32,
    count: u32,
    /// Where the count is to go.
    count_at: usize,
}

/// Writes blocks down as stretches, in one pass: an object of 4 MiB has a thousand.
fn encode_blocks(w: &mut Writer, blocks: impl Iterator<Item = (u32, DeviceBlock)>) {
    let (stretches_at, mut stretches) = (w.len(), 0);
    w.u32(0);
    let mut open: Option<Stretch> = None;
    blocks.for_each(|(index, device)| {
        match &mut open {
            Some(open) if open.index == index && open.block == device.block => open.count += 1,
            other => {
                stretches += 1;
                w.u32(index);
                w.u32(device.block);
                let begun = Stretch { index, block: device.block, count: 1, count_at: w.len() };
                w.u32(0);
                if let Some(done) = other.replace(begun) {
                    w.patch_u32(done.count_at, done.count);
                }
            }
        }
        if let Some(open) = &mut open {
            // Both wrap at most behind the last block there can be.
            (open.index, open.block) = (index.wrapping_add(1), device.block.wrapping_add(1));
        }
        w.u32(device.crc);
    });
    if let Some(done) = open {
        w.patch_u32(done.count_at, done.count);
    }
    w.patch_u32(stretches_at, stretches);
}

impl Onode {
    /// Everything but the omap's entries, with `blocks` in place of the slots.
    pub(crate) fn encode(&self, blocks: impl Iterator<Item = (u32, DeviceBlock)>) -> Bytes {
        let blocks_bytes = (STRETCH_BYTES + 4) * self.blocks.len();
        let mut w = Writer::with_capacity(ONODE_BYTES + self.meta.len() + blocks_bytes);
        w.envelope(VERSION, VERSION, |w| {
            w.blob(&self.meta);
            w.u64(self.size);
            w.u64(self.omap);
            w.u64(self.omap_bytes);
            w.blob(&self.omap_header);
            w.count(self.attrs.len());
            for (name, value) in self.attrs.iter() {
                w.blob(name);
                w.blob(value);
            }
            encode_blocks(w, blocks);
        });
        // It stays in memory for a while: without the room for stretches that there were not.
        Bytes::copy_from_slice(w.as_slice())
    }

    /// What [`Onode::encode`] made, or an earlier version.
    pub(crate) fn decode(id: u64, value: Bytes) -> Result<Stored, DecodeError> {
        Reader::new(value).envelope("onode", VERSION, |version, r| {
            let name = if version < 2 { Some((r.get()?, r.get()?)) } else { None };
            let (meta, size) = (r.blob()?, r.u64()?);
            let (omap, omap_bytes) = if version < 2 { (0, 0) } else { (r.u64()?, r.u64()?) };
            let omap_header = r.blob()?;
            let attrs = (0..r.count(8)?)
                .map(|_| Ok((r.str()?, r.blob()?)))
                .collect::<Result<Attrs, DecodeError>>()?;
            let mut blocks = Vec::new();
            for _ in 0..r.count(12)? {
                decode_stretch(r, &mut blocks)?;
            }
            let (attrs, blocks) = (shared(attrs), Arc::new(blocks.into_iter().collect()));
            let onode = Self { id, meta, size, blocks, attrs, omap, omap_bytes, omap_header };
            Ok(Stored { onode, name })
        })
    }

    /// A block that it refers to and that is not in the data area: nothing may be read or written there.
    pub(crate) fn block_outside(&self, area: Run) -> Option<u32> {
        let mut devices = self.blocks.values().filter_map(|slot| slot.device());
        devices.find(|device| !area.blocks().contains(&device.block)).map(|device| device.block)
    }

    /// Of an onode that may be damaged further behind: its name, if it is of version 1, and the number of its omap.
    pub(crate) fn claimed(id: u64, value: Bytes) -> Result<(Option<(SpgId, HObject)>, u64), DecodeError> {
        let version = value.first().copied().unwrap_or_default();
        let mut r = Reader::new(value);
        r.skip(ENVELOPE_BYTES)?;
        if version < 2 {
            return Ok((Some((r.get()?, r.get()?)), id));
        }
        let (_meta, _size) = (r.blob()?, r.u64()?);
        Ok((None, r.u64()?))
    }
}

fn decode_stretch(r: &mut Reader, blocks: &mut Vec<(u32, Slot)>) -> Result<(), DecodeError> {
    let (index, block) = (r.u32()?, r.u32()?);
    for nth in 0..r.count(4)? {
        let crc = r.u32()?;
        let nth = u32::try_from(nth).unwrap_or(u32::MAX);
        let (index, block) = index
            .checked_add(nth)
            .zip(block.checked_add(nth))
            .ok_or(DecodeError::Invalid { what: "blocks of an onode", value: block.into() })?;
        blocks.push((index, Slot::Device(DeviceBlock { block, crc })));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_onode_survives_its_encoding() {
        let blocks = [(0, 7), (1, 8), (2, 20), (9, 21)];
        let blocks = blocks.map(|(index, block)| (index, DeviceBlock { block, crc: index * 3 }));
        let onode = Onode {
            id: 5,
            meta: Bytes::from_static(b"m"),
            size: 40_000,
            attrs: Arc::new(BTreeMap::from([("k".into(), Bytes::from_static(b"v"))])),
            omap: 9,
            omap_bytes: 77,
            omap_header: Bytes::from_static(b"h"),
            ..Onode::default()
        };
        let value = onode.encode(blocks.into_iter());
        let Stored { onode: back, name } = Onode::decode(5, value.clone()).expect("our own bytes");
        assert_eq!(name, None);
        assert_eq!((back.id, &back.meta, back.size, &back.attrs), (5, &onode.meta, 40_000, &onode.attrs));
        assert_eq!((back.omap, back.omap_bytes, &back.omap_header), (9, 77, &onode.omap_header));
        let found: Vec<_> =
            back.blocks.iter().filter_map(|(index, slot)| Some((index, slot.device()?))).collect();
        assert_eq!(found, blocks);
        assert!(Onode::decode(5, value.slice(..value.len() - 3)).is_err());
    }
}
