//! [`RotatingKeys`]: the previous, current and next secret of one service.

use crate::{ChangedCaps, CryptoKey, VoidTickets};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{Entropy, UTime};
use std::collections::BTreeMap;
use std::time::Duration;

/// Secrets kept per service; Ceph `KEY_ROTATE_NUM`.
pub const ROTATING_KEYS_MAX: usize = 3;

/// How long after the end of the current key a service waits for the monitor to rotate.
const REFRESH_DELAY_MAX: Duration = Duration::from_secs(30);

/// A key and the moment after which tickets are no longer made with it. Ceph `ExpiringCryptoKey`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiringKey {
    /// The service's secret.
    pub key: CryptoKey,
    /// When the next one takes over.
    pub expires: UTime,
}

impl Encode for ExpiringKey {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.key);
        w.put(&self.expires);
    }
}

impl Decode for ExpiringKey {
    const MIN_BYTES: usize = 1 + CryptoKey::MIN_BYTES + 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { key: r.get()?, expires: r.get()? })
    }
}

/// The secrets of one service, shared by the monitors and all daemons of that service. Ceph `RotatingSecrets`.
///
/// ```text
///        previous        current         next
///   ..---------------|--------------|--------------|   each ends one ticket lifetime after the one before
///     tickets still    tickets are    known to the
///     accepted         made with it   services already
/// ```
/// A service refreshes its copy when `current` has ended; new tickets are then made with `next`, which it knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotatingKeys {
    keys: BTreeMap<u64, ExpiringKey>,
    max_id: u64,
    /// Tickets that are void although these keys open them. Travels and is kept apart.
    void: VoidTickets,
    /// Caps that tickets say otherwise. Likewise.
    caps: ChangedCaps,
}

impl RotatingKeys {
    /// No keys yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One key that is used for as long as it is there.
    pub(crate) fn only(id: u64, key: CryptoKey) -> Self {
        let secret = ExpiringKey { key, expires: UTime { sec: u32::MAX, nsec: 0 } };
        Self { keys: BTreeMap::from([(id, secret)]), max_id: id, ..Self::default() }
    }

    /// With these tickets void.
    #[must_use]
    pub fn with_void(self, void: VoidTickets) -> Self {
        Self { void, ..self }
    }

    /// The tickets that are void.
    #[must_use]
    pub const fn void(&self) -> &VoidTickets {
        &self.void
    }

    /// With these caps, whatever tickets say.
    #[must_use]
    pub fn with_caps(self, caps: ChangedCaps) -> Self {
        Self { caps, ..self }
    }

    /// The caps that tickets say otherwise.
    #[must_use]
    pub const fn caps(&self) -> &ChangedCaps {
        &self.caps
    }

    /// True when there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of this id.
    #[must_use]
    pub fn key(&self, id: u64) -> Option<&CryptoKey> {
        self.keys.get(&id).map(|secret| &secret.key)
    }

    /// All keys, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &ExpiringKey)> {
        self.keys.iter().map(|(id, secret)| (*id, secret))
    }

    fn second_oldest(&self) -> Option<(u64, &ExpiringKey)> {
        self.iter().nth(1)
    }

    /// Id and key that new tickets are made with: the second oldest, or the newest when that has ended.
    #[must_use]
    pub fn current(&self, wall: UTime) -> Option<(u64, &CryptoKey)> {
        let current = self.second_oldest().filter(|(_, secret)| wall <= secret.expires);
        let newest = || self.iter().last();
        current.or_else(newest).map(|(id, secret)| (id, &secret.key))
    }

    /// True when the monitor must [`RotatingKeys::rotate`].
    #[must_use]
    pub fn needs_rotation(&self, wall: UTime) -> bool {
        self.next_rotation().is_none_or(|at| at <= wall)
    }

    /// When the current key ends; `None` when there are too few keys, so at once.
    #[must_use]
    pub fn next_rotation(&self) -> Option<UTime> {
        let full = self.keys.len() >= ROTATING_KEYS_MAX;
        self.second_oldest().filter(|_| full).map(|(_, secret)| secret.expires)
    }

    /// When a service asks for newer keys: soon after the current one has ended, when the monitor has made
    /// a new one. Until then tickets come with the next key, which the service has already.
    #[must_use]
    pub fn refresh_after(&self) -> UTime {
        let ends: Vec<UTime> = self.keys.values().map(|secret| secret.expires).collect();
        match ends.as_slice() {
            [_, current, next] => current.after((next.since(*current) / 4).min(REFRESH_DELAY_MAX)),
            _ => UTime::ZERO,
        }
    }

    /// Adds keys until there are three and the current one has not ended; says whether it did.
    pub fn rotate(&mut self, wall: UTime, lifetime: Duration, entropy: &mut dyn Entropy) -> bool {
        let mut changed = false;
        while self.needs_rotation(wall) {
            let newest = self.keys.values().next_back().map(|secret| secret.expires);
            let start = newest.map_or(wall, |expires| expires.max(wall.after(lifetime)));
            let key = CryptoKey::generate(entropy, wall);
            self.push(ExpiringKey { key, expires: start.after(lifetime) });
            changed = true;
        }
        changed
    }

    fn push(&mut self, secret: ExpiringKey) {
        self.max_id += 1;
        self.keys.insert(self.max_id, secret);
        while self.keys.len() > ROTATING_KEYS_MAX {
            self.keys.pop_first();
        }
    }
}

impl Encode for RotatingKeys {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.keys);
        w.u64(self.max_id);
    }
}

impl Decode for RotatingKeys {
    const MIN_BYTES: usize = 13;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8()?;
        Ok(Self { keys: r.get()?, max_id: r.u64()?, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use nacre_types::entropy::SeededEntropy;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn keys_move_from_next_to_current_to_previous() {
        let mut keys = RotatingKeys::new();
        let mut entropy = SeededEntropy(1);
        assert!(keys.rotate(at(1000), HOUR, &mut entropy));
        let ends: Vec<_> = keys.iter().map(|(id, secret)| (id, secret.expires.sec)).collect();
        assert_eq!(ends, [(1, 1000 + 3600), (2, 1000 + 7200), (3, 1000 + 10800)]);
        assert_eq!(keys.current(at(1000)).map(|(id, _)| id), Some(2));
        assert!(!keys.rotate(at(8000), HOUR, &mut entropy), "the current key lasts until 8200");
        assert_eq!(keys.current(at(8201)).map(|(id, _)| id), Some(3), "an unrotated ring uses the next key");
        assert!(keys.rotate(at(8200), HOUR, &mut entropy));
        assert_eq!(keys.iter().map(|(id, _)| id).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(keys.current(at(8200)).map(|(id, _)| id), Some(3));
    }

    #[test]
    fn a_service_refreshes_when_the_current_key_has_ended() {
        let mut keys = RotatingKeys::new();
        assert_eq!(keys.refresh_after(), UTime::ZERO);
        keys.rotate(at(1000), HOUR, &mut SeededEntropy(1));
        assert_eq!(keys.refresh_after(), at(8200 + 30));
        assert_eq!(RotatingKeys::from_bytes(keys.to_bytes()), Ok(keys));
    }
}
