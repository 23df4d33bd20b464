//! [`DmcryptArgs`]: what `nacre osd` is told of encrypted OSDs. What they do is in `dmcrypt`.

use crate::secret;
use anyhow::{Context, Result};
use clap::Args;
use nacre_auth::CryptoKey;
use std::path::PathBuf;

/// Options of `nacre osd` for encrypted OSDs.
#[derive(Debug, Args)]
pub(crate) struct DmcryptArgs {
    /// With --mkfs: encrypt all that the OSD stores. Its key is what `ceph osd new` was given as dmcrypt_key; the monitors are asked for it
    /// with the key that was given as cephx_lockbox_secret. See docs/runbooks/encrypted-osds.md.
    #[arg(long, requires_all = ["mkfs", "uuid", "lockbox_key_file"])]
    pub(crate) dmcrypt: bool,
    /// With --dmcrypt: file with what was given to `ceph osd new` as cephx_lockbox_secret, which opens the OSD and so is nothing for a
    /// command line; - reads it from standard input.
    #[arg(long, requires = "dmcrypt")]
    pub(crate) lockbox_key_file: Option<PathBuf>,
    /// Change the key of the one encrypted OSD given with --id, which is stopped, at the monitors and on its device, and end. Its data stay
    /// as they are.
    #[arg(long, requires = "id", conflicts_with_all = ["mkfs", "conf"])]
    pub(crate) rotate_dmcrypt_key: bool,
}

impl DmcryptArgs {
    /// The key that fetches the OSD's key; `None` of one that is not to be encrypted.
    pub(crate) fn lockbox_key(&self) -> Result<Option<CryptoKey>> {
        let Some(path) = self.lockbox_key_file.as_deref().filter(|_| self.dmcrypt) else { return Ok(None) };
        let (text, shown) = secret::read(path)?;
        CryptoKey::parse(text.trim()).with_context(|| format!("{shown} has no key")).map(Some)
    }
}
