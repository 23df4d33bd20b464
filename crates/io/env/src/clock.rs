//! Clocks: a monotonic one, and the time of day.

use crate::cpu_times::{CpuTimes, cpu_times, thread_cpu_ns};
use crate::machine_load::{MachineLoad, machine_load};
use crate::process_memory::process_memory;
use nacre_types::{Stamp, UTime};
use std::time::{Duration, Instant, SystemTime};

/// The two clocks of a process.
pub trait Clock: Send {
    /// The monotonic clock, for intervals and deadlines.
    fn now(&self) -> Stamp;
    /// The calendar clock, for what people and other machines see.
    fn wall(&self) -> UTime;
    /// What the thread that asks and its process have used of the processors; none where time is only thought, as in the simulation. Costs
    /// two system calls.
    fn cpu(&self) -> Option<CpuTimes> {
        None
    }
    /// How busy the machine is; none where it is only thought. Reads a small file of the kernel's.
    fn load(&self) -> Option<MachineLoad> {
        None
    }
    /// Of the processors' times, what the thread that asks has used, in nanoseconds: one system call.
    fn thread_cpu_ns(&self) -> Option<u64> {
        None
    }
    /// Bytes of memory that are the process's own, pages of files not among them; none where time is only thought. Reads a small file of
    /// the kernel's.
    fn process_memory(&self) -> Option<u64> {
        None
    }
}

/// The clocks of this machine. Copies share one start, so their stamps compare.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// Starts counting now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Stamp {
        Stamp::default() + self.start.elapsed() + Duration::from_nanos(1)
    }

    fn wall(&self) -> UTime {
        // A clock before 1970 is a broken machine; zero makes tickets fail at once instead of misleading.
        UTime::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    fn cpu(&self) -> Option<CpuTimes> {
        cpu_times()
    }

    fn load(&self) -> Option<MachineLoad> {
        machine_load()
    }

    fn thread_cpu_ns(&self) -> Option<u64> {
        thread_cpu_ns()
    }

    fn process_memory(&self) -> Option<u64> {
        process_memory()
    }
}
