//! Clients of a journal: who reads or writes it, and how far each has come.

use super::{ORDER, SPLAY_WIDTH, tags};
use crate::keys::{all, get, input, output, page, page_input, remove, set, stored};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::Errno;

const PREFIX: &str = "client_";
/// State of a client that no longer holds back trimming.
const DISCONNECTED: u8 = 1;

/// `cls::journal::ObjectPosition`: one entry of the journal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    object_number: u64,
    pub(super) tag_tid: u64,
    entry_tid: u64,
}

impl Encode for Position {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u64(self.object_number);
            w.u64(self.tag_tid);
            w.u64(self.entry_tid);
        });
    }
}

impl Decode for Position {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ObjectPosition", 1, |_, r| {
            Ok(Self { object_number: r.u64()?, tag_tid: r.u64()?, entry_tid: r.u64()? })
        })
    }
}

/// `cls::journal::ObjectSetPosition`: what a client has committed, newest entry first.
#[derive(Clone, Default, PartialEq, Eq)]
struct Positions(Vec<Position>);

impl Encode for Positions {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.0));
    }
}

impl Decode for Positions {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ObjectSetPosition", 1, |_, r| Ok(Self(r.get()?)))
    }
}

/// `cls::journal::Client`
pub(super) struct Client {
    pub(super) id: ByteStr,
    data: Bytes,
    committed: Positions,
    state: u8,
}

impl Encode for Client {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.id);
            w.put(&self.data);
            w.put(&self.committed);
            w.u8(self.state);
        });
    }
}

impl Decode for Client {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Client", 1, |_, r| {
            Ok(Self { id: r.get()?, data: r.get()?, committed: r.get()?, state: r.u8()? })
        })
    }
}

fn key(id: &ByteStr) -> String {
    format!("{PREFIX}{id}")
}

impl Client {
    pub(super) fn load(cx: &dyn ClassCx, id: &ByteStr) -> Result<Self, Fault> {
        get(cx, &key(id))
    }

    pub(super) fn all(cx: &dyn ClassCx) -> Result<Vec<Self>, Fault> {
        all(cx, PREFIX).into_iter().map(|(_, value)| stored(value)).collect()
    }

    fn save(&self, cx: &mut dyn ClassCx) {
        set(cx, key(&self.id), self);
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.state == DISCONNECTED
    }

    /// Entries up to which this client needs nothing any more.
    pub(super) fn committed(&self) -> &[Position] {
        &self.committed.0
    }
}

pub(super) fn get_client(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    Ok(Client::load(cx, &input(bytes)?)?.to_bytes())
}

/// The least that any client has committed: where a new one begins.
fn least_committed(cx: &dyn ClassCx) -> Result<Positions, Fault> {
    let mut least: Option<(Position, Positions)> = None;
    for client in Client::all(cx)? {
        let Some(first) = client.committed.0.first().copied() else { return Ok(Positions::default()) };
        let place = |position: &Position| (position.tag_tid, position.entry_tid);
        if least.as_ref().is_none_or(|(old, _)| place(&first) < place(old)) {
            least = Some((first, client.committed));
        }
    }
    Ok(least.map(|(_, positions)| positions).unwrap_or_default())
}

pub(super) fn register(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, data): (ByteStr, Bytes) = input(bytes)?;
    get::<u8>(cx, ORDER)?;
    if cx.omap_value(key(&id).as_bytes()).is_some() {
        return fail(Errno::EEXIST);
    }
    let committed = least_committed(cx)?;
    Client { id, data, committed, state: 0 }.save(cx);
    done()
}

pub(super) fn update_data(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, data): (ByteStr, Bytes) = input(bytes)?;
    let mut client = Client::load(cx, &id)?;
    client.data = data;
    client.save(cx);
    done()
}

pub(super) fn update_state(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, state): (ByteStr, u8) = input(bytes)?;
    let mut client = Client::load(cx, &id)?;
    client.state = state;
    client.save(cx);
    done()
}

pub(super) fn unregister(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let id: ByteStr = input(bytes)?;
    if cx.omap_value(key(&id).as_bytes()).is_none() {
        return fail(Errno::ENOENT);
    }
    remove(cx, key(&id));
    tags::expire(cx, Some(&id))?;
    done()
}

pub(super) fn commit(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (id, committed): (ByteStr, Positions) = input(bytes)?;
    // A position per object that is written at a time.
    if committed.0.len() > usize::from(get::<u8>(cx, SPLAY_WIDTH)?) {
        return fail(Errno::EINVAL);
    }
    let mut client = Client::load(cx, &id)?;
    if client.committed != committed {
        client.committed = committed;
        client.save(cx);
    }
    done()
}

pub(super) fn list(cx: &mut dyn ClassCx, bytes: Bytes) -> MethodResult {
    let (after, count_max) = page_input(bytes)?;
    let found = if after.is_empty() {
        // librbd's own client has an empty id.
        cx.omap_after(b"", PREFIX.as_bytes(), usize::try_from(count_max).unwrap_or(usize::MAX)).0
    } else {
        page(cx, PREFIX, &after, count_max)
    };
    output(|w| {
        w.count(found.len());
        found.iter().for_each(|(_, client)| w.raw(client));
    })
}
