//! Whatever happens, what was acknowledged stays, reads never go back in time, and a request takes effect
//! once.
//!
//! Two kinds of objects: `log*`, to which all clients append tags of their own, and `solo*`, each changed by
//! one client that waits for its answers and so knows exactly what must come next.

use crate::harness::{MEMBERS, World};
use crate::log::LogLimits;
use nacre_ec::STRIPE_UNIT_BYTES;
use nacre_maps::flags;
use nacre_msg::osd_op::{Extent, code};
use nacre_msg::stats::pg_state;
use nacre_msg::{OsdOpReply, SubOp};
use nacre_types::{Entropy, Errno, OsdId, PgId, SnapId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CLIENTS: usize = 3;
const LOGS: usize = 2;

/// What a request must have been answered with.
enum Expect {
    /// An append of this tag.
    Tag(String),
    /// The log's content: at least these tags, beginning with that text.
    Log { acked: BTreeSet<String>, prefix: String },
    /// Exactly this result.
    Solo { result: i32, then: Option<String> },
    /// The content, or none.
    SoloRead,
}

#[derive(Default)]
struct Log {
    acked: BTreeSet<String>,
    /// The longest content that anybody read.
    seen: String,
}

struct Chaos {
    seed: u64,
    world: World,
    logs: BTreeMap<String, Log>,
    /// Content of each client's own object.
    solos: Vec<Option<String>>,
    waiting: BTreeMap<(usize, u64), (String, Expect)>,
    snaps: Vec<SnapId>,
    removed: Vec<u64>,
    /// Members of a PG.
    size: usize,
    /// Bytes that an append must come in whole numbers of, where the pool asks for that.
    stripe: Option<usize>,
    /// Bytes within which objects are changed in part.
    reach: usize,
}

/// Data and parity shards of a pool.
fn code_of(seed: u64) -> (u8, u8) {
    [(2, 1), (2, 2), (3, 2), (3, 1), (2, 1)][usize::try_from(seed % 5).expect("small")]
}

impl Chaos {
    fn new(seed: u64) -> Self {
        Self::of(seed, World::new(seed, CLIENTS), 3, None)
    }

    /// In an erasure-coded pool.
    fn coded(seed: u64) -> Self {
        let (k, m) = code_of(seed);
        let stripe = usize::from(k) * STRIPE_UNIT_BYTES as usize;
        Self::of(seed, World::coded(seed, CLIENTS, k, m), usize::from(k + m), Some(stripe))
    }

    /// In an erasure-coded pool with overwrites.
    fn overwritten(seed: u64) -> Self {
        let (k, m) = code_of(seed);
        let reach = 5 * usize::from(k) * STRIPE_UNIT_BYTES as usize / 2;
        let chaos = Self::of(seed, World::overwritten(seed, CLIENTS, k, m), usize::from(k + m), None);
        Self { reach, ..chaos }
    }

    fn of(seed: u64, mut world: World, size: usize, stripe: Option<usize>) -> Self {
        for (at, client) in world.clients.iter_mut().enumerate() {
            client.backs_off = (seed >> at) & 1 == 1;
        }
        // Long enough to know every request that may still be resent, short enough to be outlived.
        let target = 50 + world.pick(30);
        let trim_min = 1 + world.pick(3);
        let max = target + trim_min + 1 + world.pick(20);
        world.limits = LogLimits { target, trim_min, max, ..LogLimits::default() };
        // One comparison for all, or one for each object, or something between.
        world.scan_objects = [512, 1, 2, 5][usize::try_from(seed % 4).expect("small")];
        let scan_objects = world.scan_objects;
        for osd in 0..MEMBERS {
            let slow = world.chance(3);
            (world.disk(osd).slow, world.disk(osd).brings) = (slow, osd % 2 == 0);
            let limits = world.limits;
            world.pg(osd).into_iter().for_each(|pg| {
                pg.set_log_limits(limits);
                pg.state.scan_objects = scan_objects;
            });
        }
        let (logs, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self {
            seed,
            world,
            logs,
            solos: vec![None; CLIENTS],
            waiting,
            snaps: Vec::new(),
            removed: Vec::new(),
            size,
            stripe,
            reach: 0,
        }
    }

    /// A text of its own kind that ends in `end`: as long as it is, or as a whole number of stripes.
    fn filled(&self, text: &str, end: &str) -> String {
        let length = text.len() + end.len();
        let gap = self.stripe.map_or(0, |stripe| length.next_multiple_of(stripe) - length);
        format!("{text}{}{end}", "-".repeat(gap))
    }

    fn fail(&self, why: &str) -> ! {
        panic!("seed {}: {why}\n{}", self.seed, self.world.describe());
    }

    fn request(&mut self, at: usize, object: &str, ops: Vec<SubOp>, expect: Expect) {
        let snaps = self.snaps.iter().rev().copied().collect();
        let tid = self.world.request_with_snaps(at, object, ops, snaps);
        self.waiting.insert((at, tid), (object.to_owned(), expect));
    }

    fn act(&mut self) {
        let at = self.world.pick(CLIENTS);
        if self.waiting.keys().filter(|(client, _)| *client == at).count() > 3 {
            return;
        }
        if self.world.chance(2) {
            return self.act_solo(at);
        }
        let object = format!("log{}", self.world.pick(LOGS));
        if self.world.chance(3) {
            let log = self.logs.entry(object.clone()).or_default();
            let expect = Expect::Log { acked: log.acked.clone(), prefix: log.seen.clone() };
            return self.request(at, &object, vec![SubOp::read(0, 0)], expect);
        }
        let number = self.world.rng.u64() % 1_000_000_000;
        let tag = self.filled(&format!("{at}.{number}"), ";");
        self.request(at, &object, vec![SubOp::append(tag.clone().into_bytes().into())], Expect::Tag(tag));
    }

    fn act_solo(&mut self, at: usize) {
        let object = format!("solo{at}");
        if self.waiting.iter().any(|((client, _), (name, _))| *client == at && *name == object) {
            return;
        }
        let solo = self.solos[at].clone();
        let there = solo.is_some();
        let (ops, result, then) = match self.world.pick(5) {
            0 => {
                let text = format!("text {}", self.world.rng.u64());
                (vec![SubOp::write_full(text.clone().into_bytes().into())], 0, Some(text))
            }
            1 if there => (vec![SubOp::new(code::DELETE)], 0, None),
            1 => (vec![SubOp::new(code::DELETE)], Errno::ENOENT.negated(), None),
            2 if there => (vec![SubOp::new(code::CREATE).with_flags(1)], Errno::EEXIST.negated(), solo),
            2 => (vec![SubOp::new(code::CREATE).with_flags(1)], 0, Some(String::new())),
            3 if self.stripe.is_some() => {
                let number = self.world.rng.u64();
                let text = self.filled(&format!("more text {number}"), " and more");
                (vec![SubOp::write_full(format!("{text}+").into_bytes().into())], 0, Some(text + "+"))
            }
            3 if self.reach > 0 => self.change_in_part(solo),
            3 => {
                let text = format!("{}+", solo.unwrap_or_default());
                (vec![SubOp::append(b"+".to_vec().into())], 0, Some(text))
            }
            _ => return self.request(at, &object, vec![SubOp::read(0, 0)], Expect::SoloRead),
        };
        self.request(at, &object, ops, Expect::Solo { result, then });
    }

    /// Writes somewhere, cuts somewhere, or makes something zeros.
    fn change_in_part(&mut self, solo: Option<String>) -> (Vec<SubOp>, i32, Option<String>) {
        let (at, length) = (self.world.pick(self.reach), 1 + self.world.pick(self.reach / 2));
        let (offset, is_there) = (at as u64, solo.is_some());
        let mut content = solo.unwrap_or_default().into_bytes();
        let end = at + length;
        let op = match self.world.pick(4) {
            0 if is_there => {
                content.resize(at, 0);
                SubOp::with_extent(code::TRUNCATE, Extent { offset, ..Extent::default() })
            }
            1 if end < content.len() => {
                content[at..end].fill(0);
                SubOp::with_extent(code::ZERO, Extent { offset, length: length as u64, ..Extent::default() })
            }
            _ => {
                let text = format!("part {} ", self.world.rng.u64()).repeat(1 + length / 20).into_bytes();
                content.resize(content.len().max(at + text.len()), 0);
                content[at..at + text.len()].copy_from_slice(&text);
                SubOp::write(offset, text.into())
            }
        };
        (vec![op], 0, Some(String::from_utf8(content).expect("digits and zeros")))
    }

    fn check_replies(&mut self) {
        for at in 0..CLIENTS {
            for (tid, reply) in std::mem::take(&mut self.world.clients[at].replies) {
                let Some((object, expect)) = self.waiting.remove(&(at, tid)) else { continue };
                self.check_reply(at, &object, expect, &reply);
            }
        }
    }

    fn check_reply(&mut self, at: usize, object: &str, expect: Expect, reply: &OsdOpReply) {
        let text = reply.ops.first().map(|op| String::from_utf8_lossy(&op.outdata.to_bytes()).into_owned());
        let text = text.unwrap_or_default();
        match expect {
            Expect::Tag(tag) => {
                if reply.result != 0 {
                    self.fail(&format!("append to {object}: {}", reply.result));
                }
                self.logs.entry(object.to_owned()).or_default().acked.insert(tag);
            }
            Expect::Log { acked, prefix } => self.check_log(object, &acked, &prefix, reply.result, text),
            Expect::Solo { result, then } => {
                if reply.result != result {
                    self.fail(&format!("{object}: result {}, expected {result}", reply.result));
                }
                self.solos[at] = then;
            }
            Expect::SoloRead => {
                let found = (reply.result >= 0).then_some(text);
                if found != self.solos[at] {
                    self.fail(&format!(
                        "{object}: {found:?} (result {}), expected {:?}",
                        reply.result, self.solos[at]
                    ));
                }
            }
        }
    }

    fn check_log(&mut self, object: &str, acked: &BTreeSet<String>, prefix: &str, result: i32, text: String) {
        let absent = result == Errno::ENOENT.negated() && acked.is_empty() && prefix.is_empty();
        if result < 0 && !absent {
            self.fail(&format!("read of {object}: {result}"));
        }
        let tags: Vec<String> = text.split_inclusive(';').map(str::to_owned).collect();
        let unique: BTreeSet<&String> = tags.iter().collect();
        if unique.len() != tags.len() {
            self.fail(&format!("{object}: a tag twice in {text}"));
        }
        if let Some(lost) = acked.iter().find(|tag| !unique.contains(tag)) {
            self.fail(&format!("{object}: {lost} was acknowledged and is not in {text}"));
        }
        if !text.starts_with(prefix) {
            self.fail(&format!("{object}: went back from {prefix} to {text}"));
        }
        let log = self.logs.entry(object.to_owned()).or_default();
        if text.len() > log.seen.len() {
            log.seen = text;
        }
    }

    fn fault(&mut self) {
        let osd = OsdId::try_from(self.world.pick(usize::try_from(MEMBERS).expect("small"))).expect("small");
        match self.world.pick(13) {
            0 | 1 => self.world.crash(osd),
            2 | 3 => self.world.restart(osd),
            4 => {
                if !self.world.is_running(osd) && self.world.map().is_up(osd) {
                    self.world.mark_down(osd);
                }
            }
            5 => self.world.defame(osd),
            6 => self.rebalance(),
            7 => {
                let at = self.world.pick(CLIENTS);
                self.world.reset_session(at, osd);
            }
            8 => {
                (0..MEMBERS).for_each(|osd| self.world.disk(osd).cool_down());
                self.world.tick(Duration::from_secs(1));
            }
            9 => self.snapshot(),
            10 => {
                let other = (osd + 1) % MEMBERS;
                self.world.cut(osd, other);
            }
            11 => {
                let take = self.world.chance(2);
                self.world.take_places(osd, take);
            }
            _ => self.replace_disk(osd),
        }
    }

    /// A disk is replaced by an empty one, while everybody else has everything.
    fn replace_disk(&mut self, osd: OsdId) {
        let primary = self.world.primary();
        let running = (0..MEMBERS).all(|osd| self.world.is_running(osd) && self.world.map().is_up(osd));
        let newest = self.world.map().epoch;
        let clean = |pg: &mut crate::Pg| pg.epoch() == newest && pg.state() & pg_state::CLEAN != 0;
        let known = !self.world.has_wishes(); // the monitor knows of every restart
        if running && known && self.world.pg(primary).is_some_and(clean) {
            self.world.crash(osd);
            self.world.disk(osd).wipe();
        }
    }

    fn rebalance(&mut self) {
        let mut all: Vec<OsdId> = (0..MEMBERS).collect();
        let chosen: Vec<OsdId> = (0..self.size)
            .map(|_| {
                let at = self.world.pick(all.len());
                all.swap_remove(at)
            })
            .collect();
        self.world.publish(|map| drop(map.pg_upmap.insert(PgId::new(3, 0), chosen)));
    }

    fn snapshot(&mut self) {
        if self.snaps.len() > 2 {
            let at = self.world.pick(self.snaps.len());
            let removed = self.snaps.remove(at).0;
            self.removed.push(removed);
            self.world.publish(|map| map.removed_snaps_queue.entry(3).or_default().insert(removed, 1));
        } else {
            let newest = self.snaps.iter().map(|snap| snap.0).chain(self.removed.iter().copied()).max();
            self.snaps.push(SnapId(newest.unwrap_or(0) + 1));
        }
    }

    fn run(mut self, steps: usize) {
        let calm = 4 + self.world.pick(60) as u64;
        for _ in 0..steps {
            if self.world.chance(5) {
                self.act();
            }
            if self.world.chance(calm) {
                self.fault();
            }
            if !self.world.step() {
                self.act();
            }
            self.check_replies();
        }
        self.world.heal();
        self.check_replies();
        self.check_end();
    }

    fn check_end(&mut self) {
        if !self.waiting.is_empty() {
            self.fail("requests without an answer");
        }
        let permits: usize = self.world.clients.iter().map(|client| client.budget.held_messages()).sum();
        if permits > self.world.held_without_pg() {
            self.fail("messages that are gone, or answered, hold their permits");
        }
        let primary = self.world.primary();
        let state = self.world.pg(primary).map_or(0, |pg| pg.state());
        if pg_state::text(state) != "active+clean" {
            self.fail(&pg_state::text(state));
        }
        self.world.assert_equal_copies();
        for at in 0..LOGS {
            let object = format!("log{at}");
            let log = self.logs.entry(object.clone()).or_default();
            let expect = Expect::Log { acked: log.acked.clone(), prefix: log.seen.clone() };
            self.request(0, &object, vec![SubOp::read(0, 0)], expect);
        }
        self.world.run_until_idle();
        self.check_replies();
        assert!(self.waiting.is_empty());
        for snap in &self.removed {
            let objects = self.world.disk(primary).objects();
            let kept = objects.keys().find(|object| object.snap == SnapId(*snap));
            let still = self.snaps.iter().any(|live| live.0 < *snap);
            assert!(kept.is_none() || still, "seed {}: snapshot {snap} left {kept:?}", self.seed);
        }
    }
}

fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// One seed again, to look at it: set `CHAOS_SEED`, `CHAOS_STEPS` as the test that failed, and `CHAOS_LOG`.
#[test]
fn one_seed() {
    let number =
        |name: &str, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    Chaos::new(number("CHAOS_SEED", 0) as u64).run(number("CHAOS_STEPS", 600));
}

#[test]
fn short_stories() {
    (0..number("CHAOS_STORIES", 3000) as u64).for_each(|seed| Chaos::new(seed).run(150));
}

#[test]
fn long_stories() {
    let first = 1_000_000;
    let stories = number("CHAOS_STORIES", 500) as u64;
    (first..first + stories).for_each(|seed| Chaos::new(seed).run(1500));
}

#[test]
fn short_stories_of_coded_pgs() {
    (0..number("CHAOS_STORIES", 1500) as u64).for_each(|seed| Chaos::coded(seed).run(150));
}

#[test]
fn long_stories_of_coded_pgs() {
    let first = 1_000_000;
    let stories = number("CHAOS_STORIES", 200) as u64;
    (first..first + stories).for_each(|seed| Chaos::coded(seed).run(1500));
}

#[test]
fn short_stories_of_overwritten_pgs() {
    (0..number("CHAOS_STORIES", 1500) as u64).for_each(|seed| Chaos::overwritten(seed).run(150));
}

#[test]
fn long_stories_of_overwritten_pgs() {
    let first = 1_000_000;
    let stories = number("CHAOS_STORIES", 200) as u64;
    (first..first + stories).for_each(|seed| Chaos::overwritten(seed).run(1500));
}

/// As `one_seed`.
#[test]
fn one_seed_of_an_overwritten_pg() {
    Chaos::overwritten(number("CHAOS_SEED", 0) as u64).run(number("CHAOS_STEPS", 600));
}

/// As `one_seed`.
#[test]
fn one_seed_of_a_coded_pg() {
    Chaos::coded(number("CHAOS_SEED", 0) as u64).run(number("CHAOS_STEPS", 600));
}

/// The same seed tells the same story.
#[test]
fn a_seed_decides_everything() {
    let end = |seed| {
        let mut chaos = Chaos::new(seed);
        for _ in 0..500 {
            chaos.act();
            chaos.world.step();
        }
        (chaos.world.rng.u64(), chaos.world.now, chaos.world.map().epoch)
    };
    assert_eq!(end(5), end(5));
    assert_eq!(Chaos::new(1).world.map().flags & flags::osdmap::FULL, 0);
}
