//! `--fix`: sets what is safe and can be set back, and looks whether it took.

use super::Host;
use crate::report::{Fix, Fixed, Report};

/// Sets all that findings offer; says of each what it was and what it is.
pub(crate) fn fix(host: &Host, report: &mut Report) {
    let fixes: Vec<Fix> = report.findings.iter().flat_map(|finding| finding.fixes.clone()).collect();
    report.fixed = fixes.into_iter().map(|fix| apply(host, fix)).collect();
}

fn apply(host: &Host, fix: Fix) -> Fixed {
    let path = host.at(&fix.file);
    let before = host.chosen(&fix.file).unwrap_or_default();
    // Opened, not made: what is not there is no setting.
    let written = std::fs::OpenOptions::new().write(true).truncate(true).open(&path);
    let written = written.and_then(|mut file| std::io::Write::write_all(&mut file, fix.value.as_bytes()));
    let after = host.chosen(&fix.file).unwrap_or_default();
    let error = match written {
        Err(error) => Some(format!("{error}; are you root?")),
        Ok(()) if after != fix.value => Some(format!("the kernel kept {after}")),
        Ok(()) => None,
    };
    Fixed { file: path, before, after, error }
}
