//! `osd pool get` and `osd pool set`.

use super::call::{Answer, Call, Failure, done, fail, pool_failure, refuse};
use super::pg_num_bound::check_pg_num_bound;
use super::pool_app::limit;
use super::pool_compression::{check_compressing, compression_setting};
use super::show::{self, POOL_OPTIONS, PoolOptionKind};
use super::table::{Command, command};
use crate::outlook::is_off;
use crate::state::State;
use nacre_format::{Node, Section};
use nacre_maps::{AutoscaleMode, OsdMap, Pool, PoolOption, flags};
use nacre_mgr::autoscaler::pg_num_bounds;
use nacre_types::{Errno, PoolId};

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd pool get name=pool,type=CephPoolname name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_objects|target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk",
        "osd",
        "r",
        "A setting of a pool, or all",
        get,
    ),
    command(
        "osd pool set name=pool,type=CephPoolname name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|pgp_num_actual|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_bytes|target_max_objects|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|min_read_recency_for_promote|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk name=val,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Change a setting of a pool",
        set,
    ),
];

/// Flags that `osd pool get all` shows and `osd pool set` takes.
const FLAG_VARS: [(&str, u64); 7] = [
    ("hashpspool", flags::pool::HASHPSPOOL),
    ("nodelete", flags::pool::NODELETE),
    ("nopgchange", flags::pool::NOPGCHANGE),
    ("nosizechange", flags::pool::NOSIZECHANGE),
    ("write_fadvise_dontneed", flags::pool::WRITE_FADVISE_DONTNEED),
    ("noscrub", flags::pool::NOSCRUB),
    ("nodeep-scrub", flags::pool::NODEEP_SCRUB),
];

/// Settings of cache tiers, which our pools are not.
const TIER_VARS: [&str; 20] = [
    "use_gmt_hitset",
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "cache_target_full_ratio",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
    "dedup_tier",
    "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size",
    "fingerprint_algorithm",
];

/// Settings in the order of `osd pool get all`.
fn ordered_vars() -> impl Iterator<Item = &'static str> {
    let head = ["size", "min_size", "pg_num", "pgp_num", "crush_rule"].into_iter();
    let flags = FLAG_VARS.into_iter().map(|(name, _)| name);
    let options = [
        "scrub_min_interval",
        "scrub_max_interval",
        "deep_scrub_interval",
        "recovery_priority",
        "recovery_op_priority",
        "scrub_priority",
        "compression_mode",
        "compression_algorithm",
        "compression_required_ratio",
        "compression_max_blob_size",
        "compression_min_blob_size",
        "csum_type",
        "csum_min_block",
        "csum_max_block",
    ];
    let tail = [
        "pg_autoscale_mode",
        "pg_num_min",
        "pg_num_max",
        "target_size_bytes",
        "target_size_ratio",
        "pg_autoscale_bias",
        "bulk",
    ];
    head.chain(flags)
        .chain(["use_gmt_hitset", "fast_read", "erasure_code_profile", "allow_ec_overwrites"])
        .chain(options)
        .chain(tail)
}

/// A setting's value as a tree and as text; `None` when it is not set.
fn value(map: &OsdMap, pool: &Pool, var: &str) -> Option<(Node, String)> {
    let flag = FLAG_VARS.iter().find(|(name, _)| *name == var);
    if let Some((_, bit)) = flag {
        let on = pool.has_flag(*bit);
        return Some((on.into(), on.to_string()));
    }
    let number = |value: u32| Some((value.into(), value.to_string()));
    match var {
        "size" => number(pool.size.into()),
        "min_size" => number(pool.min_size.into()),
        "pg_num" => number(pool.pg_num),
        "pgp_num" => number(pool.pgp_num),
        "fast_read" => number(pool.fast_read.into()),
        "use_gmt_hitset" => Some((pool.use_gmt_hitset.into(), u32::from(pool.use_gmt_hitset).to_string())),
        "bulk" => {
            let on = pool.has_flag(flags::pool::BULK);
            Some((on.into(), on.to_string()))
        }
        "crush_rule" => {
            let id = i32::from(pool.crush_rule);
            let name = map.crush.rule_names.get(&id).cloned().unwrap_or_else(|| id.to_string());
            Some((name.as_str().into(), name))
        }
        "pg_autoscale_mode" => {
            Some((pool.pg_autoscale_mode.as_str().into(), pool.pg_autoscale_mode.as_str().to_owned()))
        }
        "allow_ec_overwrites" if !pool.is_replicated() => {
            let on = pool.has_flag(flags::pool::EC_OVERWRITES);
            Some((on.into(), on.to_string()))
        }
        "erasure_code_profile" if !pool.is_replicated() => {
            Some((pool.erasure_code_profile.as_str().into(), pool.erasure_code_profile.clone()))
        }
        _ => {
            let (_, key, _) = POOL_OPTIONS.iter().find(|(name, ..)| *name == var)?;
            let held = pool.options.get(key)?;
            Some((show::option_node(held), show::option_text(held)))
        }
    }
}

fn get(call: &mut Call<'_>) -> Answer {
    let (name, var) = (call.args.text("pool").to_owned(), call.args.text("var").to_owned());
    let map = call.state.osd.map();
    let Some((id, pool)) = map.pool_by_name(&name).and_then(|id| Some((id, map.pool(id)?))) else {
        return fail(Errno::ENOENT, format!("unrecognized pool '{name}'"));
    };
    let wanted: Vec<&str> = if var == "all" { ordered_vars().collect() } else { vec![var.as_str()] };
    let mut plain = String::new();
    let mut tree = Section::new().with("pool", name.as_str()).with("pool_id", id);
    for at in wanted {
        match value(map, pool, at) {
            Some((node, text)) => {
                plain.push_str(&format!("{at}: {text}\n"));
                tree.put(at.to_owned(), node);
            }
            None if var == "all" => {}
            None => return Err(missing(&name, at)),
        }
    }
    call.either("pool", plain, tree)
}

fn missing(pool: &str, var: &str) -> Failure {
    if TIER_VARS.contains(&var) {
        return refuse(Errno::EACCES, format!("'{pool}' is no cache tier, which alone has this variable"));
    }
    if ["erasure_code_profile", "allow_ec_overwrites"].contains(&var) {
        return refuse(
            Errno::EACCES,
            format!("'{pool}' is no erasure-coded pool, which alone has this variable"),
        );
    }
    refuse(Errno::ENOENT, format!("option '{var}' is not set on pool '{pool}'"))
}

/// One change that was asked for.
struct Change<'a> {
    pool: &'a str,
    id: PoolId,
    var: &'a str,
    text: &'a str,
    sure: bool,
}

impl Change<'_> {
    fn int(&self) -> Result<i64, Failure> {
        let wrong = || {
            let text = self.text;
            refuse(Errno::EINVAL, format!("'{text}' is not a whole number"))
        };
        self.text.parse().map_err(|_| wrong())
    }

    /// Bytes, with a unit if need be.
    fn bytes(&self) -> Result<i64, Failure> {
        let wrong = || {
            refuse(Errno::EINVAL, format!("'{}' is no number of bytes such as 4096, 10M or 2T", self.text))
        };
        limit("max_bytes", self.text).ok().and_then(|bytes| i64::try_from(bytes).ok()).ok_or_else(wrong)
    }

    fn float(&self) -> Result<f64, Failure> {
        let wrong = || refuse(Errno::EINVAL, format!("error parsing float value '{}'", self.text));
        self.text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(wrong)
    }

    fn truth(&self) -> Result<bool, Failure> {
        match self.text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => fail(Errno::EINVAL, "expecting value 'true', 'false', '0', or '1'"),
        }
    }

    fn done(&self) -> Answer {
        done(format!("set pool {} {} to {}", self.id, self.var, self.text))
    }
}

fn set(call: &mut Call<'_>) -> Answer {
    let (pool, var) = (call.args.text("pool").to_owned(), call.args.text("var").to_owned());
    let text = call.args.text("val").to_owned();
    let id = call.pool_id(&pool)?;
    let sure = call.args.flag("yes_i_really_mean_it");
    let change = Change { pool: &pool, id, var: &var, text: &text, sure };
    match var.as_str() {
        "size" => set_size(call, &change),
        "min_size" => set_min_size(call, &change),
        "pg_num" => set_pg_num(call, &change),
        "pgp_num" | "pgp_num_actual" => set_pgp_num(call, &change),
        "crush_rule" => set_rule(call, &change),
        "pg_autoscale_mode" => set_autoscale(call, &change),
        "fast_read" => set_fast_read(call, &change),
        "allow_ec_overwrites" => allow_overwrites(call, &change),
        "bulk" => set_flag(call, &change, flags::pool::BULK),
        at if TIER_VARS.contains(&at) => {
            fail(Errno::EACCES, format!("'{pool}' is no cache tier, which alone has this variable"))
        }
        at => match FLAG_VARS.iter().find(|(name, _)| *name == at) {
            Some((_, bit)) => set_flag(call, &change, *bit),
            None => set_option(call, &change),
        },
    }
}

/// Refuses a mode that nobody would follow.
pub(super) fn check_autoscale(call: &Call<'_>, mode: AutoscaleMode) -> Result<(), Failure> {
    if mode != AutoscaleMode::Off && is_off(call.state) {
        return fail(
            Errno::EINVAL,
            "noautoscale is set, so no pool is looked at: ceph osd pool unset noautoscale ends that",
        );
    }
    Ok(())
}

/// Settings that the autoscaler reads.
const AUTOSCALER_VARS: [&str; 5] =
    ["pg_autoscale_bias", "pg_num_max", "pg_num_min", "target_size_bytes", "target_size_ratio"];

/// What an optional setting lacks to have an effect; `None` for those that have one.
fn lacks(change: &Change<'_>) -> Option<&'static str> {
    match change.var {
        var if AUTOSCALER_VARS.contains(&var) => None,
        "scrub_min_interval" | "scrub_max_interval" | "deep_scrub_interval" => None,
        // What holds anyway may be asked for.
        "csum_type" if change.text == "crc32c" => None,
        "csum_type" | "csum_min_block" | "csum_max_block" => {
            Some("stores sum every block of 4 KiB with CRC-32C and can do nothing else")
        }
        "recovery_priority" | "recovery_op_priority" => {
            Some("groups recover in turn: ceph pg force-recovery and force-backfill put some first")
        }
        "scrub_priority" => {
            Some("scrubs start by scrub_min_interval and deep_scrub_interval, the most overdue first")
        }
        _ => Some("nothing here reads it"),
    }
}

fn set_fast_read(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    if held(call, change)?.is_replicated() {
        return fail(Errno::EINVAL, "fast read is not supported in replicated pool");
    }
    let fast_read = change.truth()?;
    edited(call, change)?.fast_read = fast_read;
    change.done()
}

/// There is no way back: what was changed in part would not be what the pool's rules allow.
fn allow_overwrites(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    if held(call, change)?.is_replicated() {
        return fail(Errno::EINVAL, "only erasure-coded pools have allow_ec_overwrites");
    }
    if !change.truth()? {
        return fail(Errno::EINVAL, "ec overwrites cannot be disabled once enabled");
    }
    edited(call, change)?.flags |= flags::pool::EC_OVERWRITES;
    change.done()
}

/// The pool of the next epoch, to edit.
fn edited<'a>(call: &'a mut Call<'_>, change: &Change<'_>) -> Result<&'a mut Pool, Failure> {
    let pool = change.pool;
    call.state
        .osd
        .change_pool(change.id)
        .ok_or_else(|| refuse(Errno::ENOENT, format!("unrecognized pool '{pool}'")))
}

fn held(call: &mut Call<'_>, change: &Change<'_>) -> Result<Pool, Failure> {
    let pool = change.pool;
    let found = call.state.osd.upcoming().pool(change.id).cloned();
    found.ok_or_else(|| refuse(Errno::ENOENT, format!("unrecognized pool '{pool}'")))
}

fn set_size(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    let pool = held(call, change)?;
    if pool.has_flag(flags::pool::NOSIZECHANGE) {
        return fail(Errno::EPERM, "the pool's flag nosizechange forbids another size");
    }
    if !pool.is_replicated() {
        return fail(Errno::EOPNOTSUPP, "the size of an erasure-coded pool is that of its profile");
    }
    let wanted = change.int()?;
    let Some(size) = u8::try_from(wanted).ok().filter(|size| (1..=10).contains(size)) else {
        return fail(Errno::EINVAL, "a pool has 1 to 10 copies");
    };
    if size == 1 {
        if !call.state.config.flag_of_monitor("mon_allow_pool_size_one") {
            return fail(
                Errno::EPERM,
                "one copy is none when its disk fails: set mon_allow_pool_size_one first",
            );
        }
        if !change.sure {
            return fail(
                Errno::EPERM,
                "With one copy, a disk that fails takes its data along for good; pass --yes-i-really-mean-it to do it.",
            );
        }
    }
    call.state
        .osd
        .check_pg_count(Some(change.id), pool.pg_num_target, size.into(), &call.state.config)
        .map_err(|error| pool_failure(&error))?;
    let configured = call.state.config.number_of_monitor("osd_pool_default_min_size", 0.0);
    let pool = edited(call, change)?;
    pool.size = size;
    pool.min_size = default_min_size(size, configured);
    change.done()
}

/// What a pool of this size needs for I/O when no value is given.
fn default_min_size(size: u8, configured: f64) -> u8 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
    let configured = configured as u8;
    if configured > 0 { configured.min(size) } else { size - size / 2 }
}

fn set_min_size(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    let pool = held(call, change)?;
    if pool.has_flag(flags::pool::NOSIZECHANGE) {
        return fail(Errno::EPERM, "the pool's flag nosizechange forbids another min_size");
    }
    // With fewer shards than hold data nothing can be read.
    let least = call.state.osd.upcoming().code_of(&pool).map_or(1, |code| code.k());
    let Some(min_size) = u8::try_from(change.int()?).ok().filter(|value| (least..=pool.size).contains(value))
    else {
        return fail(
            Errno::EINVAL,
            format!("min_size is {least} to the pool's size, which is {}", pool.size),
        );
    };
    edited(call, change)?.min_size = min_size;
    change.done()
}

fn set_pg_num(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    match change_pg_num(call.state, change.id, change.int()?)? {
        true => change.done(),
        false => done(""),
    }
}

/// Whether a pool may have another number of PGs, and which; `None` when it is to have that already.
pub(super) fn check_pg_num(state: &mut State, id: PoolId, wanted: i64) -> Result<Option<u32>, Failure> {
    let gone = || refuse(Errno::ENOENT, format!("unrecognized pool '{id}'"));
    let pool = state.osd.upcoming().pool(id).cloned().ok_or_else(gone)?;
    if pool.has_flag(flags::pool::NOPGCHANGE) {
        return fail(Errno::EPERM, "the pool's flag nopgchange forbids another pg_num");
    }
    let most = nacre_maps::POOL_PGS_MAX;
    let Some(pg_num) = u32::try_from(wanted).ok().filter(|number| (1..=most).contains(number)) else {
        return fail(Errno::ERANGE, format!("pg_num is 1 to {most}"));
    };
    if pg_num == pool.pg_num_target {
        return Ok(None);
    }
    let (least, most) = pg_num_bounds(&pool);
    if least.is_some_and(|least| pg_num < least) || most.is_some_and(|most| pg_num > most) {
        let bound =
            |bound: Option<u32>| bound.map_or_else(|| "not set".to_owned(), |bound| bound.to_string());
        return fail(
            Errno::EINVAL,
            format!(
                "pg_num {pg_num} is outside of the pool's bounds: pg_num_min is {}, pg_num_max {}",
                bound(least),
                bound(most)
            ),
        );
    }
    if let Some((osd, shards)) = state.osd.divided_below(pool.pg_num, pg_num) {
        let why = format!(
            "osd.{osd} has {shards} shards, and is of a version that cannot merge pgs of different ones: upgrade it first"
        );
        return fail(Errno::EOPNOTSUPP, why);
    }
    if let Some(osd) = state.osd.older_than_merges_of(&pool).filter(|_| pg_num < pool.pg_num) {
        let why = format!(
            "osd.{osd} is of a version that cannot merge pgs of erasure-coded pools: upgrade it first"
        );
        return fail(Errno::EOPNOTSUPP, why);
    }
    if pg_num >= pool.pg_num {
        state
            .osd
            .check_pg_count(Some(id), pg_num, pool.size.into(), &state.config)
            .map_err(|error| pool_failure(&error))?;
    }
    Ok(Some(pg_num))
}

/// Lets a pool go to another number of PGs; whether that is another one. By hand it does so at once, where the autoscaler may do it at its
/// pace: see `OsdMaps::pace_pools`.
pub(crate) fn change_pg_num(state: &mut State, id: PoolId, wanted: i64) -> Result<bool, Failure> {
    let Some(pg_num) = check_pg_num(state, id, wanted)? else { return Ok(false) };
    let Some(pool) = state.osd.change_pool(id) else { return Ok(false) };
    // As in Ceph: placement follows, unless an operator has given it a number of its own.
    let follows = pool.pgp_num_target == pool.pg_num_target || pool.pg_autoscale_mode != AutoscaleMode::Off;
    pool.pg_num_target = pg_num;
    pool.pgp_num_target = pool.pgp_num_target.min(pg_num);
    if pool.pg_autoscale_mode == AutoscaleMode::Off {
        // Downwards it goes one PG at a time: see `OsdMaps::shrink_pools`.
        state.osd.grow_pool(id);
    }
    if follows && let Some(pool) = state.osd.change_pool(id) {
        pool.pgp_num_target = pg_num; // at its pace, once the PGs are divided: see `OsdMaps::pace_pools`
    }
    Ok(true)
}

fn set_pgp_num(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    let pool = held(call, change)?;
    let wanted = change.int()?;
    if pool.has_flag(flags::pool::NOPGCHANGE) {
        return fail(Errno::EPERM, "the pool's flag nopgchange forbids another pgp_num");
    }
    let Some(pgp_num) = u32::try_from(wanted).ok().filter(|number| *number > 0) else {
        return fail(Errno::EINVAL, format!("pgp_num is at least 1, not {wanted}"));
    };
    if pgp_num > pool.pg_num_target {
        return fail(Errno::EINVAL, format!("specified pgp_num {pgp_num} > pg_num {}", pool.pg_num_target));
    }
    let pool = edited(call, change)?;
    pool.pgp_num = pgp_num.min(pool.pg_num); // the rest comes with the PGs: see `OsdMaps::grow_pool`
    // How far Ceph's manager has let a pool come says nothing of where it is to go.
    if change.var == "pgp_num" {
        pool.pgp_num_target = pgp_num;
    }
    change.done()
}

fn set_rule(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    let pool = held(call, change)?;
    let crush = &call.state.osd.upcoming().crush;
    let found = crush.rule_by_name(change.text).and_then(|id| Some((id, crush.rule(id)?)));
    let Some((id, rule)) = found else {
        return fail(Errno::ENOENT, format!("crush rule {} does not exist", change.text));
    };
    if rule.kind.0 != pool.kind as u8 {
        return fail(Errno::EINVAL, format!("crush rule {id} type does not match pool"));
    }
    let Ok(id) = u8::try_from(id) else {
        return fail(Errno::ERANGE, format!("crush rule {id} is out of range"));
    };
    edited(call, change)?.crush_rule = id;
    change.done()
}

pub(super) fn autoscale_mode(text: &str) -> Result<AutoscaleMode, Failure> {
    match text {
        "off" => Ok(AutoscaleMode::Off),
        "warn" => Ok(AutoscaleMode::Warn),
        "on" => Ok(AutoscaleMode::On),
        other => fail(Errno::EINVAL, format!("specified invalid mode {other}")),
    }
}

fn set_autoscale(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    let mode = autoscale_mode(change.text)?;
    check_autoscale(call, mode)?;
    edited(call, change)?.pg_autoscale_mode = mode;
    change.done()
}

fn set_flag(call: &mut Call<'_>, change: &Change<'_>, bit: u64) -> Answer {
    let on = change.truth()?;
    if bit == flags::pool::HASHPSPOOL && !change.sure {
        return fail(
            Errno::EPERM,
            "All PGs of this pool will move to other OSDs, with all their data; pass --yes-i-really-mean-it to do it.",
        );
    }
    let pool = edited(call, change)?;
    pool.flags = if on { pool.flags | bit } else { pool.flags & !bit };
    change.done()
}

/// Words that a textual setting may have.
fn words_of(var: &str) -> Option<(&'static str, &'static [&'static str])> {
    match var {
        "csum_type" => {
            let types = &["none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];
            Some(("csum_type", types))
        }
        _ => None,
    }
}

fn option_value(change: &Change<'_>, kind: PoolOptionKind) -> Result<PoolOption, Failure> {
    if change.var == "csum_type" {
        return Ok(PoolOption::Int(CSUM_CRC32C));
    }
    match kind {
        PoolOptionKind::Int if change.var == "target_size_bytes" => change.bytes().map(PoolOption::Int),
        PoolOptionKind::Int => change.int().map(PoolOption::Int),
        PoolOptionKind::Float => match change.float()? {
            value if value < 0.0 => fail(Errno::EINVAL, format!("{} cannot be negative", change.var)),
            value if change.var.ends_with("_interval") && value > INTERVAL_SECONDS_MAX => {
                let var = change.var;
                fail(Errno::EINVAL, format!("{var} is in seconds, at most {INTERVAL_SECONDS_MAX}"))
            }
            value => Ok(PoolOption::Float(value)),
        },
        PoolOptionKind::Text => Ok(PoolOption::Text(change.text.to_owned())),
    }
}

/// As of options: 30 years, so that it can be added to any time.
const INTERVAL_SECONDS_MAX: f64 = 1e9;

/// Ceph's number for CRC-32C. `Checksummer::CSUM_CRC32C` at v16.2.15.
const CSUM_CRC32C: i64 = 4;

/// A zero, or `unset`, takes a setting back.
fn set_option(call: &mut Call<'_>, change: &Change<'_>) -> Answer {
    let Some((_, key, kind)) = POOL_OPTIONS.iter().find(|(name, ..)| *name == change.var) else {
        return fail(Errno::EINVAL, format!("unrecognized variable '{}'", change.var));
    };
    if change.var.starts_with("compression_") {
        let value = compression_setting(&held(call, change)?, (change.var, *key), change.text)?;
        value.iter().try_for_each(|value| check_compressing(call.state, change.var, value))?;
        return put_option(call, change, *key, value);
    }
    if let Some((what, words)) = words_of(change.var)
        && change.text != "unset"
        && !words.contains(&change.text)
    {
        return fail(Errno::EINVAL, format!("unrecognized {what} '{}'", change.text));
    }
    let takes_back = matches!(change.text, "unset" | "0" | "0.0");
    if let Some(reason) = lacks(change).filter(|_| !takes_back) {
        return fail(Errno::EOPNOTSUPP, format!("{} is not supported: {reason}", change.var));
    }
    let value = if change.text == "unset" { None } else { Some(option_value(change, *kind)?) };
    let unset = match &value {
        None => true,
        Some(PoolOption::Text(_)) => false,
        Some(PoolOption::Int(value)) => *value == 0,
        Some(PoolOption::Float(value)) => *value == 0.0,
    };
    if let Some(PoolOption::Int(wanted)) = &value {
        check_pg_num_bound(&held(call, change)?, change.var, *wanted)?;
    }
    put_option(call, change, *key, value.filter(|_| !unset))
}

fn put_option(call: &mut Call<'_>, change: &Change<'_>, key: i32, value: Option<PoolOption>) -> Answer {
    let pool = edited(call, change)?;
    match value {
        Some(value) => pool.options.insert(key, value),
        None => pool.options.remove(&key),
    };
    change.done()
}
