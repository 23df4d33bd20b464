#![no_main]
//! See `nacre_fuzz::mgrmap`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::mgrmap(input));
