#![no_main]
//! See `nacre_fuzz::transaction`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::transaction(input));
