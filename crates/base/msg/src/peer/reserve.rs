//! Slots for recovery, which a primary reserves at the other members. Ceph `MRecoveryReserve` and `MBackfillReserve`.

use super::PeerHeader;
use super::coded::coded_message;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

/// Which step of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveStep {
    /// The primary wants a slot at the receiver.
    Request,
    /// The primary has it.
    Grant,
    /// The primary needs it no more, or does not wait for it any more.
    Release,
    /// More urgent work took the slot.
    Revoke,
}

impl Encode for ReserveStep {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            Self::Request => 1,
            Self::Grant => 2,
            Self::Release => 3,
            Self::Revoke => 4,
        });
    }
}

impl Decode for ReserveStep {
    const MIN_BYTES: usize = 1;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        match r.u8()? {
            1 => Ok(Self::Request),
            2 => Ok(Self::Grant),
            3 => Ok(Self::Release),
            4 => Ok(Self::Revoke),
            value => Err(DecodeError::Invalid { what: "reservation step", value: value.into() }),
        }
    }
}

/// About a slot for the recovery of the PG at a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserve {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The primary's number of the request, echoed.
    pub number: u64,
    /// What it is about.
    pub step: ReserveStep,
    /// Of a request: higher goes first. 0 otherwise.
    pub priority: u32,
}

coded_message!(Reserve, "Reserve", { header, number, step, priority });
