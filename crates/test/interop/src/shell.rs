//! [`Shell`]: scripts in which stock programs find the cluster.

use crate::ceph_server::{CephServer, PYTHON};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A script that takes longer has hung, on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);
/// So many times as long may a script take, and what `until_true` waits for: these limits end what hangs and say nothing of the cluster. On two
/// slow processors with six tests at a time a start of `ceph` alone takes seconds.
const BUSY: u32 = 5;
/// What `timeout` exits with: of what it asked to end, and of what it had to kill, itself with it.
const TIMED_OUT: [i32; 2] = [124, -9];

/// Begins every script. `set -e` does not see that `! program` went wrong; `nok program` does, and takes no call of `ceph` that was not
/// served (`bin/ceph_call.rs`) for a refusal. `until_true SECONDS SCRIPT` waits for a script to end well, which knows the functions that
/// the whole one does; a `grep -q` in it may end before what it reads from. It gives up after [`BUSY`] times these seconds: `in_time
/// SECONDS SCRIPT` is for what must hold within them. Both look less often the longer they wait: each `ceph` is time of a processor that
/// the cluster could use. `gone PID` waits for a process to end. `free_port [COUNT]` prints ports of the loopback address on which nobody listens, below those that the system
/// gives to outgoing connections: one of these may be taken before the server has begun to listen. `jq -e` fails when there was nothing to
/// judge, which jq 1.6 calls success.
const PRELUDE: &str = concat!(
    r#"
jq() {
  case "$1" in -e*) ;; *) command jq "$@"; return ;; esac
  local output
  output=$(command jq "$@" && echo .) || { local status=$?; printf '%s' "$output"; return $status; }
  if [ "$output" = . ]; then return 4; fi
  printf '%s' "${output%.}"
}
nok() {
  local status=0
  "$@" >/dev/null 2>&1 || status=$?
  if [ $status = 0 ] || [ $status = 199 ]; then echo "should have failed, but ended with $status: $*" >&2; exit 1; fi
}
free_port() {
  /usr/bin/python3 - ${1:-1} <<'PORTS'
"#,
    include_str!("../../../../bench/ports.py"),
    r#"PORTS
}
until_true() { in_time $((BUSY * $1)) "$2"; }
gone() { until_true 30 "[ ! -e /proc/$1 ]"; }
in_time() {
  local end=$((SECONDS + $1)) pause=1
  until ( set +o pipefail; eval "$2" ) > /dev/null 2>&1; do
    if [ $SECONDS -gt $end ]; then echo "not in $1 s: $2" >&2; return 1; fi
    sleep 0.$pause; pause=$((pause < 6 ? pause + 1 : 6))
  done
}
"#
);

/// Ends the scripts of [`Shell::python`] that ran to their end. Connections that are not shut down have threads of librados in the midst
/// of their work, and when Python is through it ends the process as C programs end: what librados keeps in static variables is destroyed
/// under these threads, and once in thousands of scripts one of them meets that. So what the script has is closed, as Python would, and
/// then the process ends without more.
const PYTHON_END: &str = r"
def _end(names):
    import gc, os, sys, threading
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon: thread.join()
    names.clear(); gc.collect(); sys.stdout.flush(); sys.stderr.flush(); os._exit(0)
_end(globals())
";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// What a script did.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Exit status; minus the signal's number when one ended it.
    pub code: i32,
    /// What the command wrote to standard output.
    pub out: String,
    /// What the command wrote to standard error.
    pub err: String,
}

impl Ran {
    /// Asserts that it failed with this status.
    ///
    /// # Panics
    /// When it did not.
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    /// Asserts that output or errors contain `text`.
    ///
    /// # Panics
    /// When they do not.
    pub fn expect_text(&self, text: &str) -> &Self {
        assert!(self.out.contains(text) || self.err.contains(text), "no {text:?} in {self:?}");
        self
    }
}

/// Runs scripts in one folder, against one cluster.
#[derive(Debug, Clone)]
pub struct Shell {
    folder: PathBuf,
    variables: Vec<(String, String)>,
    limit: Duration,
}

impl Shell {
    /// Scripts in `folder` against the cluster of another one's `ceph.conf`.
    #[must_use]
    pub fn at(folder: &Path, conf: &Path) -> Self {
        Self::new(folder, conf)
    }

    pub(crate) fn new(folder: &Path, conf: &Path) -> Self {
        let conf = conf.to_string_lossy().into_owned();
        Self { folder: folder.to_owned(), variables: vec![("CEPH_CONF".to_owned(), conf)], limit: LIMIT }
    }

    /// The same with another environment variable.
    #[must_use]
    pub fn with(&self, name: &str, value: impl ToString) -> Self {
        let mut shell = self.clone();
        shell.variables.push((name.to_owned(), value.to_string()));
        shell
    }

    /// The same with another limit of time, on an idle machine.
    #[must_use]
    pub fn within(&self, seconds: u64) -> Self {
        Self { limit: Duration::from_secs(seconds), ..self.clone() }
    }

    /// Where scripts run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &(self.limit * BUSY).as_secs().to_string(), program]);
        command.env("BUSY", BUSY.to_string());
        command.current_dir(&self.folder).env_remove("CEPH_ARGS").stdin(Stdio::null());
        command.envs(CephServer::of_this_process().variables());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn finish(&self, mut command: Command, script: &str) -> Ran {
        // Files, not pipes: what a script leaves running in the background must not keep us here.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let [out, err] = ["out", "err"].map(|kind| self.folder.join(format!("script-{number}.{kind}")));
        let file = |path: &Path| Stdio::from(fs::File::create(path).expect("a writable folder"));
        command.stdout(file(&out)).stderr(file(&err));
        let status = command.status().unwrap_or_else(|error| panic!("cannot run `timeout`: {error}"));
        let text = |path: &Path| {
            let bytes = fs::read(path).unwrap_or_default();
            fs::remove_file(path).expect("our own file");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let code = status.code().unwrap_or_else(|| -status.signal().expect("no code is a signal"));
        let ran = Ran { code, out: text(&out), err: text(&err) };
        assert!(
            !TIMED_OUT.contains(&ran.code),
            "not done after {:?}:\n{script}\n{}\n{}",
            self.limit * BUSY,
            ran.out,
            ran.err
        );
        ran
    }

    /// Runs a `bash` script, whatever comes of it.
    ///
    /// # Panics
    /// When it takes too long.
    pub fn run(&self, script: &str) -> Ran {
        let mut command = self.command("bash");
        command.args(["-euo", "pipefail", "-c", &[PRELUDE, script].concat()]);
        self.finish(command, script)
    }

    /// Runs a `bash` script that must succeed; gives its standard output without the last line end.
    ///
    /// # Panics
    /// When it fails or takes too long.
    pub fn sh(&self, script: &str) -> String {
        expect_success(&self.run(script), script)
    }

    /// Runs a `bash` script that must print JSON.
    ///
    /// # Panics
    /// When it fails, takes too long or prints something else.
    pub fn json(&self, script: &str) -> Value {
        let out = self.sh(script);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{script}\n{error} in {out:?}"))
    }

    /// Runs a `bash` script that must fail.
    ///
    /// # Panics
    /// When it succeeds or takes too long.
    pub fn fails(&self, script: &str) -> Ran {
        let ran = self.run(script);
        assert!(ran.code != 0, "should have failed: {script}\n{}", ran.out);
        ran
    }

    /// Runs a Python script that must succeed; `rados` and `rbd` can be imported.
    ///
    /// # Panics
    /// When it fails or takes too long.
    pub fn python(&self, script: &str) -> String {
        let mut command = self.command(PYTHON);
        command.args(["-c", &[script, PYTHON_END].concat()]);
        expect_success(&self.finish(command, script), script)
    }
}

fn expect_success(ran: &Ran, script: &str) -> String {
    assert!(ran.code == 0, "exit status {}:\n{script}\nout: {}\nerr: {}", ran.code, ran.out, ran.err);
    ran.out.strip_suffix('\n').unwrap_or(&ran.out).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn a_question_about_nothing_is_not_answered_well() {
        let scratch = Scratch::new();
        let shell = Shell::at(scratch.path(), Path::new("none.conf"));
        shell.run("true | jq -e .x").expect_code(4);
        shell.run("until_true 0 'true | jq -e .x'").expect_code(1);
        shell.run("echo null | jq -e .").expect_code(1);
        assert_eq!(shell.sh(r#"echo '{"x": "a\nb"}' | jq -er .x; echo '[1]' | jq -c ."#), "a\nb\n[1]");
    }
}
