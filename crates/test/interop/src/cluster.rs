//! [`Cluster`]: one `nacre up`, from start to stop.

use crate::{Scratch, Shell};
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time from start to `ready`; generous, since the machine may be busy with other tests.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time from the request to stop to the end. `nacre up` itself says which daemon it had to end after its own limit.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
/// Time until all placement groups are active and clean.
const CLEAN_WITHIN: Duration = Duration::from_secs(300);
/// Room of one OSD: enough for every test, and little enough for several clusters at a time.
const OSD_SIZE: &str = "1G";
const POLL: Duration = Duration::from_millis(10);
/// Folder of a running Ceph to test instead.
const CEPH_VARIABLE: &str = "NACRE_TEST_CEPH";
const BIN_VARIABLE: &str = "NACRE_BIN";

/// A cluster for one test.
#[derive(Debug)]
pub struct Cluster {
    /// Declared first: the daemon stops before its folder goes.
    daemon: Option<Daemon>,
    osds: u32,
    mons: usize,
    kind: Kind,
    /// Client's configuration: the cluster's, with the keyring.
    conf: PathBuf,
    /// Pools and entities made in a Ceph that is not ours, to be removed in the end.
    guests: RefCell<Vec<String>>,
    scratch: Scratch,
    /// Declared last: others start when all of this is gone.
    _permit: Permit,
}

impl Cluster {
    /// A new cluster with this number of OSDs, ready for clients.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(osds: u32) -> Self {
        Self::start_with(osds, 1, Kind::Threads, &[])
    }

    /// The same with each daemon a process of its own; `None` when the tests run against a Ceph, whose
    /// processes are not ours to kill. Scripts of its shells find its folder as `$DIR` and the binary as
    /// `$NACRE`.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_processes(osds: u32) -> Option<Self> {
        Self::start_own(osds, 1, &[])
    }

    /// The same with so many threads for each OSD, and a store that is divided between them.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_sharded(osds: u32, shards: u32) -> Option<Self> {
        Self::start_own(osds, 1, &["--shards", &shards.to_string()])
    }

    /// The same with OSDs of such a size, as `nacre up --osd-size` takes it: for loads of minutes.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_sized(osds: u32, size: &str) -> Option<Self> {
        Self::start_own(osds, 1, &["--osd-size", size])
    }

    /// The same with three monitors.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_quorum(osds: u32) -> Option<Self> {
        Self::start_own(osds, 3, &[])
    }

    /// Of processes that are ours, or none.
    fn start_own(osds: u32, mons: usize, options: &[&str]) -> Option<Self> {
        let start = || Self::start_with(osds, mons, Kind::Processes, options);
        std::env::var_os(CEPH_VARIABLE).is_none().then(start)
    }

    fn start_with(osds: u32, mons: usize, kind: Kind, options: &[&str]) -> Self {
        let permit = Permit::take();
        let scratch = Scratch::new();
        let ceph = std::env::var_os(CEPH_VARIABLE).map(PathBuf::from);
        let (daemon, source) = match ceph {
            Some(folder) => (None, folder),
            None => (
                Some(Daemon::start(scratch.path(), (osds, mons), kind, options)),
                scratch.path().join("cluster"),
            ),
        };
        let conf = scratch.path().join("client.conf");
        let cluster =
            Self { daemon, osds, mons, kind, conf, guests: RefCell::default(), scratch, _permit: permit };
        cluster.write_conf(&source);
        cluster
    }

    fn write_conf(&self, source: &Path) {
        let given = fs::read_to_string(source.join("ceph.conf")).expect("nacre has written ceph.conf");
        // No file of a client may land in the folder that the tests run from.
        let (keyring, log) = (source.join("keyring"), self.scratch.path().join("client.log"));
        let (keyring, log) = (keyring.display(), log.display());
        let own = format!("\n[client]\nkeyring = {keyring}\nlog file = {log}\nadmin socket =\n");
        fs::write(&self.conf, given + &own).expect("a writable folder");
    }

    /// Scripts against this cluster, as client.admin.
    #[must_use]
    pub fn shell(&self) -> Shell {
        let shell = Shell::new(self.scratch.path(), &self.conf);
        match self.kind {
            Kind::Threads => shell,
            Kind::Processes => {
                let folder = self.scratch.path().join("cluster");
                shell.with("DIR", folder.display()).with("NACRE", binary().display())
            }
        }
    }

    /// Makes a pool and waits until it is clean; scripts of the shell know it as `$POOL`. It ends with the
    /// cluster; a Ceph that is not ours keeps it.
    #[must_use]
    pub fn pool(&self, purpose: &str, pg_num: u32) -> Shell {
        let name = self.name(purpose);
        let shell = self.shell().with("POOL", &name);
        shell.sh(&format!(
            "ceph osd pool create $POOL {pg_num}; ceph osd pool application enable $POOL rados"
        ));
        self.await_clean();
        shell
    }

    /// A name that nothing else in the cluster has.
    #[must_use]
    pub fn name(&self, purpose: &str) -> String {
        if self.is_ours() {
            return purpose.to_owned();
        }
        let folder = self.scratch.path().file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}-{purpose}", folder.trim_start_matches("nacre-"));
        self.guests.borrow_mut().push(name.clone());
        name
    }

    /// True for a `nacre up` of this test alone, whose configuration and OSDs it may disturb.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.daemon.is_some()
    }

    /// Waits until every placement group is active and clean, and says so of the newest map.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn await_clean(&self) {
        let start = Instant::now();
        loop {
            let map = self.shell().json("ceph osd dump -f json");
            let stats = self.shell().json("ceph pg dump pgs -f json 2>/dev/null");
            let pgs = stats["pg_stats"].as_array().or_else(|| stats.as_array()).cloned().unwrap_or_default();
            let pools = map["pools"].as_array().into_iter().flatten();
            let wanted: u64 = pools.filter_map(|pool| pool["pg_num"].as_u64()).sum();
            // A Ceph does not report each epoch, but nobody disturbs one that is not ours either.
            let current =
                |pg: &Value| !self.is_ours() || pg["reported_epoch"].as_u64() >= map["epoch"].as_u64();
            let clean = |pg: &&Value| pg["state"] == "active+clean" && current(pg);
            let count = u64::try_from(pgs.iter().filter(clean).count()).unwrap_or_default();
            if count == wanted {
                return;
            }
            let states: Vec<String> =
                pgs.iter().map(|pg| format!("{} {}", pg["pgid"], pg["state"])).collect();
            assert!(start.elapsed() < CLEAN_WITHIN, "{count} of {wanted} PGs are clean: {states:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Stops the daemon cleanly and starts it again on what it left.
    ///
    /// # Panics
    /// When it does not come up again, or is not ours.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same with more options.
    ///
    /// # Panics
    /// As [`Cluster::restart`].
    pub fn restart_with(&mut self, options: &[&str]) {
        drop(self.daemon.take().expect("a cluster of our own"));
        self.daemon = Some(Daemon::start(self.scratch.path(), (self.osds, self.mons), self.kind, options));
        self.write_conf(&self.scratch.path().join("cluster"));
    }

    /// Kills the daemon as a crash does and starts it again on what it left.
    ///
    /// # Panics
    /// When it does not come up again, or is not ours.
    pub fn crash(&mut self) {
        self.daemon.take().expect("a cluster of our own").crash();
        self.daemon = Some(Daemon::start(self.scratch.path(), (self.osds, self.mons), self.kind, &[]));
        self.write_conf(&self.scratch.path().join("cluster"));
    }

    /// The process, unless it is a Ceph that is not ours.
    #[must_use]
    pub fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Where the monitor, the manager and every OSD listen for clients, with their names.
    ///
    /// # Panics
    /// When the maps do not say so.
    #[must_use]
    pub fn ports(&self) -> Vec<(String, SocketAddr)> {
        let shell = self.shell();
        let parse = |text: &str| -> SocketAddr {
            let text = text.trim_start_matches("v2:").split('/').next().unwrap_or_default();
            text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        let msgr2 = |addrs: &Value| -> SocketAddr {
            let all = addrs["addrvec"].as_array().expect("addresses");
            let v2 = all.iter().find(|addr| addr["type"] == "v2").expect("an address of version 2");
            parse(v2["addr"].as_str().expect("text"))
        };
        let mon = shell.json("ceph mon dump -f json 2>/dev/null");
        let mgr = shell.json("ceph mgr dump -f json");
        let osds = shell.json("ceph osd dump -f json");
        let mut ports = vec![
            ("mon".to_owned(), msgr2(&mon["mons"][0]["public_addrs"])),
            ("mgr".to_owned(), msgr2(&mgr["active_addrs"])),
        ];
        for osd in osds["osds"].as_array().expect("OSDs") {
            ports.push((format!("osd.{}", osd["osd"]), msgr2(&osd["public_addrs"])));
        }
        ports
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for name in self.guests.borrow().iter() {
            let shell = self.shell().with("NAME", name);
            shell
                .run("ceph config set mon mon_allow_pool_delete true; ceph osd pool rm $NAME $NAME --yes-i-really-really-mean-it; ceph auth rm client.$NAME");
        }
    }
}

/// A machine with many processors runs many tests at a time; each cluster takes gigabytes of its disk.
const CLUSTERS_MAX: usize = 6;
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The right to run one cluster.
#[derive(Debug)]
struct Permit;

impl Permit {
    fn take() -> Self {
        // A test that panicked has not left a number half-written.
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |running: &mut usize| *running >= CLUSTERS_MAX;
        *ENDED.wait_while(running, full).unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// How a cluster's daemons run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Threads,
    Processes,
}

/// The process `nacre up`.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    logs: Vec<PathBuf>,
    /// By our own hand.
    crashed: bool,
}

impl Daemon {
    /// Starts it in `folder/cluster` and waits for its line `ready`.
    fn start(folder: &Path, (osds, mons): (u32, usize), kind: Kind, options: &[&str]) -> Self {
        let (said, log) = (folder.join("nacre.out"), folder.join("nacre.log"));
        let file = |path: &Path| Stdio::from(fs::File::create(path).expect("a writable folder"));
        let is_new = !folder.join("cluster").exists();
        // The daemon must not outlive a test that is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(binary())
            .args(["up", "--osds", &osds.to_string(), "--mons", &mons.to_string()])
            // Pools keep the numbers of PGs that a test gives them.
            .args(if is_new { &["--set", "osd_pool_default_pg_autoscale_mode=off"][..] } else { &[] })
            .args(if options.contains(&"--osd-size") { &[][..] } else { &["--osd-size", OSD_SIZE][..] })
            .arg("--dir")
            .arg(folder.join("cluster"))
            .args(if kind == Kind::Processes { &["--processes"][..] } else { &[] })
            .args(options)
            .stdin(Stdio::null())
            .stdout(file(&said))
            .stderr(file(&log))
            .spawn()
            .expect("setpriv, of util-linux");
        let mut logs = vec![log];
        if kind == Kind::Processes {
            let osds = (0..osds).map(|osd| format!("osd.{osd}"));
            let mons = ["mon", "mon.b", "mon.c"].into_iter().take(mons).map(str::to_owned);
            let names = osds.chain(mons);
            logs.extend(names.map(|name| folder.join("cluster/log").join(name + ".log")));
        }
        let mut daemon = Self { child, logs, crashed: false };
        let start = Instant::now();
        while !fs::read_to_string(&said).unwrap_or_default().lines().any(|line| line.starts_with("ready")) {
            let ended = daemon.child.try_wait().expect("our child");
            assert!(ended.is_none(), "nacre up ended: {ended:?}\n{}", daemon.logged());
            assert!(start.elapsed() < READY_WITHIN, "nacre up is not ready\n{}", daemon.logged());
            std::thread::sleep(POLL);
        }
        daemon
    }

    /// All that it has logged so far.
    #[must_use]
    pub fn logged(&self) -> String {
        self.logs.iter().map(|log| fs::read_to_string(log).unwrap_or_default()).collect()
    }

    /// Bytes of memory that it holds now.
    ///
    /// # Panics
    /// When the system does not say so.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a live process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
        kib * 1024
    }

    /// Ends it without a chance to write anything more.
    fn crash(mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        assert!(ended.is_ok(), "{ended:?}");
        self.crashed = true;
    }

    /// Asks it to stop; what is wrong with how it ended.
    fn stop(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.crashed {
            // As ordered.
        } else if let Ok(Some(status)) = self.child.try_wait() {
            wrong.push(format!("it had ended before: {status}"));
        } else {
            let pid = self.child.id().to_string();
            let told = Command::new("kill").args(["-TERM", &pid]).status();
            assert!(told.is_ok_and(|status| status.success()), "kill -TERM {pid}");
            match self.wait(STOPPED_WITHIN) {
                Some(status) if status.success() => {}
                Some(status) => wrong.push(format!("it stopped with {status}")),
                None => {
                    wrong.push(format!("it did not stop within {STOPPED_WITHIN:?}"));
                    let killed = self.child.kill().and_then(|()| self.child.wait());
                    wrong.extend(killed.err().map(|error| error.to_string()));
                }
            }
        }
        let bad = |line: &&str| {
            ["ERROR", "panicked", "does not stop within"].iter().any(|word| line.contains(word))
        };
        wrong.extend(self.logged().lines().filter(bad).map(str::to_owned));
        wrong
    }

    fn wait(&mut self, limit: Duration) -> Option<std::process::ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(POLL);
        }
        None
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let wrong = self.stop();
        if wrong.is_empty() {
            return;
        }
        let text = format!("nacre up, process {}:\n  {}", self.child.id(), wrong.join("\n  "));
        if std::thread::panicking() {
            eprintln!("{text}");
        } else {
            panic!("{text}");
        }
    }
}

/// The binary that is tested: `NACRE_BIN`, else the one that was built with this test, which is of the same code only after
/// `cargo test --workspace` (`target/debug/deps/test` -> `target/debug/nacre`).
///
/// # Panics
/// When there is none.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os(BIN_VARIABLE) {
        return fs::canonicalize(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let test = std::env::current_exe().expect("our own path");
    let path = test.ancestors().nth(2).expect("target/profile/deps/test").join("nacre");
    assert!(path.exists(), "{} is missing: build it, or name another in {BIN_VARIABLE}", path.display());
    path
}
