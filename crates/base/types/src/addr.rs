//! Where an entity listens or speaks from.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Protocol that an address speaks. Ceph `entity_addr_t::TYPE_*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum AddrKind {
    /// No address at all.
    #[default]
    None,
    /// Messenger v1, which is not spoken.
    Legacy,
    /// Messenger v2, which all of ours speaks.
    Msgr2,
    /// Any protocol: a client instance, a blocklist entry.
    Any,
    /// A range of addresses: the port is 0 and the nonce the length of the prefix in bits.
    Cidr,
}

impl AddrKind {
    fn code(self) -> u32 {
        self as u32
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Legacy => "v1:",
            Self::Msgr2 => "v2:",
            Self::Any => "any:",
            Self::Cidr => "cidr:",
        }
    }
}

/// Address of one instance: protocol, IP, port, and a nonce that tells two instances on one port apart.
/// Ceph `entity_addr_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityAddr {
    /// Which protocol is spoken there.
    pub kind: AddrKind,
    /// Set anew by each start of a daemon; 0 for monitors.
    pub nonce: u32,
    /// `None` for the empty address.
    pub socket: Option<SocketAddr>,
}

impl EntityAddr {
    /// The empty address.
    pub const NONE: Self = Self { kind: AddrKind::None, nonce: 0, socket: None };

    /// A messenger v2 address.
    #[must_use]
    pub fn msgr2(socket: SocketAddr, nonce: u32) -> Self {
        Self { kind: AddrKind::Msgr2, nonce, socket: Some(socket) }
    }

    /// The same instance as `kind`.
    #[must_use]
    pub fn with_kind(self, kind: AddrKind) -> Self {
        Self { kind, ..self }
    }

    /// `ip:port/nonce` without the protocol, as blocklists and lock owners are printed.
    #[must_use]
    pub fn without_kind(&self) -> String {
        match self.socket {
            Some(socket) => format!("{socket}/{}", self.nonce),
            None => format!(":/{}", self.nonce),
        }
    }

    /// The length of a range's prefix: `None` for what is no range, or has more bits than its protocol.
    #[must_use]
    pub fn prefix_bits(&self) -> Option<u32> {
        let (AddrKind::Cidr, Some(socket)) = (self.kind, self.socket) else { return None };
        let bits_max = if socket.is_ipv4() { 32 } else { 128 };
        (socket.port() == 0 && (1..=bits_max).contains(&self.nonce)).then_some(self.nonce)
    }

    /// True when this is a range and `ip` lies in it. An IPv4 address that came through an IPv6 socket counts as
    /// what it is.
    #[must_use]
    pub fn range_contains(&self, ip: IpAddr) -> bool {
        let (Some(bits), Some(socket)) = (self.prefix_bits(), self.socket) else { return false };
        match (socket.ip(), ip.to_canonical()) {
            (IpAddr::V4(range), IpAddr::V4(ip)) => (range.to_bits() ^ ip.to_bits()) >> (32 - bits) == 0,
            (IpAddr::V6(range), _) => {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                (range.to_bits() ^ ip.to_bits()) >> (128 - bits) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        }
    }

    /// Reads `[v1:|v2:|any:|cidr:]ip[:port][/nonce]`; without a prefix the kind is [`AddrKind::Any`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let kinds = [AddrKind::Legacy, AddrKind::Msgr2, AddrKind::Any, AddrKind::Cidr];
        let (kind, rest) = kinds
            .into_iter()
            .find_map(|kind| Some((kind, text.strip_prefix(kind.prefix())?)))
            .unwrap_or((AddrKind::Any, text));
        let (rest, nonce) = match rest.split_once('/') {
            Some((rest, nonce)) => (rest, nonce.parse().ok()?),
            None => (rest, 0),
        };
        let socket = rest
            .parse::<SocketAddr>()
            .ok()
            .or_else(|| Some(SocketAddr::new(rest.trim_matches(['[', ']']).parse::<IpAddr>().ok()?, 0)))?;
        Some(Self { kind, nonce, socket: Some(socket) })
    }
}

impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == AddrKind::None {
            return f.write_str("-");
        }
        write!(f, "{}{}", self.kind.prefix(), self.without_kind())
    }
}

impl fmt::Debug for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const FAMILY_INET: u16 = 2;
const FAMILY_INET6: u16 = 10;

/// The port stands big-endian inside the sockaddr, the family little-endian before it.
fn encode_sockaddr(socket: &SocketAddr, w: &mut Writer) {
    let [high, low] = [socket.port() >> 8, socket.port() & 0xff].map(|half| half.to_le_bytes()[0]);
    match socket {
        SocketAddr::V4(v4) => {
            w.u32(16);
            w.u16(FAMILY_INET);
            w.raw(&[high, low]);
            w.raw(&v4.ip().octets());
            w.zeros(8);
        }
        SocketAddr::V6(v6) => {
            w.u32(28);
            w.u16(FAMILY_INET6);
            w.raw(&[high, low]);
            w.u32(v6.flowinfo());
            w.raw(&v6.ip().octets());
            w.u32(v6.scope_id());
        }
    }
}

fn decode_sockaddr(r: &mut Reader) -> Result<Option<SocketAddr>, DecodeError> {
    let mut r = Reader::new(r.blob()?);
    if r.is_empty() {
        return Ok(None);
    }
    let family = r.u16()?;
    match family {
        0 => Ok(None),
        FAMILY_INET => {
            let [high, low] = r.array()?;
            let port = u16::from(high) << 8 | u16::from(low);
            Ok(Some((Ipv4Addr::from(r.array::<4>()?), port).into()))
        }
        FAMILY_INET6 => {
            let [high, low] = r.array()?;
            let port = u16::from(high) << 8 | u16::from(low);
            let flowinfo = r.u32()?;
            let ip = Ipv6Addr::from(r.array::<16>()?);
            Ok(Some(SocketAddr::V6(std::net::SocketAddrV6::new(ip, port, flowinfo, r.u32()?))))
        }
        family => Err(DecodeError::Invalid { what: "sockaddr family", value: family.into() }),
    }
}

impl Encode for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.encode_behind_marker(w);
    }
}

impl EntityAddr {
    fn encode_behind_marker(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.kind.code());
            w.u32(self.nonce);
            match &self.socket {
                Some(socket) => encode_sockaddr(socket, w),
                None => w.u32(0),
            }
        });
    }

    fn decode_behind_marker(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("entity_addr_t", 1, |_, r| {
            let kind = match r.u32()? {
                0 => AddrKind::None,
                1 => AddrKind::Legacy,
                2 => AddrKind::Msgr2,
                3 => AddrKind::Any,
                4 => AddrKind::Cidr,
                value => {
                    return Err(DecodeError::Invalid { what: "entity_addr_t.type", value: value.into() });
                }
            };
            Ok(Self { kind, nonce: r.u32()?, socket: decode_sockaddr(r)? })
        })
    }
}

impl Decode for EntityAddr {
    const MIN_BYTES: usize = 7;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => Self::decode_behind_marker(r),
            marker => Err(DecodeError::Invalid { what: "entity_addr_t marker", value: marker.into() }),
        }
    }
}

/// All addresses of one instance. Ceph `entity_addrvec_t`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct AddrVec(pub Vec<EntityAddr>);

impl AddrVec {
    /// A single address.
    #[must_use]
    pub fn of(addr: EntityAddr) -> Self {
        Self(vec![addr])
    }

    /// The messenger v2 address, if there is one.
    #[must_use]
    pub fn msgr2(&self) -> Option<EntityAddr> {
        self.0.iter().copied().find(|addr| addr.kind == AddrKind::Msgr2)
    }

    /// The first address, or the empty one.
    #[must_use]
    pub fn front(&self) -> EntityAddr {
        self.0.first().copied().unwrap_or(EntityAddr::NONE)
    }
}

/// `[v2:ip:port/nonce,v1:...]`, or a bare address when there is only one.
impl fmt::Display for AddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => fmt::Display::fmt(one, f),
            many => {
                let all: Vec<String> = many.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", all.join(","))
            }
        }
    }
}

impl Encode for AddrVec {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.put(&self.0);
    }
}

impl Decode for AddrVec {
    const MIN_BYTES: usize = 5;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => EntityAddr::decode_behind_marker(r).map(Self::of),
            2 => r.get().map(Self),
            marker => Err(DecodeError::Invalid { what: "entity_addrvec_t marker", value: marker.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_has_the_bytes_of_the_wire() {
        let addr = EntityAddr::parse("v2:127.0.0.1:6790/7").expect("a valid address");
        let mut want =
            vec![1, 1, 1, 28, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0x1a, 0x86, 127, 0, 0, 1];
        want.extend([0; 8]);
        assert_eq!(addr.to_bytes(), want);
        assert_eq!(EntityAddr::from_bytes(addr.to_bytes()), Ok(addr));
    }

    #[test]
    fn text_forms_round_trip() {
        for text in ["v2:127.0.0.1:6790/7", "any:192.0.2.1:0/123", "v1:[::1]:6789/0"] {
            assert_eq!(EntityAddr::parse(text).map(|addr| addr.to_string()).as_deref(), Some(text));
        }
        assert_eq!(EntityAddr::parse("10.0.0.1"), EntityAddr::parse("any:10.0.0.1:0/0"));
        assert_eq!(EntityAddr::parse("nonsense"), None);
    }

    #[test]
    fn ranges_contain_what_shares_their_prefix() {
        for (range, ip, contained) in [
            ("cidr:192.168.7.9/24", "192.168.7.255", true),
            ("cidr:192.168.7.9/24", "192.168.8.9", false),
            ("cidr:192.168.7.9/24", "::ffff:192.168.7.1", true),
            ("cidr:10.77.3.1:0/17", "10.77.127.255", true),
            ("cidr:10.77.3.1:0/17", "10.77.128.0", false),
            ("cidr:10.0.0.1/32", "10.0.0.1", true),
            ("cidr:10.0.0.1/32", "10.0.0.0", false),
            ("cidr:2001:db8:1::/48", "2001:db8:1:ffff::1", true),
            ("cidr:2001:db8:1::/48", "2001:db8:2::1", false),
            ("cidr:2001:db8:1::/128", "10.0.0.1", false),
            ("cidr:::/1", "10.0.0.1", true),
            // Not ranges: no prefix, one that is too long, a port, another kind.
            ("cidr:10.0.0.1/0", "10.0.0.1", false),
            ("cidr:10.0.0.1/33", "10.0.0.1", false),
            ("cidr:10.0.0.1:5/32", "10.0.0.1", false),
            ("any:10.0.0.1/32", "10.0.0.1", false),
        ] {
            let range = EntityAddr::parse(range).expect("an address");
            assert_eq!(range.range_contains(ip.parse().expect("an IP")), contained, "{range} {ip}");
        }
    }

    #[test]
    fn a_vector_also_reads_a_single_address() {
        let addr = EntityAddr::parse("v2:[fe80::1]:3300/0").expect("a valid address");
        assert_eq!(AddrVec::from_bytes(addr.to_bytes()), Ok(AddrVec::of(addr)));
        let both = AddrVec(vec![addr, EntityAddr::NONE]);
        assert_eq!(AddrVec::from_bytes(both.to_bytes()), Ok(both));
    }
}
