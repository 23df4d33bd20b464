//! OSDs whose devices stay slow are marked out after a while without primaries (`nacre_slow_device_out_after`): their copies are made
//! elsewhere while they still serve, after which no write waits for them. They come in again with the weight that they had when they are
//! well.
//!
//! To copy what a whole OSD has is no small thing: it is one OSD at a time, one that was seen well before, and only where nothing else is
//! copied, every one of its PGs finds as many OSDs without it, and there is room.

use crate::balancing;
use crate::mon::Mon;
use crate::osd::{has_osd_flag, share};
use crate::slow_osds::MarkedOut;
use crate::state::State;
use nacre_maps::{OsdMap, WEIGHT_ONE, flags};
use nacre_msg::LogPriority;
use nacre_types::{OsdId, UTime};

const TOO_FULL: u32 = flags::osd::BACKFILLFULL | flags::osd::FULL;

/// Why an OSD cannot be out now.
fn obstacle(state: &State, map: &OsdMap, osd: OsdId) -> Option<String> {
    if !state.slow_osds.measure(osd).is_some_and(|measure| measure.was_well) {
        return Some(
            "its device was not seen well before, and may be of a slower kind than the others".to_owned(),
        );
    }
    if map.has_flag(flags::osdmap::NOOUT) || has_osd_flag(map, osd, flags::osd::NOOUT) {
        return Some("the flag noout is set".to_owned());
    }
    if let Some(reason) = balancing::obstacle_to_copying(state, map) {
        return Some(reason);
    }
    let unreported = balancing::unreported(map, state.stats.pgs.pgs(map).count());
    if unreported > 0 {
        return Some(format!("{unreported} PGs have not been reported"));
    }
    let (known, inside) = (map.osds().count(), map.osds().filter(|osd| map.is_in(*osd)).count());
    let ratio_min = state.config.number_of_monitor("mon_osd_min_in_ratio", 0.75);
    if share(inside.saturating_sub(1), known) < ratio_min {
        return Some(format!("less than mon_osd_min_in_ratio ({ratio_min}) of the OSDs would be in"));
    }
    no_room(state, map, osd).or_else(|| no_place(state, map, osd))
}

/// The others of its device class would be nearly full with what it has, or one of them is too full to take anything.
#[expect(clippy::cast_precision_loss, reason = "a ratio for thresholds")]
fn no_room(state: &State, map: &OsdMap, osd: OsdId) -> Option<String> {
    let class = map.crush.item_class_name(osd);
    let inside = map.osds().filter(|osd| map.is_in(*osd) && map.crush.item_class_name(*osd) == class);
    let fills: Option<Vec<(OsdId, i64, i64)>> = inside
        .map(|osd| state.stats.pgs.osd(osd).map(|stat| (osd, stat.statfs.total, stat.statfs.available)))
        .collect();
    let Some(fills) = fills else { return Some("an OSD has not said yet how full it is".to_owned()) };
    let backfillfull = map.osds().find(|osd| map.state(*osd) & TOO_FULL != 0);
    if let Some(full) = backfillfull {
        return Some(format!("osd.{full} is too full to be copied to"));
    }
    // What a peer reports is bounded, and there are a few thousand of them.
    let used: i64 = fills.iter().map(|(_, total, available)| total.saturating_sub(*available)).sum();
    let total: i64 = fills.iter().filter(|(other, ..)| *other != osd).map(|(_, total, _)| *total).sum();
    let fill = used as f64 / (total.max(1)) as f64;
    let nearfull = f64::from(map.nearfull_ratio);
    (fill >= nearfull).then(|| format!("the others would be {:.0} % full with what it has", fill * 100.0))
}

/// A PG would have fewer copies: there is no other OSD that its rule could take.
fn no_place(state: &State, map: &OsdMap, osd: OsdId) -> Option<String> {
    let mut without = map.clone();
    if let Ok(at) = usize::try_from(osd)
        && let Some(weight) = without.osd_weight.get_mut(at)
    {
        *weight = 0;
    }
    let members = |up: &[OsdId]| up.iter().filter(|osd| **osd >= 0).count();
    let concerned = state.stats.pgs.pgs(map).filter(|(_, stat)| stat.up.contains(&osd));
    let poorer = concerned.filter(|(pg, stat)| members(&without.pg_to_up_acting(*pg).up) < members(&stat.up));
    let poorer = poorer.count();
    (poorer > 0).then(|| format!("{poorer} of its PGs would have fewer copies"))
}

impl Mon {
    /// Marks one out that has been relieved for long enough, and takes note of operators who know better.
    pub(crate) fn tick_slow_osds_out(&mut self, map: &OsdMap, wall: UTime) {
        let after = self.state.config.number_of_monitor("nacre_slow_device_out_after", 30.0);
        let out: Vec<(OsdId, u32)> = self.state.slow_osds.out().collect();
        for (osd, weight) in &out {
            if self.state.osd.upcoming().weight(*osd) > 0 {
                self.state.slow_osds.set_out(*osd, MarkedOut::Overruled);
            } else if after <= 0.0 {
                self.state.slow_osds.set_out(*osd, MarkedOut::No);
                self.mark_in_again(*osd, *weight, wall);
            }
        }
        self.state.slow_osds.kept_in = None;
        if after <= 0.0 || !out.is_empty() {
            return;
        }
        let slow = &self.state.slow_osds;
        let is_due = |osd: OsdId| {
            let measure = slow.measure(osd);
            map.is_up(osd)
                && map.is_in(osd)
                && measure.is_some_and(|measure| {
                    let lasts = wall.since(measure.since).as_secs_f64();
                    measure.affinity_before.is_some() && measure.out == MarkedOut::No && lasts >= after
                })
        };
        // One that is well by now, and not yet for long enough, has no business going.
        let slow_now = slow.found.slow().filter(|(osd, slow)| slow.is_slow_now && is_due(*osd));
        let Some(osd) = slow_now.map(|(osd, _)| osd).next() else { return };
        if let Some(reason) = obstacle(&self.state, map, osd) {
            self.state.slow_osds.kept_in = Some((osd, reason));
            return;
        }
        let weight = self.state.osd.upcoming().weight(osd);
        if weight == 0 {
            return;
        }
        self.state.slow_osds.set_out(osd, MarkedOut::ByUs(weight));
        self.state.osd.change().new_weight.insert(osd, 0);
        let text =
            format!("osd.{osd} is marked out because its device stays slow: its copies are made elsewhere");
        self.state.clog(LogPriority::WARN, wall, text);
    }

    /// Gives an OSD back the weight that it had, unless somebody has done so.
    pub(crate) fn mark_in_again(&mut self, osd: OsdId, weight: u32, wall: UTime) {
        let map = self.state.osd.upcoming();
        if !map.exists(osd) || map.weight(osd) > 0 {
            return;
        }
        self.state.osd.change().new_weight.insert(osd, weight);
        let share = f64::from(weight) / f64::from(WEIGHT_ONE);
        let text = format!("osd.{osd} is in again, with weight {share}");
        self.state.clog(LogPriority::INFO, wall, text);
    }
}
