//! Commands to monitors, managers and other daemons: words in, a result, a status line and output back.
//!
//! Source: Ceph `MMonCommand.h`, `MMonCommandAck.h`, `MCommand.h`, `MCommandReply.h`, `MMgrCommand.h`,
//! `MMgrCommandReply.h`, v16.2.15.

use crate::body::body;
use nacre_buf::BufList;
use nacre_types::Uuid;

/// `MMonCommand`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonCommand {
    /// Version that the sender knows, usually 0.
    pub version: u64,
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// One JSON object, usually in one string.
    pub cmd: Vec<String>,
    /// Input beside the arguments, as of `-i FILE`.
    pub data: BufList,
}
body!(MonCommand = 50, 1 / 1; @version; fsid, cmd; + data);

/// `MMonCommandAck`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MonCommandAck {
    /// Version of the service that executed it.
    pub version: u64,
    /// 0 or a negated errno.
    pub result: i32,
    /// Status line for people.
    pub status: String,
    /// The command, echoed.
    pub cmd: Vec<String>,
    /// What the command printed.
    pub data: BufList,
}
body!(MonCommandAck = 51, 1 / 1 [high]; @version; result, status, cmd; + data);

/// `MCommand`: by `tell`, to any daemon.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Command {
    /// Id of the cluster that the sender belongs to.
    pub fsid: Uuid,
    /// One JSON object, usually in one string.
    pub cmd: Vec<String>,
    /// Input beside the arguments, as of `-i FILE`.
    pub data: BufList,
}
body!(Command = 97, 1 / 1; fsid, cmd; + data);

/// `MCommandReply`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CommandReply {
    /// 0 or a negated errno.
    pub result: i32,
    /// Status line for people.
    pub status: String,
    /// What the command printed.
    pub data: BufList,
}
body!(CommandReply = 98, 1 / 1; result, status; + data);

/// `MMgrCommand`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrCommand {
    /// The cluster, or zeros.
    pub fsid: Uuid,
    /// One JSON object, usually in one string.
    pub cmd: Vec<String>,
    /// Input beside the arguments, as of `-i FILE`.
    pub data: BufList,
}
body!(MgrCommand = 1801, 1 / 1; fsid, cmd; + data);

/// `MMgrCommandReply`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MgrCommandReply {
    /// 0 or a negated errno.
    pub result: i32,
    /// Status line for people.
    pub status: String,
    /// What the command printed.
    pub data: BufList,
}
body!(MgrCommandReply = 1802, 1 / 1; result, status; + data);
