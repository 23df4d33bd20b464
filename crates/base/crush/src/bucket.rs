//! A bucket's items and weights, kept consistent with what its algorithm needs.
//!
//! Source: Ceph `src/crush/builder.c` at v16.2.15.

use crate::{Bucket, BucketAlg, BucketBody};

/// Items of a tree bucket: its node count must fit in the wire's one byte.
pub const TREE_ITEMS_MAX: usize = 64;

impl Bucket {
    /// An empty bucket.
    #[must_use]
    pub fn new(id: i32, kind: u16, alg: BucketAlg) -> Self {
        let body = match alg {
            BucketAlg::Uniform => BucketBody::Uniform { item_weight: 0 },
            BucketAlg::List => BucketBody::List { item_weights: Vec::new(), sum_weights: Vec::new() },
            BucketAlg::Tree => BucketBody::Tree { node_weights: Vec::new() },
            BucketAlg::Straw => BucketBody::Straw { item_weights: Vec::new(), straws: Vec::new() },
            BucketAlg::Straw2 => BucketBody::Straw2 { item_weights: Vec::new() },
        };
        Self { id, kind, hash: 0, weight: 0, items: Vec::new(), body }
    }

    /// How an item is chosen from this bucket.
    #[must_use]
    pub fn alg(&self) -> BucketAlg {
        match self.body {
            BucketBody::Uniform { .. } => BucketAlg::Uniform,
            BucketBody::List { .. } => BucketAlg::List,
            BucketBody::Tree { .. } => BucketAlg::Tree,
            BucketBody::Straw { .. } => BucketAlg::Straw,
            BucketBody::Straw2 { .. } => BucketAlg::Straw2,
        }
    }

    /// Weight of the item at `index`, 16.16; 0 beyond the end.
    #[must_use]
    pub fn item_weight(&self, index: usize) -> u32 {
        let weights = match &self.body {
            BucketBody::Uniform { item_weight } => return *item_weight,
            BucketBody::Tree { node_weights } => {
                return node_weights.get(2 * index + 1).copied().unwrap_or(0);
            }
            BucketBody::List { item_weights, .. }
            | BucketBody::Straw { item_weights, .. }
            | BucketBody::Straw2 { item_weights } => item_weights,
        };
        weights.get(index).copied().unwrap_or(0)
    }

    /// Weights of all items, in order.
    #[must_use]
    pub fn item_weights(&self) -> Vec<u32> {
        (0..self.items.len()).map(|index| self.item_weight(index)).collect()
    }

    /// Items with their weights.
    pub fn entries(&self) -> impl Iterator<Item = (i32, u32)> + '_ {
        self.items.iter().enumerate().map(|(index, item)| (*item, self.item_weight(index)))
    }

    /// Replaces all items; recomputes sums, trees and straws (`straw_calc_version` as in the tunables).
    ///
    /// A uniform bucket takes the weight of its last entry for all.
    pub fn set_entries(&mut self, entries: &[(i32, u32)], straw_calc_version: u8) {
        self.items = entries.iter().map(|(item, _)| *item).collect();
        let weights: Vec<u32> = entries.iter().map(|(_, weight)| *weight).collect();
        self.weight = weights.iter().fold(0, |sum, weight| sum.wrapping_add(*weight));
        match &mut self.body {
            BucketBody::Uniform { item_weight } => {
                *item_weight = weights.last().copied().unwrap_or(*item_weight);
                let count = u32::try_from(weights.len()).unwrap_or(u32::MAX);
                self.weight = item_weight.wrapping_mul(count);
            }
            BucketBody::List { item_weights, sum_weights } => {
                *sum_weights = weights
                    .iter()
                    .scan(0_u32, |sum, weight| {
                        *sum = sum.wrapping_add(*weight);
                        Some(*sum)
                    })
                    .collect();
                *item_weights = weights;
            }
            BucketBody::Tree { node_weights } => *node_weights = tree_nodes(&weights),
            BucketBody::Straw { item_weights, straws } => {
                *straws = straw_lengths(&weights, straw_calc_version);
                *item_weights = weights;
            }
            BucketBody::Straw2 { item_weights } => *item_weights = weights,
        }
    }
}

/// Node weights of an implicit binary tree: item `i` is the leaf `2i + 1`, a parent lies half a step away.
fn tree_nodes(weights: &[u32]) -> Vec<u32> {
    if weights.is_empty() {
        return Vec::new();
    }
    let depth = usize::BITS - (weights.len() - 1).leading_zeros() + 1;
    let mut nodes = vec![0_u32; 1 << depth];
    for (index, weight) in weights.iter().enumerate() {
        let mut node = 2 * index + 1;
        for _ in 0..depth {
            if let Some(at) = nodes.get_mut(node) {
                *at = at.wrapping_add(*weight);
            }
            node = tree_parent(node);
        }
    }
    nodes
}

fn tree_parent(node: usize) -> usize {
    let step = node & node.wrapping_neg();
    if node & (step << 1) != 0 { node - step } else { node + step }
}

/// Straw lengths (16.16) such that the chance of the longest scaled straw follows the weights, more or less;
/// version 0 of the computation also mishandles equal and zero weights.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the C computation does")]
fn straw_lengths(weights: &[u32], version: u8) -> Vec<u32> {
    let mut rising: Vec<(usize, u32)> = weights.iter().copied().enumerate().collect();
    rising.sort_by_key(|(_, weight)| *weight);
    let mut lengths = vec![0_u32; weights.len()];
    let (mut straw, mut below, mut last, mut left) = (1.0_f64, 0.0_f64, 0_u32, weights.len() as u32);
    for (at, &(index, weight)) in rising.iter().enumerate() {
        if weight == 0 {
            left -= u32::from(version > 0);
            continue;
        }
        if let Some(length) = lengths.get_mut(index) {
            // Lengths beyond 32 bits wrap: what the C cast does on all common machines.
            *length = (straw * 65_536.0) as i64 as u32;
        }
        let Some(&(_, next)) = rising.get(at + 1) else { break };
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - f64::from(last)) * f64::from(left);
        left -= match version {
            0 => rising.iter().skip(at + 1).take_while(|(_, other)| *other == next).count() as u32,
            _ => 1,
        };
        // In 32 bits, overflow included.
        let above = f64::from(left.wrapping_mul(next - weight));
        straw *= (1.0 / (below / (below + above))).powf(1.0 / f64::from(left));
        last = weight;
    }
    lengths
}
