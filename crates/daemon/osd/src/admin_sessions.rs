//! [`AdminSessions`]: those that ask at the admin socket, as the sessions that commands know.

use crate::shard_msg::session_id;
use nacre_auth::OsdCaps;
use nacre_buf::BufList;
use nacre_msg::{Command, Message, RawMessage};
use nacre_pg::{Session, SessionId};
use nacre_service::AdminRequest;
use nacre_types::{EntityAddr, EntityName, Uuid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Requests at the admin socket that wait for their answer. Each is a session of its own, which may do everything: who can open the socket
/// has the daemon's files. They are on the first shard, and no more of them are under way than the socket has connections.
#[derive(Debug, Default)]
pub(crate) struct AdminSessions {
    count: u64,
    waiting: BTreeMap<SessionId, AdminRequest>,
}

impl AdminSessions {
    /// A request comes: the session and the command that it is.
    pub(crate) fn open(&mut self, request: AdminRequest) -> (Arc<Session>, Box<Command>) {
        self.waiting.retain(|_, request| !request.is_given_up());
        self.count += 1;
        let session = Session {
            id: session_id::of_admin(self.count),
            name: EntityName::default(),
            addr: EntityAddr::default(),
            seen_at: EntityAddr::default(),
            caps: OsdCaps::allow_all(),
            backs_off: false,
        };
        let command =
            Command { fsid: Uuid::NIL, cmd: vec![request.text().to_owned()], data: BufList::default() };
        self.waiting.insert(session.id, request);
        (Arc::new(session), Box::new(command))
    }

    /// Hands an answer to who asked; others have gone.
    pub(crate) fn answer(&mut self, session: SessionId, message: RawMessage) {
        let Some(request) = self.waiting.remove(&session) else { return };
        match Message::decode(message) {
            Ok(Message::CommandReply(reply)) => request.answer(reply),
            other => tracing::error!(?other, "no answer to a command; the admin socket drops it"),
        }
    }
}
