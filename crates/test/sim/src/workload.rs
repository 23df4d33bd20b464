//! [`Workload`]: clients that work on a few objects, and the record of what they were told.

use crate::history::{self, Call, Excuses};
use crate::model::{Action, Content, Object, Seen, Snaps};
use crate::world::World;
use nacre_client::Finished;
use nacre_maps::{OsdMap, flags};
use nacre_msg::osd_op::flag;
use nacre_objecter::Request;
use nacre_types::{Epoch, Errno, Eversion, ObjectLocator, PgId, PoolId, SnapId, Stamp, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages that one client has under way at most.
const DEPTH_MAX: u64 = 3;
/// Snapshots that exist at a time at most.
const SNAPS_MAX: usize = 4;

/// What calendars differ by, and more.
const CLOCKS: Duration = Duration::from_secs(1);

/// Up to which version a PG has writes on more than one copy, and the calendar when it said so.
pub(crate) type Kept = (Eversion, UTime);

/// Objects that are copied.
const SOURCES: u64 = 2;
/// How their names begin.
const SOURCE: &str = "source ";

/// The text with as much behind it as makes so many bytes.
fn padded(text: &str, bytes: usize) -> String {
    format!("{text}{}", "-".repeat(bytes.saturating_sub(text.len())))
}

fn is_source(object: &str) -> bool {
    object.starts_with(SOURCE)
}

/// A client that works, or did.
#[derive(Debug)]
struct Worker {
    client: usize,
    /// When it sends next; `None` when it has heard that it is shut out.
    next_at: Option<Stamp>,
    /// Somebody wants it shut out.
    is_unwanted: bool,
    /// It does nothing but delete, when there is no room.
    cleans: bool,
}

impl Worker {
    fn new(client: usize) -> Self {
        Self { client, next_at: Some(Stamp::default()), is_unwanted: false, cleans: false }
    }
}

/// Whether a pool has such a flag. By the monitor's map: a client that has nothing to do hears of no newer one.
fn has_flag(world: &World, pool: PoolId, flag: u64) -> bool {
    let map = world.mon().map(|mon| mon.state().osd.map());
    map.and_then(|map| map.pool(pool)).is_some_and(|pool| pool.has_flag(flag))
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Workload {
    pool: PoolId,
    objects: u64,
    pause: Duration,
    /// Counts everything sent and answered.
    moment: u64,
    last_text: u64,
    histories: BTreeMap<String, Vec<Call>>,
    /// Messages under way: client and number to object and place in its history.
    open: BTreeMap<(usize, u64), (String, usize)>,
    workers: Vec<Worker>,
    /// Since when who is shut out, and when the only copy of something may have been lost.
    excuses: Excuses,
    /// Snapshots that exist, oldest first.
    snaps: Vec<u64>,
    /// Newest snapshot that ever was.
    snap_seq: u64,
    /// Snapshots that were made and are not used yet: see [`Workload::use_snapshots`].
    new_snaps: Vec<u64>,
    /// Some were removed.
    has_removed: bool,
    /// Classes are called and objects copied.
    calls_and_copies: bool,
    /// Objects that are written once and then copied, as far as they are there.
    sources: BTreeMap<String, Content>,
    /// Bytes of a stripe, when the pool is erasure-coded.
    stripe: Option<usize>,
    /// Objects are changed in part although the pool is erasure-coded.
    overwrites: bool,
    /// Values that the attribute `k` of an object may have.
    guesses: BTreeMap<String, Vec<String>>,
    stopped: bool,
    /// Devices run full: writes are large, and `ENOSPC` is an answer.
    fills_up: bool,
    /// Whole objects that are written are large.
    writes_large: bool,
    /// The pool is being deleted: `ENOENT` may be an answer, and says nothing of whether the message took effect.
    ends: bool,
    /// `EIO` may be an answer: of what the bad device alone has. It says nothing of whether the message took effect.
    may_fail: bool,
}

impl Workload {
    /// Work on `objects` objects of `pool` by `clients`, each with about `pause` between two messages; with `stripe`,
    /// the bytes of one, if the pool is erasure-coded.
    #[must_use]
    pub(crate) fn new(
        pool: PoolId,
        objects: u64,
        clients: impl IntoIterator<Item = usize>,
        pause: Duration,
        stripe: Option<usize>,
    ) -> Self {
        Self {
            pool,
            objects,
            pause,
            moment: 0,
            last_text: 0,
            histories: BTreeMap::new(),
            open: BTreeMap::new(),
            workers: clients.into_iter().map(Worker::new).collect(),
            excuses: Excuses::default(),
            snaps: Vec::new(),
            snap_seq: 0,
            new_snaps: Vec::new(),
            has_removed: false,
            calls_and_copies: false,
            sources: BTreeMap::new(),
            stripe,
            overwrites: false,
            guesses: BTreeMap::new(),
            stopped: false,
            fills_up: false,
            writes_large: false,
            ends: false,
            may_fail: false,
        }
    }

    /// One of the clients that work.
    pub(crate) fn any_client(&self, world: &mut World) -> usize {
        let wanted: Vec<usize> = self.wanted().collect();
        wanted[usize::try_from(world.below(wanted.len() as u64)).unwrap_or(0)]
    }

    /// The first of them.
    pub(crate) fn first_client(&self) -> usize {
        self.wanted().next().expect("for each that is shut out another one comes")
    }

    fn wanted(&self) -> impl Iterator<Item = usize> {
        self.workers.iter().filter(|worker| !worker.is_unwanted && !worker.cleans).map(|worker| worker.client)
    }

    /// A client is to be shut out, and may hear of it from now on; `other` takes its place.
    pub(crate) fn unwant(&mut self, client: usize, other: usize) {
        self.workers
            .iter_mut()
            .filter(|worker| worker.client == client)
            .for_each(|worker| worker.is_unwanted = true);
        self.workers.push(Worker::new(other));
    }

    /// A client is shut out from `epoch` on.
    pub(crate) fn fence(&mut self, client: usize, epoch: Epoch) {
        self.excuses.fences.insert(client, epoch);
    }

    /// An OSD is gone for good, with writes that nobody else may have had.
    pub(crate) fn lose(&mut self) {
        self.moment += 1;
        self.excuses.losses.push(self.moment);
    }

    /// Writes down which writes will not be lost: of a PG's, those up to a version that were answered before some time.
    pub(crate) fn note_kept(&mut self, map: &OsdMap, kept: &BTreeMap<PgId, Kept>) {
        for (object, calls) in &mut self.histories {
            let pg = map.object_to_pg(object.as_bytes(), &ObjectLocator::in_pool(self.pool));
            let Some((through, at)) = pg.and_then(|pg| kept.get(&pg)) else { continue };
            let made = |call: &&mut Call| {
                let is_made = !call.action.is_read() && call.seen == Some(Seen::Result(0));
                is_made && call.kept.is_none() && call.version <= *through && call.ended.after(CLOCKS) < *at
            };
            calls.iter_mut().filter(made).for_each(|call| call.kept = Some(self.moment));
        }
    }

    /// Messages that were answered.
    #[must_use]
    pub(crate) fn answered(&self) -> usize {
        self.histories.values().flatten().filter(|call| call.answered.is_some()).count()
    }

    /// Messages under way.
    #[must_use]
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// From now on `EIO` is no verdict.
    pub(crate) fn allow_failures(&mut self) {
        self.may_fail = true;
    }

    /// From now on classes are called and objects copied as well.
    pub(crate) fn call_and_copy(&mut self) {
        self.calls_and_copies = true;
    }

    /// From now on objects are changed in part, in an erasure-coded pool as well.
    pub(crate) fn overwrite(&mut self) {
        self.overwrites = true;
    }

    /// Whole objects that are written are large from now on.
    pub(crate) fn write_large(&mut self) {
        self.writes_large = true;
    }

    /// From now on the pool may be gone at any time. Nothing new is sent.
    pub(crate) fn expect_end(&mut self) {
        (self.ends, self.stopped) = (true, true);
    }

    /// From now on writes are so large that devices run full, and `cleaner` deletes when they are.
    pub(crate) fn fill_up(&mut self, cleaner: usize) {
        self.fills_up = true;
        self.workers.insert(0, Worker { cleans: true, ..Worker::new(cleaner) });
    }

    /// Whether somebody must delete: the pool is full, or, once nobody writes any more, an OSD is too full to be a backfill's
    /// target, which waits until an operator makes room.
    fn lacks_room(&self, world: &World) -> bool {
        has_flag(world, self.pool, flags::pool::FULL)
            || self.stopped && has_flag(world, self.pool, flags::pool::BACKFILLFULL)
    }

    /// Sends nothing new from now on, but for deletes when there is no room.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Wants another snapshot. Some time later there is one.
    pub(crate) fn snapshot(&mut self, world: &mut World) {
        if self.snaps.len() < SNAPS_MAX {
            let client = self.first_client();
            let pool = u32::try_from(self.pool).unwrap_or(0);
            world.order(client, |client| client.create_snapshot(pool));
        }
    }

    /// Removes a snapshot, unless a message is under way that knows of others than those that exist: where it takes effect late,
    /// what it leaves would depend on whether clones have been trimmed. False when nothing was removed.
    pub(crate) fn forget_snapshot(&mut self, world: &mut World) -> bool {
        let now = self.context();
        let under_way =
            |(object, at): &(String, usize)| self.histories.get(object).and_then(|all| all.get(*at));
        let mut open = self.open.values().filter_map(under_way);
        let (Some(count), true) = (
            u64::try_from(self.snaps.len()).ok().filter(|count| *count > 0),
            open.all(|call| call.snaps == now),
        ) else {
            return false;
        };
        let snap = self.snaps[usize::try_from(world.below(count)).unwrap_or(0)];
        let uses =
            |call: &Call| matches!(call.action, Action::Read(Some(of)) | Action::Rollback(of) if of == snap);
        if self.open.values().filter_map(under_way).any(uses) {
            return false;
        }
        self.snaps.retain(|other| *other != snap);
        self.has_removed = true;
        let client = self.first_client();
        let pool = u32::try_from(self.pool).unwrap_or(0);
        world.order(client, |client| client.remove_snapshot(pool, SnapId(snap)));
        true
    }

    /// What messages say of snapshots from now on. Once some were removed, new ones are used when nothing is under way that does
    /// not know of them, for the same reason as in [`Workload::forget_snapshot`].
    fn use_snapshots(&mut self) {
        if !self.has_removed || self.open.is_empty() {
            self.snaps.append(&mut self.new_snaps);
            self.snaps.sort_unstable();
            self.snap_seq = self.snaps.last().map_or(self.snap_seq, |newest| self.snap_seq.max(*newest));
        }
    }

    fn context(&self) -> Snaps {
        Snaps { seq: self.snap_seq, ids: self.snaps.iter().rev().copied().collect() }
    }

    /// Lets every client send with the next turn.
    pub(crate) fn hurry(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| worker.next_at.is_some()) {
            worker.next_at = Some(Stamp::default());
        }
    }

    /// Takes answers, and sends what is due.
    ///
    /// # Panics
    /// When a message fails that cannot.
    pub(crate) fn turn(&mut self, world: &mut World) {
        for at in 0..self.workers.len() {
            let client = self.workers[at].client;
            for finished in world.take_finished(client) {
                let wall = world.client(client).wall();
                self.finished(at, finished, wall);
            }
            self.use_snapshots();
            let wants = if self.workers[at].cleans { self.lacks_room(world) } else { !self.stopped };
            if wants && self.workers[at].next_at.is_some_and(|due| world.now() >= due) {
                let pause = u64::try_from(self.pause.as_nanos()).unwrap_or(u64::MAX);
                let next = world.now() + Duration::from_nanos(world.below(2 * pause));
                self.workers[at].next_at = Some(next);
                if self.open.range((client, 0)..(client + 1, 0)).count() < DEPTH_MAX as usize {
                    self.send(world, at);
                }
            }
        }
    }

    /// When [`Workload::turn`] has something to send.
    #[must_use]
    pub(crate) fn next_at(&self) -> Option<Stamp> {
        // Who deletes is waited for by nobody: it looks whenever anything happens.
        let workers = self.workers.iter().filter(|worker| !worker.cleans);
        workers.filter_map(|worker| worker.next_at).min().filter(|_| !self.stopped)
    }

    fn finished(&mut self, worker: usize, finished: Finished, wall: UTime) {
        let worker = &mut self.workers[worker];
        match finished {
            Finished::Op { tid, outcome } => {
                let (object, at) =
                    self.open.remove(&(worker.client, tid)).expect("an answer to something sent");
                if self.ends && matches!(outcome, Err(Errno::ENOENT)) {
                    return;
                }
                let reply = outcome.unwrap_or_else(|errno| panic!("{object}: {errno}"));
                self.moment += 1;
                let call = &mut self.histories.get_mut(&object).expect("a history")[at];
                if worker.is_unwanted && reply.result == Errno::ESHUTDOWN.negated() {
                    worker.next_at = None;
                    return;
                }
                if self.fills_up && reply.result == Errno::ENOSPC.negated() {
                    (call.answered, call.seen) = (Some(self.moment), Some(Seen::Refused));
                    return;
                }
                if self.may_fail && reply.result == Errno::EIO.negated() {
                    return;
                }
                call.answered = Some(self.moment);
                call.seen = Some(call.action.seen(&reply));
                (call.version, call.ended) = (reply.replay_version, wall);
                if is_source(&object) && call.seen == Some(Seen::Result(0)) {
                    let (written, _) = Object::default().after(&call.action, &Snaps::default());
                    self.sources.extend(written.into_head().map(|content| (object, content)));
                }
            }
            // An answer to a removal names none.
            Finished::Snapshot(SnapId(snap)) if snap > self.snap_seq => self.new_snaps.push(snap),
            Finished::Snapshot(_) | Finished::Command { .. } | Finished::Notified(_) => {}
        }
    }

    fn text(&mut self) -> String {
        self.last_text += 1;
        format!("{};", self.last_text)
    }

    fn action(&mut self, world: &mut World, object: &str) -> Action {
        let text = self.text();
        let snap = match self.snaps.len() as u64 {
            0 => None,
            count => self.snaps.get(usize::try_from(world.below(count)).unwrap_or(0)).copied(),
        };
        let guesses = self.guesses.entry(object.to_owned()).or_default();
        let old = guesses.last().cloned().unwrap_or_default();
        let kind = world.below(if self.calls_and_copies { 28 } else { 24 });
        let action = match (kind, self.stripe) {
            (0..8 | 11..13, Some(stripe)) if self.overwrites => {
                self.change_in_part(world, kind, text, stripe)
            }
            (0..5, Some(stripe)) if world.below(4) > 0 => Action::Extend(padded(&text, stripe), stripe),
            (0..5, Some(stripe)) => Action::Extend(text, stripe),
            (5..8, Some(stripe)) => {
                let stripes = usize::try_from(1 + world.below(3)).unwrap_or(1);
                Action::WriteFull(padded(
                    &text,
                    stripe * if self.writes_large { 8 * stripes } else { stripes },
                ))
            }
            (11, Some(_)) => Action::WriteFull(text),
            (12 | 13, Some(_)) => Action::Swap(old, text),
            _ => self.plain_action(world, kind, text, old, snap),
        };
        if let Action::SetAll(_, value) | Action::Swap(_, value) = &action {
            self.guesses.entry(object.to_owned()).or_default().push(value.clone());
        }
        action
    }

    /// Somewhere in the first few stripes.
    fn change_in_part(&self, world: &mut World, kind: u64, text: String, stripe: usize) -> Action {
        let mut within =
            |stripes: usize| usize::try_from(world.below((stripes * stripe) as u64)).unwrap_or(0);
        let at = within(3);
        // A few bytes of one stripe, or all of one and parts of others.
        let long = if within(1) % 2 == 0 { format!("{text:-<width$}", width = within(2)) } else { text };
        match kind {
            0..2 => Action::Append(long),
            2..6 => Action::Write(at, long),
            6 if self.writes_large => Action::WriteFull(padded(&long, 8 * stripe)),
            6 => Action::WriteFull(long),
            7 | 11 => Action::Truncate(at),
            _ => Action::Zero(at, 1 + within(2)),
        }
    }

    /// What any pool can do, and operations on omap and on parts of objects.
    fn plain_action(
        &self,
        world: &mut World,
        kind: u64,
        text: String,
        old: String,
        snap: Option<u64>,
    ) -> Action {
        match kind {
            0..8 if self.fills_up => {
                Action::WriteFull(text.repeat(usize::try_from(1 + world.below(20_000)).unwrap_or(1)))
            }
            0..4 => Action::Append(text),
            4 | 5 => {
                let is_large = world.below(4) == 0 || self.writes_large;
                Action::WriteFull(if is_large { text.repeat(2000) } else { text })
            }
            6 | 7 => Action::Write(usize::try_from(world.below(20)).unwrap_or(0), text),
            8 => Action::Create,
            9 => Action::Delete,
            10 => Action::SetAttr(format!("a{}", world.below(3)), text),
            11 | 12 => Action::SetOmap(format!("o{}", world.below(3)), text),
            13 => Action::SetAll(text.clone(), text),
            14 | 15 => Action::Swap(old, text),
            24 => Action::Greet(text),
            25 => Action::Amplify,
            26 | 27 if !self.sources.is_empty() => {
                let at = usize::try_from(world.below(self.sources.len() as u64)).unwrap_or(0);
                let source =
                    self.sources.iter().nth(at).map(|(name, content)| (name.clone(), content.clone()));
                let (name, content) = source.unwrap_or_default();
                Action::CopyFrom(self.pool, name, content)
            }
            16 if snap.is_some() => Action::Rollback(snap.unwrap_or(0)),
            17 | 18 => Action::Read(snap),
            _ => Action::Read(None),
        }
    }

    fn send(&mut self, world: &mut World, worker: usize) {
        let cleans = self.workers[worker].cleans;
        if let Some(name) = self.next_source().filter(|_| !cleans) {
            let text = self.text();
            let action = match self.stripe {
                Some(_) => Action::WriteFull(text),
                None => Action::SetAll(text.clone(), text),
            };
            return self.issue(world, worker, name, action);
        }
        let object = format!("object {}", world.below(self.objects));
        let action = if cleans { Action::Delete } else { self.action(world, &object) };
        self.issue(world, worker, object, action);
    }

    /// The next object to be written that is copied later.
    fn next_source(&self) -> Option<String> {
        let count = if self.calls_and_copies { SOURCES } else { 0 };
        let mut names = (0..count).map(|nth| format!("{SOURCE}{nth}"));
        names.find(|name| !self.histories.contains_key(name))
    }

    fn issue(&mut self, world: &mut World, worker: usize, object: String, action: Action) {
        let Worker { client, cleans, .. } = self.workers[worker];
        let epoch = world.client(client).objecter().map().epoch;
        let snaps = self.context();
        let mut request = Request::new(ObjectLocator::in_pool(self.pool), object.clone(), action.ops());
        request.snap_seq = SnapId(snaps.seq);
        request.snaps = snaps.ids.iter().map(|snap| SnapId(*snap)).collect();
        if let Action::Read(Some(snap)) = action {
            request.snap = SnapId(snap);
        }
        let calls = matches!(action, Action::Greet(_) | Action::Amplify);
        request.flags = if cleans { flag::FULL_TRY } else { 0 } | if calls { flag::WRITE } else { 0 };
        request.mtime = world.client(client).wall();
        self.moment += 1;
        let history = self.histories.entry(object.clone()).or_default();
        let (sent, at) = (self.moment, history.len());
        history.push(Call { client, sent, epoch, action, snaps, ..Call::default() });
        let tid = world.order(client, |client| client.submit(request));
        self.open.insert((client, tid), (object, at));
    }

    /// Reads every object and each of its snapshots once more.
    pub(crate) fn read_all(&mut self, world: &mut World) {
        let reader = self.workers.len() - 1; // nobody has come for it
        for object in 0..self.objects {
            let object = format!("object {object}");
            self.issue(world, reader, object.clone(), Action::Read(None));
            for snap in self.snaps.clone() {
                self.issue(world, reader, object.clone(), Action::Read(Some(snap)));
            }
        }
    }

    /// Every object's history makes sense.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (object, calls) in &self.histories {
            history::check(calls, &self.excuses).map_err(|impossible| {
                let all: Vec<String> = calls.iter().map(ToString::to_string).collect();
                let text = format!("{object}: {impossible}all of it:\n{}", all.join("\n"));
                let mut text = with_short_runs(&text);
                text.truncate(60_000);
                text
            })?;
        }
        Ok(())
    }
}

/// Long runs of a character, of which filled stripes consist, written as `-*4093`.
fn with_short_runs(text: &str) -> String {
    let run = |run: &[u8]| {
        let bytes = run.escape_ascii().to_string();
        if run.len() < 8 { bytes } else { format!("{}*{} ", char::from(run[0]), run.len()) }
    };
    let lines = text.lines().map(|line| line.as_bytes().chunk_by(|a, b| a == b).map(run).collect());
    lines.collect::<Vec<String>>().join("\n")
}
