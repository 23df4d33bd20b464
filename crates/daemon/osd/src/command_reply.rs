//! The answers to `ceph tell osd.N ...`.

use nacre_buf::{BufList, Bytes};
use nacre_msg::CommandReply;
use nacre_types::{Errno, OsdId, SpgId};
use serde_json::Value;

/// A failed command: error number and a line that says why.
pub(crate) type Failure = (Errno, String);

/// A value as people see it, or why there is none.
pub(crate) fn reply(answer: Result<Value, Failure>) -> CommandReply {
    match answer {
        Ok(Value::Null) => CommandReply { result: 0, status: String::new(), data: BufList::new() },
        Ok(value) => {
            let text = serde_json::to_string_pretty(&value).unwrap_or_default();
            CommandReply { result: 0, status: String::new(), data: Bytes::from(text + "\n").into() }
        }
        Err((errno, status)) => CommandReply { result: errno.negated(), status, data: BufList::new() },
    }
}

/// The answer without a value: a line for people.
pub(crate) fn said(status: String) -> CommandReply {
    CommandReply { result: 0, status, data: BufList::new() }
}

/// A PG that `osd` is asked about is not its own.
pub(crate) fn not_here(osd: OsdId, spg: &SpgId) -> Failure {
    (Errno::ENOENT, format!("osd.{osd} does not lead pg {spg}"))
}
