//! [`Event`]: what the driver hands to the client of the monitors; [`Effect`]: what the driver is to do for it.

use nacre_auth::{AuthStart, RotatingKeys, SessionKeys};
use nacre_buf::{BufList, Bytes};
use nacre_msg::Message;
use nacre_types::{EntityAddr, Entropy, Errno, Stamp, UTime};

/// One attempt to reach a monitor. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// What the driver lends to each call that may act.
pub struct Context<'a> {
    /// Monotonic time, for patience.
    pub now: Stamp,
    /// Calendar time, for tickets.
    pub wall: UTime,
    /// Source of challenges, keys and ids.
    pub entropy: &'a mut dyn Entropy,
}

/// What happens to the client of the monitors.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an event is made, handled and gone; none is ever stored")]
pub enum Event {
    /// Something on a connection.
    Link(LinkId, LinkEvent),
    /// [`crate::MonClient::next_deadline`] has come.
    Tick,
}

/// What happened on a connection.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an event is made, handled and gone; none is ever stored")]
pub enum LinkEvent {
    /// The monitor has introduced itself.
    Hello,
    /// The monitor sent AUTH_REPLY_MORE.
    AuthMore {
        /// Payload of the frame.
        payload: Bytes,
    },
    /// The monitor sent AUTH_DONE.
    AuthDone {
        /// Our instance number.
        global_id: u64,
        /// The mode that the monitor chose.
        mode: u32,
        /// Payload of the frame.
        payload: Bytes,
    },
    /// The monitor sent AUTH_BAD_METHOD.
    AuthBad {
        /// Why, as a negative errno.
        result: i32,
        /// Methods that the monitor accepts.
        methods: Vec<u32>,
    },
    /// Messages may flow.
    Established,
    /// A message came.
    Message {
        /// Its transaction number.
        tid: u64,
        /// The message that came.
        message: Message,
    },
    /// The monitor has seen our keepalive.
    KeepaliveAck,
    /// The connection could not be made, or is gone.
    Lost,
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Dial a monitor, under this id, with messenger v2.
    Connect {
        /// Attempt to connect, of which there may be several.
        link: LinkId,
        /// Address of the monitor.
        addr: EntityAddr,
    },
    /// AUTH_REQUEST is to be sent.
    AuthStart {
        /// On this connection.
        link: LinkId,
        /// Method, modes and payload.
        start: AuthStart,
    },
    /// AUTH_REQUEST_MORE is to be sent.
    AuthMore {
        /// On this connection.
        link: LinkId,
        /// Payload of the frame.
        payload: Bytes,
    },
    /// Switch to these keys.
    AuthFinish {
        /// On this connection.
        link: LinkId,
        /// Keys that the connection goes on with.
        keys: SessionKeys,
    },
    /// Send a message.
    Send {
        /// On this connection.
        link: LinkId,
        /// Its transaction number.
        tid: u64,
        /// The message to send.
        message: Message,
    },
    /// Send a keepalive.
    Keepalive {
        /// On this connection.
        link: LinkId,
    },
    /// Close; nothing this connection still says matters.
    Close {
        /// Connection that the session is over.
        link: LinkId,
    },
    /// A session is open: send again what was given to `send` and still matters.
    Opened {
        /// Our instance number.
        global_id: u64,
        /// Address of the monitor.
        addr: EntityAddr,
    },
    /// The session is lost; another is being looked for.
    Lost,
    /// The monitors refuse us. Tried again after a pause; a command line tool gives up here.
    Refused {
        /// What they say: EACCES for a wrong key or an unknown entity.
        errno: Errno,
    },
    /// A message for the caller: maps, answers to what it sent.
    Deliver {
        /// Its transaction number.
        tid: u64,
        /// The message that came.
        message: Message,
    },
    /// A command has been answered.
    CommandDone {
        /// Number that [`crate::MonClient::command`] gave.
        tid: u64,
        /// 0 or a negative errno.
        result: i32,
        /// The status line.
        status: String,
        /// Output of the command.
        data: BufList,
    },
    /// A question for a map's version has been answered.
    Version {
        /// Number that [`crate::MonClient::get_version`] gave.
        handle: u64,
        /// Newest epoch that the monitors have.
        newest: u64,
        /// Oldest epoch kept.
        oldest: u64,
    },
    /// New secrets of our service.
    RotatingKeys(RotatingKeys),
    /// The monitor does not give us secrets: we are no daemon.
    RotatingRefused {
        /// What it says.
        errno: Errno,
    },
}
