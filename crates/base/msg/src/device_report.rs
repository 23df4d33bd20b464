//! [`DeviceReport`]: an OSD of ours tells our monitor how long its device takes. Ceph has nothing like it, and its monitors are not told.

use crate::body::body;
use nacre_types::DeviceLatencies;

/// Requests to the device of the OSD that sends it, since the report before. A monitor that does not know the message ignores it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeviceReport {
    /// How long they took.
    pub latencies: DeviceLatencies,
}
body!(DeviceReport = 0x7104, 1 / 1; latencies);
