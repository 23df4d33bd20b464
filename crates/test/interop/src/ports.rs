//! Ports for servers of tests.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below those that the system gives to outgoing connections: one of these may be taken before the server has begun to listen.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Ports of the loopback address on which nobody listens, each given once by this process.
///
/// # Panics
/// When none is free.
#[must_use]
pub fn free_ports(count: usize) -> Vec<u16> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Another process of tests begins elsewhere.
    let begin = (std::process::id() % u32::from(COUNT)) as u16;
    let nth = |_| FIRST + begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports: Vec<u16> = (0..COUNT).map(nth).filter(is_free).take(count).collect();
    assert_eq!(ports.len(), count, "no port is free");
    ports
}
