//! [`Workload`]: clients that work on a few objects, and the record of what they were told.

use crate::history::{self, Call};
use crate::model::{Action, Snaps};
use crate::world::World;
use nacre_client::Finished;
use nacre_objecter::Request;
use nacre_types::{ObjectLocator, PoolId, SnapId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// Messages that one client has under way at most.
const DEPTH_MAX: u64 = 3;
/// Snapshots that exist at a time at most.
const SNAPS_MAX: usize = 4;

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
    /// When each client sends next.
    next_at: Vec<Stamp>,
    /// Snapshots that exist, oldest first.
    snaps: Vec<u64>,
    /// Values that the attribute `k` of an object may have.
    guesses: BTreeMap<String, Vec<String>>,
    stopped: bool,
}

impl Workload {
    /// Work on `objects` objects of `pool` by `clients` clients, each with about `pause` between two messages.
    #[must_use]
    pub(crate) fn new(pool: PoolId, objects: u64, clients: usize, pause: Duration) -> Self {
        Self {
            pool,
            objects,
            pause,
            moment: 0,
            last_text: 0,
            histories: BTreeMap::new(),
            open: BTreeMap::new(),
            next_at: vec![Stamp::default(); clients],
            snaps: Vec::new(),
            guesses: BTreeMap::new(),
            stopped: false,
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

    /// Sends nothing new from now on.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Wants another snapshot. Some time later there is one.
    pub(crate) fn snapshot(&mut self, world: &mut World, client: usize) {
        if self.snaps.len() < SNAPS_MAX {
            let pool = u32::try_from(self.pool).unwrap_or(0);
            world.order(client, |client| client.create_snapshot(pool));
        }
    }

    /// Lets every client send with the next turn.
    pub(crate) fn hurry(&mut self) {
        self.next_at.fill(Stamp::default());
    }

    /// Takes answers, and sends what is due.
    ///
    /// # Panics
    /// When a message fails that cannot.
    pub(crate) fn turn(&mut self, world: &mut World) {
        for client in 0..self.next_at.len() {
            for finished in world.take_finished(client) {
                self.finished(client, finished);
            }
            if !self.stopped && world.now() >= self.next_at[client] {
                let pause = u64::try_from(self.pause.as_nanos()).unwrap_or(u64::MAX);
                self.next_at[client] = world.now() + Duration::from_nanos(world.below(2 * pause));
                if self.open.range((client, 0)..(client + 1, 0)).count() < DEPTH_MAX as usize {
                    self.send(world, client);
                }
            }
        }
    }

    /// When [`Workload::turn`] has something to send.
    #[must_use]
    pub(crate) fn next_at(&self) -> Option<Stamp> {
        self.next_at.iter().min().copied().filter(|_| !self.stopped)
    }

    fn finished(&mut self, client: usize, finished: Finished) {
        match finished {
            Finished::Op { tid, outcome } => {
                let (object, at) = self.open.remove(&(client, tid)).expect("an answer to something sent");
                let reply = outcome.unwrap_or_else(|errno| panic!("{object}: {errno}"));
                self.moment += 1;
                let call = &mut self.histories.get_mut(&object).expect("a history")[at];
                call.answered = Some(self.moment);
                call.seen = Some(call.action.seen(&reply));
            }
            Finished::Snapshot(SnapId(snap)) => {
                self.snaps.push(snap);
                self.snaps.sort_unstable();
            }
            Finished::Command { .. } => {}
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
        let action = match world.below(24) {
            0..4 => Action::Append(text),
            4 | 5 => Action::WriteFull(if world.below(4) == 0 { text.repeat(2000) } else { text }),
            6 | 7 => Action::Write(usize::try_from(world.below(20)).unwrap_or(0), text),
            8 => Action::Create,
            9 => Action::Delete,
            10 => Action::SetAttr(format!("a{}", world.below(3)), text),
            11 | 12 => Action::SetOmap(format!("o{}", world.below(3)), text),
            13 => Action::SetAll(text.clone(), text),
            14 | 15 => Action::Swap(old, text),
            16 if snap.is_some() => Action::Rollback(snap.unwrap_or(0)),
            17 | 18 => Action::Read(snap),
            _ => Action::Read(None),
        };
        if let Action::SetAll(_, value) | Action::Swap(_, value) = &action {
            guesses.push(value.clone());
        }
        action
    }

    fn send(&mut self, world: &mut World, client: usize) {
        let object = format!("object {}", world.below(self.objects));
        let action = self.action(world, &object);
        self.issue(world, client, object, action);
    }

    fn issue(&mut self, world: &mut World, client: usize, object: String, action: Action) {
        let snaps: Snaps = self.snaps.iter().rev().copied().collect();
        let ids: Vec<SnapId> = snaps.iter().map(|snap| SnapId(*snap)).collect();
        let mut request = Request::new(ObjectLocator::in_pool(self.pool), object.clone(), action.ops());
        request.snap_seq = ids.first().copied().unwrap_or_default();
        request.snaps = ids;
        if let Action::Read(Some(snap)) = action {
            request.snap = SnapId(snap);
        }
        request.mtime = world.client(client).wall();
        self.moment += 1;
        let history = self.histories.entry(object.clone()).or_default();
        let (sent, at) = (self.moment, history.len());
        history.push(Call { client, sent, answered: None, action, snaps, seen: None });
        let tid = world.order(client, |client| client.submit(request));
        self.open.insert((client, tid), (object, at));
    }

    /// Reads every object and each of its snapshots once more.
    pub(crate) fn read_all(&mut self, world: &mut World) {
        for object in 0..self.objects {
            let object = format!("object {object}");
            self.issue(world, 0, object.clone(), Action::Read(None));
            for snap in self.snaps.clone() {
                self.issue(world, 0, object.clone(), Action::Read(Some(snap)));
            }
        }
    }

    /// Every object's history makes sense.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (object, calls) in &self.histories {
            history::check(calls).map_err(|impossible| {
                let all: Vec<String> = calls.iter().map(ToString::to_string).collect();
                let mut text = format!("{object}: {impossible}all of it:\n{}", all.join("\n"));
                text.truncate(60_000);
                text
            })?;
        }
        Ok(())
    }
}
