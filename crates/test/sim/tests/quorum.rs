//! Several monitors: commands go on while a majority lives, what was acknowledged stays, and nobody is told what is not so.
//!
//! Clients write and read one key of the config-key store all the time. Their history must be that of one register ([`Register`]), whatever
//! happens to monitors and wires. `SIM_SEED=n` tells one story again; `SIM_SEEDS=count` tells many, from `SIM_FIRST` on.

use nacre_sim::{Config, Finished, Proc, World};
use nacre_types::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Clients that write and read.
const CLIENTS: usize = 3;
/// Between an answer and the client's next command: the monitors let a client ask for 50 changes per second.
const PACE: Duration = Duration::from_millis(100);
/// Stories of a normal run, with three monitors and with five.
const SEEDS: u64 = 8;

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
struct Load {
    world: World,
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
    by_client: BTreeMap<usize, u64>,
}

impl Load {
    fn new(seed: u64, mons: usize) -> Self {
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
        };
        // Sessions that end within three seconds count as failures, and their clients go to another monitor.
        load.run_for(Duration::from_secs(5));
        assert!(load.answers > 20, "{:?}", load.world);
        load.longest_pause = Duration::ZERO;
        load
    }

    /// The rank of the monitor that leads, by the newest term.
    fn leader(&self) -> Option<usize> {
        let leads = |n: &usize| self.world.monitor(*n).is_some_and(|driver| driver.mon().is_some());
        let term = |n: &usize| self.world.monitor(*n).map(nacre_monitor::Driver::term);
        (0..self.world.mon_count()).filter(leads).max_by_key(term)
    }

    /// How many monitors are in the quorum, as the leader's commands and health say it.
    fn quorum_shown(&self) -> usize {
        let leader = self.leader().expect("commands are answered");
        let state =
            self.world.monitor(leader).and_then(nacre_monitor::Driver::mon).expect("it leads").state();
        state.quorum.members(state.mon.map()).count()
    }

    fn clients_elsewhere_than_the_leader(&self) -> usize {
        let leader = self.leader().map(|n| Proc::Mon(n).host().ip());
        let at = |client| self.world.client(client).monitor()?.socket.map(|socket| socket.ip());
        (0..CLIENTS).filter(|client| at(*client).is_some_and(|ip| Some(ip) != leader)).count()
    }

    fn others(&self, n: usize) -> Vec<usize> {
        (0..self.world.mon_count()).filter(|other| *other != n).collect()
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
    fn run_until(&mut self, patience: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.world.now() + patience;
        loop {
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

    fn run_for(&mut self, duration: Duration) {
        self.run_until(duration, |_| false);
    }

    /// The longest pause since the last look, that up to now included.
    fn take_pause(&mut self) -> Duration {
        let pause = self.longest_pause.max(self.world.now().since(self.last_answer));
        self.longest_pause = Duration::ZERO;
        pause
    }

    /// One way, so many milliseconds from now on nothing passes between two processes.
    fn cut(&self, from: Proc, to: Proc) {
        self.world.fabric().block(from.host(), to.host());
    }

    fn cut_both(&self, one: Proc, other: Proc) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Nothing goes wrong any more, and all monitors run.
    fn heal(&mut self) {
        self.world.fabric().heal();
        for n in 0..self.world.mon_count() {
            self.world.set_slow(Proc::Mon(n), 1);
            if !self.world.runs(Proc::Mon(n)) {
                self.world.start_mon(n);
            }
        }
    }

    /// All is well again: everything is answered, and all monitors have the same tables.
    fn ends_well(mut self) {
        self.heal();
        self.is_stopped = true;
        let all_answered = self.run_until(Duration::from_secs(60), |load| load.under_way.is_empty());
        let monitors: Vec<_> = (0..self.world.mon_count()).map(|n| self.world.monitor(n)).collect();
        assert!(all_answered, "{:?} has no answer: {:?} {monitors:#?}", self.under_way, self.world);
        // The leader's own changes, such as the cluster log's, end as well; each monitor has what is committed within a second or two.
        let is_alike = |load: &Self| {
            let first = load.world.tables_of(0);
            load.others(0).into_iter().all(|n| load.world.tables_of(n) == first)
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

fn seeds() -> Vec<u64> {
    let first = number("SIM_FIRST").unwrap_or(0);
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (first..first + count.unwrap_or(SEEDS)).collect(),
    }
}

/// Exam Q1: at most 1 s.
#[test]
fn when_the_leaders_process_is_killed_another_takes_over_within_a_second() {
    for seed in 0..3 {
        let mut load = Load::new(seed, 3);
        for _ in 0..5 {
            let leader = load.leader().expect("commands are answered");
            load.world.stop_mon(leader, false);
            load.run_for(Duration::from_secs(5));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(1), "seed {seed}: {pause:?}");
            load.world.start_mon(leader);
            load.run_for(Duration::from_secs(5));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_millis(250), "seed {seed}: its return costs {pause:?}");
        }
        load.ends_well();
    }
}

/// Exam Q3: at most 2 s, for clients of the other monitors: those of the frozen one find out by its silence, as with Ceph. What the thawed
/// one says is no answer to anything ([`Register`]).
#[test]
fn when_the_leader_freezes_another_takes_over_within_two_seconds() {
    let worlds = (0..).map(|seed| (seed, Load::new(seed, 3)));
    let worlds = worlds.filter(|(_, load)| load.clients_elsewhere_than_the_leader() > 0);
    for (seed, mut load) in worlds.take(3) {
        for in_turn in [false, true] {
            let leader = load.leader().expect("commands are answered");
            if load.clients_elsewhere_than_the_leader() == 0 {
                continue;
            }
            let until = load.world.now() + Duration::from_secs(15);
            if in_turn {
                load.world.freeze_in_turn(Proc::Mon(leader), until);
            } else {
                load.world.freeze(Proc::Mon(leader), until);
            }
            load.run_for(Duration::from_secs(25));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(2), "seed {seed}, in a turn: {in_turn}: {pause:?}");
            assert_ne!(load.leader(), Some(leader), "it has not taken the lead again");
        }
        load.ends_well();
    }
}

/// A machine that is gone says nothing: as Q3.
#[test]
fn when_the_leaders_machine_loses_power_another_takes_over_within_two_seconds() {
    for seed in 0..3 {
        let mut load = Load::new(seed, 5);
        for _ in 0..2 {
            let leader = load.leader().expect("commands are answered");
            load.world.stop_mon(leader, true);
            load.run_for(Duration::from_secs(10));
            let pause = load.take_pause();
            assert!(pause <= Duration::from_secs(2), "seed {seed}: {pause:?}");
        }
        load.ends_well();
    }
}

/// Exam Q5: nothing is noticed of a monitor that does not lead but by its own clients.
#[test]
fn when_another_monitor_is_killed_and_returns_commands_go_on() {
    for seed in 0..3 {
        let mut load = Load::new(seed, 3);
        let leader = load.leader().expect("commands are answered");
        for n in load.others(leader) {
            load.world.stop_mon(n, false);
            load.run_for(Duration::from_secs(3));
            assert_eq!(load.quorum_shown(), 2, "seed {seed}: MON_DOWN says so");
            load.world.start_mon(n);
            load.run_for(Duration::from_secs(3));
            assert_eq!(load.quorum_shown(), 3, "seed {seed}: it is back");
            let pause = load.take_pause();
            assert!(pause <= Duration::from_millis(250), "seed {seed}: {pause:?}");
        }
        assert_eq!(load.leader(), Some(leader), "no election was needed");
        load.ends_well();
    }
}

/// Exam Q4: two seconds after the cut the minority answers nothing, neither its leader nor its clients' fronts, and after healing nobody
/// who led in the majority has to give that up.
#[test]
fn a_minority_answers_nothing() {
    for seed in 0..4 {
        let mut load = Load::new(seed, 3);
        let old = load.leader().expect("commands are answered");
        let (inside, outside) = (Proc::Client(0), [Proc::Client(1), Proc::Client(2)]);
        for other in load.others(old) {
            load.cut_both(Proc::Mon(old), Proc::Mon(other));
            load.cut_both(inside, Proc::Mon(other));
        }
        outside.into_iter().for_each(|client| load.cut_both(client, Proc::Mon(old)));
        load.run_for(Duration::from_secs(2));
        let before = load.by_client.clone();
        load.run_for(Duration::from_secs(40));
        assert_eq!(load.by_client.get(&0), before.get(&0), "seed {seed}: the minority answers");
        for client in [1, 2] {
            assert!(load.by_client[&client] > before[&client] + 50, "seed {seed}: the majority serves");
        }
        let leader = load.leader();
        assert!(leader.is_some_and(|leader| leader != old), "seed {seed}");
        load.world.fabric().heal();
        load.run_for(Duration::from_secs(10));
        assert_eq!(load.leader(), leader, "seed {seed}: an election without need");
        load.ends_well();
    }
}

/// A monitor that was away for longer than the log is kept gets all tables.
#[test]
fn a_monitor_that_is_too_far_behind_gets_all_tables() {
    let mut load = Load::new(1, 3);
    let leader = load.leader().expect("commands are answered");
    let away = load.others(leader)[0];
    load.world.stop_mon(away, true);
    load.run_for(Duration::from_secs(30));
    load.world.start_mon(away);
    load.run_for(Duration::from_secs(3));
    let pause = load.take_pause();
    assert!(pause <= Duration::from_millis(250), "{pause:?}");
    load.ends_well();
}

/// Whatever happens to monitors and wires.
fn story(seed: u64, mons: usize) {
    let mut load = Load::new(seed, mons);
    for _ in 0..12 {
        let n = usize::try_from(load.world.below(mons as u64)).expect("few");
        let other = load.others(n)[usize::try_from(load.world.below(mons as u64 - 1)).expect("few")];
        let now = load.world.now();
        match load.world.below(8) {
            0 | 1 if load.world.runs(Proc::Mon(n)) => {
                let power = load.world.below(2) == 0;
                load.world.stop_mon(n, power);
            }
            2 => {
                let until = now + Duration::from_millis(200 + load.world.below(8000));
                load.world.freeze(Proc::Mon(n), until);
            }
            3 => {
                let until = now + Duration::from_millis(200 + load.world.below(8000));
                load.world.freeze_in_turn(Proc::Mon(n), until);
            }
            4 => load.cut(Proc::Mon(n), Proc::Mon(other)),
            5 => {
                for other in load.others(n) {
                    load.cut_both(Proc::Mon(n), Proc::Mon(other));
                }
            }
            6 => {
                let factor = 2 + u32::try_from(load.world.below(30)).expect("few");
                load.world.set_slow(Proc::Mon(n), factor);
            }
            _ => load.heal(),
        }
        let pause = Duration::from_millis(100 + load.world.below(6000));
        load.run_for(pause);
    }
    load.ends_well();
}

fn stories(mons: usize) {
    for seed in seeds() {
        let outcome = std::panic::catch_unwind(|| story(seed, mons));
        assert!(outcome.is_ok(), "seed {seed} with {mons} monitors does not end well");
    }
}

#[test]
fn stories_of_three_monitors_end_well() {
    stories(3);
}

#[test]
fn stories_of_five_monitors_end_well() {
    stories(5);
}
