#![no_main]
//! See `nacre_fuzz::message`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::message(input));
