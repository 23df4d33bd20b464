//! Peers: the clusters that images are mirrored to or from.

use super::{UUID, is_enabled};
use crate::keys::{all, get, input, output, remove, set, stored};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Errno, UTime, Uuid};

const PREFIX: &str = "mirror_peer_";

/// Peers had a pool once; what clients still send there is dropped.
const NO_POOL: i64 = -1;

/// `cls::rbd::MirrorPeerDirection`: from the peer, to it, or both.
const RECEIVE: u8 = 0;
const TRANSMIT: u8 = 1;
const BOTH: u8 = 2;

/// `cls::rbd::MirrorPeer`
pub(super) struct Peer {
    uuid: ByteStr,
    site: ByteStr,
    client: ByteStr,
    pub(super) direction: u8,
    pub(super) mirror_uuid: ByteStr,
    last_seen: UTime,
}

impl Encode for Peer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.uuid);
            w.put(&self.site);
            w.put(&self.client);
            w.i64(NO_POOL);
            w.u8(self.direction);
            w.put(&self.mirror_uuid);
            w.put(&self.last_seen);
        });
    }
}

impl Decode for Peer {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MirrorPeer", 2, |version, r| {
            let (uuid, site, client, _pool) = (r.get()?, r.get()?, r.get()?, r.i64()?);
            let (direction, mirror_uuid, last_seen) = if version >= 2 {
                (r.u8()?, r.get()?, r.get()?)
            } else {
                (BOTH, ByteStr::EMPTY, UTime::ZERO)
            };
            Ok(Self { uuid, site, client, direction, mirror_uuid, last_seen })
        })
    }
}

fn peer_key(uuid: &ByteStr) -> String {
    format!("{PREFIX}{uuid}")
}

fn peers(cx: &dyn ClassCx) -> Result<Vec<Peer>, Fault> {
    all(cx, PREFIX).into_iter().map(|(_, value)| stored(value)).collect()
}

pub(in crate::rbd) fn list(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let found = peers(cx)?;
    output(|w| w.put(&found))
}

impl Peer {
    pub(super) fn receives(&self) -> bool {
        self.direction == RECEIVE
    }

    /// Complete for its direction: a cluster that reads from it logs in there.
    fn is_valid(&self) -> bool {
        let can_log_in = match self.direction {
            TRANSMIT => true,
            RECEIVE | BOTH => !self.client.is_empty(),
            _ => false,
        };
        can_log_in && !self.uuid.is_empty() && !self.site.is_empty()
    }
}

/// True when there are any.
pub(super) fn any(cx: &dyn ClassCx) -> bool {
    !all(cx, PREFIX).is_empty()
}

pub(in crate::rbd) fn add(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let peer: Peer = input(bytes)?;
    if !is_enabled(cx)? || !peer.is_valid() {
        return fail(Errno::EINVAL);
    }
    if get::<ByteStr>(cx, UUID)? == peer.uuid || peer.direction == TRANSMIT {
        return fail(Errno::EINVAL);
    }
    for other in peers(cx)? {
        if other.uuid == peer.uuid {
            return fail(Errno::ESTALE);
        }
        let same_cluster = !peer.mirror_uuid.is_empty() && other.mirror_uuid == peer.mirror_uuid;
        if other.site == peer.site || same_cluster {
            return fail(Errno::EEXIST);
        }
    }
    set(cx, peer_key(&peer.uuid), &peer);
    done()
}

/// The peer that a ping is from, new when it has never been heard of: then images go to it.
fn pinged(cx: &mut dyn ClassCx, site: ByteStr, mirror_uuid: ByteStr) -> Result<Peer, Fault> {
    let mut known = peers(cx)?;
    let found = known.iter().position(|peer| peer.site == site || peer.mirror_uuid == mirror_uuid);
    if let Some(index) = found {
        let mut peer = known.swap_remove(index);
        if peer.direction == RECEIVE {
            peer.direction = BOTH;
        }
        // One half of the name may be new, unless it belongs to another peer.
        if known.iter().all(|other| other.site != site && other.mirror_uuid != mirror_uuid) {
            (peer.site, peer.mirror_uuid) = (site, mirror_uuid);
        }
        return Ok(peer);
    }
    let mut random = [0; 16];
    random[..8].copy_from_slice(&cx.random().to_le_bytes());
    random[8..].copy_from_slice(&cx.random().to_le_bytes());
    Ok(Peer {
        uuid: Uuid::from_random(random).to_string().into(),
        site,
        client: ByteStr::EMPTY,
        direction: TRANSMIT,
        mirror_uuid,
        last_seen: UTime::ZERO,
    })
}

/// `str site, str mirror_uuid, u8 direction`: the daemon of the other cluster is at work.
pub(in crate::rbd) fn ping(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (site, mirror_uuid, direction) = (r.str()?, r.str()?, r.u8()?);
    if direction != TRANSMIT || !is_enabled(cx)? || site.is_empty() || mirror_uuid.is_empty() {
        return fail(Errno::EINVAL);
    }
    let mut peer = pinged(cx, site, mirror_uuid)?;
    peer.last_seen = cx.now();
    if !peer.is_valid() {
        return fail(Errno::EINVAL);
    }
    set(cx, peer_key(&peer.uuid), &peer);
    done()
}

pub(in crate::rbd) fn remove_peer(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let uuid: ByteStr = input(bytes)?;
    remove(cx, peer_key(&uuid));
    done()
}

fn change_peer(cx: &mut dyn ClassCx, uuid: &ByteStr, change: impl FnOnce(&mut Peer)) -> MethodResult {
    let mut peer: Peer = get(cx, &peer_key(uuid))?;
    change(&mut peer);
    set(cx, peer_key(uuid), &peer);
    done()
}

pub(in crate::rbd) fn set_client(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (uuid, client): (ByteStr, ByteStr) = input(bytes)?;
    change_peer(cx, &uuid, |peer| peer.client = client)
}

pub(in crate::rbd) fn set_cluster(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (uuid, site): (ByteStr, ByteStr) = input(bytes)?;
    if peers(cx)?.iter().any(|other| other.uuid != uuid && other.site == site) {
        return fail(Errno::EEXIST);
    }
    change_peer(cx, &uuid, |peer| peer.site = site)
}

pub(in crate::rbd) fn set_direction(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (uuid, direction): (ByteStr, u8) = input(bytes)?;
    change_peer(cx, &uuid, |peer| peer.direction = direction)
}
