//! Time: what clocks show ([`UTime`]) and what intervals are measured with ([`Stamp`]).

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment of the calendar (or, in some fields, a duration): seconds and nanoseconds since 1970 UTC.
/// Ceph `utime_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct UTime {
    /// Whole seconds since 1970.
    pub sec: u32,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

impl UTime {
    /// The epoch, also "never".
    pub const ZERO: Self = Self { sec: 0, nsec: 0 };

    /// From a duration since 1970; saturates in 2106, as the wire does.
    #[must_use]
    pub fn from_unix(since_1970: Duration) -> Self {
        Self { sec: u32::try_from(since_1970.as_secs()).unwrap_or(u32::MAX), nsec: since_1970.subsec_nanos() }
    }

    /// As a duration since 1970.
    #[must_use]
    pub fn to_unix(self) -> Duration {
        Duration::new(self.sec.into(), 0) + Duration::from_nanos(self.nsec.into())
    }

    /// `self + duration`, saturating.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self::from_unix(self.to_unix().saturating_add(duration))
    }

    /// Time from `earlier` to `self`, zero when it is the other way round.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.to_unix().saturating_sub(earlier.to_unix())
    }

    /// Reads ISO 8601 in UTC, with `T` or a space before the time, with or without a fraction, and with `Z`, `+0000` or nothing at the
    /// end: as Ceph writes stamps into reports of crashes. `None` for anything else, and for years before 1970 or behind 2105.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('Z').trim_end_matches("+0000").trim_end_matches("+00:00");
        let (date, time) = text.split_once(['T', ' '])?;
        let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
        let mut parts = whole.split(':').map(|part| part.parse::<i64>().ok());
        let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
        let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
        let is_date = (1970..2106).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
        if !is_time || !is_date || !is_fraction || date.next().is_some() || parts.next().is_some() {
            return None;
        }
        let sec = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        Some(Self { sec: u32::try_from(sec).ok()?, nsec: format!("{fraction:0<9}").parse().ok()? })
    }

    /// True for [`UTime::ZERO`].
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

/// Days since 1970 of a civil date, the inverse of what [`UTime`] is shown with (Howard Hinnant's `days_from_civil`).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// A number of seconds as a duration, whatever the number: none for negative ones and for what is no number, the longest
/// duration for what is longer. The standard library's own conversions panic there.
#[must_use]
pub fn seconds(number: f64) -> Duration {
    let number = if number > 0.0 { number } else { 0.0 };
    Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX)
}

/// ISO 8601 with microseconds and a UTC offset, as Ceph prints stamps: `2026-11-21T09:17:03.000042+0000`.
impl fmt::Display for UTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = i64::from(self.sec / 86_400);
        let second = self.sec % 86_400;
        // Days to a civil date, Howard Hinnant's `civil_from_days`: eras of 400 years that begin in March.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}+0000",
            second / 3600,
            second / 60 % 60,
            second % 60,
            self.nsec / 1000
        )
    }
}

impl Encode for UTime {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.sec);
        w.u32(self.nsec);
    }
}

impl Decode for UTime {
    const MIN_BYTES: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { sec: r.u32()?, nsec: r.u32()? })
    }
}

/// A moment of a monotonic clock, in nanoseconds since some start that only this process knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Time from `earlier` to `self`, zero when it is the other way round.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The same in nanoseconds; a [`Duration`] is made by a division.
    #[inline]
    #[must_use]
    pub fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Stamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Self> for Stamp {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_as_they_are_shown() {
        for sec in [0, 951_782_400, 1_709_164_799, 1_795_257_081, 4_102_444_800] {
            let at = UTime { sec, nsec: 123_456_000 };
            assert_eq!(UTime::parse(&at.to_string()), Some(at), "{at}");
        }
        let at = Some(UTime { sec: 1_529_699_738, nsec: 58_818_000 });
        for text in
            ["2018-06-22T20:35:38.058818Z", "2018-06-22 20:35:38.058818", "2018-06-22T20:35:38.058818+00:00"]
        {
            assert_eq!(UTime::parse(text), at, "{text}");
        }
        for wrong in
            ["", "now", "2018-06-22", "2018-13-01T00:00:00Z", "2018-06-22T25:00:00Z", "1969-01-01T00:00:00Z"]
        {
            assert_eq!(UTime::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn any_number_of_seconds_is_a_duration() {
        assert_eq!(seconds(1.5), Duration::from_millis(1500));
        for none in [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0] {
            assert_eq!(seconds(none), Duration::ZERO);
        }
        for longest in [f64::INFINITY, 1e300, 1e20] {
            assert_eq!(seconds(longest), Duration::MAX);
        }
        assert_eq!(Stamp(1) + seconds(f64::INFINITY), Stamp(u64::MAX));
        assert_eq!(UTime { sec: 1, nsec: 0 }.after(seconds(1e300)).sec, u32::MAX);
    }

    #[test]
    fn prints_as_ceph_does() {
        assert_eq!(UTime { sec: 951_782_400, nsec: 1_500 }.to_string(), "2000-02-29T00:00:00.000001+0000");
        assert_eq!(UTime { sec: 1_795_252_623, nsec: 0 }.to_string(), "2026-11-21T09:17:03.000000+0000");
        assert_eq!(UTime::ZERO.to_string(), "1970-01-01T00:00:00.000000+0000");
    }
}
