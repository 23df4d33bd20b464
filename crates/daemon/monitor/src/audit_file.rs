//! [`AuditFile`]: what the audit channel says, in a file that other programs read.

use nacre_env::real::LineLog;
use nacre_mon::Mon;
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
    /// The file in `folder`; what the cluster log says already is not written again.
    pub(crate) fn open(folder: &Path, mon: &Mon) -> std::io::Result<Self> {
        let log = LineLog::open(&folder.join(FILE), BYTES_MAX, KEPT_MAX)?;
        Ok(Self { log: Some(log), written: mon.state().log.version(), failed: false })
    }

    /// Writes what is new. The store has it as well, so a full disk here does not stop the monitor; the log says so once.
    pub(crate) fn write(&mut self, mon: &Mon) {
        let (Some(log), lines) = (&mut self.log, &mon.state().log) else { return };
        let mut text = String::new();
        for (_, entry) in lines.after(self.written).filter(|(_, entry)| entry.channel == "audit") {
            // A line is a line, whatever is in a name.
            let message = entry.message.replace(char::is_control, " ");
            let _infallible = writeln!(text, "{} {} {message}", entry.stamp, entry.name);
        }
        self.written = lines.version();
        if text.is_empty() {
            return;
        }
        let outcome = log.append(&text);
        if let Err(error) = &outcome
            && !self.failed
        {
            tracing::error!(%error, "cannot write the audit file; the monitor's store has its lines");
        }
        self.failed = outcome.is_err();
    }
}
