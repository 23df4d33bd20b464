//! [`Session`]: a connection with a cluster, over which monitors and OSDs are asked.

use anyhow::{Context, Result, bail};
use clap::Args;
use nacre_client::{Access, Client, Finished, conf};
use nacre_env::real::RealNet;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_service::Messenger;
use nacre_types::{Errno, OsdId};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A majority of monitors answers within a fraction of a second; without one there is no answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// An OSD answers in a turn of its loop; one that is under much load, after some of them.
const OSD_PATIENCE: Duration = Duration::from_secs(5);
const TURN_MAX: Duration = Duration::from_millis(50);
/// Where Ceph's tools look.
const CONF_DEFAULT: &str = "/etc/ceph/ceph.conf";

/// Which cluster, and as whom.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
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
    pub(crate) fn conf_or_default(&self) -> PathBuf {
        self.conf.clone().unwrap_or_else(|| PathBuf::from(CONF_DEFAULT))
    }
}

/// See the module's documentation.
pub(crate) struct Session {
    client: Client,
    clock: RealClock,
}

/// An answer, or why there is none in words.
pub(crate) type Answer = Result<Value, String>;

impl Session {
    /// Connects, and waits for the map of the OSDs.
    ///
    /// # Errors
    /// When the files do not say how, or no monitor answers.
    pub(crate) fn open(args: &ClusterArgs, conf_file: &Path) -> Result<Self> {
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
        let net = RealNet::new().context("no sockets for a client; see ulimit -n")?;
        let messenger = Messenger::new(Box::new(net), clock.wall().sec.into());
        let mut client = Client::new(access, Box::new(clock), Box::new(SystemEntropy::default()), messenger);
        client.begin();
        let deadline = clock.now() + PATIENCE;
        while client.objecter().map().epoch == 0 {
            client.turn(TURN_MAX)?;
            if clock.now() > deadline {
                bail!("no monitor answers within {PATIENCE:?}: a majority of them must run");
            }
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
    pub(crate) fn wait(&mut self, time: Duration) -> Result<()> {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            self.client.turn(TURN_MAX.min(until.since(self.clock.now())))?;
        }
        Ok(())
    }

    /// Seconds since some moment.
    pub(crate) fn now_s(&self) -> f64 {
        self.clock.now().since(nacre_types::Stamp::default()).as_secs_f64()
    }

    /// Asks the monitors.
    pub(crate) fn ask(&mut self, prefix: &str, more: &[(&str, &str)]) -> Answer {
        let tid = self.client.command(&command(prefix, more)).map_err(|error| error.to_string())?;
        let answers = self.collect(BTreeMap::from([(tid, ())]), PATIENCE);
        answers.into_iter().next().map_or_else(|| Err("no answer".to_owned()), |((), answer)| answer)
    }

    /// Asks each of these OSDs at the same time, all questions at once: one that does not answer takes its time once.
    pub(crate) fn tell_all<const N: usize>(
        &mut self,
        osds: &[OsdId],
        prefixes: [&str; N],
    ) -> [BTreeMap<OsdId, Answer>; N] {
        let mut wanted = BTreeMap::new();
        let mut answers = prefixes.map(|_| BTreeMap::new());
        for ((question, prefix), answers) in prefixes.iter().enumerate().zip(&mut answers) {
            let json = command(prefix, &[]);
            for osd in osds {
                match self.client.tell(*osd, &json) {
                    Ok(tid) => drop(wanted.insert(tid, (question, *osd))),
                    Err(error) => drop(answers.insert(*osd, Err(error.to_string()))),
                }
            }
        }
        for ((question, osd), answer) in self.collect(wanted, OSD_PATIENCE) {
            if let Some(answers) = answers.get_mut(question) {
                answers.insert(osd, answer);
            }
        }
        answers
    }

    /// Asks each of these OSDs one thing.
    pub(crate) fn tell(&mut self, osds: &[OsdId], prefix: &str) -> BTreeMap<OsdId, Answer> {
        let [answers] = self.tell_all(osds, [prefix]);
        answers
    }

    /// Waits for answers to commands, by their numbers.
    fn collect<K>(&mut self, mut wanted: BTreeMap<u64, K>, patience: Duration) -> Vec<(K, Answer)> {
        let deadline = self.clock.now() + patience;
        let mut answers = Vec::new();
        self.client.flush();
        while !wanted.is_empty() {
            for finished in self.client.take_finished() {
                let Finished::Command { tid, result, status, data } = finished else { continue };
                let Some(key) = wanted.remove(&tid) else { continue };
                answers.push((key, understood(result, &status, &data.to_bytes())));
            }
            let failed = if wanted.is_empty() {
                None
            } else {
                self.client.turn(TURN_MAX).err().map(|error| error.to_string())
            };
            let late = (self.clock.now() > deadline).then(|| format!("no answer within {patience:?}"));
            if let Some(why) = failed.or(late) {
                answers.extend(std::mem::take(&mut wanted).into_values().map(|key| (key, Err(why.clone()))));
            }
        }
        answers
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
}
