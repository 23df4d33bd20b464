//! Authentication methods and connection modes, and how two sides settle on one of each.

/// How a peer proves which entity it is. Ceph `CEPH_AUTH_*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AuthMethod {
    /// A peer is the entity that it names; no keys, no signatures.
    None,
    /// Shared secrets and tickets.
    Cephx,
}

impl AuthMethod {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Cephx => 2,
        }
    }

    /// The method of this number, if we speak it.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::None, Self::Cephx].into_iter().find(|method| method.code() == code)
    }
}

/// How frames are protected once authenticated. Ceph `CEPH_CON_MODE_*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConnectionMode {
    /// Frames have checksums, and are readable by all.
    Crc,
    /// Frames are sealed by AES-GCM.
    Secure,
}

/// Length of the connection secret in [`ConnectionMode::Secure`]; Ceph `CEPHX_CRYPT`'s choice for AES-GCM.
pub const CONNECTION_SECRET_BYTES: usize = 64;

impl ConnectionMode {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Crc => 1,
            Self::Secure => 2,
        }
    }

    /// The mode of this number, if there is one.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::Crc, Self::Secure].into_iter().find(|mode| mode.code() == code)
    }

    /// How many random bytes the two sides must share for this mode.
    #[must_use]
    pub const fn secret_bytes(self) -> usize {
        match self {
            Self::Crc => 0,
            Self::Secure => CONNECTION_SECRET_BYTES,
        }
    }
}

/// What one side accepts, most wanted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Methods of authentication, the preferred first.
    pub methods: Vec<AuthMethod>,
    /// Modes of the connection, the preferred first.
    pub modes: Vec<ConnectionMode>,
}

impl Offer {
    /// Cephx, prefer encrypted frames: what monitors and their clients use (`ms_mon_*_mode`).
    #[must_use]
    pub fn secure_first() -> Self {
        Self { methods: vec![AuthMethod::Cephx], modes: vec![ConnectionMode::Secure, ConnectionMode::Crc] }
    }

    /// Cephx, prefer plain frames: what all others use (`ms_service_mode`, `ms_client_mode`).
    #[must_use]
    pub fn crc_first() -> Self {
        Self { methods: vec![AuthMethod::Cephx], modes: vec![ConnectionMode::Crc, ConnectionMode::Secure] }
    }

    /// No authentication; only plain frames are possible.
    #[must_use]
    pub fn no_auth() -> Self {
        Self { methods: vec![AuthMethod::None], modes: vec![ConnectionMode::Crc] }
    }

    /// The same modes for other methods.
    #[must_use]
    pub fn with_methods(self, methods: &[AuthMethod]) -> Self {
        Self { methods: methods.to_vec(), ..self }
    }

    /// The same methods in the modes of an option (`ms_*_mode`): `crc`, `secure` or both, most wanted first.
    #[must_use]
    pub fn with_modes(self, text: &str) -> Self {
        let mode = |word| match word {
            "crc" => Some(ConnectionMode::Crc),
            "secure" => Some(ConnectionMode::Secure),
            _ => None,
        };
        let modes: Vec<_> = text.split([' ', ',', ';']).filter_map(mode).collect();
        if modes.is_empty() { self } else { Self { modes, ..self } }
    }

    /// The method numbers for the wire.
    #[must_use]
    pub fn method_codes(&self) -> Vec<u32> {
        self.methods.iter().map(|method| method.code()).collect()
    }

    /// The mode numbers for the wire.
    #[must_use]
    pub fn mode_codes(&self) -> Vec<u32> {
        self.modes.iter().map(|mode| mode.code()).collect()
    }

    /// The first of the peer's modes that we accept for `method`: the connecting side's order decides.
    #[must_use]
    pub fn pick_mode(&self, method: AuthMethod, wanted: &[u32]) -> Option<ConnectionMode> {
        wanted
            .iter()
            .filter_map(|code| ConnectionMode::from_code(*code))
            .filter(|mode| method == AuthMethod::Cephx || *mode == ConnectionMode::Crc)
            .find(|mode| self.modes.contains(mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_the_option_in_its_order() {
        use ConnectionMode::{Crc, Secure};
        for (text, modes) in [
            ("crc secure", vec![Crc, Secure]),
            ("secure crc", vec![Secure, Crc]),
            ("secure", vec![Secure]),
            ("crc", vec![Crc]),
        ] {
            assert_eq!(Offer::crc_first().with_modes(text).modes, modes);
        }
        let secure = Offer::crc_first().with_modes("secure");
        assert_eq!(secure.pick_mode(AuthMethod::Cephx, &[1]), None, "nobody talks us out of it");
        assert_eq!(secure.pick_mode(AuthMethod::Cephx, &[1, 2]), Some(Secure));
        assert_eq!(secure.pick_mode(AuthMethod::None, &[1, 2]), None, "without keys nothing is encrypted");
    }
}
