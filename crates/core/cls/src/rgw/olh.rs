//! [`Olh`]: which version of an object readers see ("object logical head"), and the steps with which radosgw brings the
//! head object in line with that. Formats: Ceph `src/cls/rgw/cls_rgw_types.h`; behaviour measured at v16.2.15.

use super::changes::at;
use super::entry::{DirEntry, Key, flag};
use super::index_keys::olh_key;
use crate::keys::output;
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;
use std::collections::BTreeMap;

/// Epochs whose steps one call lists.
const EPOCHS_MAX: usize = 1000;

/// `OLHLogOp`
pub(super) mod step {
    pub(crate) const LINK: u8 = 1;
    pub(crate) const UNLINK: u8 = 2;
    pub(crate) const REMOVE_INSTANCE: u8 = 3;
}

/// `rgw_bucket_olh_log_entry`
#[derive(Clone)]
pub(super) struct Step {
    pub(super) epoch: u64,
    pub(super) op: u8,
    pub(super) op_tag: ByteStr,
    pub(super) key: Key,
    pub(super) delete_marker: bool,
}

impl Encode for Step {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.epoch);
            w.u8(self.op);
            w.put(&self.op_tag);
            w.put(&self.key);
            w.bool(self.delete_marker);
        });
    }
}

impl Decode for Step {
    const MIN_BYTES: usize = 34;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_olh_log_entry", 1, |_, r| {
            Ok(Self {
                epoch: r.u64()?,
                op: r.u8()?,
                op_tag: r.get()?,
                key: r.get()?,
                delete_marker: r.bool()?,
            })
        })
    }
}

/// `rgw_bucket_olh_entry`
#[derive(Clone, Default)]
pub(super) struct Olh {
    /// The current version.
    pub(super) key: Key,
    pub(super) delete_marker: bool,
    /// Raised with each change.
    pub(super) epoch: u64,
    /// Steps that are not done yet, by epoch.
    pub(super) pending: BTreeMap<u64, Vec<Step>>,
    /// Changes with the object's life.
    pub(super) tag: ByteStr,
    pub(super) exists: bool,
    /// The last version is gone; the record goes when the steps are done.
    pub(super) pending_removal: bool,
}

impl Olh {
    /// Begins a change: at an epoch that another zone gave, or at the next one. False when it comes too late.
    pub(super) fn advance(&mut self, epoch: u64) -> bool {
        if epoch != 0 && epoch < self.epoch {
            return false;
        }
        self.epoch = match (epoch, self.epoch) {
            (0, 0) => 2, // 1 is that of entries from before the bucket had versions
            (0, last) => last.wrapping_add(1),
            (given, _) => given,
        };
        true
    }

    /// Notes a step at `epoch`, or at the present one if that is 0.
    pub(super) fn note(&mut self, op: u8, op_tag: &ByteStr, key: &Key, delete_marker: bool, epoch: u64) {
        let epoch = if epoch == 0 { self.epoch } else { epoch };
        let step = Step { epoch, op, op_tag: op_tag.clone(), key: key.clone(), delete_marker };
        self.pending.entry(self.epoch).or_default().push(step);
    }

    pub(super) fn save(&self, cx: &mut dyn ClassCx, name: &ByteStr) {
        cx.omap_set(vec![(olh_key(name), self.to_bytes())]);
    }
}

impl Encode for Olh {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.key);
            w.bool(self.delete_marker);
            w.u64(self.epoch);
            w.put(&self.pending);
            w.put(&self.tag);
            w.bool(self.exists);
            w.bool(self.pending_removal);
        });
    }
}

impl Decode for Olh {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rgw_bucket_olh_entry", 1, |_, r| {
            Ok(Self {
                key: r.get()?,
                delete_marker: r.bool()?,
                epoch: r.u64()?,
                pending: r.get()?,
                tag: r.get()?,
                exists: r.bool()?,
                pending_removal: r.bool()?,
            })
        })
    }
}

/// The record of an object, if the client means the same life of it.
fn load(cx: &dyn ClassCx, key: &Key, tag: &ByteStr) -> Result<Olh, Fault> {
    if !key.instance.is_empty() {
        return fail(Errno::EINVAL);
    }
    let olh: Olh = at(cx, &olh_key(&key.name))?.unwrap_or_default();
    if olh.tag != *tag { fail(Errno::ECANCELED) } else { Ok(olh) }
}

/// `key, u64 epoch, str tag` of both operations on the steps.
fn steps_input(bytes: Bytes) -> Result<(Key, u64, ByteStr), Fault> {
    Ok(Reader::new(bytes)
        .envelope("rgw_cls_read_olh_log_op", 1, |_, r| Ok((r.get()?, r.u64()?, r.str()?)))?)
}

/// Steps behind an epoch.
pub(super) fn read_log(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (key, after, tag) = steps_input(bytes)?;
    let mut olh = load(cx, &key, &tag)?;
    let mut rest = match after.checked_add(1) {
        Some(from) => olh.pending.split_off(&from),
        None => BTreeMap::new(),
    };
    let truncated = rest.len() > EPOCHS_MAX;
    if let Some(end) = rest.keys().nth(EPOCHS_MAX).copied() {
        rest.split_off(&end);
    }
    output(|w| {
        w.envelope(1, 1, |w| {
            w.put(&rest);
            w.bool(truncated);
        });
    })
}

/// Forgets the steps up to an epoch.
pub(super) fn trim_log(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (key, upto, tag) = steps_input(bytes)?;
    let mut olh = load(cx, &key, &tag)?;
    olh.pending.retain(|epoch, _| *epoch > upto);
    olh.save(cx, &key.name);
    done()
}

/// `key, str tag`: the object has no versions any more.
pub(super) fn clear(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (key, tag) = Reader::new(bytes)
        .envelope("rgw_cls_bucket_clear_olh_op", 1, |_, r| Ok((r.get::<Key>()?, r.str()?)))?;
    load(cx, &key, &tag)?;
    if !cx.exists() {
        return fail(Errno::ENOENT);
    }
    let mut gone = vec![olh_key(&key.name)];
    if at::<DirEntry>(cx, &key.name)?.is_some_and(|entry| entry.has(flag::PLACEHOLDER)) {
        gone.push(key.name);
    }
    cx.omap_remove(gone);
    done()
}
