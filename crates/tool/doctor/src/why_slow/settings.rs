//! Settings of clients that keep them from having much under way, or from answering from memory. Of those that the monitors keep; what a
//! client has in its own `ceph.conf` only that client knows.

use crate::cluster::session::Answer;

/// Names, and from which value down (a flag: false is 0) they are in the way; their defaults are above.
const SETTINGS: [(&str, f64); 5] = [
    ("rbd_cache", 0.0),
    ("librados_thread_count", 1.0),
    ("objecter_inflight_ops", 63.0),
    ("objecter_inflight_op_bytes", 4_194_304.0),
    ("rbd_qos_iops_limit", f64::MAX),
];

fn number(value: &str) -> Option<f64> {
    match value {
        "true" => Some(1.0),
        "false" => Some(0.0),
        number => number.parse().ok(),
    }
}

/// As `client rbd_cache = false`.
pub(super) fn in_the_way(config_dump: &Answer) -> Vec<String> {
    let rows = config_dump.as_ref().ok().and_then(|rows| rows.as_array());
    let one = |row: &serde_json::Value| {
        let (section, name, value) =
            (row["section"].as_str()?, row["name"].as_str()?, row["value"].as_str()?);
        let is_clients = section == "global" || section == "client" || section.starts_with("client.");
        let (_, upto) = SETTINGS.iter().find(|(setting, _)| *setting == name)?;
        let number = number(value)?;
        // No limit at all is 0 where every other value is one.
        let is_set = number <= *upto && (*upto < f64::MAX || number > 0.0);
        (is_clients && is_set).then(|| format!("{section} {name} = {value}"))
    };
    rows.into_iter().flatten().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_in_the_way_of_clients_is_named() {
        let row = |section: &str, name: &str, value: &str| json!({ "section": section, "name": name, "value": value });
        let dump = json!([
            row("client", "rbd_cache", "false"),
            row("global", "objecter_inflight_ops", "4"),
            row("client.a", "rbd_qos_iops_limit", "100"),
            row("client", "rbd_qos_iops_limit", "0"),
            row("client", "objecter_inflight_ops", "1024"),
            row("osd", "objecter_inflight_ops", "1"),
            row("client", "debug_ms", "0"),
        ]);
        let named = in_the_way(&Ok(dump));
        assert_eq!(
            named,
            [
                "client rbd_cache = false",
                "global objecter_inflight_ops = 4",
                "client.a rbd_qos_iops_limit = 100"
            ]
        );
        assert!(in_the_way(&Err("EACCES".to_owned())).is_empty());
    }
}
