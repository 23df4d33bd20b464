//! [`SlowRequests`]: an OSD of ours tells our monitor which requests of clients it has had for too long, and where each of them waits. Ceph's
//! OSDs tell only how many there are; its monitors are not told.

use crate::body::body;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

/// Requests that one OSD names: the oldest of them.
pub const SLOW_REQUESTS_COUNT_MAX: usize = 16;
/// Stages of one of them.
const STAGES_COUNT_MAX: usize = 16;
/// Bytes of a description; what is longer is cut.
const DESCRIPTION_BYTES_MAX: usize = 512;
/// Bytes of a stage's name, and of what is waited for.
const STAGE_BYTES_MAX: usize = 256;

/// As much of `text` as fits.
fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// A request of a client that is not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SlowRequest {
    /// Who asks for what, as `dump_ops_in_flight` shows it.
    pub description: String,
    /// Milliseconds since it came in.
    pub age_ms: u64,
    /// What it waits for now.
    pub waits_for: String,
    /// The stages that are over, each with the milliseconds since it came in at which it ended.
    pub stages: Vec<(String, u64)>,
}

impl SlowRequest {
    /// One whose texts and stages may be more than what is sent of them.
    #[must_use]
    pub fn of(description: String, age_ms: u64, waits_for: String, stages: Vec<(String, u64)>) -> Self {
        let (description, waits_for) =
            (cut(description, DESCRIPTION_BYTES_MAX), cut(waits_for, STAGE_BYTES_MAX));
        let stages = stages.into_iter().take(STAGES_COUNT_MAX);
        let stages = stages.map(|(stage, at_ms)| (cut(stage, STAGE_BYTES_MAX), at_ms)).collect();
        Self { description, age_ms, waits_for, stages }
    }
}

impl Encode for SlowRequest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.str(&self.description);
            w.u64(self.age_ms);
            w.str(&self.waits_for);
            w.put(&self.stages);
        });
    }
}

/// What a newer OSD says at greater length is cut: what cannot be read would end its session.
impl Decode for SlowRequest {
    const MIN_BYTES: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("slow request", 1, |_, r| {
            let (description, age_ms, waits_for) = (r.text()?, r.u64()?, r.text()?);
            Ok(Self::of(description, age_ms, waits_for, r.get()?))
        })
    }
}

/// What the OSD that sends it has at the moment; an empty one when it has none any more. A monitor that does not know the message ignores it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct SlowRequests {
    /// The oldest, at most [`SLOW_REQUESTS_COUNT_MAX`].
    pub requests: Vec<SlowRequest>,
}
body!(SlowRequests = 0x7109, 1 / 1; requests);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_too_long_is_cut() {
        let stages = vec![("received".to_owned(), 0), ("dispatched".to_owned(), 12)];
        let request = SlowRequest {
            description: "osd_op(client.4107.0:1 3.7 o [write])".to_owned(),
            age_ms: 31_000,
            waits_for: "replicated".to_owned(),
            stages,
        };
        assert_eq!(SlowRequest::from_bytes(request.to_bytes()).expect("as written"), request);
        let cut = SlowRequest::of("\u{e9}".repeat(400), 0, "x".repeat(300), Vec::new());
        assert_eq!((cut.description.len(), cut.waits_for.len()), (512, 256));
        assert!(SlowRequest::from_bytes(cut.to_bytes()).is_ok());
        let long = SlowRequest { description: "x".repeat(DESCRIPTION_BYTES_MAX + 1), ..request.clone() };
        let read = SlowRequest::from_bytes(long.to_bytes()).expect("cut");
        assert_eq!(read.description.len(), DESCRIPTION_BYTES_MAX);
        let stages = vec![("x".repeat(STAGE_BYTES_MAX + 1), 3); STAGES_COUNT_MAX + 1];
        let long = SlowRequest { stages, ..request };
        let read = SlowRequest::from_bytes(long.to_bytes()).expect("cut");
        assert_eq!(read.stages, vec![("x".repeat(STAGE_BYTES_MAX), 3); STAGES_COUNT_MAX]);
    }
}
