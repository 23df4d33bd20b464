//! Secrets that are nothing for a command line, where others see them: in a file, or on standard input.

use anyhow::{Context, Result};
use std::path::Path;
use zeroize::Zeroizing;

/// What stands for standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// What a file holds, or the first line of [`STANDARD_INPUT`]; and what that is called in errors.
pub(crate) fn read(path: &Path) -> Result<(Zeroizing<String>, String)> {
    if path == Path::new(STANDARD_INPUT) {
        let (mut line, shown) = (Zeroizing::new(String::new()), "standard input".to_owned());
        std::io::stdin().read_line(&mut line).with_context(|| shown.clone())?;
        return Ok((line, shown));
    }
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| shown.clone())?;
    Ok((Zeroizing::new(text), shown))
}
