//! The file of an exported PG: framed sections, each with its number and checksum. Drawn in
//! `docs/formats/pg-export.md`.

use anyhow::{Context, Result, bail};
use nacre_buf::{Bytes, crc};
use nacre_denc::{Reader, Writer};
use nacre_txn::Transaction;
use nacre_types::{Epoch, SpgId, Uuid};
use std::io::{ErrorKind, Read, Write};

/// At the beginning of every section.
const MAGIC: u32 = u32::from_le_bytes(*b"NaPG");
const VERSION: u8 = 1;
/// Magic, kind, number, lengths and checksum.
const FRAME_BYTES: usize = 32;
/// Bytes of a section's parts at most; writers stay far below it.
const PART_BYTES_MAX: u64 = 64 << 20;

/// What a section is.
mod kind {
    pub(super) const HEADER: u32 = 1;
    pub(super) const TRANSACTION: u32 = 2;
    pub(super) const END: u32 = 3;
}

/// Where a PG comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// Id of the cluster.
    pub(crate) fsid: Uuid,
    /// The store that it was exported from.
    pub(crate) store: [u8; 16],
    /// The PG that the stream is of.
    pub(crate) pg: SpgId,
    /// Newest map that the store had: the PG may know of nothing newer.
    pub(crate) newest_map: Epoch,
}

/// What was in the file, to be compared with what arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) objects: u64,
    pub(crate) data_bytes: u64,
    pub(crate) transactions: u64,
}

/// One section of the stream.
#[derive(Debug)]
pub(crate) enum Section {
    Header(Header),
    Transaction(Transaction),
    End(Totals),
}

/// Writes sections in order.
pub(crate) struct Sink<W> {
    out: W,
    number: u64,
}

impl<W: Write> Sink<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, number: 0 }
    }

    pub(crate) fn header(&mut self, header: &Header) -> Result<()> {
        let mut w = Writer::new();
        w.envelope(VERSION, 1, |w| {
            w.raw(&header.fsid.0);
            w.raw(&header.store);
            w.put(&header.pg);
            w.u32(header.newest_map);
        });
        self.section(kind::HEADER, &w.finish(), &[])
    }

    pub(crate) fn transaction(&mut self, txn: &Transaction) -> Result<()> {
        let mut w = Writer::new();
        let data = txn.encode_parts(&mut w);
        self.section(kind::TRANSACTION, &w.finish(), &data.to_bytes())
    }

    pub(crate) fn end(mut self, totals: Totals) -> Result<W> {
        let mut w = Writer::new();
        w.envelope(VERSION, 1, |w| {
            w.u64(totals.objects);
            w.u64(totals.data_bytes);
            w.u64(totals.transactions);
        });
        self.section(kind::END, &w.finish(), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn section(&mut self, kind: u32, body: &[u8], data: &[u8]) -> Result<()> {
        let mut w = Writer::with_capacity(FRAME_BYTES);
        w.u32(MAGIC);
        w.u32(kind);
        w.u64(self.number);
        w.u32(u32::try_from(body.len()).context("a section's body is too long")?);
        w.u32(u32::try_from(data.len()).context("a section's data is too long")?);
        w.u32(0);
        let crc = [w.as_slice(), body, data].iter().fold(u32::MAX, |crc, part| crc::crc32c(crc, part));
        w.u32(crc);
        self.number += 1;
        for part in [w.as_slice(), body, data] {
            self.out.write_all(part)?;
        }
        Ok(())
    }
}

/// Reads sections, and refuses what is cut off, out of order or damaged.
pub(crate) struct Source<R> {
    input: R,
    number: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, number: 0 }
    }

    pub(crate) fn header(&mut self) -> Result<Header> {
        match self.next()? {
            Section::Header(header) => Ok(header),
            _ => bail!("the file does not begin with a header"),
        }
    }

    pub(crate) fn next(&mut self) -> Result<Section> {
        let mut frame = vec![0; FRAME_BYTES];
        self.fill(&mut frame)?;
        let mut r = Reader::new(Bytes::from(frame.clone()));
        let (magic, kind, number) = (r.u32()?, r.u32()?, r.u64()?);
        let (body_bytes, data_bytes, _zero, crc) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        if magic != MAGIC {
            bail!("section {}: no magic number; this is not the file of an exported PG", self.number);
        }
        if u64::from(body_bytes) > PART_BYTES_MAX || u64::from(data_bytes) > PART_BYTES_MAX {
            bail!("section {}: longer than any that is written", self.number);
        }
        let (mut body, mut data) = (vec![0; body_bytes as usize], vec![0; data_bytes as usize]);
        self.fill(&mut body)?;
        self.fill(&mut data)?;
        let head = frame.get(..FRAME_BYTES - 4).unwrap_or_default();
        let found = [head, &body, &data].iter().fold(u32::MAX, |crc, part| crc::crc32c(crc, part));
        if found != crc {
            bail!("section {}: checksum {found:08x} instead of {crc:08x}", self.number);
        }
        if number != self.number {
            bail!("section {number} where {} should be", self.number);
        }
        self.number += 1;
        decode(kind, body.into(), data.into())
    }

    fn fill(&mut self, target: &mut [u8]) -> Result<()> {
        match self.input.read_exact(target) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                bail!("the file ends in section {}: it is cut off", self.number)
            }
            other => Ok(other?),
        }
    }
}

fn decode(kind: u32, body: Bytes, data: Bytes) -> Result<Section> {
    let mut r = Reader::new(body);
    Ok(match kind {
        kind::HEADER => Section::Header(r.envelope("export header", VERSION, |_, r| {
            Ok(Header { fsid: Uuid(r.array()?), store: r.array()?, pg: r.get()?, newest_map: r.u32()? })
        })?),
        kind::TRANSACTION => Section::Transaction(Transaction::decode_parts(&mut r, &data.into())?),
        kind::END => Section::End(r.envelope("export totals", VERSION, |_, r| {
            Ok(Totals { objects: r.u64()?, data_bytes: r.u64()?, transactions: r.u64()? })
        })?),
        other => bail!("a section of the unknown kind {other}"),
    })
}
