//! [`Requests`]: commands and version questions that wait for their answers.

use crate::{Effect, LinkId};
use nacre_buf::BufList;
use nacre_msg::{Message, MonCommand, MonCommandAck, MonGetVersion, MonGetVersionReply};
use nacre_types::Uuid;
use std::collections::{BTreeMap, VecDeque};

/// Requests that may wait at a time.
pub const REQUESTS_MAX: usize = 4096;

/// [`REQUESTS_MAX`] requests wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{REQUESTS_MAX} requests wait for the monitors already")]
pub struct TooMany;

#[derive(Debug, Clone)]
enum Request {
    Command { cmd: Vec<String>, data: BufList },
    Version { what: String },
}

/// Requests by number, in the order of asking; and the messages of the caller that wait for a session.
#[derive(Debug)]
pub(crate) struct Requests {
    pending: BTreeMap<u64, Request>,
    unsent: VecDeque<u64>,
    messages: VecDeque<(u64, Message)>,
    next: u64,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self { pending: BTreeMap::new(), unsent: VecDeque::new(), messages: VecDeque::new(), next: 1 }
    }

    /// A number that no other request or message bears.
    pub(crate) fn next_tid(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn add(&mut self, request: Request) -> Result<u64, TooMany> {
        if self.pending.len() >= REQUESTS_MAX {
            return Err(TooMany);
        }
        let tid = self.next_tid();
        self.pending.insert(tid, request);
        self.unsent.push_back(tid);
        Ok(tid)
    }

    pub(crate) fn command(&mut self, cmd: Vec<String>, data: BufList) -> Result<u64, TooMany> {
        self.add(Request::Command { cmd, data })
    }

    pub(crate) fn version(&mut self, what: &str) -> Result<u64, TooMany> {
        self.add(Request::Version { what: what.to_owned() })
    }

    pub(crate) fn cancel(&mut self, tid: u64) {
        self.pending.remove(&tid);
    }

    pub(crate) fn message(&mut self, tid: u64, message: Message) -> Result<(), TooMany> {
        if self.messages.len() >= REQUESTS_MAX {
            return Err(TooMany);
        }
        self.messages.push_back((tid, message));
        Ok(())
    }

    /// A new monitor: ask everything again.
    pub(crate) fn forget_sent(&mut self) {
        self.unsent = self.pending.keys().copied().collect();
    }

    /// Sends what waits. Commands need the cluster's id, so they wait for the first monitor map.
    pub(crate) fn flush(&mut self, link: LinkId, fsid: Option<Uuid>, effects: &mut Vec<Effect>) {
        effects.extend(self.messages.drain(..).map(|(tid, message)| Effect::Send { link, tid, message }));
        let unsent = std::mem::take(&mut self.unsent);
        for tid in unsent {
            let message: Message = match (self.pending.get(&tid), fsid) {
                (Some(Request::Version { what }), _) => {
                    MonGetVersion { handle: tid, what: what.clone() }.into()
                }
                (Some(Request::Command { cmd, data }), Some(fsid)) => {
                    MonCommand { version: 0, fsid, cmd: cmd.clone(), data: data.clone() }.into()
                }
                (Some(Request::Command { .. }), None) => {
                    self.unsent.push_back(tid);
                    continue;
                }
                (None, _) => continue,
            };
            effects.push(Effect::Send { link, tid, message });
        }
    }

    /// The answer to a command; a second one, after a resend, is ignored.
    pub(crate) fn command_ack(&mut self, tid: u64, ack: MonCommandAck) -> Option<Effect> {
        if !matches!(self.pending.get(&tid), Some(Request::Command { .. })) {
            return None;
        }
        self.pending.remove(&tid);
        Some(Effect::CommandDone { tid, result: ack.result, status: ack.status, data: ack.data })
    }

    pub(crate) fn version_reply(&mut self, reply: &MonGetVersionReply) -> Option<Effect> {
        if !matches!(self.pending.get(&reply.handle), Some(Request::Version { .. })) {
            return None;
        }
        self.pending.remove(&reply.handle);
        Some(Effect::Version { handle: reply.handle, newest: reply.newest, oldest: reply.oldest })
    }
}
