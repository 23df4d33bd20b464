//! Writes the seeds of all targets to `corpus/<target>/`, where `cargo fuzz` looks for them.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    for (number, (target, bytes)) in nacre_fuzz::seeds().into_iter().enumerate() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{number:03}")), bytes)?;
    }
    Ok(())
}
