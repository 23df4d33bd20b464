//! Watches and notifies: the object's record of its watchers changes here; connecting, timing out and sending
//! are the PG's, which gets [`WatchChange`], [`Notify`] and [`NotifyAck`].

use super::execution::{Done, Execution, OpReturn};
use super::{Notify, NotifyAck, WatchChange};
use crate::object::Watcher;
use nacre_buf::Bytes;
use nacre_denc::{DecodeError, Encode, Reader, Writer};
use nacre_msg::SubOp;
use nacre_msg::osd_op::{WatchArgs, code, watch_op};
use nacre_types::{AddrKind, Errno};

/// Seconds without a sign of life that end a watch which names none (`osd_client_watch_timeout`).
const WATCH_TIMEOUT_S: u32 = 30;
/// Seconds that a notify waits which names none (`osd_default_notify_timeout`).
const NOTIFY_TIMEOUT_S: u32 = 30;

impl Execution<'_, '_> {
    pub(super) fn watch_op(&mut self, op: &SubOp) -> OpReturn {
        match op.code {
            code::WATCH => self.watch(op.watch()),
            code::NOTIFY => self.notify(op),
            code::NOTIFY_ACK => self.notify_ack(op),
            _ => self.list_watchers(),
        }
    }

    fn watch(&mut self, args: WatchArgs) -> OpReturn {
        self.require_object()?;
        let key = (args.cookie, self.request.caller.name);
        match args.op {
            watch_op::WATCH | watch_op::LEGACY_WATCH => self.connect(args),
            watch_op::RECONNECT => {
                let watcher = *self.pending.info.watchers.get(&key).ok_or(Errno::ENOTCONN)?;
                self.watches.push(WatchChange::Connect { cookie: args.cookie, watcher, will_ping: true });
            }
            watch_op::PING => {
                self.pending.info.watchers.get(&key).ok_or(Errno::ENOTCONN)?;
                self.watches.push(WatchChange::Ping { cookie: args.cookie });
            }
            watch_op::UNWATCH => {
                if self.pending.unwatch(&key) {
                    self.watches.push(WatchChange::Disconnect { key, tell: false });
                }
            }
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok(Done::default())
    }

    fn connect(&mut self, args: WatchArgs) {
        let key = (args.cookie, self.request.caller.name);
        let watcher = Watcher {
            addr: self.request.caller.addr.with_kind(AddrKind::Any),
            timeout_s: if args.timeout_s == 0 { WATCH_TIMEOUT_S } else { args.timeout_s },
        };
        if !self.pending.info.watchers.contains_key(&key) {
            self.pending.watch(key, watcher);
        }
        let will_ping = args.op == watch_op::WATCH;
        self.watches.push(WatchChange::Connect { cookie: args.cookie, watcher, will_ping });
    }

    fn notify(&mut self, op: &SubOp) -> OpReturn {
        self.counters.reads += 1;
        let (timeout_s, payload) = read_notify(op.indata.to_bytes()).unwrap_or_default();
        let id = self.env.notify_id.wrapping_add(self.notifies.len() as u64);
        self.notifies.push(Notify {
            id,
            cookie: op.notify_cookie(),
            timeout_s: if timeout_s == 0 { NOTIFY_TIMEOUT_S } else { timeout_s },
            payload,
        });
        Ok(id.to_bytes().into())
    }

    fn notify_ack(&mut self, op: &SubOp) -> OpReturn {
        self.counters.reads += 1;
        let ack = read_ack(op.indata.to_bytes());
        let legacy = |_| NotifyAck { id: op.notify_cookie(), cookie: None, reply: Bytes::new() };
        self.acks.push(ack.unwrap_or_else(legacy));
        Ok(Done::default())
    }

    /// Answers `obj_list_watch_response_t`.
    fn list_watchers(&mut self) -> OpReturn {
        self.require_object()?;
        self.counters.reads += 1;
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.count(self.pending.info.watchers.len());
            for ((cookie, name), watcher) in &self.pending.info.watchers {
                w.envelope(2, 1, |w| {
                    w.put(name);
                    w.u64(*cookie);
                    w.u32(watcher.timeout_s);
                    w.put(&watcher.addr);
                });
            }
        });
        Ok(w.finish().into())
    }
}

fn read_notify(input: Bytes) -> Result<(u32, Bytes), DecodeError> {
    let mut r = Reader::new(input);
    r.u32()?; // version, always 1
    Ok((r.u32()?, r.blob()?))
}

fn read_ack(input: Bytes) -> Result<NotifyAck, DecodeError> {
    let mut r = Reader::new(input);
    let (id, cookie) = (r.u64()?, r.u64()?);
    let reply = if r.is_empty() { Bytes::new() } else { r.blob()? };
    Ok(NotifyAck { id, cookie: Some(cookie), reply })
}
