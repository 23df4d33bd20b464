//! [`Input`]: one step of a peer's handshake.

use nacre_buf::Bytes;

/// What a peer says in its handshake.
#[derive(Debug)]
pub(super) enum Input {
    Request { method: u32, modes: Vec<u32>, payload: Bytes },
    More { payload: Bytes },
}

impl Input {
    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Request { modes, payload, .. } => size_of_val(modes.as_slice()) + payload.len(),
            Self::More { payload } => payload.len(),
        }
    }
}
