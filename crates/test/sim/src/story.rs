//! [`Story`]: a cluster, its clients and its misfortunes, from one seed.

use crate::net::Wires;
use crate::workload::Workload;
use crate::world::{Config, Proc, World};
use nacre_client::Finished;
use nacre_msg::stats::pg_state;
use nacre_pg::Tuning;
use nacre_types::{OsdId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// The pool that everything happens in.
const POOL: i64 = 1;
/// The cluster must be there within this time.
const BIRTH: Duration = Duration::from_secs(60);
/// Once nothing goes wrong any more, everything must be answered, active and clean within this time.
const HEALING: Duration = Duration::from_secs(300);

/// How long a story is, and how dense.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How long things go wrong.
    pub troubles: Duration,
    /// Most messages of one client.
    pub messages_max: u64,
    /// How many objects they are about; by chance if not given.
    pub objects: Option<u64>,
    /// How placement groups behave.
    pub tuning: Tuning,
}

impl Default for Plan {
    fn default() -> Self {
        let tuning = Tuning { checked: true, ..Tuning::default() };
        Self { troubles: Duration::from_secs(60), messages_max: 150, objects: None, tuning }
    }
}

/// What happens by itself at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Later {
    Start(Proc),
    Crash(OsdId, bool),
    Heal,
    Fast(Proc),
    Whole,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Story {
    seed: u64,
    world: World,
    work: Workload,
    /// The client that gives commands.
    admin: usize,
    later: BTreeMap<(Stamp, u64), Later>,
    count: u64,
    pg_num: u64,
    troubles: BTreeMap<&'static str, u64>,
    /// Mean time between two troubles.
    calm: Duration,
    verbose: bool,
    /// Epoch of the last map that was written down.
    noted: u32,
}

impl Story {
    /// A cluster with a pool.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let mut world = World::new(seed, &Config { osds: 4, clients: 4, tuning: plan.tuning });
        let calm = Duration::from_millis(500 << world.below(5));
        let pause = plan.troubles / u32::try_from(plan.messages_max).unwrap_or(u32::MAX).max(1);
        let pg_num = 1 + world.below(4);
        let by_chance = 2 + world.below(5);
        let objects = plan.objects.unwrap_or(by_chance);
        let clients = 1 + usize::try_from(world.below(3)).unwrap_or(0);
        let verbose = std::env::var_os("SIM_LOG").is_some();
        if verbose {
            nacre_service::log::start();
        }
        let mut story = Self {
            seed,
            work: Workload::new(POOL, objects, clients, pause),
            world,
            admin: 3,
            later: BTreeMap::new(),
            count: 0,
            pg_num,
            troubles: BTreeMap::new(),
            calm,
            verbose,
            noted: 0,
        };
        let pool = format!(r#"{{"prefix": "osd pool create", "pool": "p", "pg_num": {pg_num}}}"#);
        let ready = story.command(&pool, BIRTH);
        assert!(ready, "seed {seed}: no pool after {BIRTH:?}: {:?}", story.world);
        story
    }

    /// Gives a command and waits for the answer.
    fn command(&mut self, json: &str, patience: Duration) -> bool {
        let admin = self.admin;
        let tid = self.world.order(admin, |client| client.command(json));
        self.world.run_until(patience, |world| {
            let done = world.take_finished(admin);
            done.iter().any(|one| matches!(one, Finished::Command { tid: of, .. } if *of == tid))
        })
    }

    /// Gives a command whose answer nobody waits for.
    fn order(&mut self, json: &str) {
        self.note(|| format!("command {json}"));
        self.world.order(self.admin, |client| client.command(json));
    }

    fn note(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            tracing::info!("{:>10.6} {}", self.world.now().0 as f64 / 1e9, what());
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.world.below(bound)
    }

    /// Between a tenth of a second and `max`, short times as likely as long ones.
    fn while_(&mut self, max: Duration) -> Duration {
        let tenths = u64::try_from(max.as_millis() / 100).unwrap_or(1).max(1);
        let bound = 1 + self.below(tenths);
        Duration::from_millis(100 * (1 + self.below(bound)))
    }

    fn at(&mut self, after: Duration, what: Later) {
        self.count += 1;
        self.later.insert((self.world.now() + after, self.count), what);
    }

    fn any_osd(&mut self) -> OsdId {
        let ids = self.world.osd_ids();
        let at = self.below(ids.len() as u64);
        ids[usize::try_from(at).unwrap_or(0)]
    }

    /// Something goes wrong.
    fn trouble(&mut self) {
        let osd = self.any_osd();
        let what = match self.below(16) {
            0 => self.crash(osd, false),
            1 => self.crash(osd, true),
            2 | 3 => self.crash_in_the_act(osd),
            4 => self.crash_mon(),
            5 if self.below(2) == 0 => self.crash_all(),
            5 => self.take_turns(),
            6 | 7 => self.partition(osd),
            8 => self.reset(),
            9 => self.freeze(osd),
            10 => self.slow(osd),
            11 => self.lossy(),
            12 | 13 => self.churn(osd),
            14 => self.snapshot(),
            _ => self.defame(osd),
        };
        *self.troubles.entry(what).or_default() += 1;
    }

    fn crash(&mut self, osd: OsdId, power: bool) -> &'static str {
        if self.world.runs(Proc::Osd(osd)) {
            self.note(|| format!("osd.{osd} ends, power {power}"));
            self.world.stop_osd(osd, power);
            let back = self.while_(Duration::from_secs(20));
            self.at(back, Later::Start(Proc::Osd(osd)));
        }
        if power { "power loss" } else { "kill" }
    }

    /// An OSD ends while writes are on their way.
    fn crash_in_the_act(&mut self, osd: OsdId) -> &'static str {
        self.work.hurry();
        let power = self.below(2) == 0;
        let soon = Duration::from_micros(self.below(2000));
        self.at(soon, Later::Crash(osd, power));
        "end in the act"
    }

    fn crash_mon(&mut self) -> &'static str {
        if self.world.runs(Proc::Mon) {
            let power = self.below(2) == 0;
            self.note(|| format!("the monitor ends, power {power}"));
            self.world.stop_mon(power);
            let back = self.while_(Duration::from_secs(10));
            self.at(back, Later::Start(Proc::Mon));
        }
        "monitor ends"
    }

    fn crash_all(&mut self) -> &'static str {
        for osd in self.world.osd_ids() {
            self.crash(osd, true);
        }
        "power loss of all"
    }

    /// Half of the OSDs end; when they come back, the other half does: whoever served alone takes along what it
    /// alone has.
    fn take_turns(&mut self) -> &'static str {
        let mut ids = self.world.osd_ids();
        for last in (1..ids.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(0);
            ids.swap(last, other);
        }
        let away = Duration::from_millis(3000 + self.below(9000));
        let (first, second) = ids.split_at(ids.len() / 2);
        self.note(|| format!("{first:?} end, and after {away:?} {second:?}"));
        for osd in first {
            self.world.stop_osd(*osd, false);
            let back = away + Duration::from_millis(self.below(1000));
            self.at(back, Later::Start(Proc::Osd(*osd)));
        }
        for osd in second {
            let gone = away + Duration::from_millis(self.below(1000));
            self.at(gone, Later::Crash(*osd, false));
        }
        "taking turns"
    }

    fn partition(&mut self, osd: OsdId) -> &'static str {
        let one = Proc::Osd(osd).host();
        let (both, all) = (self.below(2) == 0, self.below(2) == 0);
        let others: Vec<Proc> = match self.below(4) {
            0 if all => {
                // An island: clients still reach it, and nobody else.
                let ids = self.world.osd_ids().into_iter().filter(|other| *other != osd);
                ids.map(Proc::Osd).chain([Proc::Mon]).collect()
            }
            0 => vec![Proc::Mon],
            1 => (0..self.world.client_count()).map(Proc::Client).collect(),
            _ => {
                let ids = self.world.osd_ids().into_iter().filter(|other| *other != osd);
                let peers: Vec<Proc> = ids.map(Proc::Osd).collect();
                if all { peers } else { peers.into_iter().take(1).collect() }
            }
        };
        self.note(|| format!("osd.{osd} is cut off from {others:?}, both ways {both}"));
        for other in others {
            self.world.fabric().block(one, other.host());
            if both {
                self.world.fabric().block(other.host(), one);
            }
        }
        let healed = self.while_(Duration::from_secs(20));
        self.at(healed, Later::Heal);
        "partition"
    }

    fn reset(&mut self) -> &'static str {
        let found = self.world.fabric().reset_one(|_, _| true);
        self.note(|| format!("a connection is reset: {found}"));
        "reset"
    }

    fn freeze(&mut self, osd: OsdId) -> &'static str {
        let proc = if self.below(4) == 0 { Proc::Mon } else { Proc::Osd(osd) };
        let long = self.while_(Duration::from_secs(30));
        self.note(|| format!("{proc:?} is frozen for {long:?}"));
        let until = self.world.now() + long;
        self.world.freeze(proc, until);
        "freeze"
    }

    fn slow(&mut self, osd: OsdId) -> &'static str {
        let factor = 1 << (2 + self.below(7));
        let factor = u32::try_from(factor).unwrap_or(4);
        self.note(|| format!("osd.{osd} is slower by {factor}"));
        self.world.set_slow(Proc::Osd(osd), factor);
        let long = self.while_(Duration::from_secs(20));
        self.at(long, Later::Fast(Proc::Osd(osd)));
        "slow"
    }

    fn lossy(&mut self) -> &'static str {
        let loss_permille = 1 + self.below(50);
        self.note(|| format!("wires lose {loss_permille} of a thousand"));
        let spread = Duration::from_micros(100 << self.below(8));
        self.world.fabric().set_wires(Wires { loss_permille, delay_spread: spread, ..Wires::default() });
        let long = self.while_(Duration::from_secs(20));
        self.at(long, Later::Whole);
        "loss"
    }

    fn churn(&mut self, osd: OsdId) -> &'static str {
        match self.below(6) {
            0 => self.order(&format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#)),
            1 => self.order(&format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#)),
            2 if self.pg_num > 1 && self.below(2) == 0 => {
                self.pg_num -= 1 + self.below(self.pg_num - 1);
                self.set_pool("pg_num", self.pg_num);
            }
            2 if self.pg_num < 16 => {
                self.pg_num += 1 + self.below(self.pg_num);
                let pg_num = self.pg_num;
                for var in ["pg_num", "pgp_num"] {
                    self.set_pool(var, pg_num);
                }
            }
            3 => {
                let size = 2 + self.below(3);
                self.set_pool("size", size);
                let min_size = 1 + self.below(size.min(2));
                self.set_pool("min_size", min_size.max(2).min(size));
            }
            _ => {
                let group = self.below(self.pg_num);
                let to = self.any_osd();
                self.order(&format!(
                    r#"{{"prefix": "osd pg-upmap-items", "pgid": "{POOL}.{group:x}", "id": [{osd}, {to}]}}"#
                ));
            }
        }
        "map change"
    }

    fn set_pool(&mut self, var: &str, value: u64) {
        self.order(&format!(
            r#"{{"prefix": "osd pool set", "pool": "p", "var": "{var}", "val": "{value}"}}"#
        ));
    }

    fn snapshot(&mut self) -> &'static str {
        self.work.snapshot(&mut self.world, 0);
        "snapshot"
    }

    fn defame(&mut self, osd: OsdId) -> &'static str {
        self.order(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"]}}"#));
        "false report"
    }

    fn do_later(&mut self, what: Later) {
        self.note(|| format!("{what:?}"));
        match what {
            Later::Start(proc) if self.world.runs(proc) => {}
            Later::Start(Proc::Mon) => self.world.start_mon(),
            Later::Start(Proc::Osd(osd)) => self.world.start_osd(osd),
            Later::Start(Proc::Client(_)) => {}
            Later::Crash(osd, power) => drop(self.crash(osd, power)),
            Later::Heal => self.world.fabric().heal(),
            Later::Fast(proc) => self.world.set_slow(proc, 1),
            Later::Whole => self.world.fabric().set_wires(Wires::default()),
        }
    }

    /// Lets everything go on until `end`, with troubles every `calm` if given.
    fn go_on(&mut self, end: Stamp, calm: Option<Duration>) {
        let mut trouble_at = self.world.now();
        while self.world.now() < end {
            let later = self.later.keys().next().map(|(at, _)| *at);
            let trouble = calm.map(|_| trouble_at);
            let next = self.work.next_at().into_iter().chain(later).chain(trouble).chain([end]).min();
            let next = next.unwrap_or(end).max(self.world.now());
            while self.world.step(next) {
                self.work.turn(&mut self.world);
                self.note_map();
            }
            self.work.turn(&mut self.world);
            for osd in self.world.take_gave_up() {
                self.note(|| format!("osd.{osd} gave up"));
                self.at(Duration::from_secs(5), Later::Start(Proc::Osd(osd)));
            }
            while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= next) {
                let what = entry.remove();
                self.do_later(what);
            }
            if let Some(calm) = calm.filter(|_| trouble_at <= next) {
                self.trouble();
                let bound = 2 * u64::try_from(calm.as_millis()).unwrap_or(1);
                trouble_at = self.world.now() + Duration::from_millis(1 + self.below(bound));
            }
        }
    }

    /// Writes down what a new map changes, when somebody looks for it.
    fn note_map(&mut self) {
        let Some(mon) = self.world.mon().filter(|_| self.verbose) else { return };
        let map = mon.state().osd.map();
        if map.epoch == self.noted {
            return;
        }
        let up: Vec<_> =
            map.up_osds().map(|osd| (osd, map.info(osd).up_from, map.info(osd).up_thru)).collect();
        let groups = map.pool(POOL).map_or(0, |pool| pool.pg_num);
        let acting: Vec<_> =
            (0..groups).map(|seed| map.pg_to_up_acting(nacre_types::PgId::new(POOL, seed)).acting).collect();
        self.note(|| format!("map {} up {up:?} temp {:?} acting {acting:?}", map.epoch, map.pg_temp));
        self.noted = map.epoch;
    }

    /// Nothing goes wrong any more.
    fn end_troubles(&mut self) {
        while let Some((_, what)) = self.later.pop_first() {
            if !matches!(what, Later::Crash(..)) {
                self.do_later(what);
            }
        }
        self.world.fabric().heal();
        self.world.fabric().set_wires(Wires::default());
        for osd in self.world.osd_ids() {
            self.world.set_slow(Proc::Osd(osd), 1);
            self.order(&format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#));
        }
        self.set_pool("size", 3);
        self.set_pool("min_size", 2);
    }

    fn is_clean(&self) -> bool {
        let Some(mon) = self.world.mon() else { return false };
        let map = mon.state().osd.map();
        let Some(pool) = map.pool(POOL).filter(|pool| pool.pg_num == pool.pg_num_target) else {
            return false;
        };
        let wanted = pool.pg_num as usize;
        let all_up = map.up_count() == self.world.osd_ids().len();
        let clean = pg_state::ACTIVE | pg_state::CLEAN;
        let groups: Vec<u64> = mon.state().stats.pgs.pgs(map).map(|(_, stat)| stat.state).collect();
        all_up && groups.len() == wanted && groups.iter().all(|state| *state == clean)
    }

    /// All copies of everything are the same: a deep scrub of every group finds nothing.
    fn compare_copies(&mut self) {
        let patience = self.world.now() + HEALING;
        let since = self.world.client(self.admin).wall();
        loop {
            let mut left = Vec::new();
            let states = self.world.mon().map_or_else(Vec::new, |mon| {
                let map = mon.state().osd.map();
                mon.state()
                    .stats
                    .pgs
                    .pgs(map)
                    .map(|(pg, stat)| (pg, stat.state, stat.last_deep_scrub_stamp))
                    .collect()
            });
            for (pg, state, scrubbed) in &states {
                if state & pg_state::INCONSISTENT != 0 {
                    self.fail(&format!("the copies of {pg} differ"));
                }
                // Calendars differ a little.
                if *scrubbed < since.after(Duration::from_secs(1)) {
                    left.push(*pg);
                }
            }
            if left.is_empty() && !states.is_empty() {
                return;
            }
            if self.world.now() >= patience {
                self.fail(&format!("{left:?} are not scrubbed after {HEALING:?}"));
            }
            let next = self.world.now() + Duration::from_secs(2);
            self.go_on(next, None);
            for pg in left {
                self.order(&format!(r#"{{"prefix": "pg deep-scrub", "pgid": "{pg}"}}"#));
            }
            let next = self.world.now() + Duration::from_secs(3);
            self.go_on(next, None);
        }
    }

    fn fail(&self, why: &str) -> ! {
        let states: Vec<String> = self.world.mon().map_or_else(Vec::new, |mon| {
            let map = mon.state().osd.map();
            let shown = mon.state().stats.pgs.pgs(map).map(|(pg, stat)| {
                format!("{pg} {} {:?}", pg_state::text(stat.state), map.pg_to_up_acting(pg))
            });
            let up: Vec<_> = map.up_osds().collect();
            [format!("epoch {} up {up:?}", map.epoch)].into_iter().chain(shown).collect()
        });
        let (seed, world, troubles) = (self.seed, &self.world, &self.troubles);
        let clients: Vec<String> =
            (0..world.client_count()).map(|n| format!("{:?}", world.client(n))).collect();
        let (states, clients) = (states.join("\n"), clients.join("\n"));
        panic!("seed {seed}: {why}\n{world:?}\n{troubles:?}\n{states}\n{clients}");
    }

    /// Tells it to the end.
    ///
    /// # Panics
    /// When the cluster breaks a promise.
    pub fn tell(mut self, plan: &Plan) -> Outcome {
        let end = self.world.now() + plan.troubles;
        self.go_on(end, Some(self.calm));
        self.note(|| "the troubles end".to_owned());
        self.work.stop();
        self.end_troubles();
        let patience = self.world.now() + HEALING;
        while !(self.work.open() == 0 && self.is_clean()) {
            if self.world.now() >= patience {
                let open = self.work.open();
                self.fail(&format!("not clean after {HEALING:?}, {open} messages without an answer"));
            }
            let next = self.world.now() + Duration::from_secs(1);
            self.go_on(next, None);
        }
        self.work.read_all(&mut self.world);
        let patience = self.world.now() + HEALING;
        while self.work.open() > 0 {
            if self.world.now() >= patience {
                self.fail("the last reads get no answer");
            }
            let next = self.world.now() + Duration::from_millis(100);
            self.go_on(next, None);
        }
        if let Err(why) = self.work.check() {
            self.fail(&why);
        }
        self.compare_copies();
        let (trace, steps) = self.world.trace();
        let answered = self.work.answered();
        Outcome { trace, steps, now: self.world.now(), random: self.below(u64::MAX), answered }
    }
}

/// What a story comes to; the same for the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Follows from everything that happened, in order.
    pub trace: u64,
    /// How much happened.
    pub steps: u64,
    /// The clock at the end.
    pub now: Stamp,
    /// The next random number.
    pub random: u64,
    /// Messages answered.
    pub answered: usize,
}

/// Tells the story of a seed.
///
/// # Panics
/// When the cluster breaks a promise.
#[must_use]
pub fn tell(seed: u64, plan: &Plan) -> Outcome {
    Story::new(seed, plan).tell(plan)
}
