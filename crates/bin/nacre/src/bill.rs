//! `nacre bill`: which clients and images the OSDs spend their processor time on; what `ceph bill` shows.

use crate::args::BillArgs;
use crate::ask::Admin;
use crate::files::Folder;
use anyhow::Result;
use nacre_env::outln;
use serde_json::json;

/// Asks the leading monitor for the bill and prints it.
pub(crate) fn run(args: &BillArgs) -> Result<()> {
    let mut admin = Admin::new(&Folder::open(&args.dir)?)?;
    let format = if args.json { "json-pretty" } else { "plain" };
    let command = json!({ "prefix": "bill", "seconds": args.seconds, "limit": args.limit, "format": format });
    let answer = admin.ask(&command.to_string())?;
    outln!("{}", String::from_utf8_lossy(&answer.data).trim_end());
    Ok(())
}
