//! [`Reader`]: who looks at the web page beyond this machine, by a cephx key.

use crate::state::State;
use nacre_auth::{CryptoKey, MonCaps, Rwx};
use nacre_types::{AuthName, EntityKind};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The command that shows the same to programs: who may give it may look at the page.
const COMMAND: &str = "nacre overview";
/// The service whose caps it asks for, as `bill` does, which names images and clients as well: profiles of clients have none of it, as what
/// one tenant has is not for others to see.
const SERVICE: &str = "mgr";
/// Bytes of an entity's name.
const NAME_BYTES_MAX: usize = 128;

/// An entity by its own word, with the key that it shows for it. It is proved anew with each look: an entity that is removed, gets another
/// key or loses its caps sees nothing more.
#[derive(Debug, Clone)]
pub struct Reader {
    /// Such as `client.admin`.
    pub name: AuthName,
    key: CryptoKey,
    /// Where it comes from: caps may be for some networks only.
    from: IpAddr,
}

impl Reader {
    /// From what a person has typed in: an entity's name, a client's without `client.` as well, and its key as a keyring has it. `None`
    /// when that is no name or no key.
    #[must_use]
    pub fn parse(name: &str, key: &str, from: IpAddr) -> Option<Self> {
        let name = name.trim();
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return None;
        }
        let name = AuthName::parse(name).unwrap_or_else(|| AuthName::new(EntityKind::CLIENT, name));
        Some(Self { name, key: CryptoKey::parse(key).ok()?, from })
    }

    /// The same, coming from there now.
    #[must_use]
    pub fn seen_from(self, from: IpAddr) -> Self {
        Self { from, ..self }
    }

    /// Whether the key is the entity's by now, and its caps for the monitors let it see what the page shows.
    #[must_use]
    pub fn may_read(&self, state: &State) -> bool {
        let entity = state.auth.keys().entity(&self.name);
        let is_its_key = entity.is_some_and(|entity| entity.key.has_secret_of(&self.key));
        let caps = state.auth.keys().caps_of(&self.name, EntityKind::MON).unwrap_or_default();
        let caps = MonCaps::parse(caps, &self.name).unwrap_or_default().at(Some(self.from));
        is_its_key && caps.allows_command(SERVICE, COMMAND, &BTreeMap::new(), Rwx::of_letters("r"))
    }
}
