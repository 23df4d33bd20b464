//! A member's answer to a scrub: its part of a chunk.

use super::{ANSWER_OBJECTS_MAX, Compared, Scrub};
use crate::digest::{Digests, Reading};
use crate::state::PgState;
use crate::tokens::OnFetched;
use crate::{Cx, Effect};
use nacre_msg::peer::{ScrubObject, ScrubReply, ScrubRequest};
use nacre_txn::{FetchFrom, ReadError};
use nacre_types::OsdId;

impl Scrub {
    /// Lists this copy's part of a chunk for the member that compares; if that is this one, as [`Scrub::on_reply`].
    pub(crate) fn answer(
        &mut self,
        state: &mut PgState,
        cx: &mut Cx<'_>,
        from: OsdId,
        request: &ScrubRequest,
        mut so_far: Digests,
    ) -> Option<Compared> {
        let objects = cx.view.list(&state.spg, &request.from, ANSWER_OBJECTS_MAX);
        let inside = objects.into_iter().take_while(|object| *object < request.to);
        let inside = inside.filter(|object| !state.is_hidden(object));
        let coding = state.ec.as_ref().map(|ec| &*ec.coding);
        let reading = Reading { view: cx.view, spg: state.spg, deep: request.deep, coding };
        let digests: Result<Vec<ScrubObject>, ReadError> =
            inside.map(|object| so_far.digest(&reading, object)).collect();
        match digests {
            Ok(objects) => {
                let reply = ScrubReply { header: state.header(), tid: request.tid, objects };
                if from == state.whoami {
                    self.note_large_omaps(&so_far);
                    return self.on_reply(state, cx, from, reply);
                }
                state.send(cx, from, reply);
            }
            Err(ReadError::Pending { object, offset, length }) => {
                let request = Box::new(request.clone());
                let token = state.tokens.issue_fetch(OnFetched::Scrub { from, request, so_far });
                cx.effects.push(Effect::Fetch { object, offset, length, from: FetchFrom::Device, token });
            }
            Err(ReadError::Damaged { .. }) => unreachable!("damage is part of a digest"),
        }
        None
    }
}
