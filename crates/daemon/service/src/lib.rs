//! What every daemon is made of: the messenger that drives connections over sockets, mailboxes between
//! threads, the admin socket, a page for HTTP, a server for browsers, and logging. Decides nothing about protocols. Layer: daemon; uses base, core and io.

mod acceptor;
mod admin_socket;
mod handshake;
mod http;
pub mod log;
mod mailbox;
mod messenger;
mod places;
mod tls;
mod web;

pub use admin_socket::{AdminRequest, AdminSocket, AdminSocketError};
pub use handshake::{answer_auth, mon_link_event};
pub use http::{HttpPage, HttpServer};
pub use mailbox::{MAILBOX_MAX, Mailbox, MailboxFull, MailboxSender, mailbox};
pub use messenger::{ConnId, Incoming, IntakeLimits, IntakeReport, Messenger};
pub use tls::{Tls, TlsError};
pub use web::{WebAnswer, WebMethod, WebRequest, WebServer};
