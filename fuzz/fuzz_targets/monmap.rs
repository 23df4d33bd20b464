#![no_main]
//! See `nacre_fuzz::monmap`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::monmap(input));
