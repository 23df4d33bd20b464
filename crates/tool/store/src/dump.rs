//! `nacre store dump`: what a store holds, as JSON. Bytes that are no text are shown as in Rust's byte strings.

use crate::target::{
    self, Opened, Target, each_object, each_omap_page, id_text, newest_map_of_all, parse_pgid,
    partition_with, pgs, usage_of,
};
use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_blockstore::BlockStore;
use nacre_buf::ByteStr;
use nacre_denc::{Decode, Reader};
use nacre_env::{out, outln};
use nacre_msg::peer::{LogEntry, PgInfo};
use nacre_pg::object::ObjectContext;
use nacre_txn::ObjectView;
use nacre_types::{HObject, SnapId, SpgId};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Bytes of data that `--data` shows at most.
const DATA_BYTES_MAX: u64 = 16 << 20;
/// Bytes of omap entries taken at a time.
const OMAP_PAGE_BYTES: usize = 1 << 20;
/// Bytes in a line of a hexdump.
const LINE_BYTES: usize = 16;

/// Options of `nacre store dump`. Without any, the PGs are listed.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// A PG: lists its objects.
    #[arg(long, value_parser = parse_pgid)]
    pgid: Option<SpgId>,
    /// The log of the PG.
    #[arg(long, requires = "pgid", conflicts_with = "object")]
    log: bool,
    /// An object of the PG, by name: all that is kept of it.
    #[arg(long, requires = "pgid")]
    object: Option<String>,
    /// Namespace of the object.
    #[arg(long, requires = "object", default_value = "")]
    namespace: String,
    /// Locator key of the object.
    #[arg(long, requires = "object", default_value = "")]
    locator: String,
    /// Which clone of the object, in hex; the head without it.
    #[arg(long, requires = "object", value_parser = parse_snap)]
    snap: Option<u64>,
    /// A range of the object's data, OFFSET~LENGTH in bytes, as a hexdump.
    #[arg(long, requires = "object", value_parser = parse_range)]
    data: Option<(u64, u64)>,
}

fn parse_snap(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|error| error.to_string())
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let parsed = text.split_once('~').and_then(|(at, count)| Some((at.parse().ok()?, count.parse().ok()?)));
    let (offset, length) = parsed.ok_or("wanted is OFFSET~LENGTH, such as 0~4096")?;
    if length > DATA_BYTES_MAX {
        Err(format!("at most {DATA_BYTES_MAX} bytes"))
    } else {
        Ok((offset, length))
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut stores = options.target.look_at_all()?;
    let document = match &options.pgid {
        None => overview(&mut stores)?,
        Some(at) => {
            let Some(store) = partition_with(&mut stores, at) else {
                bail!("{} has no placement group {at}", options.target.shown());
            };
            match (&options.object, options.data, options.log) {
                (Some(_), Some(range), _) => {
                    out!("{}", hexdump(store, at, &wanted(options, at), range)?);
                    return Ok(ExitCode::SUCCESS);
                }
                (Some(_), None, _) => object(store, at, &wanted(options, at))?,
                (None, _, true) => log(store, at),
                (None, _, false) => objects(store, at)?,
            }
        }
    };
    outln!("{}", serde_json::to_string_pretty(&document)?);
    Ok(ExitCode::SUCCESS)
}

fn wanted(options: &Options, at: &SpgId) -> HObject {
    let text = |text: &str| ByteStr::from(text.to_owned());
    let name = text(options.object.as_deref().unwrap_or_default());
    let head = HObject::head(at.pg.pool, text(&options.namespace), text(&options.locator), name);
    options.snap.map_or_else(|| head.clone(), |snap| head.with_snap(SnapId(snap)))
}

pub(crate) fn shown(bytes: &[u8]) -> Value {
    bytes.escape_ascii().to_string().into()
}

/// All PGs, of one partition after the other.
pub(crate) fn overview(stores: &mut [Opened]) -> Result<Value> {
    let (mut all, mut layout, usage) = (Vec::new(), None, usage_of(stores));
    for (store, _) in stores.iter_mut() {
        layout = layout.or(Some(store.layout()));
        for at in pgs(store) {
            all.push(overview_of(store, &at)?);
        }
    }
    let map = newest_map_of_all(stores);
    Ok(json!({
        "id": layout.map(|layout| id_text(layout.id)),
        "format": layout.map(|layout| layout.version),
        "fsid": map.as_ref().map(|map| map.fsid.to_string()),
        "newest_map": map.as_ref().map(|map| map.epoch),
        "total_bytes": usage.total_bytes,
        "stored_bytes": usage.stored_bytes,
        "available_bytes": usage.available_bytes,
        "placement_groups": all,
    }))
}

fn overview_of(store: &mut BlockStore, at: &SpgId) -> Result<Value> {
    let count = each_object(store, at, |_, _| Ok(()))?;
    let info = info(store, at);
    Ok(json!({
        "pgid": at.to_string(),
        "objects": count,
        "log_entries": store.log(at).len(),
        "last_update": info.as_ref().map(|info| info.last_update.to_string()),
        "log_tail": info.as_ref().map(|info| info.log_tail.to_string()),
        "last_epoch_started": info.as_ref().map(|info| info.last_epoch_started),
    }))
}

/// The stored info of a PG. Entries of its log may be newer.
fn info(store: &BlockStore, at: &SpgId) -> Option<PgInfo> {
    let (_, value) = store.pg_meta(at, b"info").into_iter().next()?;
    PgInfo::decode(&mut Reader::new(value)).ok()
}

fn objects(store: &mut BlockStore, at: &SpgId) -> Result<Value> {
    let mut all = Vec::new();
    each_object(store, at, |store, name| {
        let size = store.shape(at, name).map_or(0, |shape| shape.size_bytes);
        let mut entry = named(name);
        if let Some(fields) = entry.as_object_mut() {
            fields.insert("size_bytes".to_owned(), size.into());
        }
        all.push(entry);
        Ok(())
    })?;
    Ok(json!({ "pgid": at.to_string(), "objects": all }))
}

fn named(name: &HObject) -> Value {
    json!({
        "name": shown(&name.name),
        "namespace": shown(&name.namespace),
        "locator": shown(&name.key),
        "snap": format!("{:?}", name.snap),
        "hash": format!("{:08x}", name.hash),
    })
}

pub(crate) fn object(store: &BlockStore, at: &SpgId, name: &HObject) -> Result<Value> {
    let shape = store.shape(at, name).with_context(|| format!("{at} has no object {name}"))?;
    let extents = shape.extents.iter().map(|extent| {
        json!({
            "offset": extent.offset,
            "length": extent.crcs.len() * 4096,
            "device_offset": extent.device_offset,
            "crcs": extent.crcs.iter().map(|crc| format!("{crc:08x}")).collect::<Vec<_>>(),
        })
    });
    let packed = shape.packed.iter().map(|extent| {
        json!({
            "offset": extent.offset,
            "length": extent.blocks * 4096,
            "blocks_before": extent.blocks_before,
            "algorithm": extent.algorithm.name(),
            "compressed_bytes": extent.packed_bytes,
            "device_offsets": extent.device_offsets,
        })
    });
    let attrs = store
        .attrs(at, name)
        .into_iter()
        .map(|(key, value)| (key.as_bytes().escape_ascii().to_string(), shown(&value)));
    let mut omap = serde_json::Map::new();
    each_omap_page(store, at, name, OMAP_PAGE_BYTES, |page| {
        omap.extend(
            page.into_iter().map(|(key, value)| (key.as_bytes().escape_ascii().to_string(), shown(&value))),
        );
        Ok(())
    })?;
    Ok(json!({
        "object": named(name),
        "number": shape.number,
        "size_bytes": shape.size_bytes,
        "record": record(store, at, name),
        "attrs": attrs.collect::<serde_json::Map<_, _>>(),
        "omap_header": shown(&store.omap_header(at, name)),
        "omap": omap,
        "extents": extents.collect::<Vec<_>>(),
        "compressed": packed.collect::<Vec<_>>(),
        "blocks_in_log": shape.blocks_in_log,
    }))
}

/// The PG's record of the object, as far as it can be understood.
fn record(store: &BlockStore, at: &SpgId, name: &HObject) -> Value {
    let bytes = store.meta(at, name).unwrap_or_default();
    let Ok(context) = ObjectContext::from_record(bytes.clone()) else { return shown(&bytes) };
    let info = context.info;
    json!({
        "version": info.version.to_string(),
        "prior_version": info.prior_version.to_string(),
        "user_version": info.user_version,
        "size_bytes": info.size,
        "whiteout": info.whiteout,
        "has_omap": info.has_omap,
        "data_digest": info.data_digest.map(|digest| format!("{digest:08x}")),
        "watchers": info.watchers.len(),
        "clones": context.snaps.clones.iter().map(|clone| format!("{:?}", clone.id)).collect::<Vec<_>>(),
    })
}

fn log(store: &BlockStore, at: &SpgId) -> Value {
    let entries = store.log_entries(at).into_iter().map(|(version, bytes)| {
        match LogEntry::decode(&mut Reader::new(bytes.clone())) {
            Ok(entry) => json!({
                "version": version.to_string(),
                "kind": format!("{:?}", entry.kind).to_lowercase(),
                "object": entry.object.to_string(),
                "prior_version": entry.prior_version.to_string(),
                "user_version": entry.user_version,
                "result": entry.result,
            }),
            Err(error) => {
                json!({ "version": version.to_string(), "error": error.to_string(), "bytes": shown(&bytes) })
            }
        }
    });
    json!({ "pgid": at.to_string(), "log": entries.collect::<Vec<_>>() })
}

pub(crate) fn hexdump(
    store: &mut BlockStore,
    at: &SpgId,
    name: &HObject,
    (offset, length): (u64, u64),
) -> Result<String> {
    if store.shape(at, name).is_none() {
        bail!("{at} has no object {name}");
    }
    let data = target::read(store, at, name, offset, length)?.to_bytes();
    let mut out = String::new();
    for (nth, line) in data.chunks(LINE_BYTES).enumerate() {
        let hex: String = line.iter().map(|byte| format!("{byte:02x} ")).collect();
        let text: String =
            line.iter().map(|byte| if (32..127).contains(byte) { char::from(*byte) } else { '.' }).collect();
        writeln!(out, "{:08x}  {hex:<48} |{text}|", offset + (nth * LINE_BYTES) as u64)?;
    }
    Ok(out)
}
