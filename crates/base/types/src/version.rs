//! The version that daemons report. Tools compare its numbers with Ceph's, so it names the release whose
//! protocol we speak, and us in brackets where Ceph has its commit.

/// The release whose protocol we speak.
pub const VERSION_SHORT: &str = "16.2.15";
/// Name of that release.
pub const RELEASE: &str = "pacific";
/// What `ceph version` prints.
pub const VERSION_TEXT: &str =
    concat!("ceph version 16.2.15 (nacre-", env!("CARGO_PKG_VERSION"), ") pacific (stable)");
