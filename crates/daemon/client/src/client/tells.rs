//! Commands to OSDs, as `ceph tell` gives them, over the connections that operations use.

use super::{Client, Finished};
use nacre_buf::BufList;
use nacre_msg::{Command, CommandReply, Message};
use nacre_objecter::TooMany;
use nacre_types::{Errno, OsdId, Stamp};

/// Commands to OSDs that are not answered yet, at most.
const TELLS_MAX: usize = 1024;

/// A command to an OSD.
pub(super) struct Tell {
    osd: OsdId,
    /// Until it is sent.
    command: Option<Command>,
}

impl Client {
    /// Begins a command, JSON, to one OSD, as `ceph tell` does. It goes out with [`Client::flush`], once: when the OSD is not up or the
    /// connection to it is lost, the outcome is `-ENXIO`. The client must have a map (`objecter().map().epoch` is not 0).
    ///
    /// # Errors
    /// When far too many are under way.
    pub fn tell(&mut self, osd: OsdId, json: &str) -> Result<u64, TooMany> {
        if self.tells.len() >= TELLS_MAX {
            return Err(TooMany);
        }
        let tid = self.monc.next_tid();
        let map = self.objecter.map();
        let command = Command { fsid: map.fsid, cmd: vec![json.to_owned()], data: BufList::new() };
        let addrs = map.client_addr(osd).filter(|_| map.is_up(osd)).cloned();
        self.tells.insert(tid, Tell { osd, command: Some(command) });
        match addrs {
            Some(addrs) if !self.links.contains_key(&osd) => self.dial(self.clock.now(), osd, &addrs),
            Some(_) => self.send_tells(osd),
            None => self.fail_tells(osd),
        }
        Ok(tid)
    }

    /// Sends what waits for a session with this OSD, if it is open.
    pub(super) fn send_tells(&mut self, osd: OsdId) {
        let Some(link) = self.links.get(&osd).filter(|link| link.is_open) else { return };
        for (tid, tell) in self.tells.iter_mut().filter(|(_, tell)| tell.osd == osd) {
            if let Some(command) = tell.command.take() {
                self.messenger.send(link.conn, Message::Command(command).encode(*tid));
            }
        }
    }

    /// There is no connection to this OSD, or no more.
    pub(super) fn fail_tells(&mut self, osd: OsdId) {
        let gone: Vec<u64> =
            self.tells.iter().filter(|(_, tell)| tell.osd == osd).map(|(tid, _)| *tid).collect();
        for tid in gone {
            self.tells.remove(&tid);
            let status = format!("osd.{osd} is not up, or the connection to it was lost");
            self.finished.push(Finished::Command {
                tid,
                result: -Errno::ENXIO.0,
                status,
                data: BufList::new(),
            });
        }
    }

    /// An OSD's connection is gone, or was not to be had.
    pub(super) fn link_lost(&mut self, now: Stamp, osd: OsdId) {
        self.fail_tells(osd);
        self.objecter.lost(now, osd);
    }

    /// An OSD answers. Whose connection it came on matters: none answers for another one.
    pub(super) fn told(&mut self, osd: OsdId, tid: u64, reply: CommandReply) {
        if self.tells.get(&tid).is_some_and(|tell| tell.osd == osd) {
            self.tells.remove(&tid);
            let CommandReply { result, status, data } = reply;
            self.finished.push(Finished::Command { tid, result, status, data });
        }
    }
}
