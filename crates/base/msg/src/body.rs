//! [`Body`]: what each message says about itself, and the macros that write the regular ones.

use nacre_buf::BufList;
use nacre_denc::{Decode, DecodeError, Encode, Reader, Writer};

/// Type, versions and segments of one message. The header constants are those that 16.2.15 sends.
pub(crate) trait Body: Sized {
    /// Name for errors.
    const NAME: &'static str;
    /// `header.type`.
    const KIND: u16;
    /// `header.version` that we write, and the newest whose every field we know.
    const VERSION: u16;
    /// `header.compat_version` that we write.
    const COMPAT: u16;
    /// Oldest `header.version` that [`Body::read`] understands; 0 where the layout never changed.
    const OLDEST: u16 = 0;
    /// `header.priority` that we write.
    const PRIORITY: u16 = crate::priority::DEFAULT;

    /// Reads the segments; whatever a newer sender put behind the known fields stays unread.
    fn read(version: u16, r: &mut Reader, data: BufList) -> Result<Self, DecodeError>;

    /// Writes the front and yields the data segment.
    fn write(self, w: &mut Writer) -> BufList;
}

/// The prefix of messages to and from a monitor's services, `PaxosServiceMessage`: the version that the
/// sender knows, and two fields that only forwarding between monitors uses.
pub(crate) fn read_psm(r: &mut Reader) -> Result<u64, DecodeError> {
    let version = r.u64()?;
    r.skip(2 + 8)?;
    Ok(version)
}

/// Writes the prefix that [`read_psm`] reads.
pub(crate) fn write_psm(w: &mut Writer, version: u64) {
    w.u64(version);
    w.raw(&(-1_i16).to_le_bytes());
    w.u64(0);
}

/// A feature set or the like as raw bytes: an `ENCODE_START` envelope kept whole, header included.
pub(crate) fn raw_envelope(r: &mut Reader) -> Result<nacre_buf::Bytes, DecodeError> {
    let mut ahead = r.clone();
    ahead.skip(2)?;
    let length = ahead.u32()? as usize;
    let total = length.checked_add(6).ok_or(DecodeError::Short {
        offset: r.offset(),
        wanted: length,
        left: r.left(),
    })?;
    r.take(total)
}

/// Reads one field, for macros that must not name types.
pub(crate) fn field<T: Decode>(r: &mut Reader) -> Result<T, DecodeError> {
    r.get()
}

/// Writes one field, for macros that must not name types.
pub(crate) fn put<T: Encode>(w: &mut Writer, value: &T) {
    w.put(value);
}

/// `body!(Type = kind, version / compat; field, ...)`: a message whose front is its fields in this order.
/// With `@field;` first, that field is the version of the [`read_psm`] prefix; `[high]` raises its
/// priority; `+ data` says that the field `data` is the data segment.
macro_rules! body {
    (@priority high) => { $crate::priority::HIGH };
    (@priority highest) => { $crate::priority::HIGHEST };
    (@data $name:ident, $data:ident) => { $name };
    ($type:ident = $kind:literal, $version:literal / $compat:literal $([$priority:ident])?;
        $(@ $psm:ident;)? $($field:ident),* $(; + $data:ident)?) => {
        impl $crate::body::Body for $type {
            const NAME: &'static str = stringify!($type);
            const KIND: u16 = $kind;
            const VERSION: u16 = $version;
            const COMPAT: u16 = $compat;
            $(const PRIORITY: u16 = $crate::body::body!(@priority $priority);)?

            #[allow(unused_variables, reason = "not every message has a front and data")]
            fn read(
                version: u16,
                r: &mut nacre_denc::Reader,
                segment: nacre_buf::BufList,
            ) -> Result<Self, nacre_denc::DecodeError> {
                Ok(Self {
                    $($psm: $crate::body::read_psm(r)?,)?
                    $($field: $crate::body::field(r)?,)*
                    $($data: segment,)?
                })
            }

            #[allow(unused_variables, reason = "not every message has a front")]
            fn write(self, w: &mut nacre_denc::Writer) -> nacre_buf::BufList {
                $($crate::body::write_psm(w, self.$psm);)?
                $($crate::body::put(w, &self.$field);)*
                #[allow(unused_mut, unused_assignments, reason = "most messages have no data")]
                let mut data = nacre_buf::BufList::new();
                $(data = self.$data;)?
                data
            }
        }
    };
}

/// `fields!(Type, "ceph name", version, compat; field, ...)`: a struct in an `ENCODE_START` envelope whose
/// body is its fields in this order. Senders of older versions are refused unless `default` fields follow
/// a `version =>` marker: those are read only from that version on.
macro_rules! fields {
    ($type:ident, $name:literal, $version:literal, $compat:literal; $($field:ident),*
        $(; $since:literal => $($later:ident),*)*) => {
        impl nacre_denc::Encode for $type {
            fn encode(&self, w: &mut nacre_denc::Writer) {
                w.envelope($version, $compat, |w| {
                    $($crate::body::put(w, &self.$field);)*
                    $($($crate::body::put(w, &self.$later);)*)*
                });
            }
        }

        impl nacre_denc::Decode for $type {
            const MIN_BYTES: usize = 6;
            #[allow(unused_variables, reason = "only structs with later fields look at the version")]
            fn decode(r: &mut nacre_denc::Reader) -> Result<Self, nacre_denc::DecodeError> {
                r.envelope($name, $version, |version, r| {
                    Ok(Self {
                        $($field: $crate::body::field(r)?,)*
                        $($($later: if version >= $since {
                            $crate::body::field(r)?
                        } else {
                            Default::default()
                        },)*)*
                    })
                })
            }
        }
    };
}

pub(crate) use {body, fields};
