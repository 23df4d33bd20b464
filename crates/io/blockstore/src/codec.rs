//! [`Codec`]: compresses and decompresses the data of blobs. What comes from a device is hostile: the length of what comes out is known
//! before, and nothing is written beyond it.

use nacre_types::CompressionAlgorithm;
use zstd::bulk;

/// What Ceph uses.
const ZSTD_LEVEL: i32 = 1;

/// Compressed data that nobody compressed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnpackError {
    #[error("{packed} bytes cannot be decompressed by {algorithm} to {wanted}")]
    Invalid { algorithm: CompressionAlgorithm, packed: usize, wanted: usize },
    #[error("{packed} bytes are {found} when decompressed by {algorithm}, not {wanted}")]
    Length { algorithm: CompressionAlgorithm, packed: usize, found: usize, wanted: usize },
}

/// Working memory is made when it is first needed, and kept.
#[derive(Default)]
pub(crate) struct Codec {
    to_zstd: Option<bulk::Compressor<'static>>,
    from_zstd: Option<bulk::Decompressor<'static>>,
    to_snappy: Option<snap::raw::Encoder>,
    /// LZ4 and Snappy want room for the worst that may come of it.
    room: Vec<u8>,
    /// Blobs decompressed so far.
    #[cfg(test)]
    pub(crate) unpacked: usize,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl Codec {
    /// Compresses `data` into `out`; the number of bytes, or `None` when they have no room there.
    pub(crate) fn pack(
        &mut self,
        algorithm: CompressionAlgorithm,
        data: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let bytes = match algorithm {
            CompressionAlgorithm::Zstd => {
                if self.to_zstd.is_none() {
                    self.to_zstd = bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                return self.to_zstd.as_mut()?.compress_to_buffer(data, out).ok();
            }
            CompressionAlgorithm::Lz4 => {
                let room = room_of(&mut self.room, lz4_flex::block::get_maximum_output_size(data.len()));
                lz4_flex::block::compress_into(data, room).ok()?
            }
            CompressionAlgorithm::Snappy => {
                let room = room_of(&mut self.room, snap::raw::max_compress_len(data.len()));
                self.to_snappy.get_or_insert_with(snap::raw::Encoder::new).compress(data, room).ok()?
            }
        };
        out.get_mut(..bytes)?.copy_from_slice(self.room.get(..bytes)?);
        Some(bytes)
    }

    /// Decompresses `packed` into all of `out`.
    pub(crate) fn unpack(
        &mut self,
        algorithm: CompressionAlgorithm,
        packed: &[u8],
        out: &mut [u8],
    ) -> Result<(), UnpackError> {
        #[cfg(test)]
        {
            self.unpacked += 1;
        }
        let wanted = out.len();
        let found = match algorithm {
            CompressionAlgorithm::Zstd => {
                if self.from_zstd.is_none() {
                    self.from_zstd = bulk::Decompressor::new().ok();
                }
                self.from_zstd.as_mut().and_then(|from| from.decompress_to_buffer(packed, out).ok())
            }
            CompressionAlgorithm::Lz4 => lz4_flex::block::decompress_into(packed, out).ok(),
            CompressionAlgorithm::Snappy => snap::raw::Decoder::new().decompress(packed, out).ok(),
        };
        match found {
            Some(found) if found == wanted => Ok(()),
            Some(found) => Err(UnpackError::Length { algorithm, packed: packed.len(), found, wanted }),
            None => Err(UnpackError::Invalid { algorithm, packed: packed.len(), wanted }),
        }
    }
}

fn room_of(room: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if room.len() < bytes {
        room.resize(bytes, 0);
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK;

    const SIZES: [usize; 4] = [2 * BLOCK, 3 * BLOCK, 16 * BLOCK, 32 * BLOCK];

    fn numbers(seed: u32) -> impl Iterator<Item = u8> {
        let mut state = seed;
        std::iter::from_fn(move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((state >> 24) as u8)
        })
    }

    /// Words of a few that there are.
    fn text(bytes: usize) -> Vec<u8> {
        let words =
            ["placement ", "group ", "object ", "of ", "the ", "primary ", "replica ", "is ", "clean\n"];
        let letters = numbers(7).flat_map(|number| words[usize::from(number) % 9].bytes());
        letters.take(bytes).collect()
    }

    fn packed(codec: &mut Codec, algorithm: CompressionAlgorithm, data: &[u8]) -> Vec<u8> {
        let mut out = vec![0; data.len()];
        let bytes = codec.pack(algorithm, data, &mut out).expect("it gets smaller");
        out.truncate(bytes);
        out
    }

    #[test]
    fn data_come_back() {
        let mut codec = Codec::default();
        for algorithm in CompressionAlgorithm::ALL {
            for data in SIZES.map(text).into_iter().chain(SIZES.map(|bytes| vec![0; bytes])) {
                let packed = packed(&mut codec, algorithm, &data);
                assert!(packed.len() < data.len() * 2 / 3, "{algorithm}: {}", packed.len());
                let mut back = vec![1; data.len()];
                assert_eq!(codec.unpack(algorithm, &packed, &mut back), Ok(()));
                assert!(back == data, "{algorithm}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_compressed() {
        let mut codec = Codec::default();
        let random: Vec<u8> = numbers(3).take(16 * BLOCK).collect();
        for algorithm in CompressionAlgorithm::ALL {
            assert_eq!(codec.pack(algorithm, &random, &mut vec![0; 14 * BLOCK]), None, "{algorithm}");
            let data = text(16 * BLOCK);
            let exact = packed(&mut codec, algorithm, &data).len();
            let mut out = vec![0; exact - 1];
            assert_eq!(codec.pack(algorithm, &data, &mut out), None, "{algorithm}");
        }
    }

    #[test]
    fn another_length_than_was_said_is_an_error() {
        let mut codec = Codec::default();
        for algorithm in CompressionAlgorithm::ALL {
            let packed = packed(&mut codec, algorithm, &text(4 * BLOCK));
            for wanted in [0, BLOCK, 4 * BLOCK - 1, 4 * BLOCK + 1, 32 * BLOCK] {
                let found = codec.unpack(algorithm, &packed, &mut vec![0; wanted]);
                assert!(found.is_err(), "{algorithm}: {wanted}");
            }
            // A bomb: much comes out of little.
            let bomb = self::packed(&mut codec, algorithm, &vec![0; 32 * BLOCK]);
            assert!(codec.unpack(algorithm, &bomb, &mut vec![0; 2 * BLOCK]).is_err(), "{algorithm}");
            assert!(codec.unpack(algorithm, &[], &mut vec![0; BLOCK]).is_err(), "{algorithm}");
        }
    }

    /// Whatever is done to compressed data, it ends with an error or with bytes of the right number.
    #[test]
    fn damage_never_reaches_beyond_the_buffer() {
        let mut codec = Codec::default();
        let data = text(4 * BLOCK);
        for algorithm in CompressionAlgorithm::ALL {
            let good = packed(&mut codec, algorithm, &data);
            let (mut at, mut refused) = (numbers(11), 0);
            let mut next = || usize::from(at.next().expect("endless"));
            for round in 0..600 {
                let mut bad = good.clone();
                for _ in 0..1 + round % 4 {
                    let place = (next() << 8 | next()) % bad.len();
                    bad[place] = next() as u8;
                }
                bad.truncate(bad.len() - if round % 3 == 0 { next() % bad.len() } else { 0 });
                let mut out = vec![0; 5 * BLOCK];
                let (room, guard) = out.split_at_mut(4 * BLOCK);
                refused += usize::from(codec.unpack(algorithm, &bad, room).is_err());
                assert!(guard.iter().all(|byte| *byte == 0));
            }
            assert!(refused > 100, "{algorithm}: {refused}");
        }
    }

    #[test]
    fn a_codec_is_as_good_after_an_error() {
        let mut codec = Codec::default();
        for algorithm in CompressionAlgorithm::ALL {
            let data = text(2 * BLOCK);
            let good = packed(&mut codec, algorithm, &data);
            let mut back = vec![0; data.len()];
            assert!(codec.unpack(algorithm, &[0xff; 100], &mut back).is_err());
            assert_eq!(codec.pack(algorithm, &data, &mut [0; 10]), None);
            assert_eq!(packed(&mut codec, algorithm, &data), good);
            assert_eq!(codec.unpack(algorithm, &good, &mut back), Ok(()));
        }
    }
}
