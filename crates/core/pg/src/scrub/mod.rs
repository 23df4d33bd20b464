//! Comparing the copies: chunk by chunk, every member lists the same range of objects with versions and
//! checksums, and the primary compares.
//!
//! A request travels behind the writes before it on the same connection, and a submitted write shows at
//! once, so all members list the same state without anything being stopped, unless data must come from the
//! device first: then each lists what there is when its data have come. So a difference counts of an object
//! only that has not changed since its chunk was asked for, as the log says; a chunk that differs is compared
//! again ([`TRIES`]), and what of it has changed each time is compared alone, while its writes wait
//! ([`Compared::hold`]). Ceph has all writes of a chunk wait (`PrimaryLogPG::write_blocked_by_scrub`).

mod answer;
mod chunks;
mod due;

pub use due::{ScrubDue, ScrubIntervals};

use crate::Cx;
use crate::digest::Digests;
use crate::state::PgState;
use nacre_maps::{PoolOption, flags};
use nacre_msg::peer::{ScrubObject, ScrubReply, ScrubRequest};
use nacre_types::{Eversion, HObject, OsdId, Stamp, UTime};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
/// How long while writes wait for it, at first, and how often it is asked for anew: then they go on, and the scrub begins again.
const HELD_PATIENCE: Duration = Duration::from_secs(5);
const HELD_RETRIES: u32 = 2;

/// A scrub under way.
#[derive(Debug)]
struct ScrubRun {
    deep: bool,
    /// What differs is repaired.
    repair: bool,
    /// Copies that are being repaired.
    repaired: u64,
    /// Names the current request.
    tid: u64,
    /// The range that is asked for: the chunk, or an object of it.
    from: HObject,
    to: HObject,
    /// Where the next chunk begins.
    chunk_end: HObject,
    /// How often this range was compared.
    tries: u32,
    /// How often an answer to it stayed out.
    retries: u32,
    /// The log's head when it was asked for.
    asked_at: Eversion,
    /// Objects of the chunk that changed each time that it was compared.
    changing: VecDeque<HObject>,
    /// The one of them that is compared, while its writes wait.
    alone: Option<HObject>,
    waiting: BTreeSet<OsdId>,
    /// When a member last answered, or all were asked.
    heard_at: Stamp,
    lists: BTreeMap<OsdId, Vec<ScrubObject>>,
    errors: u64,
    /// Objects of this copy whose omaps are large, of a deep scrub.
    large_omap: BTreeSet<HObject>,
}

impl ScrubRun {
    /// How long an answer may stay out: twice as long each time that one did.
    fn patience(&self) -> Duration {
        let at_first = if self.alone.is_some() { HELD_PATIENCE } else { PATIENCE };
        at_first.saturating_mul(2_u32.saturating_pow(self.retries))
    }
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
const POOL_SCRUB_MAX_INTERVAL: i32 = 1;
const POOL_DEEP_SCRUB_INTERVAL: i32 = 2;

impl Scrub {
    /// True while copies are compared, or are to be once the PG is clean.
    pub(crate) fn is_wanted(&self, state: &PgState) -> bool {
        state.is_primary() && (self.is_running() || self.wanted.is_some())
    }

    /// The scrub that it is time for without an order: see [`crate::Pg::scrub_due`].
    pub(crate) fn due(&self, state: &PgState, wall: UTime, intervals: &ScrubIntervals) -> Option<ScrubDue> {
        if self.is_wanted(state) || !state.is_primary() || !state.is_clean() || !state.is_active() {
            return None;
        }
        let pool = state.map.pools.get(&state.spg.pg.pool)?;
        let held = |everywhere, of_pool| state.map.has_flag(everywhere) || pool.has_flag(of_pool);
        let history = &state.info.history;
        let of_pool = |key: i32, usual: Duration| match pool.options.get(&key) {
            Some(PoolOption::Float(interval)) if *interval > 0.0 => nacre_types::seconds(*interval),
            _ => usual,
        };
        let intervals = ScrubIntervals {
            shallow: of_pool(POOL_SCRUB_MIN_INTERVAL, intervals.shallow),
            longest: of_pool(POOL_SCRUB_MAX_INTERVAL, intervals.longest),
            deep: of_pool(POOL_DEEP_SCRUB_INTERVAL, intervals.deep),
        };
        let held = (
            held(flags::osdmap::NOSCRUB, flags::pool::NOSCRUB),
            held(flags::osdmap::NODEEP_SCRUB, flags::pool::NODEEP_SCRUB),
        );
        let stamps = (history.last_scrub_stamp, history.last_deep_scrub_stamp);
        intervals.due(state.spg.pg, stamps, held, wall)
    }

    /// This copy's part of a chunk was read.
    fn note_large_omaps(&mut self, read: &Digests) {
        if let Some(running) = &mut self.running {
            running.large_omap.extend(read.large_omaps().cloned());
        }
    }

    /// Begins a scrub, or remembers to do so once the PG is clean.
    pub(crate) fn start(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        deep: bool,
        repair: bool,
    ) -> Option<Compared> {
        self.repair |= repair;
        self.wanted = Some(deep || self.wanted == Some(true));
        self.begin_wanted(state, cx)
    }

    /// Begins a scrub that was asked for.
    pub(crate) fn begin_wanted(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<Compared> {
        if self.is_running() || !state.is_primary() || !state.is_clean() {
            return None;
        }
        let deep = self.wanted.take()?;
        self.running = Some(ScrubRun {
            deep,
            repair: std::mem::take(&mut self.repair),
            repaired: 0,
            tid: 0,
            from: HObject::MIN,
            to: HObject::MIN,
            chunk_end: HObject::MIN,
            tries: 0,
            retries: 0,
            asked_at: Eversion::ZERO,
            changing: VecDeque::new(),
            alone: None,
            waiting: BTreeSet::new(),
            heard_at: cx.now,
            lists: BTreeMap::new(),
            errors: 0,
            large_omap: BTreeSet::new(),
        });
        self.next_chunk(state, cx, HObject::MIN)
    }

    /// The interval is over: the scrub begins again in the next one.
    pub(crate) fn abort(&mut self) {
        if let Some(running) = self.running.take() {
            self.wanted = Some(running.deep || self.wanted == Some(true));
            self.repair |= running.repair;
        }
    }

    /// Asks all members for the chunk that begins at `from`.
    fn next_chunk(&mut self, state: &mut PgState, cx: &mut Cx<'_>, from: HObject) -> Option<Compared> {
        let running = self.running.as_mut()?;
        let size = if running.deep { DEEP_CHUNK_OBJECTS } else { CHUNK_OBJECTS };
        let objects = cx.view.list(&state.spg, &from, size + 1);
        running.chunk_end = objects.get(size).cloned().unwrap_or_else(HObject::max_value);
        (running.from, running.to) = (from, running.chunk_end.clone());
        (running.tries, running.retries) = (0, 0);
        self.ask(state, cx)
    }

    /// Asks all members for an object that changes all the time; its writes wait from now on.
    fn compare_held(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<Compared> {
        let running = self.running.as_mut()?;
        let from = running.alone.clone()?;
        let next = cx.view.list(&state.spg, &from, 2).into_iter().find(|object| *object > from);
        running.to =
            next.filter(|next| *next < running.chunk_end).unwrap_or_else(|| running.chunk_end.clone());
        running.from = from;
        (running.tries, running.retries) = (TRIES - 1, 0);
        self.ask(state, cx)
    }

    /// Asks all members for the range.
    fn ask(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<Compared> {
        let members = state.interval.members();
        let header = state.header();
        self.last_tid += 1;
        let tid = self.last_tid;
        let running = self.running.as_mut()?;
        running.tid = tid;
        running.tries += 1;
        running.asked_at = state.log.head();
        running.heard_at = cx.now;
        running.waiting.clone_from(&members);
        running.lists.clear();
        let (from, to, deep) = (running.from.clone(), running.to.clone(), running.deep);
        let request = ScrubRequest { header, tid, from, to, deep };
        for osd in members.into_iter().filter(|osd| *osd != state.whoami) {
            state.send(cx, osd, request.clone());
        }
        self.answer(state, cx, state.whoami, &request, Digests::default())
    }

    /// An answer stays out for too long, lost on its way or its question: all are asked for the chunk anew. Each time that takes
    /// twice as long, so that a slow device is not kept from ever answering.
    pub(crate) fn retry(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<Compared> {
        let running = self.running.as_mut()?;
        // What was changed just now does not show yet: the lists would not be of the same moment.
        let is_early = running.waiting.is_empty() || cx.now.since(running.heard_at) < running.patience();
        if is_early || state.view_is_stale {
            return None;
        }
        if running.alone.is_some() && running.retries == HELD_RETRIES {
            self.abort();
            return Some(Compared::default());
        }
        running.retries += 1;
        running.tries -= 1;
        self.ask(state, cx)
    }

    /// A member's list.
    pub(crate) fn on_reply(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        reply: ScrubReply,
    ) -> Option<Compared> {
        let running = self.running.as_mut()?;
        if running.tid != reply.tid || !running.waiting.remove(&from) {
            return None;
        }
        running.lists.insert(from, reply.objects);
        running.heard_at = cx.now;
        if running.waiting.is_empty() { self.compare(state, cx) } else { None }
    }

    /// All have answered. Yields what is to be repaired, unless what differs is compared again.
    fn compare(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<Compared> {
        let running = self.running.as_mut()?;
        let mut bad = BTreeSet::new();
        if let Some(ec) = &state.ec {
            let chunk_of = |osd, object: &HObject| state.chunk_of(osd, object);
            bad = chunks::unrelated(&ec.coding.codec, chunk_of, &mut running.lists, running.deep);
        }
        bad.extend(differing(&running.lists));
        if let Some(alone) = &running.alone {
            bad.retain(|object| object == alone); // others of its range are new, and came after the chunk was listed
        }
        if !bad.is_empty() && running.tries < TRIES {
            return self.ask(state, cx);
        }
        // Nothing changes what is held.
        let is_held = running.alone.is_some();
        let changed =
            |object: &HObject| !is_held && state.log.has_changed(&object.to_head(), running.asked_at);
        let (changed, bad): (BTreeSet<HObject>, _) = bad.into_iter().partition(changed);
        running.changing.extend(changed);
        running.errors += bad.len() as u64;
        running.alone = running.changing.pop_front();
        let hold = running.alone.as_ref().map(HObject::to_head);
        if !running.repair {
            return Some(Compared { repairs: Vec::new(), hold });
        }
        let log = &state.log;
        let coded = state.ec.is_some();
        let exists = |object: &HObject| match log.newest_of(object, log.head()) {
            Some(entry) => Some(!entry.is_delete()),
            None => coded.then_some(true), // too few chunks are no word against the object
        };
        let repairs = bad.into_iter().filter_map(|object| verdict(&running.lists, exists(&object), object));
        Some(Compared { repairs: repairs.collect(), hold })
    }

    /// The range is done, and so many of the objects that [`Compared`] named are being repaired: goes on with the next one.
    pub(crate) fn go_on(&mut self, state: &mut PgState, cx: &mut Cx<'_>, repaired: u64) -> Option<Compared> {
        let running = self.running.as_mut()?;
        running.repaired += repaired;
        if running.alone.is_some() {
            return self.compare_held(state, cx);
        }
        let next = running.chunk_end.clone();
        if next.max { self.finish(state, cx) } else { self.next_chunk(state, cx, next) }
    }

    fn finish(&mut self, state: &mut PgState, cx: &mut Cx<'_>) -> Option<Compared> {
        let running = self.running.take()?;
        let history = &mut state.info.history;
        (history.last_scrub, history.last_scrub_stamp) = (state.info.last_update, cx.wall);
        if running.deep {
            (history.last_deep_scrub, history.last_deep_scrub_stamp) = (state.info.last_update, cx.wall);
            history.large_omap_objects = running.large_omap.len() as u64;
        }
        if running.errors == 0 {
            history.last_clean_scrub_stamp = cx.wall;
        }
        state.info.counters.scrub_errors = i64::try_from(running.errors).unwrap_or(i64::MAX);
        if running.repaired > 0 {
            self.wanted = Some(true); // only a look at all copies tells whether they are well now
        }
        state.share_progress(cx);
        self.begin_wanted(state, cx)
    }
}

/// Copies were compared. The scrub goes on when what it wants is done ([`Scrub::go_on`]).
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) repairs: Vec<Repair>,
    /// The head whose writes are to wait while it, or a clone of it, is compared next. No others do.
    pub(crate) hold: Option<HObject>,
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
pub(crate) struct Repair {
    pub(crate) object: HObject,
    /// Of the good copies; zero where there should be none.
    pub(crate) version: Eversion,
    /// Members with another copy, or none, or one too many.
    pub(crate) bad: Vec<OsdId>,
}

/// Which copies are good: of those that can be read, the newest version; among these, what most members have.
/// `None` when that is not clear, or no member has a readable one.
///
/// Absence counts as well: what the log says was deleted, or what it does not reach and more than half of the members do
/// not have, is a leftover, and goes (the repair's version is zero). It would come back to life otherwise. `exists` is
/// what the log says of the object, where it reaches it.
fn verdict(
    lists: &BTreeMap<OsdId, Vec<ScrubObject>>,
    exists: Option<bool>,
    object: HObject,
) -> Option<Repair> {
    let has_any = |list: &[ScrubObject]| list.iter().any(|copy| copy.object == object);
    let holders: Vec<OsdId> = lists.iter().filter(|(_, list)| has_any(list)).map(|(osd, _)| *osd).collect();
    if !exists.unwrap_or(holders.len() * 2 >= lists.len()) {
        return Some(Repair { object, version: Eversion::ZERO, bad: holders });
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
    Some(Repair { object, version: newest, bad })
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
        verdict(&lists.collect(), exists, HObject::MIN).map(|repair| (repair.version.version, repair.bad))
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
