//! Messages: what each asks for, and which caps that needs.

use crate::answers::{Again, Request, RequestKind};
use crate::budget::{
    Change, DELAYED_BYTES_MAX, Delayed, LOG_ENTRIES_PER_MESSAGE_MAX, PENDING_BYTES_MAX, command_refused,
};
use crate::command::{CommandCx, Output};
use crate::event::{Endpoint, SessionId};
use crate::front::bytes_of;
use crate::mon::{Cx, Mon};
use crate::session::Identity;
use nacre_auth::Rwx;
use nacre_buf::BufList;
use nacre_mgr::{Mgr, PgOrderKind, ServiceRefused};
use nacre_msg::{
    CommandReply, Log, LogAck, LogPriority, Message, MgrCommandReply, MonCommandAck, MonGetVersion,
    MonGetVersionReply, MonSubscribe, OsdForceRecovery, OsdScrub2, Ping, PoolOpReply, force_option,
};
use nacre_types::{AuthName, EntityKind, EntityName, Epoch, Errno, SpgId, Uuid};

/// Changes of one session that may wait; what comes beyond is refused.
const DELAYED_PER_SESSION_MAX: usize = 64;
/// Changes of all sessions that may wait.
const DELAYED_MAX: usize = 4096;

/// What kind of change a message asks for; none when it only looks.
fn change_of(message: &Message) -> Option<Change> {
    let words = match message {
        Message::PoolOp(_) => return Some(Change::PoolOp),
        Message::MonCommand(command) => &command.cmd,
        Message::MgrCommand(command) => &command.cmd,
        Message::Command(command) => &command.cmd,
        _ => return None,
    };
    crate::commands::changes(words).then_some(Change::Command)
}

/// Whether a message may bring much that is to be kept.
fn brings_much(message: &Message) -> bool {
    let is_daemons = matches!(
        message,
        Message::Log(_) | Message::OsdBoot(_) | Message::MgrOpen(_) | Message::MdsBeacon(_)
    );
    is_daemons || matches!(message, Message::MgrReport(_)) || change_of(message).is_some()
}

impl Mon {
    pub(crate) fn message(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, message: Message) {
        let Some(entry) = self.sessions.get(&session) else {
            self.close(session);
            return;
        };
        if let (Some(osd), Endpoint::Mon) = (entry.osd(), entry.endpoint) {
            self.state.osd.seen(osd, cx.now);
        }
        // A batch is one entry of the log, whose length is bounded.
        if self.state.pending_bytes() >= PENDING_BYTES_MAX && brings_much(&message) {
            return self.put_off(Delayed { session, tid, message });
        }
        if let Some(change) = change_of(&message) {
            let name = entry.identity.auth_name.clone();
            let waits = self.delayed.iter().any(|delayed| delayed.session == session);
            if waits || !self.state.budgets.take(cx.now, &name, change) {
                return self.delay(cx, &name, change, Delayed { session, tid, message });
            }
        }
        self.handle_message(cx, session, tid, message);
    }

    /// Keeps a change until its client's budget allows it; refuses it when too many of its session wait already.
    fn delay(&mut self, cx: &Cx<'_>, name: &AuthName, change: Change, delayed: Delayed) {
        self.state.budgets.note_wait(cx.now, name);
        self.keep_or_refuse(name, change, delayed);
    }

    /// Keeps a message until what waits to be committed is. A daemon sends again what is dropped here.
    fn put_off(&mut self, delayed: Delayed) {
        match change_of(&delayed.message) {
            Some(change) => {
                let name = self.identity_of(delayed.session).map(|identity| identity.auth_name.clone());
                self.keep_or_refuse(&name.unwrap_or_default(), change, delayed);
            }
            None if self.may_wait(&delayed) => self.delayed.push_back(delayed),
            None => (),
        }
    }

    /// Whether there is room for another message that waits.
    fn may_wait(&self, delayed: &Delayed) -> bool {
        let bytes: usize = self.delayed.iter().map(|other| bytes_of(&other.message)).sum();
        self.delayed.len() < DELAYED_MAX && bytes + bytes_of(&delayed.message) <= DELAYED_BYTES_MAX
    }

    fn keep_or_refuse(&mut self, name: &AuthName, change: Change, delayed: Delayed) {
        let waiting = self.delayed.iter().filter(|other| other.session == delayed.session).count();
        if waiting < DELAYED_PER_SESSION_MAX && self.may_wait(&delayed) {
            return self.delayed.push_back(delayed);
        }
        let (result, status) = (Errno::EAGAIN.negated(), change.refusal(name));
        let Delayed { session, tid, message } = delayed;
        let version = self.state.osd.next_epoch();
        match message {
            Message::PoolOp(_) => {
                let fsid = self.state.fsid;
                let reply =
                    PoolOpReply { version: version.into(), fsid, result, epoch: version, response: None };
                self.send(session, tid, reply);
            }
            command => self.send(session, tid, command_refused(&command, version, result, status)),
        }
    }

    /// Carries out changes that had to wait, as far as their clients' budgets go.
    pub(crate) fn run_delayed(&mut self, cx: &mut Cx<'_>) {
        let mut stuck = std::collections::BTreeSet::new();
        for _ in 0..self.delayed.len() {
            let Some(delayed) = self.delayed.pop_front() else { return };
            let session = delayed.session;
            // Its connection may be gone.
            let Some(name) = self.identity_of(session).map(|identity| identity.auth_name.clone()) else {
                continue;
            };
            let change = change_of(&delayed.message);
            let has_room = self.state.pending_bytes() < PENDING_BYTES_MAX;
            let may = has_room
                && !stuck.contains(&session)
                && change.is_none_or(|change| self.state.budgets.take(cx.now, &name, change));
            if may {
                self.handle_message(cx, session, delayed.tid, delayed.message);
            } else {
                stuck.insert(session);
                self.delayed.push_back(delayed);
            }
        }
    }

    fn handle_message(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, message: Message) {
        let Some(entry) = self.sessions.get(&session) else { return };
        match (entry.endpoint, message) {
            // At a monitor's address the front answers it.
            (Endpoint::Mgr, Message::Command(command)) => {
                let asked = (RequestKind::Tell, tid);
                let output = self.run(cx, session, asked, &command.cmd, &command.data);
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
                self.send(session, 0, nacre_msg::MMonMap { map });
            }
            Message::MonSubscribe(subscriptions) => self.subscribe(cx, session, subscriptions),
            Message::MonGetVersion(ask) => self.get_version(session, tid, &ask),
            Message::MonGetOsdMap(ask) => self.osd_map_epochs(session, &ask),
            Message::MonCommand(command) => {
                let asked = (RequestKind::Monitor, tid);
                let output = self.run(cx, session, asked, &command.cmd, &command.data);
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
            Message::MgrBeacon(beacon) => self.manager_beacon(cx, session, beacon),
            Message::MonMgrReport(report) => self.manager_report(cx, session, report),
            Message::MdsBeacon(beacon) => self.mds_beacon(cx, session, beacon),
            Message::MdsLoadTargets(targets) => self.mds_load_targets(cx, session, targets),
            message => self.osd_message(cx, session, tid, message),
        }
    }

    fn mgr_message(&mut self, cx: &mut Cx<'_>, session: SessionId, tid: u64, message: Message) {
        match message {
            Message::MgrOpen(open) => {
                let Some(entry) = self.sessions.get(&session) else { return };
                let name = &entry.identity.auth_name;
                if matches!(name.kind, EntityKind::MDS | EntityKind::OSD) {
                    self.state.stats.counters.open(session.0, &name.to_string());
                }
                let configure =
                    if name.kind == EntityKind::OSD { Mgr::configure_osd() } else { Mgr::configure() };
                // Whoever says that he is a gateway is one where his service is shown.
                let gateway = (open.service_name == "rgw" && open.service.is_some())
                    .then(|| format!("rgw.{}", open.daemon_name));
                match self.state.stats.services.open(session.0, &entry.identity.auth_name, open) {
                    Ok(()) => {
                        if let Some(gateway) = gateway {
                            self.state.stats.counters.open(session.0, &gateway);
                        }
                        self.send(session, 0, configure);
                    }
                    Err(refused) => self.refuse_service(cx, session, refused),
                }
            }
            Message::MgrReport(report) => {
                self.state.stats.counters.report(session.0, &report, cx.now);
                if self.sessions.get(&session).is_some_and(|entry| entry.osd().is_some()) {
                    self.state.stats.images.report(&report.perf_reports);
                }
                if let Err(refused) = self.state.stats.services.report(session.0, report) {
                    self.refuse_service(cx, session, refused);
                }
            }
            Message::MgrClose(close) => {
                self.state.stats.services.closed(session.0);
                // The daemon waits for the same words.
                self.send(session, 0, close);
            }
            Message::MgrCommand(command) => {
                let asked = (RequestKind::Manager, tid);
                let output = self.run(cx, session, asked, &command.cmd, &command.data);
                let (result, status) = (output.code, output.text);
                self.send(session, tid, MgrCommandReply { result, status, data: output.data.into() });
            }
            // What else comes here is for modules we lack.
            _ => (),
        }
    }

    /// The protocol has no word for it: the connection ends, and the cluster log says why.
    fn refuse_service(&mut self, cx: &Cx<'_>, session: SessionId, refused: ServiceRefused) {
        let name = self.identity_of(session).map(|identity| identity.auth_name.to_string());
        let text = format!("a service's daemon of {} is turned away: {refused}", name.unwrap_or_default());
        self.state.clog(LogPriority::WARN, cx.wall, text);
        self.close(session);
    }

    /// Sends what an operator ordered to the OSDs that lead the PGs, which are connected.
    pub(crate) fn send_orders(&mut self) {
        let (fsid, epoch) = (self.state.fsid, self.state.osd.published().epoch);
        for order in self.state.stats.orders.take() {
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
            if let Some(session) = self.state.stats.orders.session_of(order.osd) {
                self.send(SessionId(session), 0, message);
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

    fn subscribe(&mut self, cx: &Cx<'_>, session: SessionId, subscriptions: MonSubscribe) {
        for (what, subscription) in subscriptions.what {
            let osd = self.sessions.get(&session).and_then(crate::session::Session::osd);
            if let Some(osd) = osd.filter(|_| what == "osdmap") {
                // A peer that wants what follows an epoch has that one.
                self.hear_epoch(
                    cx,
                    osd,
                    Epoch::try_from(subscription.start.saturating_sub(1)).unwrap_or(Epoch::MAX),
                );
            }
            let Some(entry) = self.sessions.get_mut(&session) else { return };
            if what == "config" {
                // Asking anew means not to have it.
                entry.config_sent = None;
            }
            if entry.subscriptions.subscribe(&what, subscription) {
                self.serve(session, &what);
            }
        }
    }

    fn get_version(&mut self, session: SessionId, tid: u64, ask: &MonGetVersion) {
        if let Some((newest, oldest)) = self.map_version(&ask.what) {
            self.send(session, tid, MonGetVersionReply { handle: ask.handle, newest, oldest });
        }
    }

    /// Runs a command, unless it changes something and was carried out already: then it is answered as it was.
    fn run(
        &mut self,
        cx: &mut Cx<'_>,
        session: SessionId,
        (kind, tid): (RequestKind, u64),
        words: &[String],
        data: &BufList,
    ) -> Output {
        let Some(identity) = self.identity_of(session).cloned() else {
            return Output::error(Errno::EACCES, "access denied");
        };
        let input = match crate::commands::parse(words, data.to_bytes()) {
            Ok(input) => input,
            Err(output) => return output,
        };
        let parts: Vec<&[u8]> = words.iter().map(String::as_bytes).chain([&input.data[..]]).collect();
        let request = Request::new(&identity, kind, tid, &parts).filter(|_| crate::commands::changes(words));
        let answered = request.as_ref().and_then(|request| self.state.answers.find(request));
        let mut command = CommandCx {
            state: &mut self.state,
            identity: &identity,
            now: cx.now,
            wall: cx.wall,
            entropy: cx.entropy,
        };
        match answered {
            Some(Again::Output(output)) => return output,
            Some(Again::Secret) => return crate::commands::show_secret(&mut command, &input),
            None => (),
        }
        let fs_epoch = command.state.fs.map().epoch;
        let output = crate::commands::run(&mut command, &input);
        if self.state.fs.map().epoch != fs_epoch {
            self.arrange_ranks(cx);
        }
        self.send_orders();
        if let Some(request) = request {
            self.state.answers.note(&request, &output, crate::commands::shows_secrets(&input.prefix));
        }
        if crate::commands::is_audited(&input.prefix) || output.code == Errno::EACCES.negated() {
            let line = crate::audit::line(&mut self.state.refusals, cx.now, &identity, &input, &output);
            if let Some(line) = line {
                self.state.audit(cx.wall, line);
            }
        }
        output
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
