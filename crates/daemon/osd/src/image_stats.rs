//! [`ImageStats`]: counts operations by image, as our own manager asks for it (`nacre_msg::image_query`), and remembers what images are called.
//!
//! The manager always asks, so this is on the way of every answer: an object's name is looked at as bytes, without the patterns of other
//! queries, and an image that is known costs a search among those that were used since the last report.

use crate::counted_op::{CountedOp, KEYS_MAX, Sums};
use nacre_buf::{ByteStr, Bytes};
use nacre_msg::{PerfKey, QueryCounter, image_query};
use nacre_types::{PgId, PoolId};
use std::collections::BTreeMap;

/// Bytes of an image's id, of its name and of its namespace; longer ones are not counted.
const ID_BYTES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 256;

/// An image: its own pool, its namespace and its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ImageKey {
    pool: PoolId,
    namespace: Bytes,
    id: Bytes,
}

impl ImageKey {
    fn parts(&self) -> (PoolId, &[u8], &[u8]) {
        (self.pool, &self.namespace, &self.id)
    }

    /// So that names do not keep the frames in memory that they came in.
    fn detached((pool, namespace, id): (PoolId, &[u8], &[u8])) -> Self {
        Self { pool, namespace: Bytes::copy_from_slice(namespace), id: Bytes::copy_from_slice(id) }
    }

    /// As a manager has it; what follows belongs to the last part.
    fn to_perf_key(&self, last: Vec<Bytes>) -> PerfKey {
        vec![vec![Bytes::from(self.pool.to_string())], vec![self.namespace.clone()], last]
    }
}

/// What an image is called, and whether the manager knows it.
#[derive(Debug)]
struct Name {
    name: Bytes,
    is_told: bool,
}

/// Of one shard.
#[derive(Debug)]
pub(crate) struct ImageStats {
    counters: Vec<QueryCounter>,
    /// In the order of their keys.
    images: Vec<(ImageKey, Sums)>,
    names: BTreeMap<ImageKey, Name>,
}

impl Default for ImageStats {
    fn default() -> Self {
        Self { counters: image_query().counters, images: Vec::new(), names: BTreeMap::new() }
    }
}

/// The image's pool, where that is not the object's, and the id in the name of an object with an image's data.
pub(crate) fn image_of(name: &[u8]) -> Option<(Option<PoolId>, &[u8])> {
    let rest = name.strip_prefix(b"rbd_data.").or_else(|| name.strip_prefix(b"journal_data."))?;
    let (first, rest) = split(rest)?;
    // `rbd_data.7.10b.0000` lies apart from its image, `rbd_data.10b.0000` does not.
    match (split(rest), number(first)) {
        (Some((id, _)), Some(pool)) => Some((Some(pool), id)),
        _ => Some((None, first)),
    }
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'.')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn number(text: &[u8]) -> Option<PoolId> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl ImageStats {
    /// An operation was answered.
    pub(crate) fn add(&mut self, op: &CountedOp<'_>) {
        let Some((pool, id)) = image_of(op.name.as_ref()) else { return };
        let namespace: &[u8] = op.namespace.as_ref();
        if id.len() > ID_BYTES_MAX || namespace.len() > NAME_BYTES_MAX {
            return;
        }
        let key = (pool.unwrap_or(op.pg.pool), namespace, id);
        let at = match self.images.binary_search_by(|(image, _)| image.parts().cmp(&key)) {
            Ok(at) => at,
            Err(_) if self.images.len() >= KEYS_MAX => return,
            Err(at) => {
                let sums = vec![(0, 0); self.counters.len()];
                self.images.insert(at, (ImageKey::detached(key), sums));
                at
            }
        };
        if let Some((_, sums)) = self.images.get_mut(at) {
            op.add_to(sums, &self.counters);
        }
    }

    /// An operation on an object was answered with this. Who opens an image asks the object `rbd_id.NAME` for its id: a length and as many
    /// bytes.
    pub(crate) fn learn(&mut self, pg: PgId, namespace: &ByteStr, object: &ByteStr, answer: &[u8]) {
        let Some(name) = object.as_ref().strip_prefix(b"rbd_id.") else { return };
        let Some((length, id)) = answer.split_first_chunk() else { return };
        let fits = usize::try_from(u32::from_le_bytes(*length)) == Ok(id.len())
            && (1..=ID_BYTES_MAX).contains(&id.len())
            && id.iter().all(u8::is_ascii_alphanumeric)
            && name.len() <= NAME_BYTES_MAX
            && namespace.as_ref().len() <= NAME_BYTES_MAX;
        let key = ImageKey::detached((pg.pool, namespace.as_ref(), if fits { id } else { &[] }));
        let has_room = self.names.len() < KEYS_MAX || self.names.contains_key(&key);
        if fits && has_room && self.names.get(&key).is_none_or(|known| known.name != name) {
            self.names.insert(key, Name { name: Bytes::copy_from_slice(name), is_told: false });
        }
    }

    /// Another manager asks: it knows no names.
    pub(crate) fn tell_again(&mut self) {
        self.names.values_mut().for_each(|name| name.is_told = false);
    }

    /// What was counted since this was called last.
    pub(crate) fn take_sums(&mut self) -> BTreeMap<PerfKey, Sums> {
        let sums = std::mem::take(&mut self.images).into_iter();
        sums.map(|(image, sums)| (image.to_perf_key(vec![Bytes::new(), image.id.clone()]), sums)).collect()
    }

    /// Names that were not told yet, each behind its image's id.
    pub(crate) fn take_names(&mut self) -> BTreeMap<PerfKey, Sums> {
        let untold = self.names.iter_mut().filter(|(_, name)| !name.is_told);
        untold
            .map(|(image, name)| {
                name.is_told = true;
                (image.to_perf_key(vec![image.id.clone(), name.name.clone()]), Vec::new())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_tell_the_image() {
        let of = |name: &'static str| {
            image_of(name.as_bytes()).map(|(pool, id)| (pool, String::from_utf8_lossy(id)))
        };
        assert_eq!(of("rbd_data.10b.0000000000000000"), Some((None, "10b".into())));
        assert_eq!(of("rbd_data.7.10b.0000000000000000"), Some((Some(7), "10b".into())));
        assert_eq!(of("journal_data.7.10b.3"), Some((Some(7), "10b".into())));
        assert_eq!([of("rbd_header.10b"), of("rbd_data."), of("rbd_data.10b"), of("x")], [const { None }; 4]);
    }

    #[test]
    fn an_image_is_called_as_its_id_was_looked_up() {
        let mut stats = ImageStats::default();
        let (pg, space) = (PgId::new(3, 0), ByteStr::from(&b"space"[..]));
        let mut learn = |object: &str, answer: &[u8]| {
            stats.learn(pg, &space, &ByteStr::from(object.as_bytes()), answer);
            stats.take_names().into_keys().map(|key| key[2].clone()).collect::<Vec<_>>()
        };
        let told = vec![vec![Bytes::from_static(b"10b"), Bytes::from_static(b"disk")]];
        assert_eq!(learn("rbd_id.disk", b"\x03\0\0\x0010b"), told);
        assert!(learn("rbd_id.disk", b"\x03\0\0\x0010b").is_empty(), "it is told once");
        assert!(learn("rbd_id.disk", b"\x04\0\0\x0010b").is_empty(), "no id");
        assert!(learn("rbd_id.disk", b"\x03\0\0\x001\n0").is_empty(), "no id of librbd's");
        assert!(learn("disk", b"\x03\0\0\x0010c").is_empty());
        let renamed = vec![vec![Bytes::from_static(b"10b"), Bytes::from_static(b"new")]];
        assert_eq!(learn("rbd_id.new", b"\x03\0\0\x0010b"), renamed);
        stats.tell_again();
        assert_eq!(stats.take_names().len(), 1, "to the next manager");
        for number in 0..KEYS_MAX + 5 {
            let id = number.to_string();
            let answer = [&u32::try_from(id.len()).expect("short").to_le_bytes(), id.as_bytes()].concat();
            stats.learn(pg, &space, &ByteStr::from(&b"rbd_id.x"[..]), &answer);
        }
        assert_eq!(stats.names.len(), KEYS_MAX);
    }
}
