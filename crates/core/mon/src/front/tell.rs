//! What a monitor answers itself, whoever leads, and while nobody does: `ceph tell mon.b ...`, `ceph daemon mon.b ...`.

use super::{Front, FrontEffect, Session};
use crate::commands::{self, TellCx};
use crate::event::{Endpoint, SessionId};
use crate::output::Output;
use crate::own_view::OwnView;
use nacre_auth::MonCaps;
use nacre_buf::Bytes;
use nacre_msg::{Command, CommandReply};
use nacre_types::{AuthName, EntityKind, Errno, Uuid};

impl Front {
    /// Answers what this monitor was asked itself ([`FrontEffect::Tell`]). Who may ask what follows from its own tables, which may be behind
    /// while nobody leads; so what it says then is of no use to those that it should not be said to any more.
    pub fn tell(&mut self, own: &OwnView, session: SessionId, tid: u64, command: Command) {
        let output = self.told(own, session, command);
        let reply = CommandReply { result: output.code, status: output.text, data: output.data.into() };
        self.effects.push(FrontEffect::Send { session, tid, message: Box::new(reply.into()) });
    }

    /// Answers what this monitor is asked at its admin socket: `command` is JSON. Who can open that has the monitor's files, and may do
    /// everything.
    pub fn tell_admin(&self, own: &OwnView, command: &str) -> CommandReply {
        let output = match commands::parse(&[command.to_owned()], Bytes::new()) {
            Ok(input) => commands::tell(&self.tell_cx(own, MonCaps::allow_all()), &input),
            Err(output) => output,
        };
        CommandReply { result: output.code, status: output.text, data: output.data.into() }
    }

    fn told(&self, own: &OwnView, session: SessionId, command: Command) -> Output {
        let Some(entry) = self.sessions.get(&session) else {
            return Output::error(Errno::EACCES, "access denied");
        };
        if command.fsid != own.map.fsid && command.fsid != Uuid::NIL {
            let text = format!("mon.{} is of cluster {}, not {}", own.name, own.map.fsid, command.fsid);
            return Output::error(Errno::EACCES, text);
        }
        let input = match commands::parse(&command.cmd, command.data.to_bytes()) {
            Ok(input) => input,
            Err(output) => return output,
        };
        let peer = &entry.peer;
        let caps = match peer.allows_all {
            true => MonCaps::allow_all(),
            false => MonCaps::parse(self.caps_text(&peer.auth_name), &peer.auth_name).unwrap_or_default(),
        };
        commands::tell(&self.tell_cx(own, caps.at(peer.seen_at)), &input)
    }

    fn caps_text(&self, name: &AuthName) -> &str {
        self.view.keys().caps_of(name, EntityKind::MON).unwrap_or_default()
    }

    fn tell_cx<'a>(&'a self, own: &'a OwnView, caps: MonCaps) -> TellCx<'a> {
        // Those at the manager's address are the manager's.
        let is_mons = |entry: &&Session| entry.is_open && entry.peer.endpoint == Endpoint::Mon;
        let open = self.sessions.values().filter(is_mons);
        let sessions = open.map(|entry| (&entry.peer, self.caps_text(&entry.peer.auth_name)));
        TellCx { own, caps, sessions: sessions.collect(), config: self.view.config() }
    }
}
