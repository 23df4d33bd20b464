//! What the devices of this OSD say of their health, by `smartctl`: for `ceph tell osd.N smart`, and for our monitor, which asks by itself.
//!
//! Source of the answer to people: Ceph `src/common/blkdev.cc` (`block_device_get_metrics`) and `src/osd/OSD.cc` (`probe_smart`) at
//! v16.2.15.

mod health;

use crate::command_reply::{Failure, reply};
use crate::shard_msg::ShardMsg;
use nacre_msg::{DeviceHealthReport, Message};
use nacre_options::Values;
use nacre_pg::SessionId;
use nacre_service::MailboxSender;
use nacre_types::Errno;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of what `smartctl` says of one device.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Exit bits of `smartctl` that mean that it says nothing: it was called wrongly, or cannot open the device.
const SAYS_NOTHING: i32 = 0b11;

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

/// Whether devices are being asked: for one client at a time, and for the monitor, which asks by itself and is in no client's way.
#[derive(Debug, Default)]
pub(crate) struct SmartSlot {
    for_client: Arc<AtomicBool>,
    for_monitor: Arc<AtomicBool>,
}

impl SmartSlot {
    /// Asks the devices that the store is on, by what is known of them. The answer goes to the shard by `sender`, from a thread of its own: a
    /// device that fails may take long.
    ///
    /// # Errors
    /// The devices are asked already, there is none, or no thread.
    pub(crate) fn start(
        &self,
        asker: Asker,
        facts: &BTreeMap<String, String>,
        options: &Values,
        sender: MailboxSender<ShardMsg>,
    ) -> Result<(), Failure> {
        let devices = devices(facts, asker.only())?;
        let is_busy = match asker {
            Asker::Client(..) => &self.for_client,
            Asker::Monitor(_) => &self.for_monitor,
        };
        if is_busy.swap(true, Ordering::AcqRel) {
            return Err((Errno::EBUSY, "the devices are being asked already; try again".to_owned()));
        }
        let (ends, timeout) = (Arc::clone(is_busy), timeout(options));
        let ask = move || {
            let told = devices.into_iter().map(|(name, id)| (id, ask(&name, timeout)));
            let outcome = asker.outcome(told.collect());
            ends.store(false, Ordering::Release);
            // A shard that ends answers nobody.
            let _ended = sender.try_send(outcome);
        };
        let started = std::thread::Builder::new().name("smart".to_owned()).spawn(ask);
        started.map(drop).map_err(|error| {
            is_busy.store(false, Ordering::Release);
            (Errno::EAGAIN, format!("no thread to ask the devices: {error}"))
        })
    }
}

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

/// What `smartctl` says of a device.
fn ask(name: &str, timeout: Duration) -> Result<Value, Refused> {
    let device = format!("/dev/{name}");
    match run(&device, timeout) {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(told @ Value::Object(_)) => Ok(told),
            _ => Err(Refused::NoJson(device, text)),
        },
        Err((errno, text)) => Err(Refused::Failed(device, errno, text)),
    }
}

/// How long a device may take to answer.
fn timeout(options: &Values) -> Duration {
    options.seconds("osd_smart_report_timeout")
}

/// What asks a device: `timeout` ends it, since one that fails may never answer.
fn command(device: &str, timeout: Duration) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", &timeout.as_secs().max(1).to_string()]);
    // As Ceph's OSDs do; their package brings the line for sudoers.
    command.args(if is_root { &["smartctl"][..] } else { &["sudo", "-n", "smartctl"] });
    command
        .args(["-x", "--json=o", device])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(device: &str, timeout: Duration) -> Result<String, Failure> {
    let mut command = command(device, timeout);
    let system =
        |error: std::io::Error| (Errno(error.raw_os_error().unwrap_or(Errno::EIO.0)), error.to_string());
    let mut child = command.spawn().map_err(system)?;
    let (mut out, mut err) = (String::new(), String::new());
    if let Some(pipe) = child.stdout.take() {
        pipe.take(OUTPUT_BYTES_MAX).read_to_string(&mut out).map_err(system)?;
    }
    if let Some(pipe) = child.stderr.take() {
        pipe.take(OUTPUT_BYTES_MAX).read_to_string(&mut err).map_err(system)?;
    }
    let code = child.wait().map_err(system)?.code().unwrap_or(-1);
    const TIMED_OUT: i32 = 124;
    const NOT_FOUND: i32 = 127;
    let said = if err.trim().is_empty() { &out } else { &err };
    match code {
        TIMED_OUT => Err((Errno::ETIMEDOUT, format!("smartctl took longer than {} s", timeout.as_secs()))),
        NOT_FOUND => {
            Err((Errno::ENOENT, format!("smartctl is not installed (package smartmontools): {said}")))
        }
        code if !out.trim_start().starts_with('{') || (code < 0 || code & SAYS_NOTHING != 0) => {
            let said = health::complaint(said).unwrap_or_else(|| said.clone());
            Err((Errno::EINVAL, format!("smartctl ended with {code}: {said}")))
        }
        _ => Ok(out),
    }
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
        let command =
            command("/dev/nonsense0", timeout(&Values::from_iter([("osd_smart_report_timeout", "17")])));
        let words: Vec<_> = command.get_args().take(2).collect();
        assert_eq!(
            (command.get_program(), &words[..]),
            ("timeout".as_ref(), &["--kill-after=1".as_ref(), "17".as_ref()][..])
        );
        let refused = ask("nonsense0", Duration::from_secs(5)).expect_err("there is no such device");
        let why = refused.why();
        assert!(why.starts_with("/dev/nonsense0: ") && why.contains("smartctl"), "{why}");
        let told = refused.into_json();
        assert_eq!((&told["error"], &told["dev"]), (&json!("smartctl failed"), &json!("/dev/nonsense0")));
        assert!(told["smartctl_error_code"].as_i64().is_some_and(|code| code < 0), "{told}");
        assert!(told["smartctl_output"].as_str().is_some_and(|text| text.contains("smartctl")), "{told}");
    }
}
