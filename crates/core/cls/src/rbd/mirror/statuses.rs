//! What `rbd-mirror` daemons say about their work on an image: ours under one key, each peer's under another.
//! A status counts as up while the daemon that wrote it watches the object.

use super::image::{self, Image};
use super::peers::Peer;
use crate::keys::{all, find, input, output, page_input, remove, set, stored};
use crate::method::{done, fail};
use crate::{Caller, ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{EntityAddr, EntityName, Errno, UTime};
use std::collections::{BTreeMap, BTreeSet};

const LOCAL: &str = "status_global_";
const REMOTE: &str = "remote_status_global_";
/// States that the summary counts by.
const UNKNOWN: u8 = 0;
const ERROR: u8 = 1;

/// `cls::rbd::MirrorImageSiteStatus`
struct Status {
    /// Of the peer; empty for this cluster.
    mirror_uuid: ByteStr,
    state: u8,
    description: ByteStr,
    updated: UTime,
    up: bool,
}

impl Status {
    fn write(&self, w: &mut Writer) {
        w.u8(self.state);
        w.put(&self.description);
        w.put(&self.updated);
        w.bool(self.up);
    }
}

impl Decode for Status {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MirrorImageSiteStatus", 2, |version, r| {
            let mirror_uuid = if version >= 2 { r.get()? } else { ByteStr::EMPTY };
            Ok(Self { mirror_uuid, state: r.u8()?, description: r.get()?, updated: r.get()?, up: r.bool()? })
        })
    }
}

/// A status as we store it: with its writer, without the peer that its key names.
struct Stored {
    writer: EntityName,
    addr: EntityAddr,
    status: Status,
}

impl Encode for Stored {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.writer);
            w.put(&self.addr);
            self.status.write(w);
        });
    }
}

impl Decode for Stored {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("mirror image status", 1, |_, r| {
            let (writer, addr) = (r.get()?, r.get()?);
            let (state, description, updated, up) = (r.u8()?, r.get()?, r.get()?, r.bool()?);
            let status = Status { mirror_uuid: ByteStr::EMPTY, state, description, updated, up };
            Ok(Self { writer, addr, status })
        })
    }
}

impl Stored {
    fn is_up(&self, watchers: &[Caller]) -> bool {
        watchers.iter().any(|watcher| watcher.name == self.writer && watcher.addr == self.addr)
    }

    fn into_status(mut self, mirror_uuid: ByteStr, watchers: &[Caller]) -> Status {
        self.status.up = self.is_up(watchers);
        self.status.mirror_uuid = mirror_uuid;
        self.status
    }
}

fn local_key(global_id: &ByteStr) -> String {
    format!("{LOCAL}{global_id}")
}

fn remote_prefix(global_id: &ByteStr) -> String {
    format!("{REMOTE}{global_id}_")
}

/// `cls::rbd::MirrorImageStatus`: ours, and the peers' ascending by uuid.
#[derive(Default)]
struct Statuses {
    local: Option<Status>,
    remote: Vec<Status>,
}

impl Statuses {
    fn load(cx: &dyn ClassCx, global_id: &ByteStr, watchers: &[Caller]) -> Result<Self, Fault> {
        let local: Option<Stored> = find(cx, &local_key(global_id))?;
        let mut remote = Vec::new();
        for (uuid, value) in all(cx, &remote_prefix(global_id)) {
            remote.push(stored::<Stored>(value)?.into_status(uuid, watchers));
        }
        Ok(Self { local: local.map(|local| local.into_status(ByteStr::EMPTY, watchers)), remote })
    }

    fn is_empty(&self) -> bool {
        self.local.is_none() && self.remote.is_empty()
    }

    /// One state for the image: an error anywhere, else the lowest of those that count.
    fn summary(&self, peers: &Peers) -> u8 {
        let local = self.local.as_ref().filter(|local| local.up && peers.receive);
        let mut summary = local.map(|local| local.state);
        if peers.transmit {
            for remote in &self.remote {
                let state = if remote.up { remote.state } else { UNKNOWN };
                summary = Some(match summary {
                    _ if remote.state == ERROR => ERROR,
                    Some(ERROR) => ERROR,
                    Some(other) => other.min(state),
                    None => state,
                });
            }
            let heard = self.remote.iter().filter(|remote| peers.targets.contains(&remote.mirror_uuid));
            if heard.count() < peers.targets.len() {
                return UNKNOWN;
            }
        }
        summary.unwrap_or(UNKNOWN)
    }
}

impl Encode for Statuses {
    fn encode(&self, w: &mut Writer) {
        let none = Status {
            mirror_uuid: ByteStr::EMPTY,
            state: UNKNOWN,
            description: ByteStr::EMPTY,
            updated: UTime::ZERO,
            up: false,
        };
        w.envelope(2, 1, |w| {
            self.local.as_ref().unwrap_or(&none).write(w);
            w.bool(self.local.is_some());
            w.count(self.remote.len());
            for remote in &self.remote {
                w.put(&remote.mirror_uuid);
                remote.write(w);
            }
        });
    }
}

/// Which statuses count towards a summary.
struct Peers {
    receive: bool,
    transmit: bool,
    /// Peers that images go to: each must have said something.
    targets: BTreeSet<ByteStr>,
}

impl Peers {
    /// Without peers, from a client that does not send them, only our own work counts.
    fn new(peers: Vec<Peer>) -> Self {
        let both = peers.iter().any(|peer| !peer.receives() && peer.direction != peers[0].direction);
        let first = peers.first().map_or(0, |peer| peer.direction);
        let targets =
            peers.into_iter().filter(|peer| !peer.receives()).map(|peer| peer.mirror_uuid).collect();
        Self { receive: both || first != 1, transmit: both || matches!(first, 1 | 2), targets }
    }
}

/// Removes what is known about an image.
pub(super) fn forget(cx: &mut dyn ClassCx, global_id: &ByteStr) {
    let prefix = remote_prefix(global_id);
    for (uuid, _) in all(cx, &prefix) {
        remove(cx, format!("{prefix}{uuid}"));
    }
    remove(cx, local_key(global_id));
}

/// `str global_id, status`; one of an image that is not enabled is dropped.
pub(in crate::rbd) fn set_status(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let mut r = Reader::new(bytes);
    let (global_id, mut status): (ByteStr, Status) = (r.get()?, r.get()?);
    if !image::is_enabled(cx, &global_id)? {
        return done();
    }
    let key = match &status.mirror_uuid {
        own if own.is_empty() => local_key(&global_id),
        peer => format!("{}{peer}", remote_prefix(&global_id)),
    };
    status.up = false;
    status.updated = cx.now();
    let Caller { name, addr } = cx.caller().clone();
    set(cx, key, &Stored { writer: name, addr, status });
    done()
}

pub(in crate::rbd) fn remove_status(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let global_id: ByteStr = input(bytes)?;
    forget(cx, &global_id);
    done()
}

/// Removes statuses whose writer no longer watches.
pub(in crate::rbd) fn remove_down(cx: &mut dyn ClassCx, _: Bytes) -> MethodResult {
    let watchers = cx.watchers();
    for prefix in [LOCAL, REMOTE] {
        for (suffix, value) in all(cx, prefix) {
            if !stored::<Stored>(value)?.is_up(&watchers) {
                remove(cx, format!("{prefix}{suffix}"));
            }
        }
    }
    done()
}

pub(in crate::rbd) fn get_status(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let statuses = Statuses::load(cx, &input(bytes)?, &cx.watchers())?;
    if statuses.is_empty() { fail(Errno::ENOENT) } else { Ok(statuses.to_bytes()) }
}

/// `str after, u64 max` -> images by id, and statuses of those that have one.
pub(in crate::rbd) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let watchers = cx.watchers();
    let found: BTreeMap<ByteStr, Image> = Image::page(cx, &after, count_max)?.into_iter().collect();
    let mut statuses = BTreeMap::new();
    for (id, image) in &found {
        let status = Statuses::load(cx, &image.global_id, &watchers)?;
        if !status.is_empty() {
            statuses.insert(id.clone(), status);
        }
    }
    output(|w| {
        w.put(&found);
        w.put(&statuses);
    })
}

/// `vec<peer>` -> how many images are in which state.
pub(in crate::rbd) fn summarize(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let peers = if bytes.is_empty() { Vec::new() } else { input(bytes)? };
    let (peers, watchers) = (Peers::new(peers), cx.watchers());
    let mut counts: BTreeMap<u8, i32> = BTreeMap::new();
    for image in Image::all(cx)? {
        let state = Statuses::load(cx, &image.global_id, &watchers)?.summary(&peers);
        *counts.entry(state).or_default() += 1;
    }
    output(|w| w.put(&counts))
}

/// `entity_inst_t` of the daemon that works on an image here, if it still watches.
fn instance(cx: &dyn ClassCx, global_id: &ByteStr, watchers: &[Caller]) -> Result<Option<Bytes>, Fault> {
    let Some(local) = find::<Stored>(cx, &local_key(global_id))? else { return fail(Errno::ENOENT) };
    if !local.is_up(watchers) {
        return Ok(None);
    }
    let mut w = Writer::new();
    w.put(&local.writer);
    w.put(&local.addr);
    Ok(Some(w.finish()))
}

pub(in crate::rbd) fn get_instance(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let global_id: ByteStr = input(bytes)?;
    instance(cx, &global_id, &cx.watchers())?.ok_or(Fault::Errno(Errno::ESTALE))
}

pub(in crate::rbd) fn list_instances(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let watchers = cx.watchers();
    let mut found = Vec::new();
    for (id, image) in Image::page(cx, &after, u64::MAX)? {
        if found.len() as u64 >= count_max {
            break;
        }
        if let Ok(Some(instance)) = instance(cx, &image.global_id, &watchers) {
            found.push((id, instance));
        }
    }
    output(|w| {
        w.count(found.len());
        for (id, instance) in &found {
            w.put(id);
            w.raw(instance);
        }
    })
}
