//! [`PeerGreeting`]: what a session between two OSDs begins with.

use super::{KIND_LAST, PeerVersions, raw};
use crate::RawMessage;
use nacre_buf::BufList;
use nacre_denc::{DecodeError, Reader};

/// Shards of an OSD at most, as far as a greeting is concerned.
const SHARDS_MAX: usize = 1024;

/// How the shards of an OSD are reached by those of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPorts {
    /// Partitions of the OSD's store, by which PGs are shared out among shards.
    pub partitions: u32,
    /// The port of each shard but the first, at the OSD's address for other OSDs.
    pub ports: Vec<u16>,
}

impl ShardPorts {
    /// Whether each shard of one OSD has a link with the same shard of the other: where most PGs are on the same shards of both.
    #[must_use]
    pub fn pair_with(&self, other: &Self) -> bool {
        (self.partitions, self.ports.len()) == (other.partitions, other.ports.len())
    }
}

/// What each side of a session between the first shards of two OSDs says first. It may grow at its end; what a reader does not know there it
/// leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerGreeting {
    /// The versions that the OSD speaks.
    pub versions: PeerVersions,
    /// `None` of an OSD with one shard, or whose program knows of no links between others.
    pub shards: Option<ShardPorts>,
}

impl PeerGreeting {
    /// The kind of the message.
    pub const KIND: u16 = KIND_LAST;

    /// The message: `oldest` and `newest` as `u32`, and of several shards the partitions as a `u32` and a list of ports as `u16`.
    #[must_use]
    pub fn encode(&self) -> RawMessage {
        raw(Self::KIND, 0, size_of::<PeerVersions>(), |w| {
            w.u32(self.versions.oldest);
            w.u32(self.versions.newest);
            if let Some(shards) = &self.shards {
                w.u32(shards.partitions);
                w.put(&shards.ports);
            }
            BufList::default()
        })
    }

    /// Reads what [`PeerGreeting::encode`] made.
    ///
    /// # Errors
    /// [`DecodeError`] for a body that is too short, an oldest version above the newest, and more shards than any OSD has.
    pub fn decode(raw: RawMessage) -> Result<Self, DecodeError> {
        let mut r = Reader::new(raw.front);
        let (oldest, newest) = (r.u32()?, r.u32()?);
        if oldest > newest {
            return Err(DecodeError::Invalid {
                what: "oldest version of peers' messages",
                value: oldest.into(),
            });
        }
        let versions = PeerVersions { oldest, newest };
        if r.is_empty() {
            return Ok(Self { versions, shards: None });
        }
        let shards = ShardPorts { partitions: r.u32()?, ports: r.get()? };
        if shards.ports.len() >= SHARDS_MAX {
            return Err(DecodeError::Invalid { what: "shards of an OSD", value: shards.ports.len() as u64 });
        }
        Ok(Self { versions, shards: Some(shards) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::PeerMessage;
    use super::*;

    const VERSIONS: PeerVersions = PeerVersions { oldest: 5, newest: 7 };

    #[test]
    fn it_says_versions_and_of_several_shards_their_ports() {
        let alone = PeerGreeting { versions: VERSIONS, shards: None };
        assert_eq!(
            alone.encode().front[..],
            [5, 0, 0, 0, 7, 0, 0, 0],
            "as before there were links of shards"
        );
        let several =
            PeerGreeting { shards: Some(ShardPorts { partitions: 4, ports: vec![6802, 6803] }), ..alone };
        assert_eq!(
            several.encode().front[..],
            [5, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0x92, 0x1a, 0x93, 0x1a]
        );
        for greeting in [alone, several] {
            assert!(PeerMessage::decode(greeting.encode()).is_err(), "it is about no PG");
            let mut longer = greeting.encode();
            if greeting.shards.is_some() {
                longer.front = [&longer.front[..], &[1]].concat().into();
            }
            assert_eq!(
                PeerGreeting::decode(longer),
                Ok(greeting),
                "what a later program says is passed over"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let alone = PeerGreeting { versions: VERSIONS, shards: None };
        let of = |bytes: &[u8]| {
            PeerGreeting::decode(RawMessage { front: bytes.to_vec().into(), ..alone.encode() })
        };
        assert!(of(&[5, 0, 0, 0]).is_err() && of(&[8, 0, 0, 0, 7, 0, 0, 0]).is_err());
        assert!(of(&[5, 0, 0, 0, 7, 0, 0, 0, 4]).is_err(), "half of what there is of shards");
        let many = PeerGreeting {
            versions: VERSIONS,
            shards: Some(ShardPorts { partitions: 4, ports: vec![1; SHARDS_MAX] }),
        };
        assert!(PeerGreeting::decode(many.encode()).is_err());
    }

    #[test]
    fn shards_have_links_of_their_own_where_pgs_are_on_the_same_ones() {
        let of = |partitions, ports: &[u16]| ShardPorts { partitions, ports: ports.to_vec() };
        let pair = of(4, &[1, 2]);
        assert!(pair.pair_with(&of(4, &[3, 4])));
        assert!(!pair.pair_with(&of(4, &[3])) && !pair.pair_with(&of(3, &[3, 4])));
    }
}
