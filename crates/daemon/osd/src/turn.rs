//! The turn of a shard: wait; take what sockets, other shards and the store have; hand each to its PG; carry out what
//! the PGs want; write to the sockets; sleep until the nearest deadline.

use crate::admin::{CommandOutcome, CommandView, command, show};
use crate::bill::Work;
use crate::command_reply::{Failure, reply};
use crate::control::OsdControl;
use crate::dispatch::{Dispatch, ShardAction};
use crate::gather::{Gathered, Shown};
use crate::lent_parts::LentParts;
use crate::shard::{Background, Shard};
use crate::shard_msg::{Question, ShardMsg};
use crate::smart::{self, Asker};
use crate::storage::{StoreConfig, device_facts};
use nacre_msg::{BillClass, Command, Message};
use nacre_options::Values;
use nacre_pg::{Event, Session};
use nacre_types::Stamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// While a message to another shard waits for room in its mailbox, it is tried again this often.
const STUCK_RETRY: Duration = Duration::from_millis(1);

impl Shard {
    /// Takes up what the store holds and looks for a monitor.
    pub fn begin(&mut self) {
        self.pg_driver.memory.begin();
        let mut parts = self.dispatch().parts;
        let is_loaded = parts.pgs.load_pgs(&mut parts.cx).is_ok();
        parts.lend_control(OsdControl::start);
        self.stopping |= !is_loaded;
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
        if self.has_work() {
            return now;
        }
        self.net.messenger.next_deadline(now).into_iter().chain([self.deadline()]).min().unwrap_or(now)
    }

    /// Takes what sockets, other shards and the store have, reacts to all of it, and sends.
    ///
    /// # Errors
    /// When sockets cannot be waited for any more.
    pub fn turn(&mut self) -> io::Result<()> {
        let control_due = self.control.due();
        let msgs = self.wait()?;
        self.note_load(self.incoming.len() + msgs.len());
        let LentParts { pgs, mut cx, .. } = self.dispatch().parts;
        pgs.begin_work(&mut cx);
        self.dispatch().admit_waiting();
        let mut incoming = std::mem::take(&mut self.incoming);
        for item in incoming.drain(..) {
            self.dispatch().incoming(item);
            self.take_control_events();
        }
        self.incoming = incoming;
        msgs.into_iter().for_each(|msg| self.shard_msg(msg));
        self.run_deadlines(control_due);
        let (Dispatch { mut parts, .. }, Background { bench, .. }) = self.lend();
        bench.go_on(parts.pgs, &mut parts.cx);
        parts.pgs.relocate(&mut parts.cx);
        self.read_local();
        self.net.flush_early();
        self.drain_store();
        // Also one that nobody has used since.
        let is_broken = self.pg_driver.is_broken(&mut self.net);
        self.net.hold_peers(!is_broken && self.pg_driver.store.is_overrun());
        let wakes = is_broken || self.net.peers_held || !self.pg_driver.pgs.wait_for_peers();
        self.pg_driver.store.set_wakeups(wakes);
        self.net.router.retry();
        // What the sockets take now makes room.
        self.net.messenger.flush();
        self.net.sessions.unthrottle(&self.pg_driver.awaiting_memory, &mut self.net.messenger);
        self.pg_driver.bill.turn_ended(self.now, || self.clock.thread_cpu_ns());
        Ok(())
    }

    /// Waits until something comes or is due. Yields the messages of other shards; what sockets have stands in `incoming`.
    fn wait(&mut self) -> io::Result<Vec<ShardMsg>> {
        let began = self.clock.now();
        let timeout = self.deadline().since(began);
        let timeout = if self.net.router.is_stuck() { timeout.min(STUCK_RETRY) } else { timeout };
        let timeout = if self.has_work() { Duration::ZERO } else { timeout };
        let (clock, entropy) = (&self.clock, self.entropy.as_mut());
        let messenger = &mut self.net.messenger;
        self.now = messenger.turn(began, || clock.now(), Some(timeout), entropy, &mut self.incoming)?;
        self.wall = self.clock.wall();
        Ok(self.mailbox.take().collect())
    }

    /// Whether a turn is due although nothing happens.
    fn has_work(&self) -> bool {
        self.pg_driver.has_work() || self.net.has_room_for_next(&self.pg_driver.awaiting_memory)
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
            let (Dispatch { parts, .. }, Background { bench, .. }) = self.lend();
            let LentParts { pgs, mut cx, .. } = parts;
            let has_more = pgs.drain_completions(&mut cx, |token| bench.durable(token));
            self.now = cx.now;
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
        let (maps, bench) = (self.maps.next_deadline(), self.bench.next_deadline(self.now));
        let tick_at = self.periodic.next_deadline();
        let due = [self.control.due(), self.net.links_due(), pgs.next_deadline(), maps, bench];
        due.into_iter().flatten().chain([tick_at]).min().unwrap_or(tick_at)
    }

    /// Does what is due. `control_due` is when OSD control was due at the turn's beginning: what has become due since is
    /// for the next turn.
    fn run_deadlines(&mut self, control_due: Option<Stamp>) {
        let is_tick = self.periodic.take_tick(self.now);
        let (Dispatch { mut parts, maps, .. }, Background { periodic, give_back_memory, .. }) = self.lend();
        maps.tick(&mut parts);
        for spg in parts.pgs.pgs.due(parts.cx.now, is_tick) {
            parts.pgs.bill.class(BillClass::Housekeeping, Work::Tick, 0);
            parts.pgs.deliver(&mut parts.cx, spg, Event::Tick);
        }
        if is_tick {
            periodic.tick(parts.pgs, &mut parts.cx, give_back_memory);
        }
        parts.cx.dial_links();
        if is_tick || control_due.is_some_and(|at| at <= self.now) {
            self.pg_driver.bill.class(BillClass::Housekeeping, Work::Control, 0);
            self.dispatch().parts.lend_control(OsdControl::tick);
            self.take_control_events();
            let Dispatch { mut parts, connections, maps } = self.dispatch();
            connections.tell_losses(&mut parts);
            maps.ask_for_past(&mut parts);
            self.take_control_events();
        }
        while let Some(late) = self.gatherings.take_late(self.now) {
            self.answer_gathered(Some(late));
        }
        let (Dispatch { mut parts, .. }, Background { periodic, .. }) = self.lend();
        periodic.report(parts.pgs, &mut parts.cx, is_tick);
    }

    /// Another shard says something, or this one to itself.
    fn shard_msg(&mut self, msg: ShardMsg) {
        let action = self.dispatch().shard_msg(msg);
        self.act(action);
        self.take_control_events();
    }

    /// Carries out what OSD control has for the shard, until it has nothing more.
    fn take_control_events(&mut self) {
        while let Some(event) = self.control.next_event() {
            let action = self.dispatch().control_event(event);
            self.act(action);
        }
    }

    fn act(&mut self, action: Option<ShardAction>) {
        match action {
            None => (),
            Some(ShardAction::FollowOptions(options)) => {
                self.options = options;
                self.follow_options();
            }
            Some(ShardAction::ShareOptions(options)) => self.set_options(options),
            Some(ShardAction::AskDevice(device)) => self.ask_device(device),
            Some(ShardAction::Command(session, tid, given)) => self.command(&session, tid, &given),
            Some(ShardAction::Show(number, shown)) => self.show(number, shown),
            Some(ShardAction::TakePart(number, shard, part)) => {
                let gathered = self.gatherings.add(number, shard, *part);
                self.answer_gathered(gathered);
            }
            Some(ShardAction::Stop) => self.stopping = true,
        }
    }

    /// The monitor hears how a device is, or why nobody can say.
    fn ask_device(&mut self, device: String) {
        if let Err(failure) = self.ask_devices(Asker::Monitor(device.clone())) {
            let report = smart::not_asked(device, &failure);
            self.dispatch().parts.lend_control(|control, _| control.device_health(report));
        }
    }

    fn ask_devices(&self, asker: Asker) -> Result<(), Failure> {
        let facts = match &self.config.store {
            StoreConfig::File { folder, .. } => device_facts(folder),
            StoreConfig::Memory { .. } => BTreeMap::new(),
        };
        self.smart.start(asker, &facts, &self.options, self.net.router.own_sender())
    }

    /// What commands look at here.
    fn view(&self) -> CommandView<'_> {
        CommandView {
            config: &self.config,
            options: &self.options,
            is_booted: self.is_booted(),
            pg_driver: &self.pg_driver,
            net: &self.net,
            control: self.control.get(),
            times: (self.now, self.wall),
            cpu: self.clock.cpu().unwrap_or_default(),
        }
    }

    /// Shows this shard's part of the answer to a command, at once or when it has it.
    fn show(&mut self, number: u64, shown: Shown) {
        let part = match shown {
            Shown::Now(view) => Ok(show(&self.view(), view)),
            Shown::Report => {
                self.report();
                Ok(Value::Null)
            }
            Shown::Bench(all) => {
                let router = &self.net.router;
                let (part, store) = ((all, router.me, router.shard_count()), self.pg_driver.store.as_ref());
                match self.bench.start(number, part, store, self.now) {
                    Ok(()) => return,
                    Err(failure) => Err(failure),
                }
            }
        };
        let router = &mut self.net.router;
        router.send(0, ShardMsg::Part(number, router.me, Box::new(part)));
    }

    /// The first shard hears how this one stands, before it gets what is said from now on.
    fn report(&mut self) {
        if self.pg_driver.was_broken() {
            return;
        }
        let (Dispatch { mut parts, .. }, Background { periodic, .. }) = self.lend();
        let report = periodic.make_report(parts.pgs, &mut parts.cx);
        parts.cx.net.router.send(0, ShardMsg::Stats(Box::new(report)));
    }

    /// The client gets what all shards have shown.
    fn answer_gathered(&mut self, gathered: Option<Gathered>) {
        let Some(Gathered { session, tid, shown, answer }) = gathered else { return };
        let answer = match answer {
            Ok(_) if shown == Shown::Report => {
                let seq = self.dispatch().parts.lend_control(|control, cx| control.stat_seq(cx));
                Ok(seq.map_or(Value::Null, Value::from))
            }
            answer => answer,
        };
        self.net.tell_session(session, Message::from(reply(answer)).encode(tid));
    }

    /// A command of a client; answered at once, from the shard of the PG that it is about, or by all shards together.
    fn command(&mut self, session: &Session, tid: u64, given: &Command) {
        let answer: Result<Value, Failure> = match command(&self.view(), session, given) {
            CommandOutcome::Reply(answer) => answer,
            CommandOutcome::SetOptions(changes, shown) => {
                for (info, value) in changes {
                    let mut options = Values::clone(&self.options);
                    options.tell(info, value);
                    self.set_options(options);
                }
                Ok(shown)
            }
            CommandOutcome::Gather(shown) => {
                match self.gatherings.begin((session.id, tid), shown, self.now) {
                    Ok(number) => {
                        self.net.router.send_others(|| ShardMsg::Show(number, shown));
                        return self.show(number, shown);
                    }
                    Err(failure) => Err(failure),
                }
            }
            CommandOutcome::Ask(spg, kind) => {
                let question = Question { session: session.id, tid, spg, kind };
                return self.dispatch().parts.route(spg, ShardMsg::Ask(Box::new(question)));
            }
            CommandOutcome::AskDevices(devid) => {
                match self.ask_devices(Asker::Client(session.id, tid, devid)) {
                    Ok(()) => return,
                    Err(failure) => Err(failure),
                }
            }
        };
        self.net.tell_session(session.id, Message::from(reply(answer)).encode(tid));
    }
}
