//! The audit log: which entity asked for what, from where, and how it ended. It is the channel `audit` of the cluster log, which the
//! store keeps (`ceph log last 100 info audit`).

use crate::output::{CommandInput, Output};
use crate::session::Identity;
use nacre_types::{AuthName, Errno, Stamp};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest text of one argument; the rest is cut off.
const ARG_BYTES_MAX: usize = 256;
/// Longest text of a command.
const COMMAND_BYTES_MAX: usize = 2048;
/// Refused commands of one entity that are written down one by one, per [`REFUSED_SPAN`]: others are counted, so that no client can push
/// what happened before out of the log.
const REFUSED_MAX: u64 = 20;
const REFUSED_SPAN: Duration = Duration::from_secs(60);

/// How much of refused commands is written down.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: BTreeMap<AuthName, (Stamp, u64)>,
}

impl Refusals {
    /// Counts a refused command; the number so far in its span, or none when it is not to be written.
    fn count(&mut self, now: Stamp, name: &AuthName) -> Option<u64> {
        let entry = self.counts.entry(name.clone()).or_insert((now, 0));
        if now.since(entry.0) >= REFUSED_SPAN {
            *entry = (now, 0);
        }
        entry.1 += 1;
        (entry.1 <= REFUSED_MAX).then_some(entry.1)
    }

    /// Forgets spans that are over; yields whose commands were left out, and how many.
    pub(crate) fn tick(&mut self, now: Stamp) -> Vec<(AuthName, u64)> {
        let over = |at: Stamp| now.since(at) >= REFUSED_SPAN;
        let left_out = |(name, (at, count)): (&AuthName, &(Stamp, u64))| {
            (over(*at) && *count > REFUSED_MAX).then(|| (name.clone(), *count - REFUSED_MAX))
        };
        let out = self.counts.iter().filter_map(left_out).collect();
        self.counts.retain(|_, (at, _)| !over(*at));
        out
    }
}

/// Whether a command is written down when it succeeds: what changes something, and what may show secrets.
pub(crate) fn concerns(module: &str, perm: &str) -> bool {
    perm.contains('w') || matches!(module, "auth" | "config-key")
}

/// The line of a command, or none when enough of its kind has been written.
pub(crate) fn line(
    refusals: &mut Refusals,
    now: Stamp,
    identity: &Identity,
    input: &CommandInput,
    output: &Output,
) -> Option<String> {
    let denied = output.code == Errno::EACCES.negated();
    if denied {
        refusals.count(now, &identity.auth_name)?;
    }
    let at = identity.seen_at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let addr = identity.addr.without_kind();
    let result = match output.code {
        0 => "finished".to_owned(),
        _ if denied => "access denied".to_owned(),
        code => format!("result {code}: {}", cut(&output.text, ARG_BYTES_MAX)),
    };
    let command = shown(input);
    Some(format!(
        "from='{} {addr}' at='{at}' entity='{}' cmd=[{command}]: {result}",
        identity.name, identity.auth_name
    ))
}

/// The command without what must not be read in a log: values of keys that tools keep, and passwords among the options.
fn shown(input: &CommandInput) -> String {
    let secret_name = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["password", "secret", "token", "key", "credential"].iter().any(|word| name.contains(word))
    };
    let named = input.args.get("name").and_then(Value::as_str).is_some_and(secret_name);
    let hidden = |arg: &str| match arg {
        "val" => input.prefix.starts_with("config-key"),
        "value" => input.prefix.starts_with("config") && named,
        _ => false,
    };
    let args: Map<String, Value> = input
        .args
        .iter()
        .filter(|(name, _)| *name != "target")
        .map(|(name, value)| {
            let value = match value {
                _ if hidden(name) => Value::from("(not shown)"),
                Value::String(text) => Value::from(cut(text, ARG_BYTES_MAX)),
                value => value.clone(),
            };
            (name.clone(), value)
        })
        .collect();
    cut(&Value::Object(args).to_string(), COMMAND_BYTES_MAX).to_owned()
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::EntityKind;

    fn input(json: &str) -> CommandInput {
        crate::commands::parse(&[json.to_owned()], Default::default()).expect("a command")
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = shown(&input(r#"{"prefix":"config-key set","key":"a","val":"sesame"}"#));
        assert!(text.contains("config-key set") && !text.contains("sesame"), "{text}");
        let text =
            shown(&input(r#"{"prefix":"config set","who":"mgr","name":"mgr/x/password","value":"sesame"}"#));
        assert!(!text.contains("sesame"), "{text}");
        let text =
            shown(&input(r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"4"}"#));
        assert!(text.contains(r#""value":"4""#), "{text}");
        let long = format!(r#"{{"prefix":"osd pool create","pool":"{}"}}"#, "ü".repeat(5000));
        assert!(shown(&input(&long)).len() < COMMAND_BYTES_MAX);
    }

    #[test]
    fn refusals_of_one_entity_do_not_fill_the_log() {
        let mut refusals = Refusals::default();
        let name = AuthName::new(EntityKind::CLIENT, "x");
        let written = (0..1000).filter(|_| refusals.count(Stamp(5), &name).is_some()).count();
        assert_eq!(written, 20);
        assert!(refusals.tick(Stamp(6)).is_empty());
        assert_eq!(refusals.tick(Stamp(61_000_000_000)), [(name, 980)]);
    }
}
