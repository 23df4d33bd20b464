//! [`AdminSocket`]: `ceph daemon osd.0 ...`, a socket in the file system at which a daemon answers those who may use its files, also while
//! no monitor leads and no network works.
//!
//! ```text
//! request   JSON text up to a zero byte or the end of the line, or its bare words;
//!           or, of old clients, a number as 4 bytes, most significant first: 0 version, 1 counters, 2 their description
//! answer    length as 4 bytes, most significant first, and so many bytes
//! ```
//! One request per connection; there is no place for an error number, so an error is a text that begins with `ERROR: `.
//!
//! Source: Ceph `src/common/admin_socket.cc` at v16.2.15. Its requests have at most 1024 bytes, ours [`REQUEST_BYTES_MAX`].

use crate::places::Place;
use nacre_buf::BufList;
use nacre_env::real::{UNIX_PATH_BYTES_MAX, listen_private};
use nacre_env::{Clock, RealClock};
use nacre_msg::CommandReply;
use nacre_types::Stamp;
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of one request.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes of one answer: the length field has four, and nothing that a daemon says is near it.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// Connections at a time; more are closed at once.
const CONNS_MAX: usize = 8;
/// How long a client may take to say what it wants, and with each part of the answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a daemon may take to answer: a benchmark takes minutes.
const ANSWER_PATIENCE: Duration = Duration::from_secs(900);
/// Pause before accepting is tried again for which there were no descriptors.
const STARVED_PAUSE: Duration = Duration::from_millis(100);
/// Attempts to put a socket in the place of one that a dead process has left.
const OPENS_MAX: usize = 3;
/// What the request `0` is answered: the version of this protocol.
const PROTOCOL_VERSION: &str = "2";

/// Why a daemon has no admin socket. It serves without.
#[derive(Debug, thiserror::Error)]
pub enum AdminSocketError {
    /// The system's field for such a path is short.
    #[error("the path {} has more than {UNIX_PATH_BYTES_MAX} bytes, which is all that a socket's may have; choose a shorter `admin socket`", .0.display())]
    TooLong(PathBuf),
    /// Somebody answers there.
    #[error("a living process listens at {}; give this daemon an `admin socket` of its own", .0.display())]
    InUse(PathBuf),
    /// What is there was not made by a daemon.
    #[error("{} exists and is no socket; move it away, or choose another `admin socket`", .0.display())]
    NoSocket(PathBuf),
    /// The system refused.
    #[error("{}: {source}; make its folder writable for this daemon, or choose another `admin socket`", path.display())]
    System {
        /// Where it was to listen.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// A request, and the way back for its answer. One that is dropped without an answer closes the client's connection.
#[derive(Debug)]
pub struct AdminRequest {
    text: String,
    answer: SyncSender<CommandReply>,
    given_up: Arc<AtomicBool>,
}

impl AdminRequest {
    /// The command as clients send it: a JSON object with `prefix` and arguments.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Hands the reply to the client's connection.
    pub fn answer(self, reply: CommandReply) {
        // Fails only when nobody waits for it any more.
        let _gone = self.answer.send(reply);
    }

    /// True when nobody waits for an answer any more.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }
}

/// Where requests go; false when the daemon takes none now.
type Deliver = dyn Fn(AdminRequest) -> bool + Send + Sync;

/// The socket of one daemon, with a thread that waits for clients and one for each of them. Its end removes the file.
pub struct AdminSocket {
    path: PathBuf,
    /// Device and inode of the file, which is another daemon's when these are others.
    identity: Option<(u64, u64)>,
    stop: Arc<AtomicBool>,
    /// The listener's descriptor, as what can be shut down.
    listener: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for AdminSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdminSocket({})", self.path.display())
    }
}

impl AdminSocket {
    /// Listens at `path` for the daemon of this name, such as `osd.0`. What a dead process has left there goes.
    ///
    /// # Errors
    /// [`AdminSocketError`].
    pub fn open(
        path: &Path,
        daemon: &str,
        deliver: impl Fn(AdminRequest) -> bool + Send + Sync + 'static,
    ) -> Result<Self, AdminSocketError> {
        let system = |source| AdminSocketError::System { path: path.to_owned(), source };
        let listener = listen(path)?;
        let stopper = UnixStream::from(OwnedFd::from(listener.try_clone().map_err(system)?));
        let (stop, deliver): (_, Arc<Deliver>) = (Arc::new(AtomicBool::new(false)), Arc::new(deliver));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(format!("{daemon}/admin"))
            .spawn(move || accept(&listener, &stopped, &deliver))
            .map_err(system)?;
        let identity = identity(path);
        Ok(Self { path: path.to_owned(), identity, stop, listener: Some(stopper), thread: Some(thread) })
    }

    /// The same, for a daemon that serves without where it cannot be, and says so in its log.
    pub fn open_or_warn(
        path: Option<&Path>,
        daemon: &str,
        deliver: impl Fn(AdminRequest) -> bool + Send + Sync + 'static,
    ) -> Option<Self> {
        let opened = Self::open(path?, daemon, deliver);
        opened
            .inspect_err(|error| tracing::warn!(daemon, %error, "no admin socket; the daemon serves without"))
            .ok()
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // Fails when somebody else has removed it meanwhile.
            let _gone = std::fs::remove_file(&self.path);
        }
        let shut = self.listener.take().is_some_and(|listener| listener.shutdown(Shutdown::Both).is_ok());
        if let Some(thread) = self.thread.take().filter(|_| shut) {
            // It runs nothing that panics; and if it did, there would be nobody left to stop.
            let _ended = thread.join();
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn listen(path: &Path) -> Result<UnixListener, AdminSocketError> {
    let system = |source| AdminSocketError::System { path: path.to_owned(), source };
    for _ in 0..OPENS_MAX {
        match listen_private(path) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(AdminSocketError::TooLong(path.to_owned()));
            }
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(system(error)),
            Err(_) => (),
        }
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket => {
                std::fs::remove_file(path).map_err(system)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) if is_socket => return Err(system(error)),
            Err(_) => return Err(AdminSocketError::NoSocket(path.to_owned())),
            Ok(_) => return Err(AdminSocketError::InUse(path.to_owned())),
        }
    }
    Err(AdminSocketError::InUse(path.to_owned()))
}

fn accept(listener: &UnixListener, stop: &AtomicBool, deliver: &Arc<Deliver>) {
    let taken = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::park_timeout(STARVED_PAUSE);
            continue;
        };
        let Some(place) = Place::take(&taken, CONNS_MAX) else {
            tracing::debug!(CONNS_MAX, "too many connections at the admin socket; one is closed");
            continue;
        };
        let deliver = Arc::clone(deliver);
        let serve = move || {
            let _place = place;
            if let Err(error) = serve(stream, deliver.as_ref()) {
                tracing::debug!(%error, "a connection at the admin socket ended early");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("admin".to_owned()).spawn(serve) {
            tracing::warn!(%error, "no thread for a connection at the admin socket; it is closed");
        }
    }
}

/// Answers the one request of a connection.
fn serve(mut stream: UnixStream, deliver: &Deliver) -> io::Result<()> {
    let clock = RealClock::start();
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
    let Some(text) = read_request(&mut stream, &clock, clock.now() + CLIENT_PATIENCE)? else { return Ok(()) };
    let answer = match text.as_str() {
        VERSION_REQUEST => Some(PROTOCOL_VERSION.as_bytes().to_vec()),
        _ => ask(text, deliver),
    };
    let Some(answer) = answer else { return Ok(()) };
    let length = u32::try_from(answer.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(&answer)
}

/// Hands a request to the daemon and waits for what it says.
fn ask(text: String, deliver: &Deliver) -> Option<Vec<u8>> {
    let (sender, receiver): (_, Receiver<CommandReply>) = sync_channel(1);
    let given_up = Arc::new(AtomicBool::new(false));
    let request = AdminRequest { text, answer: sender, given_up: Arc::clone(&given_up) };
    let answer = deliver(request).then(|| receiver.recv_timeout(ANSWER_PATIENCE).ok()).flatten();
    given_up.store(true, Ordering::Release);
    answer.map(payload).filter(|bytes| bytes.len() <= ANSWER_BYTES_MAX)
}

/// What [`PROTOCOL_VERSION`] answers.
const VERSION_REQUEST: &str = r#"{"prefix":"0"}"#;

/// A request of an old client by its number.
fn old_request(number: u8) -> String {
    let prefix = match number {
        0 => return VERSION_REQUEST.to_owned(),
        1 => "perf dump",
        2 => "perf schema",
        _ => "unknown request of an old client",
    };
    json!({ "prefix": prefix }).to_string()
}

/// Reads a request, as the JSON that clients of today send. `None` when the client goes without a whole one.
fn read_request(stream: &mut UnixStream, clock: &RealClock, until: Stamp) -> io::Result<Option<String>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut part)?;
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
        if let [0, rest @ ..] = bytes.as_slice() {
            if let [_, _, number, ..] = rest {
                return Ok(Some(old_request(*number)));
            }
        } else if let Some(end) = bytes.iter().position(|byte| matches!(byte, 0 | b'\n')) {
            let text = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned();
            return Ok(Some(normal_request(text)));
        }
        if count == 0 || bytes.len() > REQUEST_BYTES_MAX || clock.now() > until {
            return Ok(None);
        }
    }
}

/// Bare words are a command without arguments.
fn normal_request(text: String) -> String {
    let trimmed = text.trim();
    if trimmed.starts_with('{') && trimmed.split_whitespace().collect::<String>() != VERSION_REQUEST {
        return text;
    }
    let prefix = if trimmed.starts_with('{') { "0" } else { trimmed };
    json!({ "prefix": prefix }).to_string()
}

/// An answer as clients get it.
fn payload(reply: CommandReply) -> Vec<u8> {
    let CommandReply { result, status, data } = reply;
    let bytes = |data: BufList| data.to_bytes().to_vec();
    if result >= 0 {
        return if data.is_empty() { status.into_bytes() } else { bytes(data) };
    }
    let errno = result.saturating_neg();
    let told = io::Error::from_raw_os_error(errno).to_string();
    let told = told.split(" (os error").next().unwrap_or_default();
    let mut out = format!("ERROR: ({errno}) {told}\n{status}\n").into_bytes();
    out.extend(bytes(data));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Errno;
    use std::sync::Mutex;
    use tempfile::TempDir;

    fn folder() -> TempDir {
        TempDir::with_prefix("nacre-admin").expect("a writable temporary folder")
    }

    /// Answers with the request itself, or, to `fail`, with an error.
    fn echo(request: AdminRequest) -> bool {
        let text = request.text().to_owned();
        let reply = match text.contains("fail") {
            true => CommandReply {
                result: Errno::EINVAL.negated(),
                status: "no".to_owned(),
                ..CommandReply::default()
            },
            false => CommandReply { data: nacre_buf::Bytes::from(text).into(), ..CommandReply::default() },
        };
        request.answer(reply);
        true
    }

    fn ask(path: &Path, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.write_all(request).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let length = u32::from_be_bytes(answer[..4].try_into().expect("four bytes"));
        assert_eq!(length as usize, answer.len() - 4);
        String::from_utf8_lossy(&answer[4..]).into_owned()
    }

    #[test]
    fn requests_of_all_times_are_answered_with_their_length() {
        let folder = folder();
        let path = folder.path().join("a.asok");
        let socket = AdminSocket::open(&path, "osd.0", echo).expect("it listens");
        assert_eq!(ask(&path, b"{\"prefix\": \"perf dump\"}\0"), r#"{"prefix": "perf dump"}"#);
        assert_eq!(ask(&path, b"{\"prefix\": \"perf dump\"}\n"), r#"{"prefix": "perf dump"}"#);
        assert_eq!(ask(&path, b"perf dump\0"), r#"{"prefix":"perf dump"}"#);
        assert_eq!(ask(&path, &[0, 0, 0, 1]), r#"{"prefix":"perf dump"}"#);
        assert_eq!(ask(&path, &[0, 0, 0, 2]), r#"{"prefix":"perf schema"}"#);
        for version in [&b"\0\0\0\0"[..], b"{\"prefix\": \"0\"}\0", b"0\n"] {
            assert_eq!(ask(&path, version), "2");
        }
        assert_eq!(ask(&path, b"fail\0"), "ERROR: (22) Invalid argument\nno\n");
        drop(socket);
        assert!(!path.exists(), "removed at the end");
    }

    #[test]
    fn who_says_nothing_or_too_much_is_in_nobodys_way() {
        let folder = folder();
        let path = folder.path().join("a.asok");
        let socket = AdminSocket::open(&path, "osd.0", echo).expect("it listens");
        let silent: Vec<UnixStream> =
            (1..CONNS_MAX).map(|_| UnixStream::connect(&path).expect("room")).collect();
        assert_eq!(ask(&path, b"status\0"), r#"{"prefix":"status"}"#);
        let mut long = UnixStream::connect(&path).expect("room");
        let much = vec![b'x'; REQUEST_BYTES_MAX + 4096];
        // It may be closed before all of it is sent.
        let _closed = long.write_all(&much);
        let mut answer = Vec::new();
        assert!(!long.read_to_end(&mut answer).is_ok_and(|count| count > 0), "closed without an answer");
        drop(silent);
        drop(socket);
    }

    #[test]
    fn what_a_dead_process_has_left_goes_and_a_living_one_keeps_its_own() {
        let folder = folder();
        let path = folder.path().join("a.asok");
        drop(listen_private(&path).expect("it listens"));
        assert!(path.exists(), "a socket whose process is gone");
        let living = AdminSocket::open(&path, "osd.0", echo).expect("in its place");
        let error = AdminSocket::open(&path, "osd.1", echo).expect_err("the first one lives").to_string();
        assert!(error.contains("a living process"), "{error}");
        assert_eq!(ask(&path, b"x\0"), r#"{"prefix":"x"}"#, "it is undisturbed");
        std::fs::rename(&path, folder.path().join("b.asok")).expect("renamed");
        std::fs::write(&path, b"mine").expect("written");
        let error = AdminSocket::open(&path, "osd.1", echo).expect_err("a file").to_string();
        assert!(error.contains("is no socket"), "{error}");
        drop(living);
        assert_eq!(std::fs::read(&path).expect("untouched"), b"mine", "not its own is not removed");
        let long = folder.path().join("a".repeat(200));
        let error = AdminSocket::open(&long, "osd.1", echo).expect_err("too long").to_string();
        assert!(error.contains("more than 107 bytes"), "{error}");
        assert!(AdminSocket::open_or_warn(Some(&long), "osd.1", echo).is_none());
    }

    #[test]
    fn a_request_that_the_daemon_drops_closes_its_connection() {
        let folder = folder();
        let path = folder.path().join("a.asok");
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let deliver = move |request| {
            keep.lock().expect("whole").push(request);
            true
        };
        let _socket = AdminSocket::open(&path, "osd.0", deliver).expect("it listens");
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.write_all(b"x\0").expect("it reads");
        while kept.lock().expect("whole").pop().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(stream.read(&mut [0; 4]).expect("an end"), 0);
    }
}
