//! [`Fill`]: what of the store's room for changes is in use while a checkpoint runs. Writers that change more than it keeps
//! up with slow down from its beginning on, a little each, rather than all stop shortly before its end.
//!
//! ```text
//!  room used since the cut           what is above the line waits for the checkpoint's next steps
//!  all  |                   __--
//!       |            __----
//!       |     __----
//!  1/4  |----                       short bursts never wait
//!       +------------------------
//!        cut   progress     end     by the time that its parts take: see [`super`]
//! ```

/// In what progress and room are counted.
pub(crate) const WHOLE: u64 = 1000;
/// Room that may be used however little progress there is.
const AT_ONCE: u64 = WHOLE / 4;

/// How much there is of what a checkpoint gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Blocks of the log.
    pub(crate) log_blocks: u64,
    /// Bytes of dirty blocks.
    pub(crate) dirty_bytes: u64,
    /// Bytes of changed metadata.
    pub(crate) metadata_bytes: u64,
}

/// How much of each there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Blocks of the log.
    pub(crate) log_blocks: u64,
    /// Bytes of dirty blocks.
    pub(crate) dirty_bytes: u64,
    /// Bytes of changed metadata.
    pub(crate) metadata_bytes: u64,
    /// Bytes of both.
    pub(crate) changes_bytes: u64,
}

impl Fill {
    /// Both kinds of changes together.
    const fn changes_bytes(&self) -> u64 {
        self.dirty_bytes + self.metadata_bytes
    }

    /// How far it has come from `start` to `limit`, of [`WHOLE`]: that of the four which has come furthest.
    fn spent(&self, start: &Self, limit: &Limit) -> u64 {
        let part = |now: u64, start: u64, limit: u64| match limit.saturating_sub(start) {
            0 => {
                if now > limit {
                    WHOLE
                } else {
                    0
                }
            }
            room => (now.saturating_sub(start) * WHOLE / room).min(WHOLE),
        };
        part(self.log_blocks, start.log_blocks, limit.log_blocks)
            .max(part(self.dirty_bytes, start.dirty_bytes, limit.dirty_bytes))
            .max(part(self.metadata_bytes, start.metadata_bytes, limit.metadata_bytes))
            .max(part(self.changes_bytes(), start.changes_bytes(), limit.changes_bytes))
    }

    /// Whether writers must wait for the checkpoint that began at `start` and has come to `progress`, of [`WHOLE`].
    pub(crate) fn outruns(&self, start: &Self, limit: &Limit, progress: u64) -> bool {
        self.spent(start, limit) >= AT_ONCE + (WHOLE - AT_ONCE) * progress / WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(blocks: u64) -> Fill {
        Fill { log_blocks: blocks, ..Fill::default() }
    }

    #[test]
    fn writers_follow_the_checkpoint() {
        let limit = Limit { log_blocks: 1000, dirty_bytes: 100, metadata_bytes: 100, changes_bytes: 120 };
        let start = log(200);
        assert!(!log(399).outruns(&start, &limit, 0) && log(400).outruns(&start, &limit, 0));
        assert!(!log(699).outruns(&start, &limit, WHOLE / 2) && log(700).outruns(&start, &limit, WHOLE / 2));
        assert!(!log(999).outruns(&start, &limit, WHOLE) && log(1000).outruns(&start, &limit, WHOLE));
        assert!(!log(0).outruns(&start, &limit, 0), "what was let go");
        let dirty = Fill { dirty_bytes: 30, ..start };
        assert!(dirty.outruns(&start, &limit, 0) && !dirty.outruns(&start, &limit, WHOLE / 4));
        // Either alone has room.
        let both = Fill { dirty_bytes: 54, metadata_bytes: 36, ..start };
        let alone = [Fill { dirty_bytes: 0, ..both }, Fill { metadata_bytes: 0, ..both }];
        assert!(alone.iter().all(|alone| !alone.outruns(&start, &limit, WHOLE / 2)));
        assert!(both.outruns(&start, &limit, WHOLE / 2) && !both.outruns(&start, &limit, WHOLE * 7 / 10));
    }

    #[test]
    fn a_limit_that_was_passed_at_the_start_stays_one() {
        let (start, log_blocks) = (log(50), 40);
        let limit = Limit { log_blocks, dirty_bytes: 100, metadata_bytes: 100, changes_bytes: 100 };
        assert!(log(50).outruns(&start, &limit, WHOLE) && !log(40).outruns(&start, &limit, 0));
    }
}
