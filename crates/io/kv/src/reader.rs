//! [`KvReader`]: pairs of a store as of one moment, a part at a time.

use crate::{KvError, Pair};
use std::sync::mpsc::sync_channel;
use std::thread;

/// Pairs in ascending order of their keys, all of the same moment.
pub trait KvReader {
    /// The next pairs, as many as take some `bytes`: the last one may be longer. None are left when it yields none.
    ///
    /// # Errors
    /// [`KvError`] when the device fails.
    fn read(&mut self, bytes: usize) -> Result<Vec<Pair>, KvError>;
}

/// Gives `take` all pairs of a reader, those of some `bytes` at a time, while a thread reads the next; none in the end. Where `take` fails,
/// this ends when the part that is being read has come.
///
/// # Errors
/// Those of `take`, and [`KvError`] when the device fails or there can be no thread.
pub fn read_ahead<E: From<KvError>>(
    mut reader: Box<dyn KvReader + Send>,
    bytes: usize,
    mut take: impl FnMut(Vec<Pair>) -> Result<(), E>,
) -> Result<(), E> {
    thread::scope(|scope| {
        let (ahead, taken) = sync_channel(1);
        let read = move || loop {
            let pairs = reader.read(bytes);
            let is_last = pairs.as_ref().map_or(true, Vec::is_empty);
            // Nobody takes any more where `take` has failed.
            if ahead.send(pairs).is_err() || is_last {
                return;
            }
        };
        let builder = thread::Builder::new().name("kv-ahead".to_owned());
        builder.spawn_scoped(scope, read).map_err(KvError::Device)?;
        taken.into_iter().try_for_each(|pairs| take(pairs?))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, KvBatch, KvStore, MemoryKv};
    use std::ops::Bound::Unbounded;

    fn of(count: u32) -> Box<dyn KvReader + Send> {
        let (mut kv, mut batch) = (MemoryKv::new(), KvBatch::default());
        (0..count).for_each(|n| batch.put(n.to_be_bytes().to_vec(), vec![0; 10]));
        kv.commit(&batch, Durability::Durable).expect("healthy");
        kv.reader(Unbounded, Unbounded).expect("healthy")
    }

    #[test]
    fn all_pairs_come_in_order_and_a_part_at_a_time() {
        let (mut seen, mut parts) = (Vec::new(), 0);
        read_ahead(of(1000), 150, |pairs| {
            parts += usize::from(!pairs.is_empty());
            seen.extend(pairs.into_iter().map(|(key, _)| key));
            Ok::<_, KvError>(())
        })
        .expect("healthy");
        assert!(seen.into_iter().eq((0..1000_u32).map(|n| n.to_be_bytes().to_vec())));
        assert_eq!(parts, 100);
    }

    #[test]
    fn it_ends_when_no_more_is_wanted_and_when_the_device_fails() {
        let mut parts = 0;
        let ended = read_ahead(of(1000), 150, |_| {
            parts += 1;
            if parts < 3 { Ok(()) } else { Err(KvError::Misuse("enough".to_owned())) }
        });
        assert!(matches!(ended, Err(KvError::Misuse(_))) && parts == 3, "{ended:?} after {parts}");

        struct Failing;
        impl KvReader for Failing {
            fn read(&mut self, _: usize) -> Result<Vec<Pair>, KvError> {
                Err(KvError::Damaged("page 7".to_owned()))
            }
        }
        let ended = read_ahead(Box::new(Failing), 150, |_| Ok::<_, KvError>(()));
        assert!(matches!(ended, Err(KvError::Damaged(_))), "{ended:?}");
    }
}
