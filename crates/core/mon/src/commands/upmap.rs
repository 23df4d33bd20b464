//! Exceptions from CRUSH: upmaps, temporary sets and primaries, forced peering.

use super::call::{Answer, Call, Failure, done, fail, must_be_warm, refuse};
use super::osd_read::{existing, existing_pg};
use super::show::text_set;
use super::signature::osd_id;
use super::table::{Command, command};
use nacre_msg::stats::pg_state;
use nacre_types::{Errno, OsdId, PgId};

pub(super) const COMMANDS: &[Command] = &[
    command(
        "osd pg-upmap name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "osd",
        "rw",
        "Place a PG on these OSDs instead",
        pg_upmap,
    ),
    command(
        "osd rm-pg-upmap name=pgid,type=CephPgid",
        "osd",
        "rw",
        "Place a PG by the rule again",
        rm_pg_upmap,
    ),
    command(
        "osd pg-upmap-items name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "osd",
        "rw",
        "Place a PG with OSDs exchanged: from, to, ...",
        pg_upmap_items,
    ),
    command(
        "osd rm-pg-upmap-items name=pgid,type=CephPgid",
        "osd",
        "rw",
        "Place a PG without exchanges again",
        rm_pg_upmap_items,
    ),
    command(
        "osd pg-temp name=pgid,type=CephPgid name=id,type=CephOsdName,n=N,req=false",
        "osd",
        "rw",
        "Serve a PG from these OSDs for now; for developers",
        pg_temp,
    ),
    command(
        "osd primary-temp name=pgid,type=CephPgid name=id,type=CephOsdName",
        "osd",
        "rw",
        "Serve a PG from this primary for now; for developers",
        primary_temp,
    ),
    command(
        "osd force-create-pg name=pgid,type=CephPgid name=yes_i_really_mean_it,type=CephBool,req=false",
        "osd",
        "rw",
        "Make a PG anew and empty, and give up all that it held",
        force_create,
    ),
    command("pg repeer name=pgid,type=CephPgid", "osd", "rw", "Let a PG peer anew", repeer),
];

/// Exchanges that one PG may have.
const PAIRS_COUNT_MAX: usize = 16;

/// A PG that serves has a copy of everything; only one that does not can be given up.
fn force_create(call: &mut Call<'_>) -> Answer {
    let pg = pg_of(call)?;
    must_be_warm(call)?;
    let map = call.state.osd.map();
    let primary = map.pg_to_up_acting(pg).acting_primary;
    let serves = call.state.stats.pgs.pg(pg).is_some_and(|stat| {
        stat.state & pg_state::ACTIVE != 0 && stat.acting_primary == primary && map.is_up(primary)
    });
    if serves {
        return fail(
            Errno::EPERM,
            format!("pg {pg} is active on osd.{primary}; only one that nobody serves can be made anew"),
        );
    }
    if !call.args.flag("yes_i_really_mean_it") {
        return fail(
            Errno::EPERM,
            format!(
                "all objects of pg {pg} are lost for good by this, also those on OSDs that come back. Pass --yes-i-really-mean-it to do it"
            ),
        );
    }
    match call.state.osd.recreate(pg, call.wall) {
        Some(epoch) => done(format!("pg {pg} is to be made anew, as of epoch {epoch}")),
        None => fail(Errno::ENOENT, format!("pg {pg} has no pool")),
    }
}

fn pg_of(call: &mut Call<'_>) -> Result<PgId, Failure> {
    let text = call.args.text("pgid").to_owned();
    existing_pg(call.state.osd.upcoming(), &text)
}

fn osds_of(call: &mut Call<'_>) -> Result<Vec<OsdId>, Failure> {
    let words = call.args.list("id").to_vec();
    let map = call.state.osd.upcoming();
    let osd = |word: &String| {
        let id = osd_id(word).ok_or_else(|| refuse(Errno::EINVAL, format!("invalid osd id '{word}'")))?;
        existing(map, Some(id.into()))
    };
    words.iter().map(osd).collect()
}

fn needs_luminous(call: &mut Call<'_>) -> Result<(), Failure> {
    if call.state.osd.upcoming().require_min_compat_client >= nacre_maps::RELEASE_LUMINOUS {
        return Ok(());
    }
    fail(
        Errno::EPERM,
        "min_compat_client is below luminous, which is required for pg-upmap. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface",
    )
}

fn pg_upmap(call: &mut Call<'_>) -> Answer {
    needs_luminous(call)?;
    let (pg, osds) = (pg_of(call)?, osds_of(call)?);
    let pool_size = call.state.osd.upcoming().pool(pg.pool).map_or(0, |pool| usize::from(pool.size));
    if osds.is_empty() || osds.len() > pool_size {
        return fail(Errno::EINVAL, format!("num of osds must be > 0 and <= pool size {pool_size}"));
    }
    let text = format!("set {pg} pg_upmap mapping to {}", text_set(&osds));
    let change = call.state.osd.change();
    change.old_pg_upmap.remove(&pg);
    change.new_pg_upmap.insert(pg, osds);
    done(text)
}

fn rm_pg_upmap(call: &mut Call<'_>) -> Answer {
    let pg = pg_of(call)?;
    if call.state.osd.upcoming().pg_upmap.contains_key(&pg) {
        let change = call.state.osd.change();
        change.new_pg_upmap.remove(&pg);
        change.old_pg_upmap.insert(pg);
    }
    done(format!("clear {pg} pg_upmap mapping"))
}

fn pg_upmap_items(call: &mut Call<'_>) -> Answer {
    needs_luminous(call)?;
    let (pg, osds) = (pg_of(call)?, osds_of(call)?);
    let pairs: Vec<(OsdId, OsdId)> = osds
        .chunks_exact(2)
        .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)))
        .filter(|(from, to)| from != to)
        .collect();
    if !osds.len().is_multiple_of(2) || pairs.is_empty() || pairs.len() > PAIRS_COUNT_MAX {
        return fail(Errno::EINVAL, "you must specify pairs of different osds: from, to");
    }
    let shown: Vec<String> = pairs.iter().map(|(from, to)| format!("{from}->{to}")).collect();
    let change = call.state.osd.change();
    change.old_pg_upmap_items.remove(&pg);
    change.new_pg_upmap_items.insert(pg, pairs);
    done(format!("set {pg} pg_upmap_items mapping to [{}]", shown.join(",")))
}

fn rm_pg_upmap_items(call: &mut Call<'_>) -> Answer {
    let pg = pg_of(call)?;
    if call.state.osd.upcoming().pg_upmap_items.contains_key(&pg) {
        let change = call.state.osd.change();
        change.new_pg_upmap_items.remove(&pg);
        change.old_pg_upmap_items.insert(pg);
    }
    done(format!("clear {pg} pg_upmap_items mapping"))
}

fn pg_temp(call: &mut Call<'_>) -> Answer {
    let (pg, osds) = (pg_of(call)?, osds_of(call)?);
    let text = format!("set {pg} pg_temp mapping to {}", text_set(&osds));
    call.state.osd.change().new_pg_temp.insert(pg, osds);
    done(text)
}

fn primary_temp(call: &mut Call<'_>) -> Answer {
    let pg = pg_of(call)?;
    let id = call.args.int("id");
    let osd = existing(call.state.osd.upcoming(), id)?;
    call.state.osd.change().new_primary_temp.insert(pg, osd);
    done(format!("set {pg} primary_temp mapping to {osd}"))
}

/// A temporary set that equals the acting set starts a new interval; the primary clears it when it is clean.
fn repeer(call: &mut Call<'_>) -> Answer {
    let pg = pg_of(call)?;
    let set = call.state.osd.upcoming().pg_to_up_acting(pg);
    let mut acting = set.acting;
    if acting.is_empty() {
        return fail(Errno::EINVAL, format!("pg {pg} has no primary"));
    }
    if acting.len() > 1 {
        acting.rotate_left(1);
    }
    call.state.osd.change().new_pg_temp.insert(pg, acting);
    done(format!("pg {pg} will peer anew"))
}
