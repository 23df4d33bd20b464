//! `nacre mon`: a monitor, with the manager's duties while it leads, of the cluster in a folder.

use crate::args::{Auth, MonArgs};
use crate::crash_reports;
use crate::files::{Folder, Identity, mon_daemon};
use crate::locks::Lock;
use crate::machine::{host_name, machine_facts};
use crate::sd_notify;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use nacre_env::outln;
use nacre_monitor::{LOG_ENTRIES_KEPT, Monitor, MonitorConfig, Planted, StartError};

/// A monitor that runs in this process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) monitor: Monitor,
    _lock: Lock,
}

/// Starts a monitor, whose lock we have; the first one of a folder whose cluster was made there writes the files for clients. The only one
/// of its cluster serves when this returns, others when a majority runs.
pub(crate) fn start(
    folder: &Folder,
    auth: Auth,
    identity: Option<&Identity>,
    name: &str,
    lock: Lock,
) -> Result<Running> {
    let config = MonitorConfig {
        store: folder.mon(name),
        name: name.to_owned(),
        methods: auth.methods(),
        host: host_name(),
        machine_facts: machine_facts(),
        admin_socket: Some(folder.admin_socket(&format!("mon.{name}"))?),
        log_entries_kept: LOG_ENTRIES_KEPT,
        planted: Planted::Nothing,
    };
    let outcome = Monitor::start(config);
    if outcome.as_ref().is_err_and(StartError::is_removed) {
        folder.mark_removed(name)?;
    }
    let monitor =
        outcome.with_context(|| format!("cannot start mon.{name} with {}", folder.path().display()))?;
    let running = Running { name: name.to_owned(), monitor, _lock: lock };
    if let Some(identity) = identity.filter(|_| is_first(folder, name)) {
        let identity = Identity { monitors: running.monitor.monitors(), ..identity.clone() };
        folder.write_identity(&identity)?;
        // A monitor that joins has no entities yet, and the folder has the keyring with which it joined.
        let keyring = running.monitor.admin_keyring();
        folder.write_client_files(&identity, Some(keyring.as_str()).filter(|text| !text.is_empty()))?;
    }
    Ok(running)
}

/// One of the monitors writes what all have in common, or they would be in each other's way.
fn is_first(folder: &Folder, name: &str) -> bool {
    folder.mons().is_ok_and(|names| names.first().is_some_and(|first| first == name))
}

/// Starts all monitors of a folder.
pub(crate) fn start_all(folder: &Folder, identity: &Identity) -> Result<Vec<Running>> {
    let mut all = Vec::new();
    for name in folder.mons()? {
        match start(folder, identity.auth, Some(identity), &name, folder.lock_mon(&name)?) {
            Ok(running) => all.push(running),
            Err(error) if folder.is_removed(&name) => outln!("{error:#}"),
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Finds out whether monitors have ended by themselves: the cluster goes on with a majority of them. Those that were removed from the
/// cluster are none of them any more.
pub(crate) fn check_alive(folder: &Folder, mons: &mut Vec<Running>) -> Result<()> {
    for removed in mons.extract_if(.., |mon| mon.monitor.has_failed() && mon.monitor.was_removed()) {
        folder.mark_removed(&removed.name)?;
        outln!("mon.{} was removed from the cluster and has ended", removed.name);
    }
    let failed = mons.iter().filter(|mon| mon.monitor.has_failed()).count();
    if failed > 0 && failed * 2 >= mons.len() {
        bail!(
            "{failed} of {} monitors ended, so no majority is left; their last log lines say why",
            mons.len()
        );
    }
    Ok(())
}

/// Writes anew where the monitors are, for clients and for daemons that start, when that has changed.
pub(crate) fn follow_monitors(folder: &Folder, identity: &mut Identity, mons: &[Running]) -> Result<()> {
    let monitors = mons.first().map(|mon| mon.monitor.monitors()).unwrap_or_default();
    if monitors.is_empty() || monitors == identity.monitors {
        return Ok(());
    }
    identity.monitors = monitors;
    if mons.iter().any(|mon| is_first(folder, &mon.name)) {
        folder.write_identity(identity)?;
        folder.write_client_files(identity, None)?;
    }
    Ok(())
}

/// Runs until SIGTERM or Ctrl-C, or until the monitor is removed from the cluster.
pub(crate) fn run(options: &MonArgs) -> Result<()> {
    let stop = Stop::register()?;
    let folder = Folder::open(&options.place.dir)?;
    let mut identity = folder.identity()?;
    let (name, known) = (&options.name, folder.mons()?);
    if folder.is_removed(name) {
        let path = folder.mon(name);
        bail!("mon.{name} was removed from the cluster; remove {}, or let it join again", path.display());
    }
    if !known.contains(name) {
        let has = if known.is_empty() { "no monitor".to_owned() } else { known.join(", ") };
        bail!(
            "{} has no mon.{name}, but {has}; `nacre up` makes a cluster, `nacre mon join` a monitor of one",
            folder.path().display()
        );
    }
    let auth = match &identity {
        Some(identity) => identity.auth,
        None => folder.address()?.auth,
    };
    let (daemon, lock) = (mon_daemon(name), folder.lock_mon(name)?);
    folder.write_pid(&daemon)?;
    crash_reports::begin(&folder, &format!("mon.{name}"));
    let started = start(&folder, auth, identity.as_ref(), name, lock);
    let mut mons = vec![started.inspect_err(|_| folder.remove_pid(&daemon))?];
    sd_notify::say_ready(&daemon)?;
    if let Some(running) = mons.first() {
        let (fsid, addr) = (running.monitor.fsid(), running.monitor.addr());
        outln!("mon.{name} serves cluster {fsid} at {addr}");
    }
    let outcome = stop.watch_until(|| {
        if let Some(identity) = &mut identity {
            follow_monitors(&folder, identity, &mons)?;
        }
        check_alive(&folder, &mut mons)?;
        Ok(mons.is_empty())
    });
    folder.remove_pid(&daemon);
    mons.into_iter().for_each(|running| running.monitor.stop());
    outcome
}
