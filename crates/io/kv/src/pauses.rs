//! [`Pauses`]: leaves the device to others between two writes of a commit that nobody waits for.
//!
//! The changes of a million objects are hundreds of megabytes of pages. A device that is never without them, if only with 256 KiB at a
//! time, has every write and read beside them wait: for some 10 s, writes at depth 1 took 7 to 12 ms in place of 1.

use nacre_env::{Clock, RealClock};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A pause lasts so many times as long as the write before it: of the time of writes and pauses, three quarters are left to others.
const TIMES: u64 = 3;
/// A pause after a write that took longer than a third of this is no longer: a commit ends some time on the slowest device.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The thread that commits pauses, the one that submits says whether somebody waits.
pub(crate) struct Pauses {
    clock: RealClock,
    hurried: Mutex<bool>,
    changed: Condvar,
}

impl Pauses {
    /// Somebody waits until it is said otherwise.
    pub(crate) fn new() -> Self {
        Self { clock: RealClock::start(), hurried: Mutex::new(true), changed: Condvar::new() }
    }

    fn hurried(&self) -> MutexGuard<'_, bool> {
        // Nothing panics while holding it.
        self.hurried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody waits for what is committed. A pause ends at once when somebody does.
    pub(crate) fn set_hurried(&self, hurried: bool) {
        let before = std::mem::replace(&mut *self.hurried(), hurried);
        if hurried && !before {
            self.changed.notify_all();
        }
    }

    /// Does what has the device work, and pauses after it unless somebody waits or it went wrong. Gives the nanoseconds of the pause.
    pub(crate) fn after<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<u64, E> {
        let begin = self.clock.now();
        work()?;
        let end = self.clock.now();
        let pause = Duration::from_nanos(end.nanos_since(begin).saturating_mul(TIMES)).min(PAUSE_MAX);
        let hurried = self.hurried();
        if *hurried {
            return Ok(0);
        }
        // One that ends too early does no harm.
        drop(self.changed.wait_timeout_while(hurried, pause, |hurried| !*hurried));
        Ok(self.clock.now().nanos_since(end))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what takes time is tested")]
mod tests {
    use super::*;
    use std::sync::Arc;

    const WORK: Duration = Duration::from_millis(5);

    fn work() -> Result<(), ()> {
        std::thread::sleep(WORK);
        Ok(())
    }

    #[test]
    fn a_pause_is_longer_than_work_while_nobody_waits() {
        let pauses = Pauses::new();
        assert_eq!(pauses.after(work), Ok(0), "somebody waits");
        pauses.set_hurried(false);
        assert!(pauses.after(work).expect("it went well") >= 3 * WORK.as_nanos() as u64);
        assert_eq!(pauses.after(|| Err("failed")), Err("failed"));
    }

    #[test]
    fn a_pause_ends_when_somebody_waits() {
        let pauses = Arc::new(Pauses::new());
        let is_cut = || {
            pauses.set_hurried(false);
            let other = Arc::clone(&pauses);
            let thread = std::thread::spawn(move || {
                let work = || {
                    std::thread::sleep(PAUSE_MAX / 2);
                    Ok::<(), ()>(())
                };
                other.after(work)
            });
            std::thread::sleep(PAUSE_MAX / 2 + WORK);
            pauses.set_hurried(true);
            let paused = thread.join().expect("no panic").expect("it went well");
            paused > 0 && paused < (PAUSE_MAX / 2).as_nanos() as u64
        };
        // The machine may be slow now and then.
        let cut = (0..10).filter(|_| is_cut()).count();
        assert!(cut > 2, "{cut} of 10");
    }
}
