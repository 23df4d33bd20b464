//! A listener whose process has no descriptors left. The test runs itself again under a limit of its own.

use nacre_env::real::RealNet;
use nacre_env::{Net, NetEvent};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

const CHILD: &str = "NACRE_TEST_FEW_DESCRIPTORS";

/// What one wait brought: sockets accepted, and how often it was said that nobody can be.
fn poll(net: &mut RealNet) -> (usize, usize) {
    let mut events = Vec::new();
    net.poll(Some(Duration::from_millis(500)), &mut events).expect("poll");
    let accepted = events.iter().filter(|event| matches!(event, NetEvent::Accepted { .. })).count();
    let starved = events.iter().filter(|event| matches!(event, NetEvent::Starved { .. })).count();
    (accepted, starved)
}

#[test]
fn a_listener_goes_on_when_there_are_descriptors_again() {
    if std::env::var_os(CHILD).is_some() {
        return starve();
    }
    let me = std::env::current_exe().expect("a path");
    let outcome = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 64 && exec \"$0\" --exact a_listener_goes_on_when_there_are_descriptors_again",
        ])
        .arg(me)
        .env(CHILD, "1")
        .output()
        .expect("a shell");
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stdout));
}

fn starve() {
    let mut net = RealNet::new().expect("epoll");
    let (_, addr) = net.listen("127.0.0.1:0".parse().expect("an address"), false).expect("listen");
    // The client end has its descriptor before there are none left.
    let mut client = TcpStream::connect(addr).expect("connect");
    let hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(hoard.len() > 10);
    let waits: Vec<(usize, usize)> = (0..5).map(|_| poll(&mut net)).collect();
    assert_eq!(waits.iter().map(|(accepted, _)| accepted).sum::<usize>(), 0);
    assert_eq!(waits.iter().map(|(_, starved)| starved).sum::<usize>(), 1, "said once: {waits:?}");
    drop(hoard);
    let accepted: usize = (0..5).map(|_| poll(&mut net).0).sum();
    assert_eq!(accepted, 1);
    client.write_all(b"x").expect("connected");
    client.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    assert!(client.read(&mut [0]).is_err(), "and open");
}
