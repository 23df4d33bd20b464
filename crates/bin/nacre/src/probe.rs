//! `nacre probe`: how long a synchronous write takes as this host sees it, a few times a minute or each second, for the cluster's metrics.

use crate::args::ProbeArgs;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use nacre_client::{Access, Client, Finished, probe_locator, probe_write};
use nacre_env::{Clock, RealClock};
use nacre_env::{errln, outln};
use nacre_mgr::probes::HostProbe;
use nacre_objecter::Request;
use nacre_types::{Errno, PoolId, Stamp, seconds};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The cluster hears of it this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Without a map after this time there is no cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Objects that are written in turn, so that many PGs are asked.
const NAMES: u64 = 1024;
/// Writes that may wait for an answer at a time.
const WAITING_MAX: usize = 1000;

struct HostProber {
    client: Client,
    clock: RealClock,
    pool: PoolId,
    args: ProbeArgs,
    waiting: BTreeMap<u64, Stamp>,
    /// The report under way, and what it says.
    reporting: Option<(u64, HostProbe)>,
    untold: HostProbe,
    total: HostProbe,
    number: u64,
}

/// Writes and reports until it is told to end, or for as long as it was told to.
pub(crate) fn run(args: ProbeArgs) -> Result<()> {
    let stop = Stop::register()?;
    let mut prober = HostProber::connect(args)?;
    let (interval, began) = (seconds(prober.args.interval), prober.clock.now());
    let until = prober.args.seconds.map(|seconds| began + Duration::from_secs(seconds));
    let (mut next_write, mut next_report) = (began, began + REPORT_INTERVAL);
    while !stop.is_wanted() && until.is_none_or(|until| prober.clock.now() < until) {
        let now = prober.clock.now();
        if now >= next_write {
            prober.write()?;
            // Those that could not be made in time are not made up for.
            next_write = (next_write + interval).max(now);
        }
        if now >= next_report {
            prober.report()?;
            next_report = now + REPORT_INTERVAL;
        }
        prober.turn(next_write.min(next_report).since(now).min(Duration::from_millis(100)))?;
    }
    prober.report()?;
    let until = prober.clock.now() + Duration::from_secs(2);
    while prober.reporting.is_some() && prober.clock.now() < until {
        prober.turn(Duration::from_millis(50))?;
    }
    outln!("{}", line(&prober.total));
    Ok(())
}

/// What was measured, for people.
fn line(probe: &HostProbe) -> String {
    let within = |share| match probe.percentile_us(share) {
        Some(us) => format!("{share} % within {} ms", us as f64 / 1000.0),
        None => format!("{share} % not within 10 s"),
    };
    let mean = probe.sum_us.checked_div(probe.count).unwrap_or_default() as f64 / 1000.0;
    let failed = probe.failed;
    format!(
        "{} writes, {mean:.2} ms on average, {}, {}; {failed} failed",
        probe.count,
        within(50),
        within(99)
    )
}

impl HostProber {
    fn connect(args: ProbeArgs) -> Result<Self> {
        let folder = args.dir.clone();
        let conf = args.conf.clone().unwrap_or_else(|| folder.join("ceph.conf"));
        let keyring = args.keyring.clone().unwrap_or_else(|| folder.join("keyring"));
        let text = |path: &std::path::Path| {
            std::fs::read_to_string(path)
                .with_context(|| format!("{}: copy it from a machine of the cluster", path.display()))
        };
        let user = args.id.strip_prefix("client.").unwrap_or(&args.id);
        let access = Access::parse(&text(&conf)?, &text(&keyring)?, user)
            .with_context(|| format!("{} and {}", conf.display(), keyring.display()))?;
        let clock = RealClock::start();
        let mut client =
            Client::of_this_machine(access, clock).context("no sockets for a client; see ulimit -n")?;
        if !client.wait_for_map(&clock, CONNECT_TIMEOUT)? {
            bail!("no monitor has given a map within {CONNECT_TIMEOUT:?}");
        }
        let map = client.objecter().map();
        let pool = map.pool_names.iter().find(|(_, name)| **name == args.pool).map(|(id, _)| *id);
        let pool = pool.with_context(|| format!("there is no pool {:?}", args.pool))?;
        let (waiting, reporting) = (BTreeMap::new(), None);
        let (untold, total) = (HostProbe::default(), HostProbe::default());
        Ok(Self { client, clock, pool, args, waiting, reporting, untold, total, number: 0 })
    }

    /// One message that writes an object and removes it: answered when all members of the PG have it durably.
    fn write(&mut self) -> Result<()> {
        if self.waiting.len() >= WAITING_MAX {
            return Ok(());
        }
        let data = vec![0x5a_u8; usize::try_from(self.args.size)?];
        let ops = probe_write(data);
        let name = format!("host.{}", self.number % NAMES);
        self.number += 1;
        let locator = probe_locator(self.pool, &self.args.namespace);
        let request = Request { mtime: self.client.wall(), ..Request::new(locator, name.as_bytes(), ops) };
        let since = self.clock.now();
        let tid = self.client.submit(request).context("too many writes wait for their answers")?;
        self.waiting.insert(tid, since);
        self.client.flush();
        Ok(())
    }

    fn turn(&mut self, wait: Duration) -> Result<()> {
        self.client.turn(wait)?;
        let now = self.clock.now();
        for finished in self.client.take_finished() {
            match finished {
                Finished::Op { tid, outcome } => {
                    let Some(since) = self.waiting.remove(&tid) else { continue };
                    let result = outcome.map_or_else(Errno::negated, |reply| reply.result);
                    if result == Errno::EPERM.negated() {
                        bail!(
                            "client.{} may not write there: it needs the caps osd 'allow rw pool={} namespace={}'",
                            self.args.id,
                            self.args.pool,
                            self.args.namespace
                        );
                    }
                    self.note(result >= 0, since, now);
                }
                Finished::Command { tid, result, status, .. } => self.reported(tid, result, &status)?,
                _ => (),
            }
        }
        let patience = Duration::from_secs(self.args.timeout);
        let is_late = |since: &Stamp| now.since(*since) >= patience;
        let late: Vec<u64> =
            self.waiting.iter().filter(|(_, since)| is_late(since)).map(|(tid, _)| *tid).collect();
        for tid in late {
            self.waiting.remove(&tid);
            self.note(false, now, now);
        }
        Ok(())
    }

    fn note(&mut self, is_well: bool, since: Stamp, now: Stamp) {
        let took_us = u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX);
        for probe in [&mut self.untold, &mut self.total] {
            match is_well {
                true => probe.note(took_us),
                false => probe.failed += 1,
            }
        }
    }

    /// Tells the cluster what came since the last report; what could not be told is told with the next one.
    fn report(&mut self) -> Result<()> {
        if let Some((tid, probe)) = self.reporting.take() {
            self.client.forget_command(tid);
            self.untold.add(&probe);
        }
        let probe = std::mem::take(&mut self.untold);
        outln!("{}", line(&probe));
        let longer = probe.count - probe.buckets.iter().sum::<u64>();
        let counts: Vec<String> = probe.buckets.iter().chain([&longer]).map(u64::to_string).collect();
        let command = json!({
            "prefix": "probe report", "pool": self.args.pool, "sum_us": probe.sum_us, "failed": probe.failed,
            "counts": counts.join(","),
        });
        let tid = self.client.command(&command.to_string())?;
        self.client.flush();
        self.reporting = Some((tid, probe));
        Ok(())
    }

    fn reported(&mut self, tid: u64, result: i32, status: &str) -> Result<()> {
        let Some((_, probe)) = self.reporting.take_if(|(wanted, _)| *wanted == tid) else { return Ok(()) };
        match result {
            0 => Ok(()),
            result if result == Errno::EACCES.negated() => bail!(
                "client.{} may not report: it needs the caps mon 'allow r, allow command \"probe report\"'",
                self.args.id
            ),
            _ => {
                errln!("the cluster does not take the report: {status}");
                self.untold.add(&probe);
                Ok(())
            }
        }
    }
}
