//! Class `numops`: arithmetic on omap values that are decimal text.
//! Facts: Ceph `src/cls/numops/cls_numops.cc`, v16.2.15.

use crate::keys::input;
use crate::method::{Method, done, fail, write};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_types::Errno;

pub(crate) static METHODS: &[Method] = &[write("add", add), write("mul", mul)];

/// What is stored is no number (`EBADMSG`, which nothing else of ours answers).
const EBADMSG: Errno = Errno(74);
/// Significant digits of a stored number.
const DIGITS: i32 = 10;

fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    change(cx, bytes, |value, operand| value + operand)
}

fn mul(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    change(cx, bytes, |value, operand| value * operand)
}

/// `str key, str operand`; a value that is not there counts as 0.
fn change(cx: &mut dyn ClassCx, bytes: Bytes, op: fn(f64, f64) -> f64) -> MethodResult {
    let (key, operand): (ByteStr, ByteStr) = input(bytes)?;
    let operand = parse(&operand).ok_or(Fault::Errno(Errno::EINVAL))?;
    let stored = cx.omap_value(&key).unwrap_or_default();
    let Some(value) = parse(&stored) else { return fail(EBADMSG) };
    cx.omap_set(vec![(key, format_general(op(value, operand)).into())]);
    done()
}

/// As C's `strtod` reads it: blanks in front are skipped, nothing at all is 0.
fn parse(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() {
        return Some(0.0);
    }
    text.trim_start().parse().ok()
}

/// As C's `%.10g` writes it.
fn format_general(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let scientific = format!("{value:.*e}", (DIGITS - 1).unsigned_abs() as usize);
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent).unsigned_abs() as usize;
        return without_trailing_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(digits), exponent.abs())
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let written = [
            (0.0, "0"),
            (25.0, "25"),
            (-7.5, "-7.5"),
            (0.1 + 0.2, "0.3"),
            (1e9, "1000000000"),
            (1e10, "1e+10"),
            (12_345_678_912.0, "1.234567891e+10"),
            (0.000_012_5, "1.25e-05"),
            (0.000_1, "0.0001"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in written {
            assert_eq!(format_general(value), text);
        }
        assert_eq!(parse(b" 2.5"), Some(2.5));
        assert_eq!((parse(b"2.5 "), parse(b"two"), parse(b"")), (None, None, Some(0.0)));
    }
}
