//! [`classify`]: what a message is, by its operation codes and the registered flags of the methods it calls.
//!
//! The client's own READ and WRITE flags say nothing: librados sends mutating class methods in messages that
//! are flagged as reads.

use super::copy::copy_source;
use nacre_buf::Bytes;
use nacre_cls::{CLASSES, Method, lookup};
use nacre_msg::osd_op::{code, flag, watch_op};
use nacre_msg::{OsdOp, SubOp};
use nacre_types::{Errno, HObject};
use smallvec::SmallVec;

/// One class call of a message.
#[derive(Debug, Clone)]
pub struct ClassUse {
    /// Index of the operation in the message.
    pub op_index: usize,
    /// Name of the class.
    pub class: &'static str,
    /// The method; its flags say what it may do.
    pub method: &'static Method,
    /// The method's input.
    pub input: Bytes,
}

/// What a message is going to do.
#[derive(Debug, Clone, Default)]
pub struct Intent {
    /// Some operation other than a class call reads; needs `r`.
    pub read: bool,
    /// Some operation other than a class call writes; needs `w`.
    pub write: bool,
    /// Works on the whole PG: a listing.
    pub on_pg: bool,
    /// To be ordered like a write although it is none (`RWORDERED`, watch pings).
    pub ordered: bool,
    /// Objects that it copies from; each needs `r`.
    pub sources: Vec<HObject>,
    /// Class calls in order; each needs `x` or a grant of its own.
    pub calls: SmallVec<[ClassUse; 1]>,
}

impl Intent {
    /// True when the message may change the object: it goes to the log and to all replicas.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.write || self.calls.iter().any(|call| call.method.flags.writes())
    }

    /// True when the message must wait for earlier writes of the object, and later ones for it.
    #[must_use]
    pub fn is_ordered_as_write(&self) -> bool {
        self.ordered || self.may_write()
    }

    fn add(&mut self, index: usize, op: &SubOp) -> Result<(), Errno> {
        match op.code {
            code::CALL => self.add_call(index, op)?,
            code::COPY_FROM | code::COPY_FROM2 => {
                self.write = true;
                self.sources.push(copy_source(op)?);
            }
            // A ping changes nothing that is stored, but must not overtake the watch that it is for.
            code::WATCH if op.watch().op == watch_op::PING => {
                self.ordered = true;
                self.read = true;
            }
            code => {
                // A watch looks at the watches that there are.
                self.read |= code == code::WATCH;
                self.read |= code::is_read(code);
                self.write |= code::is_write(code);
                self.on_pg |= code::is_pg(code);
            }
        }
        Ok(())
    }

    fn add_call(&mut self, op_index: usize, op: &SubOp) -> Result<(), Errno> {
        let call = op.class_call().map_err(|_| Errno::EINVAL)?;
        let class = CLASSES.iter().map(|class| class.name).find(|name| call.class == *name);
        let class = class.ok_or(Errno::EPERM)?;
        let method = lookup(&call.class, &call.method)?;
        self.calls.push(ClassUse { op_index, class, method, input: call.input });
        Ok(())
    }
}

/// Looks a message over before it is admitted.
///
/// # Errors
/// `EPERM` for a class and `EOPNOTSUPP` for a method that is not there, `EINVAL` for a malformed call or copy.
pub fn classify(op: &OsdOp) -> Result<Intent, Errno> {
    let mut intent = Intent { ordered: op.has_flag(flag::RWORDERED), ..Intent::default() };
    for (index, sub_op) in op.ops.iter().enumerate() {
        intent.add(index, sub_op)?;
    }
    Ok(intent)
}
