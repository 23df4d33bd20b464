//! [`VoidTickets`]: tickets that hold no more although they have not expired, since the key or the caps of their entity are others now.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AuthName, UTime};
use std::collections::BTreeMap;

/// Entities remembered one by one. With more, every ticket made so far is void: all fetch new ones.
pub const VOID_ENTITIES_MAX: usize = 16_384;

/// Which tickets are void, by when they were made. Kept until none of them could be valid any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VoidTickets {
    /// Tickets of this entity made before that moment; and when the last of them expires.
    of: BTreeMap<AuthName, (UTime, UTime)>,
    /// Tickets of all entities made before that moment.
    all: UTime,
}

impl VoidTickets {
    /// As a monitor tells them.
    #[must_use]
    pub fn told(of: BTreeMap<AuthName, UTime>, all: UTime) -> Self {
        Self { of: of.into_iter().map(|(name, made)| (name, (made, made))).collect(), all }
    }

    /// Makes the tickets of `name` void that were made before `made`; the last of them expires at `until`.
    pub fn add(&mut self, name: AuthName, made: UTime, until: UTime) {
        if self.of.len() >= VOID_ENTITIES_MAX && !self.of.contains_key(&name) {
            self.of.clear();
            self.all = made;
        } else {
            self.of.insert(name, (made, until));
        }
    }

    /// Whether a ticket is void.
    #[must_use]
    pub fn has(&self, name: &AuthName, made: UTime) -> bool {
        made < self.all || self.of.get(name).is_some_and(|(before, _)| made < *before)
    }

    /// Forgets what has expired in any case; true when there was some.
    pub fn expire(&mut self, wall: UTime) -> bool {
        let count = self.of.len();
        self.of.retain(|_, (_, until)| *until > wall);
        self.of.len() < count
    }

    /// The entities with the moment before which their tickets are void, and the same for all entities.
    #[must_use]
    pub fn to_tell(&self) -> (BTreeMap<AuthName, UTime>, UTime) {
        (self.of.iter().map(|(name, (made, _))| (name.clone(), *made)).collect(), self.all)
    }
}

impl Encode for VoidTickets {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.count(self.of.len());
        for (name, (made, until)) in &self.of {
            w.put(name);
            w.put(made);
            w.put(until);
        }
        w.put(&self.all);
    }
}

impl Decode for VoidTickets {
    const MIN_BYTES: usize = 1 + 4 + 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => (),
            version => return Err(DecodeError::Invalid { what: "void tickets", value: version.into() }),
        }
        let mut of = BTreeMap::new();
        for _ in 0..r.u32()? {
            of.insert(r.get()?, (r.get()?, r.get()?));
        }
        Ok(Self { of, all: r.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, client};

    #[test]
    fn what_was_made_before_is_void_until_it_would_have_expired() {
        let mut void = VoidTickets::default();
        void.add(client("a"), at(100), at(3700));
        assert!(void.has(&client("a"), at(99)) && !void.has(&client("a"), at(100)));
        assert!(!void.has(&client("b"), at(1)));
        assert_eq!(VoidTickets::from_bytes(void.to_bytes()), Ok(void.clone()));
        assert!(!void.expire(at(3699)) && void.expire(at(3700)));
        assert_eq!(void, VoidTickets::default());
    }

    #[test]
    fn with_too_many_to_remember_everybody_fetches_new_ones() {
        let mut void = VoidTickets::default();
        for nth in 0..=VOID_ENTITIES_MAX {
            void.add(client(&nth.to_string()), at(100), at(200));
        }
        assert!(void.has(&client("0"), at(99)) && void.has(&client("other"), at(99)));
        assert!(!void.has(&client("other"), at(100)));
        let (of, all) = void.to_tell();
        assert!(VoidTickets::told(of, all).has(&client("x"), at(1)));
    }
}
