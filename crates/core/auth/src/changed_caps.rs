//! [`ChangedCaps`]: what entities may do by now, for tickets that say otherwise since they were made before.

use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AuthName, UTime};
use std::collections::BTreeMap;

/// Most entities whose caps or keys have changed that are remembered.
pub const CHANGED_ENTITIES_MAX: usize = 4096;
/// Bytes of their caps, in all.
pub const CHANGED_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Changed {
    /// Tickets made later say the same.
    since: UTime,
    /// When the last ticket made before has expired.
    until: UTime,
    caps: String,
}

/// Caps of one service that have changed, until no ticket with the earlier ones could be valid any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedCaps {
    of: BTreeMap<AuthName, Changed>,
    bytes: usize,
}

impl ChangedCaps {
    /// As a monitor tells them.
    #[must_use]
    pub fn told(of: BTreeMap<AuthName, (UTime, String)>) -> Self {
        let mut told = Self::default();
        for (name, (since, caps)) in of {
            told.insert(name, Changed { since, until: since, caps });
        }
        told
    }

    fn insert(&mut self, name: AuthName, changed: Changed) {
        self.bytes += changed.caps.len();
        let before = self.of.insert(name, changed);
        self.bytes -= before.map_or(0, |before| before.caps.len());
    }

    fn remove(&mut self, name: &AuthName) {
        self.bytes -= self.of.remove(name).map_or(0, |before| before.caps.len());
    }

    /// From `since` on, `name` has these caps; the last ticket that says otherwise expires at `until`. Yields entities for which
    /// there is no room any more: their tickets must be void, as no daemon would know what they may do.
    #[must_use]
    pub fn add(&mut self, name: AuthName, since: UTime, until: UTime, caps: String) -> Vec<AuthName> {
        self.insert(name, Changed { since, until, caps });
        let mut displaced = Vec::new();
        while self.of.len() > CHANGED_ENTITIES_MAX || self.bytes > CHANGED_BYTES_MAX {
            let oldest = self.of.iter().min_by_key(|(_, changed)| changed.since);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { break };
            self.remove(&name);
            displaced.push(name);
        }
        displaced
    }

    /// What the holder of a ticket of `name` may do, if that is not what the ticket says, which was made at `made`.
    #[must_use]
    pub fn of(&self, name: &AuthName, made: UTime) -> Option<&str> {
        // A ticket made in the same moment, but behind the change, says the same.
        self.of.get(name).filter(|changed| made <= changed.since).map(|changed| changed.caps.as_str())
    }

    /// Forgets what no valid ticket contradicts any more; true when there was some.
    pub fn expire(&mut self, wall: UTime) -> bool {
        let count = self.of.len();
        let gone = self.of.extract_if(.., |_, changed| changed.until <= wall);
        self.bytes -= gone.map(|(_, changed)| changed.caps.len()).sum::<usize>();
        self.of.len() < count
    }

    /// By entity, since when it has which caps.
    #[must_use]
    pub fn to_tell(&self) -> BTreeMap<AuthName, (UTime, String)> {
        self.of.iter().map(|(name, changed)| (name.clone(), (changed.since, changed.caps.clone()))).collect()
    }
}

impl Encode for ChangedCaps {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.count(self.of.len());
        for (name, changed) in &self.of {
            w.put(name);
            w.put(&changed.since);
            w.put(&changed.until);
            w.put(&changed.caps);
        }
    }
}

impl Decode for ChangedCaps {
    const MIN_BYTES: usize = 1 + 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => (),
            version => return Err(DecodeError::Invalid { what: "changed caps", value: version.into() }),
        }
        let mut all = Self::default();
        for _ in 0..r.u32()? {
            let (name, since, until, caps) = (r.get()?, r.get()?, r.get()?, r.get()?);
            all.insert(name, Changed { since, until, caps });
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, client};

    #[test]
    fn tickets_from_before_a_change_say_what_they_said_no_longer() {
        let mut caps = ChangedCaps::default();
        assert!(caps.add(client("a"), at(100), at(3700), "allow r".to_owned()).is_empty());
        assert_eq!(caps.of(&client("a"), at(99)), Some("allow r"));
        assert_eq!((caps.of(&client("a"), at(101)), caps.of(&client("b"), at(1))), (None, None));
        assert!(caps.add(client("a"), at(200), at(3800), "allow rw".to_owned()).is_empty());
        assert_eq!(caps.of(&client("a"), at(150)), Some("allow rw"), "the newest");
        assert_eq!(ChangedCaps::from_bytes(caps.to_bytes()), Ok(caps.clone()));
        assert_eq!(ChangedCaps::told(caps.to_tell()).of(&client("a"), at(200)), Some("allow rw"));
        assert!(!caps.expire(at(3799)) && caps.expire(at(3800)));
        assert_eq!(caps, ChangedCaps::default());
    }

    #[test]
    fn who_finds_no_room_is_told_to_be_shut_out() {
        let mut caps = ChangedCaps::default();
        for nth in 0..CHANGED_ENTITIES_MAX {
            let since = at(100 + u32::try_from(nth).expect("small"));
            assert!(caps.add(client(&nth.to_string()), since, at(9000), "allow r".to_owned()).is_empty());
        }
        assert_eq!(caps.add(client("more"), at(8000), at(9000), String::new()), [client("0")]);
        let long = "x".repeat(CHANGED_BYTES_MAX);
        let displaced = caps.add(client("long"), at(8001), at(9000), long);
        assert_eq!(displaced.len(), CHANGED_ENTITIES_MAX - 1, "all but one that has no caps");
    }
}
