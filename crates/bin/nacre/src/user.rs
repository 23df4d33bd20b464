//! `--user`: a daemon started by root goes on as a user that may do only what the daemon needs.

use anyhow::{Context, Result, bail};
use nacre_env::real::private;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Whose rights a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ids {
    user: u32,
    group: u32,
}

/// Starts this program anew in this process with the rights of `user` and without supplementary groups, before anything was opened
/// or any thread begun. Returns when that has been done already.
///
/// # Errors
/// For a user that there is not, a process that is not root's, and a folder that is another user's.
pub(crate) fn become_user(user: Option<&str>, dir: &Path) -> Result<()> {
    let Some(user) = user else { return Ok(()) };
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let wanted = ids_of(user, &passwd).with_context(|| format!("--user {user}: there is no such user"))?;
    let ours = fs::metadata("/proc/self").context("/proc/self")?.uid();
    if ours == wanted.user {
        return Ok(());
    }
    if ours != 0 {
        bail!("--user {user}: only root may become somebody else, and this process is of user {ours}");
    }
    own_folder(dir, user, wanted)?;
    let program = std::env::current_exe().context("where is this binary?")?;
    // std gives supplementary groups up with the user.
    let error =
        Command::new(program).args(std::env::args_os().skip(1)).uid(wanted.user).gid(wanted.group).exec();
    Err(error).with_context(|| format!("cannot go on as {user}"))
}

/// A name of `passwd`, or numbers: `USER` (its group has the same) or `USER:GROUP`.
fn ids_of(user: &str, passwd: &str) -> Option<Ids> {
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (user_id, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (name == user).then_some(Ids { user: user_id, group })
    });
    named.or_else(|| {
        let (user, group) = user.split_once(':').unwrap_or((user, user));
        Some(Ids { user: user.parse().ok()?, group: group.parse().ok()? })
    })
}

/// A folder that is not there is made for the user. What root has made there before stays root's until an operator decides.
fn own_folder(dir: &Path, user: &str, ids: Ids) -> Result<()> {
    match fs::metadata(dir) {
        Ok(there) if there.uid() == ids.user => Ok(()),
        Ok(there) => bail!(
            "{} belongs to user {}: give it to {user} with all that is in it (chown -R {user} {})",
            dir.display(),
            there.uid(),
            dir.display()
        ),
        Err(_) => {
            private::make_folder(dir).with_context(|| format!("cannot make the folder {}", dir.display()))?;
            chown(dir, Some(ids.user), Some(ids.group)).with_context(|| dir.display().to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_or_numbered() {
        let passwd = "root:x:0:0::/root:/bin/sh\nnacre:x:990:980::/:/bin/false\n";
        assert_eq!(ids_of("nacre", passwd), Some(Ids { user: 990, group: 980 }));
        assert_eq!(ids_of("17", passwd), Some(Ids { user: 17, group: 17 }));
        assert_eq!(ids_of("17:18", passwd), Some(Ids { user: 17, group: 18 }));
        assert_eq!(ids_of("nobody-known", passwd), None);
    }
}
