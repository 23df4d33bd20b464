#![no_main]
//! See `nacre_fuzz::crush`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::crush(input));
