//! [`Exporter`]: shows what the active manager knows to Prometheus, at an address that follows the options.
//!
//! The monitor's thread only puts together what it knows; the page is made by the thread that asks, at most once per [`FRESH_FOR`].

use nacre_env::{Clock, RealClock, Wake};
use nacre_mgr::metrics::View;
use nacre_mon::{Listening, ScrapeTarget, Wanted};
use nacre_service::{HttpPage, HttpServer, Mailbox, MailboxSender, mailbox};
use nacre_types::Stamp;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Who asks again within this time gets the same page.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long the monitor's thread may take to say what it knows.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// Prometheus's text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Somebody wants to know what the manager knows; none where this monitor is not the active one.
pub(crate) type Request = SyncSender<Option<Box<View>>>;

/// The page that was made last, and when.
struct Pages {
    sender: MailboxSender<Request>,
    clock: RealClock,
    last: Mutex<Option<(Stamp, HttpPage)>>,
}

impl Pages {
    /// One at a time asks the monitor's thread; others wait for its page. What failed is fresh for as long: nobody waits twice.
    fn page(&self) -> HttpPage {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, page)) = last.as_ref().filter(|(at, _)| self.clock.now().since(*at) < FRESH_FOR) {
            tracing::trace!(?at, "the page of a moment ago is shown");
            return page.clone();
        }
        let page = self.make();
        *last = Some((self.clock.now(), page.clone()));
        page
    }

    fn make(&self) -> HttpPage {
        let (sender, receiver) = sync_channel(1);
        if self.sender.try_send(sender).is_err() {
            return HttpPage::Unavailable("the monitor has too much to do; try again".to_owned());
        }
        match receiver.recv_timeout(ANSWER_PATIENCE) {
            Ok(Some(view)) => HttpPage::Text(MEDIA_TYPE, Arc::from(view.render())),
            // As a manager of Ceph's that waits.
            Ok(None) => HttpPage::Text(MEDIA_TYPE, Arc::from("")),
            Err(_) => HttpPage::Unavailable(format!("the monitor has not answered for {ANSWER_PATIENCE:?}")),
        }
    }
}

/// A server that comes and goes with the lead, and moves with the options.
pub(crate) struct Exporter {
    name: String,
    /// Where the tables want it.
    pub(crate) target: ScrapeTarget,
    pub(crate) requests: Mailbox<Request>,
    pages: Arc<Pages>,
    server: Option<HttpServer>,
}

impl Exporter {
    /// Of the monitor `name`, whose thread `waker` wakes. It listens nowhere yet.
    pub(crate) fn new(name: &str, target: ScrapeTarget, waker: Arc<dyn Wake>) -> Self {
        let (sender, requests) = mailbox(waker);
        let pages = Pages { sender, clock: RealClock::start(), last: Mutex::default() };
        Self { name: format!("mon.{name}/http"), target, requests, pages: Arc::new(pages), server: None }
    }

    fn listen(&mut self, addr: SocketAddr) -> io::Result<()> {
        let pages = Arc::clone(&self.pages);
        let server = HttpServer::listen(addr, &self.name, move || pages.page())?;
        self.server = Some(server);
        Ok(())
    }

    /// Listens where it is wanted, or else as near as may be. `own` is the monitor's own address, `apart` says that no other monitor has it:
    /// only then one that does not lead listens, too.
    pub(crate) fn follow(&mut self, own: IpAddr, leads: bool, apart: bool) -> Listening {
        let Some(wanted) = self.target.wanted().filter(|_| leads || apart) else {
            self.server = None;
            return Listening::Nowhere;
        };
        let target = SocketAddr::new(wanted.addr.unwrap_or(own), wanted.port);
        if self.server.as_ref().is_none_or(|server| server.addr() != target)
            && let Err(error) = self.listen(target)
            && (!leads || !self.fall_back(&wanted, target, &error))
        {
            self.server = None;
            return Listening::Failed(format!("cannot listen on {target}: {error}"));
        }
        let at = self.server.as_ref().map_or(target, HttpServer::addr);
        let shown = if at.ip().is_unspecified() { SocketAddr::new(own, at.port()) } else { at };
        Listening::At(format!("http://{shown}/"))
    }

    /// The usual port is another's, and nobody insists on it: any will do, until that one is free. False when there is none.
    fn fall_back(&mut self, wanted: &Wanted, target: SocketAddr, error: &io::Error) -> bool {
        if wanted.is_port_fixed || error.kind() != io::ErrorKind::AddrInUse {
            return false;
        }
        if self.server.as_ref().is_some_and(|server| server.addr().ip() == target.ip()) {
            return true;
        }
        let is_there = self.listen(SocketAddr::new(target.ip(), 0)).is_ok();
        tracing::info!(wanted = %target, server = ?self.server, "metrics are shown at another port: the usual one is in use");
        is_there
    }
}
