#![no_main]
//! See `nacre_fuzz::frames`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::frames(input));
