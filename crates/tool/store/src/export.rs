//! `nacre store export`: one PG to a file.
//!
//! The file is a list of transactions: all objects first, then the log, and `info` and `interval` last. So a PG whose
//! import was interrupted has no `info`, and is not taken for a PG.

use crate::stream::{Header, Sink, Totals};
use crate::target::{self, Target, each_object, each_omap_page, newest_map, parse_pgid, partition_with};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_blockstore::BlockStore;
use nacre_env::outln;
use nacre_env::real::private;
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{HObject, SpgId};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes of data, and of omap entries, in one transaction: far below what a log record takes.
const PIECE_BYTES: u64 = 1 << 20;
const OMAP_BYTES: usize = 128 << 10;
/// What an op takes beside its values, about.
const OP_BYTES: usize = 32;
/// Without these a collection is no PG.
const LAST_KEYS: [&[u8]; 2] = [b"info", b"interval"];

/// Options of `nacre store export`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// The PG to export.
    #[arg(long, value_parser = parse_pgid)]
    pgid: SpgId,
    /// Where to; `-` is standard output. An existing file is not overwritten.
    #[arg(long)]
    file: PathBuf,
    /// Of a store that does not open because its log has a gap: what it held before the gap. Writes that were acknowledged
    /// later are missing.
    #[arg(long)]
    before_gap: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (target, at) = (&options.target, &options.pgid);
    let mut stores = if options.before_gap { target.look_before_gap()? } else { target.look_at_all()? };
    let Some(store) = partition_with(&mut stores, at) else {
        bail!("the store has no placement group {at}; `nacre store dump` lists them");
    };
    let totals = if options.file == Path::new("-") {
        write(store, at, BufWriter::new(std::io::stdout().lock()))?.0
    } else {
        let path = options.file.display();
        let file = private::options().write(true).create_new(true).open(&options.file);
        let out = BufWriter::new(file.with_context(|| path.to_string())?);
        let (totals, out) = write(store, at, out)?;
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        outln!(
            "exported {}: {} objects, {} bytes of data, {} transactions",
            options.pgid,
            totals.objects,
            totals.data_bytes,
            totals.transactions
        );
        totals
    };
    debug_assert!(totals.transactions > 0);
    Ok(ExitCode::SUCCESS)
}

struct Exporter<W> {
    sink: Sink<W>,
    at: SpgId,
    totals: Totals,
}

/// Writes the whole file.
pub(crate) fn write<W: Write>(store: &mut BlockStore, at: &SpgId, out: W) -> Result<(Totals, W)> {
    let map = newest_map(store).context("the store has no map: no OSD has ever run on it")?;
    let header = Header { fsid: map.fsid, store: store.layout().id, pg: *at, newest_map: map.epoch };
    let mut exporter = Exporter { sink: Sink::new(out), at: *at, totals: Totals::default() };
    exporter.sink.header(&header)?;
    exporter.put(vec![Op::CreateCollection])?;
    exporter.totals.objects = each_object(store, at, |store, name| exporter.object(store, name))?;
    exporter.pg(store)?;
    let Exporter { sink, totals, .. } = exporter;
    Ok((totals, sink.end(totals)?))
}

impl<W: Write> Exporter<W> {
    fn put(&mut self, ops: Vec<Op>) -> Result<()> {
        let txn = Transaction { collection: self.at, ops };
        self.totals.transactions += 1;
        self.totals.data_bytes += txn.data_bytes() as u64;
        self.sink.transaction(&txn)
    }

    fn object(&mut self, store: &mut BlockStore, name: &HObject) -> Result<()> {
        let at = self.at;
        let shape = store.shape(&at, name).with_context(|| format!("{name} vanished"))?;
        let mut ops = vec![Op::Touch(name.clone())];
        let meta = store.meta(&at, name).unwrap_or_default();
        ops.push(Op::SetMeta { object: name.clone(), meta });
        ops.push(Op::Truncate { object: name.clone(), size: shape.size_bytes });
        let attrs = store.attrs(&at, name).into_iter();
        ops.extend(attrs.map(|(attr, value)| Op::SetAttr { object: name.clone(), name: attr, value }));
        let header = store.omap_header(&at, name);
        if !header.is_empty() {
            ops.push(Op::OmapSetHeader { object: name.clone(), header });
        }
        self.put(ops)?;
        each_omap_page(store, &at, name, OMAP_BYTES, |entries| {
            self.put(vec![Op::OmapSet { object: name.clone(), entries }])
        })?;
        for (offset, length) in store.extents(&at, name, 0, u64::MAX) {
            let end = offset + length;
            for from in (offset..end).step_by(usize::try_from(PIECE_BYTES).expect("a mebibyte")) {
                let data = target::read(store, &at, name, from, PIECE_BYTES.min(end - from))?;
                self.put(vec![Op::Write { object: name.clone(), offset: from, data }])?;
            }
        }
        Ok(())
    }

    /// Log and metadata in pieces, what makes it a PG last.
    fn pg(&mut self, store: &BlockStore) -> Result<()> {
        let log = store.log_entries(&self.at).into_iter();
        let log = log.map(|(version, entry)| Op::LogAppend { version, entry });
        let meta = store.pg_meta(&self.at, b"").into_iter().map(|(key, value)| Op::MetaSet { key, value });
        let is_last = |op: &Op| matches!(op, Op::MetaSet { key, .. } if LAST_KEYS.contains(&key.as_bytes()));
        let (last, first): (Vec<Op>, Vec<Op>) = log.chain(meta).partition(is_last);
        let (mut piece, mut bytes) = (Vec::new(), 0);
        for op in first {
            bytes += match &op {
                Op::LogAppend { entry, .. } => entry.len(),
                Op::MetaSet { key, value } => key.len() + value.len(),
                _ => 0,
            } + OP_BYTES;
            piece.push(op);
            if bytes > OMAP_BYTES {
                bytes = 0;
                self.put(std::mem::take(&mut piece))?;
            }
        }
        self.put(piece)?;
        self.put(last)
    }
}
