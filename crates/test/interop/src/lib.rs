//! Stock programs against `nacre up`: the harness that the tests in `tests/` share. Layer: test.
//!
//! A test starts a [`Cluster`] of its own in a temporary folder, with ports that the system chose, and uses it
//! through a [`Shell`]: scripts in which `ceph`, `rados`, `rbd`, `fio` and `qemu-img` find the cluster by
//! themselves. The cluster ends with the test, which fails if the daemon logged an error, panicked or did not
//! stop when told to.
//!
//! The stock `ceph` is a Python program, which scripts call some two thousand times: a server (`ceph_server.py`) loads it once, and each call
//! is a child of that.
//!
//! The release binary must exist: the tests speed nobody up by testing an unoptimized one. `make test` builds
//! it; `NACRE_BIN` names another. With `NACRE_TEST_CEPH` set to a folder that holds the `ceph.conf` and
//! `keyring` of a running Ceph, the same tests run against that one: they must pass there too.
#![allow(clippy::print_stderr, reason = "a test that fails says what it leaves behind")]

mod ceph_server;
mod client;
mod cluster;
mod hostile;
mod memory_cgroup;
mod mutant;
mod random;
mod scratch;
mod shell;

pub use client::{Client, Wire};
pub use cluster::{Cluster, Daemon, binary};
pub use hostile::{Hostile, attack};
pub use memory_cgroup::MemoryCgroup;
pub use mutant::Mutants;
pub use random::Random;
pub use scratch::Scratch;
pub use shell::{Ran, Shell};
