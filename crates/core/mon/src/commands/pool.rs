//! Pools: made, named, listed, counted, deleted.

use super::call::{Answer, Call, Failure, done, fail, pool_failure, refuse};
use super::crush_rule::erasure_rule;
use super::erasure_code_profile::check_profile;
use super::pg_num_bound::check_pg_num_bounds;
use super::pool_get_set::{autoscale_mode, check_autoscale};
use super::show;
use super::status::{client_rate_text, client_rate_tree, recovery_rate_text, recovery_rate_tree};
use super::table::{Command, command};
use crate::osd::{PoolError, PoolSpec};
use nacre_crush::RuleKind;
use nacre_format::{Node, Section};
use nacre_maps::{AutoscaleMode, PoolKind, PoolOption, flags};
use nacre_types::{Errno, PoolId};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd pool create name=pool,type=CephPoolname name=pg_num,type=CephInt,range=0,req=false name=pgp_num,type=CephInt,range=0,req=false name=pool_type,type=CephChoices,strings=replicated|erasure,req=false name=erasure_code_profile,type=CephString,goodchars=[A-Za-z0-9-_.],req=false name=rule,type=CephString,req=false name=expected_num_objects,type=CephInt,range=0,req=false name=size,type=CephInt,range=0,req=false name=pg_num_min,type=CephInt,range=0,req=false name=pg_num_max,type=CephInt,range=0,req=false name=autoscale_mode,type=CephChoices,strings=on|off|warn,req=false name=bulk,type=CephBool,req=false name=target_size_bytes,type=CephInt,range=0,req=false name=target_size_ratio,type=CephFloat,range=0.0,req=false",
        "osd",
        "rw",
        "Make a pool",
        create,
    ),
    command(
        "osd pool rm name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false name=yes_i_really_really_mean_it,type=CephBool,req=false name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        "osd",
        "rw",
        "Delete a pool and all its data",
        rm,
    ),
    command(
        "osd pool delete name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false name=yes_i_really_really_mean_it,type=CephBool,req=false name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        "osd",
        "rw",
        "Delete a pool and all its data",
        rm,
    ),
    command(
        "osd pool rename name=srcpool,type=CephPoolname name=destpool,type=CephPoolname",
        "osd",
        "rw",
        "Give a pool another name",
        rename,
    ),
    command(
        "osd pool ls name=detail,type=CephChoices,strings=detail,req=false",
        "osd",
        "r",
        "Names of the pools, or all about them",
        ls,
    ),
    command(
        "osd pool stats name=pool_name,type=CephPoolname,req=false",
        "osd",
        "r",
        "What goes on in pools",
        stats,
    ),
    command(
        "osd pool mksnap name=pool,type=CephPoolname name=snap,type=CephString",
        "osd",
        "rw",
        "Make a snapshot of a pool",
        mksnap,
    ),
    command(
        "osd pool rmsnap name=pool,type=CephPoolname name=snap,type=CephString",
        "osd",
        "rw",
        "Remove a snapshot of a pool",
        rmsnap,
    ),
];

fn small<T: TryFrom<i64>>(call: &Call<'_>, name: &str) -> Result<Option<T>, Failure> {
    let convert = |value: i64| {
        T::try_from(value).map_err(|_| refuse(Errno::ERANGE, format!("{name} {value} is out of range")))
    };
    call.args.int(name).map(convert).transpose()
}

/// What the autoscaler reads of a pool that is to be made.
struct Autoscaling {
    mode: Option<AutoscaleMode>,
    is_bulk: bool,
    options: BTreeMap<i32, PoolOption>,
}

fn autoscaling(call: &Call<'_>) -> Result<Autoscaling, Failure> {
    let mode = call.args.text_opt("autoscale_mode").map(autoscale_mode).transpose()?;
    check_autoscale(call, mode.unwrap_or(AutoscaleMode::Off))?;
    let bound = |name: &str| call.args.int(name).unwrap_or(0);
    check_pg_num_bounds(bound("pg_num_min"), bound("pg_num_max"))?;
    let value = |name: &str| match call.args.float(name) {
        Some(value) => Some(PoolOption::Float(value)).filter(|_| value > 0.0),
        None => call.args.int(name).filter(|value| *value > 0).map(PoolOption::Int),
    };
    let named = ["pg_num_min", "pg_num_max", "target_size_bytes", "target_size_ratio"];
    let known = show::POOL_OPTIONS.iter().filter(|(name, ..)| named.contains(name));
    let options: BTreeMap<i32, PoolOption> =
        known.filter_map(|(name, key, _)| Some((*key, value(name)?))).collect();
    Ok(Autoscaling { mode, is_bulk: call.args.flag("bulk"), options })
}

/// How many objects are to come would matter to stores that make a folder for some of them.
fn refuse_expectations(call: &Call<'_>) -> Result<(), Failure> {
    if call.args.int("expected_num_objects").is_some_and(|value| value > 0) {
        return fail(
            Errno::EOPNOTSUPP,
            "expected_num_objects: stores here prepare nothing for objects to come",
        );
    }
    Ok(())
}

/// The rule named as such or, as older tools do, in the place of the profile.
fn rule_of(call: &mut Call<'_>, kind: PoolKind) -> Result<Option<u8>, Failure> {
    if kind == PoolKind::Erasure {
        return Ok(None);
    }
    let in_profile = call.args.text_opt("erasure_code_profile");
    let Some(name) =
        call.args.text_opt("rule").or(in_profile).filter(|name| !name.is_empty()).map(str::to_owned)
    else {
        return Ok(None);
    };
    let found = call.state.osd.upcoming().crush.rule_by_name(&name).and_then(|id| u8::try_from(id).ok());
    found.map(Some).ok_or_else(|| refuse(Errno::ENOENT, format!("specified rule {name} doesn't exist")))
}

fn spec_of(call: &mut Call<'_>, kind: PoolKind) -> Result<PoolSpec, Failure> {
    Ok(PoolSpec {
        name: call.args.text("pool").to_owned(),
        kind,
        pg_num: small(call, "pg_num")?.filter(|number: &u32| *number != 0),
        pgp_num: small(call, "pgp_num")?,
        size: small(call, "size")?,
        crush_rule: rule_of(call, kind)?,
        ..PoolSpec::default()
    })
}

/// The profile of an erasure-coded pool that is to be made.
fn profile_of(call: &mut Call<'_>) -> Result<String, Failure> {
    let name =
        call.args.text_opt("erasure_code_profile").filter(|name| !name.is_empty()).unwrap_or("default");
    match call.state.osd.upcoming().erasure_code_profiles.get(name) {
        Some(profile) => check_profile(profile).map(|_| name.to_owned()),
        None => fail(Errno::ENOENT, format!("unknown erasure code profile '{name}'")),
    }
}

/// Its rule: the one that is named, or one of the pool's own name, made if it is not there.
fn erasure_rule_of(call: &mut Call<'_>, pool: &str, profile: &str) -> Result<u8, Failure> {
    let usual = if profile == "default" { "erasure-code" } else { pool };
    let name = call.args.text_opt("rule").filter(|name| !name.is_empty()).unwrap_or(usual).to_owned();
    let id = erasure_rule(call, &name, profile)?;
    let is_erasure = call
        .state
        .osd
        .upcoming()
        .crush
        .rule(i32::from(id))
        .is_some_and(|rule| rule.kind == RuleKind::ERASURE);
    if is_erasure {
        Ok(id)
    } else {
        fail(Errno::EINVAL, format!("crush rule {name} type does not match pool"))
    }
}

fn create(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("pool").to_owned();
    let erasure = call.args.text_opt("pool_type") == Some("erasure");
    let map = call.state.osd.upcoming();
    if let Some(pool) = map.pool_by_name(&name).and_then(|id| map.pool(id)) {
        let other = pool.is_replicated() == erasure;
        let wanted = if erasure { "erasure" } else { "replicated" };
        let text = format!("pool '{name}' cannot change to type {wanted}");
        return if other { fail(Errno::EINVAL, text) } else { done(format!("pool '{name}' already exists")) };
    }
    if name.starts_with('.') {
        return fail(Errno::EPERM, "pool names beginning with . are not allowed");
    }
    let kind = if erasure { PoolKind::Erasure } else { PoolKind::Replicated };
    let autoscaling = autoscaling(call)?;
    refuse_expectations(call)?;
    let mut spec = spec_of(call, kind)?;
    spec.autoscale_mode = autoscaling.mode;
    if erasure {
        spec.erasure_code_profile = profile_of(call)?;
        spec.crush_rule = Some(erasure_rule_of(call, &name, &spec.erasure_code_profile)?);
    }
    let made = call.state.osd.create_pool(&spec, call.wall, &call.state.config);
    let id = made.map_err(|error| pool_failure(&error))?;
    if autoscaling.is_bulk || !autoscaling.options.is_empty() {
        let pool = call.state.osd.change_pool(id).expect("it was made just now");
        pool.flags |= if autoscaling.is_bulk { flags::pool::BULK } else { 0 };
        pool.options.extend(autoscaling.options);
    }
    done(format!("pool '{name}' created"))
}

fn rm(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("pool").to_owned();
    let Some(id) = call.state.osd.upcoming().pool_by_name(&name) else {
        return done(format!("pool '{name}' does not exist"));
    };
    let sure = call.args.flag("yes_i_really_really_mean_it")
        || call.args.flag("yes_i_really_really_mean_it_not_faking");
    if call.args.text("pool2") != name || !sure {
        return fail(
            Errno::EPERM,
            format!(
                "This destroys all data of the pool {name} for good. To do it, give the pool's name twice, and then --yes-i-really-really-mean-it."
            ),
        );
    }
    if call.state.fs.map().user_of_pool(id).is_some() {
        return fail(Errno::EBUSY, format!("pool '{name}' is in use by CephFS"));
    }
    call.state.osd.delete_pool(id, &call.state.config).map_err(|error| pool_failure(&error))?;
    done(format!("pool '{name}' removed"))
}

fn rename(call: &mut Call<'_>) -> Answer {
    let (source, target) = (call.args.text("srcpool").to_owned(), call.args.text("destpool").to_owned());
    let map = call.state.osd.upcoming();
    let (from, to) = (map.pool_by_name(&source), map.pool_by_name(&target));
    match (from, to) {
        (None, Some(_)) => done(format!(
            "pool '{source}' does not exist; pool '{target}' does -- assuming successful rename"
        )),
        (None, None) => fail(Errno::ENOENT, format!("unrecognized pool '{source}'")),
        (Some(_), Some(_)) => fail(Errno::EEXIST, format!("pool '{target}' already exists")),
        (Some(id), None) => {
            call.state.osd.rename_pool(id, &target).map_err(|error| pool_failure(&error))?;
            done(format!("pool '{source}' renamed to '{target}'"))
        }
    }
}

fn ls(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let names = map.pool_names.values();
    if call.args.text_opt("detail").is_none() {
        let plain: String = names.clone().map(|name| format!("{name}\n")).collect();
        return call.either("pools", plain, Node::array("pool_name", names));
    }
    let name = |id: &PoolId| map.pool_name(*id).unwrap_or_default();
    let mut plain: String = map
        .pools
        .iter()
        .flat_map(|(id, pool)| {
            let own = show::pool_line(*id, name(id), pool);
            std::iter::once(own).chain(show::pool_snap_lines(pool)).map(|line| line + "\n")
        })
        .collect();
    plain.push('\n');
    let tree = map.pools.iter().map(|(id, pool)| {
        let mut section = Section::new().with("pool_id", *id).with("pool_name", name(id));
        section.extend(show::pool_tree(pool));
        section
    });
    call.either("pools", plain, Node::array("pool", tree))
}

fn stats(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let only = match call.args.text_opt("pool_name") {
        Some(name) => match map.pool_by_name(name) {
            Some(id) => Some(id),
            None => return fail(Errno::ENOENT, format!("unrecognized pool '{name}'")),
        },
        None => None,
    };
    let (mut plain, mut tree) = (String::new(), Vec::new());
    for (id, name) in map.pool_names.iter().filter(|(id, _)| only.is_none_or(|only| only == **id)) {
        let rate = call.state.stats.pgs.rate(Some(*id));
        let (io, recovery) = (client_rate_text(&rate), recovery_rate_text(&rate));
        plain.push_str(&format!("pool {name} id {id}\n"));
        if io.is_empty() && recovery.is_empty() {
            plain.push_str("  nothing is going on\n");
        }
        if !recovery.is_empty() {
            plain.push_str(&format!("  recovery io {recovery}\n"));
        }
        if !io.is_empty() {
            plain.push_str(&format!("  client io {io}\n"));
        }
        plain.push('\n');
        let section = Section::new()
            .with("pool_name", name)
            .with("pool_id", *id)
            .with("recovery", Section::new())
            .with("recovery_rate", recovery_rate_tree(&rate))
            .with("client_io_rate", client_rate_tree(&rate));
        tree.push(section);
    }
    call.either("pool_stats", plain, Node::array("pool", tree))
}

fn mksnap(call: &mut Call<'_>) -> Answer {
    let (pool, snap) = (call.args.text("pool").to_owned(), call.args.text("snap").to_owned());
    let id = call.pool_id(&pool)?;
    if let Some(fs) = call.state.fs.map().user_of_pool(id) {
        let text = format!(
            "pool '{pool}' is used by file system '{}', whose directories have snapshots of their own",
            fs.mds_map.fs_name
        );
        return fail(Errno::EOPNOTSUPP, text);
    }
    match call.state.osd.create_pool_snap(id, &snap, call.wall) {
        Ok(_) => done(format!("created pool {pool} snap {snap}")),
        Err(PoolError::SnapExists { .. }) => done(format!("pool {pool} snap {snap} already exists")),
        Err(PoolError::SnapMode(_)) => fail(Errno::EINVAL, format!("pool {pool} is in unmanaged snaps mode")),
        Err(error) => Err(pool_failure(&error)),
    }
}

fn rmsnap(call: &mut Call<'_>) -> Answer {
    let (pool, snap) = (call.args.text("pool").to_owned(), call.args.text("snap").to_owned());
    let id = call.pool_id(&pool)?;
    match call.state.osd.remove_pool_snap(id, &snap) {
        Ok(()) => done(format!("removed pool {pool} snap {snap}")),
        Err(PoolError::NoSnap) => done(format!("pool {pool} snap {snap} does not exist")),
        Err(PoolError::SnapMode(_)) => fail(Errno::EINVAL, format!("pool {pool} is in unmanaged snaps mode")),
        Err(error) => Err(pool_failure(&error)),
    }
}
