#![no_main]
//! See `nacre_fuzz::mon_link`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::mon_link(input));
