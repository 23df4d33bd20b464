//! Ids of OSDs come and go: new, destroyed, purged, lost; and whether one can be spared.

use super::call::{Answer, Call, Failure, done, fail, must_be_warm, refuse};
use super::osd_read::existing;
use super::osd_secrets::{self, Secrets, osd_auth};
use super::osd_state::{named_osds, set_state};
use super::table::{Command, command};
use crate::command::Output;
use crate::osd::crush_edit;
use nacre_auth::AuthChange;
use nacre_format::{Format, Node, Section};
use nacre_maps::{OsdMap, flags};
use nacre_msg::stats::pg_state;
use nacre_types::{Errno, OsdId, PgId, Uuid, dmcrypt};
use std::collections::BTreeSet;

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd new name=uuid,type=CephUUID name=id,type=CephOsdName,req=false",
        "osd",
        "rw",
        "Take an id for a new OSD; its secrets come as JSON input",
        new,
    ),
    command(
        "osd create name=uuid,type=CephUUID,req=false name=id,type=CephOsdName,req=false",
        "osd",
        "rw",
        "Take an id for a new OSD",
        create,
    ),
    command(
        "osd purge name=id,type=CephOsdName name=force,type=CephBool,req=false name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Remove an OSD from everywhere: map, hierarchy, keys",
        purge,
    ),
    command(
        "osd purge-new name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Remove an OSD that never booted",
        purge_new,
    ),
    command(
        "osd purge-actual name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Remove an OSD without asking whether it can be spared",
        purge_actual,
    ),
    command(
        "osd destroy name=id,type=CephOsdName name=force,type=CephBool,req=false name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Remove an OSD but keep its id for a replacement",
        destroy,
    ),
    command(
        "osd destroy-actual name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Destroy an OSD without asking whether it can be spared",
        destroy_actual,
    ),
    command("osd rm name=ids,type=CephString,n=N", "osd", "rw", "Remove OSDs from the map alone", rm),
    command(
        "osd lost name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Give up an OSD's data for good",
        lost,
    ),
    command("osd setmaxosd name=newmax,type=CephInt,range=0", "osd", "rw", "Number of OSD slots", setmaxosd),
    command(
        "osd ok-to-stop name=ids,type=CephString,n=N name=max,type=CephInt,req=false",
        "osd",
        "r",
        "Can these OSDs stop without stopping I/O",
        ok_to_stop,
    ),
    command(
        "osd safe-to-destroy name=ids,type=CephString,n=N",
        "osd",
        "r",
        "Can these OSDs go without losing data",
        safe_to_destroy,
    ),
];

/// Most slots that `osd setmaxosd` gives, as `mon_max_osd`: each is in every map, used or not.
const SLOTS_MAX: i64 = 10_000;

fn wanted_uuid(call: &Call<'_>) -> Result<Option<Uuid>, Failure> {
    let Some(text) = call.args.text_opt("uuid") else { return Ok(None) };
    let uuid =
        Uuid::parse(text).ok_or_else(|| refuse(Errno::EINVAL, format!("invalid UUID value '{text}'.")))?;
    if uuid == Uuid::NIL {
        return fail(Errno::EINVAL, "the UUID of zeros stands for none: give the store's own");
    }
    Ok(Some(uuid))
}

fn free_id(map: &OsdMap) -> Result<OsdId, Failure> {
    let id = (0..).find(|osd| !map.exists(*osd)).filter(|osd| i64::from(*osd) < SLOTS_MAX);
    id.ok_or_else(|| refuse(Errno::ENOSPC, "no free osd id"))
}

fn holder_of(map: &OsdMap, uuid: Uuid) -> Option<OsdId> {
    map.osds().find(|osd| usize::try_from(*osd).ok().and_then(|at| map.osd_uuid.get(at)) == Some(&uuid))
}

/// The id to take: that of the same store, the one asked for, or the first that is free. True with an id
/// that is already this store's.
fn choose_id(map: &OsdMap, uuid: Option<Uuid>, id: Option<i64>) -> Result<(OsdId, bool), Failure> {
    if let Some(holder) = uuid.and_then(|uuid| holder_of(map, uuid)) {
        let fits = id.is_none_or(|id| id == i64::from(holder));
        let text = format!("id and uuid do not match: the uuid is osd.{holder}'s");
        return if fits { Ok((holder, true)) } else { fail(Errno::EEXIST, text) };
    }
    let Some(id) = id else { return Ok((free_id(map)?, false)) };
    let osd = OsdId::try_from(id).ok().filter(|_| id < SLOTS_MAX);
    let osd = osd.ok_or_else(|| refuse(Errno::EINVAL, format!("osd.{id} is out of range")))?;
    if map.exists(osd) && map.state(osd) & flags::osd::DESTROYED == 0 {
        return fail(Errno::EEXIST, format!("osd id {osd} already exists and is not destroyed"));
    }
    Ok((osd, false))
}

fn take_id(call: &mut Call<'_>, osd: OsdId, uuid: Option<Uuid>) {
    let map = call.state.osd.upcoming();
    let slots = map.max_osd();
    let (known, replaces) = (map.exists(osd), map.state(osd) & flags::osd::DESTROYED != 0);
    // The slot comes first: no change may name an OSD beyond the last one.
    let change = call.state.osd.change();
    if usize::try_from(osd).is_ok_and(|at| at >= slots) {
        change.new_max_osd = change.new_max_osd.max(osd + 1);
    }
    set_state(call, osd, flags::osd::DESTROYED, false);
    set_state(call, osd, flags::osd::EXISTS, true);
    if !known {
        set_state(call, osd, flags::osd::NEW, true);
    }
    let epoch = call.state.osd.next_epoch();
    let change = call.state.osd.change();
    if let Some(uuid) = uuid {
        change.new_uuid.insert(osd, uuid);
    }
    if replaces || !known {
        // What an OSD of this number held is not there any more: no PG is to take this one for a witness of it.
        change.new_lost.insert(osd, epoch);
    }
}

fn id_output(call: &Call<'_>, osd: OsdId) -> Answer {
    call.either("created_osd", format!("{osd}\n"), Section::new().with("osdid", osd))
}

fn new(call: &mut Call<'_>) -> Answer {
    let (uuid, id, secrets) = (wanted_uuid(call)?, call.args.int("id"), Secrets::read(call)?);
    let (osd, known) = choose_id(call.state.osd.upcoming(), uuid, id)?;
    let changes = secrets.changes(call, osd, uuid)?;
    changes.apply(call);
    if !known {
        take_id(call, osd, uuid);
    }
    id_output(call, osd)
}

fn create(call: &mut Call<'_>) -> Answer {
    let (uuid, id) = (wanted_uuid(call)?, call.args.int("id"));
    let (osd, known) = choose_id(call.state.osd.upcoming(), uuid, id)?;
    if !known {
        take_id(call, osd, uuid);
    }
    id_output(call, osd)
}

fn must_be_down(map: &OsdMap, osd: OsdId) -> Result<(), Failure> {
    if map.is_up(osd) { fail(Errno::EBUSY, format!("osd.{osd} is not `down`.")) } else { Ok(()) }
}

const SURE: &str = "What this OSD holds and its keys will be gone for good; 'ceph osd safe-to-destroy' tells whether anybody needs it. Pass --yes-i-really-mean-it to do it.";

fn must_be_sure(call: &Call<'_>) -> Result<(), Failure> {
    if call.args.flag("yes_i_really_mean_it") { Ok(()) } else { fail(Errno::EPERM, SURE) }
}

/// Refuses, without `--force`, an OSD whose data may still be needed.
fn must_be_spare(call: &mut Call<'_>, osd: OsdId) -> Result<(), Failure> {
    if call.args.flag("force") {
        return Ok(());
    }
    must_be_warm(call)?;
    let verdict = judge_destroy(call, &[osd]);
    match verdict.refusal() {
        Some((errno, text)) => {
            fail(errno, format!("{text}With --force it is done all the same, and data may be lost for good."))
        }
        None => Ok(()),
    }
}

/// The OSD's key, and what opens an encrypted store of it: without that, nothing reads its data any more.
fn forget_keys(call: &mut Call<'_>, osd: OsdId) {
    let map = call.state.osd.upcoming();
    let uuid = usize::try_from(osd).ok().and_then(|at| map.osd_uuid.get(at)).copied();
    let uuid = uuid.filter(|uuid| *uuid != Uuid::NIL);
    for name in [Some(osd_auth(osd)), uuid.map(dmcrypt::lockbox)].into_iter().flatten() {
        if call.state.auth.keys().entity(&name).is_some() {
            call.state.auth.apply(AuthChange::Remove(name));
        }
    }
    if let Some(uuid) = uuid {
        osd_secrets::forget_dmcrypt_keys(call, uuid);
    }
}

fn forget(call: &mut Call<'_>, osd: OsdId) {
    let all = u32::MAX;
    call.state.osd.change().new_weight.remove(&osd); // a weight would bring it back
    set_state(call, osd, all, false);
    let known = usize::try_from(osd).ok().and_then(|at| call.state.osd.upcoming().osd_uuid.get(at)).copied();
    let change = call.state.osd.change();
    change.new_uuid.remove(&osd);
    if known.is_some_and(|uuid| uuid != Uuid::NIL) {
        change.new_uuid.insert(osd, Uuid::NIL);
    }
}

fn purge_now(call: &mut Call<'_>) -> Answer {
    let id = call.args.int("id").unwrap_or(-1);
    let Ok(osd) = existing(call.state.osd.upcoming(), Some(id)) else {
        return done(format!("osd.{id} does not exist"));
    };
    must_be_down(call.state.osd.upcoming(), osd)?;
    let name = format!("osd.{osd}");
    if call.state.osd.upcoming().crush.item_by_name(&name).is_some() {
        let edited = call.state.osd.edit_crush(|crush| crush_edit::remove(crush, &name));
        edited.map_err(|error| refuse(Errno::EINVAL, error.to_string()))?;
    }
    forget_keys(call, osd);
    forget(call, osd);
    done(format!("purged osd.{osd}"))
}

fn purge(call: &mut Call<'_>) -> Answer {
    let id = call.args.int("id").unwrap_or(-1);
    if let Ok(osd) = existing(call.state.osd.upcoming(), Some(id)) {
        must_be_sure(call)?;
        must_be_spare(call, osd)?;
    }
    purge_now(call)
}

fn purge_actual(call: &mut Call<'_>) -> Answer {
    must_be_sure(call)?;
    purge_now(call)
}

fn purge_new(call: &mut Call<'_>) -> Answer {
    must_be_sure(call)?;
    let id = call.args.int("id").unwrap_or(-1);
    if let Ok(osd) = existing(call.state.osd.upcoming(), Some(id)) {
        must_be_down(call.state.osd.upcoming(), osd)?;
        if call.state.osd.upcoming().state(osd) & flags::osd::NEW == 0 {
            return fail(Errno::EPERM, format!("osd.{osd} is not new"));
        }
    }
    purge_now(call)
}

fn destroy_now(call: &mut Call<'_>) -> Answer {
    let id = call.args.int("id").unwrap_or(-1);
    let Ok(osd) = existing(call.state.osd.upcoming(), Some(id)) else {
        return done(format!("osd.{id} does not exist"));
    };
    must_be_down(call.state.osd.upcoming(), osd)?;
    if call.state.osd.upcoming().state(osd) & flags::osd::DESTROYED != 0 {
        return done(format!("destroyed osd.{osd}"));
    }
    forget_keys(call, osd);
    set_state(call, osd, flags::osd::DESTROYED, true);
    call.state.osd.change().new_uuid.insert(osd, Uuid::NIL);
    done(format!("destroyed osd.{osd}"))
}

fn destroy(call: &mut Call<'_>) -> Answer {
    let id = call.args.int("id");
    if let Ok(osd) = existing(call.state.osd.upcoming(), id) {
        must_be_sure(call)?;
        must_be_spare(call, osd)?;
    }
    destroy_now(call)
}

fn destroy_actual(call: &mut Call<'_>) -> Answer {
    must_be_sure(call)?;
    destroy_now(call)
}

fn rm(call: &mut Call<'_>) -> Answer {
    let words = call.args.list("ids").to_vec();
    let (mut removed, mut text, mut busy) = (Vec::new(), String::new(), false);
    for osd in named_osds(call.state.osd.upcoming(), &words)? {
        let map = call.state.osd.upcoming();
        if !map.exists(osd) {
            text.push_str(&format!("osd.{osd} does not exist. "));
        } else if map.is_up(osd) {
            text.push_str(&format!("osd.{osd} is up: stop it before it is removed. "));
            busy = true;
        } else {
            forget(call, osd);
            removed.push(format!("osd.{osd}"));
        }
    }
    if !removed.is_empty() {
        text.push_str(&format!("removed {}", removed.join(", ")));
    }
    if busy { fail(Errno::EBUSY, text) } else { done(text) }
}

fn lost(call: &mut Call<'_>) -> Answer {
    if !call.args.flag("yes_i_really_mean_it") {
        return fail(
            Errno::EPERM,
            "acknowledged writes that only this OSD has are given up; pass --yes-i-really-mean-it to do it.",
        );
    }
    let id = call.args.int("id");
    let osd = existing(call.state.osd.upcoming(), id)?;
    if call.state.osd.upcoming().is_up(osd) {
        return fail(Errno::EBUSY, format!("osd.{osd} is not down or doesn't exist"));
    }
    let epoch = call.state.osd.upcoming().info(osd).down_at;
    call.state.osd.change().new_lost.insert(osd, epoch);
    done(format!("marked osd lost in epoch {epoch}"))
}

fn setmaxosd(call: &mut Call<'_>) -> Answer {
    let wanted = call.args.int("newmax").unwrap_or(0);
    let map = call.state.osd.upcoming();
    if wanted > SLOTS_MAX {
        return fail(
            Errno::ERANGE,
            format!("cannot set max_osd to {wanted} which is > conf.mon_max_osd ({SLOTS_MAX})"),
        );
    }
    if let Some(osd) = map.osds().find(|osd| i64::from(*osd) >= wanted) {
        return fail(
            Errno::EBUSY,
            format!("cannot shrink max_osd to {wanted} because osd.{osd} (and possibly others) still in use"),
        );
    }
    call.state.osd.change().new_max_osd = i32::try_from(wanted).unwrap_or(i32::MAX);
    done(format!("set new max_osd = {wanted}"))
}

/// What stopping OSDs would do to PGs.
#[derive(Default)]
struct Stop {
    degraded: Vec<PgId>,
    bad: Vec<PgId>,
    unknown: usize,
}

impl Stop {
    fn of(call: &Call<'_>, map: &OsdMap, osds: &BTreeSet<OsdId>) -> Self {
        let mut found = Self { unknown: call.state.stats.pgs.digest(map).unknown_count, ..Self::default() };
        for (pg, stat) in call.state.stats.pgs.pgs(map) {
            let there = stat.acting.iter().filter(|osd| **osd != nacre_crush::ITEM_NONE).count();
            let left = stat.acting.iter().filter(|osd| map.is_up(**osd) && !osds.contains(osd)).count();
            if left == there {
                continue;
            }
            let min_size = map.pool(pg.pool).map_or(1, |pool| usize::from(pool.min_size));
            let active = stat.state & pg_state::ACTIVE != 0;
            if active && left >= min_size { found.degraded.push(pg) } else { found.bad.push(pg) }
        }
        found
    }

    fn is_ok(&self) -> bool {
        self.bad.is_empty() && self.unknown == 0
    }
}

/// OSDs that may be stopped with `osds`, the nearest in the hierarchy first: those of one host go best together.
fn neighbours(map: &OsdMap, osds: &BTreeSet<OsdId>) -> Vec<OsdId> {
    let Some(first) = osds.first() else { return Vec::new() };
    let mut found = Vec::new();
    for bucket in crate::osd::view::ancestors(&map.crush, *first) {
        for osd in map.crush.devices_below(bucket) {
            if map.is_up(osd) && !osds.contains(&osd) && !found.contains(&osd) {
                found.push(osd);
            }
        }
    }
    found
}

/// With `max`, also which others may stop with them, up to that many in all.
fn ok_to_stop(call: &mut Call<'_>) -> Answer {
    let map = call.state.osd.map().clone();
    let mut osds: BTreeSet<OsdId> = named_osds(&map, call.args.list("ids"))?.into_iter().collect();
    let max = call.args.int("max").map_or(0, |max| usize::try_from(max).unwrap_or(0));
    if max > 0 && max < osds.len() {
        return fail(Errno::EINVAL, format!("max is {max}, but {} OSDs are named", osds.len()));
    }
    must_be_warm(call)?;
    let mut stop = Stop::of(call, &map, &osds);
    if stop.is_ok() {
        let candidates = neighbours(&map, &osds).into_iter().take(STOP_CANDIDATES_MAX);
        for osd in candidates {
            if osds.len() >= max {
                break;
            }
            osds.insert(osd);
            let wider = Stop::of(call, &map, &osds);
            if wider.is_ok() {
                stop = wider;
            } else {
                osds.remove(&osd);
            }
        }
    }
    let texts = |pgs: &[PgId]| pgs.iter().map(ToString::to_string).collect::<Vec<_>>();
    if stop.is_ok() {
        let tree = Section::new()
            .with("ok_to_stop", true)
            .with("osds", Node::array("osd", osds.iter().copied()))
            .with("num_ok_pgs", stop.degraded.len())
            .with("num_not_ok_pgs", 0)
            .with("ok_become_degraded", Node::array("pgid", texts(&stop.degraded)));
        return Ok(Output::data(Node::from(tree).render(call.format.or(Format::Json), "ok_to_stop")));
    }
    let text = format!(
        "{} PGs are or would become inactive without these OSDs: not now",
        stop.bad.len() + stop.unknown
    );
    Ok(Output { code: Errno::EBUSY.negated(), text, ..Output::default() })
}

/// OSDs that `osd ok-to-stop --max` tries at most: each costs a look at all PGs.
const STOP_CANDIDATES_MAX: usize = 64;

/// Verdicts of `osd safe-to-destroy`.
#[derive(Default)]
struct Destroyable {
    safe: Vec<OsdId>,
    active: Vec<OsdId>,
    missing: Vec<OsdId>,
    stored: Vec<OsdId>,
    members: usize,
}

impl Destroyable {
    fn refusal(&self) -> Option<(Errno, String)> {
        let list = |osds: &[OsdId]| osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut text = String::new();
        let mut errno = None;
        if !self.active.is_empty() {
            text.push_str(&format!(
                "OSD(s) {} have {} pgs currently mapped to them. ",
                list(&self.active),
                self.members
            ));
            errno = Some(Errno::EBUSY);
        }
        if !self.missing.is_empty() {
            text.push_str(&format!("OSD(s) {} have reported nothing, and some PGs are not active+clean: nobody knows what they hold. ", list(&self.missing)));
            errno = errno.or(Some(Errno::EAGAIN));
        }
        if !self.stored.is_empty() {
            text.push_str(&format!("OSD(s) {} held PG data when they last reported, and some PGs are not active+clean: they may still be needed. ", list(&self.stored)));
            errno = errno.or(Some(Errno::EBUSY));
        }
        errno.map(|errno| (errno, text))
    }
}

fn judge_destroy(call: &mut Call<'_>, osds: &[OsdId]) -> Destroyable {
    let map = call.state.osd.map().clone();
    let digest = call.state.stats.pgs.digest(&map);
    let clean = pg_state::ACTIVE | pg_state::CLEAN;
    let all_clean = digest.by_state.keys().all(|state| state & clean == clean);
    let mut verdict = Destroyable::default();
    for osd in osds.iter().copied() {
        if !map.exists(osd) {
            verdict.safe.push(osd);
            continue;
        }
        let members = digest.osd_pgs.get(&osd).map_or(0, |pgs| pgs.members);
        match call.state.stats.pgs.osd(osd) {
            _ if members > 0 => {
                verdict.members += members;
                verdict.active.push(osd);
            }
            None if !all_clean => verdict.missing.push(osd),
            Some(stat) if stat.num_pgs > 0 && !all_clean => verdict.stored.push(osd),
            _ => verdict.safe.push(osd),
        }
    }
    verdict
}

fn safe_to_destroy(call: &mut Call<'_>) -> Answer {
    let osds = named_osds(&call.state.osd.map().clone(), call.args.list("ids"))?;
    must_be_warm(call)?;
    let verdict = judge_destroy(call, &osds);
    if !call.is_plain() {
        let list = |osds: &[OsdId]| Node::array("osd", osds.iter().copied());
        let tree = Section::new()
            .with("safe_to_destroy", list(&verdict.safe))
            .with("active", list(&verdict.active))
            .with("missing_stats", list(&verdict.missing))
            .with("stored_pgs", list(&verdict.stored));
        return call.tree("osd_status", tree);
    }
    match verdict.refusal() {
        Some((errno, text)) => fail(errno, text),
        None => {
            let safe: Vec<String> = verdict.safe.iter().map(ToString::to_string).collect();
            done(format!("OSD(s) {} may be destroyed: all data has its copies elsewhere.", safe.join(",")))
        }
    }
}
