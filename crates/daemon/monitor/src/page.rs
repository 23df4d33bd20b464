//! [`PageServer`]: shows how the cluster is to people with a browser, where the options want it, while this monitor is the active manager.
//!
//! Without TLS it listens on a loopback address alone and asks nobody who he is; it answers only those who took it for this machine, so that
//! no page from elsewhere can read it under a name that was made to lead here. With TLS who looks must log in (`logins`). It only shows.

mod answers;
mod logins;

use answers::Pages;
use nacre_env::{SystemEntropy, Wake};
use nacre_format::Section;
use nacre_mon::{Listening, Mon, Reader, WantedPage, overview};
use nacre_service::{Mailbox, Tls, WebServer, mailbox};
use nacre_types::{Stamp, UTime};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::SystemTime;

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
    /// What was asked for.
    Told(Box<Section>),
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
            (Some(state), Question::History(after)) => Reply::Told(Box::new(overview::history(state, after))),
        };
        // Fails only when nobody waits for it any more.
        let _gone = self.reply.try_send(reply);
    }
}

/// When the files were written that a server was begun with.
type Written = Option<(SystemTime, SystemTime)>;

/// A server that comes and goes with the lead, and moves with the options.
pub(crate) struct PageServer {
    name: String,
    pub(crate) asks: Mailbox<Ask>,
    pages: Arc<Pages>,
    /// With what it was begun, and the server.
    server: Option<(WantedPage, Written, WebServer)>,
}

impl PageServer {
    /// Of the monitor `name`, whose thread `waker` wakes. It listens nowhere yet.
    pub(crate) fn new(name: &str, waker: Arc<dyn Wake>) -> Self {
        let (sender, asks) = mailbox(waker);
        let pages = Pages::new(sender, Box::new(SystemEntropy::default()));
        Self { name: format!("mon.{name}/page"), asks, pages: Arc::new(pages), server: None }
    }

    /// Listens where it is wanted while this monitor leads, or else as near as may be. `own` is the monitor's own address.
    pub(crate) fn follow(
        &mut self,
        wanted: Result<Option<WantedPage>, String>,
        own: IpAddr,
        leads: bool,
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
        if let Err(why) = self.open(&wanted) {
            self.close();
            return Listening::Failed(why);
        }
        let at = self.server.as_ref().map(|(_, _, server)| server.addr());
        let at = at.unwrap_or(SocketAddr::new(wanted.addr, wanted.port));
        let shown = if at.ip().is_unspecified() { SocketAddr::new(own, at.port()) } else { at };
        let scheme = if wanted.tls.is_some() { "https" } else { "http" };
        Listening::At(format!("{scheme}://{shown}/"))
    }

    /// Who had logged in has to do so again.
    fn close(&mut self) {
        if self.server.take().is_some() {
            self.pages.forget_logins();
        }
    }

    /// Has a server where it is wanted, with the files as they are now.
    fn open(&mut self, wanted: &WantedPage) -> Result<(), String> {
        let target = SocketAddr::new(wanted.addr, wanted.port);
        let written = wanted.tls.as_ref().and_then(|(certificate, key)| written(certificate, key).ok());
        if let Some((with, then, server)) = &self.server
            && (with, then) == (wanted, &written)
            && (server.addr() == target || wanted.is_port_fixed)
        {
            return Ok(());
        }
        let load = |(certificate, key): &(PathBuf, PathBuf)| {
            Tls::load(certificate, key).map_err(|error| error.to_string())
        };
        let tls = wanted.tls.as_ref().map(load).transpose()?;
        if self.server.as_ref().is_some_and(|(with, then, _)| with != wanted || *then != written) {
            self.server = None;
        }
        let server = match self.listen(target, tls.clone()) {
            Ok(server) => server,
            // The usual port is another's, and nobody insists on it: any will do, until that one is free.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !wanted.is_port_fixed => {
                if self.server.is_some() {
                    return Ok(());
                }
                let any = SocketAddr::new(target.ip(), 0);
                self.listen(any, tls).map_err(|error| format!("cannot listen on {any}: {error}"))?
            }
            Err(error) => return Err(format!("cannot listen on {target}: {error}")),
        };
        tracing::info!(wanted = %target, at = %server.addr(), tls = wanted.tls.is_some(), "the web page is shown");
        self.server = Some((wanted.clone(), written, server));
        Ok(())
    }

    fn listen(&self, at: SocketAddr, tls: Option<Tls>) -> io::Result<WebServer> {
        let (pages, needs_login) = (Arc::clone(&self.pages), tls.is_some());
        WebServer::listen(at, &self.name, tls, move |request| pages.answer(request, needs_login))
    }
}

/// When both files were written last.
fn written(certificate: &Path, key: &Path) -> io::Result<(SystemTime, SystemTime)> {
    let of = |path: &Path| std::fs::metadata(path)?.modified();
    Ok((of(certificate)?, of(key)?))
}
