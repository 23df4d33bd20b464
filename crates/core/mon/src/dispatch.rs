//! Messages: what each asks for, and who may ask.

use crate::command::{CommandCx, Output};
use crate::event::{Endpoint, SessionId};
use crate::mon::{Cx, Mon};
use crate::session::{Identity, Wish};
use nacre_auth::Rwx;
use nacre_buf::BufList;
use nacre_mgr::PgOrderKind;
use nacre_msg::{
    Auth, AuthReply, CommandReply, Log, LogAck, Message, MgrCommandReply, MonCommandAck, MonGetVersion,
    MonGetVersionReply, MonSubscribe, OsdForceRecovery, OsdScrub2, Ping, force_option,
};
use nacre_types::{AuthName, EntityName, Errno, SpgId, Uuid};

/// Entries taken from one log message.
const LOG_ENTRIES_PER_MESSAGE_MAX: usize = 1000;

impl Mon {
    pub(crate) fn message(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, message: Message) {
        let Some(entry) = self.sessions.get(&session).filter(|entry| entry.established) else {
            self.close(session);
            return;
        };
        if let (Some(osd), Endpoint::Mon) = (entry.osd(), entry.endpoint) {
            self.state.osd.seen(osd, cx.now);
        }
        match (entry.endpoint, message) {
            (_, Message::Command(command)) => {
                let output = self.run(cx, session, &command.cmd, command.data);
                let (result, status) = (output.code, output.text);
                self.send(session, tid, CommandReply { result, status, data: output.data.into() });
            }
            (_, Message::PgStats(stats)) => self.pg_stats(cx, session, stats),
            (_, Message::Ping(_)) => {
                let answer = crate::commands::ping_answer(&self.state);
                self.send(session, tid, Ping { answer });
            }
            (Endpoint::Mon, message) => self.mon_message(cx, session, tid, message),
            (Endpoint::Mgr, message) => self.mgr_message(cx, session, tid, message),
        }
    }

    fn mon_message(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, message: Message) {
        match message {
            Message::MonGetMap(_) => {
                let map = self.state.mon.encoded();
                self.send(session, 0, nacre_msg::MonMap { map });
            }
            Message::MonSubscribe(wishes) => self.subscribe(session, wishes),
            Message::MonGetVersion(ask) => self.get_version(session, tid, &ask),
            Message::Auth(auth) => self.session_auth(cx, session, tid, auth),
            Message::MonCommand(command) => {
                let output = self.run(cx, session, &command.cmd, command.data);
                let ack = MonCommandAck {
                    version: self.state.osd.next_epoch().into(),
                    result: output.code,
                    status: output.text,
                    cmd: command.cmd,
                    data: output.data.into(),
                };
                self.send(session, tid, ack);
            }
            Message::Log(log) => self.log(session, tid, log),
            Message::PoolOp(op) => self.pool_op(cx, session, tid, &op),
            Message::RemoveSnaps(snaps) => self.remove_snaps(session, tid, snaps),
            Message::Statfs(ask) => self.statfs(session, tid, &ask),
            Message::GetPoolStats(ask) => self.pool_stats(session, tid, &ask),
            message => self.osd_message(cx, session, tid, message),
        }
    }

    fn mgr_message(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, message: Message) {
        match message {
            Message::MgrOpen(open) => {
                let configure = self.state.stats.open(open);
                self.send(session, 0, configure);
            }
            Message::MgrClose(close) => {
                let close = self.state.stats.close(close);
                self.send(session, 0, close);
            }
            Message::MgrCommand(command) => {
                let output = self.run(cx, session, &command.cmd, command.data);
                let (result, status) = (output.code, output.text);
                self.send(session, tid, MgrCommandReply { result, status, data: output.data.into() });
            }
            // Counters of daemons feed nothing yet, and whatever else comes here is for modules we lack.
            _ => (),
        }
    }

    /// Sends what operators ordered to the OSDs that lead the PGs; an OSD that is away just now gets nothing,
    /// as in Ceph.
    pub(crate) fn send_orders(&mut self) {
        let (fsid, epoch) = (self.state.fsid, self.state.osd.published().epoch);
        for order in self.state.stats.take_orders() {
            let pgs: Vec<SpgId> = order.pgs.into_iter().map(SpgId::replicated).collect();
            let scrub = |pgs, repair, deep| Message::from(OsdScrub2 { fsid, epoch, pgs, repair, deep });
            let force = |pgs, options| Message::from(OsdForceRecovery { fsid, pgs, options });
            let message = match order.kind {
                PgOrderKind::Scrub => scrub(pgs, false, false),
                PgOrderKind::DeepScrub => scrub(pgs, false, true),
                PgOrderKind::Repair => scrub(pgs, true, true),
                PgOrderKind::ForceRecovery => force(pgs, force_option::RECOVERY),
                PgOrderKind::ForceBackfill => force(pgs, force_option::BACKFILL),
                PgOrderKind::CancelForceRecovery => force(pgs, force_option::RECOVERY | force_option::CANCEL),
                PgOrderKind::CancelForceBackfill => force(pgs, force_option::BACKFILL | force_option::CANCEL),
            };
            let is_its = |entry: &crate::session::Session| {
                entry.established && entry.endpoint == Endpoint::Mgr && entry.osd() == Some(order.osd)
            };
            let session = self.sessions.iter().rev().find(|(_, entry)| is_its(entry));
            if let Some(session) = session.map(|(session, _)| *session) {
                self.send(session, 0, message);
            }
        }
    }

    pub(crate) fn identity_of(&self, session: SessionId) -> Option<&Identity> {
        self.sessions.get(&session).map(|entry| &entry.identity)
    }

    /// True when the session's caps cover `needed` at `service`.
    pub(crate) fn allows(&self, session: SessionId, service: &str, needed: Rwx) -> bool {
        self.identity_of(session).is_some_and(|identity| identity.caps.allows_service(service, needed))
    }

    /// A message for another cluster is not for us. Zeros mean "whichever", as some tools send.
    pub(crate) fn is_ours(&self, fsid: Uuid) -> bool {
        fsid == self.state.fsid || fsid == Uuid::NIL
    }

    fn subscribe(&mut self, session: SessionId, wishes: MonSubscribe) {
        for (what, wish) in wishes.what {
            let Some(entry) = self.sessions.get_mut(&session) else { return };
            let wish = Wish { start: wish.start, onetime: wish.is_onetime() };
            if what == "config" {
                // Asking anew means not to have it.
                entry.config_sent = None;
            }
            if entry.subscribe(what.clone(), wish) {
                self.serve(session, &what);
            }
        }
    }

    fn get_version(&mut self, session: SessionId, tid: u64, ask: &MonGetVersion) {
        if let Some((newest, oldest)) = self.map_version(&ask.what) {
            self.send(session, tid, MonGetVersionReply { handle: ask.handle, newest, oldest });
        }
    }

    fn session_auth(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, auth: Auth) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let global_id = entry.identity.global_id;
        let Some(server) = entry.auth.clone() else { return };
        let reply = server.handle(&mut self.mon_auth(cx), auth.payload);
        let message = AuthReply {
            protocol: auth.protocol,
            result: reply.result,
            global_id,
            payload: reply.payload,
            message: String::new(),
        };
        self.send(session, tid, message);
    }

    fn run(&mut self, cx: &mut Cx<'_>, session: SessionId, words: &[String], data: BufList) -> Output {
        let Some(identity) = self.identity_of(session).cloned() else {
            return Output::error(Errno::EACCES, "access denied");
        };
        let input = match crate::commands::parse(words, data.to_bytes()) {
            Ok(input) => input,
            Err(output) => return output,
        };
        let mut command = CommandCx {
            state: &mut self.state,
            identity: &identity,
            now: cx.now,
            wall: cx.wall,
            entropy: cx.entropy,
        };
        crate::commands::run(&mut command, &input)
    }

    /// Daemons and operators write the cluster log; each speaks only for itself.
    fn log(&mut self, session: SessionId, tid: u64, log: Log) {
        if !self.is_ours(log.fsid) || !self.allows(session, "log", Rwx::W) {
            return;
        }
        let Some(entry) = self.sessions.get(&session) else { return };
        let (auth_name, name): (AuthName, EntityName) =
            (entry.identity.auth_name.clone(), entry.identity.name);
        let last_seq = log.entries.last().map_or(0, |entry| entry.seq);
        let channel = log.entries.last().map(|entry| entry.channel.clone()).unwrap_or_default();
        for mut line in log.entries.into_iter().take(LOG_ENTRIES_PER_MESSAGE_MAX) {
            line.name = auth_name.clone();
            line.rank = name;
            self.state.log.append(line);
        }
        self.send(session, tid, LogAck { fsid: self.state.fsid, last_seq, channel });
    }
}
