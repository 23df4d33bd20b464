//! `ceph pg PG list_unfound`, `list_missing` and `mark_unfound_lost`: what operators need when copies are gone.

use crate::command_reply::{Failure, not_here, reply, said};
use crate::pg_driver::PgDriver;
use crate::shard_msg::QuestionKind;
use crate::shard_net::ShardCx;
use nacre_msg::CommandReply;
use nacre_pg::{Event, LOST_OBJECTS_MAX, Lost, MissingObject};
use nacre_types::{Errno, HObject, ObjectLocator, SnapId, SpgId};
use serde_json::{Map, Value, json};

/// Objects in one answer, Ceph's `osd_command_max_records`.
const RECORDS_MAX: usize = 256;

/// What these words ask for; `None` when it is something else.
pub(crate) fn question(prefix: &str, args: &Map<String, Value>) -> Option<Result<QuestionKind, Failure>> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default();
    Some(match prefix {
        "list_unfound" | "list_missing" => {
            offset(text("offset")).map(|from| QuestionKind::List { unfound: prefix == "list_unfound", from })
        }
        "mark_unfound_lost" => match text("mulcmd") {
            "revert" => Ok(QuestionKind::MarkLost(Lost::Revert)),
            "delete" => Ok(QuestionKind::MarkLost(Lost::Delete)),
            other => Err((Errno::EINVAL, format!("mode must be 'revert' or 'delete', not '{other}'"))),
        },
        _ => return None,
    })
}

/// The `oid` of an answer, behind which the next one is to begin; the beginning, for an empty text.
fn offset(text: &str) -> Result<HObject, Failure> {
    if text.is_empty() {
        return Ok(HObject::MIN);
    }
    let wrong = || (Errno::EINVAL, format!("offset is no 'oid' of an earlier answer: {text}"));
    let oid: Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let word = |name: &str| oid.get(name).and_then(Value::as_str).map(|text| text.into()).ok_or_else(wrong);
    let pool = oid.get("pool").and_then(Value::as_i64).ok_or_else(wrong)?;
    let snap = match oid.get("snapid").and_then(Value::as_i64).ok_or_else(wrong)? {
        -2 => SnapId::HEAD,
        snap => SnapId(snap.cast_unsigned()),
    };
    let locator =
        ObjectLocator { namespace: word("namespace")?, key: word("key")?, ..ObjectLocator::in_pool(pool) };
    Ok(HObject::head(pool, locator.namespace, locator.key, word("oid")?).with_snap(snap))
}

/// As Ceph's `hobject_t::dump`.
fn describe(one: &MissingObject) -> Value {
    let object = &one.object;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let snap = if object.snap.is_head() { -2 } else { object.snap.0.cast_signed() };
    json!({
        "oid": {
            "oid": text(&object.name), "key": text(&object.key), "snapid": snap, "hash": object.hash,
            "max": 0, "pool": object.pool, "namespace": text(&object.namespace),
        },
        "need": one.need.to_string(),
        "have": one.have.to_string(),
        "flags": "none",
        "locations": one.locations.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// The objects that a PG lacks.
pub(crate) fn list(pg_driver: &PgDriver, spg: &SpgId, unfound: bool, from: &HObject) -> CommandReply {
    let Some(pg) = pg_driver.pgs.get(spg).filter(|pg| pg.is_primary()) else {
        return reply(Err(not_here(pg_driver.osd, spg)));
    };
    let (objects, more) = pg.missing_objects(&*pg_driver.store, from, unfound, RECORDS_MAX);
    let (missing, unfound) = pg.missing_counts();
    reply(Ok(json!({
        "num_missing": missing,
        "num_unfound": unfound,
        "objects": objects.iter().map(describe).collect::<Vec<_>>(),
        "state": pg.phase_name(),
        "more": more,
    })))
}

/// Gives up what nobody has.
pub(crate) fn mark(pg_driver: &mut PgDriver, cx: &mut ShardCx<'_>, spg: &SpgId, lost: Lost) -> CommandReply {
    let view = &*pg_driver.store;
    let Some(possible) = pg_driver.pgs.get(spg).map(|pg| pg.can_mark_lost(view, lost)) else {
        return reply(Err(not_here(pg_driver.osd, spg)));
    };
    let (count, all) = match possible {
        Err(error) => return reply(Err((error.errno(), error.to_string()))),
        Ok(count) => (count, pg_driver.pgs.get(spg).map_or(0, |pg| pg.missing_counts().1)),
    };
    if count == 0 {
        return said("pg has no unfound objects".to_owned());
    }
    pg_driver.deliver(cx, *spg, Event::MarkLost(lost));
    tracing::warn!(osd = pg_driver.osd, pg = %spg, count, ?lost, "unfound objects are marked lost by an operator");
    let rest = if all > count {
        format!("; {} are left: give the order again ({LOST_OBJECTS_MAX} at a time)", all - count)
    } else {
        String::new()
    };
    said(format!("{count} unfound objects are marked lost{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Eversion;

    #[test]
    fn a_listing_goes_on_behind_its_last_object() {
        let object = HObject::head(3, "n".into(), "k".into(), "o".into());
        for object in [object.clone(), object.with_snap(SnapId(7))] {
            let one = MissingObject {
                object: object.clone(),
                need: Eversion::new(2, 3),
                have: Eversion::ZERO,
                locations: vec![4],
            };
            let described = describe(&one);
            assert_eq!(described["need"], "2'3");
            assert_eq!(offset(&described["oid"].to_string()), Ok(object));
        }
        assert_eq!(offset(""), Ok(HObject::MIN));
        assert_eq!(offset("{}").unwrap_err().0, Errno::EINVAL);
    }

    #[test]
    fn objects_are_given_up_in_one_of_two_ways() {
        let asked = |mode: &str| {
            let args = Map::from_iter([("mulcmd".to_owned(), json!(mode))]);
            question("mark_unfound_lost", &args).expect("a command")
        };
        assert_eq!(asked("revert"), Ok(QuestionKind::MarkLost(Lost::Revert)));
        assert_eq!(asked("delete"), Ok(QuestionKind::MarkLost(Lost::Delete)));
        assert!(asked("mark").is_err() && asked("").is_err());
        assert!(question("query", &Map::new()).is_none());
    }
}
