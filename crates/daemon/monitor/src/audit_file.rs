//! [`AuditFile`]: what the audit channel says, in a file that other programs read.

use nacre_denc::DecodeError;
use nacre_env::real::LineLog;
use nacre_mon::{Batch, cluster_log};
use std::fmt::Write as _;
use std::path::Path;

/// Its name in the monitor's folder.
const FILE: &str = "audit.log";
/// Length at which it is put aside.
const BYTES_MAX: u64 = 16 << 20;
/// How many such are kept.
const KEPT_MAX: u32 = 8;

/// The file, and up to where of the cluster log it has been written.
#[derive(Debug, Default)]
pub(crate) struct AuditFile {
    log: Option<LineLog>,
    written: u64,
    failed: bool,
}

impl AuditFile {
    /// The file in `folder`. What the cluster log says up to version `written` is not written again.
    pub(crate) fn open(folder: &Path, written: u64) -> std::io::Result<Self> {
        let log = LineLog::open(&folder.join(FILE), BYTES_MAX, KEPT_MAX)?;
        Ok(Self { log: Some(log), written, failed: false })
    }

    /// Writes what a batch adds, whose change is in the tables. The store has it as well, so a full disk here does not stop the monitor; its
    /// own log says so once.
    ///
    /// # Errors
    /// When an entry does not decode.
    pub(crate) fn applied(&mut self, batch: &Batch) -> Result<(), DecodeError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let mut text = String::new();
        for (version, entry) in cluster_log::entries_in(batch)? {
            let is_new = version > self.written;
            self.written = self.written.max(version);
            if is_new && entry.channel == "audit" {
                // A line is a line, whatever is in a name.
                let message = entry.message.replace(char::is_control, " ");
                let _infallible = writeln!(text, "{} {} {message}", entry.stamp, entry.name);
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        let outcome = log.append(&text);
        if let Err(error) = &outcome
            && !self.failed
        {
            tracing::error!(%error, "cannot write the audit file; the monitor's store has its lines");
        }
        self.failed = outcome.is_err();
        Ok(())
    }
}
