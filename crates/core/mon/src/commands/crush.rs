//! Commands that edit the CRUSH map: buckets, OSDs and their weights, device classes, tunables. The edits are in `osd/crush_edit.rs`.

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::osd_read::existing;
use super::osd_state::named_osds;
use super::table::{Command, command};
use crate::budget::CRUSH_BYTES_MAX;
use crate::command::Output;
use crate::osd::crush_edit::{self, CrushPlace, LocationError};
use nacre_crush::{CrushMap, EditError, Tunables, is_valid_name};
use nacre_denc::Decode;
use nacre_format::{Node, Section, general};
use nacre_maps::WEIGHT_ONE;
use nacre_types::{Errno, OsdId};

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd crush add-bucket name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N,req=false",
        "osd",
        "rw",
        "Add an empty bucket",
        add_bucket,
    ),
    command(
        "osd crush rename-bucket name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        "osd",
        "rw",
        "Give a bucket another name",
        rename_bucket,
    ),
    command(
        "osd crush move name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        "osd",
        "rw",
        "Hang a bucket elsewhere",
        move_bucket,
    ),
    command(
        "osd crush rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "osd",
        "rw",
        "Remove an OSD or an empty bucket",
        rm,
    ),
    command(
        "osd crush remove name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "osd",
        "rw",
        "Remove an OSD or an empty bucket",
        rm,
    ),
    command(
        "osd crush unlink name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        "osd",
        "rw",
        "Remove an OSD or an empty bucket",
        rm,
    ),
    command(
        "osd crush add name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        "osd",
        "rw",
        "Put an OSD somewhere, with a weight",
        set,
    ),
    command(
        "osd crush set name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        "osd",
        "rw",
        "Put an OSD somewhere, with a weight",
        set,
    ),
    command(
        "osd crush create-or-move name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        "osd",
        "rw",
        "Put an OSD somewhere; the weight is for a new one",
        create_or_move,
    ),
    command(
        "osd crush reweight name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=weight,type=CephFloat,range=0.0",
        "osd",
        "rw",
        "Give an OSD another weight",
        reweight,
    ),
    command(
        "osd crush reweight-subtree name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=weight,type=CephFloat,range=0.0",
        "osd",
        "rw",
        "Give all OSDs below a bucket another weight",
        reweight_subtree,
    ),
    command("osd crush reweight-all", "osd", "rw", "Add up all weights anew", reweight_all),
    command("osd crush class ls", "osd", "r", "Device classes", class_ls),
    command(
        "osd crush class ls-osd name=class,type=CephString,goodchars=[A-Za-z0-9-_]",
        "osd",
        "r",
        "OSDs of a device class",
        class_ls_osd,
    ),
    command(
        "osd crush class create name=class,type=CephString,goodchars=[A-Za-z0-9-_]",
        "osd",
        "rw",
        "Add a device class",
        class_create,
    ),
    command(
        "osd crush class rm name=class,type=CephString,goodchars=[A-Za-z0-9-_]",
        "osd",
        "rw",
        "Remove a device class",
        class_rm,
    ),
    command(
        "osd crush set-device-class name=class,type=CephString name=ids,type=CephString,n=N",
        "osd",
        "rw",
        "Give OSDs a device class",
        set_device_class,
    ),
    command(
        "osd crush rm-device-class name=ids,type=CephString,n=N",
        "osd",
        "rw",
        "Take OSDs' device class away",
        rm_device_class,
    ),
    command(
        "osd crush get-device-class name=ids,type=CephString,n=N",
        "osd",
        "r",
        "Device class of OSDs",
        get_device_class,
    ),
    command(
        "osd crush tunables name=profile,type=CephChoices,strings=legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default",
        "osd",
        "rw",
        "Choose a set of tunables",
        tunables,
    ),
    command(
        "osd setcrushmap name=prior_version,type=CephInt,req=false",
        "osd",
        "rw",
        "Replace the CRUSH map by the input",
        setcrushmap,
    ),
];

fn location_failure(error: &LocationError) -> Failure {
    let errno = match error {
        LocationError::NoItem(_) => Errno::ENOENT,
        LocationError::NotEmpty(_) => Errno::ENOTEMPTY,
        LocationError::Full => Errno::ENOSPC,
        _ => Errno::EINVAL,
    };
    refuse(errno, error.to_string())
}

/// Edits the next epoch's CRUSH map, or leaves it as it was.
fn edit<T>(
    call: &mut Call<'_>,
    edit: impl FnOnce(&mut CrushMap) -> Result<T, LocationError>,
) -> Result<T, Failure> {
    call.state.osd.edit_crush(edit).map_err(|error| location_failure(&error))
}

fn place_of(call: &Call<'_>) -> Result<CrushPlace, Failure> {
    let words = call.args.list("args");
    let place = CrushPlace::parse(words).filter(|place| !place.0.is_empty());
    place.ok_or_else(|| refuse(Errno::EINVAL, format!("invalid location: {}", words.join(" "))))
}

fn place_text(place: &CrushPlace) -> String {
    let pairs: Vec<String> = place.0.iter().map(|(kind, name)| format!("{kind}={name}")).collect();
    format!("{{{}}}", pairs.join(","))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float casts saturate, weights are small"
)]
fn fixed_weight(call: &Call<'_>) -> u32 {
    (call.args.float("weight").unwrap_or(0.0) * f64::from(WEIGHT_ONE)) as u32
}

/// An item of the next epoch's CRUSH map.
fn item(call: &mut Call<'_>, name: &str, text: String) -> Result<i32, Failure> {
    call.state.osd.upcoming().crush.item_by_name(name).ok_or_else(|| refuse(Errno::ENOENT, text))
}

fn add_bucket(call: &mut Call<'_>) -> Answer {
    let (name, kind) = (call.args.text("name").to_owned(), call.args.text("type").to_owned());
    let crush = &call.state.osd.upcoming().crush;
    if crush.item_by_name(&name).is_some() {
        return done(format!("bucket '{name}' already exists"));
    }
    match crush.type_by_name(&kind) {
        None => return fail(Errno::EINVAL, format!("type '{kind}' does not exist")),
        Some(0) => return fail(Errno::EINVAL, format!("type '{kind}' is for devices, not buckets")),
        Some(_) => {}
    }
    let place = if call.args.list("args").is_empty() { None } else { Some(place_of(call)?) };
    edit(call, |crush| {
        crush_edit::add_bucket(crush, &kind, &name)?;
        place.as_ref().map_or(Ok(()), |place| crush_edit::move_bucket(crush, &name, place))
    })?;
    match place {
        Some(place) => done(format!("added bucket {name} type {kind} to location {}", place_text(&place))),
        None => done(format!("added bucket {name} type {kind} to crush map")),
    }
}

fn rename_bucket(call: &mut Call<'_>) -> Answer {
    let (source, target) = (call.args.text("srcname").to_owned(), call.args.text("dstname").to_owned());
    let crush = &call.state.osd.upcoming().crush;
    let (from, to) = (crush.item_by_name(&source), crush.item_by_name(&target));
    match (from, to) {
        (None, Some(_)) => {
            done(format!("bucket '{source}' does not exist, '{target}' does: already renamed"))
        }
        (None, None) => fail(Errno::ENOENT, format!("srcname '{source}' does not exist")),
        (Some(_), Some(_)) => fail(Errno::EEXIST, format!("dstname '{target}' already exists")),
        (Some(_), None) if !is_valid_name(&target) => {
            fail(Errno::EINVAL, EditError::BadName(target).to_string())
        }
        (Some(id), None) if id >= 0 => fail(Errno::ENOTEMPTY, format!("'{source}' is not a bucket")),
        (Some(_), None) => {
            edit(call, |crush| crush_edit::rename_bucket(crush, &source, &target))?;
            done(format!("renamed bucket {source} into {target}"))
        }
    }
}

fn move_bucket(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    let place = place_of(call)?;
    let id = item(call, &name, format!("item {name} does not exist"))?;
    let what = format!("item id {id} name '{name}' to location {} in crush map", place_text(&place));
    if crush_edit::is_at(&call.state.osd.upcoming().crush, id, &place) {
        return done(format!("no need to move {what}"));
    }
    edit(call, |crush| {
        if id < 0 {
            return crush_edit::move_bucket(crush, &name, &place);
        }
        let weight = crush_edit::weight_of(crush, id);
        crush_edit::place_device(crush, id, weight, &place)
    })?;
    done(format!("moved {what}"))
}

/// An item is removed from below the bucket that is named, and nowhere else.
fn check_ancestor(call: &mut Call<'_>, name: &str, id: i32) -> Result<(), Failure> {
    let Some(ancestor) = call.args.text_opt("ancestor").map(str::to_owned) else { return Ok(()) };
    let crush = &call.state.osd.upcoming().crush;
    let Some(bucket) = crush.item_by_name(&ancestor) else {
        return fail(Errno::ENOENT, format!("there is no bucket '{ancestor}'"));
    };
    let parents: Vec<i32> = crush.parents(id).collect();
    let below = parents.iter().filter(|parent| crush.subtree_contains(bucket, **parent)).count();
    match below {
        0 => fail(Errno::ENOENT, format!("'{name}' is not below '{ancestor}'")),
        below if below < parents.len() => fail(
            Errno::EOPNOTSUPP,
            format!("'{name}' stands elsewhere, too; taking it from below one bucket only is not supported"),
        ),
        _ => Ok(()),
    }
}

fn rm(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("name").to_owned();
    let Some(id) = call.state.osd.upcoming().crush.item_by_name(&name) else {
        return done(format!("the crush map has no device '{name}'"));
    };
    check_ancestor(call, &name, id)?;
    let taken = call.state.osd.upcoming().crush.rule_that_takes(id).is_some();
    let has_items = call.state.osd.upcoming().crush.bucket(id).is_some_and(|bucket| !bucket.items.is_empty());
    if has_items {
        return fail(Errno::ENOTEMPTY, "(39) Directory not empty");
    }
    if taken {
        return fail(Errno::EBUSY, format!("bucket '{name}' is used by a rule"));
    }
    edit(call, |crush| crush_edit::remove(crush, &name))?;
    done(format!("removed item id {id} name '{name}' from crush map"))
}

fn osd_of(call: &mut Call<'_>) -> Result<OsdId, Failure> {
    let id = call.args.int("id").unwrap_or(-1);
    let text = format!("there is no osd.{id}; create it first, then place it");
    existing(call.state.osd.upcoming(), Some(id)).map_err(|failure| Failure { text, ..failure })
}

fn set(call: &mut Call<'_>) -> Answer {
    let (osd, place, weight) = (osd_of(call)?, place_of(call)?, fixed_weight(call));
    edit(call, |crush| crush_edit::place_device(crush, osd, weight, &place))?;
    let shown = general(f64::from(weight) / f64::from(WEIGHT_ONE), 6);
    done(format!(
        "set item id {osd} name 'osd.{osd}' weight {shown} at location {} to crush map",
        place_text(&place)
    ))
}

fn create_or_move(call: &mut Call<'_>) -> Answer {
    let (osd, place, weight) = (osd_of(call)?, place_of(call)?, fixed_weight(call));
    let moved =
        call.state.osd.create_or_move(osd, weight, &place).map_err(|error| location_failure(&error))?;
    let shown = general(f64::from(weight) / f64::from(WEIGHT_ONE), 6);
    let what =
        format!("item name 'osd.{osd}' weight {shown} at location {} to crush map", place_text(&place));
    done(if moved {
        format!("create-or-move updating {what}")
    } else {
        format!("create-or-move updated {what}")
    })
}

fn reweight(call: &mut Call<'_>) -> Answer {
    let (name, weight) = (call.args.text("name").to_owned(), fixed_weight(call));
    let id = item(call, &name, format!("the crush map has no device '{name}'"))?;
    if id < 0 {
        return fail(Errno::EINVAL, format!("'{name}' is a bucket of the crush map, no device"));
    }
    edit(call, |crush| crush_edit::reweight(crush, id, weight))?;
    let shown = general(call.args.float("weight").unwrap_or(0.0), 6);
    done(format!("reweighted item id {id} name '{name}' to {shown} in crush map"))
}

fn reweight_subtree(call: &mut Call<'_>) -> Answer {
    let (name, weight) = (call.args.text("name").to_owned(), fixed_weight(call));
    let id = item(call, &name, format!("the crush map has no device '{name}'"))?;
    let items = super::show::tree_items(&call.state.osd.upcoming().crush, Some(id), false);
    edit(call, |crush| {
        items
            .iter()
            .filter_map(super::show::TreeItem::osd)
            .try_for_each(|osd| crush_edit::reweight(crush, osd, weight))
    })?;
    let shown = general(call.args.float("weight").unwrap_or(0.0), 6);
    done(format!("reweighted subtree id {id} name '{name}' to {shown} in crush map"))
}

fn reweight_all(call: &mut Call<'_>) -> Answer {
    edit(call, crush_edit::rebuild_shadows)?;
    done("reweighted crush hierarchy")
}

fn class_ls(call: &mut Call<'_>) -> Answer {
    call.tree("crush_class_ls", Node::array("class", call.state.osd.map().crush.class_names.values()))
}

fn class_ls_osd(call: &mut Call<'_>) -> Answer {
    let crush = &call.state.osd.map().crush;
    let class = call.args.text("class");
    let wanted = crush.class_by_name(class);
    let osds: Vec<OsdId> = crush
        .item_classes
        .iter()
        .filter(|(id, at)| **id >= 0 && Some(**at) == wanted)
        .map(|(id, _)| *id)
        .collect();
    super::osd_read::osd_list(call, &osds)
}

fn class_create(call: &mut Call<'_>) -> Answer {
    let class = call.args.text("class").to_owned();
    if call.state.osd.upcoming().crush.class_by_name(&class).is_some() {
        return done(format!("class '{class}' already exists"));
    }
    if !is_valid_name(&class) {
        return fail(Errno::EINVAL, EditError::BadName(class).to_string());
    }
    let id = edit(call, |crush| Ok(crush_edit::add_class(crush, &class)))?;
    done(format!("created class {class} with id {id} to crush map"))
}

fn class_rm(call: &mut Call<'_>) -> Answer {
    let class = call.args.text("class").to_owned();
    let crush = &call.state.osd.upcoming().crush;
    let Some(id) = crush.class_by_name(&class) else { return done("") };
    let shadows: Vec<i32> =
        crush.class_buckets.values().filter_map(|by_class| by_class.get(&id)).copied().collect();
    if shadows.iter().any(|shadow| crush.rule_that_takes(*shadow).is_some()) {
        return fail(Errno::EBUSY, format!("class '{class}' still referenced by crush rule(s)"));
    }
    edit(call, |crush| crush_edit::remove_class(crush, id))?;
    done(format!("removed class {class} with id {id} from crush map"))
}

fn set_device_class(call: &mut Call<'_>) -> Answer {
    let class = call.args.text("class").to_owned();
    let words = call.args.list("ids").to_vec();
    let (mut text, mut changed) = (String::new(), Vec::new());
    for osd in named_osds(call.state.osd.upcoming(), &words)? {
        let map = call.state.osd.upcoming();
        if !map.exists(osd) {
            return fail(Errno::ENOENT, format!("osd.{osd} does not exist. {text}"));
        }
        match map.crush.item_class_name(osd) {
            Some(held) if held == class => {
                text.push_str(&format!("osd.{osd} already set to class {class}. "))
            }
            Some(held) => {
                let advice = "take the old class away by 'ceph osd crush rm-device-class ID'";
                let text = format!(
                    "osd.{osd} has already bound to class '{held}', can not reset class to '{class}'; {advice}"
                );
                return fail(Errno::EBUSY, text);
            }
            None => {
                let set = call.state.osd.set_device_class(osd, &class);
                set.map_err(|error| location_failure(&error))?;
                changed.push(osd.to_string());
            }
        }
    }
    done(format!("{text}set osd(s) {} to class '{class}'", changed.join(",")))
}

fn rm_device_class(call: &mut Call<'_>) -> Answer {
    let words = call.args.list("ids").to_vec();
    let (mut text, mut changed) = (String::new(), Vec::new());
    for osd in named_osds(call.state.osd.upcoming(), &words)? {
        if call.state.osd.upcoming().crush.item_class_name(osd).is_none() {
            text.push_str(&format!("osd.{osd} belongs to no class, "));
            continue;
        }
        edit(call, |crush| crush_edit::set_class(crush, osd, None))?;
        changed.push(osd.to_string());
    }
    done(format!("{text}done removing class of osd(s): {}", changed.join(",")))
}

fn get_device_class(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map();
    let osds = named_osds(map, call.args.list("ids"))?;
    let class = |osd: &OsdId| map.crush.item_class_name(*osd).unwrap_or_default();
    let plain: String = osds.iter().map(|osd| format!("{}\n", class(osd))).collect();
    let tree = osds.iter().map(|osd| Section::new().with("osd", *osd).with("device_class", class(osd)));
    call.either("device_classes", plain, Node::array("osd", tree))
}

fn tunables(call: &mut Call<'_>) -> Answer {
    let name = call.args.text("profile").to_owned();
    let Some(tunables) = Tunables::profile(&name) else {
        return fail(Errno::EINVAL, format!("unrecognized profile '{name}'"));
    };
    edit(call, |crush| {
        crush.tunables = tunables;
        Ok(())
    })?;
    done(format!("adjusted tunables profile to {name}"))
}

fn setcrushmap(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.upcoming();
    let version = i64::from(map.crush_version);
    if call.args.int("prior_version").is_some_and(|prior| prior != version) {
        return fail(Errno::EPERM, format!("prior_version does not match current version {version}"));
    }
    if call.data.len() > CRUSH_BYTES_MAX {
        let mib = CRUSH_BYTES_MAX >> 20;
        return fail(
            Errno::E2BIG,
            format!(
                "a CRUSH map has at most {mib} MiB, so that a change of the OSDs' map fits the monitors' log"
            ),
        );
    }
    let crush = CrushMap::from_bytes(call.data.clone())
        .map_err(|error| refuse(Errno::EINVAL, format!("Failed to parse crushmap: {error}")))?;
    let rules_used = map.pools.values().map(|pool| i32::from(pool.crush_rule));
    if let Some(rule) = rules_used.clone().find(|rule| crush.rule(*rule).is_none()) {
        return fail(Errno::EINVAL, format!("pools use crush rule {rule}, which the new map does not have"));
    }
    call.state.osd.set_crush(crush);
    Ok(Output { text: (version + 1).to_string(), ..Output::default() })
}
