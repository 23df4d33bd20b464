//! What clients and daemons read of a `ceph.conf`.

use nacre_types::EntityAddr;

/// The value of an option, wherever in the file it stands first. Names may be written with spaces, dashes or
/// underscores; `wanted` has underscores.
#[must_use]
pub fn option(text: &str, wanted: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split(['#', ';']).next()?.split_once('=')?;
        (name.trim().replace([' ', '-'], "_") == wanted).then(|| value.trim().to_owned())
    })
}

/// The monitors' addresses by `mon host`: alone or in brackets; those of the old protocol are passed over. `None`
/// when there are none, or one is no address.
#[must_use]
pub fn monitors(text: &str) -> Option<Vec<EntityAddr>> {
    let hosts = option(text, "mon_host")?;
    // Brackets also stand around a v6 address; those of a list are before `v` and at the end.
    let bare = |word: &'_ str| word.strip_prefix("[v").map_or(word.to_owned(), |rest| format!("v{rest}"));
    let words = hosts.split([',', ' ']).map(|word| bare(word).trim_end_matches(']').to_owned());
    let words = words.filter(|word| !word.is_empty() && !word.starts_with("v1:"));
    let parse = |word: String| EntityAddr::parse(&format!("v2:{}", word.trim_start_matches("v2:")));
    let monitors = words.map(parse).collect::<Option<Vec<_>>>()?;
    (!monitors.is_empty()).then_some(monitors)
}
