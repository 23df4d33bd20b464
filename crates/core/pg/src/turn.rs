//! [`TurnWork`]: how much of clients' messages one turn of a shard executes.
//!
//! What one message may cost is bounded ([`WORK_BYTES_MAX`]), but a turn may bring hundreds, and heartbeats wait for its end.
//! So no message is begun any more once the turn has spent its part: what waits goes on in the next turn, in its order.

/// Work of one message, in bytes that are read, summed or written on the way: some 100 ms.
pub const WORK_BYTES_MAX: u64 = 256 << 20;

/// Work in the units of [`WORK_BYTES_MAX`] (bytes that are read, summed or written) after which a turn begins no message. With
/// the one that was begun last, a turn does five fourths of what one message may cost at most.
pub const TURN_WORK_MAX: u64 = WORK_BYTES_MAX / 4;

/// What is left to a turn. Without [`TurnWork::begin`], everything.
#[derive(Debug)]
pub struct TurnWork {
    left: u64,
}

impl Default for TurnWork {
    fn default() -> Self {
        Self { left: u64::MAX }
    }
}

impl TurnWork {
    /// A turn begins, which may do this much.
    pub fn begin(&mut self, work: u64) {
        self.left = work;
    }

    /// Notes work that was done.
    pub(crate) fn spend(&mut self, work: u64) {
        self.left = self.left.saturating_sub(work);
    }

    /// True when the turn begins no message any more.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}
