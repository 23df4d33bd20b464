//! `fs authorize`: a key for a client of one file system.

use super::auth::keyring_answer;
use super::call::{Answer, Call, Failure, fail, refuse};
use super::fs::find;
use super::table::{Command, command};
use nacre_auth::{AuthCommandError, Caps};
use nacre_types::{AuthName, Errno};

pub(super) const COMMANDS: &[Command] = &[command(
    "fs authorize name=filesystem,type=CephString name=entity,type=CephString name=caps,type=CephString,n=N",
    "auth",
    "rwx",
    "Make a key for a client of a file system, with paths and what it may do there",
    authorize,
)];

/// Checks `r`, `rw`, `rwp`, `rws` or `rwps`.
fn check_flags(flags: &str) -> Result<(), Failure> {
    let rest = match flags.strip_prefix("rw") {
        Some(rest) => rest,
        None if flags == "r" => "",
        None => return fail(Errno::EINVAL, format!("'{flags}' grants nothing: it begins with r or rw")),
    };
    match rest {
        "" | "p" | "s" | "ps" => Ok(()),
        _ => fail(Errno::EINVAL, format!("'{flags}' is not understood: behind rw stand p, s, or ps")),
    }
}

/// The caps of a client that may do so much below so many paths: pairs of a path and letters, each followed by `root_squash` or not.
fn caps_of(filesystem: &str, words: &[String]) -> Result<Caps, Failure> {
    let is_any = filesystem == "*" || filesystem == "all";
    let only = if is_any { String::new() } else { format!(" fsname={filesystem}") };
    let mut grants = Vec::new();
    let mut may_write = false;
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(path) = words.next() {
        let Some(flags) = words.next() else {
            return fail(
                Errno::EINVAL,
                format!("what may be done below {path} is missing: r, rw, rwp, rws or rwps"),
            );
        };
        check_flags(flags)?;
        may_write |= flags.starts_with("rw");
        let path = if path == "/" { String::new() } else { format!(" path={path}") };
        let squash = words.next_if_eq(&"root_squash").map_or("", |_| " root_squash");
        grants.push(format!("allow {flags}{only}{path}{squash}"));
    }
    let data = if may_write { "rw" } else { "r" };
    let caps = [
        ("mds", grants.join(", ")),
        ("mon", format!("allow r{only}")),
        ("osd", format!("allow {data} tag cephfs data={filesystem}")),
    ];
    Ok(caps.into_iter().map(|(service, text)| (service.to_owned(), text)).collect())
}

fn authorize(call: &mut Call<'_>) -> Answer {
    let [filesystem, entity] = ["filesystem", "entity"].map(|key| call.args.text(key).to_owned());
    let name = AuthName::parse(&entity)
        .ok_or_else(|| refuse(Errno::EINVAL, format!("invalid entity_auth {entity}")))?;
    if filesystem != "*" && filesystem != "all" && find(call, &filesystem).is_none() {
        return fail(Errno::EINVAL, format!("filesystem {filesystem} does not exist."));
    }
    let caps = caps_of(&filesystem, call.args.list("caps"))?;
    let change = call.state.auth.keys().decide_get_or_create(&name, &caps, call.wall, call.entropy);
    let change = change.map_err(|error| match error {
        AuthCommandError::CapsMismatch { .. } => refuse(
            Errno::EINVAL,
            format!("{name} exists, and its caps are others: remove it with 'ceph auth rm {name}' first, or use 'ceph auth caps'"),
        ),
        error => refuse(Errno::from(&error), error.to_string()),
    })?;
    if let Some(change) = change {
        call.state.auth.apply(change);
    }
    keyring_answer(call, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(filesystem: &str, words: &str) -> Result<[String; 3], String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let caps = caps_of(filesystem, &words).map_err(|failure| failure.text)?;
        Ok(["mds", "mon", "osd"].map(|service| caps[service].clone()))
    }

    #[test]
    fn caps_are_those_that_ceph_gives() {
        let three = |mds: &str, mon: &str, osd: &str| Ok([mds, mon, osd].map(str::to_owned));
        assert_eq!(
            caps("a", "/ rw"),
            three("allow rw fsname=a", "allow r fsname=a", "allow rw tag cephfs data=a")
        );
        assert_eq!(
            caps("a", "/foo r /bar rwps root_squash"),
            three(
                "allow r fsname=a path=/foo, allow rwps fsname=a path=/bar root_squash",
                "allow r fsname=a",
                "allow rw tag cephfs data=a"
            )
        );
        assert_eq!(caps("*", "/ r"), three("allow r", "allow r", "allow r tag cephfs data=*"));
        for wrong in ["/", "/ w", "/ rx", "/ rwsp", "/ rwx", "/ rps"] {
            assert!(caps("a", wrong).is_err(), "{wrong}");
        }
    }
}
