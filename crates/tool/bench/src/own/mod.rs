//! A client of our own as the driver: reads and writes of objects laid out as those of images, 4 MiB each, or of single
//! objects.
//!
//! One thread per client, each with connections of its own. Unlike fio we know when the warm-up ends, so what the
//! servers use is counted for exactly the time that is measured. A write is durable when it is acknowledged, so `sync`
//! and `dsync` are plain writes, one after the other.

mod load;
mod session;

use crate::cell::Cell;
use crate::latency::Latencies;
use crate::load::{Measured, Target, Timing};
use crate::pace::Pace;
use crate::stats::Random;
use crate::usage::Look;
use anyhow::{Result, bail};
use load::{Load, Window};
use nacre_buf::{BufList, Bytes};
use nacre_env::{Clock, RealClock};
use nacre_msg::SubOp;
use nacre_msg::osd_op::code;
use session::{Session, check};
use std::time::Duration;

const TURN_MAX: Duration = Duration::from_millis(100);
/// Bytes in flight while objects are made and removed, and operations at most.
const BULK_BYTES: u64 = 16 << 20;
const BULK_DEPTH_MAX: u64 = 128;

/// Writes every object once.
pub(crate) fn prefill(target: Target<'_>) -> Result<()> {
    let data = content(target.place.object_bytes);
    bulk(target, || SubOp::write_full(data.clone()))
}

/// Removes every object.
pub(crate) fn remove(target: Target<'_>) -> Result<()> {
    bulk(target, || SubOp::new(code::DELETE))
}

fn bulk(target: Target<'_>, operation: impl Fn() -> SubOp) -> Result<()> {
    let mut session = Session::open(target, RealClock::start())?;
    let depth = (BULK_BYTES / target.place.object_bytes).min(BULK_DEPTH_MAX) as usize;
    let (mut next, objects) = (0, target.place.objects());
    while next < objects || session.in_flight() > 0 {
        while next < objects && session.in_flight() < depth {
            let now = session.clock.now();
            session.submit(next, operation(), now)?;
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
pub(crate) fn measure(target: Target<'_>, cell: Cell, timing: Timing, pids: &[u32]) -> Result<Measured> {
    let clients = if let Pace::Clients(count) = cell.pace { count } else { cell.shape.connections() };
    let clock = RealClock::start();
    let sessions = (0..clients).map(|_| Session::open(target, clock)).collect::<Result<Vec<_>>>()?;
    let begin = clock.now() + Duration::from_secs(timing.warmup_s.into());
    let window = Window { begin, end: begin + Duration::from_secs(timing.seconds.into()) };
    let us = [std::process::id()];
    let (outcomes, looks) = std::thread::scope(|scope| {
        let start = |(nth, session)| {
            let load = Load::new(cell, timing, (nth, clients), target.place);
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

/// Data that does not compress.
fn content(bytes: u64) -> BufList {
    let mut random = Random::new(bytes);
    let words = (0..bytes / 8).flat_map(|_| random.next().to_le_bytes());
    Bytes::from(words.collect::<Vec<u8>>()).into()
}
