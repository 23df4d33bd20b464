//! [`Load`]: a world of monitors, with clients whose history must be that of one register ([`Register`]), whatever happens to monitors and
//! wires.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use nacre_buf::Bytes;
use nacre_sim::{Config, Finished, Proc, World};
use nacre_types::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Clients that write and read.
pub const CLIENTS: usize = 3;
/// Between an answer and the client's next command: the monitors let a client ask for 50 changes per second.
const PACE: Duration = Duration::from_millis(100);
/// What a client has under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Write(u64),
    Read,
}

/// A command that has begun and is not answered, in one possible course of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Waiting(Asked),
    /// It has taken effect, once, however often the client had to ask.
    Wrote,
    Got(Option<u64>),
}

/// A course of events that explains all answers so far: the value, and how far each client's command is.
type Course = (Option<u64>, BTreeMap<usize, Progress>);

/// Checks that a history is linearizable, answer by answer (G. Lowe, "Testing for linearizability", 2017).
#[derive(Debug)]
struct Register {
    courses: BTreeSet<Course>,
}

impl Register {
    fn new() -> Self {
        Self { courses: BTreeSet::from([(None, BTreeMap::new())]) }
    }

    fn asked(&mut self, client: usize, what: Asked) {
        let courses = std::mem::take(&mut self.courses).into_iter();
        let begun = courses.map(|(value, mut under_way)| {
            under_way.insert(client, Progress::Waiting(what));
            (value, under_way)
        });
        self.courses = begun.collect();
    }

    /// Every course in which any of the commands under way take effect now, in any order.
    fn expand(&mut self) {
        let mut fresh: Vec<Course> = self.courses.iter().cloned().collect();
        while let Some((value, under_way)) = fresh.pop() {
            for (client, progress) in &under_way {
                let (value, progress) = match progress {
                    Progress::Waiting(Asked::Write(new)) => (Some(*new), Progress::Wrote),
                    Progress::Waiting(Asked::Read) => (value, Progress::Got(value)),
                    Progress::Wrote | Progress::Got(_) => continue,
                };
                let mut next = under_way.clone();
                next.insert(*client, progress);
                if self.courses.insert((value, next.clone())) {
                    fresh.push((value, next));
                }
            }
        }
    }

    /// A client got its answer: of a read, the value.
    fn answered(&mut self, client: usize, read: Option<Option<u64>>) {
        self.expand();
        let fits = |progress: &Progress| match (progress, read) {
            (Progress::Wrote, None) => true,
            (Progress::Got(value), Some(read)) => *value == read,
            _ => false,
        };
        let before = self.courses.clone();
        let courses = std::mem::take(&mut self.courses).into_iter();
        self.courses = courses
            .filter_map(|(value, mut under_way)| {
                under_way.remove(&client).filter(fits).map(|_| (value, under_way))
            })
            .collect();
        assert!(!self.courses.is_empty(), "client {client} got {read:?}, which nothing explains: {before:?}");
    }
}

/// A world of monitors, and clients that write and read.
pub struct Load {
    pub world: World,
    register: Register,
    under_way: BTreeMap<usize, (u64, Asked)>,
    next_at: BTreeMap<usize, Stamp>,
    is_stopped: bool,
    last_value: u64,
    /// Commands answered, and the longest time without an answer since that was last looked at.
    answers: u64,
    last_answer: Stamp,
    longest_pause: Duration,
    /// Answers by client.
    pub by_client: BTreeMap<usize, u64>,
    /// One more client, which orders what operators do.
    admin: Option<usize>,
    admin_answers: BTreeMap<u64, AdminAnswer>,
    /// Who led in each term.
    leaders: BTreeMap<u64, usize>,
}

/// What an operator's command was answered.
#[derive(Debug, Clone)]
pub struct AdminAnswer {
    pub result: i32,
    pub status: String,
    pub data: Bytes,
}

impl Load {
    pub fn new(seed: u64, mons: usize) -> Self {
        if std::env::var_os("SIM_LOG").is_some() {
            nacre_service::log::start();
        }
        let world = World::new(seed, &Config { mons, osds: 0, clients: CLIENTS, ..Config::default() });
        let mut load = Self {
            last_answer: world.now(),
            world,
            register: Register::new(),
            under_way: BTreeMap::new(),
            next_at: BTreeMap::new(),
            is_stopped: false,
            last_value: 0,
            answers: 0,
            longest_pause: Duration::ZERO,
            by_client: BTreeMap::new(),
            admin: None,
            admin_answers: BTreeMap::new(),
            leaders: BTreeMap::new(),
        };
        // Sessions that end within three seconds count as failures, and their clients go to another monitor.
        load.run_for(Duration::from_secs(5));
        assert!(load.answers > 20, "{:?}", load.world);
        load.longest_pause = Duration::ZERO;
        load
    }

    /// The rank of the monitor that leads, by the newest term.
    pub fn leader(&self) -> Option<usize> {
        let leads = |n: &usize| self.world.monitor(*n).is_some_and(|driver| driver.mon().is_some());
        let term = |n: &usize| self.world.monitor(*n).map(nacre_monitor::Driver::term);
        (0..self.world.mon_count()).filter(leads).max_by_key(term)
    }

    /// How many monitors are in the quorum, as the leader's commands and health say it.
    pub fn quorum_shown(&self) -> usize {
        let leader = self.leader().expect("commands are answered");
        let state =
            self.world.monitor(leader).and_then(nacre_monitor::Driver::mon).expect("it leads").state();
        state.quorum.members(state.mon.map()).count()
    }

    pub fn clients_elsewhere_than_the_leader(&self) -> usize {
        let leader = self.leader().map(|n| Proc::Mon(n).host().ip());
        let at = |client| self.world.client(client).monitor()?.socket.map(|socket| socket.ip());
        (0..CLIENTS).filter(|client| at(*client).is_some_and(|ip| Some(ip) != leader)).count()
    }

    pub fn others(&self, n: usize) -> Vec<usize> {
        (0..self.world.mon_count()).filter(|other| *other != n).collect()
    }

    /// Gives an operator's command; yields its number.
    pub fn order(&mut self, json: &str) -> u64 {
        let admin = *self.admin.get_or_insert_with(|| self.world.add_client());
        self.world.order(admin, |client| client.command(json))
    }

    /// What an operator's command was answered, if it was by now.
    pub fn take_answer(&mut self, tid: u64) -> Option<AdminAnswer> {
        self.admin_answers.remove(&tid)
    }

    /// Gives an operator's command and waits for its answer.
    pub fn order_and_wait(&mut self, json: &str) -> AdminAnswer {
        let tid = self.order(json);
        let answered = self.run_until(Duration::from_secs(30), |load| load.admin_answers.contains_key(&tid));
        assert!(answered, "{json} has no answer: {:?}", self.world);
        self.take_answer(tid).expect("it was answered")
    }

    fn take_admin_answers(&mut self) {
        let Some(admin) = self.admin else { return };
        for done in self.world.take_finished(admin) {
            if let Finished::Command { tid, result, status, data } = done {
                self.admin_answers.insert(tid, AdminAnswer { result, status, data: data.to_bytes() });
            }
        }
    }

    /// One leader per term, whoever comes and goes.
    fn note_leaders(&mut self) {
        for n in 0..self.world.mon_count() {
            if let Some(driver) = self.world.monitor(n).filter(|driver| driver.mon().is_some()) {
                let term = driver.led_term().expect("it leads");
                let first = *self.leaders.entry(term).or_insert(n);
                assert_eq!(first, n, "two leaders of term {term}");
            }
        }
    }

    fn ask(&mut self, client: usize) {
        let asked = if self.world.below(2) == 0 {
            self.last_value += 1;
            Asked::Write(self.last_value)
        } else {
            Asked::Read
        };
        let text = match asked {
            Asked::Write(value) => {
                format!(r#"{{"prefix": "config-key set", "key": "register", "val": "{value}"}}"#)
            }
            Asked::Read => r#"{"prefix": "config-key get", "key": "register"}"#.to_owned(),
        };
        self.register.asked(client, asked);
        let tid = self.world.order(client, |client| client.command(&text));
        self.under_way.insert(client, (tid, asked));
    }

    fn take_answers(&mut self, client: usize) {
        for done in self.world.take_finished(client) {
            let Finished::Command { tid, result, data, .. } = done else { continue };
            let (of, asked) = self.under_way.remove(&client).expect("it asked for something");
            assert_eq!(tid, of, "one thing at a time");
            let text = String::from_utf8_lossy(&data.to_bytes()).into_owned();
            let read = match (asked, result) {
                (Asked::Write(_), 0) => None,
                (Asked::Read, 0) => Some(Some(text.parse().expect("a number"))),
                (Asked::Read, -2) => Some(None),
                _ => panic!("{asked:?} fails: {result}"),
            };
            self.register.answered(client, read);
            let now = self.world.now();
            self.longest_pause = self.longest_pause.max(now.since(self.last_answer));
            self.last_answer = now;
            self.answers += 1;
            *self.by_client.entry(client).or_default() += 1;
            self.next_at.insert(client, now + PACE);
        }
    }

    /// Lets time pass, up to `patience` or until `done` says so; true when it did.
    pub fn run_until(&mut self, patience: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.world.now() + patience;
        loop {
            self.take_admin_answers();
            self.note_leaders();
            for client in 0..CLIENTS {
                self.take_answers(client);
                let now = self.world.now();
                let is_due = self.next_at.get(&client).is_none_or(|at| now >= *at);
                if !self.is_stopped && is_due && !self.under_way.contains_key(&client) {
                    self.ask(client);
                }
            }
            if done(self) {
                return true;
            }
            if self.world.now() >= end {
                return false;
            }
            self.world.step(end.min(self.world.now() + Duration::from_millis(1)));
        }
    }

    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(duration, |_| false);
    }

    /// The longest pause since the last look, that up to now included.
    pub fn take_pause(&mut self) -> Duration {
        let pause = self.longest_pause.max(self.world.now().since(self.last_answer));
        self.longest_pause = Duration::ZERO;
        pause
    }

    /// One way, so many milliseconds from now on nothing passes between two processes.
    pub fn cut(&self, from: Proc, to: Proc) {
        self.world.fabric().block(from.host(), to.host());
    }

    pub fn cut_both(&self, one: Proc, other: Proc) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Nothing goes wrong any more, and all monitors run.
    pub fn heal(&mut self) {
        self.world.fabric().heal();
        for n in 0..self.world.mon_count() {
            self.world.set_slow(Proc::Mon(n), 1);
            if !self.world.runs(Proc::Mon(n)) && self.world.has_mon_store(n) {
                self.world.start_mon(n);
            }
        }
    }

    /// All is well again: everything is answered, and all monitors have the same tables.
    pub fn ends_well(mut self) {
        self.heal();
        self.is_stopped = true;
        let all_answered = self.run_until(Duration::from_secs(60), |load| load.under_way.is_empty());
        let monitors: Vec<_> = (0..self.world.mon_count()).map(|n| self.world.monitor(n)).collect();
        assert!(all_answered, "{:?} has no answer: {:?} {monitors:#?}", self.under_way, self.world);
        // The leader's own changes, such as the cluster log's, end as well; each monitor has what is committed within a second or two.
        let is_alike = |load: &Self| {
            let mut running = (0..load.world.mon_count()).filter(|n| load.world.runs(Proc::Mon(*n)));
            let first = running.next().map(|n| load.world.tables_of(n)).expect("somebody answers");
            running.all(|n| load.world.tables_of(n) == first)
        };
        let alike = (0..30).any(|_| {
            self.run_for(Duration::from_secs(1));
            is_alike(&self)
        });
        assert!(alike, "tables of monitors differ: {:?}", self.world);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The stories to be told: `count` of them unless the environment says otherwise.
pub fn seeds(count: u64) -> Vec<u64> {
    let first = number("SIM_FIRST").unwrap_or(0);
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, asked) => (first..first + asked.unwrap_or(count)).collect(),
    }
}
