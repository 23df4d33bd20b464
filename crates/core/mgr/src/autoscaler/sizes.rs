//! Sizes as Ceph's modules of the manager print them.

/// Bytes in so many characters with a unit of 1,024, as Ceph's modules of the manager print them (`mgr_util.format_bytes`).
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "few digits are shown")]
pub fn binary_bytes(bytes: u64, width: usize) -> String {
    let digits = width - 1;
    let (mut unit, mut count) = (0, bytes);
    while count.to_string().len() > digits {
        count >>= 10;
        unit += 1;
    }
    let letter = [' ', 'k', 'M', 'G', 'T', 'P', 'E'].get(unit).copied().unwrap_or(' ');
    if unit == 0 {
        return format!("{bytes:>digits$}{letter}");
    }
    let divisor = (0..unit).fold(1.0, |divisor, _| divisor * 1024.0);
    let text = format!("{:.6}", bytes as f64 / divisor);
    let cut = text.get(..digits).unwrap_or(&text);
    match cut.strip_suffix('.') {
        Some(whole) => format!(" {whole}{letter}"),
        None => format!("{cut}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::binary_bytes;

    /// By the function of Ceph's.
    #[test]
    fn bytes_have_so_many_characters() {
        for (bytes, text) in [
            (0, "    0 "),
            (99_999, "99999 "),
            (100_000, "97.65k"),
            (3 << 30, " 3072M"),
            (100 << 30, "100.0G"),
            (12_345_678_901, "11773M"),
        ] {
            assert_eq!(binary_bytes(bytes, 6), text);
        }
        assert_eq!(binary_bytes(5 << 40, 5), "5120G");
    }
}
