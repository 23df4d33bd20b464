//! [`Load`]: what one client does. [`Schedule`]: when.

use super::session::{Session, check};
use super::{TURN_MAX, content};
use crate::cell::{Cell, Operation};
use crate::latency::Latencies;
use crate::load::Timing;
use crate::pace::Pace;
use crate::place::Place;
use crate::shape::share;
use crate::stats::Random;
use anyhow::{Result, bail};
use nacre_buf::BufList;
use nacre_env::Clock;
use nacre_msg::osd_op::code;
use nacre_msg::{OsdOpReply, SubOp};
use nacre_types::Stamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// An operation that is not answered for so long after the end breaks the measurement off.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// In flight of one client at a rate, as Ceph's `objecter_inflight_ops`: what is due beyond it waits on our side.
const RATE_DEPTH_MAX: usize = 1024;
/// Objects that a client asks for which has nothing else to do: with so many it meets each of a few OSDs.
const GREETED: u64 = 32;

/// What counts: operations that end in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) begin: Stamp,
    pub(super) end: Stamp,
}

/// When operations are due.
#[derive(Debug)]
struct Schedule {
    /// Between two, on the average; zero for as many as possible.
    mean: Duration,
    /// They are due whether or not there is room for them, and count from then on: what waits on our side is what the
    /// cluster cannot take, and its latency. Only the next moment is kept, however many wait.
    is_open: bool,
    due: Stamp,
}

impl Schedule {
    /// The next moment of a client that is one of `clients`.
    fn new(pace: Pace, clients: usize) -> Self {
        let (mean, is_open) = match pace {
            Pace::Depth(_) | Pace::Sync | Pace::DataSync => (Duration::ZERO, false),
            Pace::Clients(_) => (Duration::from_secs(1), false),
            Pace::Rate(rate) => (Duration::from_secs_f64(clients as f64 / rate as f64), true),
        };
        Self { mean, is_open, due: Stamp::default() }
    }

    fn start(&mut self, now: Stamp, random: &mut Random) {
        self.due = now + self.pause(random);
    }

    /// An operation begins now: the time from which it counts.
    fn begin(&mut self, now: Stamp, random: &mut Random) -> Stamp {
        let due = self.due;
        let (from, after) = if self.is_open { (due, due) } else { (now, due.max(now)) };
        self.due = after + self.pause(random);
        from
    }

    /// Time to the next operation. By chance, or all clients would come at the same moment.
    fn pause(&self, random: &mut Random) -> Duration {
        if self.mean.is_zero() {
            return Duration::ZERO;
        }
        let uniform = ((random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        self.mean.mul_f64(-uniform.ln())
    }
}

/// See the module's documentation.
pub(super) struct Load {
    cell: Cell,
    /// In flight at most. With 0 the client is connected and does nothing.
    depth: usize,
    schedule: Schedule,
    /// Share by which answers are held back; with one the client never sleeps.
    planted_delay: Option<f64>,
    random: Random,
    data: BufList,
    object_bytes: u64,
    blocks: u64,
    next_block: u64,
}

impl Load {
    /// That of the client with number `nth` of `clients`.
    pub(super) fn new(cell: Cell, timing: Timing, (nth, clients): (usize, usize), place: &Place) -> Self {
        let depth = match cell.pace {
            Pace::Depth(depth) => share(depth, clients, nth),
            Pace::Sync | Pace::DataSync | Pace::Clients(_) => 1,
            Pace::Rate(_) => RATE_DEPTH_MAX,
        };
        let mut random = Random::new(timing.seed.wrapping_mul(1 << 20).wrapping_add(nth as u64));
        let blocks = (place.objects() * place.object_bytes / cell.bytes).max(1);
        let next_block = random.next() % blocks;
        Self {
            cell,
            depth,
            schedule: Schedule::new(cell.pace, clients),
            planted_delay: timing.planted_delay,
            random,
            data: content(cell.bytes),
            object_bytes: place.object_bytes,
            blocks,
            next_block,
        }
    }

    pub(super) fn run(mut self, mut session: Session, window: Window) -> Result<Latencies> {
        if self.depth == 0 {
            return self.idle(&mut session, window);
        }
        let clock = session.clock;
        let mut latencies = Latencies::default();
        let mut held = BTreeSet::new();
        self.schedule.start(clock.now(), &mut self.random);
        loop {
            let mut now = clock.now();
            while now >= self.schedule.due
                && now < window.end
                && session.in_flight() + held.len() < self.depth
            {
                let from = self.schedule.begin(now, &mut self.random);
                self.submit(&mut session, from)?;
                now = clock.now();
            }
            if now >= window.end && session.in_flight() == 0 {
                return Ok(latencies);
            }
            if now > window.end + ANSWER_TIMEOUT {
                bail!("{} operations are not answered", session.in_flight());
            }
            if let Some((until, _)) = held.first().filter(|_| session.in_flight() == 0) {
                while clock.now() < *until {
                    std::hint::spin_loop();
                }
            }
            session.turn(self.wait(now, session.in_flight() + held.len()))?;
            let now = clock.now();
            for (from, outcome) in session.take_answers() {
                // Of mixed load only reads bring bytes.
                let is_read = outcome.as_ref().is_ok_and(|reply| is_read(reply));
                check(outcome, is_read.then_some(self.cell.bytes))?;
                held.insert((now + now.since(from).mul_f64(self.planted_delay.unwrap_or(0.0)), from));
            }
            let now = clock.now();
            while let Some((until, from)) = held.first().copied().filter(|(until, _)| *until <= now) {
                held.pop_first();
                if until >= window.begin && until < window.end {
                    latencies.add(until.nanos_since(from));
                }
            }
        }
    }

    /// How long to wait for answers: until the next operation is due, if there is room for it.
    fn wait(&self, now: Stamp, in_flight: usize) -> Duration {
        // The system's waits, and even a turn, are too coarse for answers that are held back.
        let wait = if self.planted_delay.is_none() { TURN_MAX } else { Duration::ZERO };
        let has_room = in_flight < self.depth && now < self.schedule.due;
        if has_room { wait.min(self.schedule.due.since(now)) } else { wait }
    }

    /// Connects to OSDs, and then only answers them.
    fn idle(&self, session: &mut Session, window: Window) -> Result<Latencies> {
        let clock = session.clock;
        let objects = (self.blocks * self.cell.bytes / self.object_bytes).min(GREETED);
        (0..objects).try_for_each(|object| session.submit(object, SubOp::new(code::STAT), clock.now()))?;
        while clock.now() < window.end || session.in_flight() > 0 {
            if clock.now() > window.end + ANSWER_TIMEOUT {
                bail!("{} operations are not answered", session.in_flight());
            }
            session.turn(window.end.since(clock.now()).max(TURN_MAX))?;
            session.take_answers().into_iter().try_for_each(|(_, outcome)| check(outcome, None))?;
        }
        Ok(Latencies::default())
    }

    fn submit(&mut self, session: &mut Session, from: Stamp) -> Result<()> {
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
        let within = offset % self.object_bytes;
        let operation = if is_read {
            SubOp::read(within, self.cell.bytes)
        } else {
            SubOp::write(within, self.data.clone())
        };
        session.submit(offset / self.object_bytes, operation, from)
    }
}

fn is_read(reply: &OsdOpReply) -> bool {
    reply.ops.first().is_some_and(|op| op.code == code::READ)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Driver;

    const TIMING: Timing = Timing { seconds: 1, warmup_s: 0, seed: 3, planted_delay: None };

    fn load(name: &str, nth: usize, clients: usize) -> Load {
        let cell = Cell::parse(name).expect("a cell");
        let place = Place::of(cell, "x", 64 << 20, Driver::Own).expect("room");
        Load::new(cell, TIMING, (nth, clients), &place)
    }

    #[test]
    fn clients_come_once_per_second_by_chance() {
        let mut load = load("randread-4k-clients4", 0, 4);
        let sum: Duration = (0..10_000).map(|_| load.schedule.pause(&mut load.random)).sum();
        assert!((9_700..10_300).contains(&sum.as_secs()), "{sum:?}");
        assert_eq!((load.depth, load.blocks), (1, 16_384));
    }

    #[test]
    fn clients_share_the_depth() {
        let busy = load("write-4k-qd8", 0, 1);
        assert_eq!((busy.depth, busy.schedule.mean), (8, Duration::ZERO));
        let depths = [0, 127, 128].map(|nth| load("write-4k-qd128-connections200", nth, 200).depth);
        assert_eq!(depths, [1, 1, 0]);
        assert_eq!(load("write-4k-qd128-objects5", 0, 1).blocks, 5);
    }

    #[test]
    fn a_rate_counts_from_when_operations_are_due() {
        let Load { mut schedule, mut random, depth, .. } = load("write-4k-rate1000-connections4", 1, 4);
        assert_eq!(depth, RATE_DEPTH_MAX);
        let second = Stamp::default() + Duration::from_secs(1);
        schedule.start(second, &mut random);
        // The cluster stands still for 100 seconds; then all of them begin at once.
        let now = second + Duration::from_secs(100);
        let mut due = Vec::new();
        while schedule.due <= now {
            due.push(schedule.begin(now, &mut random));
        }
        assert!((24_000..26_000).contains(&due.len()), "{}", due.len());
        assert!(due.is_sorted() && due.iter().all(|from| (second..=now).contains(from)));
        let in_half = due.iter().filter(|from| from.since(second) < Duration::from_secs(50)).count();
        assert!((12_000..13_000).contains(&in_half), "{in_half}");
    }

    #[test]
    fn clients_that_stood_still_do_not_catch_up() {
        let Load { mut schedule, mut random, .. } = load("write-4k-clients1", 0, 1);
        schedule.start(Stamp::default(), &mut random);
        let now = Stamp::default() + Duration::from_secs(100);
        assert_eq!(schedule.begin(now, &mut random), now);
        assert!(schedule.due > now);
    }

    #[test]
    fn a_client_waits_for_what_is_due_only_with_room() {
        let mut load = load("write-4k-rate1000", 0, 1);
        let now = Stamp::default() + Duration::from_secs(1);
        load.schedule.due = now + Duration::from_millis(5);
        assert_eq!(load.wait(now, 10), Duration::from_millis(5));
        assert_eq!(load.wait(now, RATE_DEPTH_MAX), TURN_MAX);
    }
}
