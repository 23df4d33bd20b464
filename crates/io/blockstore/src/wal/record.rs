//! A record of the log: a header and one or more transactions. Drawn in `docs/formats/blockstore.md`.

use crate::BLOCK;
use crate::device::{Numbers, Run};
use nacre_buf::{AlignedBuf, BufList, Bytes, crc};
use nacre_denc::{DecodeError, Reader, Writer};
use nacre_txn::Transaction;

const MAGIC: u64 = u64::from_le_bytes(*b"NacreWAL");
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 64;
/// Where the checksum lies.
const CRC_AT: usize = 8;
/// Where the checksummed part begins: behind magic and checksum.
const CHECKED_FROM: usize = 12;

/// Data of one write that went to the device beside the record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placement {
    /// Which op of the transaction.
    pub(crate) op: usize,
    /// Where the placed part begins in the data of all writes of the transaction.
    pub(crate) data_offset: usize,
    pub(crate) runs: Vec<Run>,
    /// CRC-32C of each block, in order.
    pub(crate) crcs: Vec<u32>,
}

/// What a record says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) length: u32,
    /// From the store's id: a record of a store that was here before is none of ours.
    pub(super) salt: u64,
    /// One more than that of the record before.
    pub(super) seq: u64,
    /// Which opening of the store wrote it. Never less than in the record before.
    pub(super) mount: u64,
    /// All records up to this one, with what they placed, were durable when this one was made.
    pub(super) durable_through: u64,
    pub(super) count: u32,
    /// The first record that a replay needs, by the newest checkpoint that was durable when this one was made. Metadata
    /// whose state stands before it are older than the device. Zero in records of programs that did not say.
    pub(super) needed_from: u64,
}

/// A transaction as a record carries it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    pub(crate) txn: Transaction,
    pub(crate) placements: Vec<Placement>,
}

/// A transaction as it goes into a record.
pub(crate) struct Encoded {
    /// All but the data, whose length it ends with; long values are shared with the transaction.
    head: Writer,
    /// Data that was not placed.
    inline: BufList,
}

impl Encoded {
    /// Bytes of the record.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.inline.len()
    }
}

/// Bytes copied, and then summed, at once.
const SUMMED_BYTES: usize = 64 << 10;
/// Room for what most transactions encode to, but for their data.
const OPS_BYTES: usize = 1024;

/// Encodes a transaction; placed data is left out.
pub(super) fn encode_entry(txn: &Transaction, placements: &[Placement], numbers: Numbers) -> Encoded {
    let crcs: usize = placements.iter().map(|placement| placement.crcs.len()).sum();
    let mut w = Writer::gathering(OPS_BYTES + 4 * crcs);
    w.count(placements.len());
    placements.iter().for_each(|placement| encode_placement(&mut w, placement, numbers));
    let mut data = BufList::new();
    w.nested(|w| data = txn.encode_parts(w));
    let (mut inline, mut taken) = (BufList::new(), 0);
    for placement in placements {
        inline.append(data.slice(taken, placement.data_offset - taken));
        taken = placement.data_offset + placement.crcs.len() * BLOCK;
    }
    match taken {
        0 => inline = data,
        _ => inline.append(data.slice(taken, data.len() - taken)),
    }
    w.u64(inline.len() as u64);
    Encoded { head: w, inline }
}

fn encode_placement(w: &mut Writer, placement: &Placement, numbers: Numbers) {
    w.count(placement.op);
    w.u64(placement.data_offset as u64);
    w.count(placement.runs.len());
    for run in &placement.runs {
        numbers.write(w, run.start);
        w.u32(u32::try_from(run.count).expect("data of a transaction is bounded"));
    }
    w.count(placement.crcs.len());
    placement.crcs.iter().for_each(|crc| w.u32(*crc));
}

fn decode_placement(r: &mut Reader, numbers: Numbers) -> Result<Placement, DecodeError> {
    let (op, data_offset) = (r.u32()? as usize, r.u64()?);
    let data_offset = usize::try_from(data_offset)
        .map_err(|_| DecodeError::Invalid { what: "offset of placed data", value: data_offset })?;
    let runs = (0..r.count(numbers.bytes() + 4)?)
        .map(|_| Ok(Run { start: numbers.read(r)?, count: r.u32()?.into() }));
    let runs = runs.collect::<Result<Vec<_>, DecodeError>>()?;
    let crcs = (0..r.count(4)?).map(|_| r.u32()).collect::<Result<Vec<_>, _>>()?;
    let blocks: u64 = runs.iter().map(|run| run.count).sum();
    if blocks != crcs.len() as u64 {
        return Err(DecodeError::Invalid { what: "blocks of placed data", value: blocks });
    }
    Ok(Placement { op, data_offset, runs, crcs })
}

/// Placed data is zeros in the result: it is on the device.
fn decode_entry(r: &mut Reader, numbers: Numbers) -> Result<Entry, DecodeError> {
    let placements =
        (0..r.count(20)?).map(|_| decode_placement(r, numbers)).collect::<Result<Vec<_>, _>>()?;
    let ops = r.blob()?;
    let inline_bytes = r.u64()?;
    let inline = BufList::from(r.take(usize::try_from(inline_bytes).unwrap_or(usize::MAX))?);
    let (mut data, mut taken) = (BufList::new(), 0);
    for placement in &placements {
        let invalid =
            DecodeError::Invalid { what: "offset of placed data", value: placement.data_offset as u64 };
        let before = placement.data_offset.checked_sub(data.len()).ok_or_else(|| invalid.clone())?;
        if before > inline.len() - taken {
            return Err(invalid);
        }
        data.append(inline.slice(taken, before));
        taken += before;
        for _ in &placement.crcs {
            data.push(Bytes::from_static(&crate::dirty::ZEROS).slice(..BLOCK));
        }
    }
    data.append(inline.slice(taken, inline.len() - taken));
    let txn = Transaction::decode_parts(&mut Reader::new(ops), &data)?;
    Ok(Entry { txn, placements })
}

/// Puts a record together, padded with zeros to whole blocks. `header.length` is filled in.
///
/// # Panics
/// Above 4 GiB; callers bound records far below.
pub(super) fn build<'a>(mut header: Header, entries: impl Iterator<Item = &'a Encoded> + Clone) -> Bytes {
    let length = HEADER_BYTES + entries.clone().map(Encoded::len).sum::<usize>();
    header.length = u32::try_from(length).expect("records are bounded");
    let mut record = AlignedBuf::with_len(length.next_multiple_of(BLOCK));
    let mut w = Writer::with_capacity(HEADER_BYTES);
    w.u64(MAGIC);
    w.u32(0);
    w.u32(header.length);
    w.u64(header.salt);
    w.u64(header.seq);
    w.u64(header.mount);
    w.u64(header.durable_through);
    w.u32(header.count);
    w.u32(0);
    w.u64(header.needed_from);
    debug_assert_eq!(w.len(), HEADER_BYTES);
    let (_, checked) = w.as_slice().split_at(CHECKED_FROM);
    let mut crc = crc::crc32c(u32::MAX, checked);
    let (head, mut room) = record.split_at_mut(HEADER_BYTES);
    for entry in entries {
        (room, crc) = copy_summed(room, entry.head.slices(), crc);
        room = crate::gather(room, entry.inline.slices());
        // Data mostly came with its checksum, and is not read once more.
        crc = entry.inline.crc32c(crc);
    }
    room.fill(0);
    w.patch_u32(CRC_AT, crc);
    head.copy_from_slice(w.as_slice());
    record.freeze()
}

/// Copies slices to the front of `target`, each part summed while it is in the processor's cache; gives what is left, and the register.
fn copy_summed<'t, 's>(
    mut target: &'t mut [u8],
    slices: impl Iterator<Item = &'s [u8]>,
    mut crc: u32,
) -> (&'t mut [u8], u32) {
    for part in slices.flat_map(|slice| slice.chunks(SUMMED_BYTES)) {
        let (copy, rest) = target.split_at_mut(part.len());
        copy.copy_from_slice(part);
        crc = crc::crc32c(crc, copy);
        target = rest;
    }
    (target, crc)
}

/// What the first block of a record claims; `None` when it is not one. Proves nothing but the magic.
pub(super) fn claimed(block: &[u8]) -> Option<(Header, u32)> {
    let mut r = Reader::new(Bytes::copy_from_slice(block.get(..HEADER_BYTES)?));
    let mut parse = || {
        let (magic, crc) = (r.u64()?, r.u32()?);
        let mut header = Header {
            length: r.u32()?,
            salt: r.u64()?,
            seq: r.u64()?,
            mount: r.u64()?,
            durable_through: r.u64()?,
            count: r.u32()?,
            needed_from: 0,
        };
        r.skip(4)?;
        header.needed_from = r.u64()?;
        Ok::<_, DecodeError>((magic, crc, header))
    };
    let (magic, crc, header) = parse().ok()?;
    (magic == MAGIC && header.length as usize >= HEADER_BYTES).then_some((header, crc))
}

/// Whether the record's bytes (at least `header.length` of them) are what was written.
pub(super) fn is_whole(header: &Header, crc: u32, record: &[u8]) -> bool {
    record.get(..header.length as usize).is_some_and(|record| checked_by(u32::MAX, 0, record) == crc)
}

/// The register over a part of a record that begins at byte `at` of it.
pub(super) fn checked_by(register: u32, at: usize, part: &[u8]) -> u32 {
    let skip = CHECKED_FROM.saturating_sub(at).min(part.len());
    crc::crc32c(register, part.get(skip..).unwrap_or_default())
}

/// The transactions of a whole record.
pub(super) fn entries(header: &Header, record: &Bytes, numbers: Numbers) -> Result<Vec<Entry>, DecodeError> {
    let mut r = Reader::new(record.slice(HEADER_BYTES..header.length as usize));
    (0..header.count).map(|_| decode_entry(&mut r, numbers)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_buf::{ByteStr, PAYLOAD_CRC_SEED};
    use nacre_txn::Op;
    use nacre_types::{HObject, PgId, SpgId};

    #[test]
    fn a_record_gives_back_what_went_in_and_notices_damage() {
        is_read_back(Numbers::Narrow, 9);
        is_read_back(Numbers::Wide, 9);
        is_read_back(Numbers::Wide, (1 << 32) - 1);
    }

    fn is_read_back(numbers: Numbers, start: u64) {
        let object = HObject::head(1, "".into(), "".into(), "a".into());
        let named = object.clone();
        let write = |offset, bytes: Vec<u8>| Op::Write { object: named.clone(), offset, data: bytes.into() };
        let at = SpgId::replicated(PgId::new(1, 2));
        let txn = Transaction {
            collection: at,
            ops: vec![write(1, vec![1; 5]), write(4095, vec![0; 2 * BLOCK + 2])],
        };
        let placement =
            Placement { op: 1, data_offset: 6, runs: vec![Run { start, count: 2 }], crcs: vec![4, 5] };
        let entry = Entry { txn, placements: vec![placement] };
        let encoded = encode_entry(&entry.txn, &entry.placements, numbers);
        assert!(encoded.len() < BLOCK, "placed data stays out of the record");
        let data = BufList::from(vec![7; BLOCK]);
        let data = data.clone().with_crc(data.crc32c(PAYLOAD_CRC_SEED));
        let known = Entry {
            txn: Transaction { collection: at, ops: vec![Op::Write { object, offset: 3, data }] },
            placements: Vec::new(),
        };
        let encoded_known = encode_entry(&known.txn, &[], numbers);
        assert!(encoded_known.inline.known_crc().is_some(), "its checksum becomes part of the record's");
        let header =
            Header { length: 0, salt: 1, seq: 2, mount: 3, durable_through: 1, count: 3, needed_from: 9 };
        let record = build(header, [&encoded, &encoded_known, &encoded].into_iter());
        let (claim, crc) = claimed(&record).expect("a header");
        assert!(is_whole(&claim, crc, &record));
        assert_eq!(Header { length: 0, ..claim }, header);
        assert_eq!(entries(&claim, &record, numbers), Ok(vec![entry.clone(), known, entry]));
        let mut torn = record.to_vec();
        torn[200] ^= 1;
        assert!(!is_whole(&claim, crc, &torn));
        assert_eq!(claimed(&[0; BLOCK]), None);
    }

    /// What stores of devices below 16 TiB have, byte for byte; and of larger ones.
    #[test]
    fn a_placement_takes_two_bytes_more_where_the_device_needs_them() {
        let runs = vec![Run { start: 0x0403_0201, count: 5 }];
        let placement = Placement { op: 7, data_offset: 8, runs, crcs: vec![9; 5] };
        let written = |numbers| {
            let mut w = Writer::new();
            encode_placement(&mut w, &placement, numbers);
            let written = w.finish();
            let back = decode_placement(&mut Reader::new(written.clone()), numbers);
            assert_eq!(back.as_ref(), Ok(&placement));
            written.to_vec()
        };
        let head = [7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4];
        let tail = [vec![5, 0, 0, 0, 5, 0, 0, 0], [9, 0, 0, 0].repeat(5)].concat();
        assert_eq!(written(Numbers::Narrow), [&head[..], &tail].concat());
        assert_eq!(written(Numbers::Wide), [&head[..], &[0, 0], &tail].concat());
    }

    /// Values are copied once, into the record.
    #[test]
    fn long_values_are_not_copied_on_the_way_to_a_record() {
        let object = HObject::head(1, "".into(), "".into(), "a".into());
        let value = |length: usize| Bytes::from(vec![3; length]);
        let (header, name, long) = (value(200_000), ByteStr::from("k"), value(3 << 20));
        let pairs = vec![("short".into(), value(9)), ("x".into(), long.clone()), ("y".into(), value(70_000))];
        let ops = vec![
            Op::SetAttr { object: object.clone(), name, value: value(64 << 10) },
            Op::OmapSetHeader { object: object.clone(), header },
            Op::OmapSet { object, entries: pairs },
        ];
        let txn = Transaction { collection: SpgId::replicated(PgId::new(1, 2)), ops };
        let encoded = encode_entry(&txn, &[], Numbers::Narrow);
        let copied = encoded.head.slices().map(<[u8]>::len).filter(|bytes| *bytes < 16 << 10).sum::<usize>();
        assert!(copied < 1024 && encoded.len() > 3 << 20, "{copied} bytes of {} were copied", encoded.len());
        assert!(encoded.head.slices().any(|slice| slice.as_ptr() == long.as_ptr()));
        let header =
            Header { length: 0, salt: 1, seq: 2, mount: 3, durable_through: 1, count: 2, needed_from: 9 };
        let record = build(header, [&encoded, &encoded].into_iter());
        let (claim, crc) = claimed(&record).expect("a header");
        assert!(is_whole(&claim, crc, &record));
        let entry = Entry { txn, placements: Vec::new() };
        assert_eq!(entries(&claim, &record, Numbers::Narrow), Ok(vec![entry.clone(), entry]));
    }
}
