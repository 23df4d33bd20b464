//! `--fix`: sets what is safe and can be set back, and looks whether it took.

use super::Host;
use crate::report::{Fix, Fixed, Report};
use std::fs::OpenOptions;
use std::io::{self, Write};

/// Sets all that findings offer; says of each what it was and what it is.
pub(crate) fn fix(host: &Host, report: &mut Report) {
    let fixes: Vec<Fix> = report.findings.iter().flat_map(|finding| finding.fixes.clone()).collect();
    report.fixed = fixes.into_iter().map(|fix| apply(host, fix)).collect();
}

fn apply(host: &Host, fix: Fix) -> Fixed {
    let path = host.at(&fix.file);
    let before = host.chosen(&fix.file).unwrap_or_default();
    let written = write(host, &fix);
    let after = host.chosen(&fix.file).unwrap_or_default();
    let error = match written {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Some(error.to_string()),
        Err(error) => Some(format!("{error}; are you root?")),
        Ok(()) if after != fix.value => Some(format!("the kernel kept {after}")),
        Ok(()) => None,
    };
    Fixed { file: path, before, after, error }
}

/// Opened, not made: what is not there is no setting. It is emptied only when it has proved to be a file below the root.
fn write(host: &Host, fix: &Fix) -> io::Result<()> {
    let mut file = host.open(&fix.file, OpenOptions::new().write(true))?;
    file.set_len(0)?;
    file.write_all(fix.value.as_bytes())
}
