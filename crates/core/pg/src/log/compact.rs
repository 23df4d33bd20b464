//! [`Compact`]: a log entry as it is kept in memory, in a third of the bytes of a [`LogEntry`].
//!
//! PGs keep thousands of entries each, which are looked at when something went wrong and hardly ever else. Most of them
//! name one of a few objects, whose name they share, and say that so many bytes were written; what else an entry can say
//! is put aside.

use nacre_buf::Bytes;
use nacre_msg::peer::{Counters, LogEntry, LogKind, OpOutput};
use nacre_types::{Eversion, HObject, ReqId, SnapId, UTime};
use std::sync::Arc;

/// What the encoding of any entry has beside names, outputs and snapshots: some 180 bytes, and 12 sums.
const ENTRY_BYTES: usize = 320;
/// Likewise of an output, beside its data.
const OUTPUT_BYTES: usize = 16;

/// Names that a log remembers in order to share them.
const NAMES: u32 = 64;

/// The object names that came last, by the upper bits of their hashes: the lower ones are alike in a PG.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Option<Arc<HObject>>>);

impl Names {
    fn share(&mut self, object: &HObject) -> Arc<HObject> {
        if self.0.is_empty() {
            self.0.resize(NAMES as usize, None);
        }
        let place = self.0.get_mut((object.hash / (u32::MAX / NAMES + 1)) as usize);
        let place = place.expect("a hash divided by more than the greatest one's share");
        match place {
            Some(known) if **known == *object => Arc::clone(known),
            // The name must not keep the whole message in memory for as long as the log keeps the entry.
            other => Arc::clone(other.insert(Arc::new(object.detached()))),
        }
    }
}

/// What most entries add to the PG's sums.
#[derive(Debug, Clone, Copy, Default)]
struct Delta {
    objects: i8,
    writes: i8,
    bytes: i32,
    write_bytes: i32,
}

impl Delta {
    /// `None` when it has not room for all of it.
    fn of(counters: &Counters) -> Option<Self> {
        let delta = Self {
            objects: i8::try_from(counters.objects).ok()?,
            writes: i8::try_from(counters.writes).ok()?,
            bytes: i32::try_from(counters.bytes).ok()?,
            write_bytes: i32::try_from(counters.write_bytes).ok()?,
        };
        (delta.counters() == *counters).then_some(delta)
    }

    fn counters(self) -> Counters {
        Counters {
            objects: self.objects.into(),
            writes: self.writes.into(),
            bytes: self.bytes.into(),
            write_bytes: self.write_bytes.into(),
            ..Counters::default()
        }
    }
}

/// What few entries have.
#[derive(Debug)]
struct Rare {
    outputs: Vec<OpOutput>,
    snaps: Vec<SnapId>,
    delta: Counters,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Compact {
    pub(super) object: Arc<HObject>,
    pub(super) version: Eversion,
    prior_version: Eversion,
    user_version: u64,
    pub(super) reqid: ReqId,
    mtime: UTime,
    result: i32,
    delta: Delta,
    kind: LogKind,
    rare: Option<Box<Rare>>,
}

// A PG has some 3000 of them, and an OSD a hundred PGs and more.
const _: () = assert!(size_of::<Compact>() <= 120, "an entry is to be small");

impl Compact {
    pub(super) fn new(entry: &LogEntry, names: &mut Names) -> Self {
        let delta = Delta::of(&entry.delta);
        let is_plain = delta.is_some() && entry.outputs.is_empty() && entry.snaps.is_empty();
        let rare = || {
            let detached = |output: &OpOutput| OpOutput {
                rval: output.rval,
                data: Bytes::copy_from_slice(&output.data),
            };
            let outputs = entry.outputs.iter().map(detached).collect();
            Box::new(Rare { outputs, snaps: entry.snaps.clone(), delta: entry.delta })
        };
        Self {
            object: names.share(&entry.object),
            version: entry.version,
            prior_version: entry.prior_version,
            user_version: entry.user_version,
            reqid: entry.reqid,
            mtime: entry.mtime,
            result: entry.result,
            delta: delta.unwrap_or_default(),
            kind: entry.kind,
            rare: (!is_plain).then(rare),
        }
    }

    /// As it came, but for `committed_to`: what a copy knows of that is in its info.
    pub(super) fn entry(&self) -> LogEntry {
        let rare = self.rare.as_deref();
        LogEntry {
            kind: self.kind,
            object: HObject::clone(&self.object),
            version: self.version,
            prior_version: self.prior_version,
            user_version: self.user_version,
            reqid: self.reqid,
            mtime: self.mtime,
            result: self.result,
            outputs: rare.map_or_else(Vec::new, |rare| rare.outputs.clone()),
            snaps: rare.map_or_else(Vec::new, |rare| rare.snaps.clone()),
            delta: rare.map_or_else(|| self.delta.counters(), |rare| rare.delta),
            committed_to: Eversion::ZERO,
            modified: None,
        }
    }

    /// About its share of the bytes of memory that are not in itself.
    pub(super) fn bytes_elsewhere(&self) -> usize {
        let object = &self.object;
        let name = size_of::<HObject>() + object.name.len() + object.namespace.len() + object.key.len();
        let outputs = |rare: &Rare| -> usize {
            rare.outputs.iter().map(|output| output.data.len() + size_of::<OpOutput>()).sum()
        };
        let rare = self.rare.as_deref();
        let rare = rare.map_or(0, |rare| size_of::<Rare>() + 8 * rare.snaps.len() + outputs(rare));
        name / Arc::strong_count(object) + rare
    }

    /// Not less than the bytes of its encoding.
    pub(super) fn encoded_bytes(&self) -> usize {
        let object = &self.object;
        let name = object.name.len() + object.namespace.len() + object.key.len();
        let rare = self.rare.as_deref().map_or(0, |rare| {
            let outputs = rare.outputs.iter().map(|output| output.data.len() + OUTPUT_BYTES).sum::<usize>();
            outputs + 8 * rare.snaps.len()
        });
        ENTRY_BYTES + name + rare
    }

    /// As [`LogEntry::has_reqid`].
    pub(super) fn has_reqid(&self) -> bool {
        self.reqid != ReqId::default()
    }

    /// As [`LogEntry::changes_object`].
    pub(super) fn changes_object(&self) -> bool {
        self.kind != LogKind::Error
    }
}

#[cfg(test)]
mod tests {
    use super::super::pg_log::tests::entry;
    use super::*;
    use nacre_denc::Encode;

    #[test]
    fn an_entry_comes_back_as_it_was() {
        let plain = entry("a", (2, 7), (2, 6), 3);
        let of = |delta| LogEntry { delta, ..plain.clone() };
        let write = Counters { writes: 1, write_bytes: 4096, objects: 1, bytes: -5, ..Counters::default() };
        let output = OpOutput { rval: -2, data: Bytes::from_static(b"out") };
        let entries = [
            plain.clone(),
            LogEntry { kind: LogKind::Error, result: -2, outputs: vec![output], ..plain.clone() },
            LogEntry { kind: LogKind::Clone, snaps: vec![SnapId(4), SnapId(3)], ..of(write) },
            of(write),
            of(Counters { write_bytes: 1 << 31, ..write }),
            of(Counters { objects: -200, ..write }),
            of(Counters { omap_keys: 1, ..write }),
        ];
        let mut names = Names::default();
        let compact = entries.clone().map(|entry| Compact::new(&entry, &mut names));
        assert_eq!(compact.each_ref().map(Compact::entry), entries);
        for (entry, compact) in entries.iter().zip(&compact) {
            assert!(compact.encoded_bytes() >= entry.to_bytes().len());
        }
        let is_rare = compact.each_ref().map(|compact| compact.rare.is_some());
        assert_eq!(is_rare, [false, true, true, false, true, true, true]);
    }

    #[test]
    fn entries_of_one_object_share_its_name() {
        let mut names = Names::default();
        let objects: Vec<LogEntry> =
            (0..5000).map(|n| entry(&format!("{n}"), (1, n + 1), (0, 0), n)).collect();
        for object in &objects {
            let (first, second) = (Compact::new(object, &mut names), Compact::new(object, &mut names));
            assert_eq!(*first.object, object.object);
            assert!(Arc::ptr_eq(&first.object, &second.object));
        }
        let extremes = [0, u32::MAX].map(|hash| HObject { hash, ..HObject::MIN });
        extremes.iter().for_each(|object| assert_eq!(*names.share(object), *object));
        assert_eq!(names.0.len(), NAMES as usize);
    }
}
