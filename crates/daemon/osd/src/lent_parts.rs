//! [`LentParts`]: what a shard lends to those of its parts that give work to the PGs and to OSD control.

use crate::control::{ControlCx, OsdControl};
use crate::control_host::ControlHost;
use crate::pg_driver::PgDriver;
use crate::shard_msg::ShardMsg;
use crate::shard_net::ShardCx;
use nacre_types::SpgId;

/// The PGs and OSD control, with what both are lent by their shard.
pub(crate) struct LentParts<'a> {
    pub(crate) pgs: &'a mut PgDriver,
    pub(crate) control: &'a mut ControlHost,
    pub(crate) cx: ShardCx<'a>,
}

impl LentParts<'_> {
    /// Lets OSD control work, if it is on this shard.
    pub(crate) fn lend_control<T>(
        &mut self,
        work: impl FnOnce(&mut OsdControl, &mut ControlCx<'_>) -> T,
    ) -> Option<T> {
        self.control.lend(&mut self.cx, work)
    }

    /// Sends a message to the shard of a PG.
    pub(crate) fn route(&mut self, spg: SpgId, msg: ShardMsg) {
        let router = &mut self.cx.net.router;
        router.send(router.shard_of(&spg), msg);
    }
}
