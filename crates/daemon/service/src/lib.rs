//! What every daemon is made of: the messenger that drives connections over sockets, mailboxes between
//! threads, and logging. Decides nothing about protocols. Layer: daemon; uses base, core and io.

mod handshake;
pub mod log;
mod mailbox;
mod messenger;

pub use handshake::{answer_auth, mon_link_event};
pub use mailbox::{MAILBOX_MAX, Mailbox, MailboxFull, MailboxSender, mailbox};
pub use messenger::{ConnId, Incoming, IntakeLimits, IntakeReport, Messenger};
