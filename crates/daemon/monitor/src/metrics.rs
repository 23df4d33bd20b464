//! Metrics and the web page of the active manager: when they are shown, and what the monitor's thread says to those that ask.

use crate::driver::Driver;
use crate::exporter::Request;
use crate::page::Ask;
use nacre_maps::MonInfo;
use nacre_mon::metrics;

impl Driver {
    /// Shows metrics where the options want it. Who waits beside the leader on the same machine leaves the port to it.
    pub(crate) fn follow_metrics(&mut self) {
        let Some(exporter) = &mut self.exporter else { return };
        let Some(own) = self.presence.mon_addrs.front().socket.map(|socket| socket.ip()) else { return };
        let mons = &self.monitors.map.mons;
        let is_here = |info: &MonInfo| info.addrs.front().socket.is_some_and(|socket| socket.ip() == own);
        let apart =
            mons.iter().filter(|(name, _)| **name != self.presence.name).all(|(_, info)| !is_here(info));
        let listening = exporter.follow(own, self.lead.is_some(), apart);
        if let Some(lead) = &mut self.lead {
            lead.mon.set_metrics_listener(listening);
        }
    }

    /// Shows the web page where the options want it.
    pub(crate) fn follow_page(&mut self) {
        let (Some(exporter), Some(page)) = (&self.exporter, &mut self.page) else { return };
        let Some(own) = self.presence.mon_addrs.front().socket.map(|socket| socket.ip()) else { return };
        let listening =
            page.follow(exporter.target.wanted_page(), own, self.lead.is_some(), self.clock.now());
        if let Some(lead) = &mut self.lead {
            lead.mon.set_page_listener(listening);
        }
    }

    /// Tells those that look at the web page what they want to know.
    pub(crate) fn answer_page(&mut self) {
        let asks: Vec<Ask> = self.page.iter().flat_map(|page| page.asks.take()).collect();
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mon = self.lead.as_ref().map(|lead| &lead.mon);
        asks.into_iter().for_each(|ask| ask.answer(mon, now, wall));
    }

    /// Tells what the manager knows to those that ask.
    pub(crate) fn answer_metrics(&mut self) {
        let requests: Vec<Request> =
            self.exporter.iter().flat_map(|exporter| exporter.requests.take()).collect();
        for request in requests {
            let lead = self.lead.as_ref().filter(|lead| lead.mon.state().mgr.own_is_active());
            let view = lead.map(|lead| {
                let count = |name: &String| {
                    let at = self.monitors.id_of(name);
                    (name.clone(), at.map_or(0, |at| lead.sessions.count_at(at)))
                };
                let sessions = self.monitors.map.ranks.iter().map(count).collect();
                Box::new(metrics::view(lead.mon.state(), sessions))
            });
            // Fails only when nobody waits for it any more.
            let _gone = request.try_send(view);
        }
    }
}
