#![no_main]
//! See `nacre_fuzz::keyring`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::keyring(input));
