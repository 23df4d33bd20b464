#![no_main]
//! See `nacre_fuzz::osdmap`.

libfuzzer_sys::fuzz_target!(|input: &[u8]| nacre_fuzz::osdmap(input));
