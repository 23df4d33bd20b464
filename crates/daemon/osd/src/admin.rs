//! `ceph tell osd.N ...`: commands that an OSD answers itself. They run on the control shard.

use crate::lost;
use crate::shard::Shard;
use crate::shard_msg::{Question, QuestionKind};
use crate::storage::StoreConfig;
use nacre_buf::{BufList, Bytes};
use nacre_msg::{Command, CommandReply};
use nacre_options::{self as options, OptionInfo};
use nacre_pg::{Pg, Session};
use nacre_types::version;
use nacre_types::{Epoch, Errno, OsdId, PgId, SpgId};
use serde_json::{Map, Value, json};

/// Words and arguments, and a line for people. An argument is `name:type`; behind the type of a choice `=` and
/// the words, `?` behind what may be left out, `*` behind what may be given any number of times.
const COMMANDS: &[(&str, &str)] = &[
    ("get_command_descriptions", "list the commands of this daemon"),
    ("version", "show the version of this daemon"),
    ("status", "show identity and maps"),
    ("config get var:CephString", "show the value of an option"),
    ("config set var:CephString val:CephString*", "set an option until the daemon restarts"),
    ("injectargs injected_args:CephString*", "set options, given as --NAME=VALUE, until the daemon restarts"),
    ("config show", "show the values of all options"),
    ("config diff", "show options that differ from their defaults"),
    ("perf dump", "show counters"),
    ("perf histogram dump", "show how long clients' messages took in which stage, in powers of two"),
    ("dump_ops_in_flight", "show the messages under way, and what each waits for"),
    ("dump_historic_ops", "show the slowest messages of late, stage by stage"),
    ("bench count:CephInt? size:CephInt?", "write COUNT bytes to the store in blocks of SIZE and measure"),
    ("query pgid:CephPgid?", "show the state of a placement group"),
    ("scrub pgid:CephPgid?", "compare the copies of a placement group"),
    ("deep_scrub pgid:CephPgid?", "compare the copies of a placement group, data included"),
    ("pg pgid:CephPgid cmd:CephChoices=query", "show the state of a placement group"),
    ("pg pgid:CephPgid cmd:CephChoices=scrub", "compare the copies of a placement group"),
    ("pg pgid:CephPgid cmd:CephChoices=deep_scrub", "compare the copies of a placement group, data included"),
    (
        "pg pgid:CephPgid cmd:CephChoices=list_unfound offset:CephString?",
        "list objects that no copy has which is up; OFFSET is the oid behind which to go on",
    ),
    ("list_unfound pgid:CephPgid? offset:CephString?", "list objects that no copy has which is up"),
    (
        "pg pgid:CephPgid cmd:CephChoices=list_missing offset:CephString?",
        "list objects that the primary lacks; OFFSET is the oid behind which to go on",
    ),
    ("list_missing pgid:CephPgid? offset:CephString?", "list objects that the primary lacks"),
    (
        "pg pgid:CephPgid cmd:CephChoices=mark_unfound_lost mulcmd:CephChoices=revert|delete",
        "give up objects that no copy has which is up: revert to the version before, or delete",
    ),
    (
        "mark_unfound_lost pgid:CephPgid? mulcmd:CephChoices=revert|delete",
        "give up objects that no copy has which is up: revert to the version before, or delete",
    ),
];

/// A failed command: error number and a line that says why.
pub(crate) type Failure = (Errno, String);

pub(crate) fn reply(answer: Result<Value, Failure>) -> CommandReply {
    match answer {
        Ok(Value::Null) => CommandReply { result: 0, status: String::new(), data: BufList::new() },
        Ok(value) => {
            let text = serde_json::to_string_pretty(&value).unwrap_or_default();
            CommandReply { result: 0, status: String::new(), data: Bytes::from(text + "\n").into() }
        }
        Err((errno, status)) => CommandReply { result: errno.negated(), status, data: BufList::new() },
    }
}

/// Runs a command and answers it, at once or from the shard of the PG that it is about.
pub(crate) fn command(shard: &mut Shard, session: &Session, tid: u64, command: &Command) {
    let answer = match parse(command) {
        _ if !session.caps.allows_everything() => Err((Errno::EACCES, "access denied".to_owned())),
        Ok(args) => match run(shard, session, tid, &args) {
            Some(answer) => answer,
            None => return,
        },
        Err(failure) => Err(failure),
    };
    shard.tell_session(session.id, nacre_msg::Message::from(reply(answer)).encode(tid));
}

fn parse(command: &Command) -> Result<Map<String, Value>, Failure> {
    let text = command.cmd.first().map_or("", String::as_str);
    match serde_json::from_str(text) {
        Ok(Value::Object(args)) => Ok(args),
        _ => Err((Errno::EINVAL, format!("command is no JSON object: {text}"))),
    }
}

fn text<'a>(args: &'a Map<String, Value>, name: &str) -> &'a str {
    args.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number that tools send as such or as text.
fn number(args: &Map<String, Value>, name: &str) -> Option<u64> {
    let value = args.get(name)?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// `None` when the answer comes from elsewhere.
fn run(
    shard: &mut Shard,
    session: &Session,
    tid: u64,
    args: &Map<String, Value>,
) -> Option<Result<Value, Failure>> {
    // `pg PGID COMMAND` is COMMAND with a `pgid`.
    let prefix = match text(args, "prefix") {
        "pg" => text(args, "cmd"),
        prefix => prefix,
    };
    let kind = match prefix {
        "query" => Some(Ok(QuestionKind::Query)),
        "scrub" => Some(Ok(QuestionKind::Scrub { deep: false })),
        "deep_scrub" => Some(Ok(QuestionKind::Scrub { deep: true })),
        prefix => lost::question(prefix, args),
    };
    if let Some(kind) = kind {
        let kind = match kind {
            Ok(kind) => kind,
            Err(failure) => return Some(Err(failure)),
        };
        let Some(pg) = PgId::parse(text(args, "pgid")) else {
            return Some(Err((Errno::EINVAL, format!("no placement group id in '{}'", text(args, "pgid")))));
        };
        let spg = SpgId::replicated(pg);
        shard.ask(Question { session: session.id, tid, spg, kind });
        return None;
    }
    Some(match prefix {
        "get_command_descriptions" => Ok(descriptions()),
        "version" => Ok(
            json!({ "version": version::VERSION_SHORT, "release": version::RELEASE, "release_type": "stable" }),
        ),
        "status" => Ok(status(shard)),
        "config get" => option(text(args, "var")).map(|info| json!({ info.name: shard.options.of(info) })),
        "config set" => config_set(shard, args),
        "injectargs" => injectargs(shard, args),
        "config show" => Ok(config_show(shard)),
        "config diff" => Ok(config_diff(shard)),
        "perf dump" => Ok(shard.perf_dump()),
        "perf histogram dump" => Ok(shard.dump_histograms()),
        "dump_ops_in_flight" => Ok(shard.dump_ops()),
        "dump_historic_ops" => Ok(shard.dump_historic_ops()),
        "bench" => match shard.start_bench(session.id, tid, number(args, "count"), number(args, "size")) {
            Ok(()) => return None,
            Err(failure) => Err(failure),
        },
        _ => Err((
            Errno::EINVAL,
            format!("no valid command found: '{prefix}' is not known to osd.{}", shard.config.id),
        )),
    })
}

fn descriptions() -> Value {
    let describe = |(index, (signature, help)): (usize, &(&str, &str))| {
        let row = json!({
            "sig": signature.split(' ').map(describe_word).collect::<Vec<_>>(),
            "help": help, "module": "osd", "perm": "rw", "flags": 0,
        });
        (format!("cmd{index:03}"), row)
    };
    Value::Object(COMMANDS.iter().enumerate().map(describe).collect())
}

/// A word of a signature as tools parse it.
fn describe_word(word: &str) -> Value {
    let Some((name, kind)) = word.split_once(':') else { return json!(word) };
    let mut described = Map::from_iter([("name".to_owned(), json!(name))]);
    let kind = kind
        .strip_suffix('?')
        .inspect(|_| drop(described.insert("req".to_owned(), json!("false"))))
        .unwrap_or(kind);
    let kind = kind
        .strip_suffix('*')
        .inspect(|_| drop(described.insert("n".to_owned(), json!("N"))))
        .unwrap_or(kind);
    let kind = match kind.split_once('=') {
        Some((kind, strings)) => {
            described.insert("strings".to_owned(), json!(strings));
            kind
        }
        None => kind,
    };
    described.insert("type".to_owned(), json!(kind));
    Value::Object(described)
}

fn status(shard: &Shard) -> Value {
    let map = shard.newest_map();
    json!({
        "cluster_fsid": shard.config.fsid.to_string(),
        "osd_fsid": shard.config.uuid.to_string(),
        "whoami": shard.config.id,
        "state": if shard.is_booted() { "active" } else { "booting" },
        // No older one is kept whole.
        "oldest_map": map.epoch,
        "newest_map": map.epoch,
        "num_pgs": shard.pgs.all().len(),
        "shards": shard.config.shards,
        "store": match &shard.config.store {
            StoreConfig::Memory { .. } => "memory",
            StoreConfig::File { .. } => "file",
        },
    })
}

fn option(name: &str) -> Result<&'static OptionInfo, Failure> {
    options::find(name).ok_or_else(|| (Errno::ENOENT, format!("unrecognized config option '{name}'")))
}

fn config_set(shard: &mut Shard, args: &Map<String, Value>) -> Result<Value, Failure> {
    let info = option(text(args, "var"))?;
    let value = match args.get("val") {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(Value::String(value)) => value.clone(),
        Some(other) => other.to_string(),
        None => return Err((Errno::EINVAL, "no value given".to_owned())),
    };
    let value = info.check(&value).map_err(|error| (Errno::EINVAL, error.to_string()))?;
    check_read(info)?;
    shard.set_option(info, value);
    Ok(json!({ "success": "" }))
}

/// What an OSD does not read, it does not take.
fn check_read(info: &OptionInfo) -> Result<(), Failure> {
    let readers = info.readers();
    if readers.contains(&"osd") && info.name != "osd_crush_initial_weight" {
        return Ok(());
    }
    let instead =
        info.missing().map_or_else(|| format!("it is read by {}", readers.join(" and ")), str::to_owned);
    Err((Errno::EOPNOTSUPP, format!("{} has no effect in a running OSD: {instead}", info.name)))
}

/// The options that words like `--osd-max-backfills 2 --osd_heartbeat_grace=9` set. Tools send them as one word or as many.
fn injected(words: &[&str]) -> Result<Vec<(&'static OptionInfo, String)>, Failure> {
    let invalid = |text: String| (Errno::EINVAL, text);
    let mut words = words.iter().flat_map(|word| word.split_whitespace());
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let named = word.strip_prefix("--").ok_or_else(|| invalid(format!("'{word}' is no --NAME=VALUE")))?;
        let (name, value) = match named.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (named, words.next()),
        };
        let info = option(name)?;
        let value = value.ok_or_else(|| invalid(format!("no value for '{name}'")))?;
        let value = info.check(value).map_err(|error| invalid(format!("{name}: {error}")))?;
        check_read(info)?;
        found.push((info, value));
    }
    Ok(found)
}

/// All of them or, when one is wrong, none.
fn injectargs(shard: &mut Shard, args: &Map<String, Value>) -> Result<Value, Failure> {
    let words: Vec<&str> = match args.get("injected_args") {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(words)) => vec![words],
        _ => Vec::new(),
    };
    let changes = injected(&words)?;
    let shown = changes.iter().map(|(info, value)| (info.name.to_owned(), json!(value))).collect();
    for (info, value) in changes {
        shard.set_option(info, value);
    }
    Ok(Value::Object(shown))
}

fn config_show(shard: &Shard) -> Value {
    let all = options::all().map(|info| (info.name.to_owned(), Value::from(shard.options.of(info))));
    Value::Object(all.collect())
}

fn config_diff(shard: &Shard) -> Value {
    let show =
        |info: &'static OptionInfo| json!({ "default": info.default, "final": shard.options.of(info) });
    let shown = shard.options.changed().map(|info| (info.name.to_owned(), show(info)));
    json!({ "diff": Value::Object(shown.collect()) })
}

/// The answer about a PG, from its shard.
pub(crate) fn query(shard: &mut Shard, spg: &SpgId) -> CommandReply {
    let wall = shard.wall;
    let described = shard.pgs.get_mut(spg).and_then(|(pg, _)| describe(pg, wall));
    reply(described.ok_or_else(|| not_here(shard, spg)))
}

pub(crate) fn not_here(shard: &Shard, spg: &SpgId) -> Failure {
    (Errno::ENOENT, format!("osd.{} does not lead pg {spg}", shard.config.id))
}

/// The answer to the order to scrub a PG.
pub(crate) fn scrub_ordered(shard: &Shard, spg: &SpgId, deep: bool) -> CommandReply {
    if !shard.pgs.contains(spg) {
        return reply(Err(not_here(shard, spg)));
    }
    let what = if deep { "deep-scrub" } else { "scrub" };
    CommandReply { result: 0, status: format!("instructing pg {spg} to {what}"), data: BufList::new() }
}

fn describe(pg: &mut Pg, wall: nacre_types::UTime) -> Option<Value> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_injected_in_every_spelling() {
        let names = |words: &[&str]| -> Result<Vec<(&str, String)>, Failure> {
            Ok(injected(words)?.into_iter().map(|(info, value)| (info.name, value)).collect())
        };
        let both = vec![("osd_max_backfills", "2".to_owned()), ("osd_heartbeat_grace", "9".to_owned())];
        assert_eq!(names(&["--osd-max-backfills 2 --osd_heartbeat_grace=9"]), Ok(both.clone()));
        assert_eq!(names(&["--osd_max_backfills=2", "--osd-heartbeat-grace", "9"]), Ok(both));
        for wrong in ["osd_max_backfills=2", "--osd_max_backfills", "--osd_max_backfills=many"] {
            assert_eq!(names(&[wrong]).unwrap_err().0, Errno::EINVAL, "{wrong}");
        }
        assert_eq!(names(&["--no_such_option=1"]).unwrap_err().0, Errno::ENOENT);
    }
}
