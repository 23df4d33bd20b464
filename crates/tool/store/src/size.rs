//! Sizes as people write them on a command line.

/// Reads a number of bytes, or one with K, M, G or T.
///
/// # Errors
/// What cannot be read.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(format!("unknown unit '{unit}': use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("no number in '{text}'"))?;
    number.checked_mul(1 << shift).filter(|size| *size > 0).ok_or_else(|| format!("'{text}' is out of range"))
}
