//! Objects that nobody who is up has (unfound), and the operator's word that nobody will: Ceph `mark_all_unfound_lost`.
//!
//! That is a change like any other: a log entry says what the object is from now on, an older version or nothing, and
//! every member misses that. Recovery brings it there, and clients that wait for the object go on.

use crate::backend::{Ends, OwnChange};
use crate::interval::is_up;
use crate::log::own_entry;
use crate::object::{ObjectContext, clone_record};
use crate::peer::Peer;
use crate::recovery::Recovery;
use crate::state::PgState;
use crate::{Cx, Lost};
use nacre_msg::peer::LogKind;
use nacre_txn::{ObjectView, Op, Transaction};
use nacre_types::{Errno, Eversion, HObject, OsdId};

/// Objects given up at a time; the order can be given again for the rest.
pub const LOST_OBJECTS_MAX: usize = 1000;

/// Why objects are not given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LostError {
    /// Another OSD leads the PG.
    #[error("not primary")]
    NotPrimary,
    /// What is lost is known when the PG serves.
    #[error("pg is not active: it must be before objects can be marked lost")]
    Inactive,
    /// OSDs that may have them were not queried.
    #[error("{}: not all OSDs that may have them were queried; start those, or mark them lost (`ceph osd lost`)", names(.0))]
    Unprobed(Vec<OsdId>),
    /// An older version of a chunk goes with no others.
    #[error("mode must be 'delete' in an erasure-coded pool")]
    Coded,
    /// It existed before, and only others may have it as it was.
    #[error(
        "osd.{osd} has no older version of {object} to revert to: use 'delete', or make another OSD primary"
    )]
    NoOlder {
        /// Number of the OSD that leads the PG.
        osd: OsdId,
        /// The first such object.
        object: HObject,
    },
}

impl LostError {
    /// As commands return it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotPrimary => Errno::EROFS,
            Self::Inactive => Errno::EAGAIN,
            Self::Unprobed(_) | Self::Coded | Self::NoOlder { .. } => Errno::EINVAL,
        }
    }
}

fn names(osds: &[OsdId]) -> String {
    osds.iter().map(|osd| format!("osd.{osd}")).collect::<Vec<_>>().join(", ")
}

/// An object that some copy lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingObject {
    /// Name of the object.
    pub object: HObject,
    /// The version that is needed.
    pub need: Eversion,
    /// What the primary has of it; zero for nothing.
    pub have: Eversion,
    /// Who may have what is needed; nobody when it is unfound.
    pub locations: Vec<OsdId>,
}

impl PgState {
    /// The log does not say that the lost version was the first.
    fn existed_before(&self, object: &HObject) -> bool {
        let Some(need) = self.missing.need(object) else { return true };
        self.log.newest_of(object, need).is_none_or(|entry| entry.prior_version != Eversion::ZERO)
    }

    /// What the primary has of an object in place of the version that is lost.
    fn older_version(&self, view: &dyn ObjectView, object: &HObject) -> Option<ObjectContext> {
        self.missing.need(object)?;
        ObjectContext::load(view, &self.spg, object).ok().filter(|context| context.exists)
    }
}

impl Recovery {
    /// See [`crate::Pg::missing_objects`].
    pub(crate) fn missing_objects(
        &self,
        state: &PgState,
        view: &dyn ObjectView,
        from: &HObject,
        unfound: bool,
        count_max: usize,
    ) -> (Vec<MissingObject>, bool) {
        let mut found = Vec::new();
        let all = state.missing.iter().map(|(object, _)| object);
        let listed: Box<dyn Iterator<Item = &HObject>> =
            if unfound { Box::new(self.unfound.iter()) } else { Box::new(all) };
        for object in listed.filter(|object| *object > from) {
            if found.len() == count_max {
                return (found, true);
            }
            let have = state.copy_version(view, object).unwrap_or_default();
            let need = state.missing.need(object).unwrap_or(have);
            let has =
                |osd: &OsdId, peer: &Peer| is_up(&state.map, *osd) && peer.activated && peer.has(object);
            let locations = if unfound {
                Vec::new()
            } else {
                state.peers.iter().filter(|(osd, peer)| has(osd, peer)).map(|(osd, _)| *osd).collect()
            };
            found.push(MissingObject { object: object.clone(), need, have, locations });
        }
        (found, false)
    }

    /// See [`crate::Pg::can_mark_lost`].
    pub(crate) fn can_mark_lost(
        &self,
        state: &PgState,
        view: &dyn ObjectView,
        lost: Lost,
    ) -> Result<usize, LostError> {
        if !state.is_primary() {
            return Err(LostError::NotPrimary);
        }
        if !state.is_active() {
            return Err(LostError::Inactive);
        }
        let unprobed = state.unprobed();
        if !unprobed.is_empty() && self.unfound_count() > 0 {
            return Err(LostError::Unprobed(unprobed));
        }
        if lost == Lost::Revert {
            if state.ec.is_some() {
                return Err(LostError::Coded);
            }
            let without = |object: &&HObject| {
                state.older_version(view, object).is_none() && state.existed_before(object)
            };
            if let Some(object) = self.unfound.iter().take(LOST_OBJECTS_MAX).find(without) {
                return Err(LostError::NoOlder { osd: state.whoami, object: object.clone() });
            }
        }
        Ok(self.unfound_count().min(LOST_OBJECTS_MAX))
    }

    /// Objects that [`crate::Event::MarkLost`] gives up; none if it cannot.
    pub(crate) fn lost_objects(&self, state: &PgState, view: &dyn ObjectView, lost: Lost) -> Vec<HObject> {
        let count = self.can_mark_lost(state, view, lost).unwrap_or(0);
        self.unfound.iter().take(count).cloned().collect()
    }

    /// The change that gives up what no copy has: to be submitted, and followed by [`Recovery::retry`].
    pub(crate) fn mark_object_lost(
        &mut self,
        state: &mut PgState,
        cx: &Cx<'_>,
        object: &HObject,
        lost: Lost,
    ) -> OwnChange {
        let (head, version) = (object.to_head(), state.next_version());
        let older = state.older_version(cx.view, object);
        let need = state.missing.need(object).unwrap_or_default();
        let user_version = state.info.last_user_version;
        let mut entry = own_entry(LogKind::Delete, object.clone(), (version, need), user_version, cx.wall);
        let mut txn = Transaction::new(state.spg);
        state.forget_missing(&mut txn, object);
        let kept = older.as_ref().filter(|context| lost == Lost::Revert || !context.snaps.clones.is_empty());
        if let Some(context) = kept {
            entry.kind = LogKind::Modify;
            let mut context = context.clone();
            (context.info.prior_version, context.info.version) = (context.info.version, version);
            if lost == Lost::Delete {
                // Its snapshots stay: an object that is not there carries them.
                txn.push(Op::Remove(object.clone()));
                txn.push(Op::Touch(object.clone()));
                entry.delta.bytes = -signed(context.info.size);
                entry.delta.whiteouts = i64::from(!context.info.whiteout);
                (context.info.size, context.info.whiteout) = (0, true);
                context.info.has_omap = false;
            }
            let meta = if object.snap.is_head() { context.to_record() } else { clone_record(&context.info) };
            txn.push(Op::SetMeta { object: object.clone(), meta });
            state.missing.remove(object);
        } else {
            entry.delta.objects = -1;
            entry.delta.clones = -i64::from(!object.snap.is_head());
            entry.delta.bytes = -signed(older.map_or(0, |context| context.info.size));
            // A copy that has it does not miss it: one of a few chunks, or data that cannot be read.
            txn.push(Op::Remove(object.clone()));
            state.missing.insert(object.clone(), Eversion::ZERO);
        }
        self.unfound.remove(object);
        self.unrepairable.remove(object);
        self.repairing.remove(object);
        OwnChange { head, txn, entries: vec![entry], ends: Ends::Nothing }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
