//! [`Divided`]: several partitions of an OSD's store as one, for a shard that serves all of them: there are fewer shards than partitions.
//!
//! A collection is in one partition, as [`ObjectStore::place`] said when it began; what is split off goes where its parent is. While one is
//! copied to another partition, it is where it was (`relocation`). Maps are
//! written to each: at the next start it may be another shard's, and whatever epoch a PG has stored, the map of it must be there. All else
//! that the OSD keeps for itself is in the first one.

use crate::own_collection::{OWN_COLLECTION, is_of_maps, is_of_pool};
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_pg::{Arriving, Pg};
use nacre_store::{
    Completion, DiscardPolicy, HintIn, MeasuredDevice, ObjectStore, PackedUsage, StoreCounters, StoreError,
    StoreMemory, StoreState, StoreUsage, SubmitHint, WarmToken,
};
use nacre_txn::{FetchFrom, ObjectView, OmapPage, Op, ReadError, StoreToken, Token, Transaction};
use nacre_types::{Compression, DeviceLatencies, Epoch, HObject, PoolId, SpgId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Names the copy of a map in a partition that is not the first; nobody waits for it.
const COPY: StoreToken = StoreToken::new(OWN_COLLECTION, Token(0));

/// See the module's documentation.
pub(crate) struct Divided {
    first: Box<dyn ObjectStore + Send>,
    others: Vec<Box<dyn ObjectStore + Send>>,
    /// Numbers of all of them, in order.
    numbers: Vec<usize>,
    /// Which has a collection, as an index of `numbers`; those that are not here are the first one's.
    homes: BTreeMap<SpgId, usize>,
}

impl Divided {
    /// Of partitions with these numbers, the first of which has what the OSD keeps for itself.
    pub(crate) fn new(
        (number, first): (usize, Box<dyn ObjectStore + Send>),
        others: Vec<(usize, Box<dyn ObjectStore + Send>)>,
    ) -> Self {
        let mut found: BTreeMap<SpgId, (_, usize)> = BTreeMap::new();
        for (nth, store) in std::iter::once(&first).chain(others.iter().map(|(_, store)| store)).enumerate() {
            for spg in store.collections().into_iter().filter(is_of_pool) {
                // As long as the one that is copied is there, that is the PG's. Of two, one has ended, and the other one was made anew since.
                // One without records is being split off, and newer.
                let is_pgs = Arriving::of(store.as_ref(), &spg).is_none();
                let worth = (is_pgs, Pg::stored_epoch(store.as_ref(), &spg).unwrap_or(Epoch::MAX));
                let best = found.entry(spg).or_insert((worth, nth));
                *best = (*best).max((worth, nth));
            }
        }
        let homes = found.into_iter().map(|(spg, (_, nth))| (spg, nth)).collect();
        let (mut numbers, mut stores) = (vec![number], Vec::new());
        for (number, store) in others {
            numbers.push(number);
            stores.push(store);
        }
        Self { first, others: stores, numbers, homes }
    }

    fn home(&self, collection: &SpgId) -> usize {
        self.homes.get(collection).copied().unwrap_or(0)
    }

    fn nth(&self, nth: usize) -> &(dyn ObjectStore + Send) {
        let other = nth.checked_sub(1).and_then(|nth| self.others.get(nth));
        other.unwrap_or(&self.first).as_ref()
    }

    fn of(&self, collection: &SpgId) -> &(dyn ObjectStore + Send) {
        self.nth(self.home(collection))
    }

    fn nth_mut(&mut self, nth: usize) -> &mut (dyn ObjectStore + Send) {
        let other = nth.checked_sub(1).and_then(|nth| self.others.get_mut(nth));
        other.unwrap_or(&mut self.first).as_mut()
    }

    fn submit_to_nth(&mut self, nth: usize, txn: Transaction, token: StoreToken) -> Result<(), StoreError> {
        // None of them has a turn while one waits.
        let mut others = (0..self.numbers.len()).filter(|other| *other != nth);
        while self.nth_mut(nth).lacks_room(&txn)
            && let Some(other) = others.next()
        {
            self.nth_mut(other).spare_room();
        }
        self.nth_mut(nth).submit(txn, token)
    }

    fn all(&self) -> impl Iterator<Item = &(dyn ObjectStore + Send)> {
        std::iter::once(&self.first).chain(&self.others).map(Box::as_ref)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn ObjectStore + Send>> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    fn devices(&mut self) -> impl Iterator<Item = &mut dyn MeasuredDevice> {
        self.all_mut().filter_map(|store| store.device())
    }
}

impl ObjectView for Divided {
    fn meta(&self, collection: &SpgId, object: &HObject) -> Option<Bytes> {
        self.of(collection).meta(collection, object)
    }

    fn read(
        &self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
    ) -> Result<BufList, ReadError> {
        self.of(collection).read(collection, object, offset, length)
    }

    fn extents(&self, collection: &SpgId, object: &HObject, offset: u64, length: u64) -> Vec<(u64, u64)> {
        self.of(collection).extents(collection, object, offset, length)
    }

    fn attr(&self, collection: &SpgId, object: &HObject, name: &[u8]) -> Option<Bytes> {
        self.of(collection).attr(collection, object, name)
    }

    fn attrs(&self, collection: &SpgId, object: &HObject) -> BTreeMap<ByteStr, Bytes> {
        self.of(collection).attrs(collection, object)
    }

    fn omap_header(&self, collection: &SpgId, object: &HObject) -> Bytes {
        self.of(collection).omap_header(collection, object)
    }

    fn omap_value(&self, collection: &SpgId, object: &HObject, key: &[u8]) -> Option<Bytes> {
        self.of(collection).omap_value(collection, object, key)
    }

    fn omap_page(
        &self,
        collection: &SpgId,
        object: &HObject,
        from: &[u8],
        entries_max: usize,
        bytes_max: usize,
    ) -> OmapPage {
        self.of(collection).omap_page(collection, object, from, entries_max, bytes_max)
    }

    fn list(&self, collection: &SpgId, from: &HObject, count_max: usize) -> Vec<HObject> {
        self.of(collection).list(collection, from, count_max)
    }

    fn log(&self, collection: &SpgId) -> Vec<Bytes> {
        self.of(collection).log(collection)
    }

    fn pg_meta_page(
        &self,
        collection: &SpgId,
        prefix: &[u8],
        from: &[u8],
        count_max: usize,
    ) -> Vec<(ByteStr, Bytes)> {
        self.of(collection).pg_meta_page(collection, prefix, from, count_max)
    }
}

impl ObjectStore for Divided {
    fn submit(&mut self, txn: Transaction, token: StoreToken) -> Result<(), StoreError> {
        if txn.collection == OWN_COLLECTION && is_of_maps(&txn) {
            self.others.iter_mut().try_for_each(|store| store.submit(txn.clone(), COPY))?;
        }
        let home = self.home(&txn.collection);
        for op in &txn.ops {
            match op {
                Op::Split { child: to, .. } | Op::Move { target: to, .. } if self.home(to) != home => {
                    self.homes.insert(*to, home);
                }
                _ => (),
            }
        }
        self.submit_to_nth(home, txn, token)
    }

    fn submit_to(&mut self, partition: usize, txn: Transaction, token: StoreToken) -> Result<(), StoreError> {
        let nth = self.numbers.iter().position(|number| *number == partition);
        self.submit_to_nth(nth.unwrap_or(0), txn, token)
    }

    fn fetch(
        &mut self,
        collection: &SpgId,
        object: &HObject,
        offset: u64,
        length: u64,
        from: FetchFrom,
        token: StoreToken,
    ) {
        let home = self.home(collection);
        self.nth_mut(home).fetch(collection, object, offset, length, from, token);
    }

    fn waits_for_metadata(&self) -> bool {
        self.all().any(ObjectStore::waits_for_metadata)
    }

    fn warm(&mut self, collection: &SpgId, object: &HObject, bytes: Range<u64>, token: WarmToken) -> bool {
        let home = self.home(collection);
        self.nth_mut(home).warm(collection, object, bytes, token)
    }

    fn drain(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        self.all_mut().for_each(|store| store.drain(out));
        if out.iter().skip(before).any(|done| *done == Completion::Durable(COPY)) {
            out.retain(|done| *done != Completion::Durable(COPY));
        }
    }

    fn set_wakeups(&mut self, wakeups: bool) {
        self.all_mut().for_each(|store| store.set_wakeups(wakeups));
    }

    fn set_submit_hint(&mut self, hint: SubmitHint) {
        self.all_mut().for_each(|store| store.set_submit_hint(hint));
    }

    fn set_compression(&mut self, pool: PoolId, compression: Compression, hint_in: HintIn) {
        self.all_mut().for_each(|store| store.set_compression(pool, compression, hint_in));
    }

    fn place(&mut self, collection: &SpgId, partition: usize) -> bool {
        let nth = self.numbers.iter().position(|number| *number == partition);
        self.homes.extend(nth.map(|nth| (*collection, nth)));
        nth.is_some()
    }

    fn partition_of(&self, collection: &SpgId) -> Option<usize> {
        self.numbers.get(self.home(collection)).copied()
    }

    fn each_partition(&self) -> Vec<(usize, &dyn ObjectStore)> {
        let stores = self.all().map(|store| store as &dyn ObjectStore);
        self.numbers.iter().copied().zip(stores).collect()
    }

    fn data_bytes(&self, collection: &SpgId, object: &HObject) -> Option<u64> {
        self.of(collection).data_bytes(collection, object)
    }

    fn state(&self) -> StoreState {
        self.all().fold(StoreState::Idle, |worst, store| match (worst, store.state()) {
            (StoreState::Failed, _) | (_, StoreState::Failed) => StoreState::Failed,
            (StoreState::HasWork, _) | (_, StoreState::HasWork) => StoreState::HasWork,
            (StoreState::Idle, StoreState::Idle) => StoreState::Idle,
        })
    }

    fn is_overrun(&self) -> bool {
        self.all().any(ObjectStore::is_overrun)
    }

    fn idle_trim(&mut self) -> bool {
        // Each of them, whatever the others say.
        self.all_mut().map(|store| store.idle_trim()).filter(|is_left| *is_left).count() > 0
    }

    fn collections(&self) -> Vec<SpgId> {
        self.all().flat_map(ObjectStore::collections).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage::of_partitions(self.all().map(|store| (store.usage(), 1)))
    }

    fn packed(&self) -> BTreeMap<PoolId, PackedUsage> {
        PackedUsage::of_partitions(self.all().map(ObjectStore::packed))
    }

    fn partitions(&self) -> u64 {
        self.numbers.len() as u64
    }

    fn memory(&self) -> StoreMemory {
        self.all().map(ObjectStore::memory).fold(StoreMemory::default(), |sum, memory| StoreMemory {
            data_bytes: sum.data_bytes + memory.data_bytes,
            metadata_bytes: sum.metadata_bytes + memory.metadata_bytes,
            changes_bytes: sum.changes_bytes + memory.changes_bytes,
            kv_bytes: sum.kv_bytes + memory.kv_bytes,
            clean_bytes_max: sum.clean_bytes_max + memory.clean_bytes_max,
        })
    }

    fn limit_clean(&mut self, bytes: u64) {
        let of_each = bytes / self.partitions().max(1);
        self.all_mut().for_each(|store| store.limit_clean(of_each));
    }

    fn give_back(&mut self, give_back: fn()) {
        self.all_mut().for_each(|store| store.give_back(give_back));
    }

    fn device(&mut self) -> Option<&mut dyn MeasuredDevice> {
        Some(self)
    }

    fn counters(&self) -> StoreCounters {
        self.all().map(ObjectStore::counters).fold(StoreCounters::default(), |sum, more| sum.plus(&more))
    }
}

impl MeasuredDevice for Divided {
    fn take_latencies(&mut self) -> DeviceLatencies {
        self.devices().fold(DeviceLatencies::default(), |mut sum, device| {
            sum.add(&device.take_latencies());
            sum
        })
    }

    fn probe(&mut self, idle: Duration) {
        self.devices().for_each(|device| device.probe(idle));
    }

    fn set_discards(&mut self, policy: DiscardPolicy) {
        self.devices().for_each(|device| device.set_discards(policy));
    }

    fn delay(&mut self, each: Duration) -> std::io::Result<()> {
        self.devices().try_for_each(|device| device.delay(each))
    }
}

#[cfg(test)]
mod tests;
