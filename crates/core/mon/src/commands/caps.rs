//! Which commands a caller may ask for.

use super::args::Args;
use super::call::{Failure, fail};
use super::table::Row;
use crate::command::CommandCx;
use nacre_auth::Rwx;
use nacre_types::Errno;

/// Refuses what the caller's caps do not allow.
pub(super) fn check_caps(cx: &CommandCx<'_>, row: &Row, args: &Args) -> Result<(), Failure> {
    let needed = Rwx::of_letters(row.command.perm);
    let mut texts = args.to_texts();
    for pair in args.list("caps").chunks_exact(2) {
        if let [service, text] = pair {
            texts.insert(format!("caps_{service}"), text.clone());
        }
    }
    let (service, prefix) = (row.command.module, row.signature.prefix.as_str());
    let allowed = match (&cx.identity.mgr_caps, row.manager) {
        (None, _) => cx.identity.caps.allows_command(service, prefix, &texts, needed),
        (Some(caps), Some("")) => caps.allows_command(service, "", prefix, &texts, needed),
        (Some(caps), Some(module)) => caps.allows_command("", module, prefix, &texts, needed),
        (Some(_), None) => false,
    };
    match (allowed, &cx.identity.mgr_caps) {
        (true, _) => Ok(()),
        (false, None) => fail(Errno::EACCES, "access denied"),
        (false, Some(_)) => fail(Errno::EACCES, "access denied: the key's caps for mgr do not allow this"),
    }
}
