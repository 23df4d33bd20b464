//! Payloads of control frames: their fields one after the other, without an envelope.
//!
//! Source: Ceph `src/msg/async/frames_v2.h` at v16.2.15; golden bytes in `tests/golden.rs`.

use bytes::Bytes;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AddrVec, EntityAddr, EntityKind};

/// The session may be dropped with the connection. Ceph `CEPH_MSG_CONNECT_LOSSY`.
pub(crate) const FLAG_LOSSY: u64 = 1;

/// Payload of HELLO: the sender's kind, and the address that it sees the other at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: EntityKind,
    /// The receiver's address as the sender sees it.
    pub(crate) peer_addr: EntityAddr,
}

impl Encode for Hello {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.kind.0);
        w.put(&self.peer_addr);
    }
}

impl Decode for Hello {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { kind: EntityKind(r.u8()?), peer_addr: r.get()? })
    }
}

/// Payload of AUTH_REQUEST: a method, modes in order of preference, and the method's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthRequest {
    pub(crate) method: u32,
    pub(crate) modes: Vec<u32>,
    pub(crate) payload: Bytes,
}

impl Encode for AuthRequest {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.method);
        w.put(&self.modes);
        w.blob(&self.payload);
    }
}

impl Decode for AuthRequest {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { method: r.u32()?, modes: r.get()?, payload: r.blob()? })
    }
}

/// Payload of AUTH_BAD_METHOD: why, and what is accepted instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthBad {
    pub(crate) method: u32,
    pub(crate) result: i32,
    pub(crate) methods: Vec<u32>,
    pub(crate) modes: Vec<u32>,
}

impl Encode for AuthBad {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.method);
        w.i32(self.result);
        w.put(&self.methods);
        w.put(&self.modes);
    }
}

impl Decode for AuthBad {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { method: r.u32()?, result: r.i32()?, methods: r.get()?, modes: r.get()? })
    }
}

/// Payload of AUTH_DONE: the instance, the mode, and the method's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthDone {
    pub(crate) global_id: u64,
    pub(crate) mode: u32,
    pub(crate) payload: Bytes,
}

impl Encode for AuthDone {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.global_id);
        w.u32(self.mode);
        w.blob(&self.payload);
    }
}

impl Decode for AuthDone {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { global_id: r.u64()?, mode: r.u32()?, payload: r.blob()? })
    }
}

/// Payload of CLIENT_IDENT: number, addresses and features of the side that dials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientIdent {
    pub(crate) addrs: AddrVec,
    pub(crate) target: EntityAddr,
    pub(crate) gid: i64,
    pub(crate) global_seq: u64,
    pub(crate) supported: u64,
    pub(crate) required: u64,
    pub(crate) flags: u64,
    pub(crate) cookie: u64,
}

impl Encode for ClientIdent {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.addrs);
        w.put(&self.target);
        w.i64(self.gid);
        for field in [self.global_seq, self.supported, self.required, self.flags, self.cookie] {
            w.u64(field);
        }
    }
}

impl Decode for ClientIdent {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            addrs: r.get()?,
            target: r.get()?,
            gid: r.i64()?,
            global_seq: r.u64()?,
            supported: r.u64()?,
            required: r.u64()?,
            flags: r.u64()?,
            cookie: r.u64()?,
        })
    }
}

/// Payload of SERVER_IDENT: number, addresses and features of the side that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerIdent {
    pub(crate) addrs: AddrVec,
    pub(crate) gid: i64,
    pub(crate) global_seq: u64,
    pub(crate) supported: u64,
    pub(crate) required: u64,
    pub(crate) flags: u64,
    pub(crate) cookie: u64,
}

impl Encode for ServerIdent {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.addrs);
        w.i64(self.gid);
        for field in [self.global_seq, self.supported, self.required, self.flags, self.cookie] {
            w.u64(field);
        }
    }
}

impl Decode for ServerIdent {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            addrs: r.get()?,
            gid: r.i64()?,
            global_seq: r.u64()?,
            supported: r.u64()?,
            required: r.u64()?,
            flags: r.u64()?,
            cookie: r.u64()?,
        })
    }
}

/// Payload of SESSION_RECONNECT: the session that is to go on, and what was received in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reconnect {
    pub(crate) addrs: AddrVec,
    pub(crate) client_cookie: u64,
    pub(crate) server_cookie: u64,
    pub(crate) global_seq: u64,
    pub(crate) connect_seq: u64,
    /// The newest message that the sender has received in this session.
    pub(crate) last_received: u64,
}

impl Encode for Reconnect {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.addrs);
        let numbers =
            [self.client_cookie, self.server_cookie, self.global_seq, self.connect_seq, self.last_received];
        numbers.into_iter().for_each(|number| w.u64(number));
    }
}

impl Decode for Reconnect {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self {
            addrs: r.get()?,
            client_cookie: r.u64()?,
            server_cookie: r.u64()?,
            global_seq: r.u64()?,
            connect_seq: r.u64()?,
            last_received: r.u64()?,
        })
    }
}
