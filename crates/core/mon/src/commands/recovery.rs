//! The recovery key: `mon recovery-key rotate`, and what OSDs keep that it opens: `mon recovery-status`. Both are ours.

use super::call::{Answer, Call, done, fail};
use super::table::{Command, command};
use crate::command::Output;
use nacre_format::{Node, Section, stamp};
use nacre_types::{Errno, OsdId, UTime};

const NO_KEY: &str = "there is no recovery key, so OSDs keep nothing to recover from; `nacre mon recovery-key --rotate` makes one";

/// Makes a new key; its answer is given again with the key as it is then.
pub(super) const ROTATE: &str = "mon recovery-key rotate";

pub(super) const COMMANDS: &[Command] = &[
    command(ROTATE, "auth", "rwx", "Make a new recovery key and show it, once", rotate),
    command(
        "mon recovery-status",
        "mon",
        "r",
        "Which OSDs have a recovery snapshot, and since when the key is the one",
        status,
    ),
];

fn rotate(call: &mut Call<'_>) -> Answer {
    let key = call.state.recovery.rotate(call.wall, call.entropy);
    Ok(Output::data(key.to_text()))
}

/// The answer to a rotation that was carried out.
pub(super) fn show_again(call: &Call<'_>) -> Answer {
    match call.state.recovery.key() {
        Some(dated) => Ok(Output::data(dated.key.to_text())),
        None => fail(Errno::ENOENT, "there is no recovery key"),
    }
}

fn status(call: &mut Call<'_>) -> Answer {
    let recovery = &call.state.recovery;
    let Some(key) = recovery.key() else {
        return done(NO_KEY);
    };
    let is_current = |made: &u64| *made > u64::from(key.made.sec);
    let held =
        |osd: OsdId| recovery.held().get(&osd).copied().filter(is_current).map_or_else(String::new, shown);
    let osds: Vec<(OsdId, String)> = call.state.osd.map().osds().map(|osd| (osd, held(osd))).collect();
    let mut plain = format!("key made {}\n", stamp(key.made));
    for (osd, held) in &osds {
        plain.push_str(&format!("osd.{osd} {}\n", if held.is_empty() { "has no snapshot" } else { held }));
    }
    let nodes = osds.iter().map(|(osd, held)| {
        Node::Section(Section::new().with("osd", *osd).with("snapshot_made", held.as_str()))
    });
    let nodes = Node::Array("osd".into(), nodes.collect());
    let tree = Section::new().with("key_made", stamp(key.made)).with("osds", nodes);
    call.either("recovery", plain, tree)
}

fn shown(seconds: u64) -> String {
    stamp(UTime { sec: u32::try_from(seconds).unwrap_or(u32::MAX), nsec: 0 })
}
