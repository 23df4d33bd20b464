//! Primary affinities that the balancer has set, so that each OSD leads its share of the PGs. What follows from them is in
//! `balancing_primaries`.

use crate::batch::{Batch, Snapshot};
use crate::own_module;
use crate::stored_map::StoredMap;
use nacre_denc::DecodeError;
use nacre_maps::WEIGHT_ONE;
use nacre_mgr::primaries::Planner;
use nacre_msg::ModuleOption;
use nacre_types::OsdId;
use std::collections::BTreeMap;

const TABLE: &str = "even-primaries";
/// Whether primaries are evened: `true` or `false`.
pub(crate) const OPTION: &str = "mgr/balancer/primaries";
/// What was set, in the tables; and the plan that is being made.
#[derive(Debug)]
pub(crate) struct Primaries {
    set: StoredMap<BTreeMap<OsdId, u32>>,
    pub(crate) planner: Option<Planner>,
}

impl Primaries {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        Ok(Self { set: StoredMap::open(snapshot, TABLE, BTreeMap::new())?, planner: None })
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.set.is_dirty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        self.set.flush(batch);
    }

    /// What was set.
    pub(crate) fn known(&self) -> &BTreeMap<OsdId, u32> {
        self.set.map()
    }

    /// An operator has set the affinity of an OSD.
    pub(crate) fn operator_has_set(&mut self, osd: OsdId) {
        self.note(osd, WEIGHT_ONE);
    }

    /// The affinity is ours from now on; 1 is nobody's.
    pub(crate) fn note(&mut self, osd: OsdId, affinity: u32) {
        let before = self.set.map().get(&osd).copied().unwrap_or(WEIGHT_ONE);
        if affinity != before {
            self.set.update(|set| match affinity {
                WEIGHT_ONE => set.remove(&osd),
                _ => set.insert(osd, affinity),
            });
        }
    }
}

/// The option, as our own manager has it.
pub(crate) fn option() -> ModuleOption {
    let what = "Whether primaries are evened, by primary affinity";
    own_module::option("primaries", own_module::KIND_BOOL, "true", what)
}
