//! The kernel's clock, as adjtimex(2) tells of it.
#![allow(unsafe_code, reason = "one system call that fills a structure of ours")]

use std::io;

/// How well the calendar clock follows another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// Some daemon (chrony, ntpd, systemd-timesyncd, the hypervisor's) keeps the clock and says that it is right.
    pub is_synchronised: bool,
    /// Most that it may be wrong by, in microseconds, as that daemon estimates.
    pub error_us_max: u64,
    /// What is still to be corrected, in microseconds.
    pub offset_us: i64,
}

/// Asks the kernel. Changes nothing.
///
/// # Errors
/// What adjtimex(2) says.
pub fn clock_state() -> io::Result<ClockState> {
    let mut timex = std::mem::MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros is a value of the structure, with `modes` 0 nothing is set, and the call fills it.
    let state = unsafe { libc::adjtimex(timex.as_mut_ptr()) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeros is a value of it, and the call has filled it.
    let timex = unsafe { timex.assume_init() };
    let is_nano = timex.status & libc::STA_NANO != 0;
    Ok(ClockState {
        is_synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
        error_us_max: u64::try_from(timex.maxerror).unwrap_or(u64::MAX),
        offset_us: if is_nano { timex.offset / 1000 } else { timex.offset },
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_tells_of_its_clock() {
        let state = super::clock_state().expect("it may be asked by anybody");
        assert!(state.error_us_max > 0, "no clock is right to the microsecond: {state:?}");
    }
}
