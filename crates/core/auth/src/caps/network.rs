//! [`Network`]: the address range a grant is limited to.

use std::net::IpAddr;

/// `address/prefix`. One that does not parse matches no address, as in Ceph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network(Option<(IpAddr, u32)>);

fn bits(addr: IpAddr) -> (u128, u32) {
    match addr {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

impl Network {
    pub(super) fn parse(text: &str) -> Self {
        let parts = text.split_once('/').and_then(|(addr, prefix)| {
            let addr: IpAddr = addr.trim_matches(['[', ']']).parse().ok()?;
            let prefix = prefix.parse::<u32>().ok().filter(|prefix| *prefix <= bits(addr).1)?;
            Some((addr, prefix))
        });
        Self(parts)
    }

    pub(super) fn contains(&self, addr: IpAddr) -> bool {
        let Some((network, prefix)) = self.0 else { return false };
        let ((a, a_len), (b, b_len)) = (bits(network), bits(addr));
        a_len == b_len && (prefix == 0 || (a ^ b) >> (128 - prefix) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_what_their_prefix_says() {
        let cases = [
            ("10.1.0.0/16", "10.1.200.3", true),
            ("10.1.0.0/16", "10.2.0.1", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.2", false),
            ("0.0.0.0/0", "::1", false),
            ("fe80::/10", "fe80::1", true),
            ("192.0.2.1/33", "192.0.2.1", false),
            ("192.0.2.1", "192.0.2.1", false),
            ("nonsense/8", "10.0.0.1", false),
        ];
        for (network, addr, want) in cases {
            let addr = addr.parse().expect("a valid address");
            assert_eq!(Network::parse(network).contains(addr), want, "{network} {addr}");
        }
    }
}
