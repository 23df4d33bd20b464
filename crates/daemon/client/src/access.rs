//! [`Access`]: where a cluster is, and as which entity we use it.

use crate::conf;
use nacre_auth::{CryptoKey, Keyring, Offer};
use nacre_types::{AuthName, EntityAddr, EntityKind};

/// What a client must know to connect.
#[derive(Debug, Clone)]
pub struct Access {
    /// The monitors; any of them will do.
    pub monitors: Vec<EntityAddr>,
    /// The entity that we are.
    pub name: AuthName,
    /// The secret that proves the client's identity.
    pub key: CryptoKey,
    /// How connections are protected: to monitors (`ms_mon_client_mode`) and to OSDs (`ms_client_mode`), most wanted first.
    pub modes: (Offer, Offer),
}

/// Why two files do not say how to connect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The configuration names no monitors by addresses.
    #[error("the configuration has no `mon host` with v2 addresses")]
    Monitors,
    /// The keyring is none.
    #[error("the keyring is not well-formed")]
    Keyring,
    /// A protection that there is not.
    #[error("{0} is neither crc nor secure, nor both")]
    Mode(&'static str),
    /// The keyring has other keys.
    #[error("the keyring has no key of {0}")]
    Key(AuthName),
}

impl Access {
    /// The client `user` (a name without `client.`), by the texts of a `ceph.conf` and a keyring.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn parse(conf: &str, keyring: &str, user: &str) -> Result<Self, AccessError> {
        let monitors = conf::monitors(conf).ok_or(AccessError::Monitors)?;
        let keyring = Keyring::parse(keyring).map_err(|_| AccessError::Keyring)?;
        let name = AuthName::new(EntityKind::CLIENT, user);
        let Some(entry) = keyring.get(&name) else { return Err(AccessError::Key(name)) };
        let key = entry.key.clone();
        let modes = (
            offer(conf, "ms_mon_client_mode", Offer::secure_first())?,
            offer(conf, "ms_client_mode", Offer::crc_first())?,
        );
        Ok(Self { monitors, name, key, modes })
    }
}

/// What a configuration says of the protection of connections.
fn offer(conf: &str, option: &'static str, default: Offer) -> Result<Offer, AccessError> {
    let Some(text) = conf::option(conf, option) else { return Ok(default) };
    let is_mode = |word: &str| word.is_empty() || matches!(word, "crc" | "secure");
    if text.trim().is_empty() || !text.split([' ', ',', ';']).all(is_mode) {
        return Err(AccessError::Mode(option));
    }
    Ok(default.with_modes(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_texts_tell_how_to_connect() {
        let conf = "[global]\nmon host = v2:10.0.0.1:3300, 10.0.0.2:3300\n";
        let keyring = "[client.x]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n";
        let access = Access::parse(conf, keyring, "x").expect("both are whole");
        assert_eq!((access.monitors.len(), access.name.to_string()), (2, "client.x".to_owned()));
        let secure = format!("{conf}ms client mode = secure\n");
        let access = Access::parse(&secure, keyring, "x").expect("both are whole");
        assert_eq!(access.modes, (Offer::secure_first(), Offer::crc_first().with_modes("secure")));
        let wrong = format!("{conf}ms_mon_client_mode = plain\n");
        assert_eq!(Access::parse(&wrong, keyring, "x").err(), Some(AccessError::Mode("ms_mon_client_mode")));
        assert_eq!(Access::parse("", keyring, "x").err(), Some(AccessError::Monitors));
        assert!(matches!(Access::parse(conf, keyring, "y").err(), Some(AccessError::Key(_))));
    }
}
