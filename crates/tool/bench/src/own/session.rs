//! [`Session`]: a connected client, and the operations that it has under way.

use crate::load::Target;
use crate::place::Place;
use anyhow::{Context, Result, bail};
use nacre_client::{Access, Client, Finished};
use nacre_env::{Clock, RealClock};
use nacre_msg::{OsdOpReply, SubOp};
use nacre_objecter::Request;
use nacre_types::{Errno, ObjectLocator, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Without a map after this time there is no cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// See the module's documentation.
pub(super) struct Session {
    client: Client,
    pub(super) clock: RealClock,
    pool: i64,
    place: Place,
    /// By number: the time from which they count.
    open: BTreeMap<u64, Stamp>,
}

pub(super) type Outcome = Result<Box<OsdOpReply>, Errno>;

impl Session {
    /// Connects to the cluster.
    ///
    /// # Errors
    /// When no monitor lets us in, or the pool is not there.
    pub(super) fn open(target: Target<'_>, clock: RealClock) -> Result<Self> {
        let text = |path: &std::path::Path| {
            std::fs::read_to_string(path).with_context(|| path.display().to_string())
        };
        let access = Access::parse(&text(target.conf)?, &text(target.keyring)?, target.user)?;
        let mut client = Client::of_this_machine(access, clock)
            .context("no sockets for one more client; see ulimit -n")?;
        if !client.wait_for_map(&clock, CONNECT_TIMEOUT)? {
            bail!("no monitor answered within {CONNECT_TIMEOUT:?}");
        }
        let pool = client.objecter().map().pool_by_name(target.pool);
        let pool = pool.with_context(|| format!("there is no pool {}", target.pool))?;
        Ok(Self { client, clock, pool, place: target.place.clone(), open: BTreeMap::new() })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Begins an operation on an object; its latency counts from `from`.
    pub(super) fn submit(&mut self, object: u64, operation: SubOp, from: Stamp) -> Result<()> {
        let name = self.place.object_name(object);
        let mut request = Request::new(ObjectLocator::in_pool(self.pool), name, vec![operation]);
        request.mtime = self.clock.wall();
        self.open.insert(self.client.submit(request)?, from);
        Ok(())
    }

    /// Sends, and waits for answers at most for `wait`.
    pub(super) fn turn(&mut self, wait: Duration) -> Result<()> {
        self.client.flush();
        Ok(self.client.turn(wait)?)
    }

    /// What was answered, with the time from which it counts.
    pub(super) fn take_answers(&mut self) -> Vec<(Stamp, Outcome)> {
        let finished = self.client.take_finished().into_iter();
        let answer = |one| match one {
            Finished::Op { tid, outcome } => Some((self.open.remove(&tid)?, outcome)),
            Finished::Command { .. } | Finished::Snapshot(_) | Finished::Notified(_) => None,
        };
        finished.filter_map(answer).collect()
    }
}

/// An answer must say that it was done; of a read, with all bytes.
pub(super) fn check(outcome: Outcome, read_bytes: Option<u64>) -> Result<()> {
    let reply = outcome.map_err(|errno| anyhow::anyhow!("an operation failed: {errno}"))?;
    if reply.result < 0 {
        bail!("an operation failed: {}", Errno(-reply.result));
    }
    let found = reply.ops.first().map_or(0, |op| op.outdata.len() as u64);
    match read_bytes {
        Some(wanted) if found != wanted => bail!("a read of {wanted} bytes gave {found}"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_checked() {
        assert!(check(Err(Errno::ENOENT), None).is_err());
    }
}
