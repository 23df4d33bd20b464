//! The end of an OSD whose store cannot be trusted any more: it alone ends, however many run in the process.

use super::Shard;
use crate::shard_msg::ShardMsg;
use nacre_pg::Effects;
use nacre_store::StoreState;

impl Shard {
    /// Nothing that follows from what the store holds may leave this shard any more: what it holds is not what it said. No PG
    /// hears of anything from now on, so that nothing is acknowledged, sent or answered; OSD control asks the monitor to mark this
    /// OSD down, which spares others the time to find out, and all shards end when it has, or has not within
    /// `osd_mon_shutdown_timeout`.
    pub(crate) fn break_down(&mut self, reason: &str) {
        // Whatever else a PG wanted in this moment rests on the same store.
        self.effects = Effects::new();
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        tracing::error!(
            osd = self.config.id,
            reason,
            "this OSD ends, and others of its process go on; replace its device if that is the cause, or see \
             `nacre store check`"
        );
        self.router.send(0, ShardMsg::Leave);
    }

    /// True when the store has failed by itself since the last look, or before: this shard serves nobody.
    pub(crate) fn is_broken(&mut self) -> bool {
        if !self.broken && self.store.state() == StoreState::Failed {
            self.break_down("the store has failed");
        }
        self.broken
    }
}
