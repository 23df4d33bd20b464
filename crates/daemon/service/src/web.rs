//! [`WebServer`]: answers requests of browsers by HTTP/1.1, with or without TLS, on threads of its own.
//!
//! The parser is `httparse`, TLS is `rustls`. There is no framework around them: what is served here is a handful of files and answers to
//! GET, one request for each connection, and a framework would bring a runtime and its executor to a process that has none.

#![expect(clippy::disallowed_types, reason = "as in `acceptor`")]

use crate::acceptor::{Acceptor, Seat, TimedStream};
use crate::tls::Tls;
use rustls::{ServerConnection, StreamOwned};
use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request's head, its fields, and bytes of what may follow it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const FIELDS_COUNT_MAX: usize = 64;
const BODY_BYTES_MAX: usize = 4 << 10;
/// How long a client may take to ask, greeting by TLS included, and then to read the answer.
const ASK_PATIENCE: Duration = Duration::from_secs(10);
const READ_PATIENCE: Duration = Duration::from_secs(15);
/// What every answer says: it is shown in no other page, loads nothing from elsewhere, is kept nowhere.
const FIELDS: &str = "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\nConnection: close\r\n";

/// How something is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebMethod {
    /// It is to be shown.
    Get,
    /// What would be said of it, without itself.
    Head,
    /// Something is handed in: POST.
    HandIn,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebRequest {
    /// Others are refused.
    pub method: WebMethod,
    /// Such as `/api/overview`; as it came, without what follows a `?`.
    pub path: String,
    /// What follows the `?`.
    pub query: String,
    /// The field `Host`: for whom the client takes us.
    pub host: String,
    /// The field `Cookie`.
    pub cookie: String,
    /// The field `Content-Type`.
    pub content_type: String,
    /// What was handed in.
    pub body: Vec<u8>,
    /// Where the client is.
    pub from: IpAddr,
}

impl WebRequest {
    /// A value of the query, as it came.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
            .map(|(_, value)| value)
    }

    /// A cookie by its name.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let mut pairs = self.cookie.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebAnswer {
    /// Such as 200.
    pub status: u16,
    /// Of [`WebAnswer::body`].
    pub media_type: &'static str,
    /// What is shown.
    pub body: Cow<'static, str>,
    /// A cookie to be set, with its attributes.
    pub set_cookie: Option<String>,
}

impl WebAnswer {
    /// Shows a text of that media type.
    #[must_use]
    pub fn shown(media_type: &'static str, body: impl Into<Cow<'static, str>>) -> Self {
        Self { status: 200, media_type, body: body.into(), set_cookie: None }
    }

    /// Says why nothing is shown, as JSON that a page can read.
    #[must_use]
    pub fn refused(status: u16, why: &str) -> Self {
        let body = serde_json::json!({ "error": why }).to_string();
        Self { status, media_type: "application/json", body: body.into(), set_cookie: None }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

/// A listening socket with its threads. Its end closes the socket.
#[derive(Debug)]
pub struct WebServer(Acceptor);

impl WebServer {
    /// Listens at `addr`; port 0 is any that is free. Threads are named `name`. With `tls` nothing else is understood.
    ///
    /// # Errors
    /// What the system says, such as that the address is in use.
    pub fn listen(
        addr: SocketAddr,
        name: &str,
        tls: Option<Tls>,
        answer: impl Fn(&WebRequest) -> WebAnswer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let serve = move |stream: TcpStream, seat: &Seat| {
            let answer = |request: &WebRequest| {
                seat.has_asked();
                answer(request)
            };
            let from = stream.peer_addr()?.ip().to_canonical();
            stream.set_nodelay(true)?;
            let mut stream = TimedStream::new(stream, ASK_PATIENCE);
            let Some(tls) = &tls else {
                converse(&mut stream, from, &answer, |stream| stream.give(READ_PATIENCE))?;
                return stream.finish();
            };
            let conn = ServerConnection::new(Arc::clone(&tls.0)).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(conn, stream);
            converse(&mut stream, from, &answer, |stream| stream.sock.give(READ_PATIENCE))?;
            stream.conn.send_close_notify();
            stream.flush()?;
            stream.sock.finish()
        };
        Acceptor::listen(addr, name, serve).map(Self)
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.addr()
    }
}

/// Answers the one request of a connection.
fn converse<S: Read + Write>(
    stream: &mut S,
    from: IpAddr,
    answer: &dyn Fn(&WebRequest) -> WebAnswer,
    is_asked: impl FnOnce(&mut S),
) -> io::Result<()> {
    let (method, answer) = match read_request(stream, from)? {
        Some(Ok(request)) => (Some(request.method), answer(&request)),
        Some(Err(refused)) => (None, refused),
        None => return Ok(()),
    };
    is_asked(stream);
    let WebAnswer { status, media_type, body, set_cookie } = answer;
    let cookie = set_cookie.map_or_else(String::new, |cookie| format!("Set-Cookie: {cookie}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n{cookie}{FIELDS}\r\n",
        reason(status),
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if method != Some(WebMethod::Head) {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// Reads a request. `None` when the client goes without a whole one; an answer when it is none that is served.
fn read_request(stream: &mut impl Read, from: IpAddr) -> io::Result<Option<Result<WebRequest, WebAnswer>>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 2048]);
    loop {
        let refused = |status, why| Ok(Some(Err(WebAnswer::refused(status, why))));
        match parse(&bytes, from) {
            Ok(Some(parsed)) => {
                let (mut request, head_bytes, body_bytes) = parsed;
                if body_bytes > BODY_BYTES_MAX {
                    return refused(413, "what was handed in is too long");
                }
                if let Some(body) = bytes.get(head_bytes..head_bytes + body_bytes) {
                    request.body = body.to_vec();
                    return Ok(Some(Ok(request)));
                }
            }
            Ok(None) if bytes.len() > HEAD_BYTES_MAX => {
                return refused(400, "the request's head is too long");
            }
            Ok(None) => (),
            Err(refused) => return Ok(Some(Err(refused))),
        }
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
    }
}

/// The request whose head is there, how long that is, and what is to follow it; `None` while it is not whole.
fn parse(bytes: &[u8], from: IpAddr) -> Result<Option<(WebRequest, usize, usize)>, WebAnswer> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_COUNT_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let nonsense = |_| WebAnswer::refused(400, "this is no HTTP/1.1 request");
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).map_err(nonsense)? else {
        return Ok(None);
    };
    let method = match head.method {
        Some("GET") => WebMethod::Get,
        Some("HEAD") => WebMethod::Head,
        Some("POST") => WebMethod::HandIn,
        _ => return Err(WebAnswer::refused(405, "only GET, HEAD and POST are served here")),
    };
    let field = |name: &str| {
        let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        field.map(|field| String::from_utf8_lossy(field.value).into_owned())
    };
    if field("transfer-encoding").is_some() {
        return Err(WebAnswer::refused(400, "say its length with Content-Length"));
    }
    let length = field("content-length").map(|text| text.parse::<usize>());
    let Ok(body_bytes) = length.transpose() else {
        return Err(WebAnswer::refused(400, "Content-Length is no number"));
    };
    let target = head.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let request = WebRequest {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        host: field("host").unwrap_or_default(),
        cookie: field("cookie").unwrap_or_default(),
        content_type: field("content-type").unwrap_or_default(),
        body: Vec::new(),
        from,
    };
    Ok(Some((request, head_bytes, body_bytes.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(addr: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(addr).expect("somebody listens");
        stream.write_all(request).expect("it is taken");
        let mut answer = String::new();
        // Its end may be a reset where it did not read all.
        let _end = stream.read_to_string(&mut answer);
        answer
    }

    fn echo() -> WebServer {
        let answer = |request: &WebRequest| {
            let text = format!(
                "{} after={:?} a={:?} body={}",
                request.path,
                request.parameter("after"),
                request.cookie("a"),
                String::from_utf8_lossy(&request.body)
            );
            WebAnswer { set_cookie: Some("a=1".to_owned()), ..WebAnswer::shown("text/plain", text) }
        };
        WebServer::listen(SocketAddr::from(([127, 0, 0, 1], 0)), "test/web", None, answer).expect("a port")
    }

    #[test]
    fn a_request_is_read_whole_and_answered_once() {
        let server = echo();
        let answer = ask(server.addr(), b"GET /x?after=7&b= HTTP/1.1\r\nHost: h\r\ncookie: b=2; a=3\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n/x after=Some(\"7\") a=Some(\"3\") body="), "{answer}");
        for said in
            ["Set-Cookie: a=1\r\n", "default-src 'self'", "X-Frame-Options: DENY", "nosniff", "no-store"]
        {
            assert!(answer.contains(said), "{said}: {answer}");
        }
        let answer = ask(server.addr(), b"POST /in HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcd");
        assert!(answer.ends_with("body=abc"), "{answer}");
        let answer = ask(server.addr(), b"HEAD /x HTTP/1.1\r\n\r\n");
        assert!(answer.contains("Content-Length: 26\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[test]
    fn silent_connections_keep_nobody_out() {
        let server = echo();
        let connect = |_| TcpStream::connect(server.addr()).expect("the system takes it");
        let mut silent: Vec<TcpStream> = (0..40).map(connect).collect();
        assert!(ask(server.addr(), b"GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        assert!(!matches!(silent[0].read(&mut [0]), Ok(1)), "closed without a word");
    }

    #[test]
    fn other_requests_are_refused() {
        let server = echo();
        let status =
            |request: &[u8]| ask(server.addr(), request).get(9..12).map(str::to_owned).unwrap_or_default();
        assert_eq!(status(b"PUT / HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status(b"nonsense\r\n\r\n"), "400");
        assert_eq!(status(b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n"), "400");
        assert_eq!(status(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400");
        assert_eq!(status(b"POST / HTTP/1.1\r\nContent-Length: 99999\r\n\r\n"), "413");
        let fields = "a: b\r\n".repeat(FIELDS_COUNT_MAX + 1);
        assert_eq!(status(format!("GET / HTTP/1.1\r\n{fields}\r\n").as_bytes()), "400");
        let long = format!("GET / HTTP/1.1\r\na: {}\r\n", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(status(long.as_bytes()), "400");
    }
}
