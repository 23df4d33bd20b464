//! [`Kept`]: in how many seconds of recovery beside clients the limit was kept.

use nacre_types::Stamp;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Seconds in which clients wrote while recovery moved something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptSeconds {
    /// All of them.
    pub judged: u64,
    /// Those in which at most one write in a hundred took longer than the limit.
    pub kept: u64,
}

/// Counts [`KeptSeconds`], write by write.
#[derive(Debug, Default)]
pub(super) struct Kept {
    sum: KeptSeconds,
    began: Stamp,
    writes: u64,
    slow: u64,
}

impl Kept {
    /// A write beside recovery has ended.
    pub(super) fn add(&mut self, now: Stamp, is_slow: bool) {
        if now.since(self.began) >= SECOND {
            if self.writes > 0 {
                self.sum.judged += 1;
                self.sum.kept += u64::from(self.slow * 100 <= self.writes);
            }
            (self.began, self.writes, self.slow) = (now, 0, 0);
        }
        self.writes += 1;
        self.slow += u64::from(is_slow);
    }

    /// Another limit holds from now on: the second under way says nothing of it.
    pub(super) fn begin_anew(&mut self) {
        (self.began, self.writes, self.slow) = (Stamp::default(), 0, 0);
    }

    pub(super) fn seconds(&self) -> KeptSeconds {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_with_more_than_one_slow_write_in_a_hundred_is_not_kept() {
        let mut kept = Kept::default();
        let mut now = Stamp::default() + Duration::from_secs(100);
        for (writes, slow) in [(200, 0), (200, 2), (200, 3), (50, 1), (1, 0)] {
            for n in 0..writes {
                kept.add(now + Duration::from_millis(n), n < slow);
            }
            now = now + Duration::from_secs(1);
        }
        kept.add(now, true);
        assert_eq!(kept.seconds(), KeptSeconds { judged: 5, kept: 3 });
        // Seconds without a write are none.
        kept.add(now + Duration::from_secs(60), false);
        assert_eq!(kept.seconds(), KeptSeconds { judged: 6, kept: 3 });
    }
}
