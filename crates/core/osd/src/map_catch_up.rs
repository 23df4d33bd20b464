//! [`MapCatchUp`]: what an OSD asks the monitor for when maps came that do not lead on from its own.
//!
//! Ceph: `OSD::handle_osd_map` (`request_full_map`, `osdmap_subscribe`), and the check of `full_crc` there.

use crate::map_cache::LearnError;
use nacre_types::{Epoch, Stamp};
use std::time::Duration;

/// What has not come is asked for again after this time.
const RETRY: Duration = Duration::from_secs(5);

/// Which maps the monitor is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapRequest {
    /// The epochs behind ours: the subscription is said again.
    Following,
    /// Full maps, of our epoch and of the next: an increment did not lead to the next one, and with ours it shows whether the monitor has
    /// the same.
    Full {
        /// Epoch of our newest map.
        own: Epoch,
    },
}

/// What is to be done about maps that cannot be taken in; none of what came behind them was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapRefusal {
    /// The monitor has what leads on. `None`: it was asked for that already, or no session with it is open.
    Ask(Option<MapRequest>),
    /// Nothing can be asked for: they are broken.
    Ignore,
    /// The monitor's history is another one than ours: this OSD cannot tell which others served meanwhile, and ends.
    Stop,
}

/// What keeps an OSD from newer maps, and since when the monitor is asked for it.
#[derive(Debug, Default)]
pub struct MapCatchUp {
    lack: Option<(Lack, Stamp)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    Following,
    Full,
}

impl MapCatchUp {
    /// Maps came that [`crate::MapCache`] did not take for `error`, ours being of epoch `own`. `monitor_open`: a session is open.
    pub fn refused(&mut self, error: &LearnError, own: Epoch, now: Stamp, monitor_open: bool) -> MapRefusal {
        let lack = match error {
            LearnError::Gap { .. } => Lack::Following,
            LearnError::Increment(_) => Lack::Full,
            LearnError::Bad(_) => return MapRefusal::Ignore,
            LearnError::Forked { .. } => return MapRefusal::Stop,
        };
        if self.lack.is_some_and(|(of, _)| of == lack) {
            return MapRefusal::Ask(self.next_request(own, now, monitor_open));
        }
        self.lack = Some((lack, now));
        MapRefusal::Ask(monitor_open.then(|| request(lack, own)))
    }

    /// What the monitor is to be asked for now, because it has not come for a while.
    pub fn next_request(&mut self, own: Epoch, now: Stamp, monitor_open: bool) -> Option<MapRequest> {
        let (lack, asked_at) = self.lack?;
        if !monitor_open || now < asked_at + RETRY {
            return None;
        }
        self.lack = Some((lack, now));
        Some(request(lack, own))
    }

    /// Our maps have gone on. Yields what to ask for then: what came while a full map was missing was of no use.
    pub fn learned(&mut self) -> Option<MapRequest> {
        let (lack, _) = self.lack.take()?;
        (lack == Lack::Full).then_some(MapRequest::Following)
    }
}

fn request(lack: Lack, own: Epoch) -> MapRequest {
    match lack {
        Lack::Following => MapRequest::Following,
        Lack::Full => MapRequest::Full { own },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_maps::{MapError, OsdMap, newer_maps};
    use nacre_msg::MOsdMap;

    const GAP: LearnError = LearnError::Gap { own: 5, found: 8 };

    fn at(seconds: u64) -> Stamp {
        Stamp::default() + Duration::from_secs(seconds)
    }

    /// A full map that does not decode.
    fn damage() -> MapError {
        let full = [(6, nacre_buf::Bytes::from_static(b"?"))].into();
        let message = MOsdMap { full, newest: 6, ..MOsdMap::default() };
        let five = std::sync::Arc::new(OsdMap { epoch: 5, ..OsdMap::default() });
        newer_maps(&five, &message).next().expect("a map").expect_err("damaged")
    }

    #[test]
    fn a_gap_asks_for_what_follows_and_an_increment_that_leads_elsewhere_for_full_maps() {
        let mut gap = MapCatchUp::default();
        assert_eq!(gap.refused(&GAP, 5, at(1), true), MapRefusal::Ask(Some(MapRequest::Following)));
        let mut increment = MapCatchUp::default();
        let asked = increment.refused(&LearnError::Increment(damage()), 5, at(1), true);
        assert_eq!(asked, MapRefusal::Ask(Some(MapRequest::Full { own: 5 })));
    }

    #[test]
    fn an_osd_stops_where_the_monitor_has_another_history_and_not_for_a_broken_map() {
        let mut catch_up = MapCatchUp::default();
        let forked = LearnError::Forked { epoch: 5, own: 1, found: 2 };
        assert_eq!(catch_up.refused(&forked, 5, at(1), true), MapRefusal::Stop);
        assert_eq!(catch_up.refused(&LearnError::Bad(damage()), 5, at(1), true), MapRefusal::Ignore);
        assert_eq!(catch_up.next_request(5, at(60), true), None, "nothing was asked for");
    }

    #[test]
    fn what_does_not_come_is_asked_for_again_after_a_while_and_only_an_open_session() {
        let mut catch_up = MapCatchUp::default();
        assert_eq!(catch_up.refused(&GAP, 5, at(1), false), MapRefusal::Ask(None), "nobody to ask");
        assert_eq!(catch_up.refused(&GAP, 5, at(2), true), MapRefusal::Ask(None), "not for each message");
        assert_eq!(catch_up.next_request(5, at(5), true), None);
        assert_eq!(catch_up.next_request(5, at(6), false), None);
        assert_eq!(catch_up.next_request(5, at(6), true), Some(MapRequest::Following));
        assert_eq!(catch_up.next_request(5, at(7), true), None, "it was asked for at 6 s");
        let full = catch_up.refused(&LearnError::Increment(damage()), 5, at(8), true);
        assert_eq!(
            full,
            MapRefusal::Ask(Some(MapRequest::Full { own: 5 })),
            "something else is lacking, at once"
        );
    }

    #[test]
    fn behind_a_full_map_what_follows_is_asked_for_and_behind_others_it_comes() {
        let mut catch_up = MapCatchUp::default();
        assert_eq!(catch_up.learned(), None);
        catch_up.refused(&GAP, 5, at(1), true);
        assert_eq!(catch_up.learned(), None);
        assert_eq!(catch_up.next_request(6, at(60), true), None, "it has come");
        catch_up.refused(&LearnError::Increment(damage()), 6, at(60), true);
        assert_eq!(catch_up.learned(), Some(MapRequest::Following));
        assert_eq!(catch_up.learned(), None);
    }
}
