#![no_main]
//! See `nacre_fuzz::fsmap`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::fsmap(input));
