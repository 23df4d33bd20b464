//! Floating point numbers as C and C++ print them.

/// `%.<digits>g`: `digits` significant digits, no trailing zeros, an exponent when the number is very large
/// or very small. C++ streams print with 6 digits, Ceph's JSON with 17.
#[must_use]
pub fn general(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits_max = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= digits_max {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs());
    }
    let decimals = usize::try_from(digits_max - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

/// `%.<decimals>f`.
#[must_use]
pub fn fixed(value: f64, decimals: usize) -> String {
    format!("{value:.decimals$}")
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_digits_show_what_the_binary_number_is() {
        for (value, text) in [
            (1.0, "1"),
            (0.0, "0"),
            (f64::from(0.95_f32), "0.94999998807907104"),
            (0.009796142578125, "0.009796142578125"),
            (1.7982655364648118e-05, "1.7982655364648118e-05"),
            (0.28, "0.28000000000000003"),
            (1e20, "1e+20"),
        ] {
            assert_eq!(general(value, 17), text);
        }
    }

    #[test]
    fn six_digits_are_what_streams_print() {
        for (value, text) in [
            (0.95, "0.95"),
            (6.5828061, "6.58281"),
            (0.75, "0.75"),
            (1_234_567.0, "1.23457e+06"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(general(value, 6), text);
        }
    }
}
