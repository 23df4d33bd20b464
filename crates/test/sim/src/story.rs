//! [`Story`]: a cluster, its clients and its misfortunes, from one seed.
//!
//! | file | holds |
//! |---|---|
//! | `plan` | what a story is about, and for how long |
//! | `troubles` | what goes wrong |
//! | `replace`, `upgrade` | devices and OSDs that are replaced, programs that are |
//! | `fence`, `pools` | clients that are shut out, pools beside the story's own |
//! | `ending` | how it must end |

mod ending;
mod fence;
mod plan;
mod pools;
mod replace;
mod troubles;
mod upgrade;

pub use self::ending::Outcome;
use self::fence::Fencing;
use self::plan::{CODES, Code};
pub use self::plan::{Flaw, Kind, Plan};
use self::pools::Other;
use self::replace::Leaving;
use self::upgrade::Programs;

use crate::net::Wires;
use crate::watching::Watching;
use crate::workload::Workload;
use crate::world::{OsdCopy, Proc, World};
use nacre_client::Finished;
use nacre_maps::{OsdMap, UpActing};
use nacre_types::{CompressionAlgorithm, Epoch, OsdId, PgId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// The pool that everything happens in.
const POOL: i64 = 1;
/// The cluster must be there within this time.
const BIRTH: Duration = Duration::from_secs(60);

/// What happens by itself at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Later {
    Start(Proc),
    Crash(OsdId, bool),
    /// An OSD ends, until something else starts it.
    Stop(OsdId),
    Heal,
    Fast(Proc),
    Whole,
    /// A flag is set, or unset.
    Flag(&'static str),
    /// The pool has no quota any more.
    NoQuota,
    /// OSDs are full when they usually are.
    NotFull,
    /// The bad device fails no more requests.
    Mended,
    /// An OSD that is being replaced is asked whether it can be spared.
    Leave,
    /// The bad device is gone for good.
    Lose(OsdId),
    /// An OSD that is too new for the others gets a program that they understand.
    SetBack(OsdId),
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
    plan: Plan,
    /// Of an erasure-coded pool.
    code: Option<Code>,
    /// Whose device is bad.
    bad: Option<OsdId>,
    /// Until then writes that the bad device forgot may be known to be acknowledged in memory only.
    unwritten_until: Stamp,
    /// What the bad device held some time ago.
    copy: Option<OsdCopy>,
    /// The OSD that is being replaced, as far as that is.
    leaving: Option<Leaving>,
    /// What is known of the number of PGs, and since which epoch.
    divided: (u32, Epoch),
    /// When the bad device was gone for good, for the last time.
    lost_in: Epoch,
    /// The client that is being shut out, and how many have been.
    fencing: Option<Fencing>,
    fenced: u32,
    /// Pools beside the one that the story is about, and how many were made.
    others: Vec<Other>,
    made: u32,
    /// Which programs OSDs run, where they are upgraded.
    programs: Programs,
    /// Who watches, where there is bustle.
    watching: Option<Watching>,
    troubles: BTreeMap<&'static str, u64>,
    /// Mean time between two troubles.
    calm: Duration,
    verbose: bool,
    /// Epoch of the last map that was written down.
    noted: u32,
    /// Most bytes of objects that were compressed at a time.
    compressed_bytes: u64,
}

impl Story {
    /// A cluster with a pool.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let coded = plan.kind.is_coded();
        let osds = if coded { 6 } else { 4 };
        let mut world = World::new(seed, &plan.config(osds));
        let one_of = |world: &mut World| {
            let at = usize::try_from(world.below(CODES.len() as u64)).unwrap_or(0);
            CODES[at]
        };
        let bad = plan.flaw.map(|_| OsdId::try_from(world.below(4)).unwrap_or(0));
        let code = coded.then(|| one_of(&mut world));
        let calm = Duration::from_millis(500 << world.below(5));
        let pause = plan.troubles / u32::try_from(plan.messages_max).unwrap_or(u32::MAX).max(1);
        let pg_num = (1 + world.below(4)).max(plan.shards as u64);
        let by_chance = 2 + world.below(5);
        let objects = plan.objects.unwrap_or(by_chance);
        let clients = 1 + usize::try_from(world.below(3)).unwrap_or(0);
        let verbose = std::env::var_os("SIM_LOG").is_some();
        if verbose {
            nacre_service::log::start();
        }
        let mut story = Self {
            seed,
            work: Workload::new(POOL, objects, 0..clients, pause, code.map(|code| stripe_bytes(code.k))),
            world,
            admin: 3,
            later: BTreeMap::new(),
            count: 0,
            pg_num,
            plan: *plan,
            code,
            bad,
            unwritten_until: Stamp::default(),
            copy: None,
            leaving: None,
            divided: (0, 0),
            lost_in: 0,
            fencing: None,
            fenced: 0,
            others: Vec::new(),
            made: 0,
            programs: Programs::default(),
            watching: None,
            troubles: BTreeMap::new(),
            calm,
            verbose,
            noted: 0,
            compressed_bytes: 0,
        };
        let mut pool = format!(r#"{{"prefix": "osd pool create", "pool": "p", "pg_num": {pg_num}}}"#);
        if let Some(Code { k, m }) = code {
            let technique = TECHNIQUES[usize::try_from(seed / 7 % 4).expect("small")];
            let profile = format!(
                r#"{{"prefix": "osd erasure-code-profile set", "name": "e", "profile": ["k={k}", "m={m}", "crush-failure-domain=osd", {technique}]}}"#
            );
            assert!(story.command(&profile, BIRTH), "seed {seed}: no profile: {:?}", story.world);
            pool = format!(
                r#"{{"prefix": "osd pool create", "pool": "p", "pg_num": {pg_num}, "pool_type": "erasure", "erasure_code_profile": "e"}}"#
            );
        }
        if bad.is_some() && plan.flaw != Some(Flaw::Dies) {
            story.work.allow_failures();
        }
        if plan.small_devices {
            let cleaner = story.world.add_client();
            story.work.fill_up(cleaner);
        }
        if plan.bustle {
            story.work.call_and_copy();
            let allow = r#""who": "mon", "name": "mon_allow_pool_delete", "value": "true""#;
            let allowed = story.command(&format!(r#"{{"prefix": "config set", {allow}}}"#), BIRTH);
            assert!(allowed, "seed {seed}: {:?}", story.world);
        }
        assert!(story.command(&pool, BIRTH), "seed {seed}: no pool after {BIRTH:?}: {:?}", story.world);
        if plan.kind == Kind::Overwritten {
            story.overwrite_pool();
        }
        if plan.compressed {
            story.compress_pool();
        }
        story.set_usual_sizes();
        if plan.bustle {
            story.watching = Some(Watching::new(POOL, &mut story.world));
        }
        story
    }

    /// Objects of the erasure-coded pool are changed in part from now on.
    fn overwrite_pool(&mut self) {
        let allow = r#"{"prefix": "osd pool set", "pool": "p", "var": "allow_ec_overwrites", "val": "true"}"#;
        assert!(self.command(allow, BIRTH), "seed {}: {:?}", self.seed, self.world);
        self.work.overwrite();
    }

    /// All that clients write is compressed from now on, and large enough for that.
    fn compress_pool(&mut self) {
        let at = usize::try_from(self.seed % 3).unwrap_or(0);
        for (var, value) in [("algorithm", CompressionAlgorithm::ALL[at].name()), ("mode", "force")] {
            let set = format!(
                r#"{{"prefix": "osd pool set", "pool": "p", "var": "compression_{var}", "val": "{value}"}}"#
            );
            assert!(self.command(&set, BIRTH), "seed {}: {:?}", self.seed, self.world);
        }
        self.work.write_large();
    }

    /// Shards beyond those that give the data back which every acknowledged write must be on: one when that of a bad device does
    /// not count.
    fn spare(&self) -> u64 {
        self.bad.is_some().into()
    }

    /// The bad device may have forgotten what it acknowledged, and nothing tells its OSD so: what it says of its newest writes is
    /// worth nothing.
    fn forgets(&self) -> bool {
        matches!(self.plan.flaw, Some(Flaw::Lies | Flaw::Forgets | Flaw::GoesBack))
    }

    /// As many copies as usual, and as many that serve.
    fn set_usual_sizes(&mut self) {
        match (self.plan.kind, self.code) {
            (_, Some(code)) => self.set_pool("min_size", code.k + 1.min(code.m - 1).max(self.spare())),
            (Kind::OneServes, _) => {
                self.set_pool("size", 3);
                self.set_pool("min_size", 1);
            }
            _ => {
                self.set_pool("size", 3);
                // Any three of four share two with three others, one of which is good.
                self.set_pool("min_size", if self.forgets() { 3 } else { 2 });
            }
        }
    }

    /// Gives a command and waits for the answer.
    fn command(&mut self, json: &str, patience: Duration) -> bool {
        let admin = self.admin;
        let tid = self.world.order(admin, |client| client.command(json));
        self.world.run_until(patience, |world| {
            let done = world.take_finished(admin);
            done.iter().any(|one| matches!(one, Finished::Command { tid: of, result: 0, .. } if *of == tid))
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

    fn do_later(&mut self, what: Later) {
        self.note(|| format!("{what:?}"));
        match what {
            Later::Start(proc) if self.world.runs(proc) => {}
            Later::Start(Proc::Mon(n)) => self.world.start_mon(n),
            Later::Start(Proc::Osd(osd)) => self.start(osd),
            Later::Start(Proc::Client(_)) => {}
            Later::Crash(osd, power) => drop(self.crash(osd, power)),
            Later::Stop(osd) => self.stop(osd),
            Later::NoQuota => self.set_quota(0),
            Later::NotFull => self.set_full_ratio("0.95"),
            Later::Mended => self.bad.into_iter().for_each(|osd| self.world.mend_device(osd)),
            Later::Leave => self.leave(),
            Later::SetBack(osd) => self.set_back(osd),
            Later::Lose(osd) => drop(self.lose(osd)),
            Later::Heal => self.world.fabric().heal(),
            Later::Fast(proc) => self.world.set_slow(proc, 1),
            Later::Flag(verb) => {
                self.order(&format!(r#"{{"prefix": "osd {verb}", "key": "nosnaptrim"}}"#));
            }
            Later::Whole => self.world.fabric().set_wires(Wires::default()),
        }
    }

    /// Lets everything go on until `end`, with troubles every `calm` if given.
    fn go_on(&mut self, end: Stamp, calm: Option<Duration>) {
        let mut trouble_at = self.world.now();
        while self.world.now() < end {
            let later = self.later.keys().next().map(|(at, _)| *at);
            let trouble = calm.map(|_| trouble_at);
            let watches = self.watching.as_ref().and_then(Watching::next_at);
            let work = self.works().filter_map(Workload::next_at).chain(watches).min();
            let next = work.into_iter().chain(later).chain(trouble).chain([end]).min();
            let next = next.unwrap_or(end).max(self.world.now());
            while self.world.step(next) {
                self.work_on();
                self.note_map();
            }
            self.work_on();
            self.note_kept();
            self.note_compressed();
            self.check_versions();
            self.follow_pools();
            self.hear();
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

    /// Clients take answers, and send what is due.
    fn work_on(&mut self) {
        self.with_works(Workload::turn);
        let Some(watching) = &mut self.watching else { return };
        watching.turn(&mut self.world);
        if let Some(why) = self.watching.as_ref().and_then(Watching::verdict) {
            self.fail(why);
        }
    }

    /// Messages under way.
    fn open(&self) -> usize {
        self.works().map(Workload::open).sum()
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
        let acting: Vec<_> = mappings(map).map(|of_pg| of_pg.acting).collect();
        self.note(|| format!("map {} up {up:?} temp {:?} acting {acting:?}", map.epoch, map.pg_temp));
        self.noted = map.epoch;
    }
}

/// Where a map has the PGs of the pool.
fn mappings(map: &OsdMap) -> impl Iterator<Item = UpActing> + '_ {
    let pg_num = map.pool(POOL).map_or(0, |pool| pool.pg_num);
    (0..pg_num).map(|seed| map.pg_to_up_acting(PgId::new(POOL, seed)))
}

/// What profiles say beside the number of shards. All have 4096 bytes of each shard in a stripe.
const TECHNIQUES: [&str; 4] = [
    r#""technique=reed_sol_van""#,
    r#""technique=cauchy_good", "packetsize=128""#,
    r#""plugin=isa", "technique=reed_sol_van""#,
    r#""plugin=isa", "technique=cauchy""#,
];

/// Bytes of a stripe of `k` data shards.
fn stripe_bytes(k: u64) -> usize {
    usize::try_from(k * u64::from(nacre_ec::STRIPE_UNIT_BYTES)).unwrap_or(0)
}

/// Tells the story of a seed.
///
/// # Panics
/// When the cluster breaks a promise.
#[must_use]
pub fn tell(seed: u64, plan: &Plan) -> Outcome {
    Story::new(seed, plan).tell()
}
