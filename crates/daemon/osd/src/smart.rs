//! What the devices of this OSD say of their health, by `smartctl`: for `ceph tell osd.N smart`, and for our monitor, which asks by itself.
//!
//! Source of the answer to people: Ceph `src/common/blkdev.cc` (`block_device_get_metrics`) and `src/osd/OSD.cc` (`probe_smart`) at
//! v16.2.15.

mod health;
mod smartctl;

use crate::command_reply::{Failure, reply};
use crate::shard_msg::ShardMsg;
use nacre_msg::{DeviceHealthReport, Message};
use nacre_options::Values;
use nacre_pg::SessionId;
use nacre_service::MailboxSender;
use nacre_types::Errno;
use serde_json::{Map, Value, json};
use smartctl::{Turn, Turns};
use std::collections::BTreeMap;
use std::time::Duration;

/// Who wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A client, under this number: all devices, or that with this id.
    Client(SessionId, u64, Option<String>),
    /// Our monitor: the device with this id.
    Monitor(String),
}

impl Asker {
    fn only(&self) -> Option<&str> {
        match self {
            Self::Client(_, _, only) => only.as_deref(),
            Self::Monitor(device) => Some(device),
        }
    }

    /// What the shard is to hear. Of each device the id and what came of asking it.
    fn outcome(self, told: Vec<(String, Result<Value, Refused>)>) -> ShardMsg {
        match self {
            Self::Client(session, tid, _) => {
                let told = told.into_iter().map(|(id, told)| (id, told.unwrap_or_else(Refused::into_json)));
                let answer = Value::Object(told.collect::<Map<_, _>>());
                ShardMsg::ToSession(session, Message::from(reply(Ok(answer))).encode(tid))
            }
            Self::Monitor(device) => {
                // Of several ways to one device, one that leads there.
                let told = told.into_iter().map(|(_, told)| told);
                let told = told.reduce(|first, next| if first.is_ok() { first } else { next });
                let report = match told {
                    Some(Ok(told)) => health::report(device, told),
                    Some(Err(refused)) => health::cannot_ask(device, &refused.why()),
                    None => health::cannot_ask(device, "the OSD does not have it any more"),
                };
                ShardMsg::DeviceHealth(Box::new(report))
            }
        }
    }
}

/// Which devices are being asked: each for one client at a time, and for the monitor, which asks by itself and is in no client's way.
#[derive(Debug, Default)]
pub(crate) struct SmartSlot(Turns);

impl SmartSlot {
    /// Asks the devices that the store is on, by what is known of them. The answer goes to the shard by `sender`, from a thread of its own: a
    /// device that fails may take long.
    ///
    /// # Errors
    /// All these devices are being asked already, there is none, or no thread.
    pub(crate) fn start(
        &self,
        asker: Asker,
        facts: &BTreeMap<String, String>,
        options: &Values,
        sender: MailboxSender<ShardMsg>,
    ) -> Result<(), Failure> {
        let devices = devices(facts, asker.only())?;
        let is_for_monitor = matches!(asker, Asker::Monitor(_));
        let turn = |(name, id): (String, String)| (self.0.take(is_for_monitor, &name), name, id);
        let turns: Vec<(Option<Turn>, String, String)> = devices.into_iter().map(turn).collect();
        if turns.iter().all(|(turn, ..)| turn.is_none()) {
            let names: Vec<String> = turns.iter().map(|(_, name, _)| format!("/dev/{name}")).collect();
            return Err((Errno::EBUSY, format!("{}: {STILL_RUNS}", names.join(", "))));
        }
        let timeout = timeout(options);
        let ask = move || {
            let told = turns.into_iter().map(|(turn, name, id)| (id, ask(&name, timeout, turn)));
            // A shard that ends answers nobody.
            let _ended = sender.try_send(asker.outcome(told.collect()));
        };
        let started = std::thread::Builder::new().name("smart".to_owned()).spawn(ask);
        let no_thread = |error| (Errno::EAGAIN, format!("no thread to ask the devices: {error}"));
        started.map(drop).map_err(no_thread)
    }
}

/// Why a device is not asked now.
const STILL_RUNS: &str = "smartctl, started for it before, has not ended yet; try again";

/// What our monitor hears where its device could not even be asked.
pub(crate) fn not_asked(device: String, (_, why): &Failure) -> DeviceHealthReport {
    health::cannot_ask(device, why)
}

/// Name and id of each device.
fn devices(facts: &BTreeMap<String, String>, only: Option<&str>) -> Result<Vec<(String, String)>, Failure> {
    let ids = facts.get("device_ids").map_or("", String::as_str).split(',');
    let all = ids.filter_map(|pair| pair.split_once('='));
    // Devices of the device mapper are no disks.
    let physical = all.filter(|(name, _)| !name.starts_with("dm-"));
    let wanted: Vec<(String, String)> = physical
        .filter(|(_, id)| only.is_none_or(|only| *id == only))
        .map(|(name, id)| (name.to_owned(), id.to_owned()))
        .collect();
    match only {
        _ if !wanted.is_empty() => Ok(wanted),
        Some(only) => Err((Errno::ENOENT, format!("no device of this OSD has the id '{only}'"))),
        None => Err((Errno::ENODEV, "no physical device is known to be below this OSD's store".to_owned())),
    }
}

/// Why nothing is known of a device.
#[derive(Debug)]
enum Refused {
    /// `smartctl` could not be run, or says nothing: the error, and what it printed.
    Failed(String, Errno, String),
    /// It printed what is no JSON object.
    NoJson(String, String),
}

impl Refused {
    /// As Ceph's OSDs say it.
    fn into_json(self) -> Value {
        match self {
            Self::Failed(device, errno, output) => json!({
                "error": "smartctl failed",
                "dev": device,
                "smartctl_error_code": errno.negated(),
                "smartctl_output": output.trim(),
            }),
            Self::NoJson(device, output) => {
                json!({ "error": "smartctl returned invalid JSON", "dev": device, "smartctl_output": output.trim() })
            }
        }
    }

    /// As a sentence.
    fn why(&self) -> String {
        match self {
            Self::Failed(device, _, output) => format!("{device}: {output}"),
            Self::NoJson(device, _) => format!("{device}: smartctl returned invalid JSON"),
        }
    }
}

/// What `smartctl` says of a device, in its turn.
fn ask(name: &str, timeout: Duration, turn: Option<Turn>) -> Result<Value, Refused> {
    let device = format!("/dev/{name}");
    match turn {
        Some(turn) => {
            let command = smartctl::command(&device, timeout);
            smartctl::ask(&device, command, timeout, turn).map(Value::Object)
        }
        None => Err(Refused::Failed(device, Errno::EBUSY, STILL_RUNS.to_owned())),
    }
}

/// How long a device may take to answer.
fn timeout(options: &Values) -> Duration {
    options.seconds("osd_smart_report_timeout")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disks_below_a_store_are_asked_and_no_others() {
        let facts = |ids: &str| BTreeMap::from([("device_ids".to_owned(), ids.to_owned())]);
        let pair = |name: &str, id: &str| (name.to_owned(), id.to_owned());
        let both = facts("sda=ACME_1,nvme0n1=ACME_2,dm-0=x");
        assert_eq!(devices(&both, None), Ok(vec![pair("sda", "ACME_1"), pair("nvme0n1", "ACME_2")]));
        assert_eq!(devices(&both, Some("ACME_2")), Ok(vec![pair("nvme0n1", "ACME_2")]));
        assert_eq!(devices(&both, Some("x")).unwrap_err().0, Errno::ENOENT);
        assert_eq!(devices(&BTreeMap::new(), None).unwrap_err().0, Errno::ENODEV);
    }

    #[test]
    fn a_device_that_cannot_be_asked_is_named_with_the_reason() {
        let command = smartctl::command(
            "/dev/nonsense0",
            timeout(&Values::from_iter([("osd_smart_report_timeout", "17")])),
        );
        let words: Vec<_> = command.get_args().take(2).collect();
        assert_eq!(
            (command.get_program(), &words[..]),
            ("timeout".as_ref(), &["--kill-after=1".as_ref(), "17".as_ref()][..])
        );
        let free = Turns::default();
        let turn = free.take(false, "nonsense0");
        let refused = ask("nonsense0", Duration::from_secs(5), turn).expect_err("there is no such device");
        let why = refused.why();
        assert!(why.starts_with("/dev/nonsense0: ") && why.contains("smartctl"), "{why}");
        let told = refused.into_json();
        assert_eq!((&told["error"], &told["dev"]), (&json!("smartctl failed"), &json!("/dev/nonsense0")));
        assert!(told["smartctl_error_code"].as_i64().is_some_and(|code| code < 0), "{told}");
        assert!(told["smartctl_output"].as_str().is_some_and(|text| text.contains("smartctl")), "{told}");
        // One that stands still is in the way of no other device.
        let _stuck = free.take(false, "nonsense0");
        let told = ask("nonsense0", Duration::from_secs(5), free.take(false, "nonsense0"));
        let told = told.expect_err("it still runs").into_json();
        assert_eq!(told["smartctl_error_code"], Errno::EBUSY.negated());
        assert_eq!(told["smartctl_output"], STILL_RUNS);
    }
}
