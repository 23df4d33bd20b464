//! All stories in one program, so that none keeps the others waiting: `cargo test -p nacre-sim --test all stories::` runs those of one file.

/// As the daemons': a twelfth of all stories' time went into the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod broken;
mod creation;
mod first;
mod leases;
mod lost;
mod maps;
mod members;
mod mon_planted;
mod options;
mod overrun;
mod planted;
mod quorum;
mod relocation;
mod rot;
mod stories;
mod throttled;
mod up_thru;
mod versions;
