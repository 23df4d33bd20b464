//! Which of this machine's addresses an OSD under Ceph's monitors listens at: by `public addr`, `public network` and their like.

use anyhow::{Context, Result, bail};
use nacre_types::EntityAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The addresses that the machine has, in this process's network namespace.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let v4 = local_v4(&read("/proc/net/fib_trie"));
    v4.into_iter()
        .map(IpAddr::V4)
        .chain(local_v6(&read("/proc/net/if_inet6")).into_iter().map(IpAddr::V6))
        .collect()
}

/// Those that the kernel's routing table calls local, each once.
fn local_v4(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(addr) = line.strip_prefix("|-- ") {
            last = addr.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(addr) = last
            && !found.contains(&addr)
        {
            found.push(addr);
        }
    }
    found
}

fn local_v6(table: &str) -> Vec<Ipv6Addr> {
    let addr =
        |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok().map(Ipv6Addr::from_bits);
    table.lines().filter_map(addr).collect()
}

/// The first of `own` that lies in one of `networks`, which stand with commas or spaces between them, the first first.
///
/// # Errors
/// What is no network, and when none of them is this machine's.
pub(crate) fn in_networks(option: &str, networks: &str, own: &[IpAddr]) -> Result<IpAddr> {
    let words = networks.split([',', ' ', ';']).filter(|word| !word.is_empty());
    for word in words {
        let range = EntityAddr::parse(&format!("cidr:{word}")).filter(|range| range.prefix_bits().is_some());
        let range = range
            .with_context(|| format!("{option} = {networks}: '{word}' is no network like 10.0.0.0/24"))?;
        if let Some(addr) = own.iter().find(|addr| range.range_contains(**addr)) {
            return Ok(*addr);
        }
    }
    let shown: Vec<String> = own.iter().map(ToString::to_string).collect();
    bail!("{option} = {networks}: none of this machine's addresses is there ({})", shown.join(", "))
}

/// One address without a port.
///
/// # Errors
/// Anything else.
pub(crate) fn single(option: &str, text: &str) -> Result<IpAddr> {
    let addr = EntityAddr::parse(text).and_then(|addr| addr.socket);
    match addr.with_context(|| format!("{option} = {text} is no address"))? {
        addr if addr.ip().is_unspecified() => {
            bail!("{option} = {text} is no address that peers can connect to")
        }
        addr if addr.port() == 0 => Ok(addr.ip()),
        _ => {
            bail!("{option} = {text}: give the address alone; ports are ms_bind_port_min to ms_bind_port_max")
        }
    }
}

/// The address under which this machine reaches `peer`.
///
/// # Errors
/// When there is no way to it.
pub(crate) fn towards(peer: SocketAddr) -> Result<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent: the kernel only chooses the way.
    let route = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(peer)?;
        Ok(socket.local_addr()?.ip())
    };
    route().with_context(|| format!("no way to the monitor at {peer}; give --listen, or `public network`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        /32 host LOCAL\n\
                        Local:\n     |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
    const INET6: &str = "00000000000000000000000000000001 01 80 10 80       lo\nfd000000000000000000000000000007 02 40 00 80     eth0\n";

    #[test]
    fn the_machines_addresses_are_the_kernels_local_ones() {
        assert_eq!(
            local_v4(TRIE).iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.7", "127.0.0.1"]
        );
        assert_eq!(local_v6(INET6).iter().map(ToString::to_string).collect::<Vec<_>>(), ["::1", "fd00::7"]);
        assert!(own_addresses().contains(&Ipv4Addr::LOCALHOST.into()));
        assert_eq!(
            towards("127.0.0.9:1".parse().expect("an address")).ok(),
            Some(Ipv4Addr::LOCALHOST.into())
        );
    }

    #[test]
    fn the_first_network_that_the_machine_is_in_gives_the_address() {
        let own: Vec<IpAddr> =
            ["127.0.0.1", "10.0.0.7", "192.168.1.7"].map(|text| text.parse().expect("one")).into();
        let found =
            |networks: &str| in_networks("public network", networks, &own).map(|addr| addr.to_string());
        assert_eq!(found("10.0.0.0/24").ok().as_deref(), Some("10.0.0.7"));
        assert_eq!(found("172.16.0.0/12, 192.168.0.0/16,10.0.0.0/8").ok().as_deref(), Some("192.168.1.7"));
        for wrong in ["172.16.0.0/12", "10.0.0.0", "10.0.0.0/99", "host"] {
            let error = format!("{:#}", found(wrong).expect_err(wrong));
            assert!(error.starts_with("public network = "), "{error}");
        }
    }

    #[test]
    fn an_address_is_one_that_peers_can_use_and_has_no_port() {
        assert_eq!(single("public addr", "10.0.0.7").ok(), Some([10, 0, 0, 7].into()));
        assert_eq!(single("public addr", "v2:[fd00::7]").ok(), "fd00::7".parse().ok());
        for wrong in ["0.0.0.0", "10.0.0.7:6800", "host", ""] {
            assert!(single("public addr", wrong).is_err(), "{wrong}");
        }
    }
}
