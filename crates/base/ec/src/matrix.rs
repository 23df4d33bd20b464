//! Parity rows of the codes that Ceph's plugins compute, each as its authors define it, and of the one that Nacre had before.
//!
//! | code | parity row `i`, column `j` | from |
//! |---|---|---|
//! | jerasure `reed_sol_van` | see [`vandermonde`] | `reed_sol.c` |
//! | jerasure `cauchy_good` | see [`cauchy_good`] | `cauchy.c` |
//! | isa `reed_sol_van` | `(2^i)^j` | `gf_gen_rs_matrix` of isa-l |
//! | isa `cauchy` | `1 / ((k + i) + j)` | `gf_gen_cauchy1_matrix` of isa-l |
//! | Nacre's own | the same, each column divided by its first element | - |
//!
//! Sources read: ceph/jerasure, intel/isa-l, and the plugins of Ceph v16.2.15; golden chunks of those: `tests/golden.rs`. Any `k` rows of
//! a code, those of data among them, can be inverted: a Cauchy matrix has no singular square part, nor has the Vandermonde code; the powers
//! have none for what [`crate::Code`] admits.

use crate::code::Technique;
use crate::field::{add_product, inverse, multiply, power};

/// A row of factors, one per data shard.
pub(crate) type Row = Vec<u8>;

/// The parity rows of a code of `k` data and `m` parity shards, at most 256 together.
pub(crate) fn parity_rows(technique: Technique, k: u8, m: u8) -> Vec<Row> {
    match technique {
        // Both plugins of ISA's add the data up where there is one parity shard.
        Technique::IsaReedSolVan | Technique::IsaCauchy if m == 1 => vec![vec![1; usize::from(k)]],
        Technique::JerasureReedSolVan => vandermonde(k, m),
        Technique::JerasureCauchyGood { .. } => cauchy_good(k, m),
        Technique::IsaReedSolVan => rows(k, m, |i, j| power(usize::from(i) * usize::from(j))),
        Technique::IsaCauchy => rows(k, m, |i, j| inverse((k + i) ^ j)),
        Technique::Own => {
            let mut rows = rows(k, m, |i, j| inverse((k + i) ^ j));
            first_row_to_ones(&mut rows);
            rows
        }
    }
}

fn rows(k: u8, m: u8, element: impl Fn(u8, u8) -> u8) -> Vec<Row> {
    (0..m).map(|i| (0..k).map(|j| element(i, j)).collect()).collect()
}

fn scale(row: &mut [u8], factor: u8) {
    row.iter_mut().for_each(|value| *value = multiply(*value, factor));
}

/// Divides each column by its first element.
fn first_row_to_ones(rows: &mut [Row]) {
    let Some(first) = rows.first().cloned() else { return };
    for row in rows {
        row.iter_mut().zip(&first).for_each(|(value, first)| *value = multiply(*value, inverse(*first)));
    }
}

/// Row `i` of the matrix that the code begins with has the powers `i^j`; its last row, which stands for infinity, only the highest of
/// them. Multiplied by the inverse of its first `k` rows those become the data as it is. Then each column is divided by its element in the
/// first parity row, and each other parity row by its first element.
fn vandermonde(k: u8, m: u8) -> Vec<Row> {
    let row = |i: u8| -> Row {
        if i == k + m - 1 {
            return (0..k).map(|j| u8::from(j == k - 1)).collect();
        }
        let next = |value: &u8| Some(multiply(*value, i));
        std::iter::successors(Some(1), next).take(usize::from(k)).collect()
    };
    let to_data = invert((0..k).map(row).collect());
    let mut rows: Vec<Row> = (k..k + m).map(|i| product(&row(i), &to_data)).collect();
    first_row_to_ones(&mut rows);
    for row in rows.iter_mut().skip(1) {
        let first = inverse(row[0]);
        scale(row, first);
    }
    rows
}

/// A matrix of which few bits are set: with two parity shards, ones and the elements with the fewest. Else a Cauchy matrix with a first
/// row of ones, each other row divided by that element of it with which it has the fewest, the first such, unless it has no more itself.
fn cauchy_good(k: u8, m: u8) -> Vec<Row> {
    let k_len = usize::from(k);
    if m == 2 {
        let mut elements: Row = (1..=u8::MAX).collect();
        elements.sort_by_key(|element| bits(*element));
        elements.truncate(k_len);
        return vec![vec![1; k_len], elements];
    }
    let mut rows = rows(k, m, |i, j| inverse(i ^ (m + j)));
    first_row_to_ones(&mut rows);
    for row in rows.iter_mut().skip(1) {
        let bits_of =
            |row: &Row, factor: u8| row.iter().map(|value| bits(multiply(*value, factor))).sum::<u32>();
        let scaled = row.iter().map(|value| inverse(*value)).map(|factor| (bits_of(row, factor), factor));
        let best = scaled.min_by_key(|(bits, _)| *bits);
        if let Some((_, factor)) = best.filter(|(bits, _)| *bits < bits_of(row, 1)) {
            scale(row, factor);
        }
    }
    rows
}

/// Bits that are set in the matrix which multiplies by `element`.
fn bits(element: u8) -> u32 {
    (0..8).map(|bit| multiply(element, 1 << bit).count_ones()).sum()
}

/// `row` times `matrix`.
fn product(row: &[u8], matrix: &[Row]) -> Row {
    let mut sum = vec![0; row.len()];
    row.iter().zip(matrix).for_each(|(factor, row)| add_product(&mut sum, *factor, row));
    sum
}

/// The inverse matrix (Gauss-Jordan).
///
/// # Panics
/// When there is none: those of the codes have one.
pub(crate) fn invert(mut rows: Vec<Row>) -> Vec<Row> {
    let size = rows.len();
    for (at, row) in rows.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == at)));
    }
    for at in 0..size {
        let pivot = (at..size).find(|row| rows[*row][at] != 0).expect("the rows are independent");
        rows.swap(at, pivot);
        let factor = inverse(rows[at][at]);
        scale(&mut rows[at], factor);
        let pivot = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at];
            add_product(row, factor, &pivot);
        }
    }
    rows.into_iter().map(|mut row| row.split_off(size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether no square part of these rows is singular, that is, any `k` shards suffice: by minors, each from smaller ones.
    fn is_sufficient(rows: &[Row]) -> bool {
        let k = rows[0].len();
        (1..1_usize << rows.len()).all(|picked| {
            let picked: Vec<&Row> =
                (0..rows.len()).filter(|at| picked >> at & 1 == 1).map(|at| &rows[at]).collect();
            every_part_is_regular(&picked, 0, k, &mut Vec::new())
        })
    }

    /// Likewise, of as many columns as there are rows, `columns` and others from `from` on.
    fn every_part_is_regular(rows: &[&Row], from: usize, k: usize, columns: &mut Vec<usize>) -> bool {
        if columns.len() == rows.len() {
            return is_regular(rows.iter().map(|row| columns.iter().map(|at| row[*at]).collect()).collect());
        }
        (from..k).all(|column| {
            columns.push(column);
            let regular = every_part_is_regular(rows, column + 1, k, columns);
            columns.pop();
            regular
        })
    }

    fn is_regular(mut rows: Vec<Row>) -> bool {
        for at in 0..rows.len() {
            let Some(pivot) = (at..rows.len()).find(|row| rows[*row][at] != 0) else { return false };
            rows.swap(at, pivot);
            let pivot = rows[at].clone();
            for row in &mut rows[at + 1..] {
                let factor = multiply(row[at], inverse(pivot[at]));
                add_product(row, factor, &pivot);
            }
        }
        true
    }

    #[test]
    fn any_k_shards_suffice_in_every_code_that_is_admitted() {
        let packets = Technique::JerasureCauchyGood { packet_bytes: 2048 };
        for technique in [Technique::Own, Technique::JerasureReedSolVan, packets, Technique::IsaCauchy] {
            for (k, m) in [(1, 1), (2, 2), (8, 3), (10, 4), (32, 2), (16, 3), (7, 5)] {
                assert!(is_sufficient(&parity_rows(technique, k, m)), "{technique:?} {k}+{m}");
            }
        }
        for (k, m) in [(32, 1), (32, 2), (32, 3), (21, 4)] {
            assert!(is_sufficient(&parity_rows(Technique::IsaReedSolVan, k, m)), "powers {k}+{m}");
        }
        assert!(
            !is_sufficient(&parity_rows(Technique::IsaReedSolVan, 26, 4)),
            "which is why it is not admitted"
        );
    }

    #[test]
    fn the_first_parity_row_is_of_ones_where_the_plugins_have_it_so() {
        let packets = Technique::JerasureCauchyGood { packet_bytes: 8 };
        for technique in [Technique::Own, Technique::JerasureReedSolVan, Technique::IsaReedSolVan, packets] {
            assert_eq!(parity_rows(technique, 5, 3)[0], [1; 5], "{technique:?}");
        }
        assert_eq!(parity_rows(Technique::IsaCauchy, 5, 1)[0], [1; 5]);
        assert_ne!(parity_rows(Technique::IsaCauchy, 5, 2)[0], [1; 5]);
    }
}
