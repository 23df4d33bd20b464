#![no_main]
//! See `nacre_fuzz::recovery_key`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::recovery_key(input));
