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

    /// The upper bits of the hash: the lower ones say which PG it is, and are much the same for all of a PG.
    fn place(name: &HObject) -> usize {
        (name.hash >> (u32::BITS - OBJECTS_MAX.ilog2())) as usize
    }

    pub(super) fn find(&self, at: &SpgId, name: &HObject) -> Option<u64> {
        let known = self.0.get(Self::place(name))?.as_ref()?;
        (known.name == *name && known.at == *at).then_some(known.id)
    }

    pub(super) fn keep(&mut self, at: &SpgId, name: &HObject, id: u64) {
        if let Some(place) = self.0.get_mut(Self::place(name)) {
            *place = Some(Known { at: *at, name: name.detached(), id });
        }
    }

    /// The collection is no more.
    pub(super) fn forget_all(&mut self, at: &SpgId) {
        for known in self.0.iter_mut().filter(|known| known.as_ref().is_some_and(|known| known.at == *at)) {
            *known = None;
        }
    }

    /// The name is another object's from now on, or nobody's.
    pub(super) fn forget(&mut self, name: &HObject) {
        if let Some(place) = self.0.get_mut(Self::place(name)) {
            // Another one may have its place: a clone's is that of its head.
            drop(place.take_if(|known| known.name == *name));
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
        assert_eq!(recent.find(&at, &name("b")), Some(2), "the other one of the place stays");
        recent.forget(&name("b"));
        assert_eq!(recent.find(&at, &name("b")), None);
    }
}
