//! Answers compared with those of a running cluster of Ceph v16.2.15 (`testdata/commands`): the maps there are
//! that cluster's, and so are the files of expected output.

mod changes;
mod effects;
mod encryption;
mod golden;

use super::{parse, run};
use crate::batch::{Batch, MemorySnapshot};
use crate::command::{CommandCx, Output};
use crate::monmap::MonMaps;
use crate::osd::OsdMaps;
use crate::session::Identity;
use crate::state::State;
use crate::warmth::Warmth;
use nacre_auth::MonCaps;
use nacre_buf::Bytes;
use nacre_denc::Decode;
use nacre_maps::{MonMap, OsdMap};
use nacre_types::entropy::SeededEntropy;
use nacre_types::{AuthName, EntityAddr, EntityKind, EntityName, Stamp, UTime};

/// A file of the running cluster.
fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/../../../testdata/commands/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A monitor's state and the client that asks it.
struct Bench {
    state: State,
    identity: Identity,
    wall: UTime,
}

impl Bench {
    /// The state of the running cluster when its answers were taken.
    fn new() -> Self {
        let mut batch = Batch::default();
        let bytes = |name| Bytes::from(file(name));
        MonMaps::create(&MonMap::from_bytes(bytes("monmap.bin")).expect("a monmap"), &mut batch);
        OsdMaps::create(&OsdMap::from_bytes(bytes("osdmap.bin")).expect("an osdmap"), &mut batch);
        let mut snapshot = MemorySnapshot::default();
        snapshot.apply(&batch);
        let wall = UTime { sec: 1_795_257_081, nsec: 0 };
        let mut state = State::open(&snapshot, "a", wall).expect("a complete state");
        state.warmth = Warmth::Warm;
        let identity = Identity {
            auth_name: AuthName::new(EntityKind::CLIENT, "admin"),
            name: EntityName::client(4100),
            global_id: 4100,
            caps: MonCaps::allow_all(),
            mgr_caps: None,
            allows_all: false,
            addr: EntityAddr::NONE,
            seen_at: None,
        };
        Self { state, identity, wall }
    }

    fn run(&mut self, json: &str, data: &[u8]) -> Output {
        let input = parse(&[json.to_owned()], Bytes::copy_from_slice(data)).expect("a command");
        let mut cx = CommandCx {
            state: &mut self.state,
            identity: &self.identity,
            now: Stamp::default(),
            wall: self.wall,
            entropy: &mut SeededEntropy(7),
        };
        run(&mut cx, &input)
    }

    /// Output as text; the command must succeed.
    fn ask(&mut self, json: &str) -> String {
        let output = self.run(json, &[]);
        assert_eq!(output.code, 0, "{json}: {}", output.text);
        String::from_utf8(output.data.to_vec()).expect("text")
    }

    /// What the command says on standard error, with its code.
    fn say(&mut self, json: &str) -> (i32, String) {
        let output = self.run(json, &[]);
        (output.code, output.text)
    }
}
