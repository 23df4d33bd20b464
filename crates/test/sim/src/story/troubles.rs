//! What goes wrong in a story.

use super::{Flaw, Kind, Later, POOL, Story, mappings};
use crate::net::Wires;
use crate::world::{Proc, Restored, World};
use nacre_simdisk::Faults;
use nacre_types::OsdId;
use std::time::Duration;

/// All OSDs of a PG have written down by then that a write is on all of them.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

impl Story {
    /// Something goes wrong.
    pub(super) fn trouble(&mut self) {
        let osd = self.any_osd();
        if let Some(bad) = self.bad
            && self.below(4) == 0
        {
            let what = self.betray(bad);
            *self.troubles.entry(what).or_default() += 1;
            return;
        }
        if self.plan.upgrades && self.below(3) == 0 {
            let what = self.upgrade(osd);
            *self.troubles.entry(what).or_default() += 1;
            return;
        }
        if self.plan.bustle && self.below(6) == 0 {
            let what = if self.below(3) == 0 { self.fence() } else { self.change_pools() };
            *self.troubles.entry(what).or_default() += 1;
            return;
        }
        let what = match self.below(18) {
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
            15 => self.many_maps(osd),
            16 => self.fill(),
            _ => self.defame(osd),
        };
        *self.troubles.entry(what).or_default() += 1;
    }

    pub(super) fn crash(&mut self, osd: OsdId, power: bool) -> &'static str {
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

    /// The bad device does something.
    fn betray(&mut self, osd: OsdId) -> &'static str {
        match if self.loses() { self.below(3) } else { 0 } {
            0 => (),
            1 => return self.lose_alone(osd),
            _ => return self.lose_beside(osd),
        }
        if self.forgets() && self.leads_few(osd) {
            return "leads too few";
        }
        match self.plan.flaw {
            Some(Flaw::Lies) => self.lie(osd),
            Some(Flaw::Forgets) => self.forget_the_end(osd),
            Some(Flaw::GoesBack) => self.go_back(osd),
            Some(Flaw::Dies) => self.lose(osd),
            _ => self.fail_requests(osd),
        }
    }

    /// Whether the OSD leads an erasure-coded PG with so few others that a write which it forgets before it has told them that all had it
    /// may be lost, as the README says.
    fn leads_few(&self, osd: OsdId) -> bool {
        let Some((code, map)) = self.code.zip(self.world.mon().map(|mon| mon.state().osd.map())) else {
            return false;
        };
        mappings(map).any(|of_pg| {
            let others = of_pg.acting.iter().filter(|member| **member != osd && map.is_up(**member)).count();
            of_pg.acting_primary == osd && (others as u64) <= code.k
        })
    }

    fn replace_device(&mut self, osd: OsdId) -> &'static str {
        self.replace(osd);
        "device replaced"
    }

    /// The bad device loses writes for a while, or writes them elsewhere.
    fn lie(&mut self, osd: OsdId) -> &'static str {
        if self.below(8) == 0 {
            return self.replace_device(osd);
        }
        let ppm = 5000_u32 << self.below(6);
        let some_time = self.while_(Duration::from_secs(10));
        let lost = self.below(2) == 0;
        self.note(|| format!("the device of osd.{osd} lies of {ppm} ppm for {some_time:?}, lost {lost}"));
        let faults = if lost {
            Faults { lost_ppm: ppm, ..Faults::default() }
        } else {
            Faults { misdirected_ppm: ppm, ..Faults::default() }
        };
        self.world.set_faults(osd, faults);
        self.at(some_time, Later::Mended);
        self.unwritten_until = self.world.now() + some_time + WRITTEN_WITHIN;
        if lost { "writes lost" } else { "writes misdirected" }
    }

    /// The bad device loses power, and with it all that it acknowledged in the last moments. What its OSD wrote before is whole, so
    /// nothing tells it.
    fn forget_the_end(&mut self, osd: OsdId) -> &'static str {
        if !self.world.runs(Proc::Osd(osd)) {
            return "no power to lose";
        }
        self.work.hurry();
        let some_time = Duration::from_millis(1 << self.below(10));
        self.note(|| format!("the device of osd.{osd} loses all that comes in {some_time:?}"));
        self.world.set_faults(osd, Faults { lost_ppm: 1_000_000, ..Faults::default() });
        self.at(some_time, Later::Crash(osd, true));
        self.at(some_time, Later::Mended);
        self.unwritten_until = self.world.now() + some_time + WRITTEN_WITHIN;
        "end lost"
    }

    /// A copy of the bad device is made, or put back.
    fn go_back(&mut self, osd: OsdId) -> &'static str {
        if self.below(8) == 0 {
            return self.replace_device(osd);
        }
        if self.is_leaving(osd) {
            return "nothing to put back";
        }
        let power = self.below(2) == 0;
        self.crash(osd, power);
        let what = match self.below(6) {
            0 => Restored::Device,
            1 => Restored::Metadata,
            _ => Restored::Both,
        };
        let copies = self.below(3) == 0;
        match &self.copy {
            Some(copy) if !copies => self.world.restore_osd(osd, copy, what),
            _ => {
                self.copy = Some(self.world.back_up_osd(osd));
                return "backup";
            }
        }
        self.unwritten_until = self.world.now() + WRITTEN_WITHIN;
        self.note(|| format!("osd.{osd} goes back: {what:?}"));
        "put back"
    }

    fn fail_requests(&mut self, osd: OsdId) -> &'static str {
        let some_time = self.while_(Duration::from_secs(20));
        match self.below(8) {
            0 => self.replace_device(osd),
            1 | 2 => {
                self.world.set_faults(osd, Faults { read_errors_ppm: 100_000, ..Faults::default() });
                self.at(some_time, Later::Mended);
                "read errors"
            }
            3 => {
                self.world.set_faults(osd, Faults { latent_ppm: 20_000, ..Faults::default() });
                self.at(some_time, Later::Mended);
                "latent errors"
            }
            4 => {
                let requests = self.below(50);
                self.world.fail_once(osd, requests);
                "one error"
            }
            _ => {
                let bits = 1 + self.below(20);
                self.note(|| format!("{bits} bits rot at osd.{osd}"));
                // Of an erasure-coded pool the log's newest record may be all that tells of a write, as the README says.
                let rot = if self.code.is_some() { World::rot_beside_log } else { World::rot };
                for _ in 0..bits {
                    rot(&mut self.world, osd);
                }
                "rot"
            }
        }
    }

    /// The pool is full for a while: its quota is, or the OSDs are. A client may not hear of it.
    fn fill(&mut self) -> &'static str {
        let long = self.while_(Duration::from_secs(10));
        if self.below(2) == 0 {
            let client = Proc::Client(self.work.any_client(&mut self.world));
            self.world.fabric().block(Proc::Mon(0).host(), client.host());
            self.at(long, Later::Heal);
        }
        if self.below(2) == 0 {
            self.set_quota(1);
            self.at(long, Later::NoQuota);
            return "quota";
        }
        self.set_full_ratio("0.000001");
        self.at(long, Later::NotFull);
        "full"
    }

    pub(super) fn set_quota(&mut self, objects: u64) {
        self.order(&format!(
            r#"{{"prefix": "osd pool set-quota", "pool": "p", "field": "max_objects", "val": "{objects}"}}"#
        ));
    }

    pub(super) fn set_full_ratio(&mut self, ratio: &str) {
        self.order(&format!(r#"{{"prefix": "osd set-full-ratio", "ratio": {ratio}}}"#));
    }

    fn crash_mon(&mut self) -> &'static str {
        if self.world.runs(Proc::Mon(0)) {
            let power = self.below(2) == 0;
            self.note(|| format!("the monitor ends, power {power}"));
            self.world.stop_mon(0, power);
            let back = self.while_(Duration::from_secs(10));
            self.at(back, Later::Start(Proc::Mon(0)));
        }
        "monitor ends"
    }

    /// Whether several OSDs of an erasure-coded PG may not end now: each that does forgets, with its memory, that a write was on all
    /// copies, and the bad device may have forgotten the write. The README says that such a write may be lost.
    fn others_must_remember(&self) -> bool {
        self.code.is_some() && self.world.now() < self.unwritten_until
    }

    fn crash_all(&mut self) -> &'static str {
        if self.others_must_remember() {
            return "no end of several";
        }
        for osd in self.world.osd_ids() {
            self.crash(osd, true);
        }
        "power loss of all"
    }

    /// Half of the OSDs end; when they come back, the other half does: whoever served alone takes along what it
    /// alone has.
    fn take_turns(&mut self) -> &'static str {
        if self.others_must_remember() {
            return "no end of several";
        }
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
        let kind = self.below(5);
        if kind == 4 {
            return self.maroon(osd);
        }
        let others: Vec<Proc> = match kind {
            0 if all => {
                // An island: clients still reach it, and nobody else.
                let ids = self.world.osd_ids().into_iter().filter(|other| *other != osd);
                ids.map(Proc::Osd).chain([Proc::Mon(0)]).collect()
            }
            0 => vec![Proc::Mon(0)],
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

    /// An OSD and a client reach only each other.
    fn maroon(&mut self, osd: OsdId) -> &'static str {
        let client = self.work.any_client(&mut self.world);
        let inside = [Proc::Osd(osd), Proc::Client(client)];
        self.note(|| format!("{inside:?} are cut off"));
        for other in self.world.procs().into_iter().filter(|other| !inside.contains(other)) {
            for one in inside {
                self.world.fabric().block(one.host(), other.host());
                self.world.fabric().block(other.host(), one.host());
            }
        }
        let healed = self.while_(Duration::from_secs(40));
        self.at(healed, Later::Heal);
        "island"
    }

    fn reset(&mut self) -> &'static str {
        let found = self.world.fabric().reset_one(|_, _| true);
        self.note(|| format!("a connection is reset: {found}"));
        "reset"
    }

    fn freeze(&mut self, osd: OsdId) -> &'static str {
        let proc = if self.below(4) == 0 { Proc::Mon(0) } else { Proc::Osd(osd) };
        let long = self.while_(Duration::from_secs(30));
        if proc != Proc::Mon(0) && self.plan.shards > 1 && self.below(2) == 0 {
            return self.hold_thread(osd, long);
        }
        let in_turn = proc != Proc::Mon(0) && self.world.runs(proc) && self.below(2) == 0;
        self.note(|| format!("{proc:?} is frozen for {long:?}, in its turn {in_turn}"));
        let until = self.world.now() + long;
        if in_turn {
            self.world.freeze_in_turn(proc, until);
            return "freeze in a turn";
        }
        self.world.freeze(proc, until);
        "freeze"
    }

    /// One thread of an OSD stands still, the others go on.
    fn hold_thread(&mut self, osd: OsdId, long: Duration) -> &'static str {
        let thread = usize::try_from(self.below(self.plan.shards as u64)).unwrap_or(0);
        self.note(|| format!("thread {thread} of osd.{osd} stands still for {long:?}"));
        let until = self.world.now() + long;
        self.world.hold_thread(osd, thread, until);
        "thread held up"
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
            // What is on different shards is on different devices, and goes from one to the other before it is merged.
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
            3 if self.code.is_some() => {
                let (least, spread) = self.code.map_or((1, 1), |code| (code.k, code.m));
                let least = least + self.spare();
                let min_size = least + self.below(spread + 1 - self.spare());
                self.set_pool("min_size", min_size);
            }
            3 => {
                let least = match self.plan.kind {
                    Kind::OneServes => 1,
                    _ if self.forgets() => 3,
                    _ => 2,
                };
                let size = least.max(2 + self.below(3));
                self.set_pool("size", size);
                let min_size = 1 + self.below(size.min(2));
                self.set_pool("min_size", min_size.max(least).min(size));
            }
            _ => {
                let pg = self.below(self.pg_num);
                let to = self.any_osd();
                self.order(&format!(
                    r#"{{"prefix": "osd pg-upmap-items", "pgid": "{POOL}.{pg:x}", "id": [{osd}, {to}]}}"#
                ));
            }
        }
        "map change"
    }

    pub(super) fn set_pool(&mut self, var: &str, value: u64) {
        self.order(&format!(
            r#"{{"prefix": "osd pool set", "pool": "p", "var": "{var}", "val": "{value}"}}"#
        ));
    }

    /// One more snapshot, or one less.
    fn snapshot(&mut self) -> &'static str {
        if self.plan.small_devices {
            return "no snapshot"; // deleting would free nothing
        }
        if self.below(3) == 0 && self.work.forget_snapshot(&mut self.world) {
            return "snapshot removed";
        }
        self.work.snapshot(&mut self.world);
        "snapshot"
    }

    /// More maps in a moment than an answer to a ping carries, most of which an OSD does not get.
    fn many_maps(&mut self, osd: OsdId) -> &'static str {
        if self.below(2) == 0 {
            self.world.fabric().block(Proc::Mon(0).host(), Proc::Osd(osd).host());
            let healed = self.while_(Duration::from_secs(20));
            self.at(healed, Later::Heal);
        }
        for n in 0..48 {
            let verb = if n % 2 == 0 { "set" } else { "unset" };
            let after = Duration::from_millis(50 * n);
            self.at(after, Later::Flag(verb));
        }
        "many maps"
    }

    fn defame(&mut self, osd: OsdId) -> &'static str {
        self.order(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"]}}"#));
        "false report"
    }
}
