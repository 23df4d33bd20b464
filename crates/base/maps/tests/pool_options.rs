//! Optional settings of pools, as Ceph 16.2 writes and reads them.

use nacre_denc::{Decode, Encode};
use nacre_maps::{OsdMap, PoolOption};
use nacre_types::{Compression, CompressionMode};
use std::process::Command;

/// A map of a running cluster of Ceph, one of whose pools has settings.
fn map() -> OsdMap {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../testdata/commands/osdmap.bin");
    let bytes = std::fs::read(path).expect("testdata");
    OsdMap::from_bytes(bytes.into()).expect("a map")
}

#[test]
fn what_ceph_says_of_compression_is_understood() {
    let map = map();
    let id = map.pool_by_name("cmds-golden").expect("a pool");
    let pool = map.pool(id).expect("a pool");
    let expected = Compression { mode: CompressionMode::Aggressive, ..Compression::default() };
    assert_eq!(pool.compression(Compression::default()), expected);
}

#[test]
fn what_we_say_of_compression_osdmaptool_understands() {
    let mut map = map();
    let id = map.pool_by_name("rbd").expect("a pool");
    let text = |text: &str| PoolOption::Text(text.to_owned());
    let options = [
        (6, text("force")),
        (7, text("lz4")),
        (8, PoolOption::Float(0.75)),
        (9, PoolOption::Int(131_072)),
        (10, PoolOption::Int(16_384)),
    ];
    map.pools.get_mut(&id).expect("a pool").options.extend(options);
    let path = std::env::temp_dir().join(format!("nacre-pool-options-{}", std::process::id()));
    std::fs::write(&path, map.to_bytes()).expect("write the map");
    let output = Command::new("osdmaptool").arg(&path).args(["--dump", "json"]).output();
    std::fs::remove_file(&path).expect("remove the map");
    let output = output.expect("osdmaptool of Ceph's ceph-base package");
    let said: String = String::from_utf8_lossy(&output.stdout).split_whitespace().collect();
    for setting in [
        r#""compression_mode":"force""#,
        r#""compression_algorithm":"lz4""#,
        r#""compression_required_ratio":0.75"#,
        r#""compression_max_blob_size":131072"#,
        r#""compression_min_blob_size":16384"#,
    ] {
        assert!(said.contains(setting), "{setting} is not in {said}");
    }
}
