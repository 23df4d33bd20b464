//! Class calls: the object under execution as a method sees it.

use super::Suspend;
use super::budget::{CLASS_BYTE_COST, ENTRY_COST};
use super::execution::{Done, Execution, OpReturn, Stop};
use crate::TURN_WORK_MAX;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_cls::{Caller, ClassCx, Fault};
use nacre_msg::osd_op::Extent;
use nacre_types::{Errno, SnapId, UTime};
use std::cell::RefCell;
use std::collections::BTreeMap;

impl Execution<'_, '_> {
    pub(super) fn call(&mut self, index: usize) -> OpReturn {
        let calls = &self.request.intent.calls;
        let call = calls.iter().find(|call| call.op_index == index).ok_or(Errno::EOPNOTSUPP)?;
        let writes = call.method.flags.writes();
        self.pending.user_modify |= writes;
        if writes {
            self.counters.writes += 1
        } else {
            self.counters.reads += 1
        }
        self.budget.spend(CALL_COST)?;
        if call.method.takes_data {
            self.budget.spend(CLASS_BYTE_COST * call.input.len() as u64)?;
        } else {
            self.budget.spend_on_decoding(call.input.len())?;
        }
        let stopped = RefCell::new(None);
        let mut object = MethodObject { exec: self, index, writes, result: 0, refused: None, stopped };
        let output = (call.method.run)(&mut object, call.input.clone());
        let rval = object.result;
        if let Some(stop) = object.stopped.into_inner() {
            return Err(stop);
        }
        if let Some(errno) = object.refused {
            return Err(errno.into());
        }
        match output {
            Ok(out) => Ok(Done { rval, out: out.into() }),
            Err(Fault::Errno(errno)) => Err(errno.into()),
            Err(Fault::Told { errno, output }) => Err(Stop::Fail(errno.negated(), output)),
            Err(Fault::Paused { progress }) if progress.len() <= PROGRESS_BYTES_MAX => {
                Err(Stop::Wait(Suspend::Pause { op_index: index, progress }))
            }
            Err(Fault::Paused { .. }) => Err(Errno::E2BIG.into()),
            Err(Fault::Pending) => Err(Errno::EIO.into()), // a method waits for data that it never asked for
        }
    }
}

/// Bytes of what a call that pauses keeps for its next turn: a key, and sums.
const PROGRESS_BYTES_MAX: usize = 64 << 10;
/// What any class call costs.
const CALL_COST: u64 = 64 << 10;
/// A value of an omap entry up to this length costs no more than its entry.
const SHORT_VALUE_BYTES: usize = 512;

/// The object under a method.
struct MethodObject<'r, 'a, 'e> {
    exec: &'r mut Execution<'a, 'e>,
    /// The call's index in the message.
    index: usize,
    /// The method is registered as one that writes.
    writes: bool,
    /// What the call returns if it succeeds.
    result: i32,
    /// The first change that was not allowed: the interface has no place for it, so the call fails at its end.
    refused: Option<Errno>,
    /// The message must wait for data.
    stopped: RefCell<Option<Stop>>,
}

impl MethodObject<'_, '_, '_> {
    fn count_op(&self) {
        self.exec.ops_done.set(self.exec.ops_done.get() + 1);
    }

    fn change(&mut self, change: impl FnOnce(&mut Execution<'_, '_>) -> Result<(), Errno>) {
        self.count_op();
        if self.refused.is_some() {
            return;
        }
        // Whether the message is a write was decided by the method's flags; it is too late to change it.
        let allowed = if self.writes { self.exec.budget.spend(ENTRY_COST) } else { Err(Errno::EPERM) };
        self.refused = allowed.and_then(|()| change(self.exec)).err();
    }

    /// Writes data; what a method reads and writes, it has looked at several times.
    fn write_data(
        &mut self,
        length: usize,
        change: impl FnOnce(&mut Execution<'_, '_>) -> Result<(), Errno>,
    ) {
        self.change(|exec| {
            exec.budget.spend(CLASS_BYTE_COST * length as u64)?;
            change(exec)
        });
    }

    /// A value that the method will take apart.
    fn decoded(&self, value: Option<Bytes>) -> Option<Bytes> {
        let bytes = value.as_ref().map_or(0, Bytes::len);
        self.known(self.exec.budget.spend_on_decoding(bytes).map(|()| value))
    }

    /// What was read, or nothing when the message may not ask for more: then the call fails at its end.
    fn known<T: Default>(&self, found: Result<T, Errno>) -> T {
        found.unwrap_or_else(|errno| {
            self.stopped.borrow_mut().get_or_insert(errno.into());
            T::default()
        })
    }
}

impl ClassCx for MethodObject<'_, '_, '_> {
    fn exists(&self) -> bool {
        self.exec.pending.exists
    }

    fn size(&self) -> u64 {
        self.exec.pending.info.size
    }

    fn mtime(&self) -> UTime {
        self.exec.pending.info.mtime
    }

    fn read(&self, offset: u64, length: u64) -> Result<Bytes, Fault> {
        self.count_op();
        self.exec.require_object()?;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let extent = Extent { offset, length, ..Extent::default() };
        self.exec.budget.spend(CLASS_BYTE_COST * self.exec.clip(extent).1)?;
        match self.exec.peek(extent) {
            Ok(data) => Ok(data.to_bytes()),
            Err(Stop::Fail(rval, _)) => Err(Fault::Errno(Errno(-rval))),
            Err(stop) => {
                *self.stopped.borrow_mut() = Some(stop);
                Err(Fault::Pending)
            }
        }
    }

    fn afford(&self, bytes: u64) -> Result<(), Fault> {
        Ok(self.exec.budget.afford(CLASS_BYTE_COST.saturating_mul(bytes))?)
    }

    fn progress(&self) -> Option<Bytes> {
        self.exec.request.progress.get(&self.index).cloned()
    }

    fn is_turn_spent(&self) -> bool {
        self.exec.budget.spent() >= TURN_WORK_MAX
    }

    fn attr(&self, name: &[u8]) -> Option<Bytes> {
        self.count_op();
        self.decoded(self.exec.base_attr(name))
    }

    fn attrs(&self) -> BTreeMap<ByteStr, Bytes> {
        self.count_op();
        self.known(self.exec.base_attrs())
    }

    fn omap_header(&self) -> Bytes {
        self.count_op();
        self.decoded(Some(self.known(self.exec.omap_header()))).unwrap_or_default()
    }

    fn omap_value(&self, key: &[u8]) -> Option<Bytes> {
        self.count_op();
        self.decoded(self.known(self.exec.omap_value(key)))
    }

    fn omap_after(&self, after: &[u8], prefix: &[u8], count_max: usize) -> (Vec<(ByteStr, Bytes)>, bool) {
        self.count_op();
        let page = self.known(self.exec.omap_after(after, prefix, count_max));
        // Short values are paid for with their entries.
        let long = page.entries.iter().map(|(_, value)| value.len().saturating_sub(SHORT_VALUE_BYTES)).sum();
        self.known(self.exec.budget.spend_on_decoding(long).map(|()| (page.entries, page.more)))
    }

    fn snap_seq(&self) -> SnapId {
        self.exec.head.snaps.seq
    }

    fn user_version(&self) -> u64 {
        self.exec.base.info.user_version
    }

    fn last_user_version(&self) -> u64 {
        self.exec.env.last_user_version
    }

    fn ops_done(&self) -> u64 {
        self.exec.ops_done.get()
    }

    fn create(&mut self) {
        self.change(|exec| {
            exec.pending.create();
            Ok(())
        });
    }

    fn write(&mut self, offset: u64, data: BufList) {
        let extent = Extent { offset, length: data.len() as u64, ..Extent::default() };
        self.write_data(data.len(), |exec| exec.write(extent, &data));
    }

    fn write_full(&mut self, data: BufList) {
        let extent = Extent { length: data.len() as u64, ..Extent::default() };
        self.write_data(data.len(), |exec| exec.write_full(extent, &data));
    }

    fn truncate(&mut self, size: u64) {
        self.change(|exec| exec.truncate(Extent { offset: size, ..Extent::default() }));
    }

    fn zero(&mut self, offset: u64, length: u64) {
        self.change(|exec| exec.zero(offset, length));
    }

    fn remove(&mut self) {
        self.change(|exec| if exec.pending.exists { exec.delete() } else { Ok(()) });
    }

    fn set_attr(&mut self, name: ByteStr, value: Bytes) {
        self.change(|exec| {
            exec.pending.set_attr(name, value);
            Ok(())
        });
    }

    fn remove_attr(&mut self, name: ByteStr) {
        self.change(|exec| {
            exec.require_object()?;
            exec.pending.remove_attr(name);
            Ok(())
        });
    }

    fn omap_set(&mut self, entries: Vec<(ByteStr, Bytes)>) {
        self.change(|exec| {
            exec.require_omap()?;
            exec.budget.spend_on_keys(entries.len(), 0)?;
            exec.pending.omap_set(entries);
            Ok(())
        });
    }

    fn omap_remove(&mut self, keys: Vec<ByteStr>) {
        self.change(|exec| {
            exec.require_omap()?;
            exec.require_object()?;
            exec.budget.spend_on_keys(keys.len(), 0)?;
            exec.pending.omap_remove(keys);
            Ok(())
        });
    }

    fn omap_set_header(&mut self, header: Bytes) {
        self.change(|exec| {
            exec.require_omap()?;
            exec.pending.omap_set_header(header);
            Ok(())
        });
    }

    fn omap_clear(&mut self) {
        self.change(|exec| {
            exec.require_omap()?;
            exec.require_object()?;
            exec.pending.omap_clear();
            Ok(())
        });
    }

    fn set_result(&mut self, result: i32) {
        self.result = result;
    }

    fn watchers(&self) -> Vec<Caller> {
        let watchers = self.exec.pending.info.watchers.iter();
        watchers.map(|((_, name), watcher)| Caller { name: *name, addr: watcher.addr }).collect()
    }

    fn caller(&self) -> &Caller {
        self.exec.request.caller
    }

    fn now(&self) -> UTime {
        self.exec.env.now
    }

    fn random(&mut self) -> u64 {
        self.exec.env.entropy.u64()
    }
}
