//! [`Workspace`]: memory that a connection needs while it is worked on, and that all connections of a thread take turns with.

/// Emptied chunks kept for reuse: a message with a payload takes one, and a burst has many.
pub(crate) const SPARE_COUNT_MAX: usize = 256;

/// The buffer that sockets are read into, and emptied chunks of frames that were sent. Thousands of connections that each had their own
/// would hold more memory than all else, and cold memory at that. Connections that were never lent one have their own.
#[derive(Debug, Default)]
pub struct Workspace {
    pub(crate) staging: Vec<u8>,
    pub(crate) chunks: Vec<Vec<u8>>,
}

impl Workspace {
    /// Bytes of memory that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.staging.capacity() + self.chunks.iter().map(Vec::capacity).sum::<usize>()
    }

    /// Gives its memory back; it is taken anew when it is needed.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
