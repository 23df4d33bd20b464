//! Commands to OSDs, as `ceph tell` gives them, over the connections that operations use.

use super::{Client, Finished};
use nacre_buf::BufList;
use nacre_msg::{Command, CommandReply, Message};
use nacre_objecter::TooMany;
use nacre_types::{Errno, OsdId, Stamp};

/// Commands to OSDs that are neither answered nor forgotten yet, at most.
const TELLS_MAX: usize = 1024;

/// A command to an OSD.
pub(super) struct Tell {
    osd: OsdId,
    /// Until it is sent.
    command: Option<Command>,
}

impl Client {
    /// Begins a command, JSON, to one OSD, as `ceph tell` does. It goes out with [`Client::flush`], once: when the OSD is not up or the
    /// connection to it is lost, the outcome is `-ENXIO`. An OSD that hangs never answers: who waits no longer says so with
    /// [`Client::forget_command`]. The client must have a map (`objecter().map().epoch` is not 0).
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

    /// Nobody waits any more for the answer to the command that was begun under this number, to an OSD ([`Client::tell`]) or to the
    /// monitors ([`Client::command`]): its place is free again, and it is not sent if it has not been. What was sent may be carried out
    /// nevertheless. What has been answered already is still among [`Client::take_finished`].
    pub fn forget_command(&mut self, tid: u64) {
        if self.tells.remove(&tid).is_none() {
            self.monc.cancel(tid);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use nacre_env::real::RealNet;
    use nacre_env::{RealClock, SystemEntropy};
    use nacre_service::Messenger;

    fn client() -> Client {
        let keyring = "[client.x]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n";
        let access =
            Access::parse("[global]\nmon host = v2:10.0.0.1:3300\n", keyring, "x").expect("whole files");
        let messenger = Messenger::new(Box::new(RealNet::new().expect("file descriptors")), 1);
        let clock = Box::new(RealClock::start());
        Client::new(access, clock, Box::new(SystemEntropy::default()), messenger)
    }

    #[test]
    fn what_is_forgotten_leaves_its_place_to_others() {
        let mut client = client();
        // They were sent to an OSD that hangs.
        let tids: Vec<u64> = (0..TELLS_MAX).map(|_| client.monc.next_tid()).collect();
        for tid in &tids {
            client.tells.insert(*tid, Tell { osd: 7, command: None });
        }
        assert!(client.tell(3, "{}").is_err(), "the table is full");
        client.forget_command(tids[0]);
        assert_eq!(client.tells.len(), TELLS_MAX - 1);
        let tid = client.tell(3, "{}").expect("room");
        // The map has no such OSD.
        let finished = client.take_finished();
        assert!(
            matches!(finished.as_slice(), [Finished::Command { tid: of, .. }] if *of == tid),
            "{finished:?}"
        );
        // The answer comes after all; nobody hears of it, and of the others' everybody does.
        client.told(7, tids[0], CommandReply::default());
        assert!(client.take_finished().is_empty());
        client.told(7, tids[1], CommandReply::default());
        assert_eq!(client.take_finished().len(), 1);
        tids.iter().for_each(|tid| client.forget_command(*tid));
        assert!(client.tells.is_empty());
    }
}
