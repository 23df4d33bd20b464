//! [`Mutants`]: messages from somebody who has authenticated and then sends what no client would.

use crate::Random;
use nacre_buf::{BufList, ByteStr, Bytes};
use nacre_cls::CLASSES;
use nacre_denc::Writer;
use nacre_maps::OsdMap;
use nacre_msg::osd_op::{ARGS_BYTES, code, flag};
use nacre_msg::{Message, OsdOp, RawMessage, SubOp};
use nacre_types::{HObject, ObjectLocator, OsdId, PoolId, ReqId, SnapId, SpgId, UTime};

/// Objects that are fought over: few, so that operations meet.
const OBJECTS: usize = 12;
/// Kinds of messages that monitors, managers and OSDs know, and some that nobody does.
const KINDS: [u16; 40] = [
    3, 4, 5, 7, 13, 14, 15, 17, 19, 20, 41, 42, 43, 44, 46, 48, 49, 50, 51, 52, 53, 58, 59, 62, 70, 71, 72,
    78, 87, 97, 98, 99, 100, 111, 500, 1792, 1794, 1798, 0x7000, 0x7005,
];

/// Makes hostile messages from a seed, aimed at one pool.
#[derive(Debug)]
pub struct Mutants {
    random: Random,
    map: OsdMap,
    pool: PoolId,
    pg_num: u32,
    tid: u64,
}

impl Mutants {
    /// Messages of this seed.
    ///
    /// # Panics
    /// When the map has no such pool.
    #[must_use]
    pub fn new(seed: u64, map: OsdMap, pool: &str) -> Self {
        let pool = map.pool_by_name(pool).expect("our pool");
        let pg_num = map.pool(pool).expect("a pool with a name").pg_num;
        Self { random: Random::new(seed), map, pool, pg_num, tid: 0 }
    }

    /// The map that messages are made for.
    #[must_use]
    pub fn map(&self) -> &OsdMap {
        &self.map
    }

    /// A message of any kind with any content.
    pub fn any(&mut self) -> RawMessage {
        self.tid += 1;
        let kind = if self.random.one_in(10) { self.random.bytes(2) } else { Vec::new() };
        let kind = kind.first_chunk().map_or(*self.random.pick(&KINDS), |bytes| u16::from_le_bytes(*bytes));
        let mut part = |zeros: bool| {
            let count = self.random.below(400);
            let mut bytes = if zeros { vec![0; count + 1] } else { self.random.bytes(count + 1) };
            self.random.edit(&mut bytes);
            Bytes::from(bytes)
        };
        let (front, data) = (part(true), part(false));
        let (version, compat) = (*self.random.pick(&[1, 2, 3, 4, 7, 8, 9]), *self.random.pick(&[1, 2, 3]));
        RawMessage {
            tid: self.tid,
            kind,
            version,
            compat,
            priority: 127,
            front,
            middle: Bytes::new(),
            data: if self.random.one_in(2) { BufList::new() } else { data.into() },
        }
    }

    /// A command: JSON that is almost one.
    pub fn command(&mut self, prefixes: &[String]) -> String {
        let prefix = self.random.pick(prefixes).clone();
        let words = [
            "\"\"",
            "null",
            "[]",
            "{}",
            "-1",
            "0",
            "18446744073709551616",
            "1e400",
            "\"-9223372036854775808\"",
            "true",
            "\"\\u0000\"",
            "\"*\"",
            "\"../..\"",
            "\"osd.999999\"",
            "\"1.ffffffff\"",
            "[\"a\",1,{}]",
            "\"json\"",
        ];
        let names = [
            "pool", "format", "id", "ids", "entity", "key", "who", "what", "pgid", "epoch", "var", "val",
            "detail", "name", "object", "weight", "caps", "states", "osd", "level", "value", "args",
            "target", "num", "type",
        ];
        let mut json = format!("{{\"prefix\":\"{prefix}\"");
        for _ in 0..self.random.below(5) {
            let (name, word) = (self.random.pick(&names), self.random.pick(&words));
            json.push_str(&format!(",\"{name}\":{word}"));
        }
        json.push('}');
        if self.random.one_in(10) {
            let mut bytes = json.into_bytes();
            self.random.edit(&mut bytes);
            json = String::from_utf8_lossy(&bytes).into_owned();
        }
        json
    }

    /// Operations on an object, and the OSD that serves it. Now and then the bytes are changed as well.
    pub fn operation(&mut self) -> (OsdId, RawMessage) {
        let name: ByteStr = format!("object-{}", self.random.below(OBJECTS)).as_str().into();
        let object = HObject::head(self.pool, ByteStr::EMPTY, ByteStr::EMPTY, name.clone());
        let pg = object.pg(self.pg_num);
        let osd = self.map.pg_to_up_acting(pg).acting_primary;
        self.tid += 1;
        let count = 1 + self.random.below(6);
        let message = OsdOp {
            spg: SpgId::replicated(pg),
            hash: object.hash,
            epoch: if self.random.one_in(30) { 1 } else { self.map.epoch },
            flags: self.flags(),
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: UTime { sec: self.lie(), nsec: self.lie() },
            locator: ObjectLocator::in_pool(self.pool),
            name,
            ops: (0..count).map(|_| self.sub_op()).collect(),
            snap: if self.random.one_in(5) { SnapId(self.random.nasty()) } else { SnapId::HEAD },
            snap_seq: SnapId(self.snap()),
            snaps: (0..self.random.below(4)).map(|_| SnapId(self.snap())).collect(),
            retry_attempt: 0,
            features: self.random.word(),
        };
        let mut raw = Message::from(message).encode(self.tid);
        if self.random.one_in(8) {
            let mut front = raw.front.to_vec();
            self.random.edit(&mut front);
            raw.front = front.into();
        }
        (osd, raw)
    }

    /// Mostly zero: snapshots of the far future make every later write to the object fail.
    fn snap(&mut self) -> u64 {
        if self.random.one_in(4) { self.random.word() % 8 } else { 0 }
    }

    fn lie(&mut self) -> u32 {
        let bytes = self.random.nasty().to_le_bytes();
        u32::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
    }

    fn flags(&mut self) -> u32 {
        let usual = flag::READ | flag::WRITE | flag::ONDISK | flag::KNOWN_REDIR;
        if self.random.one_in(3) { usual ^ 1 << self.random.below(28) } else { usual }
    }

    fn sub_op(&mut self) -> SubOp {
        match self.random.below(10) {
            0 | 1 => self.call(),
            2 => SubOp::write_full(self.input()),
            3 => SubOp::append(self.input()),
            _ => self.any_op(),
        }
    }

    fn any_op(&mut self) -> SubOp {
        let code =
            if self.random.one_in(20) { 0x2f0f ^ self.snap() as u16 } else { *self.random.pick(code::ALL) };
        let mut args = [0; ARGS_BYTES];
        for chunk in args.chunks_mut(8) {
            let number = if self.random.one_in(2) { self.random.word() % 4096 } else { self.random.nasty() };
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
        let flags = if self.random.one_in(4) { self.lie() } else { 0 };
        SubOp { code, flags, args, indata: self.input() }
    }

    fn call(&mut self) -> SubOp {
        let class = self.random.pick(CLASSES);
        let method = self.random.pick(class.methods);
        let input = self.input().to_bytes();
        SubOp::call(class.name, method.name, &input)
    }

    /// Input as operations take it: a name, a map, a count and a name, noise; half of the time changed.
    fn input(&mut self) -> BufList {
        let mut w = Writer::new();
        match self.random.below(6) {
            0 => return BufList::new(),
            1 => w.str("name"),
            2 => w.put(&vec![(ByteStr::from("key"), Bytes::from_static(b"value")); 3]),
            3 => {
                w.str("");
                w.u64(self.random.nasty());
                w.str("prefix");
            }
            4 => w.envelope(1, 1, |w| w.str("inside")),
            _ => {
                let count = 1 + self.random.below(9000);
                w.raw(&self.random.bytes(count));
            }
        }
        let mut bytes = w.finish().to_vec();
        if self.random.one_in(2) {
            self.random.edit(&mut bytes);
        }
        Bytes::from(bytes).into()
    }
}
