//! Orders to the OSDs that lead PGs: scrub, repair, recover first. The manager's state has them until the command is done; then they are
//! sent ([`crate::Mon`]'s `send_orders`).

use super::call::{Answer, Call, Failure, done, fail, refuse};
use super::osd_read;
use super::osd_state::named_osds;
use super::table::{Command, command};
use nacre_maps::OsdMap;
use nacre_mgr::{PgOrder, PgOrderKind};
use nacre_types::{Errno, OsdId, PgId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const COMMANDS: &[Command] = &[
    command(
        "pg scrub name=pgid,type=CephPgid",
        "pg",
        "rw",
        "Compare sizes and attributes of a PG's copies",
        scrub,
    ),
    command(
        "pg deep-scrub name=pgid,type=CephPgid",
        "pg",
        "rw",
        "Compare all data of a PG's copies",
        deep_scrub,
    ),
    command("pg repair name=pgid,type=CephPgid", "pg", "rw", "Compare and mend a PG's copies", repair),
    command(
        "pg force-recovery name=pgid,type=CephPgid,n=N",
        "pg",
        "rw",
        "Recover PGs before others",
        force_recovery,
    ),
    command(
        "pg force-backfill name=pgid,type=CephPgid,n=N",
        "pg",
        "rw",
        "Backfill PGs before others",
        force_backfill,
    ),
    command(
        "pg cancel-force-recovery name=pgid,type=CephPgid,n=N",
        "pg",
        "rw",
        "Recover PGs in turn again",
        cancel_force_recovery,
    ),
    command(
        "pg cancel-force-backfill name=pgid,type=CephPgid,n=N",
        "pg",
        "rw",
        "Backfill PGs in turn again",
        cancel_force_backfill,
    ),
    command("osd scrub name=who,type=CephString", "osd", "rw", "Scrub all PGs that an OSD leads", osd_scrub),
    command(
        "osd deep-scrub name=who,type=CephString",
        "osd",
        "rw",
        "Deep-scrub all PGs that an OSD leads",
        osd_deep_scrub,
    ),
    command(
        "osd repair name=who,type=CephString",
        "osd",
        "rw",
        "Repair all PGs that an OSD leads",
        osd_repair,
    ),
    command(
        "osd pool scrub name=who,type=CephPoolname,n=N",
        "osd",
        "rw",
        "Scrub all PGs of pools",
        pool_scrub,
    ),
    command(
        "osd pool deep-scrub name=who,type=CephPoolname,n=N",
        "osd",
        "rw",
        "Deep-scrub all PGs of pools",
        pool_deep_scrub,
    ),
    command(
        "osd pool repair name=who,type=CephPoolname,n=N",
        "osd",
        "rw",
        "Repair all PGs of pools",
        pool_repair,
    ),
    command(
        "osd pool force-recovery name=who,type=CephPoolname,n=N",
        "osd",
        "rw",
        "Recover all PGs of pools before others",
        pool_force_recovery,
    ),
    command(
        "osd pool force-backfill name=who,type=CephPoolname,n=N",
        "osd",
        "rw",
        "Backfill all PGs of pools before others",
        pool_force_backfill,
    ),
    command(
        "osd pool cancel-force-recovery name=who,type=CephPoolname,n=N",
        "osd",
        "rw",
        "Recover all PGs of pools in turn again",
        pool_cancel_force_recovery,
    ),
    command(
        "osd pool cancel-force-backfill name=who,type=CephPoolname,n=N",
        "osd",
        "rw",
        "Backfill all PGs of pools in turn again",
        pool_cancel_force_backfill,
    ),
];

fn word(kind: PgOrderKind) -> &'static str {
    match kind {
        PgOrderKind::Scrub => "scrub",
        PgOrderKind::DeepScrub => "deep-scrub",
        PgOrderKind::Repair => "repair",
        PgOrderKind::ForceRecovery => "force-recovery",
        PgOrderKind::ForceBackfill => "force-backfill",
        PgOrderKind::CancelForceRecovery => "cancel-force-recovery",
        PgOrderKind::CancelForceBackfill => "cancel-force-backfill",
    }
}

/// Orders one PG's primary.
fn order(call: &mut Call<'_>, kind: PgOrderKind) -> Answer {
    let map = call.state.osd.map().clone();
    let text = call.args.text("pgid").to_owned();
    let pg = osd_read::existing_pg(&map, &text)?;
    let primary = map.pg_to_up_acting(pg).acting_primary;
    if !map.is_up(primary) {
        return fail(Errno::EAGAIN, format!("pg {pg} has no primary osd"));
    }
    let stats = &mut call.state.stats;
    if !stats.orders.order(PgOrder { osd: primary, pgs: vec![pg], kind }, &stats.pgs) {
        return fail(Errno::EAGAIN, format!("pg {pg} primary osd.{primary} is not currently connected"));
    }
    done(format!("instructing pg {pg} on osd.{primary} to {}", word(kind)))
}

/// Orders the primaries of several PGs, each OSD once. When one of them is not connected, nothing is ordered: whoever is told that it was
/// will not ask again.
fn order_all(
    call: &mut Call<'_>,
    pgs: impl Iterator<Item = PgId>,
    kind: PgOrderKind,
) -> Result<usize, Failure> {
    let map = call.state.osd.map().clone();
    let mut by_osd: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
    for pg in pgs {
        let primary = map.pg_to_up_acting(pg).acting_primary;
        if map.is_up(primary) {
            by_osd.entry(primary).or_default().push(pg);
        }
    }
    let stats = &mut call.state.stats;
    if let Some(osd) = by_osd.keys().find(|osd| stats.orders.session_of(**osd).is_none()) {
        return fail(
            Errno::EAGAIN,
            format!("osd.{osd} is not currently connected, so nothing was ordered: try again"),
        );
    }
    let mut count = 0;
    for (osd, pgs) in by_osd {
        count += pgs.len();
        let is_sent = stats.orders.order(PgOrder { osd, pgs, kind }, &stats.pgs);
        debug_assert!(is_sent, "all are connected");
    }
    Ok(count)
}

fn order_list(call: &mut Call<'_>, kind: PgOrderKind) -> Answer {
    let map = call.state.osd.map().clone();
    let pgs: Vec<PgId> = call
        .args
        .list("pgid")
        .iter()
        .map(|text| osd_read::existing_pg(&map, text))
        .collect::<Result<_, _>>()?;
    let names: Vec<String> = pgs.iter().map(ToString::to_string).collect();
    order_all(call, pgs.into_iter(), kind)?;
    done(format!("instructing pg(s) [{}] to {}", names.join(","), word(kind)))
}

fn all_pgs(map: &OsdMap, pool: PoolId) -> Vec<PgId> {
    let count = map.pool(pool).map_or(0, |pool| pool.pg_num);
    (0..count).map(|seed| PgId::new(pool, seed)).collect()
}

fn order_osds(call: &mut Call<'_>, kind: PgOrderKind) -> Answer {
    let map = call.state.osd.map().clone();
    let who = call.args.text("who").to_owned();
    let osds: BTreeSet<OsdId> = named_osds(&map, std::slice::from_ref(&who))?.into_iter().collect();
    if let Some(osd) = osds.iter().find(|osd| !map.is_up(**osd)) {
        return fail(Errno::EAGAIN, format!("osd.{osd} is not up"));
    }
    let led: Vec<PgId> = map
        .pools
        .keys()
        .flat_map(|pool| all_pgs(&map, *pool))
        .filter(|pg| osds.contains(&map.pg_to_up_acting(*pg).acting_primary))
        .collect();
    order_all(call, led.into_iter(), kind)?;
    let names: Vec<String> = osds.iter().map(ToString::to_string).collect();
    done(format!("instructed osd(s) {} to {}", names.join(","), word(kind)))
}

fn order_pools(call: &mut Call<'_>, kind: PgOrderKind) -> Answer {
    let map = call.state.osd.map().clone();
    let mut pgs = Vec::new();
    for name in call.args.list("who") {
        let pool = map.pool_by_name(name);
        let pool = pool.ok_or_else(|| refuse(Errno::ENOENT, format!("unrecognized pool '{name}'")))?;
        pgs.extend(all_pgs(&map, pool));
    }
    let count = order_all(call, pgs.into_iter(), kind)?;
    done(format!("instructed {count} pgs to {}", word(kind)))
}

macro_rules! orders {
    ($($name:ident $how:ident $kind:ident;)*) => {
        $(fn $name(call: &mut Call<'_>) -> Answer {
            $how(call, PgOrderKind::$kind)
        })*
    };
}

orders! {
    scrub order Scrub;
    deep_scrub order DeepScrub;
    repair order Repair;
    force_recovery order_list ForceRecovery;
    force_backfill order_list ForceBackfill;
    cancel_force_recovery order_list CancelForceRecovery;
    cancel_force_backfill order_list CancelForceBackfill;
    osd_scrub order_osds Scrub;
    osd_deep_scrub order_osds DeepScrub;
    osd_repair order_osds Repair;
    pool_scrub order_pools Scrub;
    pool_deep_scrub order_pools DeepScrub;
    pool_repair order_pools Repair;
    pool_force_recovery order_pools ForceRecovery;
    pool_force_backfill order_pools ForceBackfill;
    pool_cancel_force_recovery order_pools CancelForceRecovery;
    pool_cancel_force_backfill order_pools CancelForceBackfill;
}
