//! [`PageServer`]: shows how the cluster is to people with a browser, where the options want it, while this monitor is the active manager.
//!
//! Without TLS it listens on a loopback address alone and asks nobody who he is; it answers only those who took it for this machine, so that
//! no page from elsewhere can read it under a name that was made to lead here. With TLS who looks must log in (`logins`). It only shows.

mod answers;
mod logins;

use answers::Pages;
use nacre_env::{SystemEntropy, Wake};
use nacre_format::Section;
use nacre_mgr::Sample;
use nacre_mon::{Listening, Mon, Reader, WantedPage, overview};
use nacre_service::{Mailbox, Tls, WebServer, mailbox};
use nacre_types::{Stamp, UTime};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// What somebody wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// Whether the reader may look.
    MayRead,
    /// How the cluster is.
    Overview,
    /// What went on after this second of the calendar.
    History(u32),
}

/// A question to the monitor's thread. A reader must be allowed to read; without one the question comes from this machine.
#[derive(Debug)]
pub(crate) struct Ask {
    reader: Option<Reader>,
    question: Question,
    reply: SyncSender<Reply>,
}

/// What the monitor's thread says.
#[derive(Debug)]
pub(crate) enum Reply {
    /// This monitor is not the active manager.
    NotActive,
    /// The reader may not read, or is not who he says.
    Refused,
    /// The reader may read.
    Allowed,
    /// How the cluster is.
    Told(Box<Section>),
    /// What went on.
    Went(Vec<Sample>),
}

impl Ask {
    /// Answers; `mon` where this monitor leads.
    pub(crate) fn answer(self, mon: Option<&Mon>, now: Stamp, wall: UTime) {
        let state = mon.map(Mon::state).filter(|state| state.mgr.own_is_active());
        let reply = match (state, self.question) {
            (None, _) => Reply::NotActive,
            (Some(state), _) if self.reader.is_some_and(|reader| !reader.may_read(state)) => Reply::Refused,
            (Some(_), Question::MayRead) => Reply::Allowed,
            (Some(state), Question::Overview) => Reply::Told(Box::new(overview::tree(state, now, wall))),
            (Some(state), Question::History(after)) => Reply::Went(overview::samples(state, after)),
        };
        // Fails only when nobody waits for it any more.
        let _gone = self.reply.try_send(reply);
    }
}

/// For so long the files may be such as cannot be used, as when the new certificate is there and its key is not yet, before that is said.
const RENEWAL_MAX: Duration = Duration::from_secs(60);
/// What could not be loaded is tried again after so long though the files look the same.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// How a file looks from outside: to write into it, to put another in its place or to allow it to be read changes that. `None` without
/// a file.
type Mark = Option<(u64, u64, i64, i64)>;
/// Those of the certificate and of its key.
type Marks = Option<(Mark, Mark)>;

/// A server with what it was begun with.
struct Running {
    wanted: WantedPage,
    marks: Marks,
    tls: Option<Tls>,
    server: WebServer,
}

/// Files that could not be used.
struct Unusable {
    wanted: WantedPage,
    marks: Marks,
    why: String,
    tried: Stamp,
    since: Stamp,
}

/// A server that comes and goes with the lead, and moves with the options.
pub(crate) struct PageServer {
    name: String,
    pub(crate) asks: Mailbox<Ask>,
    pages: Arc<Pages>,
    running: Option<Running>,
    unusable: Option<Unusable>,
}

impl PageServer {
    /// Of the monitor `name`, whose thread `waker` wakes. It listens nowhere yet.
    pub(crate) fn new(name: &str, waker: Arc<dyn Wake>) -> Self {
        let (sender, asks) = mailbox(waker);
        let pages = Pages::new(sender, Box::new(SystemEntropy::default()));
        Self { name: format!("mon.{name}/page"), asks, pages: Arc::new(pages), running: None, unusable: None }
    }

    /// Listens where it is wanted while this monitor leads, or else as near as may be. `own` is the monitor's own address.
    pub(crate) fn follow(
        &mut self,
        wanted: Result<Option<WantedPage>, String>,
        own: IpAddr,
        leads: bool,
        now: Stamp,
    ) -> Listening {
        let wanted = match wanted {
            Ok(Some(wanted)) if leads => wanted,
            Ok(_) => {
                self.close();
                return Listening::Nowhere;
            }
            Err(why) => {
                self.close();
                return Listening::Failed(why);
            }
        };
        if let Err(why) = self.open(&wanted, now) {
            self.close();
            return Listening::Failed(why);
        }
        let at = self.running.as_ref().map(|running| running.server.addr());
        let at = at.unwrap_or(SocketAddr::new(wanted.addr, wanted.port));
        let shown = if at.ip().is_unspecified() { SocketAddr::new(own, at.port()) } else { at };
        let scheme = if wanted.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{shown}/");
        match self.unusable.as_ref().filter(|unusable| now.since(unusable.since) >= RENEWAL_MAX) {
            Some(Unusable { why, .. }) => {
                Listening::Otherwise(url, format!("{why}; it goes on with the files of before"))
            }
            None => Listening::At(url),
        }
    }

    /// Who had logged in has to do so again.
    fn close(&mut self) {
        if self.running.take().is_some() {
            self.pages.forget_logins();
        }
    }

    /// Has a server where it is wanted, with the files as they are now; or, while these cannot be used and nothing else has changed, as
    /// they were.
    fn open(&mut self, wanted: &WantedPage, now: Stamp) -> Result<(), String> {
        let target = SocketAddr::new(wanted.addr, wanted.port);
        let marks = wanted.tls.as_ref().map(|(certificate, key)| (mark(certificate), mark(key)));
        let is_same = |running: &&Running| (&running.wanted, running.marks) == (wanted, marks);
        let same = self.running.as_ref().filter(is_same);
        if let Some(running) = same
            && (running.server.addr() == target || wanted.is_port_fixed)
        {
            self.unusable = None;
            return Ok(());
        }
        let tls = match same.map(|running| running.tls.clone()) {
            Some(tls) => {
                self.unusable = None;
                tls
            }
            None => match self.load(wanted, marks, now) {
                Err(_) if self.running.as_ref().is_some_and(|running| running.wanted == *wanted) => {
                    return Ok(());
                }
                loaded => loaded?,
            },
        };
        if self.running.as_ref().is_some_and(|running| !is_same(&running)) {
            self.running = None;
        }
        let server = match self.listen(target, tls.clone()) {
            Ok(server) => server,
            // The usual port is another's, and nobody insists on it: any will do, until that one is free.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !wanted.is_port_fixed => {
                if self.running.is_some() {
                    return Ok(());
                }
                let any = SocketAddr::new(target.ip(), 0);
                self.listen(any, tls.clone()).map_err(|error| format!("cannot listen on {any}: {error}"))?
            }
            Err(error) => return Err(format!("cannot listen on {target}: {error}")),
        };
        tracing::info!(wanted = %target, at = %server.addr(), tls = tls.is_some(), "the web page is shown");
        self.running = Some(Running { wanted: wanted.clone(), marks, tls, server });
        Ok(())
    }

    /// Reads the files, unless they are those that could not be used before.
    fn load(&mut self, wanted: &WantedPage, marks: Marks, now: Stamp) -> Result<Option<Tls>, String> {
        let before = self.unusable.take().filter(|unusable| unusable.wanted == *wanted);
        let since = before.as_ref().map_or(now, |unusable| unusable.since);
        let is_same = |before: &Unusable| before.marks == marks && now.since(before.tried) < RETRY_AFTER;
        if let Some(before) = before.filter(is_same) {
            let why = before.why.clone();
            self.unusable = Some(before);
            return Err(why);
        }
        let files = wanted.tls.as_ref();
        let loaded = files.map(|(certificate, key)| Tls::load(certificate, key)).transpose();
        loaded.map_err(|error| {
            let why = error.to_string();
            self.unusable =
                Some(Unusable { wanted: wanted.clone(), marks, why: why.clone(), tried: now, since });
            why
        })
    }

    fn listen(&self, at: SocketAddr, tls: Option<Tls>) -> io::Result<WebServer> {
        let (pages, needs_login) = (Arc::clone(&self.pages), tls.is_some());
        WebServer::listen(at, &self.name, tls, move |request| pages.answer(request, needs_login))
    }
}

fn mark(path: &Path) -> Mark {
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.ino(), facts.size(), facts.ctime(), facts.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Made for this test with `openssl req -x509`; it is shown to nobody.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBfzCCASWgAwIBAgIUBiiPrQkW9MqPXViOJGbEWTMu+DkwCgYIKoZIzj0EAwIw\n\
        FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNjA5MjYzM1oYDzIxMjYxMTAy\n\
        MDkyNjMzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n\
        PQMBBwNCAAQg11E3l1dwUSqGMvoSK26b+/Vkm3Fp8n5qBah78jvog18KFaUqmo6B\n\
        prm050imzfAnqg61rUWGxZjK+hAfBkr6o1MwUTAdBgNVHQ4EFgQUuReIXZHZfs22\n\
        6OUgyyAwzhAnZeEwHwYDVR0jBBgwFoAUuReIXZHZfs226OUgyyAwzhAnZeEwDwYD\n\
        VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiAs7Ur8NFOGIHoQ7PnOhIhX\n\
        dyVRQvGs1x3T+WSl5QBVqwIhAK+sdoElQEFOQLtrptqu1iC4ywgYYy/C3v5TmD4W\n\
        9QHg\n\
        -----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgyx8ToRjVbBI/ku7w\n\
        SWNX90hbx5BSqJN85pFvIQvGV3qhRANCAAQg11E3l1dwUSqGMvoSK26b+/Vkm3Fp\n\
        8n5qBah78jvog18KFaUqmo6Bprm050imzfAnqg61rUWGxZjK+hAfBkr6\n\
        -----END PRIVATE KEY-----\n";

    struct Nobody;
    impl Wake for Nobody {
        fn wake(&self) {}
    }

    #[test]
    fn files_that_are_being_renewed_end_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let [certificate, key] = ["crt", "key"].map(|name| folder.path().join(name));
        let write = |path: &Path, text: &str| std::fs::write(path, text).expect("room");
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let tls = Some((certificate.clone(), key.clone()));
        let wanted = WantedPage { addr: own, port: 0, is_port_fixed: true, tls };
        let mut page = PageServer::new("a", Arc::new(Nobody));
        let mut at = |second| {
            page.follow(Ok(Some(wanted.clone())), own, true, Stamp::default() + Duration::from_secs(second))
        };
        assert!(matches!(at(0), Listening::Failed(why) if why.contains("No such file")));
        write(&certificate, CERTIFICATE);
        write(&key, KEY);
        let Listening::At(url) = at(1) else { panic!("it can be used") };
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
        write(&certificate, "half of another");
        assert_eq!(at(100), Listening::At(url.clone()), "its key may come yet");
        assert_eq!(at(159), Listening::At(url.clone()));
        let Listening::Otherwise(same, why) = at(160) else { panic!("that has lasted long enough") };
        assert!(same == url && why.contains("crt: no certificate"), "{why}");
        write(&certificate, CERTIFICATE);
        let Listening::At(renewed) = at(161) else { panic!("it can be used again") };
        assert_eq!(at(300), Listening::At(renewed));
    }
}
