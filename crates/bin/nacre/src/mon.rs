//! `nacre mon`: a monitor, with the manager's duties while it leads, of the cluster in a folder.

use crate::args::MonArgs;
use crate::files::{Folder, Identity, Lock, mon_daemon};
use crate::machine::{host_name, machine_facts};
use crate::sd_notify;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use nacre_monitor::{LOG_ENTRIES_KEPT, Monitor, MonitorConfig, Planted};

/// A monitor that runs in this process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) monitor: Monitor,
    _lock: Lock,
}

/// Starts a monitor, whose lock we have; the first one writes the files for clients. The only one of its cluster serves when this returns,
/// others when a majority runs.
pub(crate) fn start(folder: &Folder, identity: &Identity, name: &str, lock: Lock) -> Result<Running> {
    let config = MonitorConfig {
        store: folder.mon(name),
        name: name.to_owned(),
        methods: identity.auth.methods(),
        host: host_name(),
        machine_facts: machine_facts(),
        log_entries_kept: LOG_ENTRIES_KEPT,
        planted: Planted::Nothing,
    };
    let monitor = Monitor::start(config)
        .with_context(|| format!("cannot start mon.{name} with {}", folder.path().display()))?;
    // One of them does, or they would be in each other's way.
    if folder.mons()?.first().is_some_and(|first| first == name) {
        folder.write_client_files(identity, Some(&monitor.admin_keyring()))?;
    }
    Ok(Running { name: name.to_owned(), monitor, _lock: lock })
}

/// Starts all monitors of a folder.
pub(crate) fn start_all(folder: &Folder, identity: &Identity) -> Result<Vec<Running>> {
    let names = folder.mons()?;
    names.iter().map(|name| start(folder, identity, name, folder.lock_mon(name)?)).collect()
}

/// Finds out whether monitors have ended by themselves: the cluster goes on with a majority of them.
pub(crate) fn check_alive(mons: &[Running]) -> Result<()> {
    let failed = mons.iter().filter(|mon| mon.monitor.has_failed()).count();
    if failed * 2 >= mons.len() {
        bail!(
            "{failed} of {} monitors ended, so no majority is left; their last log lines say why",
            mons.len()
        );
    }
    Ok(())
}

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn run(options: &MonArgs) -> Result<()> {
    let stop = Stop::register()?;
    let folder = Folder::open(&options.dir)?;
    let Some(identity) = folder.identity()? else {
        bail!("{} holds no cluster; `nacre up` makes one", folder.path().display());
    };
    let (name, known) = (&options.name, folder.mons()?);
    if !known.contains(name) {
        bail!("{} has no mon.{name}, but {}", folder.path().display(), known.join(", "));
    }
    let (daemon, lock) = (mon_daemon(name), folder.lock_mon(name)?);
    folder.write_pid(&daemon)?;
    let running = start(&folder, &identity, name, lock)?;
    sd_notify::say_ready(&daemon)?;
    println!("mon.{} serves cluster {} at {}", running.name, identity.fsid, running.monitor.addr());
    let outcome = stop.watch(|| match running.monitor.has_failed() {
        true => bail!("the monitor ended; its last log lines say why"),
        false => Ok(()),
    });
    folder.remove_pid(&daemon);
    running.monitor.stop();
    outcome
}
