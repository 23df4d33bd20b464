//! [`Answers`]: what was answered to requests that change something, so that one that is sent again is answered again and not carried out
//! twice.
//!
//! A client whose monitor is gone sends what has had no answer to the next one, under the same number. The leader before may have carried
//! it out: then a second `osd create` makes a second OSD, and a second `osd pool rename` fails, for it is done. The answer goes with the batch
//! of the change itself, so there is never one without the other. Ceph has nothing like it.

use crate::batch::{Batch, Snapshot, numbered_key};
use crate::output::Output;
use crate::session::Identity;
use nacre_buf::{Bytes, crc};
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_types::{AuthName, Errno};
use std::collections::{BTreeMap, VecDeque};

const PREFIX: &str = "answers";

/// Answers that are kept, of all clients together: far more than all of them may ask for in the time that a change of leader takes.
pub const ANSWERS_COUNT_MAX: usize = 10_000;
/// Text and output of one answer; of a longer one the result and the beginning of the text are kept.
pub const ANSWER_BYTES_MAX: usize = 4096;

/// Messages whose senders number them apart from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum RequestKind {
    /// `MMonCommand`.
    Monitor = 0,
    /// `MMgrCommand`.
    Manager = 1,
    /// `MCommand`.
    Tell = 2,
    /// `MPoolOp`.
    PoolOp = 3,
}

/// Which request of which client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    client: AuthName,
    /// The instance of the client, which its ticket proves.
    global_id: u64,
    /// A [`RequestKind`].
    kind: u8,
    tid: u64,
    /// Checksum and length of what it asks for: a client may begin to count anew.
    sum: u32,
    bytes: u64,
}

impl Request {
    /// `None` where it cannot be known whose request it is, or which.
    pub(crate) fn new(identity: &Identity, kind: RequestKind, tid: u64, parts: &[&[u8]]) -> Option<Self> {
        let is_known = !identity.allows_all && identity.global_id != 0 && tid != 0;
        let sum = |sum, part: &&[u8]| crc::crc32c(crc::crc32c(sum, part), &[0]);
        is_known.then(|| Self {
            client: identity.auth_name.clone(),
            global_id: identity.global_id,
            kind: kind as u8,
            tid,
            sum: parts.iter().fold(u32::MAX, sum),
            bytes: parts.iter().map(|part| part.len() as u64).sum(),
        })
    }

    fn key(&self) -> RequestKey {
        (self.global_id, self.kind, self.tid)
    }
}

type RequestKey = (u64, u8, u64);

/// The output of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kept {
    Whole(Bytes),
    /// It shows a key, which is kept once, with its entity.
    Secret,
    TooLong,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    request: Request,
    code: i32,
    text: String,
    data: Kept,
}

/// What a request that was carried out is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Again {
    /// This output, as it was given.
    Output(Output),
    /// What shows the secret that it was about, as that is now.
    Secret,
}

impl Encode for Request {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.client);
        w.u64(self.global_id);
        w.u8(self.kind);
        w.u64(self.tid);
        w.u32(self.sum);
        w.u64(self.bytes);
    }
}

impl Decode for Request {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let (client, global_id, kind, tid) = (r.get()?, r.u64()?, r.u8()?, r.u64()?);
        Ok(Self { client, global_id, kind, tid, sum: r.u32()?, bytes: r.u64()? })
    }
}

impl Encode for Answer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.request);
            w.i32(self.code);
            w.str(&self.text);
            match &self.data {
                Kept::Whole(data) => {
                    w.u8(0);
                    w.blob_of(data);
                }
                Kept::Secret => w.u8(1),
                Kept::TooLong => w.u8(2),
            }
        });
    }
}

impl Decode for Answer {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Answer", 1, |_, r| {
            let (request, code, text) = (r.get()?, r.i32()?, r.text()?);
            let data = match r.u8()? {
                0 => Kept::Whole(r.blob()?),
                1 => Kept::Secret,
                _ => Kept::TooLong,
            };
            Ok(Self { request, code, text, data })
        })
    }
}

/// The newest [`ANSWERS_COUNT_MAX`] answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The oldest first; their numbers follow each other.
    kept: VecDeque<Answer>,
    /// Number of the newest, 0 for none.
    newest: u64,
    by_request: BTreeMap<RequestKey, u64>,
    changes: Batch,
}

impl Answers {
    pub(crate) fn open(snapshot: &dyn Snapshot) -> Result<Self, DecodeError> {
        let pairs = snapshot.scan(PREFIX);
        let newest = pairs.last().and_then(|(key, _)| key.parse().ok()).unwrap_or(0);
        let kept = pairs.into_iter().map(|(_, value)| Answer::from_bytes(value));
        let kept = kept.collect::<Result<VecDeque<_>, _>>()?;
        let oldest = newest + 1 - kept.len() as u64;
        let by_request = kept.iter().map(|answer| answer.request.key()).zip(oldest..).collect();
        Ok(Self { kept, newest, by_request, changes: Batch::default() })
    }

    fn oldest(&self) -> u64 {
        self.newest + 1 - self.kept.len() as u64
    }

    /// What was answered to this very request of this very client.
    pub(crate) fn find(&self, request: &Request) -> Option<Again> {
        let number = *self.by_request.get(&request.key())?;
        let answer = self.kept.get(usize::try_from(number - self.oldest()).ok()?)?;
        if answer.request != *request {
            return None;
        }
        let (code, text) = (answer.code, answer.text.clone());
        Some(match &answer.data {
            Kept::Whole(data) => Again::Output(Output { code, text, data: data.clone() }),
            Kept::Secret => Again::Secret,
            Kept::TooLong => {
                let note = " (done when it was first asked for; the output was too long to be kept)";
                Again::Output(Output { code, text: format!("{text}{note}"), data: Bytes::new() })
            }
        })
    }

    /// Keeps the answer to a request that was carried out. What was refused for its time or for rights may be tried again.
    pub(crate) fn note(&mut self, request: &Request, output: &Output, shows_secret: bool) {
        if [Errno::EACCES, Errno::EAGAIN].map(Errno::negated).contains(&output.code) {
            return;
        }
        let mut text = output.text.clone();
        text.truncate(text.floor_char_boundary(ANSWER_BYTES_MAX));
        let is_long = output.text.len() + output.data.len() > ANSWER_BYTES_MAX;
        let data = match output.data.is_empty() {
            false if shows_secret => Kept::Secret,
            false if is_long => Kept::TooLong,
            _ => Kept::Whole(output.data.clone()),
        };
        let answer = Answer { request: request.clone(), code: output.code, text, data };
        self.newest += 1;
        self.changes.put(PREFIX, numbered_key(self.newest), answer.to_bytes());
        self.by_request.insert(request.key(), self.newest);
        self.kept.push_back(answer);
        if self.kept.len() > ANSWERS_COUNT_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let number = self.oldest();
        let Some(gone) = self.kept.pop_front() else { return };
        self.changes.delete(PREFIX, numbered_key(number));
        if self.by_request.get(&gone.request.key()) == Some(&number) {
            self.by_request.remove(&gone.request.key());
        }
    }

    /// Bytes that wait to be committed.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.changes.bytes()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn flush(&mut self, batch: &mut Batch) {
        batch.append(&mut self.changes);
    }
}
