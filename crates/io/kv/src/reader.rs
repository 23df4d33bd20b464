//! [`KvReader`]: pairs of a store as of one moment, a part at a time.

use crate::{KvError, Pair};

/// Pairs in ascending order of their keys, all of the same moment.
pub trait KvReader {
    /// The next pairs, as many as take some `bytes`: the last one may be longer. None are left when it yields none.
    ///
    /// # Errors
    /// [`KvError`] when the device fails.
    fn read(&mut self, bytes: usize) -> Result<Vec<Pair>, KvError>;
}

impl KvReader for std::vec::IntoIter<Pair> {
    fn read(&mut self, bytes: usize) -> Result<Vec<Pair>, KvError> {
        fill(bytes, || Ok(self.next()))
    }
}

/// Takes pairs from `next` until they have so many bytes.
pub(crate) fn fill<E>(
    bytes: usize,
    mut next: impl FnMut() -> Result<Option<Pair>, E>,
) -> Result<Vec<Pair>, E> {
    let (mut pairs, mut taken) = (Vec::new(), 0);
    while taken < bytes.max(1)
        && let Some((key, value)) = next()?
    {
        taken += 1 + key.len() + value.len();
        pairs.push((key, value));
    }
    Ok(pairs)
}
