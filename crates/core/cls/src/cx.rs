//! What a class method sees of the object it runs on.

use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_denc::DecodeError;
use nacre_types::{EntityAddr, EntityName, Errno, SnapId, UTime};
use std::collections::BTreeMap;

/// The client that calls the method.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The client instance, such as `client.4123`.
    pub name: EntityName,
    /// Its address with nonce, of kind `Any`.
    pub addr: EntityAddr,
}

/// Why a method gave no output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The method failed; the client sees this number and the message's changes are dropped.
    #[error("{0}")]
    Errno(#[from] Errno),
    /// The method failed, and the client sees its output all the same, as long as the message is a read.
    #[error("{errno}, with an output")]
    Told {
        /// The error number.
        errno: Errno,
        /// What the method has to say.
        output: Bytes,
    },
    /// Object data must come from the device first; the whole message is run again then.
    #[error("waits for object data")]
    Pending,
    /// The method has done what a turn is for. The whole message is run again in a later one, and the method finds this in
    /// [`ClassCx::progress`]; nothing changes the object meanwhile.
    #[error("goes on in a later turn")]
    Paused {
        /// How far it came: a place and sums, not what it has seen.
        progress: Bytes,
    },
}

/// Malformed input is the client's mistake: `EINVAL`, as from Ceph's classes.
impl From<DecodeError> for Fault {
    fn from(_: DecodeError) -> Self {
        Self::Errno(Errno::EINVAL)
    }
}

/// Output of a method, or why there is none.
pub type MethodResult = Result<Bytes, Fault>;

/// The object under a method. Reads show the state before the message (only [`ClassCx::exists`] and
/// [`ClassCx::size`] reflect earlier ops of it); writes join the message's transaction.
pub trait ClassCx {
    /// True when the object exists.
    fn exists(&self) -> bool;
    /// Length of the data in bytes.
    fn size(&self) -> u64;
    /// When the object was last changed.
    fn mtime(&self) -> UTime;
    /// Data in `[offset, offset + length)`, cut at the end.
    ///
    /// # Errors
    /// `ENOENT` without an object, [`Fault::Pending`].
    fn read(&self, offset: u64, length: u64) -> Result<Bytes, Fault>;
    /// Before a method reads or writes much: whether it may, so many bytes in all.
    ///
    /// # Errors
    /// `E2BIG` when that is more than the message may cost.
    fn afford(&self, bytes: u64) -> Result<(), Fault>;
    /// What the method said when it paused last ([`Fault::Paused`]); `None` when it begins.
    fn progress(&self) -> Option<Bytes>;
    /// The message has done what a turn is for: a method that can go on later pauses.
    fn is_turn_spent(&self) -> bool;
    /// One attribute. The name is the user's, without prefix.
    fn attr(&self, name: &[u8]) -> Option<Bytes>;
    /// All attributes of the object.
    fn attrs(&self) -> BTreeMap<ByteStr, Bytes>;
    /// The omap header, empty when never set.
    fn omap_header(&self) -> Bytes;
    /// The value of one omap key.
    fn omap_value(&self, key: &[u8]) -> Option<Bytes>;
    /// Up to `count_max` omap entries with `key > after` (`>=` when `after` is empty) that start with
    /// `prefix`, and whether more follow.
    fn omap_after(&self, after: &[u8], prefix: &[u8], count_max: usize) -> (Vec<(ByteStr, Bytes)>, bool);
    /// Newest snapshot that the object has seen; 0 without any.
    fn snap_seq(&self) -> SnapId;
    /// The object's user version before the message.
    fn user_version(&self) -> u64;
    /// Largest user version given out in the object's PG before the message.
    fn last_user_version(&self) -> u64;
    /// Operations of the message so far: those before the call, and what the methods looked up and changed.
    fn ops_done(&self) -> u64;

    /// Makes the object exist.
    fn create(&mut self);
    /// Writes data at a byte offset of the object.
    fn write(&mut self, offset: u64, data: BufList);
    /// Replaces the data.
    fn write_full(&mut self, data: BufList);
    /// Cuts or extends the data.
    fn truncate(&mut self, size: u64);
    /// Makes a range read as zeros.
    fn zero(&mut self, offset: u64, length: u64);
    /// Removes the object.
    fn remove(&mut self);
    /// Sets an attribute.
    fn set_attr(&mut self, name: ByteStr, value: Bytes);
    /// Removes an attribute.
    fn remove_attr(&mut self, name: ByteStr);
    /// Sets omap entries.
    fn omap_set(&mut self, entries: Vec<(ByteStr, Bytes)>);
    /// Removes omap entries.
    fn omap_remove(&mut self, keys: Vec<ByteStr>);
    /// Replaces the omap header.
    fn omap_set_header(&mut self, header: Bytes);
    /// Removes omap entries and header.
    fn omap_clear(&mut self);

    /// Says what a call that succeeds returns beside its output, such as a count; otherwise 0. Of a write the client
    /// sees it only with the flag `RETURNVEC`.
    fn set_result(&mut self, result: i32);
    /// The clients that watch the object, with addresses of kind `Any` as of [`ClassCx::caller`].
    fn watchers(&self) -> Vec<Caller>;
    /// The client that calls the method.
    fn caller(&self) -> &Caller;
    /// The calendar clock.
    fn now(&self) -> UTime;
    /// A random number.
    fn random(&mut self) -> u64;
}
