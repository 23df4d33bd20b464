//! All tests in one program, so that those that wait for each other's clusters, which is most of their time, run side by side:
//! `cargo test -p nacre-interop --test all rados::` runs those of one file.

mod admin_sockets;
mod alerts;
mod autoscaler;
mod balancer;
mod bench;
mod bill;
mod caps;
mod cli;
mod client;
mod crashes;
mod dashboard;
mod device_health;
mod doctor;
mod doctor_exam;
mod erasure;
mod fail_slow;
mod file_systems;
mod foreign;
mod gateways;
mod hostile;
mod lost;
mod metrics;
mod mirroring;
mod monitors;
mod overwrites;
mod probe;
mod processes;
mod quorum;
mod rados;
mod rbd;
mod real_monitors;
mod recovery;
mod recovery_target;
mod stock_mgr;
mod user;
