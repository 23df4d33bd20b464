//! [`LentParts`]: what a shard lends to those of its parts that give work to the PGs and to OSD control.

use crate::control::{ControlCx, OsdControl};
use crate::control_host::ControlHost;
use crate::pg_driver::PgDriver;
use crate::shard_msg::ShardMsg;
use crate::shard_net::ShardCx;
use nacre_msgr::{Event as ConnEvent, Session};
use nacre_service::ConnId;
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

    /// An event of a connection that this shard has dialled.
    pub(crate) fn dialled_conn_event(&mut self, conn: ConnId, event: ConnEvent) {
        match self.control.get() {
            Some(_) => drop(self.lend_control(|control, cx| control.conn_event(cx, conn, event))),
            None => self.cx.link_conn_event(conn, event),
        }
    }

    /// A connection of this shard with another daemon is gone. `refused`: nobody listened where we dialled.
    pub(crate) fn daemon_conn_closed(&mut self, conn: ConnId, session: Option<Box<Session>>, refused: bool) {
        match self.control.get() {
            Some(_) => drop(self.lend_control(|control, cx| control.conn_closed(cx, conn, session, refused))),
            None => self.cx.net.link_conn_closed(conn, session, self.cx.now),
        }
    }

    /// Sends a message to the shard of a PG.
    pub(crate) fn route(&mut self, spg: SpgId, msg: ShardMsg) {
        let router = &mut self.cx.net.router;
        router.send(router.shard_of(&spg), msg);
    }
}
