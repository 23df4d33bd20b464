#![no_main]
//! See `nacre_fuzz::device_label`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::device_label(input));
