//! Quotas of pools, and the applications that use them.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::table::{Command, command};
use crate::command::Output;
use nacre_format::{Node, Section, bytes, si};
use nacre_maps::Pool;
use nacre_types::{Errno, PoolId};
use std::collections::BTreeMap;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd pool set-quota name=pool,type=CephPoolname name=field,type=CephChoices,strings=max_objects|max_bytes name=val,type=CephString",
        "osd",
        "rw",
        "Limit a pool's objects or bytes; 0 for no limit",
        set_quota,
    ),
    command("osd pool get-quota name=pool,type=CephPoolname", "osd", "r", "Limits of a pool", get_quota),
    command(
        "osd pool application enable name=pool,type=CephPoolname name=app,type=CephString,goodchars=[A-Za-z0-9-_.] name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Say that an application uses a pool",
        enable,
    ),
    command(
        "osd pool application disable name=pool,type=CephPoolname name=app,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Say that an application no longer uses a pool",
        disable,
    ),
    command(
        "osd pool application set name=pool,type=CephPoolname name=app,type=CephString name=key,type=CephString,goodchars=[A-Za-z0-9-_.] name=value,type=CephString,goodchars=[A-Za-z0-9-_.=]",
        "osd",
        "rw",
        "Keep a value for an application",
        set,
    ),
    command(
        "osd pool application rm name=pool,type=CephPoolname name=app,type=CephString name=key,type=CephString",
        "osd",
        "rw",
        "Remove an application's value",
        rm,
    ),
    command(
        "osd pool application get name=pool,type=CephPoolname,req=false name=app,type=CephString,req=false name=key,type=CephString,req=false",
        "osd",
        "r",
        "Applications of a pool and their values",
        get,
    ),
];

/// Applications of one pool; Ceph's bound.
const APPLICATIONS_MAX: usize = 4;
/// Values that one application may keep.
const KEYS_MAX: usize = 64;
/// Longest name, key or value.
const TEXT_BYTES_MAX: usize = 128;

/// A limit: objects with decimal units, bytes with binary ones.
pub(super) fn limit(field: &str, text: &str) -> Result<u64, Failure> {
    let is_bytes = field == "max_bytes";
    let step: u64 = if is_bytes { 1024 } else { 1000 };
    let parser = if is_bytes { "strict_iecstrtoll" } else { "strict_sistrtoll" };
    let end = text.find(|ch: char| !ch.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().trim_end_matches('B');
    let unit = if is_bytes { unit.trim_end_matches('i') } else { unit };
    let wrong = |why: &str| refuse(Errno::EINVAL, format!("error parsing value '{text}': {parser}: {why}"));
    let power = ["", "K", "M", "G", "T", "P", "E"].iter().position(|at| at.eq_ignore_ascii_case(unit));
    let power = power.and_then(|power| u32::try_from(power).ok());
    let power = power.ok_or_else(|| {
        wrong(if unit.len() > 2 { "illegal prefix (length > 2)" } else { "unit prefix not recognized" })
    })?;
    let number: u64 = number.parse().map_err(|_| wrong("value should be a number"))?;
    number.checked_mul(step.pow(power)).ok_or_else(|| wrong("value is too large"))
}

fn set_quota(call: &mut Call<'_>) -> Answer {
    let (pool, field) = (call.args.text("pool").to_owned(), call.args.text("field").to_owned());
    let id = call.pool_id(&pool)?;
    let value = limit(&field, call.args.text("val"))?;
    if let Some(pool) = call.state.osd.change_pool(id) {
        match field.as_str() {
            "max_bytes" => pool.quota_max_bytes = value,
            _ => pool.quota_max_objects = value,
        }
    }
    done(format!("set-quota {field} = {value} for pool {pool}"))
}

fn found<'a>(call: &'a Call<'_>, name: &str) -> Result<(PoolId, &'a Pool), Failure> {
    let map = call.state.osd.map();
    let pool = map.pool_by_name(name).and_then(|id| Some((id, map.pool(id)?)));
    pool.ok_or_else(|| refuse(Errno::ENOENT, format!("unrecognized pool '{name}'")))
}

fn get_quota(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("pool");
    let (id, pool) = found(call, name)?;
    let digest = call.state.stats.pgs.digest(call.state.osd.map());
    let (objects, stored) =
        digest.pools.get(&id).map_or((0, 0), |sum| (sum.stats.num_objects, sum.stats.num_bytes));
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    let line = |quota: u64, what: &str, show: fn(u64) -> String, current: String| match quota {
        0 => "N/A".to_owned(),
        quota => format!("{}{what}  (current num {current})", show(quota)),
    };
    let plain = format!(
        "quotas for pool '{name}':\n  max objects: {}\n  max bytes  : {}\n",
        line(pool.quota_max_objects, " objects", si, format!("objects: {objects} objects")),
        line(pool.quota_max_bytes, "", bytes, format!("bytes: {} bytes", unsigned(stored))),
    );
    let tree = Section::new()
        .with("pool_name", name)
        .with("pool_id", id)
        .with("quota_max_objects", pool.quota_max_objects)
        .with("current_num_objects", objects)
        .with("quota_max_bytes", pool.quota_max_bytes)
        .with("current_num_bytes", stored);
    call.either("pool_quotas", plain, tree)
}

fn applications(call: &mut Call<'_>, id: PoolId) -> BTreeMap<String, BTreeMap<String, String>> {
    call.state.osd.upcoming().pool(id).map(|pool| pool.application_metadata.clone()).unwrap_or_default()
}

fn too_long(texts: &[&str]) -> Result<(), Failure> {
    match texts.iter().find(|text| text.len() > TEXT_BYTES_MAX) {
        Some(text) => fail(Errno::EINVAL, format!("'{text}' is too long; max length {TEXT_BYTES_MAX}")),
        None => Ok(()),
    }
}

fn store(call: &mut Call<'_>, id: PoolId, applications: BTreeMap<String, BTreeMap<String, String>>) {
    if let Some(pool) = call.state.osd.change_pool(id) {
        pool.application_metadata = applications;
    }
}

fn enable(call: &mut Call<'_>) -> Answer {
    let (pool, app) = (call.args.text("pool").to_owned(), call.args.text("app").to_owned());
    let id = call.pool_id(&pool)?;
    too_long(&[&app])?;
    if app.is_empty() {
        return fail(Errno::EINVAL, "application name must be provided");
    }
    let mut all = applications(call, id);
    if !all.contains_key(&app) {
        if !all.is_empty() && !call.args.flag("yes_i_really_mean_it") {
            let text = format!(
                "Pool '{pool}' has an application already; pass --yes-i-really-mean-it to enable one more"
            );
            return fail(Errno::EPERM, text);
        }
        if all.len() >= APPLICATIONS_MAX {
            return fail(
                Errno::EINVAL,
                format!("too many enabled applications on pool '{pool}'; max {APPLICATIONS_MAX}"),
            );
        }
        all.insert(app.clone(), BTreeMap::new());
        store(call, id, all);
    }
    done(format!("enabled application '{app}' on pool '{pool}'"))
}

fn disable(call: &mut Call<'_>) -> Answer {
    let (pool, app) = (call.args.text("pool").to_owned(), call.args.text("app").to_owned());
    let id = call.pool_id(&pool)?;
    if !call.args.flag("yes_i_really_mean_it") {
        return fail(
            Errno::EPERM,
            "The application may no longer find its data in this pool; pass --yes-i-really-mean-it to disable it",
        );
    }
    let mut all = applications(call, id);
    if all.remove(&app).is_none() {
        return done(format!("application '{app}' is not enabled on pool '{pool}'"));
    }
    store(call, id, all);
    done(format!("disable application '{app}' on pool '{pool}'"))
}

fn set(call: &mut Call<'_>) -> Answer {
    let [pool, app, key, value] = ["pool", "app", "key", "value"].map(|name| call.args.text(name).to_owned());
    let id = call.pool_id(&pool)?;
    too_long(&[&key, &value])?;
    let mut all = applications(call, id);
    let Some(keys) = all.get_mut(&app) else {
        return fail(Errno::ENOENT, format!("application '{app}' is not enabled on pool '{pool}'"));
    };
    if keys.len() >= KEYS_MAX && !keys.contains_key(&key) {
        return fail(
            Errno::EINVAL,
            format!("too many keys set for application '{app}' on pool '{pool}'; max {KEYS_MAX}"),
        );
    }
    keys.insert(key.clone(), value.clone());
    store(call, id, all);
    done(format!("set application '{app}' key '{key}' to '{value}' on pool '{pool}'"))
}

fn rm(call: &mut Call<'_>) -> Answer {
    let [pool, app, key] = ["pool", "app", "key"].map(|name| call.args.text(name).to_owned());
    let id = call.pool_id(&pool)?;
    let mut all = applications(call, id);
    let Some(keys) = all.get_mut(&app) else {
        return done(format!("application '{app}' is not enabled on pool '{pool}'"));
    };
    if keys.remove(&key).is_none() {
        return done(format!("application '{app}' on pool '{pool}' does not have key '{key}'"));
    }
    store(call, id, all);
    done(format!("removed application '{app}' key '{key}' on pool '{pool}'"))
}

fn keys_tree(keys: &BTreeMap<String, String>) -> Section {
    keys.iter().map(|(key, value)| (key.clone(), value.as_str())).collect()
}

fn pool_tree(pool: &Pool) -> Section {
    pool.application_metadata.iter().map(|(name, keys)| (name.clone(), keys_tree(keys))).collect()
}

fn get(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let Some(name) = call.args.text_opt("pool").filter(|name| !name.is_empty()) else {
        let all = map
            .pools
            .iter()
            .map(|(id, pool)| (map.pool_name(*id).unwrap_or_default().to_owned(), pool_tree(pool)));
        return call.tree("pools", all.collect::<Section>());
    };
    let (_, pool) = found(call, name)?;
    let Some(app) = call.args.text_opt("app").filter(|app| !app.is_empty()) else {
        return call.tree("applications", pool_tree(pool));
    };
    let Some(keys) = pool.application_metadata.get(app) else {
        return fail(Errno::ENOENT, format!("pool '{name}' has no application '{app}'"));
    };
    let Some(key) = call.args.text_opt("key").filter(|key| !key.is_empty()) else {
        return call.tree("application", keys_tree(keys));
    };
    match keys.get(key) {
        Some(value) if call.is_plain() => Ok(Output::data(format!("{value}\n"))),
        Some(value) => call.tree("value", Node::from(value)),
        None => {
            fail(Errno::ENOENT, format!("application '{app}' on pool '{name}' does not have key '{key}'"))
        }
    }
}
