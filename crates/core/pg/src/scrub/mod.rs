//! Comparing the copies: chunk by chunk, every member lists the same range of objects with versions and
//! checksums, and the primary compares.
//!
//! A request travels behind the writes before it on the same connection, and a submitted write shows at
//! once, so all members list the same state without anything being stopped. Data that must come from the
//! device first is read later than the rest was listed; a chunk that differs is therefore compared again
//! before it counts.

mod chunks;
mod digest;

pub(crate) use digest::Digests;

use crate::{Cx, Pg};
use nacre_maps::{PoolOption, flags};
use nacre_msg::peer::{ScrubObject, ScrubReply, ScrubRequest};
use nacre_types::{Eversion, HObject, OsdId, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Objects in one chunk.
pub(crate) const CHUNK_OBJECTS: usize = 64;
/// Objects in one chunk when their data is read.
pub(crate) const DEEP_CHUNK_OBJECTS: usize = 8;
/// Objects in one range that is answered; a peer cannot make a copy list more.
pub(crate) const ANSWER_OBJECTS_MAX: usize = 1024;
/// How often a chunk that differs is compared before it counts.
pub(crate) const TRIES: u32 = 3;

/// How long a member's answer may stay out, at first.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often copies are compared without anybody's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubIntervals {
    /// Sizes, attributes and versions: `osd_scrub_min_interval`, and up to half as long again.
    pub shallow: Duration,
    /// All data: `osd_deep_scrub_interval`.
    pub deep: Duration,
}

/// A scrub under way.
#[derive(Debug)]
struct ScrubRun {
    deep: bool,
    /// What differs is repaired.
    repair: bool,
    /// Copies that are being repaired.
    repaired: u64,
    /// Names the current chunk's request.
    tid: u64,
    from: HObject,
    to: HObject,
    /// How often this chunk was compared.
    tries: u32,
    waiting: BTreeSet<OsdId>,
    /// When somebody last answered, or all were asked.
    heard_at: Stamp,
    /// How long an answer may stay out.
    patience: Duration,
    lists: BTreeMap<OsdId, Vec<ScrubObject>>,
    errors: u64,
}

/// The scrub of one PG, at its primary.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    running: Option<ScrubRun>,
    /// Asked for while the PG was not clean.
    wanted: Option<bool>,
    /// What it finds is to be repaired.
    repair: bool,
    last_tid: u64,
}

impl Scrub {
    /// True while copies are compared.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// True while what differs is repaired.
    pub(crate) fn is_repairing(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.repair)
    }

    /// True while their data is.
    pub(crate) fn is_deep(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.deep)
    }
}

/// Keys of a pool's own intervals. Ceph `pool_opts_t::key_t` at v16.2.15.
const POOL_SCRUB_MIN_INTERVAL: i32 = 0;
const POOL_DEEP_SCRUB_INTERVAL: i32 = 2;

impl Pg {
    /// True while copies are compared, or are to be once the PG is clean.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        self.is_primary() && (self.scrub.is_running() || self.scrub.wanted.is_some())
    }

    /// When it was time to compare the copies without anybody's order, and whether deeply: the earlier, the more
    /// urgent. `None` if that is not now: too soon, not clean, held by `noscrub` or `nodeep-scrub`.
    #[must_use]
    pub fn scrub_due(&self, wall: UTime, intervals: &ScrubIntervals) -> Option<(UTime, bool)> {
        if self.is_scrubbing() || !self.is_primary() || !self.state.is_clean() || !self.is_active() {
            return None;
        }
        let pool = self.state.map.pools.get(&self.state.spg.pg.pool)?;
        let held = |everywhere, of_pool| self.state.map.has_flag(everywhere) || pool.has_flag(of_pool);
        let history = &self.state.info.history;
        let of_pool = |key: i32, usual: Duration| match pool.options.get(&key) {
            Some(PoolOption::Float(interval)) if *interval > 0.0 => nacre_types::seconds(*interval),
            _ => usual,
        };
        let deep_at = history.last_deep_scrub_stamp.after(of_pool(POOL_DEEP_SCRUB_INTERVAL, intervals.deep));
        let shallow = of_pool(POOL_SCRUB_MIN_INTERVAL, intervals.shallow);
        if deep_at <= wall && !held(flags::osdmap::NODEEP_SCRUB, flags::pool::NODEEP_SCRUB) {
            return Some((deep_at, true));
        }
        // PGs that were made together need not be compared together: each waits longer, by up to a half.
        let spread = nacre_types::hash::rjenkins(&self.state.spg.pg.seed.to_le_bytes()) % 1024;
        let at = history.last_scrub_stamp.after(shallow + shallow * spread / 2048);
        let due = at <= wall && !held(flags::osdmap::NOSCRUB, flags::pool::NOSCRUB);
        due.then_some((at, false))
    }

    /// Begins a scrub, or remembers to do so once the PG is clean.
    pub(crate) fn start_scrub(&mut self, cx: &mut Cx<'_>, deep: bool, repair: bool) {
        self.scrub.repair |= repair;
        self.scrub.wanted = Some(deep || self.scrub.wanted == Some(true));
        self.scrub_on(cx);
    }

    /// Begins a scrub that was asked for.
    pub(crate) fn scrub_on(&mut self, cx: &mut Cx<'_>) {
        if self.scrub.is_running() || !self.is_primary() || !self.state.is_clean() {
            return;
        }
        let Some(deep) = self.scrub.wanted.take() else { return };
        self.scrub.running = Some(ScrubRun {
            deep,
            repair: std::mem::take(&mut self.scrub.repair),
            repaired: 0,
            tid: 0,
            from: HObject::MIN,
            to: HObject::MIN,
            tries: 0,
            waiting: BTreeSet::new(),
            heard_at: cx.now,
            patience: PATIENCE,
            lists: BTreeMap::new(),
            errors: 0,
        });
        self.next_chunk(cx, HObject::MIN);
    }

    /// The interval is over: the scrub begins again in the next one.
    pub(crate) fn abort_scrub(&mut self, _cx: &mut Cx<'_>) {
        if let Some(running) = self.scrub.running.take() {
            self.scrub.wanted = Some(running.deep || self.scrub.wanted == Some(true));
            self.scrub.repair |= running.repair;
        }
    }

    /// Asks everybody for the chunk that begins at `from`.
    fn next_chunk(&mut self, cx: &mut Cx<'_>, from: HObject) {
        let Some(running) = &mut self.scrub.running else { return };
        let size = if running.deep { DEEP_CHUNK_OBJECTS } else { CHUNK_OBJECTS };
        let objects = cx.view.list(&self.state.spg, &from, size + 1);
        running.to = objects.get(size).cloned().unwrap_or_else(HObject::max_value);
        (running.from, running.tries) = (from, 0);
        self.ask_chunk(cx);
    }

    fn ask_chunk(&mut self, cx: &mut Cx<'_>) {
        let members = self.state.interval.members();
        let header = self.state.header();
        self.scrub.last_tid += 1;
        let tid = self.scrub.last_tid;
        let Some(running) = &mut self.scrub.running else { return };
        running.tid = tid;
        running.tries += 1;
        running.heard_at = cx.now;
        running.waiting.clone_from(&members);
        running.lists.clear();
        let (from, to, deep) = (running.from.clone(), running.to.clone(), running.deep);
        let request = ScrubRequest { header, tid, from, to, deep };
        for osd in members.into_iter().filter(|osd| *osd != self.state.whoami) {
            self.state.send(cx, osd, request.clone());
        }
        self.answer_scrub(cx, self.state.whoami, &request, Digests::default());
    }

    /// An answer stays out for too long, lost on its way or its question: all are asked for the chunk anew. Each time that takes
    /// twice as long, so that a slow device is not kept from ever answering.
    pub(crate) fn retry_scrub(&mut self, cx: &mut Cx<'_>) {
        let Some(running) = &mut self.scrub.running else { return };
        if running.waiting.is_empty() || cx.now.since(running.heard_at) < running.patience {
            return;
        }
        running.patience *= 2;
        running.tries -= 1;
        self.ask_chunk(cx);
    }

    /// A member's list.
    pub(crate) fn on_scrub(&mut self, cx: &mut Cx<'_>, from: OsdId, reply: ScrubReply) {
        let Some(running) = &mut self.scrub.running else { return };
        if running.tid != reply.tid || !running.waiting.remove(&from) {
            return;
        }
        running.lists.insert(from, reply.objects);
        running.heard_at = cx.now;
        if running.waiting.is_empty() {
            self.compare_chunk(cx);
        }
    }

    fn compare_chunk(&mut self, cx: &mut Cx<'_>) {
        let Some(running) = &mut self.scrub.running else { return };
        let mut bad = BTreeSet::new();
        if let Some(ec) = &self.state.ec {
            bad = chunks::unrelated(&ec.coding.codec, &ec.shards, &mut running.lists, running.deep);
        }
        bad.extend(differing(&running.lists));
        if !bad.is_empty() && running.tries < TRIES {
            return self.ask_chunk(cx);
        }
        running.errors += bad.len() as u64;
        let next = running.to.clone();
        if running.repair {
            let log = &self.state.log;
            let coded = self.state.ec.is_some();
            let exists = |object: &HObject| match log.newest_of(object, log.head()) {
                Some(entry) => Some(!entry.is_delete()),
                None => coded.then_some(true), // too few chunks are no word against the object
            };
            let orders: Vec<_> = bad
                .into_iter()
                .filter_map(|object| verdict(&running.lists, exists(&object), object))
                .collect();
            let repaired = orders
                .iter()
                .filter(|order| self.repair_copies(cx, &order.object, order.version, &order.bad));
            let repaired = repaired.count() as u64;
            if let Some(running) = &mut self.scrub.running {
                running.repaired += repaired;
            }
        }
        if next.max { self.finish_scrub(cx) } else { self.next_chunk(cx, next) }
    }

    fn finish_scrub(&mut self, cx: &mut Cx<'_>) {
        let Some(running) = self.scrub.running.take() else { return };
        let history = &mut self.state.info.history;
        (history.last_scrub, history.last_scrub_stamp) = (self.state.info.last_update, cx.wall);
        if running.deep {
            (history.last_deep_scrub, history.last_deep_scrub_stamp) = (self.state.info.last_update, cx.wall);
        }
        if running.errors == 0 {
            history.last_clean_scrub_stamp = cx.wall;
        }
        self.state.info.counters.scrub_errors = i64::try_from(running.errors).unwrap_or(i64::MAX);
        if running.repaired > 0 {
            self.scrub.wanted = Some(true); // only a look at all copies tells whether they are well now
        }
        self.state.share_progress(cx);
        self.scrub_on(cx);
    }
}

/// Objects that are not the same on all members, or damaged on one.
fn differing(lists: &BTreeMap<OsdId, Vec<ScrubObject>>) -> BTreeSet<HObject> {
    let mut seen: BTreeMap<&HObject, Vec<&ScrubObject>> = BTreeMap::new();
    for object in lists.values().flatten() {
        seen.entry(&object.object).or_default().push(object);
    }
    let agree = |copies: &[&ScrubObject]| {
        copies.len() == lists.len() && copies.iter().all(|copy| !copy.damaged && *copy == copies[0])
    };
    seen.into_iter().filter(|(_, copies)| !agree(copies)).map(|(object, _)| object.clone()).collect()
}

/// What is to be done about an object whose copies differ.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    object: HObject,
    /// Of the good copies; zero where there should be none.
    version: Eversion,
    /// Who has another copy, or none, or one too many.
    bad: Vec<OsdId>,
}

/// Which copies are good: of those that can be read, the newest version; among these, what most members have.
/// `None` when that is not clear, or nobody has a readable one.
///
/// Absence counts as well: what the log says was deleted, or what it does not reach and more than half of the members do
/// not have, is a leftover, and goes (the order's version is zero). It would come back to life otherwise. `exists` is
/// what the log says of the object, where it reaches it.
fn verdict(
    lists: &BTreeMap<OsdId, Vec<ScrubObject>>,
    exists: Option<bool>,
    object: HObject,
) -> Option<Order> {
    let has_any = |list: &[ScrubObject]| list.iter().any(|copy| copy.object == object);
    let holders: Vec<OsdId> = lists.iter().filter(|(_, list)| has_any(list)).map(|(osd, _)| *osd).collect();
    if !exists.unwrap_or(holders.len() * 2 >= lists.len()) {
        return Some(Order { object, version: Eversion::ZERO, bad: holders });
    }
    let copy_of = |list: &'_ Vec<ScrubObject>| list.iter().find(|copy| copy.object == object).cloned();
    let copies: Vec<(OsdId, Option<ScrubObject>)> =
        lists.iter().map(|(osd, list)| (*osd, copy_of(list).filter(|copy| !copy.damaged))).collect();
    let readable = || copies.iter().filter_map(|(_, copy)| copy.as_ref());
    let newest = readable().map(|copy| copy.version).max()?;
    let votes = |candidate: &ScrubObject| readable().filter(|copy| *copy == candidate).count();
    let good = readable().filter(|copy| copy.version == newest).max_by_key(|copy| votes(copy))?;
    if readable().any(|copy| copy.version == newest && copy != good && votes(copy) == votes(good)) {
        return None;
    }
    let bad = copies.iter().filter(|(_, copy)| copy.as_ref() != Some(good)).map(|(osd, _)| *osd).collect();
    Some(Order { object, version: newest, bad })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(version: u64, data_crc: u32, damaged: bool) -> ScrubObject {
        let version = Eversion::new(1, version);
        let object = HObject::MIN;
        ScrubObject { object, version, meta_crc: 1, attrs_crc: 1, data_crc, size: 1, damaged }
    }

    fn judged(copies: &[Option<ScrubObject>]) -> Option<(u64, Vec<OsdId>)> {
        judged_by_log(copies, None)
    }

    fn judged_by_log(copies: &[Option<ScrubObject>], exists: Option<bool>) -> Option<(u64, Vec<OsdId>)> {
        let lists = copies.iter().enumerate();
        let lists =
            lists.map(|(osd, copy)| (OsdId::try_from(osd).expect("small"), copy.iter().cloned().collect()));
        verdict(&lists.collect(), exists, HObject::MIN).map(|order| (order.version.version, order.bad))
    }

    #[test]
    fn the_newest_readable_copies_of_the_majority_are_good() {
        let good = || Some(copy(5, 7, false));
        assert_eq!(judged(&[good(), Some(copy(5, 8, false)), good()]), Some((5, vec![1])));
        assert_eq!(judged(&[Some(copy(5, 7, true)), good(), good()]), Some((5, vec![0])));
        assert_eq!(judged(&[None, good(), good()]), Some((5, vec![0])));
        assert_eq!(
            judged(&[good(), Some(copy(4, 7, false)), Some(copy(4, 7, false))]),
            Some((5, vec![1, 2]))
        );
        assert_eq!(judged(&[good(), Some(copy(5, 8, false))]), None, "one word against another");
        assert_eq!(judged(&[None, Some(copy(5, 7, true))]), None, "nobody can read it");
    }

    #[test]
    fn absence_counts() {
        let (good, damaged) = (|| Some(copy(5, 7, false)), || Some(copy(5, 7, true)));
        assert_eq!(judged(&[None, None, good()]), Some((0, vec![2])), "a leftover");
        assert_eq!(judged(&[None, None, damaged()]), Some((0, vec![2])));
        assert_eq!(judged(&[None, good()]), Some((5, vec![0])), "rather too much than too little");
        let by_log = |exists| judged_by_log(&[None, None, good()], Some(exists));
        assert_eq!((by_log(true), by_log(false)), (Some((5, vec![0, 1])), Some((0, vec![2]))));
        assert_eq!(judged_by_log(&[good(), good(), None], Some(false)), Some((0, vec![0, 1])));
    }
}
