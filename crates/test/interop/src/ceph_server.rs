//! [`CephServer`]: what runs the stock `ceph` for the scripts of this process.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The system's interpreter: the one that Debian's `python3-rados` belongs to.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
const SOURCE: &str = include_str!("ceph_server.py");

/// A process of `ceph_server.py`, which ends with this one.
#[derive(Debug)]
pub(crate) struct CephServer {
    /// Its standard input is what it ends with.
    child: Child,
    folder: PathBuf,
}

impl CephServer {
    /// The one of this process.
    ///
    /// # Panics
    /// When it does not start.
    pub(crate) fn of_this_process() -> &'static Self {
        static SERVER: OnceLock<CephServer> = OnceLock::new();
        SERVER.get_or_init(|| Self::start(&call_program()))
    }

    fn start(call: &Path) -> Self {
        let mut command = Command::new(PYTHON);
        command.args(["-c", SOURCE]).arg(call).env_remove("CEPH_ARGS");
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("Debian's python3 and ceph-common");
        let mut folder = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        said.read_line(&mut folder).expect("text");
        assert!(!folder.is_empty(), "the server of `ceph` did not start");
        Self { child, folder: folder.trim_end().into() }
    }

    /// Variables with which a script finds it.
    pub(crate) fn variables(&self) -> [(&'static str, OsString); 3] {
        let path = env::var_os("PATH").unwrap_or_default();
        let paths = [self.folder.clone()].into_iter().chain(env::split_paths(&path));
        [
            ("PATH", env::join_paths(paths).expect("a folder without a colon")),
            ("NACRE_CEPH_SERVER", self.folder.join("server").into()),
            ("NACRE_CEPH_SERVER_PID", self.child.id().to_string().into()),
        ]
    }
}

/// Cargo lays the programs of a package beside the folder of its tests.
fn call_program() -> PathBuf {
    let test = env::current_exe().expect("this program's path");
    let folder = test.parent().and_then(Path::parent).expect("two folders up");
    let program = folder.join("ceph_call");
    assert!(program.exists(), "{} is missing: build the tests with cargo", program.display());
    program
}
