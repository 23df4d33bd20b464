//! [`CLASSES`]: every class with its methods, and the lookup by name. A new class gets its row here.

use crate::method::Method;
use crate::{
    cas, fifo, hello, journal, lock, log, numops, otp, queue, rbd, refcount, rgw, sdk, timeindex, user,
    version,
};
use nacre_types::Errno;

/// One object class.
#[derive(Debug)]
pub struct Class {
    /// Name on the wire.
    pub name: &'static str,
    /// The methods that clients may call.
    pub methods: &'static [Method],
}

/// All classes that we have.
pub static CLASSES: &[Class] = &[
    Class { name: "2pc_queue", methods: queue::RESERVED_METHODS },
    Class { name: "cas", methods: cas::METHODS },
    Class { name: "fifo", methods: fifo::METHODS },
    Class { name: "hello", methods: hello::METHODS },
    Class { name: "journal", methods: journal::METHODS },
    Class { name: "lock", methods: lock::METHODS },
    Class { name: "log", methods: log::METHODS },
    Class { name: "numops", methods: numops::METHODS },
    Class { name: "otp", methods: otp::METHODS },
    Class { name: "queue", methods: queue::METHODS },
    Class { name: "rbd", methods: rbd::METHODS },
    Class { name: "refcount", methods: refcount::METHODS },
    Class { name: "rgw", methods: rgw::METHODS },
    Class { name: "rgw_gc", methods: queue::GARBAGE_METHODS },
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
