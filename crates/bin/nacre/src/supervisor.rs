//! `nacre up --processes`: starts the daemons of a folder as child processes, watches them, starts them again with `--restart`, stops them.
//!
//! Each child is `nacre mon` or `nacre osd`. An operator may kill it and start it again with the command line that it had; the supervisor
//! says when one of its children ends.

use crate::args::UpArgs;
use crate::files::{Folder, REMOVED_FILE, mon_daemon};
use crate::locks::is_locked;
use crate::osd;
use crate::sd_notify::ReadyListener;
use crate::signals::{self, START_POLL, Stop};
use anyhow::{Context, Result, bail};
use nacre_env::outln;
use nacre_env::real::private;
use nacre_env::{Clock, RealClock};
use nacre_types::{OsdId, Stamp};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Daemons that do not serve after this time will not, on a busy machine either.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Daemons that have not stopped after this time are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const STOP_POLL: Duration = Duration::from_millis(20);
/// A daemon that ended is started again after this time, so that one that cannot live does not spin.
pub(crate) const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Lines of a log shown when a daemon does not start.
const LOG_LINES_SHOWN: usize = 5;

/// One daemon of the folder.
struct Daemon {
    /// `mon`, `mon.b` or `osd.N`.
    name: String,
    arguments: Vec<String>,
    /// What it locks.
    home: PathBuf,
    log: PathBuf,
    child: Option<Child>,
    restart_at: Option<Stamp>,
}

/// The daemons of a folder, as children.
pub(crate) struct Supervisor {
    binary: PathBuf,
    folder: Folder,
    ready: ReadyListener,
    clock: RealClock,
    /// The monitors first.
    daemons: Vec<Daemon>,
    mon_count: usize,
    restart: bool,
}

impl Supervisor {
    /// Starts the monitors, then the OSDs, and waits until all serve or `stop` wants the end.
    pub(crate) fn start(folder: &Folder, osds: &[OsdId], options: &UpArgs, stop: &Stop) -> Result<Self> {
        let binary = std::env::current_exe().context("where is this binary?")?;
        let mut supervisor = Self {
            binary,
            folder: folder.clone(),
            ready: ReadyListener::open()?,
            clock: RealClock::start(),
            daemons: Vec::new(),
            mon_count: 0,
            restart: options.restart,
        };
        let outcome = supervisor.start_all(osds, options, stop);
        if outcome.is_err() {
            supervisor.stop();
        }
        outcome.map(|()| supervisor)
    }

    fn start_all(&mut self, osds: &[OsdId], options: &UpArgs, stop: &Stop) -> Result<()> {
        let folder = self.folder.clone();
        let dir = folder.path().display().to_string();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for name in folder.mons()? {
            let arguments = ["mon", "--dir", &dir, "--name", &name];
            self.add(&mon_daemon(&name), folder.mon(&name), words(&arguments))?;
        }
        self.mon_count = self.daemons.len();
        self.await_ready(0, stop)?;
        for id in osds {
            let (number, listen) = (id.to_string(), options.listen.to_string());
            let memory = options.memory.bytes().to_string();
            let arguments =
                ["osd", "--dir", &dir, "--id", &number, "--listen", &listen, "--osd-memory-target", &memory];
            let shards = options.shards.map(|shards| ["--shards".to_owned(), shards.to_string()]);
            let arguments = words(&arguments).into_iter().chain(shards.into_iter().flatten()).collect();
            self.add(&osd::daemon(*id), folder.osd(*id), arguments)?;
        }
        self.await_ready(self.mon_count, stop)
    }

    fn add(&mut self, name: &str, home: PathBuf, arguments: Vec<String>) -> Result<()> {
        let log = self.folder.log_file(name)?;
        self.folder.remove_pid(name);
        let name = name.to_owned();
        let mut daemon = Daemon { name, arguments, home, log, child: None, restart_at: None };
        daemon.child = Some(self.spawn(&daemon)?);
        self.daemons.push(daemon);
        Ok(())
    }

    fn spawn(&self, daemon: &Daemon) -> Result<Child> {
        let (variable, value) = self.ready.variable();
        let mut command = Command::new(&self.binary);
        command.args(&daemon.arguments).env(variable, value);
        spawn(command, &daemon.log).with_context(|| format!("cannot start {}", daemon.name))
    }

    /// Waits until each daemon from the one at `first` on has said that it serves.
    fn await_ready(&mut self, first: usize, stop: &Stop) -> Result<()> {
        let started = self.daemons.iter().skip(first);
        let mut waiting: Vec<String> = started.map(|daemon| daemon.name.clone()).collect();
        let deadline = self.clock.now() + START_TIMEOUT;
        while !stop.is_wanted() {
            let ready = self.ready.take_ready();
            waiting.retain(|name| !ready.contains(name));
            if waiting.is_empty() {
                return Ok(());
            }
            for daemon in &mut self.daemons {
                if let Some(status) = daemon.ended() {
                    bail!("{} ended while starting: {status}\n{}", daemon.name, last_lines(&daemon.log));
                }
            }
            if self.clock.now() > deadline {
                bail!("{} did not start within {START_TIMEOUT:?}; see the folder log/", waiting.join(", "));
            }
            std::thread::sleep(START_POLL);
        }
        Ok(())
    }

    /// Says which children have ended, and starts them again if that is wanted.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let now = self.clock.now();
        // What daemons say that were started again is not waited for; left unread, it would fill the socket.
        drop(self.ready.take_ready());
        for at in 0..self.daemons.len() {
            let Some(daemon) = self.daemons.get_mut(at) else { continue };
            let pid = daemon.child.as_ref().map_or(0, Child::id);
            if let Some(status) = daemon.ended() {
                outln!(
                    "{} (process {pid}) ended: {status}; its log is {}",
                    daemon.name,
                    daemon.log.display()
                );
                if self.restart {
                    daemon.restart_at = Some(now + RESTART_DELAY);
                } else {
                    outln!("  to start it again: {} {}", self.binary.display(), daemon.arguments.join(" "));
                }
            }
            if daemon.restart_at.is_some_and(|at| now >= at) {
                daemon.restart_at = None;
                self.start_again(at)?;
            }
        }
        Ok(())
    }

    fn start_again(&mut self, at: usize) -> Result<()> {
        let is_to_run =
            |daemon: &&Daemon| !is_locked(&daemon.home) && !daemon.home.join(REMOVED_FILE).exists();
        let Some(daemon) = self.daemons.get(at).filter(is_to_run) else {
            return Ok(());
        };
        let child = self.spawn(daemon)?;
        outln!("{} started again as process {}", daemon.name, child.id());
        if let Some(daemon) = self.daemons.get_mut(at) {
            daemon.child = Some(child);
        }
        Ok(())
    }

    /// Stops every daemon of the folder, also those that an operator started in place of our children: the OSDs, and then the monitors.
    pub(crate) fn stop(&mut self) {
        let folder = self.folder.clone();
        let mon_count = self.mon_count.min(self.daemons.len());
        let (mon, osds) = self.daemons.split_at_mut(mon_count);
        stop_some(&folder, osds, &self.clock);
        stop_some(&folder, mon, &self.clock);
    }
}

impl Daemon {
    /// How the child ended, once.
    fn ended(&mut self) -> Option<ExitStatus> {
        ended(&mut self.child)
    }

    /// Its process now: our child, or what was started in its place.
    fn pid(&self, folder: &Folder) -> Option<u32> {
        let child = self.child.as_ref().map(Child::id);
        child.or_else(|| folder.pid(&self.name).filter(|_| is_locked(&self.home)))
    }

    fn is_running(&mut self) -> bool {
        let ended = self.ended().is_some();
        (!ended && self.child.is_some()) || is_locked(&self.home)
    }
}

/// Starts a daemon as a child whose output goes to the end of its log.
pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Child> {
    let output = private::options().create(true).append(true).open(log);
    let output = output.with_context(|| log.display().to_string())?;
    let errors = output.try_clone().with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    // Ctrl-C at our terminal is ours: who needs another daemon stops before it.
    Ok(command.process_group(0).spawn()?)
}

/// How a child ended, once.
pub(crate) fn ended(child: &mut Option<Child>) -> Option<ExitStatus> {
    let status = child.as_mut()?.try_wait().ok().flatten()?;
    *child = None;
    Some(status)
}

/// The end of a log, for whom its daemon's start failed.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default();
    shown.iter().map(|line| format!("  {line}\n")).collect()
}

fn stop_some(folder: &Folder, daemons: &mut [Daemon], clock: &RealClock) {
    let running = |daemons: &mut [Daemon]| daemons.iter_mut().any(Daemon::is_running);
    let deadline = clock.now() + STOP_TIMEOUT;
    let mut told = BTreeSet::new();
    while running(daemons) && clock.now() < deadline {
        // Again and again: an operator may just be starting one.
        for (daemon, pid) in daemons.iter().filter_map(|daemon| Some((daemon, daemon.pid(folder)?))) {
            if told.insert(pid) {
                signal(daemon, folder, "-TERM");
            }
        }
        std::thread::sleep(STOP_POLL);
    }
    for daemon in daemons.iter_mut() {
        if daemon.is_running() {
            outln!("{} does not stop within {STOP_TIMEOUT:?} and is killed", daemon.name);
            signal(daemon, folder, "-KILL");
        }
    }
    while running(daemons) && clock.now() < deadline + STOP_TIMEOUT {
        std::thread::sleep(STOP_POLL);
    }
}

fn signal(daemon: &Daemon, folder: &Folder, name: &str) {
    if let Some(pid) = daemon.pid(folder) {
        signals::send(name, pid, &daemon.name);
    }
}
