//! `ceph tell osd.N ...`: commands that an OSD answers itself. They run on the control shard.

use crate::asok;
use crate::bench_workload::Workload;
use crate::command_reply::Failure;
use crate::config::OsdConfig;
use crate::control::OsdControl;
use crate::device;
use crate::gather::{Shown, View};
use crate::link_report;
use crate::lost;
use crate::osd_network;
use crate::pg_driver::PgDriver;
use crate::shard_msg::QuestionKind;
use crate::shard_net::ShardNet;
use crate::storage::StoreConfig;
use nacre_env::CpuTimes;
use nacre_msg::Command;
use nacre_msg::stats::PingTimes;
use nacre_options::{self as options, OptionInfo, Values};
use nacre_pg::Session;
use nacre_types::version;
use nacre_types::{Errno, OsdId, PgId, SpgId, Stamp, UTime};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Words and arguments, and a line for people. An argument is `name:type`; behind the type of a choice `=` and
/// the words, `?` behind what may be left out, `*` behind what may be given any number of times.
const COMMANDS: &[(&str, &str)] = &[
    ("get_command_descriptions", "list the commands of this daemon"),
    ("help", "list the commands of this daemon, and what each is for"),
    ("version", "show the version of this daemon"),
    ("status", "show identity and maps"),
    ("config get var:CephString", "show the value of an option"),
    ("config set var:CephString val:CephString*", "set an option until the daemon restarts"),
    ("injectargs injected_args:CephString*", "set options, given as --NAME=VALUE, until the daemon restarts"),
    ("config show", "show the values of all options"),
    ("config diff", "show options that differ from their defaults"),
    ("flush_pg_stats", "report to the manager now, and show the number of the report"),
    ("perf dump", "show counters"),
    ("perf schema", "describe the counters"),
    ("assert", "end this daemon as a mistake of ours would, for tests; only with debug_asok_assert_abort"),
    ("compact", "compact the store's metadata"),
    ("smart devid:CephString?", "show what the device says of its health"),
    (
        "perf histogram dump",
        "show how long clients' messages took in which stage, and requests to the device, in powers of two",
    ),
    ("dump_ops_in_flight", "show the messages under way, and what each waits for"),
    ("dump_blocked_ops", "show those of them that take longer than osd_op_complaint_time"),
    (
        "dump_osd_network value:CephInt?",
        "show how long pings of other OSDs took that are slow: VALUE ms or more",
    ),
    (
        "dump_links",
        "show how each other OSD answers our pings, and what TCP tells of the connections with it",
    ),
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

/// What commands look at.
pub(crate) struct CommandView<'a> {
    pub(crate) config: &'a OsdConfig,
    pub(crate) options: &'a Values,
    pub(crate) is_booted: bool,
    pub(crate) pg_driver: &'a PgDriver,
    pub(crate) net: &'a ShardNet,
    pub(crate) control: Option<&'a OsdControl>,
    /// Both clocks, as the turn has them.
    pub(crate) times: (Stamp, UTime),
    pub(crate) cpu: CpuTimes,
}

impl CommandView<'_> {
    fn ping_times(&self) -> BTreeMap<OsdId, PingTimes> {
        self.control.map(|control| control.heartbeats().ping_times(self.times)).unwrap_or_default()
    }
}

/// What a command comes to.
#[derive(Debug)]
pub(crate) enum CommandOutcome {
    /// It is answered.
    Reply(Result<Value, Failure>),
    /// These options are to be set until the daemon restarts, and then the answer is this.
    SetOptions(Vec<(&'static OptionInfo, String)>, Value),
    /// All shards answer, with this.
    Gather(Shown),
    /// The shard of this PG answers.
    Ask(SpgId, QuestionKind),
    /// The devices below the store say how they are, or only the one with this id.
    AskDevices(Option<String>),
}

/// Runs a command of the client with this session.
pub(crate) fn command(view: &CommandView<'_>, session: &Session, command: &Command) -> CommandOutcome {
    if !session.caps.allows_everything() {
        return CommandOutcome::Reply(Err((Errno::EACCES, "access denied".to_owned())));
    }
    let run = parse(command).and_then(|args| run(view, &args));
    run.unwrap_or_else(|failure| CommandOutcome::Reply(Err(failure)))
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

fn run(view: &CommandView<'_>, args: &Map<String, Value>) -> Result<CommandOutcome, Failure> {
    // `pg PGID COMMAND` is COMMAND with a `pgid`.
    let prefix = match text(args, "prefix") {
        "pg" => text(args, "cmd"),
        prefix => prefix,
    };
    let kind = match prefix {
        "query" => Some(QuestionKind::Query),
        "scrub" => Some(QuestionKind::Scrub { deep: false }),
        "deep_scrub" => Some(QuestionKind::Scrub { deep: true }),
        prefix => lost::question(prefix, args).transpose()?,
    };
    if let Some(kind) = kind {
        let pgid = text(args, "pgid");
        let pg = PgId::parse(pgid).ok_or((Errno::EINVAL, format!("no placement group id in '{pgid}'")))?;
        return Ok(CommandOutcome::Ask(SpgId::replicated(pg), kind));
    }
    let value = match prefix {
        "get_command_descriptions" => descriptions(),
        "help" => help(),
        "version" => {
            json!({ "version": version::VERSION_SHORT, "release": version::RELEASE, "release_type": "stable" })
        }
        "status" => status(view),
        "config get" => {
            let info = option(text(args, "var"))?;
            json!({ info.name: view.options.of(info) })
        }
        "config set" => return config_set(args),
        "injectargs" => return injectargs(args),
        "config show" => config_show(view.options),
        "config diff" => config_diff(view.options),
        "flush_pg_stats" => return Ok(CommandOutcome::Gather(Shown::Report)),
        "perf dump" => return Ok(CommandOutcome::Gather(Shown::Now(View::Counters))),
        "perf schema" => return Ok(CommandOutcome::Gather(Shown::Now(View::Schema))),
        "assert" => return Err(refused_crash(view.options)),
        "compact" => {
            return Err(elsewhere(
                "an OSD that runs compacts with each checkpoint; `nacre store compact` does more to one that is stopped",
            ));
        }
        "smart" => {
            let devid = Some(text(args, "devid")).filter(|devid| !devid.is_empty());
            return Ok(CommandOutcome::AskDevices(devid.map(str::to_owned)));
        }
        "perf histogram dump" => return Ok(CommandOutcome::Gather(Shown::Now(View::Histograms))),
        "dump_ops_in_flight" => return Ok(CommandOutcome::Gather(Shown::Now(View::OpsInFlight))),
        "dump_blocked_ops" => return Ok(CommandOutcome::Gather(Shown::Now(View::BlockedOps))),
        "dump_historic_ops" => return Ok(CommandOutcome::Gather(Shown::Now(View::HistoricOps))),
        "dump_osd_network" => {
            let threshold = osd_network::threshold(
                args.contains_key("value").then(|| number(args, "value")),
                view.options,
            )?;
            osd_network::dump(view.config.id, &view.ping_times(), threshold, (view.options, view.times.1))
        }
        "dump_links" => dump_links(view),
        "bench" => {
            let (count, size) = (number(args, "count"), number(args, "size"));
            return Ok(CommandOutcome::Gather(Shown::Bench(Workload::new(count, size)?)));
        }
        _ => {
            let osd = view.config.id;
            let text = format!("no valid command found: '{prefix}' is not known to osd.{osd}");
            return Err((Errno::EINVAL, text));
        }
    };
    Ok(CommandOutcome::Reply(Ok(value)))
}

/// What a shard shows of itself.
pub(crate) fn show(view: &CommandView<'_>, shown: View) -> Value {
    let (pgs, times) = (view.pg_driver, view.times);
    match shown {
        View::Counters | View::Schema => asok::perf_dump(pgs, view.net, view.cpu),
        View::Histograms => {
            let mut histograms = pgs.tracker.dump_histograms();
            histograms["device"] = device::dump_histograms(&pgs.store.counters().device);
            histograms
        }
        View::OpsInFlight => asok::dump_ops(pgs, times),
        View::BlockedOps => asok::dump_blocked_ops(pgs, view.options.seconds("osd_op_complaint_time"), times),
        View::HistoricOps => pgs.tracker.dump_history(times),
    }
}

/// Ends the process where the option allows that, and says otherwise what it takes.
///
/// # Panics
/// That is what it is for.
fn refused_crash(options: &Values) -> Failure {
    assert!(!options.flag("debug_asok_assert_abort"), "somebody has asked for it with 'assert'");
    (Errno::EPERM, "this ends the daemon, and is for tests: set debug_asok_assert_abort first".to_owned())
}

fn dump_links(view: &CommandView<'_>) -> Value {
    let Some(control) = view.control else { return json!({ "links": [] }) };
    let reported = control.reported_links();
    link_report::dump(control.heartbeats(), (&view.net.peers, reported), &view.net.messenger, view.times.0)
}

/// What an operator finds elsewhere.
fn elsewhere(text: &str) -> Failure {
    (Errno::EOPNOTSUPP, text.to_owned())
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

/// Each command by its words alone.
fn help() -> Value {
    let row = |(signature, help): &(&str, &str)| {
        let words = signature.split(' ').take_while(|word| !word.contains(':'));
        (words.collect::<Vec<_>>().join(" "), json!(help))
    };
    Value::Object(COMMANDS.iter().map(row).collect())
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

fn status(view: &CommandView<'_>) -> Value {
    let (map, config) = (view.net.maps.newest(), view.config);
    json!({
        "cluster_fsid": config.fsid.to_string(),
        "osd_fsid": config.uuid.to_string(),
        "whoami": config.id,
        "state": if view.is_booted { "active" } else { "booting" },
        // No older one is kept whole.
        "oldest_map": map.epoch,
        "newest_map": map.epoch,
        "num_pgs": view.control.map_or(0, OsdControl::pg_count),
        "shards": view.net.router.shard_count(),
        "store": match &config.store {
            StoreConfig::Memory { .. } => "memory",
            StoreConfig::File { .. } => "file",
        },
    })
}

fn option(name: &str) -> Result<&'static OptionInfo, Failure> {
    options::find(name).ok_or_else(|| (Errno::ENOENT, format!("unrecognized config option '{name}'")))
}

fn config_set(args: &Map<String, Value>) -> Result<CommandOutcome, Failure> {
    let info = option(text(args, "var"))?;
    let value = match args.get("val") {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(Value::String(value)) => value.clone(),
        Some(other) => other.to_string(),
        None => return Err((Errno::EINVAL, "no value given".to_owned())),
    };
    let value = info.check(&value).map_err(|error| (Errno::EINVAL, error.to_string()))?;
    check_read(info)?;
    Ok(CommandOutcome::SetOptions(vec![(info, value)], json!({ "success": "" })))
}

/// Options that count when an OSD comes up, not while it runs.
const AT_BOOT: &[&str] =
    &["osd_class_update_on_start", "osd_crush_initial_weight", "osd_crush_update_on_start"];

/// What an OSD does not read, it does not take.
fn check_read(info: &OptionInfo) -> Result<(), Failure> {
    let readers = info.readers();
    if readers.contains(&"osd") && !AT_BOOT.contains(&info.name) {
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
fn injectargs(args: &Map<String, Value>) -> Result<CommandOutcome, Failure> {
    let words: Vec<&str> = match args.get("injected_args") {
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(words)) => vec![words],
        _ => Vec::new(),
    };
    let changes = injected(&words)?;
    let shown = changes.iter().map(|(info, value)| (info.name.to_owned(), json!(value))).collect();
    Ok(CommandOutcome::SetOptions(changes, Value::Object(shown)))
}

fn config_show(values: &Values) -> Value {
    let all = options::all().map(|info| (info.name.to_owned(), Value::from(values.of(info))));
    Value::Object(all.collect())
}

fn config_diff(values: &Values) -> Value {
    let show = |info: &'static OptionInfo| json!({ "default": info.default, "final": values.of(info) });
    let shown = values.changed().map(|info| (info.name.to_owned(), show(info)));
    json!({ "diff": Value::Object(shown.collect()) })
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
