//! Choosing the authoritative log among those that the members sent. Ceph `PeeringState::find_best_info`.

use crate::Planted;
use nacre_msg::peer::PgInfo;
use nacre_types::{Epoch, Eversion, OsdId};
use std::collections::{BTreeMap, BTreeSet};

/// The copy with the authoritative log, or `None` when no complete copy can be trusted to have all
/// acknowledged writes. Ceph `PeeringState::find_best_info`.
///
/// Copies that did not take part in the newest active interval known to anybody are out. Then the newest
/// `last_update` wins (every acknowledged write is on all copies, so newer is never less), then the longer
/// log, then `me`, because that saves fetching it.
///
/// `ignore_history`: what copies know of intervals that they took no part in does not count. Writes of those are given up.
pub(crate) fn choose(infos: &BTreeMap<OsdId, &PgInfo>, me: OsdId, ignore_history: bool) -> Option<OsdId> {
    let complete = || infos.iter().filter(|(_, info)| !info.is_incomplete());
    let known = infos.values().filter(|_| !ignore_history);
    let started = known.map(|info| info.history.last_epoch_started);
    let newest_start = started.chain(complete().map(|(_, info)| info.last_epoch_started)).max()?;
    // Any copy of that interval holds all that was acknowledged before it began.
    let acknowledged = infos
        .values()
        .filter(|info| info.last_epoch_started >= newest_start && !info.is_incomplete())
        .map(|info| info.last_update)
        .min()
        .unwrap_or(Eversion::ZERO);
    complete()
        .filter(|(_, info)| info.last_epoch_started >= newest_start && info.last_update >= acknowledged)
        .max_by_key(|(osd, info)| {
            (info.last_update, std::cmp::Reverse(info.log_tail), **osd == me, std::cmp::Reverse(**osd))
        })
        .map(|(osd, _)| *osd)
}

/// What a choice among copies that hold chunks rests on.
pub(crate) struct Known<'a> {
    pub(crate) infos: &'a BTreeMap<OsdId, &'a PgInfo>,
    pub(crate) me: OsdId,
    /// First epoch, last epoch and acting set of the intervals that may matter, the present one among them.
    pub(crate) intervals: Vec<(Epoch, Epoch, Vec<OsdId>)>,
    /// Chunks that give the data back.
    pub(crate) needed: usize,
    /// Chunks that keep a write which may have been acknowledged: see [`enough_to_keep`].
    pub(crate) enough: usize,
    /// A mistake built in on purpose.
    pub(crate) planted: Planted,
}

/// So many chunks of a write keep it, although others that took part lack it: as many as an acknowledged write must be on (`min_size`), and
/// not more than outlive the next failure. Where `min_size` is larger it asks for all of them to be there, not for each to remember: a
/// write that was on all is still on all but the one that forgot it.
pub(crate) fn enough_to_keep(needed: usize, min_size: usize) -> usize {
    min_size.clamp(needed, needed + 1)
}

impl Known<'_> {
    fn complete(&self) -> impl Iterator<Item = (OsdId, &PgInfo)> + '_ {
        self.infos.iter().filter(|(_, info)| !info.is_incomplete()).map(|(osd, info)| (*osd, *info))
    }

    /// The activation in `epoch` was never finished, so nothing was acknowledged behind it: a member of its interval
    /// that has its data did not take part.
    fn is_disproved(&self, epoch: Epoch) -> bool {
        let before = |osd: &OsdId| {
            self.infos.get(osd).is_some_and(|info| !info.is_empty() && info.last_epoch_started < epoch)
        };
        let of_epoch = self.intervals.iter().filter(|(first, last, _)| (*first..=*last).contains(&epoch));
        of_epoch.flat_map(|(.., acting)| acting).any(before)
    }

    /// The log to go on with among those that took part in the activation of `start`, and how many shards bear it out.
    fn authority(&self, start: Epoch) -> Option<(OsdId, usize)> {
        let is_of_start =
            |info: &PgInfo| info.last_epoch_started >= start || self.planted == Planted::OldCopiesBelieved;
        let of_start = || self.complete().filter(|(_, info)| is_of_start(info));
        // All of them had this: one that has less lost what was acknowledged, and would have the others take it back.
        let safe_to = match self.planted {
            Planted::SafeToIgnored | Planted::OldCopiesBelieved => Eversion::ZERO,
            _ => of_start().map(|(_, info)| info.safe_to).max().unwrap_or_default(),
        };
        let took_part = |info: &PgInfo| is_of_start(info) && info.last_update >= safe_to;
        let updates =
            || of_start().map(|(_, info)| info).filter(|info| took_part(info)).map(|info| info.last_update);
        let shortest = updates().min()?;
        let is_kept = |update: &Eversion| *update == shortest || self.is_kept(*update, took_part);
        let update = updates().filter(is_kept).max()?;
        let best = of_start().filter(|(_, info)| took_part(info) && info.last_update == update);
        let (best, _) = best.min_by_key(|(osd, info)| (info.log_tail, *osd != self.me, *osd))?;
        if update == Eversion::ZERO {
            return Some((best, usize::MAX)); // there is nothing to be read
        }
        let has =
            |info: &&PgInfo| took_part(info) && info.last_update >= update || went_on_from(info, update);
        Some((best, self.count_shards(has)))
    }

    /// Enough shards have all objects up to `update` and beyond: it may have been acknowledged, and outlives the next failure as one does
    /// that is acknowledged while the others are away. One that ends before it may have forgotten it, with nobody left who knows.
    fn is_kept(&self, update: Eversion, took_part: impl Fn(&PgInfo) -> bool) -> bool {
        let is_whole = |info: &&PgInfo| {
            took_part(info) && info.last_update >= update && info.last_complete == info.last_update
        };
        let believes_the_shortest =
            matches!(self.planted, Planted::SafeToIgnored | Planted::OldCopiesBelieved);
        !believes_the_shortest && self.count_shards(is_whole) >= self.enough
    }

    fn count_shards(&self, counts: impl Fn(&&PgInfo) -> bool) -> usize {
        let infos = self.complete().map(|(_, info)| info).filter(counts);
        infos.filter_map(|info| info.shard).collect::<BTreeSet<u8>>().len()
    }
}

/// Whether the copy's log contains `update`, by what is known of the copy alone. If it does, the copy has the same chunks as those that
/// took part in the activation that it missed, since it keeps what its newer writes replaced.
///
/// All members of an interval follow one primary, and whoever has a write has those before it. Each notes the interval
/// (`last_interval_started`) before it takes the first write of it: the epochs from there to that of its newest write are all of that one.
fn went_on_from(info: &PgInfo, update: Eversion) -> bool {
    let (first, last) = (info.last_interval_started, info.last_update.epoch);
    info.last_update >= update && (last == update.epoch || first <= update.epoch)
}

/// As [`choose`], where a copy is one of the chunks of which `known.needed` give the data back: Ceph's `find_best_info` of
/// pools that can roll back. `None` when too few copies are there to tell what was acknowledged, or to read it.
///
/// Of those that took part in the newest activation, the longest log that `known.enough` shards have with all their objects; else
/// the *shortest*: whatever was acknowledged is on all of them, and what only some of them have may be unreadable in either version
/// unless it is taken back. Ceph takes the shortest in any case. A copy whose device forgot what it acknowledged has a shorter log than
/// it should have; the others have what it lacks, and give it back.
pub(crate) fn choose_coded(known: &Known<'_>) -> Option<OsdId> {
    let finished = known.infos.values().map(|info| info.history.last_epoch_started);
    let begun = known.complete().map(|(_, info)| info.last_epoch_started);
    let finished = finished.max()?;
    let starts: BTreeSet<Epoch> = begun.filter(|start| *start > finished).chain([finished]).collect();
    for start in starts.into_iter().rev() {
        match known.authority(start) {
            Some((best, shards)) if shards >= known.needed => return Some(best),
            _ if start > finished && known.is_disproved(start) => (),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::peer::PgHistory;
    use nacre_types::HObject;

    /// `osd:last_update~tail/les` words; `@n` behind is the first epoch of the interval of that activation, if not the same, `?` marks an
    /// incomplete copy, `!` one that lacks objects, `^n` what its history knows, `=v` what it knows that all had.
    fn parse(text: &str) -> Vec<(OsdId, PgInfo)> {
        text.split_whitespace()
            .map(|word| {
                let (word, safe) = word.split_once('=').unwrap_or((word, "0'0"));
                let (word, known) = word.split_once('^').unwrap_or((word, "0"));
                let (osd, rest) = word.split_once(':').expect("osd:");
                let (update, rest) = rest.split_once('~').expect("~tail");
                let (tail, started) = rest.split_once('/').expect("/les");
                let version = |text: &str| {
                    let (epoch, version) = text.split_once('\'').expect("epoch'version");
                    Eversion::new(epoch.parse().expect("epoch"), version.parse().expect("version"))
                };
                let mut info = PgInfo::empty(PgHistory::default());
                if started.ends_with('?') {
                    info.last_backfill = HObject::MIN;
                }
                let epochs = started.trim_end_matches(['?', '!']);
                let (epoch, since) = epochs.split_once('@').unwrap_or((epochs, epochs));
                info.last_epoch_started = epoch.parse().expect("an epoch");
                info.last_interval_started = since.parse().expect("an epoch");
                info.history.last_epoch_started = known.parse().expect("an epoch");
                (info.last_update, info.log_tail) = (version(update), version(tail));
                info.last_complete = if started.ends_with('!') { info.log_tail } else { info.last_update };
                info.safe_to = version(safe);
                (osd.parse().expect("a number"), info)
            })
            .collect()
    }

    fn chosen(text: &str, me: OsdId) -> Option<OsdId> {
        let infos = parse(text);
        choose(&infos.iter().map(|(osd, info)| (*osd, info)).collect(), me, false)
    }

    #[test]
    fn cases() {
        let cases = [
            ("all equal: me", "0:5'9~0'0/5 1:5'9~0'0/5", 1, Some(1)),
            ("newest update", "0:5'9~0'0/5 1:5'10~0'0/5", 0, Some(1)),
            ("missed the newest interval", "0:4'20~0'0/4 1:5'9~0'0/5", 0, Some(1)),
            ("longer log", "0:5'9~3'3/5 1:5'9~2'2/5", 0, Some(1)),
            ("incomplete copies are no source", "0:5'9~0'0/5? 1:5'8~0'0/5", 0, Some(1)),
            ("nobody of the newest interval is complete", "0:5'9~0'0/5? 1:4'8~0'0/4^5", 0, None),
            ("somebody knows of a newer interval", "0:5'9~0'0/5^7 1:5'9~0'0/5", 0, None),
            ("fresh", "0:0'0~0'0/0 1:0'0~0'0/0", 1, Some(1)),
        ];
        for (what, infos, me, want) in cases {
            assert_eq!(chosen(infos, me), want, "{what}");
        }
    }

    #[test]
    fn an_operator_may_give_up_an_interval_that_nobody_took_part_in() {
        let infos = parse("0:5'9~0'0/5^7 1:5'10~0'0/5^7 2:4'20~0'0/4");
        let infos = infos.iter().map(|(osd, info)| (*osd, info)).collect();
        assert_eq!((choose(&infos, 0, false), choose(&infos, 0, true)), (None, Some(1)));
    }

    /// As `chosen`, for chunks of which two are needed and a write must be on `enough`; each OSD holds the shard of its number. `past` is an
    /// interval.
    fn chosen_of_chunks(text: &str, past: (Epoch, Epoch, &[OsdId]), enough: usize) -> Option<OsdId> {
        let mut infos = parse(text);
        infos.iter_mut().for_each(|(osd, info)| info.shard = u8::try_from(*osd).ok());
        let infos = infos.iter().map(|(osd, info)| (*osd, info)).collect();
        let intervals = vec![(past.0, past.1, past.2.to_vec())];
        choose_coded(&Known { infos: &infos, me: 0, intervals, needed: 2, enough, planted: Planted::Nothing })
    }

    /// With `min_size` 4 of 2+2 a write that one member forgot, at a power failure of all, was taken back on the other three.
    #[test]
    fn a_larger_min_size_does_not_give_up_more() {
        for (min_size, enough) in [(1, 2), (2, 2), (3, 3), (4, 3)] {
            assert_eq!(enough_to_keep(2, min_size), enough, "{min_size}");
        }
        assert_eq!(enough_to_keep(4, 5), 5);
    }

    #[test]
    fn what_enough_shards_have_is_kept() {
        let cases = [
            ("one has forgotten it", "0:5'9~0'0/5 1:5'8~0'0/5 2:5'9~0'0/5", 2, Some(0)),
            ("or never had it", "0:5'9~0'0/5 1:0'0~0'0/5 2:5'9~0'0/5", 2, Some(0)),
            ("too few have it", "0:5'9~0'0/5 1:5'8~0'0/5 2:5'9~0'0/5", 3, Some(1)),
            ("the longest that enough have", "0:5'7~0'0/5 1:5'8~0'0/5 2:5'9~0'0/5 3:5'10~0'0/5", 3, Some(1)),
            ("one lacks objects", "0:5'9~0'0/5 1:5'8~0'0/5 2:5'9~0'0/5!", 2, Some(1)),
            (
                "whoever lacks objects counts for nothing",
                "0:5'10~0'0/5 1:5'8~0'0/5 2:5'9~0'0/5! 3:5'10~0'0/5",
                2,
                Some(0),
            ),
            ("one took no part", "0:5'9~0'0/5 1:5'8~0'0/5 2:5'9~0'0/4", 2, Some(1)),
            ("one is incomplete", "0:5'9~0'0/5 1:5'8~0'0/5 2:5'9~0'0/5?", 2, Some(1)),
        ];
        for (what, text, enough, expected) in cases {
            assert_eq!(chosen_of_chunks(text, (0, 0, &[]), enough), expected, "{what}: {text}");
        }
    }

    #[test]
    fn cases_of_chunks() {
        let nothing: (Epoch, Epoch, &[OsdId]) = (0, 0, &[]);
        let cases = [
            ("nobody has anything: me", "0:0'0~0'0/0 1:0'0~0'0/0", nothing, Some(0)),
            ("all equal: me", "0:5'9~0'0/5 1:5'9~0'0/5 2:5'9~0'0/5", nothing, Some(0)),
            ("the shortest", "0:5'9~0'0/5 1:5'8~0'0/5 2:5'9~0'0/5", nothing, Some(1)),
            ("missed the newest interval", "0:5'9~0'0/5 1:5'8~0'0/4 2:5'9~0'0/5", nothing, Some(0)),
            ("one chunk is too few", "0:5'9~0'0/5 1:5'8~0'0/4", nothing, None),
            ("missed the activation, not the data", "0:5'9~0'0/5 1:5'9~0'0/4", nothing, Some(0)),
            ("missed it, and has more", "0:5'9~0'0/5 1:5'11~0'0/4", nothing, Some(0)),
            ("missed it, and has something else", "0:5'9~0'0/5 1:4'11~0'0/4", nothing, None),
            ("went on in a later epoch of the interval", "0:5'9~0'0/9 1:7'11~0'0/5@4", nothing, Some(0)),
            ("went on in a later interval", "0:5'9~0'0/9 1:7'11~0'0/6", nothing, None),
            ("ends before it, in the same interval", "0:5'9~0'0/9 1:4'8~0'0/4@3", nothing, None),
            ("an incomplete copy bears nothing out", "0:5'9~0'0/5 1:5'9~0'0/5?", nothing, None),
            ("an empty copy says nothing", "0:5'9~0'0/5 1:0'0~0'0/0 2:5'8~0'0/5", nothing, Some(2)),
            (
                "finished for all that is known",
                "0:5'9~0'0/5^5 1:5'8~0'0/4 2:5'8~0'0/4",
                (5, 6, &[0, 1]),
                None,
            ),
            ("a member did not take part", "0:5'9~0'0/5 1:5'8~0'0/4 2:5'8~0'0/4", (5, 6, &[0, 1]), Some(1)),
            ("who took no part is no member", "0:5'9~0'0/5 1:5'8~0'0/4 2:5'8~0'0/4", (5, 6, &[0, 3]), None),
            (
                "nor one with an empty disk",
                "0:5'9~0'0/5 1:0'0~0'0/0 2:5'8~0'0/4 3:5'8~0'0/4",
                (5, 6, &[0, 1]),
                None,
            ),
            ("has lost what all had", "0:5'8~0'0/5 1:5'9~0'0/5=5'9 2:5'10~0'0/5", nothing, Some(1)),
            ("itself knows that it had more", "0:5'8~0'0/5=5'9 1:5'9~0'0/5 2:5'9~0'0/5", nothing, Some(1)),
            ("too few are left that have not", "0:5'8~0'0/5 1:5'9~0'0/5=5'9 2:5'8~0'0/5", nothing, None),
            (
                "what was safe before counts no more",
                "0:5'8~0'0/5 1:5'8~0'0/5 2:4'9~0'0/4=4'9",
                nothing,
                Some(0),
            ),
            ("of another interval", "0:5'9~0'0/5 1:5'8~0'0/4 2:5'8~0'0/4", (2, 4, &[0, 1]), None),
        ];
        for (what, text, past, expected) in cases {
            assert_eq!(chosen_of_chunks(text, past, usize::MAX), expected, "{what}: {text}");
        }
    }
}
