//! `nacre mon`: the monitor, with the manager's duties, of the cluster in a folder.

use crate::args::MonArgs;
use crate::files::{Folder, Identity, Lock};
use crate::machine::host_name;
use crate::sd_notify;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use nacre_monitor::{LOG_ENTRIES_KEPT, Monitor, MonitorConfig};

/// Name of the one monitor that a folder has.
pub(crate) const NAME: &str = "a";
/// Its name among the daemons of a folder.
pub(crate) const DAEMON: &str = "mon";

/// A monitor that runs in this process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) monitor: Monitor,
    _lock: Lock,
}

/// Starts the monitor, whose lock we have, and writes the files for clients. It serves when this returns.
pub(crate) fn start(folder: &Folder, identity: &Identity, lock: Lock) -> Result<Running> {
    let config = MonitorConfig {
        store: folder.mon(),
        name: NAME.to_owned(),
        methods: identity.auth.methods(),
        host: host_name(),
        log_entries_kept: LOG_ENTRIES_KEPT,
    };
    let monitor = Monitor::start(config).with_context(|| {
        format!("cannot start the monitor at {} with {}", identity.monitor, folder.path().display())
    })?;
    folder.write_client_files(identity, Some(&monitor.admin_keyring()))?;
    Ok(Running { monitor, _lock: lock })
}

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn run(options: &MonArgs) -> Result<()> {
    let stop = Stop::register()?;
    let folder = Folder::open(&options.dir)?;
    let Some(identity) = folder.identity()? else {
        bail!("{} holds no cluster; `nacre up` makes one", folder.path().display());
    };
    let lock = folder.lock_mon()?;
    folder.write_pid(DAEMON)?;
    let running = start(&folder, &identity, lock)?;
    sd_notify::say_ready(DAEMON)?;
    println!("mon.{NAME} serves cluster {} at {}", identity.fsid, running.monitor.addr());
    let outcome = stop.watch(|| match running.monitor.has_failed() {
        true => bail!("the monitor ended; its last log lines say why"),
        false => Ok(()),
    });
    folder.remove_pid(DAEMON);
    running.monitor.stop();
    outcome
}
