//! An object in memory for tests and fuzzing of the classes: changes of a call show to the next one, as between messages.

use crate::{Caller, ClassCx, Fault, Method, MethodResult, lookup};
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_types::{EntityAddr, EntityName, Entropy, Errno, SnapId, UTime, entropy::SeededEntropy};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Larger objects are refused with `EFBIG`, as an OSD refuses those above `osd_max_object_size`.
const OBJECT_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug, Default)]
struct State {
    exists: bool,
    data: Vec<u8>,
    attrs: BTreeMap<ByteStr, Bytes>,
    omap: BTreeMap<ByteStr, Bytes>,
    header: Bytes,
}

/// The state before the message, and the one that the message makes.
#[derive(Debug)]
pub struct TestObject {
    base: State,
    next: State,
    caller: Caller,
    entropy: SeededEntropy,
    /// The message would make the object larger than [`OBJECT_BYTES_MAX`].
    is_too_big: bool,
    /// The message removes entries or attributes of an object that is not there.
    is_missing: bool,
    /// What the method returns beside its output.
    result: i32,
    ops_done: Cell<u64>,
    /// Newest snapshot that the object has seen.
    pub snap_seq: SnapId,
    /// The clients that watch the object.
    pub watchers: Vec<Caller>,
    progress: Option<Bytes>,
    /// What a turn is for: so many lookups and changes.
    pub turn_ops: u64,
    /// How often the last call paused.
    pub pauses: u64,
}

impl Default for TestObject {
    fn default() -> Self {
        let caller = Caller { name: EntityName::client(4100), addr: EntityAddr::NONE };
        let (base, next) = (State::default(), State::default());
        Self {
            base,
            next,
            caller,
            entropy: SeededEntropy(1),
            is_too_big: false,
            is_missing: false,
            result: 0,
            ops_done: Cell::new(0),
            snap_seq: SnapId(0),
            watchers: Vec::new(),
            progress: None,
            turn_ops: u64::MAX,
            pauses: 0,
        }
    }
}

impl TestObject {
    /// An empty object that exists.
    #[must_use]
    pub fn existing() -> Self {
        let mut object = Self::default();
        object.base.exists = true;
        object.next.exists = true;
        object
    }

    /// One message with one call.
    ///
    /// # Errors
    /// What the client would see.
    ///
    /// # Panics
    /// When a method says that it waits for data.
    pub fn call(&mut self, class: &str, method: &str, input: Bytes) -> Result<Bytes, Errno> {
        let method = lookup(class.as_bytes(), method.as_bytes())?;
        if !method.flags.writes() && !self.base.exists {
            return Err(Errno::ENOENT);
        }
        (self.progress, self.pauses) = (None, 0);
        loop {
            self.next = self.base.clone();
            (self.is_too_big, self.is_missing, self.result) = (false, false, 0);
            self.ops_done.set(0);
            match (method.run)(self, input.clone()) {
                Err(Fault::Paused { progress }) => {
                    self.progress = Some(progress);
                    self.pauses += 1;
                }
                result => return self.end(method, result),
            }
        }
    }

    fn end(&mut self, method: &Method, result: MethodResult) -> Result<Bytes, Errno> {
        match result {
            Ok(_) if self.is_too_big => Err(Errno::EFBIG),
            Ok(_) if self.is_missing => Err(Errno::ENOENT),
            Ok(output) => {
                self.base = self.next.clone();
                // What a write says reaches only clients that ask for it.
                Ok(if method.flags.writes() { Bytes::new() } else { output })
            }
            Err(Fault::Errno(errno) | Fault::Told { errno, .. }) => Err(errno),
            Err(Fault::Pending) => unreachable!("data in memory never waits"),
            Err(Fault::Paused { .. }) => unreachable!("it goes on until it ends"),
        }
    }

    /// One message that is not a call, but a part of one.
    ///
    /// # Errors
    /// Those of `run`; nothing is changed then.
    pub fn message<T>(&mut self, run: impl FnOnce(&mut dyn ClassCx) -> Result<T, Fault>) -> Result<T, Fault> {
        self.next = self.base.clone();
        let value = run(self)?;
        self.base = self.next.clone();
        Ok(value)
    }

    /// The object's data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.base.data
    }

    /// Replaces the data, from outside of any class.
    pub fn set_data(&mut self, data: &[u8]) {
        self.base.exists = true;
        self.base.data = data.to_vec();
    }

    /// Sets an omap value, from outside of any class.
    pub fn set_omap(&mut self, key: ByteStr, value: Bytes) {
        self.base.exists = true;
        self.base.omap.insert(key, value);
    }

    /// Sets an attribute, from outside of any class.
    pub fn set_attribute(&mut self, name: ByteStr, value: Bytes) {
        self.base.exists = true;
        self.base.attrs.insert(name, value);
    }

    /// An omap value, empty when there is none.
    #[must_use]
    pub fn value(&self, key: &str) -> Bytes {
        self.base.omap.get(key.as_bytes()).cloned().unwrap_or_default()
    }

    /// All omap entries.
    #[must_use]
    pub fn omap(&self) -> &BTreeMap<ByteStr, Bytes> {
        &self.base.omap
    }

    /// All attributes, by their names without prefix.
    #[must_use]
    pub fn all_attrs(&self) -> &BTreeMap<ByteStr, Bytes> {
        &self.base.attrs
    }

    fn count_op(&self) {
        self.ops_done.set(self.ops_done.get() + 1);
    }

    fn touch(&mut self) -> &mut State {
        self.count_op();
        self.next.exists = true;
        &mut self.next
    }

    /// True when the data may end at `offset + length`; otherwise the message fails.
    fn fits(&mut self, offset: u64, length: u64) -> bool {
        let fits = offset.checked_add(length).is_some_and(|end| end <= OBJECT_BYTES_MAX);
        self.is_too_big |= !fits;
        fits
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).expect("no more than an object has")
}

impl ClassCx for TestObject {
    fn exists(&self) -> bool {
        self.next.exists
    }
    fn size(&self) -> u64 {
        self.next.data.len() as u64
    }
    fn mtime(&self) -> UTime {
        self.now()
    }
    fn read(&self, offset: u64, length: u64) -> Result<Bytes, Fault> {
        self.count_op();
        if !self.base.exists {
            return Err(Errno::ENOENT.into());
        }
        let end = offset.saturating_add(length).min(self.base.data.len() as u64);
        Ok(Bytes::copy_from_slice(&self.base.data[index(offset.min(end))..index(end)]))
    }
    fn afford(&self, _bytes: u64) -> Result<(), Fault> {
        Ok(())
    }
    fn progress(&self) -> Option<Bytes> {
        self.progress.clone()
    }
    fn is_turn_spent(&self) -> bool {
        self.ops_done.get() >= self.turn_ops
    }
    fn attr(&self, name: &[u8]) -> Option<Bytes> {
        self.count_op();
        self.base.attrs.get(name).cloned()
    }
    fn attrs(&self) -> BTreeMap<ByteStr, Bytes> {
        self.count_op();
        self.base.attrs.clone()
    }
    fn omap_header(&self) -> Bytes {
        self.count_op();
        self.base.header.clone()
    }
    fn omap_value(&self, key: &[u8]) -> Option<Bytes> {
        self.count_op();
        self.base.omap.get(key).cloned()
    }
    fn omap_after(&self, after: &[u8], prefix: &[u8], count_max: usize) -> (Vec<(ByteStr, Bytes)>, bool) {
        self.count_op();
        let matching = || {
            let behind = self.base.omap.iter().filter(|(key, _)| after.is_empty() || key.as_bytes() > after);
            behind.filter(|(key, _)| key.starts_with(prefix))
        };
        let page = matching().take(count_max).map(|(key, value)| (key.clone(), value.clone())).collect();
        (page, matching().count() > count_max)
    }
    fn snap_seq(&self) -> SnapId {
        self.snap_seq
    }
    fn user_version(&self) -> u64 {
        1
    }
    fn last_user_version(&self) -> u64 {
        4321
    }
    fn ops_done(&self) -> u64 {
        self.ops_done.get()
    }
    fn create(&mut self) {
        self.touch();
    }
    fn write(&mut self, offset: u64, data: BufList) {
        if !self.fits(offset, data.len() as u64) {
            return;
        }
        let state = self.touch();
        let end = index(offset) + data.len();
        state.data.resize(state.data.len().max(end), 0);
        state.data[index(offset)..end].copy_from_slice(&data.to_bytes());
    }
    fn write_full(&mut self, data: BufList) {
        if self.fits(0, data.len() as u64) {
            self.touch().data = data.to_bytes().to_vec();
        }
    }
    fn truncate(&mut self, size: u64) {
        if self.fits(size, 0) {
            self.touch().data.resize(index(size), 0);
        }
    }
    fn zero(&mut self, offset: u64, length: u64) {
        let size = self.next.data.len() as u64;
        if offset.saturating_add(length) < size {
            self.touch().data[index(offset)..index(offset + length)].fill(0);
        } else if offset < size {
            self.touch().data.truncate(index(offset)); // as an OSD does it
        }
    }
    fn remove(&mut self) {
        self.next = State::default();
    }
    fn set_attr(&mut self, name: ByteStr, value: Bytes) {
        self.touch().attrs.insert(name, value);
    }
    fn remove_attr(&mut self, name: ByteStr) {
        self.touch().attrs.remove(&name);
    }
    fn omap_set(&mut self, entries: Vec<(ByteStr, Bytes)>) {
        self.touch().omap.extend(entries);
    }
    fn omap_remove(&mut self, keys: Vec<ByteStr>) {
        self.count_op();
        self.is_missing |= !self.next.exists;
        keys.iter().for_each(|key| drop(self.next.omap.remove(key)));
    }
    fn omap_set_header(&mut self, header: Bytes) {
        self.touch().header = header;
    }
    fn omap_clear(&mut self) {
        self.touch().omap.clear();
    }
    fn set_result(&mut self, result: i32) {
        self.result = result;
    }
    fn watchers(&self) -> Vec<Caller> {
        self.watchers.clone()
    }
    fn caller(&self) -> &Caller {
        &self.caller
    }
    fn now(&self) -> UTime {
        UTime { sec: 1_700_000_000, nsec: 0 }
    }
    fn random(&mut self) -> u64 {
        self.entropy.u64()
    }
}
