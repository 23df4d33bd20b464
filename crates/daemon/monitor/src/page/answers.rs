//! [`Pages`]: which file or which facts a browser gets, and whether it gets any.

use super::logins::{LOGIN_LASTS, Logins};
use super::{Ask, Question, Reply};
use nacre_env::{Clock, RealClock};
use nacre_format::{Format, Node, Section};
use nacre_mon::{Reader, overview};
use nacre_service::{MailboxSender, WebAnswer, WebMethod, WebRequest};
use nacre_types::{Entropy, Stamp};
use std::net::IpAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Who asks again within this time gets the same overview.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long the monitor's thread may take to say what it knows.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The prefix has browsers keep it from being set by others of this host.
const COOKIE: &str = "__Host-nacre_login";
const JSON: &str = "application/json";
/// Path, media type and text of what the page is made of.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("files/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("files/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("files/page.css")),
    ("/icon.svg", "image/svg+xml", include_str!("files/icon.svg")),
];

/// What threads that answer browsers share.
pub(super) struct Pages {
    asks: MailboxSender<Ask>,
    clock: RealClock,
    entropy: Mutex<Box<dyn Entropy + Send>>,
    logins: Mutex<Logins>,
    /// The overview that was made last, and when.
    overview: Mutex<Option<(Stamp, String)>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a client that asked for `host`, on this machine, took us for this machine: a name that leads here by somebody's doing is not.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((addr, _)) => addr,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback())
}

impl Pages {
    pub(super) fn new(asks: MailboxSender<Ask>, entropy: Box<dyn Entropy + Send>) -> Self {
        Self {
            asks,
            clock: RealClock::start(),
            entropy: Mutex::new(entropy),
            logins: Mutex::default(),
            overview: Mutex::default(),
        }
    }

    pub(super) fn forget_logins(&self) {
        locked(&self.logins).clear();
    }

    /// Answers a request.
    pub(super) fn answer(&self, request: &WebRequest, needs_login: bool) -> WebAnswer {
        let is_here = request.from.is_loopback() && is_this_machine(&request.host);
        if !needs_login && !is_here {
            return WebAnswer::refused(421, "ask for localhost, 127.0.0.1 or [::1], on this machine");
        }
        if request.method == WebMethod::HandIn {
            return match request.path.as_str() {
                "/api/login" if needs_login => self.log_in(request),
                "/api/logout" if needs_login => self.log_out(request),
                _ => WebAnswer::refused(405, "nothing is to be handed in here"),
            };
        }
        if let Some((_, media_type, text)) = FILES.iter().find(|(path, ..)| *path == request.path) {
            return WebAnswer::shown(media_type, *text);
        }
        match request.path.as_str() {
            "/api/login" => self.who(request, needs_login),
            "/api/overview" => self.for_reader(request, needs_login, Question::Overview),
            "/api/history" => match request.parameter("after").map_or(Ok(0), str::parse) {
                Ok(after) => self.for_reader(request, needs_login, Question::History(after)),
                Err(_) => WebAnswer::refused(400, "`after` is a second of the calendar"),
            },
            _ => WebAnswer::refused(404, "there is nothing here"),
        }
    }

    /// Who has logged in, as he comes now: caps may be for some networks only.
    fn reader_of(&self, request: &WebRequest) -> Option<Reader> {
        let token = request.cookie(COOKIE)?;
        let reader = locked(&self.logins).find(token, self.clock.now()).cloned();
        reader.map(|reader| reader.seen_from(request.from))
    }

    /// Answers what only readers may know.
    fn for_reader(&self, request: &WebRequest, needs_login: bool, question: Question) -> WebAnswer {
        let reader = self.reader_of(request);
        if needs_login && reader.is_none() {
            return WebAnswer::refused(401, "log in first");
        }
        if question == Question::Overview {
            return self.overview(reader);
        }
        match self.ask(reader, question) {
            Ok(tree) => WebAnswer::shown(JSON, Node::from(tree.unwrap_or_default()).render(Format::Json, "")),
            Err(refused) => refused,
        }
    }

    /// One at a time has the monitor's thread make an overview; others wait for it.
    fn overview(&self, reader: Option<Reader>) -> WebAnswer {
        let mut last = locked(&self.overview);
        let fresh = last.as_ref().filter(|(at, _)| self.clock.now().since(*at) < FRESH_FOR);
        if let Some((_, text)) = fresh {
            let text = text.clone();
            drop(last);
            // What somebody else may see this one need not.
            return match reader.map_or(Ok(None), |reader| self.ask(Some(reader), Question::MayRead)) {
                Ok(_) => WebAnswer::shown(JSON, text),
                Err(refused) => refused,
            };
        }
        match self.ask(reader, Question::Overview) {
            Ok(tree) => {
                let text = Node::from(tree.unwrap_or_default()).render(Format::Json, "");
                *last = Some((self.clock.now(), text.clone()));
                WebAnswer::shown(JSON, text)
            }
            Err(refused) => refused,
        }
    }

    /// Asks the monitor's thread. Nothing is told of what was only allowed.
    fn ask(&self, reader: Option<Reader>, question: Question) -> Result<Option<Section>, WebAnswer> {
        let (reply, replies) = sync_channel(1);
        if self.asks.try_send(Ask { reader, question, reply }).is_err() {
            return Err(WebAnswer::refused(503, "the monitor has too much to do; try again"));
        }
        match replies.recv_timeout(ANSWER_PATIENCE) {
            Ok(Reply::Told(tree)) => Ok(Some(*tree)),
            Ok(Reply::Went(samples)) => Ok(Some(overview::history(&samples))),
            Ok(Reply::Allowed) => Ok(None),
            Ok(Reply::Refused) => Err(WebAnswer::refused(
                401,
                "that entity has another key, or its caps for mon do not allow it to read",
            )),
            Ok(Reply::NotActive) => Err(WebAnswer::refused(
                503,
                "this monitor is not the active manager: 'ceph mgr services' says where it is",
            )),
            Err(_) => Err(WebAnswer::refused(503, "the monitor has not answered in time")),
        }
    }

    fn who(&self, request: &WebRequest, needs_login: bool) -> WebAnswer {
        let reader = self.reader_of(request).map(|reader| reader.name.to_string());
        let name = reader.map_or_else(|| Node::Raw("null".to_owned()), Node::from);
        let tree = Section::new().with("needs_login", needs_login).with("name", name);
        WebAnswer::shown(JSON, Node::from(tree).render(Format::Json, ""))
    }

    fn log_in(&self, request: &WebRequest) -> WebAnswer {
        if !is_own_page(request) {
            return WebAnswer::refused(415, "name and key come as application/json");
        }
        let said: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (Some(name), Some(key)) = (said["name"].as_str(), said["key"].as_str()) else {
            return WebAnswer::refused(400, "name and key are wanted");
        };
        let Some(reader) = Reader::parse(name, key, request.from) else {
            let refused = WebAnswer::refused(401, "that is no name, or no key as a keyring has it");
            return self.not_let_in(request, refused);
        };
        if let Err(refused) = self.ask(Some(reader.clone()), Question::MayRead) {
            let refused = self.not_let_in(request, refused);
            if refused.status != 429 {
                tracing::warn!(name = %reader.name, from = %request.from, status = refused.status, "a login to the web page failed");
            }
            return refused;
        }
        let entropy = &mut **locked(&self.entropy);
        let token = locked(&self.logins).succeeded(reader, self.clock.now(), entropy);
        done(Some((&token, LOGIN_LASTS)))
    }

    /// What is answered to a try that has failed. One that the monitor had no time for does not count.
    fn not_let_in(&self, request: &WebRequest, refused: WebAnswer) -> WebAnswer {
        if refused.status == 401 && !locked(&self.logins).failed(request.from, self.clock.now()) {
            return WebAnswer::refused(429, "too many tries have failed");
        }
        refused
    }

    fn log_out(&self, request: &WebRequest) -> WebAnswer {
        if !is_own_page(request) {
            return WebAnswer::refused(415, "this is asked for as application/json");
        }
        let Some(token) = request.cookie(COOKIE) else { return done(None) };
        locked(&self.logins).end(token);
        done(Some(("", Duration::ZERO)))
    }
}

/// A form of another page cannot send this type unasked.
fn is_own_page(request: &WebRequest) -> bool {
    request.content_type.starts_with(JSON)
}

/// Nothing more is to be said; the browser has a cookie of this value from now on, for so long.
fn done(cookie: Option<(&str, Duration)>) -> WebAnswer {
    let cookie = cookie.map(|(token, lasts)| {
        let age_s = lasts.as_secs();
        format!("{COOKIE}={token}; Max-Age={age_s}; Path=/; HttpOnly; Secure; SameSite=Strict")
    });
    WebAnswer { status: 204, set_cookie: cookie, ..WebAnswer::shown("text/plain", "") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_service::{Mailbox, mailbox};
    use nacre_types::entropy::SeededEntropy;
    use std::sync::Arc;

    const KEY: &str = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==";

    fn get(path: &str) -> WebRequest {
        WebRequest {
            method: WebMethod::Get,
            path: path.to_owned(),
            query: String::new(),
            host: "localhost:9280".to_owned(),
            cookie: String::new(),
            content_type: String::new(),
            body: Vec::new(),
            from: IpAddr::from([10, 0, 0, 1]),
        }
    }

    fn login(key: &str) -> WebRequest {
        let body = serde_json::json!({ "name": "admin", "key": key }).to_string().into_bytes();
        let content_type = JSON.to_owned();
        WebRequest { method: WebMethod::HandIn, body, content_type, ..get("/api/login") }
    }

    struct Nobody;
    impl nacre_env::Wake for Nobody {
        fn wake(&self) {}
    }

    fn pages() -> (Arc<Pages>, Mailbox<Ask>) {
        let (sender, asks) = mailbox(Arc::new(Nobody));
        (Arc::new(Pages::new(sender, Box::new(SeededEntropy(1)))), asks)
    }

    /// Asks from another thread, and has the monitor's thread say `reply`.
    fn told(pages: &Arc<Pages>, asks: &Mailbox<Ask>, request: WebRequest, reply: fn() -> Reply) -> WebAnswer {
        let pages = Arc::clone(pages);
        let asker = std::thread::spawn(move || pages.answer(&request, true));
        while !asker.is_finished() {
            asks.take().for_each(|ask| ask.reply.try_send(reply()).expect("somebody waits"));
            std::thread::yield_now();
        }
        asker.join().expect("it answers")
    }

    #[test]
    fn on_this_machine_only_those_are_answered_who_meant_it() {
        let (pages, _asks) = pages();
        let get = |path| WebRequest { from: IpAddr::from([127, 0, 0, 1]), ..get(path) };
        let from_elsewhere = WebRequest { from: IpAddr::from([10, 0, 0, 1]), ..get("/") };
        assert_eq!(pages.answer(&from_elsewhere, false).status, 421, "whatever it listens at");
        for host in ["localhost", "LOCALHOST:9284", "127.0.0.1:9284", "127.1.2.3", "[::1]:9284", "[::1]"] {
            assert_eq!(
                pages.answer(&WebRequest { host: host.to_owned(), ..get("/") }, false).status,
                200,
                "{host}"
            );
        }
        for host in
            ["", "evil.example:9284", "10.0.0.1", "localhost.evil.example", "[::2]", "127.0.0.1.evil.example"]
        {
            assert_eq!(
                pages.answer(&WebRequest { host: host.to_owned(), ..get("/") }, false).status,
                421,
                "{host}"
            );
        }
    }

    #[test]
    fn nothing_but_the_page_itself_is_shown_before_a_login() {
        let (pages, asks) = pages();
        for (path, status) in
            [("/", 200), ("/page.js", 200), ("/api/overview", 401), ("/api/history", 401), ("/nothing", 404)]
        {
            assert_eq!(pages.answer(&get(path), true).status, status, "{path}");
        }
        assert_eq!(asks.take().count(), 0, "the monitor was not asked");
        let form = WebRequest { content_type: "text/plain".to_owned(), ..login(KEY) };
        assert_eq!(pages.answer(&form, true).status, 415);
        assert_eq!(pages.answer(&login("nonsense"), true).status, 401);
        let refused = told(&pages, &asks, login(KEY), || Reply::Refused);
        assert_eq!((refused.status, refused.set_cookie), (401, None));
        let answer = told(&pages, &asks, login(KEY), || Reply::Allowed);
        let cookie = answer.set_cookie.filter(|_| answer.status == 204).expect("a cookie");
        assert!(cookie.ends_with("; Max-Age=28800; Path=/; HttpOnly; Secure; SameSite=Strict"), "{cookie}");
        let with = |path| WebRequest {
            cookie: cookie.split(';').next().unwrap_or_default().to_owned(),
            ..get(path)
        };
        let facts = || Reply::Told(Box::new(Section::new().with("a", 1_u64)));
        assert_eq!(told(&pages, &asks, with("/api/overview"), facts).body, r#"{"a":1}"#);
        let went = || Reply::Went(vec![nacre_mgr::Sample::default()]);
        assert!(told(&pages, &asks, with("/api/history"), went).body.contains(r#""rows":[[0,-1,-1,"#));
        assert!(pages.answer(&with("/api/login"), true).body.contains("\"name\":\"client.admin\""));
        // The same within a second, but for those alone that still may.
        assert_eq!(told(&pages, &asks, with("/api/overview"), || Reply::Allowed).status, 200);
        assert_eq!(told(&pages, &asks, with("/api/overview"), || Reply::Refused).status, 401);
        let out = WebRequest { method: WebMethod::HandIn, ..with("/api/logout") };
        assert_eq!(pages.answer(&out, true).status, 415, "no page of elsewhere logs anybody out");
        let out = WebRequest { content_type: JSON.to_owned(), ..out };
        let nobody = WebRequest { cookie: String::new(), ..out.clone() };
        assert_eq!(pages.answer(&nobody, true).set_cookie, None);
        let answer = pages.answer(&out, true);
        assert!(answer.status == 204 && answer.set_cookie.is_some_and(|cookie| cookie.contains("Max-Age=0")));
        assert_eq!(pages.answer(&with("/api/overview"), true).status, 401);
    }

    #[test]
    fn failures_of_others_keep_nobody_out_who_has_the_key() {
        let (pages, asks) = pages();
        for _ in 0..7 {
            assert_eq!(told(&pages, &asks, login(KEY), || Reply::NotActive).status, 503, "no failure of his");
        }
        for _ in 0..5 {
            assert_eq!(told(&pages, &asks, login(KEY), || Reply::Refused).status, 401);
        }
        assert_eq!(told(&pages, &asks, login(KEY), || Reply::Refused).status, 429);
        assert_eq!(pages.answer(&login("nonsense"), true).status, 429);
        assert_eq!(told(&pages, &asks, login(KEY), || Reply::Allowed).status, 204);
    }

    #[test]
    fn without_tls_there_is_nothing_to_hand_in() {
        let (pages, _asks) = pages();
        let from = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(pages.answer(&WebRequest { from, ..login(KEY) }, false).status, 405);
        let after = WebRequest { query: "after=soon".to_owned(), from, ..get("/api/history") };
        assert_eq!(pages.answer(&after, false).status, 400);
    }
}
