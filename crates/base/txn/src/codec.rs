//! Encoding of transactions: our own, between our OSDs and in our log; see `docs/formats/transaction.md`.

use crate::{Op, Transaction};
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Encode, Reader, Writer};

/// Written by this code; an older reader refuses a newer compat.
const VERSION: u8 = 1;
/// Data of `Write` travels apart from the ops, so that it is never copied: see [`Transaction::encode_parts`].
const OP_BYTES_MIN: usize = 1;
/// Room made for operations before the first is found: a plain write has its data, the object's record and a log entry.
const OPS_USUAL: usize = 4;

mod code {
    pub(super) const CREATE_COLLECTION: u8 = 1;
    pub(super) const REMOVE_COLLECTION: u8 = 2;
    pub(super) const TOUCH: u8 = 3;
    pub(super) const WRITE: u8 = 4;
    pub(super) const ZERO: u8 = 5;
    pub(super) const TRUNCATE: u8 = 6;
    pub(super) const REMOVE: u8 = 7;
    pub(super) const CLONE: u8 = 8;
    pub(super) const RENAME: u8 = 9;
    pub(super) const SET_META: u8 = 10;
    pub(super) const SET_ATTR: u8 = 11;
    pub(super) const REMOVE_ATTR: u8 = 12;
    pub(super) const CLEAR_ATTRS: u8 = 13;
    pub(super) const OMAP_SET: u8 = 14;
    pub(super) const OMAP_REMOVE: u8 = 15;
    pub(super) const OMAP_REMOVE_RANGE: u8 = 16;
    pub(super) const OMAP_SET_HEADER: u8 = 17;
    pub(super) const OMAP_CLEAR: u8 = 18;
    pub(super) const LOG_APPEND: u8 = 19;
    pub(super) const LOG_TRIM: u8 = 20;
    pub(super) const LOG_REWIND: u8 = 21;
    pub(super) const META_SET: u8 = 22;
    pub(super) const META_REMOVE: u8 = 23;
    pub(super) const SPLIT: u8 = 24;
    pub(super) const MERGE: u8 = 25;
    pub(super) const MOVE: u8 = 26;
    pub(super) const CLONE_EXTENTS: u8 = 27;
}

impl Transaction {
    /// Encodes the ops into `w` and returns the written data, in op order, to travel beside them.
    pub fn encode_parts(&self, w: &mut Writer) -> BufList {
        let mut data = BufList::new();
        w.envelope(VERSION, 1, |w| {
            w.put(&self.collection);
            w.count(self.ops.len());
            self.ops.iter().for_each(|op| encode_op(op, w, &mut data));
        });
        data
    }

    /// Decodes what [`Transaction::encode_parts`] made; `data` must be exactly what it returned.
    ///
    /// # Errors
    /// [`DecodeError`] when the ops are malformed or ask for more or less data than there is.
    pub fn decode_parts(r: &mut Reader, data: &BufList) -> Result<Self, DecodeError> {
        let mut used = 0;
        let txn = r.envelope("transaction", VERSION, |_, r| {
            let collection = r.get()?;
            let count = r.count(OP_BYTES_MIN)?;
            let mut ops = Vec::with_capacity(count.min(OPS_USUAL));
            for _ in 0..count {
                ops.push(decode_any(r, data, &mut used)?);
            }
            Ok(Self { collection, ops })
        })?;
        if used != data.len() {
            return Err(DecodeError::Invalid { what: "transaction data length", value: data.len() as u64 });
        }
        Ok(txn)
    }
}

fn encode_op(op: &Op, w: &mut Writer, data_out: &mut BufList) {
    match op {
        Op::CreateCollection => w.u8(code::CREATE_COLLECTION),
        Op::RemoveCollection => w.u8(code::REMOVE_COLLECTION),
        Op::Touch(object) => tagged(w, code::TOUCH, object),
        Op::Write { object, offset, data } => {
            tagged(w, code::WRITE, object);
            w.u64(*offset);
            w.u64(data.len() as u64);
            data_out.append(data.clone());
        }
        Op::Zero { object, offset, length } => {
            tagged(w, code::ZERO, object);
            w.u64(*offset);
            w.u64(*length);
        }
        Op::Truncate { object, size } => {
            tagged(w, code::TRUNCATE, object);
            w.u64(*size);
        }
        Op::Remove(object) => tagged(w, code::REMOVE, object),
        Op::Clone { source, target } => tagged_pair(w, code::CLONE, source, target),
        Op::CloneExtents { source, target, extents } => {
            tagged_pair(w, code::CLONE_EXTENTS, source, target);
            w.put(extents);
        }
        Op::Rename { source, target } => tagged_pair(w, code::RENAME, source, target),
        Op::SetMeta { object, meta } => tagged_pair(w, code::SET_META, object, meta),
        Op::SetAttr { object, name, value } => {
            tagged(w, code::SET_ATTR, object);
            w.put(name);
            w.put(value);
        }
        Op::RemoveAttr { object, name } => tagged_pair(w, code::REMOVE_ATTR, object, name),
        Op::ClearAttrs(object) => tagged(w, code::CLEAR_ATTRS, object),
        Op::OmapSet { object, entries } => tagged_pair(w, code::OMAP_SET, object, entries),
        Op::OmapRemove { object, keys } => tagged_pair(w, code::OMAP_REMOVE, object, keys),
        Op::OmapRemoveRange { object, first, last } => {
            tagged(w, code::OMAP_REMOVE_RANGE, object);
            w.put(first);
            w.put(last);
        }
        Op::OmapSetHeader { object, header } => tagged_pair(w, code::OMAP_SET_HEADER, object, header),
        Op::OmapClear(object) => tagged(w, code::OMAP_CLEAR, object),
        Op::LogAppend { version, entry } => tagged_pair(w, code::LOG_APPEND, version, entry),
        Op::LogTrim { to } => tagged(w, code::LOG_TRIM, to),
        Op::LogRewind { to } => tagged(w, code::LOG_REWIND, to),
        Op::MetaSet { key, value } => tagged_pair(w, code::META_SET, key, value),
        Op::MetaRemove { key } => tagged(w, code::META_REMOVE, key),
        Op::Split { child, pg_num, ops } => {
            tagged(w, code::SPLIT, child);
            w.u32(*pg_num);
            encode_inner(ops, w, data_out);
        }
        Op::Move { target, pg_num, from, until, ops } => {
            tagged(w, code::MOVE, target);
            w.u32(*pg_num);
            w.put(from);
            w.put(until);
            encode_inner(ops, w, data_out);
        }
        Op::Merge { source } => tagged(w, code::MERGE, source),
    }
}

/// The ops inside of a split or move.
fn encode_inner(ops: &[Op], w: &mut Writer, data_out: &mut BufList) {
    w.count(ops.len());
    ops.iter().for_each(|op| encode_op(op, w, data_out));
}

/// The code of an op, and its two fields.
fn tagged_pair(w: &mut Writer, code: u8, first: &impl Encode, second: &impl Encode) {
    tagged(w, code, first);
    w.put(second);
}

/// The code of an op, and its first field.
fn tagged(w: &mut Writer, code: u8, first: &impl Encode) {
    w.u8(code);
    w.put(first);
}

/// Any op; the ops inside of a split or move are read by [`decode_op`], which knows neither these nor merge: one level
/// is all there is.
fn decode_any(r: &mut Reader, data: &BufList, used: &mut usize) -> Result<Op, DecodeError> {
    match r.u8()? {
        code::SPLIT => {
            let (child, pg_num) = (r.get()?, r.u32()?);
            Ok(Op::Split { child, pg_num, ops: decode_inner(r, data, used)? })
        }
        code::MOVE => {
            let (target, pg_num, from, until) = (r.get()?, r.u32()?, r.get()?, r.get()?);
            Ok(Op::Move { target, pg_num, from, until, ops: decode_inner(r, data, used)? })
        }
        code::MERGE => Ok(Op::Merge { source: r.get()? }),
        code => decode_op(code, r, data, used),
    }
}

fn decode_inner(r: &mut Reader, data: &BufList, used: &mut usize) -> Result<Vec<Op>, DecodeError> {
    let count = r.count(OP_BYTES_MIN)?;
    (0..count).map(|_| decode_op(r.u8()?, r, data, used)).collect()
}

fn decode_op(code: u8, r: &mut Reader, data: &BufList, used: &mut usize) -> Result<Op, DecodeError> {
    Ok(match code {
        code::CREATE_COLLECTION => Op::CreateCollection,
        code::REMOVE_COLLECTION => Op::RemoveCollection,
        code::TOUCH => Op::Touch(r.get()?),
        code::WRITE => {
            let (object, offset, length) = (r.get()?, r.u64()?, r.u64()?);
            Op::Write { object, offset, data: take_data(data, used, length)? }
        }
        code::ZERO => Op::Zero { object: r.get()?, offset: r.u64()?, length: r.u64()? },
        code::TRUNCATE => Op::Truncate { object: r.get()?, size: r.u64()? },
        code::REMOVE => Op::Remove(r.get()?),
        code::CLONE => Op::Clone { source: r.get()?, target: r.get()? },
        code::CLONE_EXTENTS => Op::CloneExtents { source: r.get()?, target: r.get()?, extents: r.get()? },
        code::RENAME => Op::Rename { source: r.get()?, target: r.get()? },
        code::SET_META => Op::SetMeta { object: r.get()?, meta: r.get()? },
        code::SET_ATTR => Op::SetAttr { object: r.get()?, name: r.get()?, value: r.get()? },
        code::REMOVE_ATTR => Op::RemoveAttr { object: r.get()?, name: r.get()? },
        code::CLEAR_ATTRS => Op::ClearAttrs(r.get()?),
        code::OMAP_SET => Op::OmapSet { object: r.get()?, entries: r.get()? },
        code::OMAP_REMOVE => Op::OmapRemove { object: r.get()?, keys: r.get()? },
        code::OMAP_REMOVE_RANGE => Op::OmapRemoveRange { object: r.get()?, first: r.get()?, last: r.get()? },
        code::OMAP_SET_HEADER => Op::OmapSetHeader { object: r.get()?, header: r.get()? },
        code::OMAP_CLEAR => Op::OmapClear(r.get()?),
        code::LOG_APPEND => Op::LogAppend { version: r.get()?, entry: r.get()? },
        code::LOG_TRIM => Op::LogTrim { to: r.get()? },
        code::LOG_REWIND => Op::LogRewind { to: r.get()? },
        code::META_SET => Op::MetaSet { key: r.get()?, value: r.get()? },
        code::META_REMOVE => Op::MetaRemove { key: r.get()? },
        code => return Err(DecodeError::Invalid { what: "transaction op code", value: code.into() }),
    })
}

fn take_data(data: &BufList, used: &mut usize, length: u64) -> Result<BufList, DecodeError> {
    let left = data.len() - *used;
    let length = usize::try_from(length).ok().filter(|length| *length <= left).ok_or(DecodeError::Short {
        offset: *used,
        wanted: usize::try_from(length).unwrap_or(usize::MAX),
        left,
    })?;
    let out = data.slice(*used, length);
    *used += length;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Extents;
    use nacre_buf::{ByteStr, Bytes};
    use nacre_types::{Eversion, HObject, PgId, SpgId};

    #[test]
    fn every_op_survives_the_wire_and_data_is_shared() {
        let a = HObject::head(1, ByteStr::EMPTY, ByteStr::EMPTY, "a".into());
        let b = HObject::head(1, "ns".into(), "key".into(), "b".into());
        let (name, value) = (ByteStr::from("n"), Bytes::from_static(b"v"));
        let data = Bytes::from_static(b"payload");
        let ops = vec![
            Op::CreateCollection,
            Op::Touch(a.clone()),
            Op::Write { object: a.clone(), offset: 7, data: data.clone().into() },
            Op::Zero { object: a.clone(), offset: 1, length: 2 },
            Op::Truncate { object: a.clone(), size: 5 },
            Op::Write { object: b.clone(), offset: 0, data: BufList::new() },
            Op::Clone { source: a.clone(), target: b.clone() },
            Op::CloneExtents {
                source: a.clone(),
                target: b.clone(),
                extents: Extents::new([(0, 4096), (1 << 20, 8192)]).expect("extents"),
            },
            Op::CloneExtents { source: b.clone(), target: a.clone(), extents: Extents::default() },
            Op::Rename { source: b, target: a.clone() },
            Op::SetMeta { object: a.clone(), meta: value.clone() },
            Op::SetAttr { object: a.clone(), name: name.clone(), value: value.clone() },
            Op::RemoveAttr { object: a.clone(), name: name.clone() },
            Op::ClearAttrs(a.clone()),
            Op::OmapSet { object: a.clone(), entries: vec![(name.clone(), value.clone())] },
            Op::OmapRemove { object: a.clone(), keys: vec![name.clone()] },
            Op::OmapRemoveRange { object: a.clone(), first: name.clone(), last: "z".into() },
            Op::OmapSetHeader { object: a.clone(), header: value.clone() },
            Op::OmapClear(a.clone()),
            Op::LogAppend { version: Eversion::new(2, 3), entry: value.clone() },
            Op::LogTrim { to: Eversion::new(2, 1) },
            Op::LogRewind { to: Eversion::new(2, 2) },
            Op::MetaSet { key: name.clone(), value },
            Op::MetaRemove { key: name },
            Op::Remove(a.clone()),
            Op::Split {
                child: SpgId::replicated(PgId::new(1, 6)),
                pg_num: 8,
                ops: vec![Op::Touch(a.clone()), Op::LogTrim { to: Eversion::ZERO }],
            },
            Op::Move {
                target: SpgId::replicated(PgId::new(1, 6)),
                pg_num: 8,
                from: HObject::MIN,
                until: HObject::max_value(),
                ops: vec![Op::RemoveCollection, Op::Touch(a)],
            },
            Op::Merge { source: SpgId::replicated(PgId::new(1, 7)) },
            Op::RemoveCollection,
        ];
        let txn = Transaction { collection: SpgId::replicated(PgId::new(1, 2)), ops };
        let mut w = Writer::new();
        let parts = txn.encode_parts(&mut w);
        assert_eq!(parts.slices(), [data]);
        let bytes = w.finish();
        for op in &txn.ops {
            let mut w = Writer::new();
            let mut data = BufList::new();
            encode_op(op, &mut w, &mut data);
            let encoded = w.len() + data.len();
            assert!(op.size_bytes() >= encoded, "{op:?}: {encoded} bytes, {} said", op.size_bytes());
        }
        assert_eq!(Transaction::decode_parts(&mut Reader::new(bytes.clone()), &parts), Ok(txn));
        assert!(Transaction::decode_parts(&mut Reader::new(bytes), &BufList::new()).is_err());
    }
}
