//! The one loop that lets a world go on: what happens next, turns of processes and steps of devices, and what holds them up.

use super::{Proc, World};
use nacre_monitor::DriverError;
use nacre_types::{Entropy, OsdId, Stamp};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a process takes from being woken to its turn, at most.
const TURN_DELAY: Duration = Duration::from_micros(20);
/// How long a device takes for a step, at most: half of the requests' time.
const DISK_DELAY: Duration = Duration::from_micros(200);
/// NextTurn that a process may want at once, one after the other: more is a loop that burns a processor.
const HURRIED_TURNS_MAX: u32 = 2000;
/// How often a turn reads the clock before it has looked at the sockets.
const READS_BEFORE_SOCKETS: u64 = 2;

/// What happens at some time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Due {
    Turn(Proc),
    Disk(OsdId, usize),
}

/// When a process has its next turn, and what holds it up.
#[derive(Debug, Default)]
pub(super) struct NextTurn {
    turn_at: Option<Stamp>,
    frozen_until: Option<Stamp>,
    /// It froze in a turn, behind its clock.
    frozen_at: Option<Stamp>,
    slow: u32,
    /// NextTurn in a row after which the next was due at once.
    hurried: u32,
}

impl World {
    /// A process gets no turn before `until`; its sockets and its device go on.
    pub fn freeze(&mut self, proc: Proc, until: Stamp) {
        self.next_turns.entry(proc).or_default().frozen_until = Some(until);
    }

    /// One of several threads of an OSD gets no turn before `until`; the others go on.
    pub fn hold_thread(&mut self, id: OsdId, thread: usize, until: Stamp) {
        if let Some(node) = self.osds.get_mut(&id).filter(|node| node.shards.len() > 1) {
            node.held = Some((thread, until));
        }
    }

    /// As [`World::freeze`], but the process is in a turn: it has read its clock and not yet its sockets.
    pub fn freeze_in_turn(&mut self, proc: Proc, until: Stamp) {
        let now = self.now();
        self.freeze(proc, until);
        self.next_turns.entry(proc).or_default().frozen_at = Some(now);
        self.turn_by(proc, until);
    }

    /// Makes all that a process does, sends and gets take so many times as long.
    pub fn set_slow(&mut self, proc: Proc, factor: u32) {
        self.next_turns.entry(proc).or_default().slow = factor;
        self.fabric.set_slow(proc.host(), factor);
        if let Proc::Osd(id) = proc
            && let Some(node) = self.osds.get_mut(&id)
        {
            node.disk_slow = factor;
        }
    }

    pub(super) fn forget(&mut self, proc: Proc) {
        self.next_turns.remove(&proc);
        self.fabric.set_slow(proc.host(), 1);
    }

    pub(super) fn note(&mut self, kind: u64, what: u64) {
        let mut mixed = self.trace ^ self.now().0.rotate_left(17) ^ (kind << 56) ^ what;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.trace = mixed ^ (mixed >> 27);
    }

    fn schedule(&mut self, at: Stamp, due: Due) {
        self.last_due += 1;
        self.agenda.insert((at, self.last_due), due);
    }

    pub(super) fn wake(&mut self, proc: Proc) {
        let delay = Duration::from_nanos(self.rng.u64() % u64::try_from(TURN_DELAY.as_nanos()).unwrap_or(1));
        let slow = self.next_turns.get(&proc).map_or(1, |next_turn| next_turn.slow.max(1));
        self.turn_by(proc, self.now() + delay * slow);
    }

    /// Sees to it that a process has a turn at `at` or before.
    fn turn_by(&mut self, proc: Proc, at: Stamp) {
        let next_turn = self.next_turns.entry(proc).or_default();
        let at = next_turn.frozen_until.map_or(at, |until| until.max(at));
        if next_turn.turn_at.is_none_or(|planned| planned > at) {
            next_turn.turn_at = Some(at);
            self.schedule(at, Due::Turn(proc));
        }
    }

    /// The next thing happens, if it does by `end`; false when it is `end` instead.
    pub fn step(&mut self, end: Stamp) -> bool {
        let planned = self.agenda.keys().next().map(|(at, _)| *at);
        let arrival = self.fabric.next_at();
        let Some(next) = planned.into_iter().chain(arrival).min().filter(|next| *next <= end) else {
            self.clock.set(end);
            return false;
        };
        let now = next.max(self.now());
        self.clock.set(now);
        self.steps += 1;
        if arrival.is_some_and(|at| at <= now) {
            let woken = self.fabric.advance(now);
            let procs: Vec<Proc> =
                self.procs().into_iter().filter(|proc| woken.contains(&proc.host())).collect();
            procs.into_iter().for_each(|proc| self.wake(proc));
            self.note(1, woken.len() as u64);
        } else if let Some((_, due)) = self.agenda.pop_first() {
            match due {
                Due::Turn(proc) => self.turn(proc),
                Due::Disk(id, drive) => self.step_disk(id, drive),
            }
        }
        true
    }

    fn turn(&mut self, proc: Proc) {
        let now = self.now();
        let Some(next_turn) =
            self.next_turns.get_mut(&proc).filter(|next_turn| next_turn.turn_at.is_some_and(|at| at <= now))
        else {
            return; // a turn that came earlier has done it
        };
        next_turn.turn_at = None;
        if let Some(until) = next_turn.frozen_until {
            if until > now {
                return self.turn_by(proc, until);
            }
            next_turn.frozen_until = None;
            if let Some((at, clock)) = next_turn.frozen_at.take().zip(self.clocks.get(&proc)) {
                clock.stall(READS_BEFORE_SOCKETS, clock.shown_at(at));
            }
        }
        let Some(next) = self.run(proc) else { return };
        let next = self.clocks.get(&proc).map_or(next, |clock| clock.moment_of(next));
        self.note(2, proc.host().0.into());
        *self.turns.entry(proc).or_default() += 1;
        let next_turn = self.next_turns.entry(proc).or_default();
        next_turn.hurried = if next <= now { next_turn.hurried + 1 } else { 0 };
        assert!(next_turn.hurried < HURRIED_TURNS_MAX, "{proc:?} turns and turns and never waits");
        // No process turns twice in the same moment.
        self.turn_by(proc, next.max(now + Duration::from_micros(1)));
    }

    /// One turn; yields when the next is due.
    fn run(&mut self, proc: Proc) -> Option<Stamp> {
        match proc {
            Proc::Mon(n) => {
                let node = self.mons.get_mut(n)?;
                let driver = node.driver.as_mut()?;
                match driver.turn(&mut node.incoming) {
                    Ok(()) => Some(driver.next_deadline()),
                    Err(DriverError::Removed(_)) => {
                        self.wipe_mon(n);
                        None
                    }
                    Err(error) => panic!("a healthy monitor ends: {error}"),
                }
            }
            Proc::Osd(id) => self.run_osd(id),
            Proc::Client(n) => {
                let client = self.clients.get_mut(n)?;
                client.turn(Duration::ZERO).expect("sockets can be waited for, and daemons make sense");
                assert_eq!(client.bad_messages(), 0, "daemons speak so that clients understand");
                Some(client.next_deadline())
            }
        }
    }

    /// Its threads have a turn one after the other. Now and then one of several gets none, and the others are ahead of it.
    fn run_osd(&mut self, id: OsdId) -> Option<Stamp> {
        let count = self.osds.get(&id).map_or(0, |node| node.shards.len());
        let left_out = if count > 1 && self.below(2) == 0 { Some(self.below(count as u64)) } else { None };
        let now = self.now();
        let node = self.osds.get_mut(&id)?;
        node.held = node.held.filter(|(_, until)| *until > now);
        let held = node.held;
        let mut next = None;
        for (nth, (shard, drive)) in node.shards.iter_mut().zip(&node.drives).enumerate() {
            if left_out == Some(nth as u64) || held.is_some_and(|(thread, _)| thread == nth) {
                continue;
            }
            shard.turn().expect("simulated sockets can be waited for");
            // The store may want to hear now of what it did not want to be woken for before.
            let due = if drive.device.calls() { Stamp::default() } else { shard.next_deadline() };
            next = next.into_iter().chain([due]).min();
        }
        if node.shards.first()?.is_stopping() {
            self.gave_up.push(id);
            self.stop_osd(id, false);
            return None;
        }
        let calls = node.calls.swap(false, Ordering::Relaxed);
        (0..count).for_each(|drive| self.plan_disk(id, drive));
        if count > 1 && (calls || left_out.is_some()) {
            let soon = self.now() + Duration::from_nanos(1 + self.below(20_000));
            next = self.shown(id, soon).into_iter().chain(next).min();
        }
        held.and_then(|(_, until)| self.shown(id, until)).into_iter().chain(next).min()
    }

    /// A moment in an OSD's own time, as its deadlines are.
    fn shown(&self, id: OsdId, at: Stamp) -> Option<Stamp> {
        self.clocks.get(&Proc::Osd(id)).map(|clock| clock.shown_at(at))
    }

    fn plan_disk(&mut self, id: OsdId, drive: usize) {
        let delay = Duration::from_nanos(self.rng.u64() % u64::try_from(DISK_DELAY.as_nanos()).unwrap_or(1));
        let now = self.now();
        let Some(node) = self.osds.get_mut(&id) else { return };
        let at = now + delay * node.disk_slow.max(1);
        let Some(of) = node.drives.get_mut(drive) else { return };
        if of.disk_at.is_none() && (of.device.in_flight() > 0 || of.kv.is_busy()) {
            of.disk_at = Some(at);
            self.schedule(at, Due::Disk(id, drive));
        }
    }

    fn step_disk(&mut self, id: OsdId, drive: usize) {
        let now = self.now();
        let of = self.osds.get_mut(&id).and_then(|node| node.drives.get_mut(drive));
        let Some(of) = of.filter(|of| of.disk_at == Some(now)) else { return };
        of.disk_at = None;
        let metadata = of.kv.is_busy() && (of.device.in_flight() == 0 || self.rng.u64().is_multiple_of(4));
        if metadata {
            of.kv.step();
        } else {
            of.device.step();
        }
        let calls = metadata || of.device.calls();
        self.note(3, id.unsigned_abs().into());
        if calls {
            self.wake(Proc::Osd(id));
        }
        self.plan_disk(id, drive);
    }

    /// Lets time pass.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now() + duration;
        while self.step(end) {}
    }

    /// Runs until `done` says so, looked at after every step, or `patience` is over; true when done.
    pub fn run_until(&mut self, patience: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now() + patience;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }
}
