//! Rounds of probes: the leader's order goes to the thread that probes, and what that finds goes to the leader.

use crate::driver::Driver;
use crate::probing::{Outcome, Round};

impl Driver {
    /// Takes what the thread has found, and has it probe what is due.
    pub(crate) fn follow_probes(&mut self) {
        let Some(prober) = &mut self.prober else { return };
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let results: Vec<Outcome> = prober.results.take().collect();
        let Some(lead) = &mut self.lead else { return };
        results.into_iter().for_each(|outcome| lead.mon.probed(outcome, now, wall));
        let Some(order) = lead.mon.probe_order(now) else { return };
        let monitors = self.monitors.map.mons.values().filter_map(|mon| mon.addrs.msgr2()).collect();
        if let Err(error) = prober.give(Round { monitors, order }) {
            lead.mon.probed(Err(error), now, wall);
        }
    }
}
