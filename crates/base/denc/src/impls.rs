//! Encodings of the standard types.

use crate::{Decode, DecodeError, Encode, Reader, Writer};
use nacre_buf::{ByteStr, Bytes};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            #[inline]
            fn encode(&self, w: &mut Writer) {
                w.array(self.to_le_bytes());
            }
        }
        impl Decode for $t {
            const MIN_BYTES: usize = size_of::<$t>();
            #[inline]
            fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
                Ok(<$t>::from_le_bytes(r.array()?))
            }
        }
    )*};
}
integer!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

impl Encode for bool {
    fn encode(&self, w: &mut Writer) {
        w.bool(*self);
    }
}

impl Decode for bool {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.bool()
    }
}

impl Encode for str {
    fn encode(&self, w: &mut Writer) {
        w.str(self);
    }
}

impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        w.str(self);
    }
}

impl Decode for String {
    const MIN_BYTES: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.text()
    }
}

impl Encode for ByteStr {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
}

impl Decode for ByteStr {
    const MIN_BYTES: usize = 4;
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.str()
    }
}

impl Encode for Bytes {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.blob_of(self);
    }
}

impl Decode for Bytes {
    const MIN_BYTES: usize = 4;
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.blob()
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.is_some());
        if let Some(value) = self {
            value.encode(w);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        if r.bool()? { Ok(Some(r.get()?)) } else { Ok(None) }
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    const MIN_BYTES: usize = A::MIN_BYTES + B::MIN_BYTES;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok((r.get()?, r.get()?))
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        self.iter().for_each(|item| item.encode(w));
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        self.as_slice().encode(w);
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for (key, value) in self {
            key.encode(w);
            value.encode(w);
        }
    }
}

macro_rules! iterated {
    ($($t:ident),*) => {$(
        impl<T: Encode> Encode for $t<T> {
            fn encode(&self, w: &mut Writer) {
                w.count(self.len());
                self.iter().for_each(|item| item.encode(w));
            }
        }
    )*};
}
iterated!(BTreeSet, VecDeque);

/// Reads `count` elements one by one: the collection grows as bytes are found, not by the peer's count.
fn collect<T: Decode, C: FromIterator<T>>(r: &mut Reader) -> Result<C, DecodeError> {
    let count = r.count(T::MIN_BYTES)?;
    (0..count).map(|_| r.get()).collect()
}

/// Room made for elements before the first is found. Most lists are shorter.
const FEW: usize = 4;
/// For more of them, room for as many as fit in this times the bytes that are left: a long list that grew by doubling would leave as much
/// memory behind as it takes.
const EXPANSION: usize = 4;

impl<T: Decode> Decode for Vec<T> {
    const MIN_BYTES: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let count = r.count(T::MIN_BYTES)?;
        let room = EXPANSION * r.left() / size_of::<T>().max(1);
        let mut list = Self::with_capacity(count.min(room.max(FEW)));
        for _ in 0..count {
            list.push(r.get()?);
        }
        Ok(list)
    }
}

impl<T: Decode> Decode for VecDeque<T> {
    const MIN_BYTES: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        collect(r)
    }
}

impl<T: Decode + Ord> Decode for BTreeSet<T> {
    const MIN_BYTES: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        collect(r)
    }
}

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const MIN_BYTES: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        collect(r)
    }
}
