//! [`MonLoad`]: a world of monitors, and clients that write and read one key of the config-key store all the time.

use crate::register::{Asked, Register};
use crate::{Config, Finished, Proc, World};
use nacre_buf::Bytes;
use nacre_types::Stamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Clients that write and read.
pub const CLIENTS: usize = 3;
/// Between an answer and the client's next command: the monitors let a client ask for 50 changes per second.
const PACE: Duration = Duration::from_millis(100);

/// A world of monitors, and clients that write and read.
pub struct MonLoad {
    /// The world of the monitors and clients.
    pub world: World,
    register: Register,
    under_way: BTreeMap<usize, (u64, Asked)>,
    next_at: BTreeMap<usize, Stamp>,
    is_stopped: bool,
    /// Which member of the log led in each term, by the word of any.
    leaders: BTreeMap<u64, u64>,
    /// Which monitor led in each term, by its own word.
    led: BTreeMap<u64, usize>,
    last_value: u64,
    /// Commands answered, and the longest time without an answer since that was last looked at.
    answers: u64,
    last_answer: Stamp,
    longest_pause: Duration,
    /// Answers by client.
    pub by_client: BTreeMap<usize, u64>,
    /// One more client, which orders what operators do, once they do something.
    admin: Option<usize>,
    admin_answers: BTreeMap<u64, AdminAnswer>,
}

/// What an operator's command was answered.
#[derive(Debug, Clone)]
pub struct AdminAnswer {
    /// 0, or an error as in Linux, negated.
    pub result: i32,
    /// What it says to people.
    pub status: String,
    /// What it says to programs.
    pub data: Bytes,
}

impl MonLoad {
    /// So many monitors, for five seconds in which nothing goes wrong.
    ///
    /// # Panics
    /// When clients are not answered.
    #[must_use]
    pub fn new(seed: u64, mons: usize) -> Self {
        Self::with(seed, &Config { mons, ..Config::default() })
    }

    /// The same with another configuration, whose clients and OSDs do not matter.
    ///
    /// # Panics
    /// When clients are not answered.
    #[must_use]
    pub fn with(seed: u64, config: &Config) -> Self {
        if std::env::var_os("SIM_LOG").is_some() {
            nacre_service::log::start();
        }
        let world = World::new(seed, &Config { osds: 0, clients: CLIENTS, ..config.clone() });
        let mut load = Self {
            last_answer: world.now(),
            world,
            register: Register::new(),
            under_way: BTreeMap::new(),
            next_at: BTreeMap::new(),
            is_stopped: false,
            leaders: BTreeMap::new(),
            led: BTreeMap::new(),
            last_value: 0,
            answers: 0,
            longest_pause: Duration::ZERO,
            by_client: BTreeMap::new(),
            admin: None,
            admin_answers: BTreeMap::new(),
        };
        // Sessions that end within three seconds count as failures, and their clients go to another monitor.
        load.run_for(Duration::from_secs(5));
        assert!(load.answers > 20, "{:?}", load.world);
        load.longest_pause = Duration::ZERO;
        load
    }

    /// The rank of the monitor that leads, by the newest term.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let leads = |n: &usize| self.world.monitor(*n).is_some_and(|driver| driver.mon().is_some());
        let term = |n: &usize| self.world.monitor(*n).map(nacre_monitor::Driver::term);
        (0..self.world.mon_count()).filter(leads).max_by_key(term)
    }

    /// How many monitors are in the quorum, as the leader's commands and health say it.
    ///
    /// # Panics
    /// When nobody leads.
    #[must_use]
    pub fn quorum_shown(&self) -> usize {
        let leader = self.leader().expect("commands are answered");
        let state =
            self.world.monitor(leader).and_then(nacre_monitor::Driver::mon).expect("it leads").state();
        state.quorum.members(state.mon.map()).count()
    }

    /// Clients whose monitor is another than the leader.
    #[must_use]
    pub fn clients_elsewhere_than_the_leader(&self) -> usize {
        let leader = self.leader().map(|n| Proc::Mon(n).host().ip());
        let at = |client| self.world.client(client).monitor()?.socket.map(|socket| socket.ip());
        (0..CLIENTS).filter(|client| at(*client).is_some_and(|ip| Some(ip) != leader)).count()
    }

    /// All monitors but one.
    #[must_use]
    pub fn others(&self, n: usize) -> Vec<usize> {
        (0..self.world.mon_count()).filter(|other| *other != n).collect()
    }

    /// The monitors that the leader's map names and that have a store; none without a leader.
    fn members(&self) -> Vec<usize> {
        let mon = self.leader().and_then(|n| self.world.monitor(n)).and_then(nacre_monitor::Driver::mon);
        let is_named = |n: &usize| {
            mon.is_some_and(|mon| mon.state().mon.map().mons.contains_key(&self.world.mon_place(*n).0))
        };
        (0..self.world.mon_count()).filter(is_named).filter(|n| self.world.has_mon_store(*n)).collect()
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
    ///
    /// # Panics
    /// When there is none within 30 s.
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

    /// Nobody leads a term that another one led, or believes that another one does, whoever comes and goes.
    fn check_leaders(&mut self) {
        for n in 0..self.world.mon_count() {
            let Some(driver) = self.world.monitor(n) else { continue };
            if let Some((term, id)) = driver.believed_leader() {
                let known = *self.leaders.entry(term).or_insert(id);
                assert_eq!(known, id, "two monitors lead in term {term}: {:?}", self.world);
            }
            if let Some(term) = driver.led_term() {
                let first = *self.led.entry(term).or_insert(n);
                assert_eq!(first, n, "two leaders of term {term}");
            }
        }
    }

    /// No two clients have the same global id.
    ///
    /// # Panics
    /// When two have.
    pub fn check_ids(&self) {
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        for client in 0..CLIENTS {
            let id = self.world.client(client).global_id();
            let before = seen.insert(id, client).filter(|_| id != 0);
            assert_eq!(before, None, "clients {before:?} and {client} have the same global id {id}");
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
    ///
    /// # Panics
    /// When an answer is wrong, or two monitors lead in one term.
    pub fn run_until(&mut self, patience: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
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
            self.take_admin_answers();
            self.check_leaders();
            if done(self) {
                return true;
            }
            if self.world.now() >= end {
                return false;
            }
            self.world.step(end.min(self.world.now() + Duration::from_millis(1)));
        }
    }

    /// Lets time pass.
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

    /// The same both ways.
    pub fn cut_both(&self, one: Proc, other: Proc) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Nothing goes wrong any more, and all monitors that have a store run.
    pub fn heal(&mut self) {
        self.world.fabric().heal();
        for n in 0..self.world.mon_count() {
            self.world.set_slow(Proc::Mon(n), 1);
            if !self.world.runs(Proc::Mon(n)) && self.world.has_mon_store(n) {
                self.world.start_mon(n);
            }
        }
    }

    /// All is well again: everything is answered, and all monitors of the cluster have the same tables.
    ///
    /// # Panics
    /// When something is not.
    pub fn ends_well(mut self) {
        self.heal();
        self.is_stopped = true;
        let all_answered = self.run_until(Duration::from_secs(60), |load| load.under_way.is_empty());
        let monitors: Vec<_> = (0..self.world.mon_count()).map(|n| self.world.monitor(n)).collect();
        assert!(all_answered, "{:?} has no answer: {:?} {monitors:#?}", self.under_way, self.world);
        // The leader's own changes, such as the cluster log's, end as well; each monitor has what is committed within a second or two.
        let is_alike = |load: &Self| {
            let Some(leader) = load.leader() else { return false };
            let known = load.world.tables_of(leader);
            load.members().into_iter().all(|n| load.world.tables_of(n) == known)
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

/// The stories to be told: `count` of them unless the environment says otherwise (`SIM_SEED`, or `SIM_FIRST` and `SIM_SEEDS`).
#[must_use]
pub fn mon_seeds(count: u64) -> Vec<u64> {
    let first = number("SIM_FIRST").unwrap_or(0);
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, asked) => (first..first + asked.unwrap_or(count)).collect(),
    }
}
