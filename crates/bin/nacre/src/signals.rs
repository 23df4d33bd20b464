//! SIGTERM and Ctrl-C: [`Stop`] knows whether this process is to end, and waits for it beside the daemons.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause between looks at whether the daemons are alive.
const RUN_POLL: Duration = Duration::from_millis(100);
/// The same while they start.
pub(crate) const START_POLL: Duration = Duration::from_millis(2);

/// Whether a signal has asked this process to end.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes SIGTERM and Ctrl-C from now on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub(crate) fn register() -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot wait for signals")?;
        }
        Ok(Self(stop))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Calls `check` again and again until a signal has come, or `check` finds that a daemon ended by itself.
    ///
    /// # Errors
    /// Those of `check`.
    pub(crate) fn watch(&self, mut check: impl FnMut() -> Result<()>) -> Result<()> {
        self.watch_until(|| check().map(|()| false))
    }

    /// The same, or until `check` says that there is nothing left to watch.
    ///
    /// # Errors
    /// Those of `check`.
    pub(crate) fn watch_until(&self, mut check: impl FnMut() -> Result<bool>) -> Result<()> {
        while !self.is_wanted() && !check()? {
            std::thread::sleep(RUN_POLL);
        }
        Ok(())
    }
}

/// Sends a signal, such as `-TERM`, by the program `kill`: no library of ours does. A process that is gone already is none to complain of.
pub(crate) fn send(signal: &str, pid: u32, daemon: &str) {
    match Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status() {
        Ok(_) => (),
        Err(error) => tracing::error!(%error, daemon, "cannot run kill"),
    }
}
