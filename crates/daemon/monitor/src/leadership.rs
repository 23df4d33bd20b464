//! [`Leadership`]: what only the leading monitor has: [`Mon`], and the sessions that it knows.

use crate::sessions::Sessions;
use crate::store;
use nacre_kv::{KvError, KvStore};
use nacre_mon::{Mon, OpenError, QuorumView};
use nacre_quorum::Membership;
use nacre_types::{AddrVec, Entropy, Stamp, UTime};

/// How this monitor presents itself when it leads.
#[derive(Debug, Clone)]
pub(crate) struct Presence {
    /// Its name, such as `a`.
    pub(crate) name: String,
    /// The machine that it runs on.
    pub(crate) host: String,
    /// Where it listens as a monitor.
    pub(crate) mon_addrs: AddrVec,
    /// Where it listens as the manager.
    pub(crate) mgr_addrs: AddrVec,
}

/// From winning an election to losing the lead.
pub(crate) struct Leadership {
    pub(crate) term: u64,
    pub(crate) mon: Mon,
    pub(crate) sessions: Sessions,
    pub(crate) membership: Membership,
}

/// Why the tables cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeadershipError {
    #[error(transparent)]
    Store(#[from] KvError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Leadership {
    /// Takes up the tables, which have all that was acknowledged in earlier terms, and begins to lead.
    pub(crate) fn open(
        term: u64,
        tables: &dyn KvStore,
        presence: &Presence,
        (now, wall): (Stamp, UTime),
        entropy: &mut dyn Entropy,
    ) -> Result<Self, LeadershipError> {
        let opened = store::read(tables, |snapshot| Mon::open(snapshot, &presence.name, wall))?;
        let mut mon = opened?.on_host(presence.host.clone());
        mon.set_quorum(QuorumView::of_all(mon.state().mon.map(), term, wall));
        mon.lead(presence.mon_addrs.clone(), presence.mgr_addrs.clone(), now, wall, entropy);
        Ok(Self { term, mon, sessions: Sessions::default(), membership: Membership::default() })
    }
}
