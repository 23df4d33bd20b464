//! The two macros that give peer structs their encodings.

/// Encodes a struct as a version 1 envelope around its fields in the order given.
macro_rules! coded {
    ($name:ident, $text:literal, { $($field:ident),* $(,)? }) => {
        impl nacre_denc::Encode for $name {
            fn encode(&self, w: &mut nacre_denc::Writer) {
                w.envelope(1, 1, |w| { $(w.put(&self.$field);)* });
            }
        }

        impl nacre_denc::Decode for $name {
            const MIN_BYTES: usize = 6;
            fn decode(r: &mut nacre_denc::Reader) -> Result<Self, nacre_denc::DecodeError> {
                r.envelope($text, 1, |_, r| Ok(Self { $($field: r.get()?),* }))
            }
        }
    };
}

/// As `coded!`, for a message without a data segment.
macro_rules! coded_message {
    ($name:ident, $text:literal, { $($field:ident),* $(,)? }) => {
        $crate::peer::coded::coded!($name, $text, { $($field),* });
        $crate::peer::coded::message_parts!($name);
    };
}

/// What a message without a data segment has beside its encoding.
macro_rules! message_parts {
    ($name:ident) => {
        impl $name {
            pub(super) fn encode_parts(&self, w: &mut nacre_denc::Writer) -> nacre_buf::BufList {
                nacre_denc::Encode::encode(self, w);
                nacre_buf::BufList::new()
            }

            pub(super) fn decode_parts(
                r: &mut nacre_denc::Reader,
                _data: &nacre_buf::BufList,
            ) -> Result<Self, nacre_denc::DecodeError> {
                r.get()
            }
        }
    };
}

/// As `coded!`, for a message whose last field `txn` is a transaction with its data beside it.
macro_rules! coded_with_txn {
    ($name:ident, $text:literal, { $($field:ident),* $(,)? }) => {
        impl $name {
            pub(super) fn encode_parts(&self, w: &mut nacre_denc::Writer) -> nacre_buf::BufList {
                let mut data = nacre_buf::BufList::new();
                w.envelope(1, 1, |w| {
                    $(w.put(&self.$field);)*
                    data = self.txn.encode_parts(w);
                });
                data
            }

            pub(super) fn decode_parts(
                r: &mut nacre_denc::Reader,
                data: &nacre_buf::BufList,
            ) -> Result<Self, nacre_denc::DecodeError> {
                r.envelope($text, 1, |_, r| {
                    Ok(Self { $($field: r.get()?,)* txn: nacre_txn::Transaction::decode_parts(r, data)? })
                })
            }
        }
    };
}

pub(super) use {coded, coded_message, coded_with_txn, message_parts};
