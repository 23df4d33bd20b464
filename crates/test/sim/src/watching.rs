//! [`Watching`]: clients that watch objects as librados does, one that notifies them, and what both may rely on.
//!
//! Whoever was told that it watches is in the object's record until it says otherwise, or until nothing was heard of it for its
//! timeout. So a notify that was sent meanwhile names it, as one that has answered or as one that has not in time; and a
//! watch ends without a word of its watcher's only when its timeout is over.

use crate::world::World;
use nacre_buf::Bytes;
use nacre_client::Finished;
use nacre_denc::{Decode, Writer};
use nacre_msg::osd_op::{WatchArgs, code, watch_op};
use nacre_msg::{NotifyOutcome, OsdOpReply, SubOp, WatchNotify, notify_op};
use nacre_objecter::Request;
use nacre_types::{Errno, ObjectLocator, PoolId, Stamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// Objects that are watched.
const OBJECTS: u64 = 2;
/// Watches of each client.
const WATCHES: u64 = 2;
/// A watch ends when nothing is heard of it for so long, in seconds.
const WATCH_TIMEOUT_S: u32 = 10;
/// Between two signs of life.
const PING: Duration = Duration::from_secs(3);
/// A notify waits so long for answers, in seconds.
const NOTIFY_TIMEOUT_S: u32 = 5;
/// Between two notifies, at most.
const PAUSE_MS: u64 = 4000;
/// A notify whose end nobody tells is given up: whoever was to tell it is gone.
const PATIENCE: Duration = Duration::from_secs(15);
/// One of so many notifies is not answered by a watcher.
const SILENCE: u64 = 8;

/// Clocks differ a little: so much of a timeout must have passed.
fn nearly(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into()) * 19 / 20
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Watch,
    Ping,
    Reconnect,
    Unwatch,
}

impl Step {
    fn op(self) -> u8 {
        match self {
            Self::Watch => watch_op::WATCH,
            Self::Ping => watch_op::PING,
            Self::Reconnect => watch_op::RECONNECT,
            Self::Unwatch => watch_op::UNWATCH,
        }
    }
}

/// One watch, as its client knows it.
#[derive(Debug)]
struct Watch {
    client: usize,
    object: u64,
    /// Its client's handle; another one after each end.
    cookie: u64,
    /// When its client was told that it is there, on the count of [`Watching`]; `None` when it is not, or may not be.
    since: Option<u64>,
    /// When the last sign of life was sent that was answered.
    alive_at: Stamp,
    /// What is under way: its number, what, when and on which count it was sent.
    asked: Option<(u64, Step, Stamp, u64)>,
    next: Step,
    next_at: Stamp,
    /// Notifies that ended without a word of it, and on which count. If it is still there it was overlooked.
    overlooked_by: Vec<(u64, u64)>,
}

/// A notify under way.
#[derive(Debug)]
struct Notify {
    number: u64,
    object: u64,
    sent: u64,
    sent_at: Stamp,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Watching {
    pool: PoolId,
    /// Counts everything sent and heard.
    moment: u64,
    watches: Vec<Watch>,
    notifier: usize,
    /// Objects that are there, and what makes the others.
    made: BTreeSet<u64>,
    making: Option<(u64, u64)>,
    notify: Option<Notify>,
    notify_at: Stamp,
    last_notify: u64,
    last_cookie: u64,
    /// (notify, client, cookie) of each answer that a watcher gave.
    answers: BTreeSet<(u64, usize, u64)>,
    /// Nothing goes wrong any more: nobody is silent, or leaves.
    calm: bool,
    /// Notifies that all watchers have answered since it is calm.
    answered_in_calm: u64,
    /// A broken promise.
    verdict: Option<String>,
}

fn text_of(notify: u64) -> Bytes {
    Bytes::from(format!("notify {notify}"))
}

fn notify_op_of(number: u64) -> SubOp {
    let mut w = Writer::new();
    w.u32(1);
    w.u32(NOTIFY_TIMEOUT_S);
    w.put(&text_of(number));
    SubOp::with_notify(number, w.finish())
}

fn number_of(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.strip_prefix("notify ")?.parse().ok()
}

impl Watching {
    /// Two clients of their own watch objects of `pool`, a third one notifies them.
    pub(crate) fn new(pool: PoolId, world: &mut World) -> Self {
        let watchers = [world.add_client(), world.add_client()];
        let mut last_cookie = 0;
        let mut watches = Vec::new();
        for client in watchers {
            for nth in 0..WATCHES {
                last_cookie += 1;
                watches.push(Watch {
                    client,
                    object: nth % OBJECTS,
                    cookie: last_cookie,
                    since: None,
                    alive_at: Stamp::default(),
                    asked: None,
                    next: Step::Watch,
                    next_at: Stamp::default(),
                    overlooked_by: Vec::new(),
                });
            }
        }
        Self {
            pool,
            moment: 0,
            watches,
            notifier: world.add_client(),
            made: BTreeSet::new(),
            making: None,
            notify: None,
            notify_at: Stamp::default(),
            last_notify: 0,
            last_cookie,
            answers: BTreeSet::new(),
            calm: false,
            answered_in_calm: 0,
            verdict: None,
        }
    }

    /// Nothing goes wrong any more.
    pub(crate) fn calm_down(&mut self) {
        self.calm = true;
    }

    /// True when, in calm, all who watch have answered a notify of each object, or a few.
    pub(crate) fn is_content(&self) -> bool {
        self.calm && self.answered_in_calm >= 2 * OBJECTS && self.watches.iter().all(|it| it.since.is_some())
    }

    /// What was promised and not kept.
    pub(crate) fn verdict(&self) -> Option<&str> {
        self.verdict.as_deref()
    }

    /// When [`Watching::turn`] has something to send.
    pub(crate) fn next_at(&self) -> Option<Stamp> {
        let can_go_on = |watch: &&Watch| watch.asked.is_none() && self.made.contains(&watch.object);
        let watches = self.watches.iter().filter(can_go_on).map(|watch| watch.next_at);
        let notify = self.notify.as_ref().map_or(self.notify_at, |notify| notify.sent_at + PATIENCE);
        watches.chain([notify]).min()
    }

    fn submit(&mut self, world: &mut World, client: usize, object: u64, op: SubOp) -> u64 {
        self.moment += 1;
        let name = format!("watched {object}");
        let mut request = Request::new(ObjectLocator::in_pool(self.pool), name, vec![op]);
        request.mtime = world.client(client).wall();
        world.order(client, |client| client.submit(request))
    }

    /// Takes what clients were told, and sends what is due.
    pub(crate) fn turn(&mut self, world: &mut World) {
        let clients: BTreeSet<usize> =
            self.watches.iter().map(|watch| watch.client).chain([self.notifier]).collect();
        for client in clients {
            for finished in world.take_finished(client) {
                self.moment += 1;
                match finished {
                    Finished::Op { tid, outcome } => {
                        let reply = outcome.unwrap_or_else(|errno| panic!("a watched pool: {errno}"));
                        self.heard(world, client, tid, &reply);
                    }
                    Finished::Notified(message) => self.notified(world, client, &message),
                    Finished::Command { .. } | Finished::Snapshot(_) => {}
                }
            }
        }
        self.make_objects(world);
        for at in 0..self.watches.len() {
            self.go_on(world, at);
        }
        self.notify(world);
    }

    fn make_objects(&mut self, world: &mut World) {
        let missing = (0..OBJECTS).find(|object| !self.made.contains(object));
        if let Some(object) = missing.filter(|_| self.making.is_none()) {
            let op = SubOp::write_full(b"watched".to_vec().into());
            let tid = self.submit(world, self.notifier, object, op);
            self.making = Some((tid, object));
        }
    }

    fn go_on(&mut self, world: &mut World, at: usize) {
        let watch = &self.watches[at];
        if watch.asked.is_some() || world.now() < watch.next_at || !self.made.contains(&watch.object) {
            return;
        }
        let leaves = watch.next == Step::Ping && !self.calm && world.below(16) == 0;
        let watch = &mut self.watches[at];
        let step = if leaves { Step::Unwatch } else { watch.next };
        if step == Step::Unwatch {
            watch.since = None;
            watch.overlooked_by.clear();
        }
        let args = WatchArgs {
            cookie: watch.cookie,
            op: step.op(),
            generation: 1,
            timeout_s: WATCH_TIMEOUT_S,
            ..WatchArgs::default()
        };
        let (client, object) = (watch.client, watch.object);
        let tid = self.submit(world, client, object, SubOp::with_watch(args));
        self.watches[at].asked = Some((tid, step, world.now(), self.moment));
    }

    fn heard(&mut self, world: &mut World, client: usize, tid: u64, reply: &OsdOpReply) {
        if client == self.notifier {
            if let Some((_, object)) = self.making.filter(|(making, _)| *making == tid) {
                self.making = None;
                self.made.extend((reply.result == 0).then_some(object));
            }
            return;
        }
        let asks = |watch: &Watch| watch.client == client && watch.asked.is_some_and(|(of, ..)| of == tid);
        let Some(at) = self.watches.iter().position(asks) else { return }; // that of an answer
        let Some((_, step, sent_at, sent)) = self.watches[at].asked.take() else { return };
        let watch = &mut self.watches[at];
        (watch.next, watch.next_at) = (Step::Ping, world.now() + PING);
        match (step, reply.result) {
            (Step::Unwatch, 0) => self.begin_anew(at),
            (_, 0) => {
                watch.alive_at = sent_at;
                watch.since = watch.since.or(Some(self.moment));
                let overlooked = watch.overlooked_by.iter().find(|(_, ended)| *ended < sent);
                if let Some((notify, _)) = overlooked {
                    self.verdict =
                        Some(format!("notify {notify} overlooks a watch that is there: {watch:?}"));
                }
                watch.overlooked_by.clear();
            }
            // Another primary, or another session: it is known, and not connected.
            (Step::Ping, result) if result == Errno::ETIMEDOUT.negated() => {
                (watch.next, watch.next_at) = (Step::Reconnect, world.now());
            }
            (Step::Ping | Step::Reconnect, result) if result == Errno::ENOTCONN.negated() => {
                if watch.since.is_some() && world.now() < watch.alive_at + nearly(WATCH_TIMEOUT_S) {
                    self.verdict = Some(format!("a watch ends before its time is over: {watch:?}"));
                }
                self.begin_anew(at);
            }
            (_, result) => panic!("{step:?} of {watch:?} gives {result}"),
        }
    }

    fn begin_anew(&mut self, at: usize) {
        self.last_cookie += 1;
        let watch = &mut self.watches[at];
        (watch.cookie, watch.since, watch.next) = (self.last_cookie, None, Step::Watch);
        watch.overlooked_by.clear();
    }

    fn notify(&mut self, world: &mut World) {
        if self.notify.as_ref().is_some_and(|notify| world.now() >= notify.sent_at + PATIENCE) {
            self.notify = None;
        }
        if self.notify.is_some() || world.now() < self.notify_at {
            return;
        }
        self.notify_at = world.now() + Duration::from_millis(1 + world.below(PAUSE_MS));
        let object = world.below(OBJECTS);
        if !self.made.contains(&object) {
            return;
        }
        self.last_notify += 1;
        let number = self.last_notify;
        let op = notify_op_of(number);
        self.submit(world, self.notifier, object, op);
        self.notify = Some(Notify { number, object, sent: self.moment, sent_at: world.now() });
    }

    fn notified(&mut self, world: &mut World, client: usize, message: &WatchNotify) {
        match message.op {
            notify_op::NOTIFY => self.answer(world, client, message),
            notify_op::COMPLETE if client == self.notifier => self.ended(world, message),
            _ => {}
        }
    }

    /// A watcher hears of a notify, and mostly answers.
    fn answer(&mut self, world: &mut World, client: usize, message: &WatchNotify) {
        let watch =
            self.watches.iter().find(|watch| watch.client == client && watch.cookie == message.cookie);
        let (Some(watch), Some(number)) = (watch, number_of(&message.payload)) else { return };
        if !self.calm && world.below(SILENCE) == 0 {
            return;
        }
        let mut w = Writer::new();
        w.u64(message.notify_id);
        w.u64(message.cookie);
        w.put(&text_of(number));
        let op = SubOp::new(code::NOTIFY_ACK).with_indata(w.finish().into());
        let object = watch.object;
        self.answers.insert((number, client, message.cookie));
        self.submit(world, client, object, op);
    }

    /// A notify is over.
    fn ended(&mut self, world: &World, message: &WatchNotify) {
        let Some(notify) = self.notify.take_if(|notify| notify.number == message.cookie) else { return };
        let outcome = NotifyOutcome::from_bytes(message.data.to_bytes()).expect("an outcome decodes");
        for ((gid, cookie), text) in &outcome.replies {
            let mut watch =
                self.answers.iter().filter(|(number, _, of)| *number == notify.number && of == cookie);
            let is_true = watch.any(|(_, client, _)| world.client(*client).global_id() == *gid);
            if !is_true || *text != text_of(notify.number) {
                self.verdict =
                    Some(format!("{notify:?} has an answer that {gid} {cookie} did not give: {text:?}"));
            }
        }
        let early = world.now() < notify.sent_at + nearly(NOTIFY_TIMEOUT_S);
        if early && !outcome.timeouts.is_empty() {
            self.verdict =
                Some(format!("{notify:?} ends before {:?} had the time to answer", outcome.timeouts));
        }
        let named: BTreeSet<(u64, u64)> =
            outcome.replies.iter().map(|(key, _)| *key).chain(outcome.timeouts.iter().copied()).collect();
        let moment = self.moment;
        let before = |since: u64| since < notify.sent;
        for watch in self.watches.iter_mut().filter(|watch| watch.object == notify.object) {
            let key = (world.client(watch.client).global_id(), watch.cookie);
            if watch.since.is_some_and(before) && !named.contains(&key) {
                watch.overlooked_by.push((notify.number, moment));
            }
        }
        if outcome.timeouts.is_empty() && !outcome.replies.is_empty() {
            self.answered_in_calm += u64::from(self.calm);
        }
    }
}
