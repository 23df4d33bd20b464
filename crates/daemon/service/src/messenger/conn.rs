//! [`Conn`]: one connection with its socket; reading and writing it.

use super::intake::{FREE_FRAME_BYTES, Intake, Owner};
use super::unsent::Unsent;
use super::{ConnId, EVENTS_MAX};
use nacre_env::{ListenerId, Net, SocketId};
use nacre_msgr::{Connection, Fault, Workspace};
use nacre_types::{AddrVec, AuthName, Stamp};
use std::io::{self, ErrorKind, IoSlice};
use std::net::IpAddr;

/// Bytes read from one connection per turn before the others have theirs.
const READ_BYTES_MAX: usize = 1 << 20;
/// Slices of one gather write; Linux takes 1024.
const WRITE_SLICES_MAX: usize = 256;
/// Slices that most writes do with: a list for many more would take longer to clear than to fill.
const WRITE_SLICES_USUAL: usize = 16;

/// A connection, its socket, and how it stands with both.
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) socket: SocketId,
    pub(super) connection: Connection,
    /// The socket may have bytes to read.
    pub(super) readable: bool,
    /// The peer has closed: nothing comes behind the bytes that are there.
    pub(super) ended: bool,
    /// The socket may take bytes.
    pub(super) writable: bool,
    /// The owner wants nothing read for now.
    pub(super) paused: bool,
    /// Listed for the next flush.
    pub(super) dirty: bool,
    /// Listed for the next reading.
    pub(super) queued: bool,
    pub(super) peer_addrs: AddrVec,
    /// The entity that a peer that dialled us has proved to be.
    pub(super) proved: Option<AuthName>,
    /// Where the peer came in; `None` for one that we dialled.
    pub(super) listener: Option<ListenerId>,
    /// Where it comes from, while it is half-open.
    pub(super) half_open: Option<IpAddr>,
    /// What waits to be sent.
    pub(super) unsent: Unsent,
    /// When it is listed to be looked at.
    pub(super) due: Option<Stamp>,
}

/// Why a connection ends.
pub(super) struct Ending {
    pub(super) reason: String,
    /// Nothing listens where we dialled.
    pub(super) refused: bool,
}

impl From<String> for Ending {
    fn from(reason: String) -> Self {
        Self { reason, refused: false }
    }
}

impl Ending {
    pub(super) fn of(what: &str, error: &io::Error) -> Self {
        let refused = error.kind() == ErrorKind::ConnectionRefused;
        Self { reason: format!("cannot {what}: {error}"), refused }
    }
}

impl Conn {
    /// Whether there may be bytes that the owner and the connection want. A long message that has begun comes to its end although the owner
    /// wants none now: it holds room that others wait for.
    pub(super) fn may_read(&self) -> bool {
        let is_wanted = !self.paused || self.connection.incoming_bytes() > FREE_FRAME_BYTES;
        self.readable && is_wanted && self.connection.wants_read()
    }
}

/// Reads until nothing is left, the budget is used up, or an answer of the owner is due.
///
/// # Errors
/// Why the connection ends.
pub(super) fn read_some(
    conn: &mut Conn,
    net: &mut dyn Net,
    (intake, workspace): (&mut Intake, &mut Workspace),
    now: Stamp,
) -> Result<(), Ending> {
    conn.connection.lend(workspace);
    let outcome = read_on(conn, net, intake, now);
    conn.connection.give_back(workspace);
    outcome
}

fn read_on(conn: &mut Conn, net: &mut dyn Net, intake: &mut Intake, now: Stamp) -> Result<(), Ending> {
    // It was not let begin while the owner wanted none.
    if !conn.paused && conn.connection.room_wanted().is_some() {
        take_room(conn, intake, now).map_err(|fault| fault.to_string())?;
    }
    let mut left = READ_BYTES_MAX;
    while left > 0 && conn.connection.events_count() < EVENTS_MAX && conn.may_read() {
        let space = conn.connection.recv_space();
        let room = space.len();
        match net.receive(conn.socket, space) {
            Ok(0) => return Err("closed by the peer".to_owned().into()),
            Ok(count) => {
                conn.connection.received(now, count).map_err(|fault| fault.to_string())?;
                take_room(conn, intake, now).map_err(|fault| fault.to_string())?;
                left = left.saturating_sub(count);
                // A short read has emptied the socket: the next bytes raise a new event, but the end does not.
                conn.readable = count == room || conn.ended;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => conn.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(Ending::of("receive", &error)),
        }
    }
    Ok(())
}

/// Gives back the room of a frame that is complete, and takes some for the next one if it asks; else it waits.
fn take_room(conn: &mut Conn, intake: &mut Intake, now: Stamp) -> Result<(), Fault> {
    loop {
        if conn.connection.incoming_bytes() <= FREE_FRAME_BYTES {
            intake.give_back(conn.id);
        }
        let Some(bytes) = conn.connection.room_wanted().filter(|_| !conn.paused) else { return Ok(()) };
        let owner = Owner::of(conn.proved.clone(), conn.listener.is_none());
        if !intake.admit(conn.id, &owner, bytes, now) {
            return Ok(());
        }
        conn.connection.give_room()?;
    }
}

/// One write of as many slices as may be.
#[inline(never)]
fn write_many(conn: &Conn, net: &mut dyn Net) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
    let count = conn.connection.out_slices(&mut slices);
    net.send(conn.socket, &slices[..count])
}

/// Writes what the connection has queued, as far as the socket takes it.
///
/// # Errors
/// The socket's.
pub(super) fn write_all(conn: &mut Conn, net: &mut dyn Net, workspace: &mut Workspace) -> io::Result<()> {
    conn.connection.lend_to_send(workspace);
    let outcome = write_on(conn, net);
    conn.connection.give_back_sent(workspace);
    outcome
}

fn write_on(conn: &mut Conn, net: &mut dyn Net) -> io::Result<()> {
    while conn.writable && conn.connection.wants_write() {
        let sent = {
            let mut few = [IoSlice::new(&[]); WRITE_SLICES_USUAL];
            match conn.connection.out_slices(&mut few) {
                WRITE_SLICES_USUAL => write_many(conn, net),
                count => net.send(conn.socket, &few[..count]),
            }
        };
        match sent {
            Ok(count) => conn.connection.sent(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => conn.writable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
