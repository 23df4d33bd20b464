//! Questions about one PG, answered by its shard: `ceph pg PG query`, `scrub`, and those of `lost.rs`.

use crate::command_reply::{not_here, reply, said};
use crate::lost;
use crate::pg_driver::PgDriver;
use crate::shard_msg::{Question, QuestionKind};
use crate::shard_net::ShardCx;
use nacre_msg::{CommandReply, Message};
use nacre_pg::{Event, Pg};
use nacre_types::{Epoch, OsdId, SpgId, UTime};
use serde_json::{Value, json};

/// Answers a question about a PG of this shard.
pub(crate) fn answer(pgs: &mut PgDriver, cx: &mut ShardCx<'_>, question: &Question) {
    let reply = match &question.kind {
        QuestionKind::Query => query(pgs, cx.wall, &question.spg),
        QuestionKind::Scrub { deep } => scrub(pgs, cx, &question.spg, *deep),
        QuestionKind::List { unfound, from } => lost::list(pgs, &question.spg, *unfound, from),
        QuestionKind::MarkLost(lost) => lost::mark(pgs, cx, &question.spg, *lost),
    };
    cx.net.tell_session(question.session, Message::from(reply).encode(question.tid));
}

/// What the PG is, if we lead it.
fn query(pg_driver: &mut PgDriver, wall: UTime, spg: &SpgId) -> CommandReply {
    let described = pg_driver.pgs.get_mut(spg).and_then(|(pg, _)| describe(pg, wall));
    reply(described.ok_or_else(|| not_here(pg_driver.osd, spg)))
}

/// Orders a scrub of a PG.
fn scrub(pg_driver: &mut PgDriver, cx: &mut ShardCx<'_>, spg: &SpgId, deep: bool) -> CommandReply {
    if !pg_driver.pgs.contains(spg) {
        return reply(Err(not_here(pg_driver.osd, spg)));
    }
    pg_driver.deliver(cx, *spg, Event::Scrub { deep, repair: false });
    // As it is now: the order may have ended it.
    if !pg_driver.pgs.contains(spg) {
        return reply(Err(not_here(pg_driver.osd, spg)));
    }
    said(format!("instructing pg {spg} to {}", if deep { "deep-scrub" } else { "scrub" }))
}

fn describe(pg: &mut Pg, wall: UTime) -> Option<Value> {
    let stat = pg.stat(wall)?;
    let info = pg.info();
    let sum = &stat.stats.sum;
    Some(json!({
        "state": nacre_msg::stats::pg_state::text(stat.state),
        "epoch": pg.epoch(),
        "up": stat.up,
        "acting": stat.acting,
        "acting_recovery_backfill": stat.acting.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "info": {
            "pgid": pg.spg().to_string(),
            "last_update": info.last_update.to_string(),
            "last_complete": info.last_complete.to_string(),
            "log_tail": info.log_tail.to_string(),
            "last_user_version": info.last_user_version,
            "stats": {
                "version": stat.version.to_string(),
                "state": nacre_msg::stats::pg_state::text(stat.state),
                "last_scrub": stat.last_scrub.to_string(),
                "last_scrub_stamp": stat.last_scrub_stamp.to_string(),
                "last_deep_scrub": stat.last_deep_scrub.to_string(),
                "last_deep_scrub_stamp": stat.last_deep_scrub_stamp.to_string(),
                "log_size": stat.log_size,
                "stat_sum": {
                    "num_bytes": sum.num_bytes,
                    "num_objects": sum.num_objects,
                    "num_object_clones": sum.num_object_clones,
                    "num_objects_degraded": sum.num_objects_degraded,
                    "num_objects_misplaced": sum.num_objects_misplaced,
                },
                "up": stat.up,
                "acting": stat.acting,
            },
        },
        "recovery_state": [recovery_state(pg)],
    }))
}

/// Where the PG stands, and what it waits for, in the shape of Ceph's.
fn recovery_state(pg: &Pg) -> Value {
    let mut state = json!({ "name": pg.phase_name() });
    let unprobed = pg.unprobed();
    if !unprobed.is_empty() {
        let waited = |osd: &OsdId| json!({ "osd": osd.to_string(), "status": "not queried" });
        state["might_have_unfound"] = unprobed.iter().map(waited).collect();
    }
    let blockers = pg.blockers();
    if !blockers.is_empty() {
        let blocker = |(osd, lost_through): &(OsdId, Epoch)| {
            let comment = match lost_through {
                0 => "it may have the only copy of acknowledged writes; start it, or mark it lost".to_owned(),
                epoch => format!(
                    "the records of its copy were damaged: what it stored up to epoch {epoch} is lost, and nobody else is known to \
                     have it; bring back another copy, or mark it lost"
                ),
            };
            json!({ "osd": osd, "comment": comment })
        };
        state["blocked"] = json!("nobody who is here has all writes that may have been acknowledged");
        state["peering_blocked_by"] = blockers.iter().map(blocker).collect();
    }
    state
}
