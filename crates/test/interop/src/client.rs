//! [`Client`]: our own side of authenticated connections, for what stock clients never send.

use crate::Cluster;
use nacre_auth::{Authorizer, ClientAuth, ClientError, ConnectionMode, Keyring, Offer, SessionKeys};
use nacre_buf::Bytes;
use nacre_denc::Decode;
use nacre_maps::OsdMap;
use nacre_msg::{Message, MonSubscribe, RawMessage, Subscription};
use nacre_msgr::{Config, Connection, Event, Opening, Target};
use nacre_types::{AuthName, EntityAddr, EntityKind, Entropy, Stamp, UTime};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(20);
/// A peer that takes nothing for so long has stopped to read us.
const SENT_WITHIN: Duration = Duration::from_secs(5);
const READ_WAIT: Duration = Duration::from_millis(1);

struct Kernel;

impl Entropy for Kernel {
    fn fill(&mut self, out: &mut [u8]) {
        getrandom::fill(out).expect("the kernel's generator");
    }
}

fn wall() -> UTime {
    UTime::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970"))
}

/// client.admin and its tickets.
pub struct Client {
    auth: ClientAuth,
    monitor: EntityAddr,
}

impl Client {
    /// The administrator of `cluster`. Frames are sent in CRC mode.
    ///
    /// # Panics
    /// When the cluster's files do not say where it is.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        let shell = cluster.shell();
        let host = shell.sh("ceph-conf -c $CEPH_CONF --lookup 'mon host'");
        let monitor = EntityAddr::parse(host.trim_matches(['[', ']'])).expect("one monitor of version 2");
        let keyring = shell.sh("cat $(ceph-conf -c $CEPH_CONF --name client.admin --lookup keyring)");
        let keyring = Keyring::parse(&keyring).expect("a keyring");
        let name = AuthName::new(EntityKind::CLIENT, "admin");
        let key = keyring.get(&name).expect("client.admin").key.clone();
        let services = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
        Self { auth: ClientAuth::new(name, Some(key), offer(), &services), monitor }
    }

    /// A session with the monitor; brings tickets for the others.
    ///
    /// # Errors
    /// When there is none to be had.
    pub fn monitor(&mut self) -> Result<Wire, String> {
        Wire::open(self.monitor, EntityKind::MON, &mut self.auth)
    }

    /// A session with another daemon, by ticket: call [`Client::monitor`] before.
    ///
    /// # Errors
    /// When there is none to be had.
    pub fn daemon(&self, kind: EntityKind, addr: EntityAddr) -> Result<Wire, String> {
        let authorizer = self.auth.authorizer(kind, &offer(), wall(), &mut Kernel);
        Wire::open(addr, kind, &mut authorizer.ok_or("no ticket")?)
    }

    /// The newest map of the OSDs.
    ///
    /// # Errors
    /// When the monitor does not send it.
    pub fn osdmap(&mut self) -> Result<OsdMap, String> {
        let mut wire = self.monitor()?;
        let wish = Subscription { start: 0, flags: Subscription::ONETIME };
        let what = [("osdmap".to_owned(), wish)].into();
        wire.send(Message::from(MonSubscribe { what, hostname: "test".to_owned() }).encode(1))?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            for raw in wire.take()? {
                let message = Message::decode(raw).map_err(|error| error.to_string())?;
                if let Message::MOsdMap(maps) = message
                    && let Some(full) = maps.full.into_values().next_back()
                {
                    return OsdMap::from_bytes(full).map_err(|error| error.to_string());
                }
            }
        }
        Err("the monitor sends no map".to_owned())
    }
}

fn offer() -> Offer {
    Offer { modes: vec![ConnectionMode::Crc], ..Offer::crc_first() }
}

/// How a connection authenticates.
trait Handshake {
    fn start(&mut self) -> nacre_auth::AuthStart;
    fn more(&mut self, payload: Bytes) -> Result<Bytes, ClientError>;
    fn done(&mut self, global_id: u64, mode: u32, payload: Bytes) -> Result<SessionKeys, ClientError>;
}

impl Handshake for ClientAuth {
    fn start(&mut self) -> nacre_auth::AuthStart {
        Self::start(self)
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, ClientError> {
        Self::more(self, payload, &mut Kernel)
    }

    fn done(&mut self, global_id: u64, mode: u32, payload: Bytes) -> Result<SessionKeys, ClientError> {
        Self::done(self, global_id, mode, payload, wall())
    }
}

impl Handshake for Authorizer {
    fn start(&mut self) -> nacre_auth::AuthStart {
        Self::start(self)
    }

    fn more(&mut self, payload: Bytes) -> Result<Bytes, ClientError> {
        Self::more(self, &payload)
    }

    fn done(&mut self, _global_id: u64, mode: u32, payload: Bytes) -> Result<SessionKeys, ClientError> {
        Self::done(self, mode, payload)
    }
}

/// An authenticated connection.
pub struct Wire {
    socket: TcpStream,
    connection: Connection,
    begun: Instant,
}

impl Wire {
    fn open(addr: EntityAddr, kind: EntityKind, auth: &mut dyn Handshake) -> Result<Self, String> {
        let say = |error: &dyn std::fmt::Display| format!("{addr:?}: {error}");
        let socket = TcpStream::connect(addr.socket.ok_or("no socket")?).map_err(|error| say(&error))?;
        socket.set_read_timeout(Some(READ_WAIT)).map_err(|error| say(&error))?;
        socket.set_write_timeout(Some(SENT_WITHIN)).map_err(|error| say(&error))?;
        socket.set_nodelay(true).map_err(|error| say(&error))?;
        let config = Arc::new(Config::client(u32::try_from(Kernel.u64() >> 33).expect("31 bits")));
        let opening = Opening { now: Stamp::default(), global_seq: 1, cookie: Kernel.u64() | 1 };
        let connection = Connection::connect(config, Target { addr, kind, gid: -1 }, opening);
        let mut wire = Self { socket, connection, begun: Instant::now() };
        while !wire.shake_hands(auth)? {
            if wire.begun.elapsed() > PATIENCE {
                return Err(say(&"no session"));
            }
        }
        Ok(wire)
    }

    /// One turn of the handshake; true when messages may flow.
    fn shake_hands(&mut self, auth: &mut dyn Handshake) -> Result<bool, String> {
        self.turn()?;
        while let Some(event) = self.connection.next_event() {
            match event {
                Event::Hello { .. } => {
                    let start = auth.start();
                    self.drive(|c| c.auth_start(start.method, &start.modes, &start.payload))?;
                }
                Event::AuthReplyMore { payload } => {
                    let answer = auth.more(payload).map_err(|error| error.to_string())?;
                    self.drive(|c| c.auth_request_more(&answer))?;
                }
                Event::AuthDone { global_id, mode, payload } => {
                    let keys = auth.done(global_id, mode, payload).map_err(|error| error.to_string())?;
                    self.drive(|c| c.auth_finish(&keys.session_key, &keys.connection_secret))?;
                }
                Event::AuthBad { result, .. } => return Err(format!("refused: {result}")),
                Event::Established(_) => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    fn drive(
        &mut self,
        work: impl FnOnce(&mut Connection) -> Result<(), nacre_msgr::Fault>,
    ) -> Result<(), String> {
        work(&mut self.connection).map_err(|fault| fault.to_string())
    }

    fn now(&self) -> Stamp {
        Stamp(u64::try_from(self.begun.elapsed().as_nanos()).expect("a short test"))
    }

    /// Writes what waits, reads what is there.
    fn turn(&mut self) -> Result<(), String> {
        while self.connection.wants_write() {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = self.connection.out_slices(&mut slices);
            let sent = self.socket.write_vectored(&slices[..count]).map_err(|error| error.to_string())?;
            self.connection.sent(sent);
        }
        match self.socket.read(self.connection.recv_space()) {
            Ok(0) => Err("closed by the peer".to_owned()),
            Ok(count) => {
                let now = self.now();
                self.drive(|c| c.received(now, count))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends a message, whatever is in it.
    ///
    /// # Errors
    /// When the peer has closed the connection.
    pub fn send(&mut self, raw: RawMessage) -> Result<(), String> {
        self.drive(|c| c.send(raw))?;
        self.turn()
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// When the peer has closed the connection.
    pub fn keep_alive(&mut self) -> Result<(), String> {
        self.connection.send_keepalive(wall());
        self.turn()
    }

    /// What has come meanwhile.
    ///
    /// # Errors
    /// When the peer has closed the connection.
    pub fn take(&mut self) -> Result<Vec<RawMessage>, String> {
        self.turn()?;
        let mut messages = Vec::new();
        while let Some(event) = self.connection.next_event() {
            if let Event::Message(raw) = event {
                messages.push(raw);
            }
        }
        Ok(messages)
    }
}
