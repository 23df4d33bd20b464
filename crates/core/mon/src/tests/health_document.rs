//! `docs/health-checks.md` is complete: every code of the sources stands in its table with a test that is there and names it, and every check
//! that Ceph's alert rules match is either raised or listed with the reason why not.

use nacre_msg::stats::osd_alert;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What the rules of `ceph-prometheus-alerts` 16.2.15 and of ceph-mixin (July 2026) match in `ceph_health_detail`.
const MATCHED_BY_RULES: &str = "MON_DOWN MON_DISK_CRIT MON_DISK_LOW MON_CLOCK_SKEW OSD_HOST_DOWN OSD_DOWN OSD_NEARFULL OSD_FULL \
    OSD_BACKFILLFULL OSD_TOO_MANY_REPAIRS OSD_SLOW_PING_TIME_FRONT OSD_SLOW_PING_TIME_BACK BLUESTORE_DISK_SIZE_MISMATCH DEVICE_HEALTH \
    DEVICE_HEALTH_TOOMANY DEVICE_HEALTH_IN_USE BLUESTORE_SPURIOUS_READ_ERRORS PG_DAMAGED OSD_SCRUB_ERRORS PG_RECOVERY_FULL PG_AVAILABILITY \
    PG_BACKFILL_FULL PG_NOT_SCRUBBED PG_NOT_DEEP_SCRUBBED TOO_MANY_PGS POOL_BACKFILLFULL POOL_FULL POOL_NEAR_FULL OBJECT_UNFOUND RECENT_CRASH \
    RECENT_MGR_MODULE_CRASH UPGRADE_EXCEPTION CEPHADM_FAILED_DAEMON CEPHADM_PAUSED CEPHADM_CERT_ERROR CEPHADM_CERT_WARNING MDS_DAMAGE \
    MDS_ALL_DOWN FS_DEGRADED MDS_UP_LESS_THAN_MAX MDS_INSUFFICIENT_STANDBY FS_WITH_FAILED_MDS MDS_HEALTH_READ_ONLY";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_code(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.contains('_')
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(is_letter)
}

/// Codes that the sources of health have as text, and the names of what OSDs say of themselves.
fn raised() -> BTreeSet<String> {
    let folder = std::fs::read_dir(sources().join("health")).expect("a folder");
    let files = folder.map(|entry| entry.expect("an entry").path()).chain([sources().join("health.rs")]);
    let text: String = files.map(|path| read(&path)).collect();
    let literals = text.split('"').skip(1).step_by(2).filter(|literal| is_code(literal));
    let alerts = [osd_alert::PEER_MESSAGES, osd_alert::CLIENTS_THROTTLED, osd_alert::COPIES_LOST];
    literals.chain(alerts).map(str::to_owned).collect()
}

/// The rows of the page's tables, by their number of columns, as cells without emphasis.
fn rows(columns: usize) -> Vec<Vec<String>> {
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/health-checks.md"));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim_matches(['*', ' ']).to_owned()).collect::<Vec<String>>()
    };
    let rows = page.lines().filter(|line| line.starts_with('|')).map(cells);
    rows.filter(|row| row.len() == columns && row[0].split(", ").all(is_code)).collect()
}

#[test]
fn every_check_is_documented_with_its_test() {
    let documented: BTreeMap<String, Vec<String>> =
        rows(5).into_iter().map(|row| (row[0].clone(), row)).collect();
    let raised = raised();
    let unknown: Vec<&String> = raised.iter().filter(|code| !documented.contains_key(*code)).collect();
    assert!(unknown.is_empty(), "not in docs/health-checks.md: {unknown:?}");
    for (code, row) in &documented {
        let [_, _, when, goes, test] = &row[..] else { panic!("{row:?}") };
        assert!(!when.is_empty() && !goes.is_empty(), "{code}");
        // Made of the bucket's type.
        let is_of_buckets = ["OSD_HOST_DOWN", "OSD_ROOT_DOWN", "OSD_RACK_DOWN"].contains(&code.as_str());
        assert!(raised.contains(code) || is_of_buckets, "{code} is raised nowhere");
        let (file, function) = test.split_once("::").unwrap_or_else(|| panic!("{code}: no test in '{test}'"));
        let text = read(&sources().join(file.strip_prefix("mon/").expect("a file of this crate")));
        let is_there = text.contains(&format!("    #[test]\n    fn {function}("))
            || text.contains(&format!("#[test]\nfn {function}("));
        assert!(is_there && text.contains(code.as_str()), "{code}: {test} does not name it");
    }
}

#[test]
fn every_check_that_alert_rules_match_is_raised_or_explained() {
    let raised: BTreeSet<String> = rows(5).into_iter().map(|row| row[0].clone()).collect();
    let explained: BTreeSet<String> =
        rows(2).iter().flat_map(|row| row[0].split(", ").map(str::to_owned)).collect();
    let both: Vec<&String> = raised.intersection(&explained).collect();
    assert!(both.is_empty(), "raised, and said not to be: {both:?}");
    let neither = MATCHED_BY_RULES
        .split_whitespace()
        .filter(|code| !raised.contains(*code) && !explained.contains(*code));
    assert_eq!(neither.collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(MATCHED_BY_RULES.split_whitespace().count(), 43);
}
