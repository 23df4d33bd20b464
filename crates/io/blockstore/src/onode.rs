//! [`Onode`]: what the store knows of one object, and how a checkpoint keeps it in the KV store.

use crate::overlay::Dirty;
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_types::{HObject, SpgId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Written by this code, and the newest it reads.
const VERSION: u8 = 1;
/// Version, compat and length before the fields.
const ENVELOPE_BYTES: usize = 6;

/// A block on the device and the CRC-32C of its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceBlock {
    pub(crate) block: u32,
    pub(crate) crc: u32,
}

/// Where one 4 KiB block of an object is.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// At home.
    Device(DeviceBlock),
    /// In memory, until a checkpoint writes it home.
    Memory(Arc<Dirty>),
}

impl Slot {
    /// The device block that this slot has a reference to.
    pub(crate) fn device(&self) -> Option<DeviceBlock> {
        match self {
            Self::Device(device) => Some(*device),
            Self::Memory(dirty) => dirty.base(),
        }
    }
}

/// Blocks of an object by index; what is absent is a hole.
pub(crate) type Blocks = BTreeMap<u32, Slot>;

/// One object. The large parts are shared with a running checkpoint and copied when changed meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Onode {
    /// Its number, never used again in this store.
    pub(crate) id: u64,
    pub(crate) meta: Bytes,
    /// Length in bytes. No slot lies behind it, and bytes behind it in the last slot are zeros.
    pub(crate) size: u64,
    pub(crate) blocks: Arc<Blocks>,
    pub(crate) attrs: Arc<BTreeMap<ByteStr, Bytes>>,
    pub(crate) omap: Arc<BTreeMap<ByteStr, Bytes>>,
    pub(crate) omap_header: Bytes,
}

/// Blocks side by side in the object and on the device.
struct Stretch {
    index: u32,
    block: u32,
    crcs: Vec<u32>,
}

fn stretches(blocks: impl Iterator<Item = (u32, DeviceBlock)>) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    for (index, device) in blocks {
        match out.last_mut() {
            Some(last) if continues(last, index, device.block) => last.crcs.push(device.crc),
            _ => out.push(Stretch { index, block: device.block, crcs: vec![device.crc] }),
        }
    }
    out
}

fn continues(stretch: &Stretch, index: u32, block: u32) -> bool {
    let count = u32::try_from(stretch.crcs.len()).unwrap_or(u32::MAX);
    stretch.index.checked_add(count) == Some(index) && stretch.block.checked_add(count) == Some(block)
}

impl Onode {
    /// Everything but the omap, with `blocks` in place of the slots.
    pub(crate) fn encode(
        &self,
        at: &SpgId,
        name: &HObject,
        blocks: impl Iterator<Item = (u32, DeviceBlock)>,
    ) -> Bytes {
        let mut w = Writer::new();
        w.envelope(VERSION, 1, |w| {
            w.put(at);
            w.put(name);
            w.blob(&self.meta);
            w.u64(self.size);
            w.blob(&self.omap_header);
            w.count(self.attrs.len());
            for (name, value) in self.attrs.iter() {
                w.blob(name);
                w.blob(value);
            }
            let stretches = stretches(blocks);
            w.count(stretches.len());
            for stretch in stretches {
                w.u32(stretch.index);
                w.u32(stretch.block);
                w.count(stretch.crcs.len());
                stretch.crcs.iter().for_each(|crc| w.u32(*crc));
            }
        });
        w.finish()
    }

    /// What [`Onode::encode`] made, without omap.
    pub(crate) fn decode(id: u64, value: Bytes) -> Result<(SpgId, HObject, Self), DecodeError> {
        Reader::new(value).envelope("onode", VERSION, |_, r| {
            let (at, name) = (r.get()?, r.get()?);
            let (meta, size, omap_header) = (r.blob()?, r.u64()?, r.blob()?);
            let attrs =
                (0..r.count(8)?).map(|_| Ok((r.str()?, r.blob()?))).collect::<Result<_, DecodeError>>()?;
            let mut blocks = Blocks::new();
            for _ in 0..r.count(12)? {
                decode_stretch(r, &mut blocks)?;
            }
            let (attrs, blocks, omap) = (Arc::new(attrs), Arc::new(blocks), Arc::default());
            Ok((at, name, Self { id, meta, size, blocks, attrs, omap, omap_header }))
        })
    }

    /// Collection and name of what [`Onode::encode`] made, even when what follows them is damaged.
    pub(crate) fn decode_name(value: Bytes) -> Result<(SpgId, HObject), DecodeError> {
        let mut r = Reader::new(value);
        r.skip(ENVELOPE_BYTES)?;
        Ok((r.get()?, r.get()?))
    }
}

fn decode_stretch(r: &mut Reader, blocks: &mut Blocks) -> Result<(), DecodeError> {
    let (index, block) = (r.u32()?, r.u32()?);
    for nth in 0..r.count(4)? {
        let crc = r.u32()?;
        let nth = u32::try_from(nth).unwrap_or(u32::MAX);
        let (index, block) = index
            .checked_add(nth)
            .zip(block.checked_add(nth))
            .ok_or(DecodeError::Invalid { what: "blocks of an onode", value: block.into() })?;
        blocks.insert(index, Slot::Device(DeviceBlock { block, crc }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::PgId;

    #[test]
    fn an_onode_survives_its_encoding() {
        let at = SpgId::replicated(PgId::new(3, 1));
        let name = HObject::head(3, "ns".into(), "".into(), "a".into());
        let blocks = [(0, 7), (1, 8), (2, 20), (9, 21)];
        let blocks = blocks.map(|(index, block)| (index, DeviceBlock { block, crc: index * 3 }));
        let onode = Onode {
            id: 5,
            meta: Bytes::from_static(b"m"),
            size: 40_000,
            attrs: Arc::new(BTreeMap::from([("k".into(), Bytes::from_static(b"v"))])),
            omap_header: Bytes::from_static(b"h"),
            ..Onode::default()
        };
        let value = onode.encode(&at, &name, blocks.into_iter());
        let (at2, name2, back) = Onode::decode(5, value.clone()).expect("our own bytes");
        assert_eq!((at2, name2), (at, name));
        assert_eq!((back.id, &back.meta, back.size, &back.attrs), (5, &onode.meta, 40_000, &onode.attrs));
        let found: Vec<_> =
            back.blocks.iter().filter_map(|(index, slot)| Some((*index, slot.device()?))).collect();
        assert_eq!(found, blocks);
        assert!(Onode::decode(5, value.slice(..value.len() - 3)).is_err());
    }
}
