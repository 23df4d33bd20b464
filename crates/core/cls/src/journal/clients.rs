//! Methods about a journal's clients: which read or write it, and how far each has come.

use super::client::{Client, PREFIX, Position, Positions, key};
use super::{ORDER, SPLAY_WIDTH, tags};
use crate::keys::{get, input, output, page, page_input, remove};
use crate::method::{done, fail};
use crate::{ClassCx, Fault, MethodResult};
use nacre_buf::{ByteStr, Bytes};
use nacre_denc::Encode;
use nacre_types::Errno;

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
