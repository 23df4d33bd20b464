//! [`Recent`]: numbers of the objects asked for last. The ops of a transaction, and the reads before it, mostly are about one
//! object, and clients come back to theirs; to make the key of a name and look for it in three trees takes ten times as long.

use nacre_types::{HObject, SpgId};

/// Objects at most; the size of a table, a power of two.
const OBJECTS_MAX: usize = 1024;
const _: () = assert!(OBJECTS_MAX.is_power_of_two(), "places are the upper bits of a hash");

#[derive(Debug, Clone)]
struct Known {
    at: SpgId,
    name: HObject,
    id: u64,
}

/// As `==`. The three calls of memcmp that it comes to took a fifth of a microsecond (measured), more than all else here.
fn is_same(a: &HObject, b: &HObject) -> bool {
    (a.hash, a.snap, a.pool, a.max) == (b.hash, b.snap, b.pool, b.max)
        && are_same_bytes(&a.name, &b.name)
        && are_same_bytes(&a.key, &b.key)
        && are_same_bytes(&a.namespace, &b.namespace)
}

fn are_same_bytes(a: &[u8], b: &[u8]) -> bool {
    let ((words_a, rest_a), (words_b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.len() == b.len()
        && words_a.iter().zip(words_b).all(|(a, b)| a == b)
        && rest_a.iter().zip(rest_b).all(|(a, b)| a == b)
}

/// One object for each place, which its hash gives; the newest stays.
#[derive(Debug)]
pub(super) struct Recent(Vec<Option<Known>>);

impl Default for Recent {
    fn default() -> Self {
        Self(vec![None; OBJECTS_MAX])
    }
}

impl Recent {
    /// About how many bytes it takes.
    pub(super) const BYTES: usize = OBJECTS_MAX * (size_of::<Option<Known>>() + 64);

    /// The upper bits of the hash: the lower ones say which group it is, and are much the same for all of a group.
    fn place(name: &HObject) -> usize {
        (name.hash >> (u32::BITS - OBJECTS_MAX.ilog2())) as usize
    }

    pub(super) fn find(&self, at: &SpgId, name: &HObject) -> Option<u64> {
        let known = self.0.get(Self::place(name))?.as_ref()?;
        (is_same(&known.name, name) && known.at == *at).then_some(known.id)
    }

    pub(super) fn keep(&mut self, at: &SpgId, name: &HObject, id: u64) {
        if let Some(place) = self.0.get_mut(Self::place(name)) {
            *place = Some(Known { at: *at, name: name.detached(), id });
        }
    }

    /// The name is another object's from now on, or nobody's.
    pub(super) fn forget(&mut self, name: &HObject) {
        if let Some(place) = self.0.get_mut(Self::place(name)) {
            *place = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::PgId;

    #[test]
    fn names_of_one_place_displace_each_other_and_are_told_apart() {
        let at = SpgId::replicated(PgId::new(1, 0));
        let name = |text: &str| HObject { hash: 7, ..HObject::head(1, "".into(), "".into(), text.into()) };
        let mut recent = Recent::default();
        recent.keep(&at, &name("a"), 1);
        assert_eq!((recent.find(&at, &name("a")), recent.find(&at, &name("b"))), (Some(1), None));
        assert_eq!(recent.find(&SpgId::replicated(PgId::new(1, 1)), &name("a")), None);
        recent.keep(&at, &name("b"), 2);
        assert_eq!((recent.find(&at, &name("a")), recent.find(&at, &name("b"))), (None, Some(2)));
        recent.forget(&name("a"));
        assert_eq!(recent.find(&at, &name("b")), None);
    }

    #[test]
    fn names_are_compared_to_the_last_byte() {
        let name = |text: &str| HObject::head(1, "".into(), "".into(), text.into());
        for text in ["", "a", "12345678", "123456789"] {
            assert!(is_same(&name(text), &name(text)));
            for other in [format!("{text}x"), text.replace('8', "x"), text.replace('9', "x")] {
                let other = HObject { hash: name(text).hash, ..name(&other) };
                assert_eq!(is_same(&name(text), &other), name(text) == other);
            }
        }
        let (at, keyed) = (name("a"), HObject { key: "k".into(), ..name("a") });
        assert!(!is_same(&at, &keyed) && !is_same(&at, &HObject { namespace: "n".into(), ..name("a") }));
    }
}
