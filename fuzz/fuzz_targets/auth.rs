#![no_main]
//! See `nacre_fuzz::auth`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::auth(input));
