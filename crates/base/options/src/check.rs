//! Whether a value is one that the option may have, and its normal form.

use crate::info::{Kind, OptionInfo};
use nacre_format::general;
use nacre_types::Uuid;

/// Why a value was refused. The texts are those that Ceph's clients show behind `error parsing value: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Not a number.
    #[error("strict_si_cast: unit prefix not recognized")]
    Number,
    /// Not a size.
    #[error("strict_iecstrtoll: unit prefix not recognized")]
    Size,
    /// Not a number with a fraction.
    #[error("strict_strtod: expected double, got: '{0}'")]
    Float(String),
    /// Neither true nor false.
    #[error("'{0}' is not a whole number")]
    Bool(String),
    /// Negative where only positive numbers make sense.
    #[error("strict_sistrtoll: value should not be negative")]
    Negative,
    /// Not a time.
    #[error("invalid timespan: '{0}'")]
    Span(String),
    /// Not a UUID.
    #[error("invalid uuid")]
    Uuid,
    /// Not a debug level.
    #[error("a level is wanted, N or N/M in whole numbers")]
    DebugLevel,
    /// Not among the choices.
    #[error("'{value}' is none of {choices}")]
    Choice {
        /// What was given.
        value: String,
        /// What may be given.
        choices: String,
    },
    /// Below the bound.
    #[error("Value '{value}' is below minimum {min}")]
    Below {
        /// What was given.
        value: String,
        /// The smallest value that is allowed.
        min: &'static str,
    },
    /// Above the bound.
    #[error("Value '{value}' exceeds maximum {max}")]
    Above {
        /// What was given.
        value: String,
        /// The largest value that is allowed.
        max: &'static str,
    },
}

impl OptionInfo {
    /// The value in its normal form.
    ///
    /// # Errors
    /// [`OptionError`] when the option cannot have this value.
    pub fn check(&self, value: &str) -> Result<String, OptionError> {
        let value = value.trim();
        let normal = match self.kind {
            Kind::Uint => unsigned(si(value)?)?.to_string(),
            Kind::Int | Kind::Millis => si(value)?.to_string(),
            Kind::Size => unsigned(iec(value)?)?.to_string(),
            Kind::Bool => truth(value)?.to_string(),
            Kind::Float => float(value)?,
            Kind::Seconds => span(value).ok_or_else(|| OptionError::Span(value.to_owned()))?.to_string(),
            Kind::Uuid => Uuid::parse(value).ok_or(OptionError::Uuid)?.to_string(),
            Kind::DebugLevel => debug_level(value)?,
            Kind::Text | Kind::Addr => value.to_owned(),
        };
        self.check_choices(&normal)?;
        self.check_bounds(&normal)?;
        Ok(normal)
    }

    /// Smallest and largest value of a number, which each has: a time that does not fit a clock, or a number that is none, would end
    /// the daemon that reads it, and end it again at each start.
    fn bounds(&self) -> (Option<&'static str>, Option<&'static str>) {
        let (min, max) = match self.kind {
            Kind::Uint => ("0", "4294967295"),
            Kind::Int | Kind::Float => ("-1000000000", "1000000000"),
            Kind::Seconds => ("0", "1000000000"),
            Kind::Millis => ("0", "1000000000000"),
            Kind::Size => ("0", "1152921504606846976"),
            Kind::Text | Kind::Addr | Kind::Uuid | Kind::Bool | Kind::DebugLevel => return (None, None),
        };
        (self.min.or(Some(min)), self.max.or(Some(max)))
    }

    fn check_choices(&self, value: &str) -> Result<(), OptionError> {
        if self.choices.is_empty() || self.choices.contains(&value) {
            return Ok(());
        }
        Err(OptionError::Choice { value: value.to_owned(), choices: self.choices.join(", ") })
    }

    fn check_bounds(&self, value: &str) -> Result<(), OptionError> {
        if matches!(self.kind, Kind::Text | Kind::Addr | Kind::Uuid | Kind::Bool | Kind::DebugLevel) {
            return Ok(());
        }
        let Ok(number) = value.parse::<f64>() else { return Err(OptionError::Float(value.to_owned())) };
        let bound = |text: Option<&'static str>| Some((text?, text?.parse::<f64>().ok()?));
        let (min, max) = self.bounds();
        match (bound(min), bound(max)) {
            (Some((min, least)), _) if number < least => {
                Err(OptionError::Below { value: value.to_owned(), min })
            }
            (_, Some((max, most))) if number > most => {
                Err(OptionError::Above { value: value.to_owned(), max })
            }
            _ => Ok(()),
        }
    }
}

fn unsigned(value: i64) -> Result<u64, OptionError> {
    u64::try_from(value).map_err(|_| OptionError::Negative)
}

fn scaled(value: &str, step: i64, units: &str) -> Option<i64> {
    let digits = value.len() - value.trim_start_matches(|ch: char| ch.is_ascii_digit() || ch == '-').len();
    let (number, unit) = value.split_at(digits);
    let number: i64 = number.parse().ok()?;
    let unit = unit.trim();
    let unit = if step == 1024 { unit.strip_suffix('i').unwrap_or(unit) } else { unit };
    let power = match unit {
        "" | "B" => 0,
        one if one.len() == 1 => u32::try_from(units.find(one)?).ok()? + 1,
        _ => return None,
    };
    number.checked_mul(step.checked_pow(power)?)
}

/// A number with a decimal unit: `2k` is 2000.
pub(super) fn si(value: &str) -> Result<i64, OptionError> {
    let lower = value.replace('k', "K");
    scaled(&lower, 1000, "KMGTPE").ok_or(OptionError::Number)
}

fn iec(value: &str) -> Result<i64, OptionError> {
    let upper = value.replace('k', "K");
    scaled(&upper, 1024, "KMGTPE").ok_or(OptionError::Size)
}

fn truth(value: &str) -> Result<bool, OptionError> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        other => {
            other.parse::<i64>().map(|number| number != 0).map_err(|_| OptionError::Bool(value.to_owned()))
        }
    }
}

fn float(value: &str) -> Result<String, OptionError> {
    let number = value.parse().ok().filter(|number: &f64| number.is_finite());
    Ok(general(number.ok_or_else(|| OptionError::Float(value.to_owned()))?, 6))
}

/// Seconds of `90`, `90s`, `2h30m`, `1d`.
fn span(value: &str) -> Option<u64> {
    if let Ok(seconds) = value.parse() {
        return Some(seconds);
    }
    let mut total = 0_u64;
    let mut rest = value;
    while !rest.is_empty() {
        let digits = rest.find(|ch: char| !ch.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit_end =
            rest[digits..].find(|ch: char| ch.is_ascii_digit()).map_or(rest.len(), |at| at + digits);
        let unit = match rest[digits..unit_end].trim() {
            "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "week" | "weeks" => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = rest[unit_end..].trim_start();
    }
    Some(total)
}

/// `N` means `N/N`, as Ceph stores it.
fn debug_level(value: &str) -> Result<String, OptionError> {
    let (write, keep) = value.split_once('/').unwrap_or((value, value));
    let level =
        |text: &str| text.parse::<u8>().ok().filter(|level| *level <= 99).ok_or(OptionError::DebugLevel);
    Ok(format!("{}/{}", level(write)?, level(keep)?))
}

#[cfg(test)]
mod tests {
    use super::Kind;
    use crate::find;

    fn check(name: &str, value: &str) -> Result<String, String> {
        find(name).expect("a known option").check(value).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_brought_to_their_normal_form() {
        assert_eq!(check("osd_max_backfills", "3").as_deref(), Ok("3"));
        assert_eq!(check("osd_memory_target", "2G").as_deref(), Ok("2147483648"));
        assert_eq!(check("osd_memory_target", "2Gi").as_deref(), Ok("2147483648"));
        assert_eq!(check("mon_allow_pool_delete", "1").as_deref(), Ok("true"));
        assert_eq!(check("debug_osd", "20").as_deref(), Ok("20/20"));
        assert_eq!(check("mon_osd_full_ratio", "0.90").as_deref(), Ok("0.9"));
    }

    #[test]
    fn every_number_is_finite_and_bounded() {
        let wild = [
            "nan",
            "-nan",
            "inf",
            "-inf",
            "infinity",
            "1e300",
            "-1e300",
            "1e19",
            "99999999999999999999",
            "9E",
        ];
        for option in crate::all() {
            for value in wild {
                let Ok(normal) = option.check(value) else { continue };
                let Ok(number) = normal.parse::<f64>() else { continue };
                assert!(matches!(option.kind, Kind::Text | Kind::Addr), "{} may be {number}", option.name);
            }
            assert!(matches!(option.bounds(), (Some(_), Some(_)) | (None, None)), "{}", option.name);
        }
    }

    #[test]
    fn wrong_values_are_refused_in_ceph_words() {
        for (name, value, text) in [
            ("osd_max_backfills", "abc", "strict_si_cast: unit prefix not recognized"),
            ("osd_pool_default_size", "11", "Value '11' exceeds maximum 10"),
            ("debug_osd", "abc", "a level is wanted, N or N/M in whole numbers"),
            ("mon_allow_pool_delete", "abc", "'abc' is not a whole number"),
        ] {
            assert_eq!(check(name, value), Err(text.to_owned()));
        }
    }
}
