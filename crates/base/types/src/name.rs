//! Names of daemons and clients: by kind and number, or by kind and text.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// What an entity is; the values are bits so that sets of kinds fit in a mask. Ceph `CEPH_ENTITY_TYPE_*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityKind(pub u8);

impl EntityKind {
    /// Monitors, `mon.ID`.
    pub const MON: Self = Self(1);
    /// A metadata server.
    pub const MDS: Self = Self(2);
    /// Object storage daemons, `osd.ID`.
    pub const OSD: Self = Self(4);
    /// Clients, `client.ID`.
    pub const CLIENT: Self = Self(8);
    /// Managers, `mgr.ID`.
    pub const MGR: Self = Self(16);
    /// The authentication service; only tickets carry it.
    pub const AUTH: Self = Self(32);

    /// The name used in entity names and caps, such as `osd`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MON => "mon",
            Self::MDS => "mds",
            Self::OSD => "osd",
            Self::CLIENT => "client",
            Self::MGR => "mgr",
            Self::AUTH => "auth",
            _ => "unknown",
        }
    }

    /// The kind named `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::MON, Self::MDS, Self::OSD, Self::CLIENT, Self::MGR, Self::AUTH]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

impl fmt::Debug for EntityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A running instance: kind and number, printed `client.4123`. Ceph `entity_name_t`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntityName {
    /// What it is.
    pub kind: EntityKind,
    /// Rank, OSD number or global id.
    pub number: i64,
}

impl EntityName {
    /// The client with this global id.
    #[must_use]
    pub fn client(global_id: u64) -> Self {
        Self { kind: EntityKind::CLIENT, number: global_id.cast_signed() }
    }

    /// The OSD with this number.
    #[must_use]
    pub fn osd(id: crate::OsdId) -> Self {
        Self { kind: EntityKind::OSD, number: i64::from(id) }
    }

    /// The monitor of this rank.
    #[must_use]
    pub fn mon(rank: i64) -> Self {
        Self { kind: EntityKind::MON, number: rank }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.as_str(), self.number)
    }
}

impl fmt::Debug for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for EntityName {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.u8(self.kind.0);
        w.i64(self.number);
    }
}

impl Decode for EntityName {
    const MIN_BYTES: usize = 9;
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { kind: EntityKind(r.u8()?), number: r.i64()? })
    }
}

/// An identity with a key: kind and text, printed `client.admin`. Ceph `EntityName`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AuthName {
    /// What it is.
    pub kind: EntityKind,
    /// The part behind the first dot.
    pub id: String,
}

impl AuthName {
    /// Kind and id.
    #[must_use]
    pub fn new(kind: EntityKind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into() }
    }

    /// Reads `kind.id`; the id may hold further dots and may be empty (`mon.`).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, id) = text.split_once('.')?;
        Some(Self::new(EntityKind::parse(kind)?, id))
    }
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.as_str(), self.id)
    }
}

impl fmt::Debug for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for AuthName {
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::from(self.kind.0));
        w.str(&self.id);
    }
}

impl Decode for AuthName {
    const MIN_BYTES: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let kind = r.u32()?;
        let kind = u8::try_from(kind)
            .map_err(|_| DecodeError::Invalid { what: "EntityName.type", value: kind.into() })?;
        Ok(Self { kind: EntityKind(kind), id: r.text()? })
    }
}
