#![no_main]
//! See `nacre_fuzz::class_calls`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::class_calls(input));
