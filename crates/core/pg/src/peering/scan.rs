//! Comparing copies object by object, where their logs do not reach each other.

use super::phase::{Phase, Scanning, Sync};
use crate::log::Missing;
use crate::tokens::OnDurable;
use crate::{Cx, Pg};
use nacre_msg::peer::{PgInfo, Scan, ScanReply, ScannedObject};
use nacre_txn::Transaction;
use nacre_types::{Eversion, HObject, OsdId};
use std::collections::BTreeMap;

/// Objects in one answer to a scan: a message of some 100 KiB.
pub(crate) const SCAN_OBJECTS_MAX: usize = 1024;

impl Pg {
    /// The log is agreed upon. `authority` is the copy whose objects count where this one was rebuilt.
    /// Lists all copies that must be compared, if any.
    pub(crate) fn agree(&mut self, cx: &mut Cx<'_>, authority: Option<OsdId>) {
        self.deal_shards();
        self.take_own_shard(cx);
        let rebuilt: Vec<OsdId> = self.others().filter(|osd| self.sync_of(*osd) == Sync::Rebuild).collect();
        for osd in &rebuilt {
            if let Some(peer) = self.peers.get_mut(osd) {
                peer.rebuilding = true;
            }
        }
        if rebuilt.is_empty() && authority.is_none() {
            return self.ready_to_activate(cx);
        }
        let mut scanning = Scanning { authority, ..Scanning::default() };
        for osd in rebuilt.into_iter().chain(authority) {
            let list = scanning.lists.entry(osd).or_default();
            debug_assert!(list.is_empty(), "nothing listed yet");
            // Most rebuilt copies are new and empty: there is nothing to list.
            let empty = self.peers.get(&osd).is_none_or(|peer| peer.info.is_empty());
            // One that is to hold other chunks begins empty.
            if !empty && (Some(osd) == authority || !self.changes_shard(osd)) {
                scanning.cursors.insert(osd, HObject::MIN);
            }
        }
        for osd in scanning.cursors.keys() {
            self.send(cx, *osd, Scan { header: self.header(), from: HObject::MIN });
        }
        self.set_phase(Phase::Scanning(scanning));
        self.finish_scan(cx);
    }

    /// How `osd`'s copy comes to our log.
    pub(crate) fn sync_of(&self, osd: OsdId) -> Sync {
        match self.peers.get(&osd) {
            Some(peer) if !self.changes_shard(osd) => self.sync_of_info(&peer.info),
            _ => Sync::Rebuild,
        }
    }

    /// This copy holds the shard that it was dealt, from now on.
    fn take_own_shard(&mut self, cx: &mut Cx<'_>) {
        let shard = self.shard_of(self.whoami);
        if shard == self.info.shard {
            return;
        }
        let mut txn = Transaction::new(self.spg);
        self.become_shard(&mut txn, shard);
        self.save_state(&mut txn);
        self.submit(cx, txn, OnDurable::Nothing);
    }

    fn sync_of_info(&self, info: &PgInfo) -> Sync {
        if info.is_incomplete() || info.last_update < self.log.tail() {
            Sync::Rebuild
        } else if self.log.reaches(info.last_update) {
            Sync::From(info.last_update)
        } else {
            Sync::Whole
        }
    }

    /// Lists a part of this copy for the primary.
    pub(crate) fn answer_scan(&mut self, cx: &mut Cx<'_>, from: OsdId, scan: Scan) {
        let objects = cx.view.list(&self.spg, &scan.from, SCAN_OBJECTS_MAX + 1);
        let next = objects.get(SCAN_OBJECTS_MAX).cloned().unwrap_or_else(HObject::max_value);
        let versioned = |object: HObject| {
            let version = self.copy_version(cx.view, &object).unwrap_or_default();
            ScannedObject { object, version }
        };
        let objects = objects.into_iter().take(SCAN_OBJECTS_MAX).filter(|object| !self.is_kept(object));
        let objects = objects.map(versioned).collect();
        self.send(cx, from, ScanReply { header: self.header(), from: scan.from, objects, next });
    }

    /// Takes a part of a copy's list in and asks for the next one.
    pub(crate) fn heard_scan(&mut self, cx: &mut Cx<'_>, from: OsdId, reply: ScanReply) {
        let header = self.header();
        let Phase::Scanning(scanning) = &mut self.phase else { return };
        let Some(cursor) = scanning.cursors.get_mut(&from).filter(|cursor| **cursor == reply.from) else {
            return;
        };
        let forward = reply.next > *cursor;
        let listed = reply.objects.into_iter().map(|item| (item.object, item.version));
        scanning.lists.entry(from).or_default().extend(listed);
        if reply.next.max || !forward {
            scanning.cursors.remove(&from);
            return self.finish_scan(cx);
        }
        *cursor = reply.next.clone();
        self.send(cx, from, Scan { header, from: reply.next });
    }

    /// True when all lists are there, and only this copy's own is to be made.
    pub(crate) fn has_scanned_all(&self) -> bool {
        matches!(&self.phase, Phase::Scanning(scanning) if scanning.cursors.is_empty())
    }

    /// Compares the lists once all are there.
    pub(crate) fn finish_scan(&mut self, cx: &mut Cx<'_>) {
        if self.view_is_stale || !self.has_scanned_all() {
            return;
        }
        let Phase::Scanning(scanning) = &mut self.phase else { return };
        let Scanning { authority, mut lists, .. } = std::mem::take(scanning);
        let own = self.own_list(cx);
        let expected = match authority.and_then(|osd| lists.remove(&osd).map(|list| (osd, list))) {
            Some((osd, list)) => {
                let expected = patched(list, self.peers.get(&osd).map(|peer| &peer.missing));
                self.missing = difference(&own, &expected);
                self.note_changed_authority(osd, &expected);
                expected
            }
            None => patched(own, Some(&self.missing)),
        };
        for (osd, list) in lists {
            if let Some(peer) = self.peers.get_mut(&osd) {
                peer.missing = difference(&list, &expected);
            }
        }
        self.ready_to_activate(cx);
    }

    /// The copy whose list counted is to hold other chunks: it lacks all of them.
    fn note_changed_authority(&mut self, osd: OsdId, expected: &BTreeMap<HObject, Eversion>) {
        let changes = self.changes_shard(osd);
        if let Some(peer) = self.peers.get_mut(&osd).filter(|_| changes) {
            peer.missing = difference(&BTreeMap::new(), expected);
        }
    }

    fn own_list(&self, cx: &Cx<'_>) -> BTreeMap<HObject, Eversion> {
        let (mut list, mut from) = (BTreeMap::new(), HObject::MIN);
        loop {
            let objects = cx.view.list(&self.spg, &from, SCAN_OBJECTS_MAX + 1);
            let more = objects.get(SCAN_OBJECTS_MAX).cloned();
            for object in objects.into_iter().take(SCAN_OBJECTS_MAX).filter(|object| !self.is_kept(object)) {
                let version = self.copy_version(cx.view, &object).unwrap_or_default();
                list.insert(object, version);
            }
            match more {
                Some(next) => from = next,
                None => return list,
            }
        }
    }
}

/// What a copy's list would be if nothing were missing.
fn patched(mut list: BTreeMap<HObject, Eversion>, missing: Option<&Missing>) -> BTreeMap<HObject, Eversion> {
    for (object, need) in missing.into_iter().flat_map(Missing::iter) {
        if need == Eversion::ZERO {
            list.remove(object);
        } else {
            list.insert(object.clone(), need);
        }
    }
    list
}

/// What a copy lacks to be as `expected`.
fn difference(list: &BTreeMap<HObject, Eversion>, expected: &BTreeMap<HObject, Eversion>) -> Missing {
    let mut missing = Missing::default();
    for (object, need) in expected.iter().filter(|(object, need)| list.get(*object) != Some(*need)) {
        missing.insert(object.clone(), *need);
    }
    for object in list.keys().filter(|object| !expected.contains_key(*object)) {
        missing.insert(object.clone(), Eversion::ZERO);
    }
    missing
}
