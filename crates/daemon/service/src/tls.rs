//! [`Tls`]: how a server proves who it is, from files.

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a certificate or a key that is longer is none.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why files are no certificate with its key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which file it is.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file has no certificate.
    #[error("{}: no certificate in PEM is in it", .0.display())]
    NoCertificate(PathBuf),
    /// A file has no private key.
    #[error("{}: no private key in PEM is in it", .0.display())]
    NoKey(PathBuf),
    /// They do not fit.
    #[error("the certificate and the key cannot be used together: {0}")]
    Unfit(#[from] rustls::Error),
}

/// A certificate with its key, ready to be used.
#[derive(Debug, Clone)]
pub struct Tls(pub(crate) Arc<ServerConfig>);

/// Never waits and never reads on and on, whatever is there.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        // Before it is opened: to open a pipe is to wait for somebody who writes into it.
        let facts = std::fs::metadata(path)?;
        if !facts.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        OpenOptions::new().read(true).open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    };
    read().map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

impl Tls {
    /// From a file of the certificate and those that sign it, and one of its private key, both PEM.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let certificates = CertificateDer::pem_slice_iter(&read(certificate)?).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.ok().filter(|certificates| !certificates.is_empty());
        let certificates = certificates.ok_or_else(|| TlsError::NoCertificate(certificate.to_owned()))?;
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| TlsError::NoKey(key.to_owned()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_files_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "nothing").expect("room");
        let missing = folder.path().join("missing.pem");
        let why =
            |certificate: &Path| Tls::load(certificate, certificate).expect_err("no certificate").to_string();
        assert!(why(&empty).ends_with("empty.pem: no certificate in PEM is in it"), "{}", why(&empty));
        assert!(why(&missing).contains("missing.pem: No such file"), "{}", why(&missing));
        let endless = Path::new("/dev/zero");
        assert_eq!(why(endless), "/dev/zero: it is no regular file");
        let long = folder.path().join("long.pem");
        std::fs::write(&long, vec![b'x'; (1 << 20) + 1]).expect("room");
        assert!(why(&long).ends_with("long.pem: file too large"), "{}", why(&long));
    }
}
