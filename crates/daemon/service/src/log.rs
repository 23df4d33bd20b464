//! Logging of a process: levels by `NACRE_LOG`, lines to standard error.

use tracing_subscriber::EnvFilter;

/// Variable that sets levels, such as `info` or `nacre_osd=debug,info`.
pub const LEVELS_VARIABLE: &str = "NACRE_LOG";
/// Levels without it: what needs a human.
const LEVELS_DEFAULT: &str = "warn";

/// Begins to log; a second call in one process changes nothing.
pub fn start() {
    let levels = EnvFilter::try_from_env(LEVELS_VARIABLE).unwrap_or_else(|_| EnvFilter::new(LEVELS_DEFAULT));
    let logger = tracing_subscriber::fmt().with_env_filter(levels).with_writer(std::io::stderr).finish();
    // Fails when a logger is there already, and then that one serves.
    let _already_started = tracing::subscriber::set_global_default(logger);
}
