//! [`MonRequest`]: what PGs want the monitor to know.

use super::{ControlCx, OsdControl};
use nacre_msg::OsdPgCreated;
use nacre_osd_core::Event as BootEvent;
use nacre_pg::MergeState;
use nacre_types::{Epoch, OsdId, PgId};

/// Something that a PG wants the monitor to know.
#[derive(Debug, Clone)]
pub(crate) enum MonRequest {
    /// Raise our `up_thru`.
    UpThru(Epoch),
    /// Let these serve the PG for now.
    PgTemp(PgId, Vec<OsdId>),
    /// The PG has come to life.
    Created(PgId),
    /// How far a PG is that is to be merged, and whether it has one store with the other.
    Merge { state: MergeState, same_store: bool },
}

impl OsdControl {
    pub(crate) fn order(&mut self, cx: &mut ControlCx<'_>, order: MonRequest) {
        let epoch = cx.maps.newest().epoch;
        match order {
            MonRequest::UpThru(wanted) => self.boot_event(cx, BootEvent::WantUpThru(wanted)),
            MonRequest::PgTemp(pg, acting) => self.boot_event(cx, BootEvent::WantPgTemp(pg, acting)),
            MonRequest::Merge { state, same_store } => {
                if let Some(ready) = self.merges.heard(cx.maps.newest(), state, same_store) {
                    self.tell_mon(ready.into());
                }
            }
            MonRequest::Created(pg) => self.tell_mon(OsdPgCreated { version: epoch.into(), pg }.into()),
        }
        self.settle(cx);
    }
}
