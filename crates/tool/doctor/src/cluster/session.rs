//! [`Session`]: a connection with a cluster, over which monitors and OSDs are asked.

use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_client::{Access, Client, Finished, conf};
use nacre_env::{Clock, RealClock};
use nacre_types::{Errno, OsdId, Stamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A majority of monitors answers within a fraction of a second; without one there is no answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// An OSD answers in a turn of its loop; one that is under much load, after some of them.
const OSD_PATIENCE: Duration = Duration::from_secs(5);
/// Questions under way at a time: a fraction of what a client takes, and of the answers that are in memory at once.
const UNDER_WAY_MAX: usize = 256;
const TURN_MAX: Duration = Duration::from_millis(50);
/// Where Ceph's tools look.
const CONF_DEFAULT: &str = "/etc/ceph/ceph.conf";

/// Which cluster, and as whom.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// Configuration (ceph.conf) of a cluster.
    #[arg(short = 'c', long)]
    pub(crate) conf: Option<PathBuf>,
    /// Keyring of the user; by default the one that the configuration names, or `keyring` beside it.
    #[arg(short = 'k', long, requires = "conf")]
    pub(crate) keyring: Option<PathBuf>,
    /// User, without `client.`; it must be allowed to read from the monitors, and for what OSDs tell to do everything there.
    #[arg(long, default_value = "admin")]
    pub(crate) user: String,
}

impl ClusterArgs {
    /// The configuration that was given, or the usual one.
    #[must_use]
    pub fn conf_or_default(&self) -> PathBuf {
        self.conf.clone().unwrap_or_else(|| PathBuf::from(CONF_DEFAULT))
    }
}

/// A connection with a cluster, over which monitors and OSDs are asked. Changes nothing.
pub struct Session {
    client: Client,
    clock: RealClock,
}

/// An answer, or why there is none in words.
pub type Answer = Result<Value, String>;

impl Session {
    /// Connects, and waits for the map of the OSDs.
    ///
    /// # Errors
    /// When the files do not say how, or no monitor answers.
    pub fn open(args: &ClusterArgs, conf_file: &Path) -> Result<Self> {
        let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let conf = read(conf_file)?;
        let beside = || conf_file.parent().unwrap_or(Path::new(".")).join("keyring");
        let keyring = args
            .keyring
            .clone()
            .unwrap_or_else(|| conf::option(&conf, "keyring").map_or_else(beside, PathBuf::from));
        let access = Access::parse(&conf, &read(&keyring)?, &args.user)
            .with_context(|| format!("{} and {}", conf_file.display(), keyring.display()))?;
        let clock = RealClock::start();
        let mut client =
            Client::of_this_machine(access, clock).context("no sockets for a client; see ulimit -n")?;
        if !client.wait_for_map(&clock, PATIENCE)? {
            bail!("no monitor answers within {PATIENCE:?}: a majority of them must run");
        }
        Ok(Self { client, clock })
    }

    /// OSDs that are up.
    pub(crate) fn osds(&self) -> Vec<OsdId> {
        let map = self.client.objecter().map();
        let count = OsdId::try_from(map.max_osd()).unwrap_or(OsdId::MAX);
        (0..count).filter(|osd| map.is_up(*osd)).collect()
    }

    /// Waits, while the connections stay alive.
    ///
    /// # Errors
    /// When there are no sockets to be had.
    pub fn wait(&mut self, time: Duration) -> Result<()> {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            self.client.turn(TURN_MAX.min(until.since(self.clock.now())))?;
        }
        Ok(())
    }

    /// Seconds since some moment.
    pub(crate) fn now_s(&self) -> f64 {
        self.clock.now().since(Stamp::default()).as_secs_f64()
    }

    /// Asks the monitors.
    ///
    /// # Errors
    /// Why there is no answer, in words.
    pub fn ask(&mut self, prefix: &str, more: &[(&str, &str)]) -> Answer {
        let json = command(prefix, more);
        let answers = collect(self, [Question { to: None, json: &json, key: () }], PATIENCE);
        answers.into_iter().next().map_or_else(|| Err("no answer".to_owned()), |((), answer)| answer)
    }

    /// Asks each of these OSDs, as many at the same time as [`collect`] allows; one that does not answer takes its time once.
    pub(crate) fn tell_all<const N: usize>(
        &mut self,
        osds: &[OsdId],
        prefixes: [&str; N],
    ) -> [BTreeMap<OsdId, Answer>; N] {
        let commands = prefixes.map(|prefix| command(prefix, &[]));
        let questions = commands.iter().enumerate().flat_map(|(number, json)| {
            osds.iter().map(move |osd| Question { to: Some(*osd), json, key: (number, *osd) })
        });
        let mut answers = prefixes.map(|_| BTreeMap::new());
        for ((number, osd), answer) in collect(self, questions, OSD_PATIENCE) {
            if let Some(answers) = answers.get_mut(number) {
                answers.insert(osd, answer.and_then(of_all_shards));
            }
        }
        answers
    }

    /// Asks each of these OSDs one thing.
    pub(crate) fn tell(&mut self, osds: &[OsdId], prefix: &str) -> BTreeMap<OsdId, Answer> {
        let [answers] = self.tell_all(osds, [prefix]);
        answers
    }
}

/// The answer, if it is of the whole OSD: sums without a shard would be taken for less work.
fn of_all_shards(answer: Value) -> Answer {
    match answer.get("shards_without_answer") {
        Some(shards) => Err(format!("shards {shards} of it do not answer")),
        None => Ok(answer),
    }
}

/// Something to be asked, and under which key its answer is wanted.
struct Question<'a, K> {
    /// An OSD; none for the monitors.
    to: Option<OsdId>,
    json: &'a str,
    key: K,
}

/// Over what [`collect`] asks: a session, but for tests.
trait Line {
    fn now(&self) -> Stamp;
    /// Begins a command; its number, or why it cannot be begun.
    fn begin(&mut self, to: Option<OsdId>, json: &str) -> Result<u64, String>;
    /// Nobody waits for this command any more.
    fn forget(&mut self, tid: u64);
    /// What was answered since the last call, by the commands' numbers.
    fn answered(&mut self) -> Vec<(u64, Answer)>;
    /// Sends what was begun, and waits for a moment.
    fn turn(&mut self) -> Result<(), String>;
}

impl Line for Session {
    fn now(&self) -> Stamp {
        self.clock.now()
    }

    fn begin(&mut self, to: Option<OsdId>, json: &str) -> Result<u64, String> {
        match to {
            Some(osd) => self.client.tell(osd, json).map_err(|error| error.to_string()),
            None => self.client.command(json).map_err(|error| error.to_string()),
        }
    }

    fn forget(&mut self, tid: u64) {
        self.client.forget_command(tid);
    }

    fn answered(&mut self) -> Vec<(u64, Answer)> {
        let commands = self.client.take_finished().into_iter().filter_map(|finished| match finished {
            Finished::Command { tid, result, status, data } => {
                Some((tid, understood(result, &status, &data.to_bytes())))
            }
            _ => None,
        });
        commands.collect()
    }

    fn turn(&mut self) -> Result<(), String> {
        self.client.flush();
        self.client.turn(TURN_MAX).map_err(|error| error.to_string())
    }
}

/// Asks, at most [`UNDER_WAY_MAX`] questions at a time, and waits for the answers: each may take as long as `patience`. Who has let that
/// pass is asked nothing more. Each question has one answer; they are in no order.
fn collect<'a, K>(
    line: &mut impl Line,
    questions: impl IntoIterator<Item = Question<'a, K>>,
    patience: Duration,
) -> Vec<(K, Answer)> {
    let mut waiting: VecDeque<Question<'a, K>> = questions.into_iter().collect();
    let mut under_way = BTreeMap::<u64, (Option<OsdId>, K, Stamp)>::new();
    let mut silent = BTreeSet::<Option<OsdId>>::new();
    let mut answers: Vec<(K, Answer)> = Vec::new();
    let late = format!("no answer within {patience:?}");
    loop {
        while under_way.len() < UNDER_WAY_MAX
            && let Some(Question { to, json, key }) = waiting.pop_front()
        {
            if silent.contains(&to) {
                answers.push((key, Err(late.clone())));
                continue;
            }
            match line.begin(to, json) {
                Ok(tid) => drop(under_way.insert(tid, (to, key, line.now() + patience))),
                Err(why) => answers.push((key, Err(why))),
            }
        }
        for (tid, answer) in line.answered() {
            if let Some((_, key, _)) = under_way.remove(&tid) {
                answers.push((key, answer));
            }
        }
        let now = line.now();
        for (tid, (to, key, _)) in under_way.extract_if(.., |_, (_, _, until)| now > *until) {
            line.forget(tid);
            silent.insert(to);
            answers.push((key, Err(late.clone())));
        }
        if under_way.len() < UNDER_WAY_MAX && !waiting.is_empty() {
            continue;
        }
        if under_way.is_empty() {
            return answers;
        }
        if let Err(why) = line.turn() {
            under_way.keys().for_each(|tid| line.forget(*tid));
            let keys = under_way.into_values().map(|(_, key, _)| key);
            let keys = keys.chain(waiting.into_iter().map(|question| question.key));
            answers.extend(keys.map(|key| (key, Err(why.clone()))));
            return answers;
        }
    }
}

fn command(prefix: &str, more: &[(&str, &str)]) -> String {
    let mut command = json!({ "prefix": prefix, "format": "json" });
    more.iter().for_each(|(name, value)| command[*name] = json!(value));
    command.to_string()
}

fn understood(result: i32, status: &str, data: &[u8]) -> Answer {
    if result < 0 {
        return Err(format!("{}{}{status}", Errno(-result), if status.is_empty() { "" } else { ": " }));
    }
    serde_json::from_slice(data).map_err(|error| format!("the answer is no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_answers_are_json() {
        assert_eq!(
            command("health", &[("detail", "detail")]),
            r#"{"prefix":"health","format":"json","detail":"detail"}"#
        );
        assert_eq!(understood(0, "", b"{\"a\":1}"), Ok(json!({"a": 1})));
        assert!(understood(-13, "access denied", b"").is_err_and(|why| why.contains("access denied")));
        assert!(understood(0, "", b"nonsense").is_err());
    }

    /// OSDs, of which the first `hung` never answer; a turn takes [`TURN_MAX`].
    #[derive(Default)]
    struct Osds {
        hung: OsdId,
        is_lost: bool,
        now: Stamp,
        begun: u64,
        under_way: BTreeMap<u64, OsdId>,
        under_way_max: usize,
    }

    impl Line for Osds {
        fn now(&self) -> Stamp {
            self.now
        }

        fn begin(&mut self, to: Option<OsdId>, _json: &str) -> Result<u64, String> {
            self.begun += 1;
            self.under_way.insert(self.begun, to.expect("an OSD is asked"));
            self.under_way_max = self.under_way_max.max(self.under_way.len());
            Ok(self.begun)
        }

        fn forget(&mut self, tid: u64) {
            assert!(self.under_way.remove(&tid).is_some(), "it is under way");
        }

        fn answered(&mut self) -> Vec<(u64, Answer)> {
            let hung = self.hung;
            let answered = self.under_way.extract_if(.., |_, osd| *osd >= hung);
            answered.map(|(tid, _)| (tid, Ok(json!({})))).collect()
        }

        fn turn(&mut self) -> Result<(), String> {
            self.now = self.now + TURN_MAX;
            if self.is_lost { Err("no sockets".to_owned()) } else { Ok(()) }
        }
    }

    fn three_questions(line: &mut Osds, osds: OsdId) -> BTreeMap<(i32, OsdId), Answer> {
        let keys = (0..3).flat_map(|number| (0..osds).map(move |osd| (number, osd)));
        let answers =
            collect(line, keys.map(|key| Question { to: Some(key.1), json: "{}", key }), OSD_PATIENCE);
        let count = answers.len();
        let answers = BTreeMap::from_iter(answers);
        assert_eq!(answers.len(), count, "one answer to each");
        answers
    }

    #[test]
    fn many_osds_are_asked_by_and_by_and_those_that_hang_are_forgotten() {
        let mut line = Osds { hung: 300, ..Osds::default() };
        let answers = three_questions(&mut line, 1000);
        assert_eq!(answers.len(), 3000);
        for ((_, osd), answer) in &answers {
            assert_eq!(answer.is_ok(), *osd >= 300, "osd.{osd}: {answer:?}");
        }
        assert_eq!(answers[&(2, 0)], Err("no answer within 5s".to_owned()));
        assert_eq!((line.under_way.len(), line.under_way_max), (0, UNDER_WAY_MAX));
        // 256 of those that hang, then the others; none of them twice.
        assert!(line.now < Stamp::default() + OSD_PATIENCE * 2 + TURN_MAX * 4, "{:?}", line.now);
    }

    #[test]
    fn without_a_line_all_questions_have_the_same_answer() {
        let mut line = Osds { hung: 1, is_lost: true, ..Osds::default() };
        let answers = three_questions(&mut line, 400);
        assert_eq!((answers.len(), line.under_way.len()), (1200, 0));
        assert_eq!(answers[&(2, 0)], Err("no sockets".to_owned()));
        let mut line = Osds { hung: 400, is_lost: true, ..Osds::default() };
        let answers = three_questions(&mut line, 400);
        assert!(
            answers.len() == 1200 && answers.values().all(|answer| *answer == Err("no sockets".to_owned()))
        );
        assert!(line.under_way.is_empty());
    }
}
