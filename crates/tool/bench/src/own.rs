//! A client of our own as the driver: reads and writes of objects laid out as those of an image, 4 MiB each.
//!
//! One thread per client, each with connections of its own. Unlike fio we know when the warm-up ends, so what the
//! servers use is counted for exactly the time that is measured. A write is durable when it is acknowledged, so `sync`
//! and `dsync` are plain writes, one after the other.

use crate::cell::{Cell, Operation, Pace};
use crate::latency::Latencies;
use crate::load::{Image, Measured, Timing};
use crate::stats::Random;
use crate::usage::Look;
use anyhow::{Context, Result, bail};
use nacre_buf::{BufList, Bytes};
use nacre_client::{Access, Client, Finished};
use nacre_env::real::RealNet;
use nacre_env::{Clock, RealClock, SystemEntropy};
use nacre_msg::osd_op::code;
use nacre_msg::{OsdOpReply, SubOp};
use nacre_objecter::Request;
use nacre_service::Messenger;
use nacre_types::{Errno, ObjectLocator, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const OBJECT_BYTES: u64 = 4 << 20;
/// Without a map after this time there is no cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// An operation that is not answered for so long after the end breaks the measurement off.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const TURN_MAX: Duration = Duration::from_millis(100);
/// Operations in flight while objects are made and removed.
const BULK_DEPTH: usize = 4;

/// Writes every object once.
pub(crate) fn prefill(image: Image<'_>) -> Result<()> {
    let data = content(OBJECT_BYTES);
    bulk(image, || SubOp::write_full(data.clone()))
}

/// Removes every object.
pub(crate) fn remove(image: Image<'_>) -> Result<()> {
    bulk(image, || SubOp::new(code::DELETE))
}

fn bulk(image: Image<'_>, operation: impl Fn() -> SubOp) -> Result<()> {
    let mut session = Session::open(image, RealClock::start())?;
    let mut next = 0;
    while next < image.bytes / OBJECT_BYTES || session.in_flight() > 0 {
        while next < image.bytes / OBJECT_BYTES && session.in_flight() < BULK_DEPTH {
            session.submit(next, operation())?;
            next += 1;
        }
        session.turn(TURN_MAX)?;
        for (_, outcome) in session.take_answers() {
            check(outcome, None)?;
        }
    }
    Ok(())
}

/// One repetition of a cell; `pids` are the servers'.
pub(crate) fn measure(image: Image<'_>, cell: Cell, timing: Timing, pids: &[u32]) -> Result<Measured> {
    let clients = if let Pace::Clients(count) = cell.pace { count } else { 1 };
    let clock = RealClock::start();
    let sessions = (0..clients).map(|_| Session::open(image, clock)).collect::<Result<Vec<_>>>()?;
    let begin = clock.now() + Duration::from_secs(timing.warmup_s.into());
    let window = Window { begin, end: begin + Duration::from_secs(timing.seconds.into()) };
    let us = [std::process::id()];
    let (outcomes, looks) = std::thread::scope(|scope| {
        let start = |(nth, session)| {
            let load = Load::new(cell, timing, nth, image.bytes);
            scope.spawn(move || load.run(session, window))
        };
        let threads: Vec<_> = (0..).zip(sessions).map(start).collect();
        let looks = [window.begin, window.end].map(|at| {
            std::thread::sleep(at.since(clock.now()));
            anyhow::Ok((Look::at(pids)?, Look::at(&us)?))
        });
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Latencies>>| {
            thread.join().unwrap_or_else(|_| bail!("a client panicked"))
        };
        (threads.into_iter().map(join).collect::<Result<Vec<_>>>(), looks)
    });
    let [before, after] = looks;
    let ((servers_before, us_before), (servers, us)) = (before?, after?);
    let mut latencies = Latencies::default();
    outcomes?.iter().for_each(|of_one| latencies.merge(of_one));
    if latencies.count() == 0 {
        bail!("nothing was done within {} s", timing.seconds);
    }
    Ok(Measured {
        used_ios: latencies.count() as f64,
        seconds: window.end.since(window.begin).as_secs_f64(),
        flush_mean_us: None,
        client: Some(us.since(&us_before)),
        servers: Some(servers.since(&servers_before)).filter(|_| !pids.is_empty()),
        latencies,
    })
}

/// What counts: operations that end in it.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: Stamp,
    end: Stamp,
}

/// A connected client, and the operations that it has under way.
struct Session {
    client: Client,
    clock: RealClock,
    pool: i64,
    name: String,
    /// By number: when they began.
    open: BTreeMap<u64, Stamp>,
}

type Outcome = Result<Box<OsdOpReply>, Errno>;

impl Session {
    fn open(image: Image<'_>, clock: RealClock) -> Result<Self> {
        let text = |path: &std::path::Path| {
            std::fs::read_to_string(path).with_context(|| path.display().to_string())
        };
        let access = Access::parse(&text(image.conf)?, &text(image.keyring)?, image.user)?;
        let messenger = Messenger::new(Box::new(RealNet::new()?), clock.wall().sec.into());
        let mut client = Client::new(access, Box::new(clock), Box::new(SystemEntropy::default()), messenger);
        client.begin();
        let deadline = clock.now() + CONNECT_TIMEOUT;
        while client.objecter().map().epoch == 0 {
            if clock.now() > deadline {
                bail!("no monitor answered within {CONNECT_TIMEOUT:?}");
            }
            client.turn(TURN_MAX)?;
        }
        let pool = client.objecter().map().pool_by_name(image.pool);
        let pool = pool.with_context(|| format!("there is no pool {}", image.pool))?;
        Ok(Self { client, clock, pool, name: image.name.to_owned(), open: BTreeMap::new() })
    }

    fn in_flight(&self) -> usize {
        self.open.len()
    }

    fn submit(&mut self, object: u64, operation: SubOp) -> Result<()> {
        let name = format!("{}.{object:016x}", self.name);
        let mut request = Request::new(ObjectLocator::in_pool(self.pool), name, vec![operation]);
        request.mtime = self.clock.wall();
        let now = self.clock.now();
        self.open.insert(self.client.submit(request)?, now);
        Ok(())
    }

    fn turn(&mut self, wait: Duration) -> Result<()> {
        self.client.flush();
        Ok(self.client.turn(wait)?)
    }

    /// What was answered, with the time at which it began.
    fn take_answers(&mut self) -> Vec<(Stamp, Outcome)> {
        let finished = self.client.take_finished().into_iter();
        let answer = |one| match one {
            Finished::Op { tid, outcome } => Some((self.open.remove(&tid)?, outcome)),
            Finished::Command { .. } | Finished::Snapshot(_) => None,
        };
        finished.filter_map(answer).collect()
    }
}

/// An answer must say that it was done; of a read, with all bytes.
fn check(outcome: Outcome, read_bytes: Option<u64>) -> Result<()> {
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

/// Data that does not compress.
fn content(bytes: u64) -> BufList {
    let mut random = Random::new(bytes);
    let words = (0..bytes / 8).flat_map(|_| random.next().to_le_bytes());
    Bytes::from(words.collect::<Vec<u8>>()).into()
}

/// What one client does.
struct Load {
    cell: Cell,
    depth: usize,
    /// Mean time between two operations; `None` for as many as possible.
    interval: Option<Duration>,
    /// Share by which answers are held back; with one the client never sleeps.
    planted_delay: Option<f64>,
    random: Random,
    data: BufList,
    blocks: u64,
    next_block: u64,
}

impl Load {
    fn new(cell: Cell, timing: Timing, nth: u64, image_bytes: u64) -> Self {
        let (depth, interval) = match cell.pace {
            Pace::Depth(depth) => (depth, None),
            Pace::Sync | Pace::DataSync => (1, None),
            Pace::Clients(_) => (1, Some(Duration::from_secs(1))),
        };
        let mut random = Random::new(timing.seed.wrapping_mul(1 << 20).wrapping_add(nth));
        let blocks = (image_bytes / cell.bytes).max(1);
        let next_block = random.next() % blocks;
        let (data, planted_delay) = (content(cell.bytes), timing.planted_delay);
        Self { cell, depth, interval, planted_delay, random, data, blocks, next_block }
    }

    fn run(mut self, mut session: Session, window: Window) -> Result<Latencies> {
        let clock = session.clock;
        let mut latencies = Latencies::default();
        let mut held = BTreeSet::new();
        let mut due = clock.now() + self.pause();
        loop {
            let mut now = clock.now();
            while now >= due && now < window.end && session.in_flight() + held.len() < self.depth {
                self.submit(&mut session)?;
                due = due.max(now) + self.pause();
                now = clock.now();
            }
            if now >= window.end && session.in_flight() == 0 {
                return Ok(latencies);
            }
            if now > window.end + ANSWER_TIMEOUT {
                bail!("{} operations are not answered", session.in_flight());
            }
            // The system's waits, and even a turn, are too coarse for answers that are held back.
            let wait = if self.planted_delay.is_none() { TURN_MAX } else { Duration::ZERO };
            if let Some((until, _)) = held.first().filter(|_| session.in_flight() == 0) {
                while clock.now() < *until {
                    std::hint::spin_loop();
                }
            }
            let is_idle = session.in_flight() == 0 && now < due;
            session.turn(if is_idle { wait.min(due.since(now)) } else { wait })?;
            let now = clock.now();
            for (began, outcome) in session.take_answers() {
                // Of mixed load only reads bring bytes.
                let is_read = outcome.as_ref().is_ok_and(|reply| is_read(reply));
                check(outcome, is_read.then_some(self.cell.bytes))?;
                held.insert((now + now.since(began).mul_f64(self.planted_delay.unwrap_or(0.0)), began));
            }
            let now = clock.now();
            while let Some((until, began)) = held.first().copied().filter(|(until, _)| *until <= now) {
                held.pop_first();
                if until >= window.begin && until < window.end {
                    latencies.add(u64::try_from(until.since(began).as_nanos()).unwrap_or(u64::MAX));
                }
            }
        }
    }

    /// Time to the next operation. By chance, or all clients would come at the same moment.
    fn pause(&mut self) -> Duration {
        let Some(mean) = self.interval else { return Duration::ZERO };
        let uniform = ((self.random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        mean.mul_f64(-uniform.ln())
    }

    fn submit(&mut self, session: &mut Session) -> Result<()> {
        let is_read = match self.cell.operation {
            Operation::Read | Operation::RandomRead => true,
            Operation::Write | Operation::RandomWrite => false,
            Operation::Mix => self.random.next() % 100 < 70,
        };
        let block = match self.cell.operation {
            Operation::Read | Operation::Write => {
                self.next_block = (self.next_block + 1) % self.blocks;
                self.next_block
            }
            Operation::RandomRead | Operation::RandomWrite | Operation::Mix => {
                self.random.next() % self.blocks
            }
        };
        let offset = block * self.cell.bytes;
        let within = offset % OBJECT_BYTES;
        let operation = if is_read {
            SubOp::read(within, self.cell.bytes)
        } else {
            SubOp::write(within, self.data.clone())
        };
        session.submit(offset / OBJECT_BYTES, operation)
    }
}

fn is_read(reply: &OsdOpReply) -> bool {
    reply.ops.first().is_some_and(|op| op.code == code::READ)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_checked() {
        assert!(check(Err(Errno::ENOENT), None).is_err());
    }

    #[test]
    fn clients_come_once_per_second_by_chance() {
        let cell = Cell::parse("randread-4k-clients4").expect("a cell");
        let timing = Timing { seconds: 1, warmup_s: 0, seed: 3, planted_delay: None };
        let mut load = Load::new(cell, timing, 0, 64 << 20);
        let sum: Duration = (0..10_000).map(|_| load.pause()).sum();
        assert!((9_700..10_300).contains(&sum.as_secs()), "{sum:?}");
        assert_eq!((load.depth, load.blocks), (1, 16_384));
        let busy = Load::new(Cell::parse("write-4k-qd8").expect("a cell"), timing, 0, 64 << 20);
        assert_eq!((busy.depth, busy.interval), (8, None));
    }
}
