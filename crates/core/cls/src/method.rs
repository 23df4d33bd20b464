//! [`Method`]: one method of a class, and the functions that classes build theirs with.

use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::Bytes;
use nacre_types::Errno;

/// What a method does to its object, as Ceph registers it; decides whether a message is a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    /// Reads; without an object the message fails with `ENOENT` before the method runs.
    Read,
    /// Reads and writes, and may create the object.
    ReadWrite,
    /// Writes without looking at the object.
    Write,
}

impl Flags {
    /// True when the caller needs the right to read.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// True when the method may change the object.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Write)
    }
}

/// One method of a class.
#[derive(Debug)]
pub struct Method {
    /// Name on the wire.
    pub name: &'static str,
    /// Reads, or reads and writes.
    pub flags: Flags,
    /// Most of its input is data, not lists that are looked at entry by entry.
    pub takes_data: bool,
    /// Runs the method on an object, with its input.
    pub run: fn(&mut dyn ClassCx, Bytes) -> MethodResult,
}

impl Method {
    /// The same, which takes data.
    pub(crate) const fn taking_data(self) -> Self {
        Self { takes_data: true, ..self }
    }
}

/// A method that only reads.
pub(crate) const fn read(name: &'static str, run: fn(&mut dyn ClassCx, Bytes) -> MethodResult) -> Method {
    Method { name, flags: Flags::Read, takes_data: false, run }
}

/// A method that reads and writes.
pub(crate) const fn write(name: &'static str, run: fn(&mut dyn ClassCx, Bytes) -> MethodResult) -> Method {
    Method { name, flags: Flags::ReadWrite, takes_data: false, run }
}

/// A method that writes without reading.
pub(crate) const fn write_only(
    name: &'static str,
    run: fn(&mut dyn ClassCx, Bytes) -> MethodResult,
) -> Method {
    Method { name, flags: Flags::Write, takes_data: false, run }
}

/// Output of a method that has nothing to say.
pub(crate) fn done() -> MethodResult {
    Ok(Bytes::new())
}

/// A failed method.
pub(crate) fn fail<T>(errno: Errno) -> Result<T, Fault> {
    Err(Fault::Errno(errno))
}
