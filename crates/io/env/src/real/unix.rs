//! A socket in the file system that only its owner may connect to.

use super::private::FILE_MODE;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Bytes of a path that a socket may have: the system's field for it has 108, with a zero at the end.
pub const UNIX_PATH_BYTES_MAX: usize = 107;
/// Connections that wait in the kernel to be accepted.
const BACKLOG_MAX: i32 = 16;

/// Listens at `path`, which must not exist. The socket has the mode of a private file before it has a name, so nobody else gets in between.
///
/// # Errors
/// As the system says; `InvalidInput` for a path of more than [`UNIX_PATH_BYTES_MAX`] bytes.
pub fn listen_private(path: &Path) -> io::Result<UnixListener> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > UNIX_PATH_BYTES_MAX || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sys::listen(bytes, FILE_MODE, BACKLOG_MAX)
}

/// The calls that std makes only all at once.
#[allow(
    unsafe_code,
    reason = "the mode is set between socket and bind; real/ is where the machine is touched"
)]
mod sys {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixListener;

    fn done(result: libc::c_int) -> io::Result<libc::c_int> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// `path` has at most [`super::UNIX_PATH_BYTES_MAX`] bytes.
    pub(super) fn listen(path: &[u8], mode: u32, backlog: i32) -> io::Result<UnixListener> {
        // SAFETY: socket(2) takes no pointers.
        let raw = done(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor was just made and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: fchmod(2) takes no pointers.
        done(unsafe { libc::fchmod(socket.as_raw_fd(), mode) })?;
        let mut addr =
            libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
        for (to, byte) in addr.sun_path.iter_mut().zip(path) {
            *to = byte.cast_signed();
        }
        let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: `addr` is a sockaddr_un of `length` bytes that lives through the call; its path ends with a zero.
        done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const addr).cast(), length) })?;
        // SAFETY: listen(2) takes no pointers.
        done(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
        Ok(UnixListener::from(socket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use tempfile::TempDir;

    #[test]
    fn the_socket_is_its_owners_alone_and_takes_a_path_of_107_bytes() {
        let folder = TempDir::with_prefix("nacre-unix").expect("a writable temporary folder");
        let long = |bytes: usize| {
            let start = folder.path().join("a");
            let more = bytes - start.as_os_str().len();
            folder.path().join("a".repeat(1 + more))
        };
        let path = long(UNIX_PATH_BYTES_MAX);
        let listener = listen_private(&path).expect("listens");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
        UnixStream::connect(&path).expect("we may");
        drop(listener.accept().expect("it is there"));
        assert_eq!(listen_private(&path).expect_err("it exists").kind(), io::ErrorKind::AddrInUse);
        let error = listen_private(&long(UNIX_PATH_BYTES_MAX + 1)).expect_err("no room for it");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
