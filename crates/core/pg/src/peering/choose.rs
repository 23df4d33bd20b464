//! Whose log is the authoritative one.

use nacre_msg::peer::PgInfo;
use nacre_types::{Eversion, OsdId};
use std::collections::BTreeMap;

/// The copy with the authoritative log, or `None` when no complete copy can be trusted to have all
/// acknowledged writes. Ceph `PeeringState::find_best_info`.
///
/// Copies that did not take part in the newest active interval known to anybody are out. Then the newest
/// `last_update` wins (every acknowledged write is on all copies, so newer is never less), then the longer
/// log, then `me`, because that saves fetching it.
pub(crate) fn choose(infos: &BTreeMap<OsdId, &PgInfo>, me: OsdId) -> Option<OsdId> {
    let complete = || infos.iter().filter(|(_, info)| !info.is_incomplete());
    let started = infos.values().map(|info| info.history.last_epoch_started);
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

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_msg::peer::PgHistory;
    use nacre_types::HObject;

    /// `osd:last_update~tail/les` words; `?` behind marks an incomplete copy, `^n` what its history knows.
    fn chosen(text: &str, me: OsdId) -> Option<OsdId> {
        let infos: Vec<(OsdId, PgInfo)> = text
            .split_whitespace()
            .map(|word| {
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
                info.last_epoch_started = started.trim_end_matches('?').parse().expect("an epoch");
                info.history.last_epoch_started = known.parse().expect("an epoch");
                (info.last_update, info.log_tail) = (version(update), version(tail));
                (osd.parse().expect("a number"), info)
            })
            .collect();
        choose(&infos.iter().map(|(osd, info)| (*osd, info)).collect(), me)
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
}
