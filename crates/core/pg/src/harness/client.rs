//! Clients: sessions, requests, resends.

use super::world::{POOL, spg};
use crate::{Budget, ClientOp, Session, SessionId, Trace};
use nacre_auth::OsdCaps;
use nacre_msg::{OsdOp, OsdOpReply, SubOp};
use nacre_types::{EntityAddr, EntityName, Epoch, HObject, ObjectLocator, OsdId, ReqId, SnapId, UTime};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request that has not been answered.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) object: String,
    pub(crate) ops: Vec<SubOp>,
    pub(crate) snaps: Vec<SnapId>,
    pub(crate) flags: u32,
    /// The OSD that it was sent to last.
    pub(crate) target: Option<OsdId>,
    pub(crate) retries: i32,
}

/// A client of the harness.
pub(crate) struct Client {
    pub(crate) gid: u64,
    pub(crate) epoch: Epoch,
    pub(crate) sessions: BTreeMap<OsdId, Arc<Session>>,
    last_tid: u64,
    /// What its messages hold, wherever they are.
    pub(crate) budget: Budget,
    pub(crate) sent: BTreeMap<u64, Sent>,
    /// It holds messages back when told to.
    pub(crate) backs_off: bool,
    /// What it says is its messages' request id; mostly nothing.
    pub(crate) reservations: ReqId,
    /// Its incarnation; only metadata servers have one.
    pub(crate) incarnation: u32,
    /// There is no room for what it brings from now on, as its OSDs find.
    pub(crate) is_beyond_room: bool,
    /// Its capabilities, of sessions that begin from now on.
    pub(crate) caps: OsdCaps,
    /// Where its socket is, if not where it says.
    pub(crate) seen_at: Option<EntityAddr>,
    /// What it was told to hold, by OSD and name.
    pub(crate) held: BTreeMap<(OsdId, u64), (HObject, HObject)>,
    /// Answers by transaction number.
    pub(crate) replies: BTreeMap<u64, OsdOpReply>,
}

impl Client {
    pub(crate) fn new(gid: u64) -> Self {
        Self {
            gid,
            epoch: 1,
            sessions: BTreeMap::new(),
            last_tid: 0,
            budget: Budget::default(),
            sent: BTreeMap::new(),
            backs_off: false,
            reservations: ReqId::default(),
            incarnation: 0,
            is_beyond_room: false,
            caps: OsdCaps::allow_all(),
            seen_at: None,
            held: BTreeMap::new(),
            replies: BTreeMap::new(),
        }
    }

    pub(crate) fn name(&self) -> EntityName {
        EntityName::client(self.gid)
    }

    pub(crate) fn addr(&self) -> EntityAddr {
        EntityAddr::parse(&format!("any:192.0.2.1:0/{}", self.gid)).expect("an address")
    }

    /// The session with `osd`; a new one after a reset.
    pub(crate) fn session(&mut self, osd: OsdId, next: &mut u64) -> Arc<Session> {
        let (name, addr, backs_off, caps) = (self.name(), self.addr(), self.backs_off, self.caps.clone());
        let seen_at = self.seen_at.unwrap_or(addr);
        let session = self.sessions.entry(osd).or_insert_with(|| {
            *next += 1;
            Arc::new(Session { id: SessionId(*next), name, addr, seen_at, caps, backs_off })
        });
        Arc::clone(session)
    }

    /// Notes a new request.
    pub(crate) fn request(&mut self, object: &str, ops: Vec<SubOp>) -> u64 {
        self.last_tid += 1;
        let object = object.to_owned();
        let sent = Sent { object, ops, snaps: Vec::new(), flags: 0, target: None, retries: 0 };
        self.sent.insert(self.last_tid, sent);
        self.last_tid
    }

    /// True when it holds what is about `name`.
    pub(crate) fn holds(&self, osd: OsdId, name: &str) -> bool {
        let object = object(name);
        let mut of_osd = self.held.range((osd, 0)..=(osd, u64::MAX));
        of_osd.any(|(_, (begin, end))| object == *begin || (*begin < object && object < *end))
    }

    pub(crate) fn message(&self, tid: u64, session: Arc<Session>) -> ClientOp {
        let sent = &self.sent[&tid];
        let op = OsdOp {
            spg: spg(),
            hash: object(&sent.object).hash,
            epoch: self.epoch,
            flags: sent.flags,
            reqid: self.reservations,
            client_inc: self.incarnation,
            mtime: UTime::ZERO,
            locator: ObjectLocator::in_pool(POOL),
            name: sent.object.as_str().into(),
            ops: sent.ops.clone(),
            snap: SnapId::HEAD,
            snap_seq: sent.snaps.first().copied().unwrap_or_default(),
            snaps: sent.snaps.clone(),
            retry_attempt: sent.retries,
            features: 0,
        };
        let (trace, permit) = (Trace::default(), self.budget.take(1));
        ClientOp { session, tid, op: Box::new(op), trace, permit, is_beyond_room: self.is_beyond_room }
    }
}

/// The head called `name`.
pub(crate) fn object(name: &str) -> HObject {
    HObject::head(POOL, "".into(), "".into(), name.into())
}
