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
//!
//! All is what is left at the cut, and half of the limit at most, since the next checkpoint begins with what was used in this one. With
//! more, every other one would begin with nearly the whole limit in use, and writers would stand still as long as it takes.

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

    /// Takes away what a step of the checkpoint has given back: `before` it and `after` it, so much was in use.
    pub(crate) fn give_back(&mut self, before: &Self, after: &Self) {
        let left = |start: u64, before: u64, after: u64| start.saturating_sub(before.saturating_sub(after));
        self.log_blocks = left(self.log_blocks, before.log_blocks, after.log_blocks);
        self.dirty_bytes = left(self.dirty_bytes, before.dirty_bytes, after.dirty_bytes);
        self.metadata_bytes = left(self.metadata_bytes, before.metadata_bytes, after.metadata_bytes);
    }

    /// How much is used of what writers may have from `start` on, of [`WHOLE`], or more: that of the four which has come furthest.
    fn spent(&self, start: &Self, limit: &Limit) -> u64 {
        let part = |now: u64, start: u64, limit: u64| match limit.saturating_sub(start).min(limit / 2) {
            0 => {
                if now > limit {
                    WHOLE
                } else {
                    0
                }
            }
            room => now.saturating_sub(start) * WHOLE / room,
        };
        part(self.log_blocks, start.log_blocks, limit.log_blocks)
            .max(part(self.dirty_bytes, start.dirty_bytes, limit.dirty_bytes))
            .max(part(self.metadata_bytes, start.metadata_bytes, limit.metadata_bytes))
            .max(part(self.changes_bytes(), start.changes_bytes(), limit.changes_bytes))
    }

    /// Whether writers must wait for the checkpoint that began at `start` and has come to `progress`, of [`WHOLE`].
    pub(crate) fn outruns(&self, start: &Self, limit: &Limit, progress: u64) -> bool {
        self.spent(start, limit) >= line(progress)
    }

    /// Whether so much more has come than writers may have, by as much again as they have at once, that it came without waiting.
    pub(crate) fn far_outruns(&self, start: &Self, limit: &Limit, progress: u64) -> bool {
        self.spent(start, limit) >= line(progress) + AT_ONCE
    }
}

/// What writers may have at that progress, of [`WHOLE`].
const fn line(progress: u64) -> u64 {
    AT_ONCE + (WHOLE - AT_ONCE) * progress / WHOLE
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
        let start = log(600);
        assert!(!log(699).outruns(&start, &limit, 0) && log(700).outruns(&start, &limit, 0));
        assert!(!log(849).outruns(&start, &limit, WHOLE / 2) && log(850).outruns(&start, &limit, WHOLE / 2));
        assert!(!log(999).outruns(&start, &limit, WHOLE) && log(1000).outruns(&start, &limit, WHOLE));
        assert!(!log(0).outruns(&start, &limit, 0), "what was let go");
        // Half of the limit, also where more is left.
        let start = log(200);
        assert!(!log(699).outruns(&start, &limit, WHOLE) && log(700).outruns(&start, &limit, WHOLE));
        let dirty = Fill { dirty_bytes: 15, ..start };
        assert!(dirty.outruns(&start, &limit, 0) && !dirty.outruns(&start, &limit, WHOLE / 4));
        // Either alone has room.
        let both = Fill { dirty_bytes: 27, metadata_bytes: 18, ..start };
        let alone = [Fill { dirty_bytes: 0, ..both }, Fill { metadata_bytes: 0, ..both }];
        assert!(alone.iter().all(|alone| !alone.outruns(&start, &limit, WHOLE / 2)));
        assert!(both.outruns(&start, &limit, WHOLE / 2) && !both.outruns(&start, &limit, WHOLE * 7 / 10));
    }

    #[test]
    fn what_comes_without_waiting_may_be_a_quarter_more() {
        let limit = Limit { log_blocks: 1000, dirty_bytes: 100, metadata_bytes: 100, changes_bytes: 120 };
        let start = log(0);
        let far_outruns = |blocks, progress| log(blocks).far_outruns(&start, &limit, progress);
        assert!(!far_outruns(249, 0) && far_outruns(250, 0) && log(125).outruns(&start, &limit, 0));
        assert!(!far_outruns(436, WHOLE / 2) && far_outruns(438, WHOLE / 2));
        assert!(
            !far_outruns(624, WHOLE) && far_outruns(625, WHOLE) && log(500).outruns(&start, &limit, WHOLE)
        );
    }

    /// Writers that have more to write than checkpoints keep up with get as much while each of them runs.
    #[test]
    fn no_checkpoint_begins_without_room_because_the_one_before_left_more() {
        let limit = Limit {
            log_blocks: 1 << 40,
            dirty_bytes: 1 << 20,
            metadata_bytes: 1 << 40,
            changes_bytes: 1 << 40,
        };
        let of = |dirty_bytes: u64| Fill { dirty_bytes, ..Fill::default() };
        let mut begins = limit.dirty_bytes / 8;
        for _ in 0..20 {
            let (start, mut now) = (of(begins), of(begins));
            for progress in 0..WHOLE {
                while !now.outruns(&start, &limit, progress) {
                    now.dirty_bytes += 64;
                }
            }
            assert!(now.dirty_bytes <= limit.dirty_bytes);
            let came = now.dirty_bytes - begins;
            assert!(came >= limit.dirty_bytes * 45 / 100, "{came} where {begins} were there before");
            // What it began with is let go; the next one begins at once.
            begins = came;
        }
    }

    #[test]
    fn a_limit_that_was_passed_at_the_start_stays_one() {
        let (start, log_blocks) = (log(50), 40);
        let limit = Limit { log_blocks, dirty_bytes: 100, metadata_bytes: 100, changes_bytes: 100 };
        assert!(log(50).outruns(&start, &limit, WHOLE) && !log(40).outruns(&start, &limit, 0));
    }
}
