//! The table of classes and methods: adding one is a row here and a function in the class's file.

use crate::{ClassCx, Fault, MethodResult};
use crate::{cas, hello, journal, lock, log, numops, rbd, refcount, sdk, timeindex, user, version};
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

/// One method.
#[derive(Debug)]
pub struct Method {
    /// Name on the wire.
    pub name: &'static str,
    /// Reads, or reads and writes.
    pub flags: Flags,
    /// Most of its input is data, not lists that are looked at entry by entry.
    pub takes_data: bool,
    /// The function.
    pub run: fn(&mut dyn ClassCx, Bytes) -> MethodResult,
}

impl Method {
    /// The same, which takes data.
    pub(crate) const fn taking_data(self) -> Self {
        Self { takes_data: true, ..self }
    }
}

/// One class.
#[derive(Debug)]
pub struct Class {
    /// Name on the wire.
    pub name: &'static str,
    /// Its methods.
    pub methods: &'static [Method],
}

/// All classes that we have.
pub static CLASSES: &[Class] = &[
    Class { name: "cas", methods: cas::METHODS },
    Class { name: "hello", methods: hello::METHODS },
    Class { name: "journal", methods: journal::METHODS },
    Class { name: "lock", methods: lock::METHODS },
    Class { name: "log", methods: log::METHODS },
    Class { name: "numops", methods: numops::METHODS },
    Class { name: "rbd", methods: rbd::METHODS },
    Class { name: "refcount", methods: refcount::METHODS },
    Class { name: "sdk", methods: sdk::METHODS },
    Class { name: "timeindex", methods: timeindex::METHODS },
    Class { name: "user", methods: user::METHODS },
    Class { name: "version", methods: version::METHODS },
];

/// Finds a method.
///
/// # Errors
/// `EPERM` for a class and `EOPNOTSUPP` for a method that we do not have, as from a real OSD.
pub fn lookup(class: &[u8], method: &[u8]) -> Result<&'static Method, Errno> {
    let class = CLASSES.iter().find(|known| known.name.as_bytes() == class).ok_or(Errno::EPERM)?;
    let method = class.methods.iter().find(|known| known.name.as_bytes() == method);
    method.ok_or(Errno::EOPNOTSUPP)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Behind this line the document repeats the table.
    const MARK: &str =
        "<!-- From here on written by the tests of crates/core/cls: BLESS=1 cargo test -p nacre-cls -->\n";

    fn document() -> String {
        let mut out = String::new();
        for class in CLASSES {
            writeln!(out, "\n## {}\n\n| method | may change the object |\n| --- | --- |", class.name)
                .expect("a string");
            for method in class.methods {
                let writes = if method.flags.writes() { "yes" } else { "" };
                writeln!(out, "| `{}` | {writes} |", method.name).expect("a string");
            }
        }
        out
    }

    #[test]
    fn the_document_lists_every_method() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/object-classes.md");
        let text = std::fs::read_to_string(path).expect("the document");
        let (head, listed) = text.split_once(MARK).expect("the mark");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, [head, MARK, &document()].concat()).expect("a document to write");
        } else {
            assert!(
                listed == document(),
                "docs/object-classes.md is behind the table: run this test with BLESS=1"
            );
        }
    }

    #[test]
    fn names_are_unique_and_unknown_ones_are_not_supported() {
        for class in CLASSES {
            for (index, method) in class.methods.iter().enumerate() {
                let twice = class.methods[index + 1..].iter().any(|other| other.name == method.name);
                assert!(!twice, "{}.{} stands twice", class.name, method.name);
            }
        }
        assert!(lookup(b"lock", b"lock").is_ok_and(|method| method.flags.writes()));
        assert_eq!(lookup(b"lock", b"nothing").map(|_| ()), Err(Errno::EOPNOTSUPP));
        assert_eq!(lookup(b"nothing", b"lock").map(|_| ()), Err(Errno::EPERM));
    }
}
