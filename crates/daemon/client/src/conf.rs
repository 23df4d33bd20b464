//! What clients and daemons read of a `ceph.conf`.
//!
//! Source of the syntax: Ceph `src/common/ConfUtils.cc` and `src/common/config.cc`, v16.2.15.

use crate::mon_host::{self, MonHost};
use nacre_types::EntityAddr;
use std::collections::BTreeMap;

/// Bytes of a `ceph.conf`; a longer one is none.
const CONF_BYTES_MAX: usize = 4 << 20;

/// Why a text is no `ceph.conf`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    /// A line that is neither a section nor an option.
    #[error("line {line} is neither `[section]` nor `name = value`: {text}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The line itself.
        text: String,
    },
    /// Nobody writes so much.
    #[error("it has more than 4 MiB")]
    Long,
}

/// A `ceph.conf`, by section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfFile {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

/// The name of an option as tables have it: words joined by underscores.
fn normal_name(name: &str) -> String {
    let words =
        name.split(|c: char| c.is_whitespace() || c == '-' || c == '_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// A line without its comment: `#` and `;` begin one unless escaped or quoted.
fn without_comment(line: &str) -> String {
    let (mut out, mut quote, mut escaped) = (String::new(), None, false);
    for c in line.chars() {
        match c {
            '#' | ';' if escaped => {
                out.pop();
                out.push(c);
            }
            '#' | ';' if quote.is_none() => break,
            '"' | '\'' if !escaped && quote.is_none_or(|open| open == c) => {
                quote = if quote.is_some() { None } else { Some(c) };
                out.push(c);
            }
            _ => out.push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    out
}

/// A value without the quotes around it.
fn unquoted(value: &str) -> &str {
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(value)
}

impl ConfFile {
    /// Reads a whole file. What stands before the first section belongs to `global`; of two values of one option in one section the later
    /// one counts.
    ///
    /// # Errors
    /// [`ConfError`].
    pub fn parse(text: &str) -> Result<Self, ConfError> {
        if text.len() > CONF_BYTES_MAX {
            return Err(ConfError::Long);
        }
        let (mut conf, mut section) = (Self::default(), "global".to_owned());
        let mut begun = String::new();
        for (index, line) in text.lines().enumerate() {
            let line = without_comment(line);
            // A line that ends with a backslash goes on in the next one.
            if let Some(more) = line.trim_end().strip_suffix('\\') {
                begun.push_str(more);
                continue;
            }
            let whole = std::mem::take(&mut begun) + &line;
            let whole = whole.trim();
            let error = || ConfError::Line { line: index + 1, text: whole.to_owned() };
            if whole.is_empty() {
                continue;
            }
            if let Some(name) = whole.strip_prefix('[').filter(|rest| !rest.contains('=')) {
                section = name.strip_suffix(']').ok_or_else(error)?.trim().to_owned();
                continue;
            }
            let (name, value) = whole.split_once('=').ok_or_else(error)?;
            let name = normal_name(name);
            if name.is_empty() {
                return Err(error());
            }
            let options = conf.sections.entry(section.clone()).or_default();
            options.insert(name, unquoted(value.trim()).to_owned());
        }
        Ok(conf)
    }

    /// What holds for the daemon or client `kind.id`, such as `osd.3`: its own section before that of its kind before `global`.
    #[must_use]
    pub fn for_entity(&self, kind: &str, id: &str) -> BTreeMap<String, String> {
        let sections = ["global".to_owned(), kind.to_owned(), format!("{kind}.{id}")];
        let merged = sections.iter().filter_map(|section| self.sections.get(section)).flatten();
        merged.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Names of the options that stand in a section of the entity's kind, or in its own.
    #[must_use]
    pub fn own_options(&self, kind: &str, id: &str) -> Vec<&str> {
        let sections = [kind.to_owned(), format!("{kind}.{id}")];
        let own = sections.iter().filter_map(|section| self.sections.get(section));
        own.flat_map(BTreeMap::keys).map(String::as_str).collect()
    }

    /// Addresses of monitors that have a section of their own with `mon addr` or `public addr`, in the order of their names.
    #[must_use]
    pub fn monitor_sections(&self) -> Vec<&str> {
        let monitors = self.sections.iter().filter(|(section, _)| section.starts_with("mon."));
        monitors
            .filter_map(|(_, options)| options.get("mon_addr").or_else(|| options.get("public_addr")))
            .map(String::as_str)
            .collect()
    }
}

/// Puts values in for the variables `$cluster`, `$type`, `$id`, `$name`, `$host`, also as `${id}`. One that is not known stays as it is.
#[must_use]
pub fn expand(text: &str, variables: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        let (name, after) = match behind.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some(braced) => braced,
            None => {
                let end =
                    behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        match variables.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => out.push_str(value),
            None => {
                out.push('$');
                out.push_str(behind.get(..behind.len() - after.len()).unwrap_or_default());
            }
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The value of an option, wherever in the file it stands first. Names may be written with spaces, dashes or
/// underscores; `wanted` has underscores.
#[must_use]
pub fn option(text: &str, wanted: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split(['#', ';']).next()?.split_once('=')?;
        (name.trim().replace([' ', '-'], "_") == wanted).then(|| value.trim().to_owned())
    })
}

/// The monitors' addresses by `mon host`, where it has addresses only; those of the old protocol are passed over. `None`
/// when there are none, or one is no address.
#[must_use]
pub fn monitors(text: &str) -> Option<Vec<EntityAddr>> {
    let hosts = mon_host::parse(&option(text, "mon_host")?).ok()?;
    let addrs = hosts.iter().filter(|host| !host.is_old).map(MonHost::addr).collect::<Option<Vec<_>>>()?;
    (!addrs.is_empty()).then_some(addrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = "fsid = 1 # ours\n[global]\n  mon host = a, \\\n  b\nosd-heartbeat grace = 20\n[osd]\nosd heartbeat grace = 30\n\
                        crush location = \"root=nacre host=h1\" ; where\n[osd.3]\nosd_heartbeat_grace = 40\n\
                        [mon.a]\nmon addr = 10.0.0.1\n[mon.b]\npublic addr = 10.0.0.2\n[client.x]\nkey = a\\#b\n";

    #[test]
    fn a_daemons_own_section_counts_before_its_kinds_before_the_global_one() {
        let conf = ConfFile::parse(CONF).expect("a whole file");
        let grace = |id| conf.for_entity("osd", id).remove("osd_heartbeat_grace");
        assert_eq!((grace("3").as_deref(), grace("4").as_deref()), (Some("40"), Some("30")));
        let osd = conf.for_entity("osd", "3");
        assert_eq!(osd.get("fsid").map(String::as_str), Some("1"));
        assert_eq!(osd.get("mon_host").map(String::as_str), Some("a,   b"));
        assert_eq!(osd.get("crush_location").map(String::as_str), Some("root=nacre host=h1"));
        assert_eq!(conf.for_entity("client", "x").get("key").map(String::as_str), Some("a#b"));
        assert_eq!(conf.monitor_sections(), ["10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn what_is_no_conf_is_refused_with_its_line() {
        for (text, wrong) in [("[global\n", 1), ("\n[global]\nfsid\n", 3), (" = 3\n", 1)] {
            let error = ConfFile::parse(text).expect_err(text);
            assert!(matches!(error, ConfError::Line { line, .. } if line == wrong), "{error}");
        }
    }

    #[test]
    fn variables_are_put_in() {
        let variables = [("cluster", "ceph"), ("id", "3")];
        assert_eq!(expand("/var/$cluster-$id/${id}x/$pid", &variables), "/var/ceph-3/3x/$pid");
        assert_eq!(expand("$", &variables), "$");
        assert_eq!(expand("${id", &variables), "${id");
    }
}
