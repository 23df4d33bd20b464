//! How a story ends: nothing goes wrong any more, and everything must be answered, clean, and equal on all copies.

use super::{Flaw, Later, Story};
use crate::net::Wires;
use crate::watching::Watching;
use crate::workload::Workload;
use crate::world::Proc;
use nacre_msg::stats::pg_state;
use nacre_types::Stamp;
use std::time::Duration;

/// Once nothing goes wrong any more, everything must be answered, active and clean within this time.
const HEALING: Duration = Duration::from_secs(300);

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
    /// Messages that were answered.
    pub answered: usize,
    /// Most bytes of objects that were compressed at a time, on all OSDs, as these have reported.
    pub compressed_bytes: u64,
    /// Looks at metadata that messages waited for.
    pub looks: u64,
}

impl Story {
    /// Nothing goes wrong any more.
    fn end_troubles(&mut self) {
        while let Some((_, what)) = self.later.pop_first() {
            if !matches!(what, Later::Crash(..) | Later::Stop(_) | Later::Leave | Later::Lose(_)) {
                self.do_later(what);
            }
        }
        self.leave();
        self.watching.iter_mut().for_each(Watching::calm_down);
        self.world.fabric().heal();
        self.world.fabric().set_wires(Wires::default());
        for osd in self.world.osd_ids() {
            self.world.set_slow(Proc::Osd(osd), 1);
            if !self.is_leaving(osd) {
                self.order(&format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#));
            }
        }
        self.set_usual_sizes();
    }

    fn is_clean(&self) -> bool {
        let Some(mon) = self.world.mon() else { return false };
        let map = mon.state().osd.map();
        if map.pools.values().any(|pool| pool.pg_num != pool.pg_num_target) {
            return false;
        }
        let wanted = map.pools.values().map(|pool| pool.pg_num as usize).sum::<usize>();
        let all_up = map.up_count() == self.world.osd_ids().len();
        let clean = pg_state::ACTIVE | pg_state::CLEAN;
        let pgs: Vec<u64> = mon.state().stats.pgs.pgs(map).map(|(_, stat)| stat.state).collect();
        all_up && pgs.len() == wanted && pgs.iter().all(|state| *state == clean)
    }

    /// Waits until everything is answered and clean. False when it never will be, because the bad device alone had a write that
    /// was not acknowledged, and does not give it back: clients wait until an operator gives it up.
    fn be_clean(&mut self) -> bool {
        let patience = self.world.now() + HEALING;
        while !(self.open() == 0 && self.is_clean() && self.watching.iter().all(Watching::is_content)) {
            if self.world.now() >= patience {
                let open = self.open();
                if (open > 0 || self.loses()) && self.waits_for_bad_device() {
                    return false;
                }
                let watching = &self.watching;
                self.fail(&format!(
                    "not clean after {HEALING:?}, {open} messages without an answer, {watching:?}"
                ));
            }
            let next = self.world.now() + Duration::from_secs(1);
            self.go_on(next, None);
        }
        true
    }

    /// Something is nowhere else, or may be: an object is unfound, or a PG down while the bad device's OSD cannot run any more. An
    /// OSD that is marked lost is not waited for; but an object that others only know of is unfound for ever, the copies that are left
    /// are incomplete if they were just being filled, and a PG that had no other copy is nowhere any more.
    fn waits_for_bad_device(&self) -> bool {
        let (Some(bad), Some(mon)) = (self.bad, self.world.mon()) else { return false };
        let lost = match self.plan.flaw {
            Some(Flaw::Dies) if !self.loses() => return false,
            Some(Flaw::Dies) if self.has_lost_pgs() => return true,
            Some(Flaw::Dies) => pg_state::INCOMPLETE,
            _ if self.world.runs(Proc::Osd(bad)) => 0,
            _ => pg_state::DOWN,
        };
        let mut pgs = mon.state().stats.pgs.pgs(mon.state().osd.map());
        pgs.any(|(_, stat)| stat.state & (pg_state::RECOVERY_UNFOUND | lost) != 0)
    }

    fn check_histories(&self) {
        self.works().for_each(|work| self.check_history(Some(work)));
    }

    pub(super) fn check_history(&self, work: Option<&Workload>) {
        if let Some(Err(why)) = work.map(Workload::check) {
            self.fail(&why);
        }
    }

    fn outcome(&mut self) -> Outcome {
        let (trace, steps) = self.world.trace();
        let answered = self.work.answered();
        let (compressed_bytes, looks) = (self.compressed_bytes, self.world.looks());
        let (now, random) = (self.world.now(), self.below(u64::MAX));
        Outcome { trace, steps, now, random, answered, compressed_bytes, looks }
    }

    /// Takes note of what is compressed now.
    pub(super) fn note_compressed(&mut self) {
        let Some(mon) = self.world.mon().filter(|_| self.plan.compressed) else { return };
        let osds = mon.state().stats.pgs.osds();
        let now =
            osds.map(|(_, stat)| u64::try_from(stat.statfs.data_compressed_original).unwrap_or(0)).sum();
        self.compressed_bytes = self.compressed_bytes.max(now);
    }

    /// All copies of everything are the same: a deep scrub of every PG finds nothing.
    fn compare_copies(&mut self) {
        self.scrub_all("deep-scrub", |state| state & pg_state::INCONSISTENT != 0);
    }

    /// Scrubs every PG, with all data; fails when the state of one is `bad`.
    fn scrub_all(&mut self, how: &str, bad: impl Fn(u64) -> bool) {
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
                if bad(*state) {
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
                self.order(&format!(r#"{{"prefix": "pg {how}", "pgid": "{pg}"}}"#));
            }
            let next = self.world.now() + Duration::from_secs(3);
            self.go_on(next, None);
        }
    }

    pub(super) fn fail(&self, why: &str) -> ! {
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
    pub fn tell(mut self) -> Outcome {
        let end = self.world.now() + self.plan.troubles;
        self.go_on(end, Some(self.calm));
        self.note(|| "the troubles end".to_owned());
        self.with_works(|work, _| work.stop());
        self.end_troubles();
        if !self.be_clean() {
            self.check_histories();
            return self.outcome();
        }
        self.with_works(Workload::read_all);
        let patience = self.world.now() + HEALING;
        while self.open() > 0 {
            if self.world.now() >= patience {
                self.fail("the last reads get no answer");
            }
            let next = self.world.now() + Duration::from_millis(100);
            self.go_on(next, None);
        }
        self.check_histories();
        if self.bad.is_some() {
            self.scrub_all("repair", |_| false);
            self.be_clean();
        }
        self.compare_copies();
        self.outcome()
    }
}
