//! Operations on the omap: a sorted map beside the data.

use super::execution::{Done, Execution, OpReturn, Stop};
use super::{OMAP_ENTRIES_MAX, OMAP_KEYS_MAX};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Encode, Reader, Writer};
use nacre_msg::SubOp;
use nacre_msg::osd_op::{code, compare_op};
use nacre_txn::OmapPage;
use nacre_types::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Entries of a range that are looked at first, twice as many each time: most ranges are short.
const RANGE_ENTRIES_FIRST: usize = 16;

impl Execution<'_, '_> {
    pub(super) fn omap_op(&mut self, op: &SubOp) -> OpReturn {
        let mut r = Reader::new(op.indata.to_bytes());
        self.spend_on_input(op, &r)?;
        if code::is_write(op.code) {
            self.counters.writes += 1;
            return self.omap_write(op, &mut r).map(Done::from);
        }
        self.counters.reads += 1;
        let out = match op.code {
            code::OMAPGETKEYS => self.omap_keys(&mut r)?,
            code::OMAPGETVALS => self.omap_values(&mut r)?,
            code::OMAPGETHEADER => self.omap_header()?,
            code::OMAPGETVALSBYKEYS => self.omap_values_of(&mut r)?,
            code::OMAP_CMP => return self.omap_compare(&mut r),
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        self.counters.read_bytes += i64::try_from(out.len()).unwrap_or(i64::MAX);
        Ok(out.into())
    }

    /// Keys that an operation brings are counted before they are read: there may be millions.
    fn spend_on_input(&self, op: &SubOp, r: &Reader) -> Result<(), Errno> {
        let counts = matches!(
            op.code,
            code::OMAPSETVALS | code::OMAPRMKEYS | code::OMAPGETVALSBYKEYS | code::OMAP_CMP
        );
        let count = if counts { r.clone().u32().unwrap_or(0) as usize } else { 0 };
        // More than can be there are malformed, which reading tells.
        if count > OMAP_KEYS_MAX && count <= r.left() / 4 {
            return Err(Errno::E2BIG);
        }
        self.budget.spend_on_keys(count.min(OMAP_KEYS_MAX), 0)
    }

    fn omap_write(&mut self, op: &SubOp, r: &mut Reader) -> Result<(), Stop> {
        self.require_omap()?;
        match op.code {
            code::OMAPSETVALS => {
                let entries: Vec<(ByteStr, Bytes)> = r.get()?;
                self.pending.omap_set(entries);
            }
            code::OMAPSETHEADER => self.pending.omap_set_header(r.rest()),
            code::OMAPCLEAR => {
                self.require_object()?;
                self.pending.omap_clear();
            }
            code::OMAPRMKEYS => {
                self.require_object()?;
                self.pending.omap_remove(r.get()?);
            }
            code::OMAPRMKEYRANGE => {
                self.require_object()?;
                let (first, last): (ByteStr, ByteStr) = (r.get()?, r.get()?);
                self.spend_on_range(&first, &last)?;
                self.pending.omap_remove_range(first, last);
            }
            _ => return Err(Errno::EOPNOTSUPP.into()),
        }
        Ok(())
    }

    /// Erasure-coded pools have no omap.
    pub(super) fn require_omap(&self) -> Result<(), Errno> {
        if self.env.pool.stripe_bytes.is_some() { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// The header as it was before the message.
    pub(super) fn omap_header(&self) -> Result<Bytes, Errno> {
        if !self.pending.omap_seen {
            return Ok(Bytes::new());
        }
        let header = self.env.view.omap_header(&self.env.collection, self.target);
        self.budget.spend_on_keys(1, header.len())?;
        Ok(header)
    }

    /// A value as it was before the message.
    pub(super) fn omap_value(&self, key: &[u8]) -> Result<Option<Bytes>, Errno> {
        if !self.pending.omap_seen {
            return Ok(None);
        }
        self.budget.spend_on_keys(1, 0)?;
        self.known_value(key)
    }

    /// The same for a key that is paid for, whatever the message did.
    fn known_value(&self, key: &[u8]) -> Result<Option<Bytes>, Errno> {
        let value = self.env.view.omap_value(&self.env.collection, self.target, key);
        self.budget.spend_on_keys(0, value.as_ref().map_or(0, Bytes::len))?;
        Ok(value)
    }

    /// Entries as they were before the message: keys above `after` that begin with `prefix`.
    pub(super) fn omap_after(
        &self,
        after: &[u8],
        prefix: &[u8],
        count_max: usize,
    ) -> Result<OmapPage, Errno> {
        if !self.pending.omap_seen {
            return Ok(OmapPage::default());
        }
        // The least key above `after` is `after` with a zero byte behind it.
        let mut from = [after, &[0]].concat();
        if prefix > after {
            from = prefix.to_vec();
        }
        self.omap_from(&from, prefix, count_max)
    }

    /// As [`Self::omap_after`], from the key `from` on.
    pub(super) fn omap_from(&self, from: &[u8], prefix: &[u8], count_max: usize) -> Result<OmapPage, Errno> {
        if self.budget.is_spent() {
            return Err(Errno::E2BIG);
        }
        let view = self.env.view;
        // One more than asked for tells whether more follow with the same prefix.
        let mut page = view.omap_page(
            &self.env.collection,
            self.target,
            from,
            count_max.saturating_add(1),
            self.env.limits.omap_bytes,
        );
        let bytes = page.entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.budget.spend_on_keys(page.entries.len(), bytes)?;
        let matching = page.entries.iter().take_while(|(key, _)| key.starts_with(prefix)).count();
        let whole = matching == page.entries.len();
        page.more = matching > count_max || (whole && page.more);
        page.entries.truncate(matching.min(count_max));
        Ok(page)
    }

    /// Pays for the removal of the entries from `first` to before `last` as for reading them: each copy looks at each of them.
    fn spend_on_range(&self, first: &[u8], last: &[u8]) -> Result<(), Errno> {
        let (mut from, mut count) = (first.to_vec(), RANGE_ENTRIES_FIRST);
        while &from[..] < last && self.pending.omap_seen {
            let page = self.omap_from(&from, b"", count)?;
            let Some((end, _)) = page.entries.last().filter(|_| page.more) else { break };
            // The least key behind the last one.
            from = [&end[..], &[0]].concat();
            count = (2 * count).min(OMAP_ENTRIES_MAX);
        }
        Ok(())
    }

    fn omap_keys(&self, r: &mut Reader) -> Result<Bytes, Stop> {
        let (after, max): (ByteStr, u64) = (r.get()?, r.get()?);
        let page = self.omap_after(&after, b"", bounded(max))?;
        let mut w = Writer::new();
        w.count(page.entries.len());
        page.entries.iter().for_each(|(key, _)| w.put(key));
        w.bool(page.more);
        Ok(w.finish())
    }

    fn omap_values(&self, r: &mut Reader) -> Result<Bytes, Stop> {
        let (after, max, prefix): (ByteStr, u64, ByteStr) = (r.get()?, r.get()?, r.get()?);
        let page = self.omap_after(&after, &prefix, bounded(max))?;
        let mut w = Writer::new();
        w.put(&page.entries);
        w.bool(page.more);
        Ok(w.finish())
    }

    fn omap_values_of(&self, r: &mut Reader) -> Result<Bytes, Stop> {
        let keys: BTreeSet<ByteStr> = r.get()?;
        let mut found = Vec::new();
        for key in keys.into_iter().filter(|_| self.pending.omap_seen) {
            if let Some(value) = self.known_value(&key)? {
                found.push((key, value));
            }
        }
        Ok(found.to_bytes())
    }

    fn omap_compare(&mut self, r: &mut Reader) -> OpReturn {
        self.require_object()?;
        self.require_base()?;
        let wanted: BTreeMap<ByteStr, (Bytes, i32)> = r.get()?;
        for (key, (want, operator)) in wanted {
            let found = self.known_value(&key)?.unwrap_or_default();
            let holds = match u8::try_from(operator) {
                Ok(compare_op::EQ) => found == want,
                Ok(compare_op::LT) => found < want,
                Ok(compare_op::GT) => found > want,
                _ => return Err(Errno::EINVAL.into()),
            };
            if !holds {
                return Err(Errno::ECANCELED.into());
            }
        }
        Ok(Done::default())
    }
}

/// A client's page size, within what one answer may hold.
fn bounded(max: u64) -> usize {
    usize::try_from(max).unwrap_or(OMAP_ENTRIES_MAX).min(OMAP_ENTRIES_MAX)
}
