//! [`Admin`]: a session with a cluster that runs, as `client.admin`, for the few commands that our own tools give.

use crate::files::Folder;
use anyhow::{Context, Result, bail};
use nacre_buf::Bytes;
use nacre_client::{Access, Client, Failure, Finished};
use nacre_env::{Clock, RealClock};
use nacre_types::Stamp;
use std::time::Duration;

/// A majority of monitors answers within a fraction of a second; without one there is no answer.
const PATIENCE: Duration = Duration::from_secs(15);
const TURN_MAX: Duration = Duration::from_millis(100);

/// A session with the monitors, as the administrator.
pub(crate) struct Admin {
    client: Client,
    clock: RealClock,
    keyring: String,
}

/// What a command was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// 0 or a negated errno.
    pub(crate) result: i32,
    pub(crate) status: String,
    pub(crate) data: Bytes,
}

impl Admin {
    /// Begins one, by the folder's `ceph.conf` and `keyring`.
    pub(crate) fn new(folder: &Folder) -> Result<Self> {
        let text = |path: &std::path::Path| {
            let why = || format!("{}: copy it from a machine of the cluster", path.display());
            std::fs::read_to_string(path).with_context(why)
        };
        let keyring = folder.keyring().display().to_string();
        let access = Access::parse(&text(&folder.conf())?, &text(&folder.keyring())?, "admin")
            .with_context(|| format!("{} and {keyring}", folder.conf().display()))?;
        let clock = RealClock::start();
        let client =
            Client::of_this_machine(access, clock).context("no sockets for a client; see ulimit -n")?;
        Ok(Self { client, clock, keyring })
    }

    /// Gives a command, which the cluster may refuse.
    pub(crate) fn try_ask(&mut self, json: &str) -> Result<Answer> {
        self.try_ask_with(json, b"")
    }

    /// The same with input.
    pub(crate) fn try_ask_with(&mut self, json: &str, input: &[u8]) -> Result<Answer> {
        let wanted = self.client.command_with(json, Bytes::copy_from_slice(input).into())?;
        let deadline: Stamp = self.clock.now() + PATIENCE;
        self.client.flush();
        loop {
            match self.client.turn(TURN_MAX) {
                Ok(()) => (),
                Err(error @ Failure::Refused(_)) => {
                    let keyring = &self.keyring;
                    return Err(error)
                        .context(format!("is the key of client.admin in {keyring} that of this cluster?"));
                }
                Err(error) => return Err(error.into()),
            }
            for finished in self.client.take_finished() {
                if let Finished::Command { tid, result, status, data } = finished
                    && tid == wanted
                {
                    return Ok(Answer { result, status, data: data.to_bytes() });
                }
            }
            if self.clock.now() > deadline {
                bail!(
                    "no monitor answers within {PATIENCE:?}: a majority of them must run. If that is lost for good, see `nacre mon recover \
                     --help`"
                );
            }
        }
    }

    /// Gives a command that is to be carried out.
    pub(crate) fn ask(&mut self, json: &str) -> Result<Answer> {
        let answer = self.try_ask(json)?;
        if answer.result != 0 {
            bail!("the cluster refuses: {}", answer.status);
        }
        Ok(answer)
    }
}
