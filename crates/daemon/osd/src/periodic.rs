//! [`Periodic`]: what a shard does again and again beside clients' work: scrubs that are due, reports of its PGs, slow requests in the log.

use crate::asok;
use crate::device::PROBE_INTERVAL_RELIEVED;
use crate::link_counts::{self, LinkCounts};
use crate::pg_driver::{PgDriver, usage_for_clients};
use crate::shard_msg::{ShardMsg, ShardReport};
use crate::shard_net::{KeptOut, ShardCx};
use nacre_buf::AlignedBuf;
use nacre_env::MachineLoad;
use nacre_msg::stats::PgStat;
use nacre_options::Values;
use nacre_osd_core::{ScrubSchedule, UsualLoad};
use nacre_pg::{Event, ScrubIntervals};
use nacre_types::{OsdId, PgId, SpgId, Stamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// PGs get a tick this often.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// A client that has taken next to nothing of what waits for it for so long loses its connection, where that keeps others out. Those wait no
/// longer for it: less than a watch lives without a ping, by far.
const UNREAD_AFTER: Duration = Duration::from_secs(6);
/// A tick that is so late says that this thread did nothing for a while: clients could take nothing.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// PGs that were led here and are not, whose counts are remembered at least.
const FORMER_PGS_MAX: usize = 1024;
/// Changes of the PGs are reported to OSD control at most this often.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// When the work of a shard is due that comes back.
#[derive(Debug)]
pub(crate) struct Periodic {
    tick_at: Stamp,
    /// When the last tick was.
    ticked_at: Stamp,
    report_at: Stamp,
    slow_ops_warned_at: Stamp,
    /// Clients were kept out at the last tick by what others did not take: a moment of that is nobody's fault.
    is_kept_out: bool,
    /// What [`crate::tracker::Tracker::commits`] was at the last report.
    commits_told: (u64, u64),
    recovered: Recovered,
    usual_load: UsualLoad,
    /// Connections with other OSDs at the last tick, of a shard beside the first one.
    links: BTreeMap<OsdId, LinkCounts>,
}

/// Objects recovered in PGs that this shard leads. What a PG says of itself begins anew with each life of its copy.
#[derive(Debug, Default)]
struct Recovered {
    total: u64,
    of_pgs: BTreeMap<PgId, u64>,
}

impl Recovered {
    fn count(&mut self, pgs: &[(PgId, PgStat)]) -> u64 {
        for (pg, stat) in pgs {
            let now = u64::try_from(stat.stats.sum.num_objects_recovered).unwrap_or(0);
            let before = self.of_pgs.insert(*pg, now).unwrap_or(0);
            self.total += if now >= before { now - before } else { now };
        }
        // PGs that went elsewhere, and do not come back under this number, are not kept for ever.
        if self.of_pgs.len() > pgs.len() * 2 + FORMER_PGS_MAX {
            self.of_pgs.retain(|pg, _| pgs.iter().any(|(led, _)| led == pg));
        }
        self.total
    }
}

impl Periodic {
    pub(crate) fn new(now: Stamp) -> Self {
        Self {
            tick_at: now,
            ticked_at: now,
            report_at: now,
            slow_ops_warned_at: now,
            is_kept_out: false,
            commits_told: (0, 0),
            recovered: Recovered::default(),
            usual_load: UsualLoad::default(),
            links: BTreeMap::new(),
        }
    }

    /// When the next tick is due.
    pub(crate) fn next_deadline(&self) -> Stamp {
        self.tick_at
    }

    /// Whether a tick is due, and the next one is in a second.
    pub(crate) fn take_tick(&mut self, now: Stamp) -> bool {
        let is_due = now >= self.tick_at;
        if is_due {
            self.tick_at = now + TICK_INTERVAL;
        }
        is_due
    }

    /// What each tick does, once the PGs have had theirs.
    pub(crate) fn tick(&mut self, pgs: &mut PgDriver, cx: &mut ShardCx<'_>, give_back_memory: fn()) {
        if let Some((spg, deep)) = self.due_scrub(pgs, cx) {
            pgs.deliver(cx, spg, Event::Scrub { deep, repair: false });
        }
        probe_device(pgs, cx.options);
        pgs.idle_trim.trim(cx.now, pgs.store.as_mut(), give_back_memory);
        self.end_unread(pgs, cx);
        keep_memory_target(pgs, cx, give_back_memory);
        pgs.tracker.expire(cx.now);
        if cx.net.router.me > 0 {
            self.links = link_counts::counts(cx.net.peers.conns(), &cx.net.messenger);
        }
        let limit = cx.options.seconds("osd_op_complaint_time");
        if cx.now >= self.slow_ops_warned_at && asok::warn_slow_ops(pgs, limit, cx.now) {
            self.slow_ops_warned_at = cx.now + asok::SLOW_OPS_INTERVAL;
        }
    }

    /// Hangs up on clients that take their answers too slowly, as long as others wait for nothing but that.
    fn end_unread(&mut self, pgs: &PgDriver, cx: &mut ShardCx<'_>) {
        let stalled = cx.now.since(self.ticked_at);
        self.ticked_at = cx.now;
        let awaiting = &pgs.awaiting_memory;
        let was_kept_out = std::mem::replace(&mut self.is_kept_out, false);
        if stalled >= STALLED_AFTER {
            cx.net.messenger.excuse_unread(cx.now);
        } else if cx.net.kept_out(awaiting) != KeptOut::Nobody {
            self.is_kept_out = true;
            if !was_kept_out {
                return;
            }
            // What sockets take now was not refused.
            cx.net.messenger.flush();
            loop {
                let spared = match cx.net.kept_out(awaiting) {
                    KeptOut::Nobody => return,
                    KeptOut::One(conn) => conn,
                    KeptOut::Several => None,
                };
                if !cx.net.messenger.end_unread(cx.now, UNREAD_AFTER, spared) {
                    return;
                }
            }
        }
    }

    /// The PG whose copies are to be compared now, and whether deeply.
    fn due_scrub(&mut self, pgs: &PgDriver, cx: &ShardCx<'_>) -> Option<(SpgId, bool)> {
        let (options, load) = (cx.options, cx.clock.load());
        load.iter().for_each(|load| self.usual_load.look(load.minute));
        if is_held(options, pgs.reserver.is_in_use()) {
            return None;
        }
        let intervals = ScrubIntervals {
            shallow: options.seconds("osd_scrub_min_interval"),
            longest: options.seconds("osd_scrub_max_interval"),
            deep: options.seconds("osd_deep_scrub_interval"),
        };
        let is_busy = || is_busy(options, self.usual_load, load);
        scrub_schedule(options).next(cx.wall, is_busy, pgs.pgs.scrub_facts(cx.wall, &intervals))
    }

    /// Tells OSD control what the PGs say of themselves, when they have changed or a tick was due.
    pub(crate) fn report(&mut self, pgs: &mut PgDriver, cx: &mut ShardCx<'_>, is_tick: bool) {
        let is_due = cx.now >= self.report_at && (is_tick || pgs.pgs.have_changed());
        if !is_due || pgs.was_broken() {
            return;
        }
        let report = self.make_report(pgs, cx);
        cx.net.router.send(0, ShardMsg::Stats(Box::new(report)));
    }

    /// What the PGs say of themselves now, and what counts since the report before.
    pub(crate) fn make_report(&mut self, pgs: &mut PgDriver, cx: &mut ShardCx<'_>) -> ShardReport {
        self.report_at = cx.now + REPORT_INTERVAL;
        let usage = usage_for_clients(pgs.store.as_ref());
        let mut report = pgs.pgs.report(cx.net.router.me, usage, cx.wall);
        report.pgs.extend(pgs.relocations.stats());
        report.packed = pgs.store.packed();
        report.partitions = cx.net.router.own_partitions() as u64;
        let (count, spent_ns) = pgs.tracker.commits();
        report.commits = (count - self.commits_told.0, spent_ns - self.commits_told.1);
        self.commits_told = (count, spent_ns);
        report.links = self.links.clone();
        report.throttled = cx.net.messenger.intake().warnings;
        report.perf_samples = pgs.perf_stats.take();
        let cpu = cx.clock.cpu().unwrap_or_default();
        report.bill = pgs.bill.take(cpu.thread_ns, cpu.process_ns);
        report.sums = asok::perf_sums(pgs, cx.net, cpu);
        report.latencies = pgs.store.device().map(|device| device.take_latencies()).unwrap_or_default();
        report.sums.recovered = self.recovered.count(&report.pgs);
        let limit = cx.options.seconds("osd_op_complaint_time");
        report.slow_ops = asok::slow_ops(pgs, limit, cx.now);
        report.slow_requests = asok::slow_requests(pgs, limit, cx.now);
        report
    }
}

/// Looks at the process's memory: what is above the target goes back to the system, or is taken from what can be read again.
fn keep_memory_target(pgs: &mut PgDriver, cx: &mut ShardCx<'_>, give_back_memory: fn()) {
    if let Some(limits) = pgs.memory.logs_for(pgs.pgs.len()) {
        pgs.pgs.set_log_limits(limits);
    }
    let Some(process_bytes) = cx.clock.process_memory() else { return };
    if pgs.memory.look(cx.now, process_bytes, pgs.store.as_mut()) {
        AlignedBuf::empty_pool();
        cx.net.messenger.trim();
        pgs.store.give_back(give_back_memory);
        give_back_memory();
    }
}

/// Has the device do something, where it had nothing to do for a while: nobody could tell otherwise whether it is as fast as it was.
fn probe_device(pgs: &mut PgDriver, options: &Values) {
    let interval = options.seconds("nacre_device_probe_interval");
    let relieved = pgs.pgs.map().primary_affinity(pgs.osd) == 0;
    let idle = if relieved { interval.min(PROBE_INTERVAL_RELIEVED) } else { interval };
    if let Some(device) = pgs.store.device().filter(|_| !interval.is_zero()) {
        device.probe(idle);
    }
}

/// No scrub begins by itself while PGs of this shard recover.
fn is_held(options: &Values, is_recovering: bool) -> bool {
    is_recovering && !options.flag("osd_scrub_during_recovery")
}

/// Whether the machine has enough to do without scrubs.
fn is_busy(options: &Values, usual: UsualLoad, load: Option<MachineLoad>) -> bool {
    let threshold = options.number("osd_scrub_load_threshold");
    load.is_some_and(|load| usual.is_busy(load.minute, load.quarter_hour, threshold))
}

fn scrub_schedule(options: &Values) -> ScrubSchedule {
    let whole = |count| u32::try_from(count).unwrap_or(0);
    ScrubSchedule {
        begin_hour: whole(options.count("osd_scrub_begin_hour")),
        end_hour: whole(options.count("osd_scrub_end_hour")),
        begin_week_day: whole(options.count("osd_scrub_begin_week_day")),
        end_week_day: whole(options.count("osd_scrub_end_week_day")),
        scrubs_max: options.count("osd_max_scrubs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_osd_core::ScrubFacts;
    use nacre_pg::ScrubDue;
    use nacre_types::UTime;

    #[test]
    fn what_was_recovered_only_grows() {
        let mut recovered = Recovered::default();
        let led = |seed, objects| {
            let mut stat = PgStat::default();
            stat.stats.sum.num_objects_recovered = objects;
            (PgId::new(1, seed), stat)
        };
        assert_eq!(recovered.count(&[led(0, 5), led(1, 2)]), 7);
        assert_eq!(recovered.count(&[led(0, 6)]), 8, "the other one is led elsewhere");
        assert_eq!(recovered.count(&[led(0, 6), led(1, 3)]), 9, "and is back");
        assert_eq!(recovered.count(&[led(0, 1)]), 10, "a new life of the copy");
        let many: Vec<_> =
            (2..FORMER_PGS_MAX + 100).map(|seed| led(u32::try_from(seed).expect("few"), 0)).collect();
        recovered.count(&many);
        recovered.count(&[]);
        assert!(recovered.of_pgs.len() <= FORMER_PGS_MAX);
    }

    #[test]
    fn scrubs_wait_for_recovery_and_calm_as_the_options_say() {
        let with = |name: &'static str, value: &'static str| Values::from_iter([(name, value)]);
        let usual = Values::from_iter([] as [(&str, &str); 0]);
        assert_eq!([is_held(&usual, false), is_held(&usual, true)], [false, true]);
        assert!(!is_held(&with("osd_scrub_during_recovery", "true"), true));
        let load = Some(MachineLoad { minute: 0.8, quarter_hour: 0.8 });
        let busy = |options: &Values, load| is_busy(options, UsualLoad::default(), load);
        assert!(busy(&usual, load) && !busy(&usual, None));
        assert!(!busy(&with("osd_scrub_load_threshold", "0.9"), load));
    }

    #[test]
    fn as_many_scrubs_are_under_way_as_the_option_says() {
        let due = Some(ScrubDue { since: UTime { sec: 1, nsec: 0 }, is_deep: false, is_late: false });
        let facts =
            |seed| ScrubFacts { spg: SpgId::replicated(PgId::new(1, seed)), is_scrubbing: false, due };
        let begins = |scrubbing, scrubs_max: &str| {
            let options = Values::from_iter([("osd_max_scrubs", scrubs_max)]);
            let busy =
                (1..=scrubbing).map(|seed| ScrubFacts { is_scrubbing: true, due: None, ..facts(seed) });
            scrub_schedule(&options).next(UTime::ZERO, || false, busy.chain([facts(0)])).is_some()
        };
        assert_eq!([begins(0, "1"), begins(1, "1")], [true, false]);
        assert_eq!([begins(1, "3"), begins(2, "3"), begins(3, "3")], [true, true, false]);
    }
}
