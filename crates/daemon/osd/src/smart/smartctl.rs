//! Runs `smartctl`, which may stand still for ever: a device that fails holds it in the kernel, where no signal ends it.

use super::{Refused, health};
use nacre_types::Errno;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of what `smartctl` says of one device.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Exit bits of `smartctl` that mean that it says nothing: it was called wrongly, or cannot open the device.
const SAYS_NOTHING: i32 = 0b11;
/// What `smartctl` may take beside the time after which `timeout` ends it: a second until it is killed, and to start.
const GRACE: Duration = Duration::from_secs(5);
/// As shells do, an end by a signal is counted from here on.
const SIGNALLED: i32 = 128;

/// Which devices are being asked: each once for clients and once for the monitor, so that neither is in the other's way. No more threads than
/// that wait for `smartctl`, however long it stands still.
#[derive(Debug, Default, Clone)]
pub(super) struct Turns(Arc<Mutex<BTreeSet<(bool, String)>>>);

impl Turns {
    /// The turn to ask a device; none while it is taken.
    pub(super) fn take(&self, is_for_monitor: bool, name: &str) -> Option<Turn> {
        let key = (is_for_monitor, name.to_owned());
        let is_free = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        is_free.then(|| Turn { turns: self.clone(), key })
    }
}

/// The right to ask a device, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    key: (bool, String),
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// What asks a device: `timeout` ends it, since one that fails may never answer.
pub(super) fn command(device: &str, timeout: Duration) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", &timeout.as_secs().max(1).to_string()]);
    // As Ceph's OSDs do; their package brings the line for sudoers.
    command.args(if is_root { &["smartctl"][..] } else { &["sudo", "-n", "smartctl"] });
    command.args(["-x", "--json=o", device]).stdin(Stdio::null());
    command
}

/// What `smartctl` says of a device, by [`command`]. Waits a little longer than `timeout`; the turn ends when `smartctl` does.
pub(super) fn ask(
    device: &str,
    command: Command,
    timeout: Duration,
    turn: Turn,
) -> Result<Map<String, Value>, Refused> {
    let limit = timeout.saturating_add(GRACE);
    let (sender, receiver) = mpsc::channel();
    let of = device.to_owned();
    let run = move || {
        let said = run(&of, command, timeout);
        // Whoever hears of it may ask again.
        drop(turn);
        // Nobody waits any more for one that is late.
        let _late = sender.send(said);
    };
    let failed = |errno, why: String| Err(Refused::Failed(device.to_owned(), errno, why));
    if let Err(error) = std::thread::Builder::new().name("smartctl".to_owned()).spawn(run) {
        return failed(Errno::EAGAIN, format!("no thread to ask it: {error}"));
    }
    receiver.recv_timeout(limit).unwrap_or_else(|_| {
        let why = format!("smartctl has not ended within {} s, and cannot be ended", limit.as_secs());
        failed(Errno::ETIMEDOUT, why)
    })
}

fn run(device: &str, mut command: Command, timeout: Duration) -> Result<Map<String, Value>, Refused> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let (status, out, err) = child.and_then(finish).map_err(|error| {
        let errno = Errno(error.raw_os_error().unwrap_or(Errno::EIO.0));
        Refused::Failed(device.to_owned(), errno, error.to_string())
    })?;
    judge(device, status, out, &err, timeout)
}

/// How it ended, and what it printed. It is waited for whatever happens.
fn finish(mut child: Child) -> std::io::Result<(ExitStatus, String, String)> {
    let out = child.stdout.take().map_or_else(|| Ok(String::new()), read);
    let err = child.stderr.take().map_or_else(|| Ok(String::new()), read);
    let status = child.wait()?;
    Ok((status, out?, err?))
}

/// Devices say their names in bytes of any kind.
fn read(pipe: impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `smartctl`'s exit status is made of bits, those of failing devices among them, and may look like an end by `timeout` (124): what it printed
/// comes first.
fn judge(
    device: &str,
    status: ExitStatus,
    out: String,
    err: &str,
    timeout: Duration,
) -> Result<Map<String, Value>, Refused> {
    const TIMED_OUT: i32 = 124;
    const KILLED: i32 = SIGNALLED + 9;
    const NOT_FOUND: i32 = 127;
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?)).unwrap_or(SAYS_NOTHING);
    let says_nothing = code & SAYS_NOTHING != 0;
    let told = serde_json::from_str(&out).ok().filter(|_| !says_nothing);
    if let Some(told) = told {
        return Ok(told);
    }
    let said = if err.trim().is_empty() { &out } else { err };
    let (errno, why) = match code {
        TIMED_OUT | KILLED => {
            (Errno::ETIMEDOUT, format!("smartctl took longer than {} s", timeout.as_secs()))
        }
        NOT_FOUND => (Errno::ENOENT, format!("smartctl is not installed (package smartmontools): {said}")),
        _ if says_nothing || !out.trim_start().starts_with('{') => {
            let said = health::complaint(said).unwrap_or_else(|| said.to_owned());
            (Errno::EINVAL, format!("smartctl ended with {code}: {said}"))
        }
        _ => return Err(Refused::NoJson(device.to_owned(), out)),
    };
    Err(Refused::Failed(device.to_owned(), errno, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `smartctl` that does this.
    fn fake(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    fn asked(script: &str) -> Result<Map<String, Value>, Refused> {
        let turn = Turns::default().take(true, "sda").expect("nobody else asks");
        ask("/dev/sda", fake(script), Duration::from_secs(60), turn)
    }

    fn errno(script: &str) -> (Errno, String) {
        match asked(script) {
            Err(Refused::Failed(device, errno, why)) if device == "/dev/sda" => (errno, why),
            other => panic!("{script}: {other:?}"),
        }
    }

    /// 124 is the exit status of a disk that fails, with errors in all its logs, and `timeout`'s own.
    #[test]
    fn what_a_failing_device_says_is_taken_whatever_the_exit_status() {
        for status in [0, 4, 8, 64, 124, 252] {
            let told = asked(&format!("echo '{{\"smart_status\":{{\"passed\":false}}}}'; exit {status}"));
            let told = told.unwrap_or_else(|refused| panic!("{status}: {refused:?}"));
            assert_eq!(told["smart_status"]["passed"], false);
        }
    }

    #[test]
    fn each_reason_has_its_words() {
        let late = "smartctl took longer than 60 s";
        assert_eq!(errno("exit 124"), (Errno::ETIMEDOUT, late.to_owned()));
        assert_eq!(errno("printf '{\"cut\":'; exit 124"), (Errno::ETIMEDOUT, late.to_owned()));
        assert_eq!(errno("exit 137"), (Errno::ETIMEDOUT, late.to_owned()));
        assert_eq!(errno("kill -9 $$"), (Errno::ETIMEDOUT, late.to_owned()));
        assert_eq!(errno("exit 127").0, Errno::ENOENT);
        let complaint = r#"echo '{"smartctl":{"messages":[{"string":"no such device"}]}}'; exit 2"#;
        assert_eq!(errno(complaint), (Errno::EINVAL, "smartctl ended with 2: no such device".to_owned()));
        assert_eq!(errno("echo words"), (Errno::EINVAL, "smartctl ended with 0: words\n".to_owned()));
        for script in ["echo '{'", "echo '{} {}'"] {
            assert!(matches!(asked(script), Err(Refused::NoJson(..))), "{script}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_no_reason_to_know_nothing() {
        let told = asked(r#"printf '{"model_name":"ACME \377","power_on_time":{"hours":7}}'"#).expect("JSON");
        assert_eq!(
            (&told["power_on_time"]["hours"], &told["model_name"]),
            (&7.into(), &"ACME \u{fffd}".into())
        );
    }

    #[test]
    fn one_that_stands_still_blocks_its_own_device_only_and_until_it_ends() {
        let turns = Turns::default();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut stuck = fake("read -r line; echo '{}'");
        stuck.stdin(reader);
        let turn = turns.take(true, "sda").expect("free");
        let late = ask("/dev/sda", stuck, Duration::ZERO, turn);
        let Err(Refused::Failed(_, errno, why)) = late else { panic!("{late:?}") };
        assert_eq!(
            (errno, why.as_str()),
            (Errno::ETIMEDOUT, "smartctl has not ended within 5 s, and cannot be ended")
        );
        assert!(turns.take(true, "sda").is_none(), "it still runs");
        assert!(turns.take(false, "sda").is_some() && turns.take(true, "sdb").is_some());
        drop(writer);
        while turns.take(true, "sda").is_none() {
            std::thread::yield_now();
        }
    }
}
