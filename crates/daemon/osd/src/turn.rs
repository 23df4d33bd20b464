//! The turn of a shard: wait; take what sockets, other shards and the store have; hand each to its PG; carry out what
//! the PGs want; write to the sockets; sleep until the nearest deadline.

use crate::asok;
use crate::control::OsdControl;
use crate::shard::Shard;
use crate::shard_msg::ShardMsg;
use nacre_pg::Event;
use nacre_types::Stamp;
use std::io;
use std::time::Duration;

/// PGs get a tick this often.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Changes of the PGs are reported to OSD control at most this often.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// While a message to another shard waits for room in its mailbox, it is tried again this often.
const STUCK_RETRY: Duration = Duration::from_millis(1);

impl Shard {
    /// Takes up what the store holds and looks for a monitor.
    pub fn begin(&mut self) {
        let (pgs, mut cx) = self.pgs();
        if pgs.load_pgs(&mut cx).is_err() {
            self.stopping = true;
        }
        self.lend_control(OsdControl::start);
        self.take_control_events();
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// When sockets cannot be waited for any more.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.begin();
        while !self.stopping {
            self.turn()?;
        }
        Ok(())
    }

    /// True once it was told to stop, or cannot go on: no more turns then.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// When the next turn is due even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Stamp {
        let now = self.clock.now();
        if self.pg_driver.has_work() {
            return now;
        }
        self.net.messenger.next_deadline(now).into_iter().chain([self.deadline()]).min().unwrap_or(now)
    }

    /// Takes what sockets, other shards and the store have, reacts to all of it, and sends.
    ///
    /// # Errors
    /// When sockets cannot be waited for any more.
    pub fn turn(&mut self) -> io::Result<()> {
        let control_due = self.control_due;
        let msgs = self.wait()?;
        self.note_load(self.incoming.len() + msgs.len());
        let (pgs, mut cx) = self.pgs();
        pgs.begin_work(&mut cx);
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.drain(..).for_each(|item| self.incoming(item));
        self.incoming = incoming;
        msgs.into_iter().for_each(|msg| self.shard_msg(msg));
        self.run_deadlines(control_due);
        self.continue_bench();
        self.read_local();
        self.net.flush_early();
        self.drain_store();
        // Also one that nobody has used since.
        let is_broken = self.pg_driver.is_broken(&mut self.net);
        let wakes = is_broken || !self.pg_driver.pgs.wait_for_peers();
        self.pg_driver.store.set_wakeups(wakes);
        self.net.router.retry();
        self.net.sessions.unthrottle(&mut self.net.messenger);
        self.net.messenger.flush();
        Ok(())
    }

    /// Waits until something comes or is due. Yields the messages of other shards; what sockets have stands in `incoming`.
    fn wait(&mut self) -> io::Result<Vec<ShardMsg>> {
        let began = self.clock.now();
        let timeout = self.deadline().since(began);
        let timeout = if self.net.router.is_stuck() { timeout.min(STUCK_RETRY) } else { timeout };
        let timeout = if self.pg_driver.has_work() { Duration::ZERO } else { timeout };
        let (clock, entropy) = (&self.clock, self.entropy.as_mut());
        let messenger = &mut self.net.messenger;
        self.now = messenger.turn(began, || clock.now(), Some(timeout), entropy, &mut self.incoming)?;
        self.wall = self.clock.wall();
        Ok(self.mailbox.take().collect())
    }

    fn note_load(&mut self, events: usize) {
        self.net.note_load(events);
        self.pg_driver.note_load(events);
    }

    /// Works until neither the store nor this shard's own messages bring anything more. Draining also starts
    /// what was submitted.
    fn drain_store(&mut self) {
        loop {
            self.read_local();
            let mut bench = self.bench.take();
            let (pgs, mut cx) = self.pgs();
            let has_more = pgs.drain_completions(&mut cx, |token| {
                bench.iter_mut().for_each(|bench| bench.durable(token));
            });
            (self.now, self.bench) = (cx.now, bench);
            if !has_more && !self.net.router.has_local() {
                return;
            }
        }
    }

    /// Takes this shard's messages to itself, so that what they submit starts together.
    fn read_local(&mut self) {
        while let Some(msg) = self.net.router.next_local() {
            self.shard_msg(msg);
        }
    }

    fn deadline(&self) -> Stamp {
        let pgs = &self.pg_driver.pgs;
        let bench = self.bench.as_ref().map(|bench| bench.next_deadline(self.now));
        let due = [self.control_due, pgs.next_deadline(), self.map_release.next_deadline(), bench];
        due.into_iter().flatten().chain([self.tick_at]).min().unwrap_or(self.tick_at)
    }

    /// Does what is due. `control_due` is when OSD control was due at the turn's beginning: what has become due since is
    /// for the next turn.
    fn run_deadlines(&mut self, control_due: Option<Stamp>) {
        let all = self.now >= self.tick_at;
        if all {
            self.tick_at = self.now + TICK_INTERVAL;
        }
        if self.map_release.next_deadline().is_some_and(|until| self.now >= until) {
            self.release_maps();
        }
        for spg in self.pg_driver.pgs.due(self.now, all) {
            let (pgs, mut cx) = self.pgs();
            pgs.deliver(&mut cx, spg, Event::Tick);
        }
        if all {
            self.start_scrub();
            let pgs = &mut self.pg_driver;
            pgs.idle_trim.trim(self.now, pgs.store.as_mut(), self.config.give_back_memory);
            pgs.tracker.expire(self.now);
            self.warn_slow_ops();
        }
        if all || control_due.is_some_and(|at| at <= self.now) {
            self.lend_control(OsdControl::tick);
            self.take_control_events();
            self.tell_losses();
            self.ask_for_past();
            self.take_control_events();
        }
        let is_due = self.now >= self.report_at && (all || self.pg_driver.pgs.have_changed());
        if is_due && !self.pg_driver.was_broken() {
            self.report();
        }
    }

    /// Tells OSD control what the PGs say of themselves.
    fn report(&mut self) {
        self.report_at = self.now + REPORT_INTERVAL;
        let usage = self.pg_driver.usage_for_clients();
        let mut report = self.pg_driver.pgs.report(self.net.router.me, usage, self.wall);
        let (count, spent_ns) = self.pg_driver.tracker.commits();
        report.commits = (count - self.commits_told.0, spent_ns - self.commits_told.1);
        self.commits_told = (count, spent_ns);
        report.throttled = self.net.messenger.intake().warnings;
        self.net.router.send(0, ShardMsg::Stats(report));
    }

    fn warn_slow_ops(&mut self) {
        let limit = self.options.seconds("osd_op_complaint_time");
        if limit.is_zero() || self.now < self.slow_ops_warned_at {
            return;
        }
        if asok::warn_slow_ops(self.config.id, &self.pg_driver.pgs, limit, self.now) {
            self.slow_ops_warned_at = self.now + asok::SLOW_OPS_INTERVAL;
        }
    }

    fn continue_bench(&mut self) {
        if let Some(bench) = self.bench.take() {
            let mut blocks = self.bench_blocks;
            let (pgs, mut cx) = self.pgs();
            self.bench = bench.go_on(pgs, &mut cx, &mut blocks);
            self.bench_blocks = blocks;
        }
    }
}
