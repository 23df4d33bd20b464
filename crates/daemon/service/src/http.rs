//! [`HttpServer`]: shows one page to programs that ask by HTTP, on threads of its own; any path is that page, as with Ceph's manager.
//!
//! It speaks as much of HTTP/1.1 as that takes: GET and HEAD, of whose head only the first line is read, no bodies, one request per
//! connection. A web framework and its runtime would bring more code than is here for none of what they are good at.

#![expect(
    clippy::disallowed_types,
    reason = "who asks is no part of the cluster, and waits on a thread of its own: there is nothing of it in a simulation"
)]

use crate::acceptor::{Acceptor, Seat, TimedStream};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take to ask, and then to read the page.
const ASK_PATIENCE: Duration = Duration::from_secs(5);
const READ_PATIENCE: Duration = Duration::from_secs(15);

/// What is shown.
#[derive(Debug, Clone)]
pub enum HttpPage {
    /// This text, of this media type.
    Text(&'static str, Arc<str>),
    /// It cannot be had now, for this reason.
    Unavailable(String),
}

/// A listening socket with a thread that accepts, and one for each connection. Its end closes the socket.
#[derive(Debug)]
pub struct HttpServer(Acceptor);

impl HttpServer {
    /// Listens at `addr`; port 0 is any that is free. Threads are named `name`.
    ///
    /// # Errors
    /// What the system says, such as that the address is in use.
    pub fn listen(
        addr: SocketAddr,
        name: &str,
        page: impl Fn() -> HttpPage + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Acceptor::listen(addr, name, move |stream, seat| serve(stream, seat, &page)).map(Self)
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.addr()
    }
}

/// What a request asks for, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Get,
    Head,
    OtherMethod,
    Nonsense,
}

impl Request {
    fn of(head: &[u8]) -> Self {
        let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        match words.as_slice() {
            [method, target, version] if version.starts_with(b"HTTP/1.") && !target.is_empty() => {
                match *method {
                    b"GET" => Self::Get,
                    b"HEAD" => Self::Head,
                    _ => Self::OtherMethod,
                }
            }
            _ => Self::Nonsense,
        }
    }
}

/// Answers the one request of a connection.
fn serve(stream: TcpStream, seat: &Seat, page: &dyn Fn() -> HttpPage) -> io::Result<()> {
    let mut stream = TimedStream::new(stream, ASK_PATIENCE);
    let Some(head) = read_head(&mut stream)? else { return Ok(()) };
    seat.has_asked();
    let text = "text/plain; charset=utf-8";
    let answer = |status, why: &str| (status, text, Arc::from(format!("{why}\n")));
    let request = Request::of(&head);
    let (status, media_type, body): (&str, &str, Arc<str>) = match request {
        Request::Nonsense => answer("400 Bad Request", "this is no HTTP/1.1 request"),
        Request::OtherMethod => answer("405 Method Not Allowed", "only GET and HEAD are served here"),
        Request::Get | Request::Head => match page() {
            HttpPage::Text(media_type, body) => ("200 OK", media_type, body),
            HttpPage::Unavailable(why) => answer("503 Service Unavailable", &why),
        },
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.give(READ_PATIENCE);
    stream.write_all(head.as_bytes())?;
    if request != Request::Head {
        stream.write_all(body.as_bytes())?;
    }
    stream.finish()
}

/// Reads up to the empty line behind a request's head. `None` when the client goes without a whole one, or says too much.
fn read_head(stream: &mut TimedStream) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while head.len() <= HEAD_BYTES_MAX {
        let count = stream.read(&mut part)?;
        head.extend_from_slice(part.get(..count).unwrap_or_default());
        if head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n") {
            return Ok(Some(head));
        }
        if count == 0 {
            return Ok(None);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptor::CONNS_MAX;

    fn ask(addr: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(addr).expect("somebody listens");
        stream.write_all(request).expect("it is taken");
        let mut answer = String::new();
        // Its end may be a reset where it did not read all.
        let _end = stream.read_to_string(&mut answer);
        answer
    }

    fn server() -> HttpServer {
        let page = || HttpPage::Text("text/plain; version=0.0.4", Arc::from("ceph_x 1\n"));
        HttpServer::listen(SocketAddr::from(([127, 0, 0, 1], 0)), "test/metrics", page).expect("a port")
    }

    #[test]
    fn the_page_is_shown_whatever_the_path() {
        let server = server();
        let shown = ask(server.addr(), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            shown.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"),
            "{shown}"
        );
        assert!(
            shown.contains("\r\nContent-Length: 9\r\n") && shown.ends_with("\r\n\r\nceph_x 1\n"),
            "{shown}"
        );
        assert!(ask(server.addr(), b"GET / HTTP/1.0\n\n").ends_with("ceph_x 1\n"));
        let head = ask(server.addr(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 9\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn other_requests_are_refused() {
        let server = server();
        assert!(
            ask(server.addr(), b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
                .starts_with("HTTP/1.1 405 ")
        );
        assert!(ask(server.addr(), b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(ask(server.addr(), &[0xff; 64 << 10]).is_empty(), "no head ends there");
    }

    #[test]
    fn silent_connections_make_room_and_the_port_is_free_in_the_end() {
        let server = server();
        let addr = server.addr();
        let mut held: Vec<TcpStream> = Vec::new();
        for _ in 0..CONNS_MAX {
            held.push(TcpStream::connect(addr).expect("a connection"));
        }
        assert!(ask(addr, b"GET / HTTP/1.1\r\n\r\n").ends_with("ceph_x 1\n"));
        // An end, or a reset.
        assert!(!matches!(held[0].read(&mut [0]), Ok(1)), "the oldest is closed without a word");
        drop(held);
        drop(server);
        drop(
            HttpServer::listen(addr, "test/metrics", || HttpPage::Unavailable(String::new())).expect("free"),
        );
    }

    #[test]
    fn what_cannot_be_shown_says_why() {
        let page = || HttpPage::Unavailable("no leader".to_owned());
        let server = HttpServer::listen(SocketAddr::from(([127, 0, 0, 1], 0)), "test/metrics", page);
        let shown = ask(server.expect("a port").addr(), b"GET / HTTP/1.1\r\n\r\n");
        assert!(shown.starts_with("HTTP/1.1 503 ") && shown.ends_with("no leader\n"), "{shown}");
    }
}
