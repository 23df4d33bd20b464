//! Messages by which copies are compared.

use super::PeerHeader;
use super::coded::{coded, coded_message};
use nacre_types::{Eversion, HObject};

/// List these objects with their checksums.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrubRequest {
    /// PG and epoch.
    pub header: PeerHeader,
    /// The request's number, echoed.
    pub tid: u64,
    /// First object that is compared.
    pub from: HObject,
    /// First object behind the range.
    pub to: HObject,
    /// Read the data too.
    pub deep: bool,
}

coded_message!(ScrubRequest, "ScrubRequest", { header, tid, from, to, deep });

/// One copy of an object as a scrub sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubObject {
    /// Name of the object that it is about.
    pub object: HObject,
    /// Version of the object in this copy.
    pub version: Eversion,
    /// CRC-32C of the PG's record of it.
    pub meta_crc: u32,
    /// CRC-32C of its attributes.
    pub attrs_crc: u32,
    /// Of the data and the omap, in a deep scrub; 0 otherwise.
    pub data_crc: u32,
    /// Length of the data as stored.
    pub size: u64,
    /// The data could not be read.
    pub damaged: bool,
}

coded!(ScrubObject, "scrub object", { object, version, meta_crc, attrs_crc, data_crc, size, damaged });

/// Here they are.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrubReply {
    /// PG and epoch.
    pub header: PeerHeader,
    /// Number of the request that is answered.
    pub tid: u64,
    /// What was found, in ascending order of objects.
    pub objects: Vec<ScrubObject>,
}

coded_message!(ScrubReply, "ScrubReply", { header, tid, objects });
