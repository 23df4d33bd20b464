#![no_main]
//! See `nacre_fuzz::store_metadata`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::store_metadata(input));
