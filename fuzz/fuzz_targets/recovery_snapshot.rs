#![no_main]
//! See `nacre_fuzz::recovery_snapshot`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::recovery_snapshot(input));
