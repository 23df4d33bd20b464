//! Measures what a scrape of a simulated cluster costs: `cargo run --release -p nacre-mgr --features testing --example scrape [OSDS POOLS PGS]`.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement, for people")]

use nacre_mgr::metrics::simulated::Simulated;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 20;

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took.get(took.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let mut given = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let mut number = |default: usize| given.next().unwrap_or(default);
    let (osds, pools, pgs) = (number(1000), number(100), number(128));
    let cluster = Simulated::new(osds, pools, u32::try_from(pgs).unwrap_or(1));
    let (mut view, mut render, mut bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let shown = cluster.view();
        view.push(start.elapsed());
        let start = Instant::now();
        bytes = shown.render().len();
        render.push(start.elapsed());
    }
    let (view, render) = (median(view), median(render));
    println!(
        "{osds} OSDs, {pools} pools of {pgs} PGs: {view:?} of the manager's thread, {render:?} of another, {bytes} bytes"
    );
}
