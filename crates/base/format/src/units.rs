//! Quantities as Ceph prints them for people: `1.0 GiB`, `2.83`, `16m`.

use crate::number::fixed;
use nacre_types::UTime;
use std::time::Duration;

/// Stamps before this many seconds are not of the calendar; `never` is one of them.
const CALENDAR_FROM_S: u32 = 10 * 365 * 86_400;

/// A stamp; what is not of the calendar prints as seconds (`0.000000`). Ceph `utime_t`.
#[must_use]
pub fn stamp(time: UTime) -> String {
    if time.sec < CALENDAR_FROM_S {
        format!("{}.{:06}", time.sec, time.nsec / 1000)
    } else {
        time.to_string()
    }
}

const BYTE_UNITS: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
const SI_UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
/// A scaled number takes at most this many characters, unit included.
const SCALED_CHARS_MAX: usize = 7;

fn scaled(value: u64, step: u64, units: &[&str; 7]) -> String {
    let mut whole = value;
    let mut divisor = 1_u64;
    let mut index = 0;
    while whole >= step && index + 1 < units.len() {
        whole /= step;
        divisor *= step;
        index += 1;
    }
    let unit = units[index];
    if value.is_multiple_of(divisor) {
        return format!("{whole}{unit}");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let exact = value as f64 / divisor as f64;
    (0..=2)
        .rev()
        .map(|decimals| format!("{}{unit}", fixed(exact, decimals)))
        .find(|text| text.len() <= SCALED_CHARS_MAX)
        .unwrap_or_else(|| format!("{}{unit}", fixed(exact, 0)))
}

/// Bytes in powers of 1024: `871 MiB`, `9.7 GiB`. Ceph `byte_u_t`.
#[must_use]
pub fn bytes(value: u64) -> String {
    scaled(value, 1024, &BYTE_UNITS)
}

/// A count in powers of 1000: `1.23k`. Ceph `si_u_t`.
#[must_use]
pub fn si(value: u64) -> String {
    scaled(value, 1000, &SI_UNITS)
}

/// A CRUSH weight or reweight with five decimals; `0` for none, `-` for a negative one. Ceph `weightf_t`.
#[must_use]
pub fn weight(value: f64) -> String {
    match value {
        value if value < -0.01 => "-".to_owned(),
        value if value < 0.000_001 => "0".to_owned(),
        value => fixed(value, 5),
    }
}

/// Two decimals, `0` below a thousandth, `-` for a negative number. Ceph `lowprecision_t`.
#[must_use]
pub fn low_precision(value: f64) -> String {
    match value {
        value if value < -0.01 => "-".to_owned(),
        value if value < 0.001 => "0".to_owned(),
        value => fixed(value, 2),
    }
}

/// A percentage with two decimals, `0` below a hundredth. Ceph `percentify`.
#[must_use]
pub fn percent(value: f64) -> String {
    if value < 0.01 { "0".to_owned() } else { fixed(value, 2) }
}

/// A rough age, `5s` to `3y`. Ceph `timespan_str`.
#[must_use]
pub fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let steps = [
        (seconds, 120, "s"),
        (minutes, 120, "m"),
        (hours, 48, "h"),
        (days, 14, "d"),
        (days / 7, 12, "w"),
        (days / 30, 24, "M"),
        (days / 365, u64::MAX, "y"),
    ];
    let (count, unit) = steps
        .into_iter()
        .find(|(count, below, _)| count < below)
        .map_or((days, "d"), |(count, _, unit)| (count, unit));
    format!("{count}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_at_most_seven_characters() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (136 << 10, "136 KiB"),
            (913_092_608, "871 MiB"),
            (9_896_180_736, "9.2 GiB"),
            (32_212_254_720, "30 GiB"),
            (1_300_000, "1.2 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(si(1234), "1.23k");
        assert_eq!(si(999), "999");
    }

    #[test]
    fn ages_use_the_largest_sensible_unit() {
        for (seconds, text) in
            [(90, "90s"), (1023, "17m"), (7200, "2h"), (86_400 * 3, "3d"), (86_400 * 20, "2w")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn weights_have_five_decimals() {
        assert_eq!(weight(0.009_796), "0.00980");
        assert_eq!(weight(0.0), "0");
        assert_eq!(weight(-1.0), "-");
        assert_eq!(low_precision(1.000_004), "1.00");
    }
}
