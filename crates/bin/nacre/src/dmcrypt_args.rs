//! [`DmcryptArgs`]: what `nacre osd` is told of encrypted OSDs. What they do is in `dmcrypt`.

use clap::Args;
use nacre_auth::CryptoKey;

/// Options of `nacre osd` for encrypted OSDs.
#[derive(Debug, Args)]
pub(crate) struct DmcryptArgs {
    /// With --mkfs: encrypt all that the OSD stores. Its key is what `ceph osd new` was given as dmcrypt_key; the monitors are asked for it
    /// with the key that was given as cephx_lockbox_secret. See docs/runbooks/encrypted-osds.md.
    #[arg(long, requires_all = ["mkfs", "uuid", "lockbox_key"])]
    pub(crate) dmcrypt: bool,
    /// With --dmcrypt: what was given to `ceph osd new` as cephx_lockbox_secret.
    #[arg(long, requires = "dmcrypt", value_parser = parse_key)]
    pub(crate) lockbox_key: Option<CryptoKey>,
    /// Change the key of the one encrypted OSD given with --id, which is stopped, at the monitors and on its device, and end. Its data stay
    /// as they are.
    #[arg(long, requires = "id", conflicts_with_all = ["mkfs", "conf"])]
    pub(crate) rotate_dmcrypt_key: bool,
}

fn parse_key(text: &str) -> Result<CryptoKey, String> {
    CryptoKey::parse(text).map_err(|error| error.to_string())
}
