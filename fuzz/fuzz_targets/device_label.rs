#![cfg_attr(feature = "libfuzzer", no_main)]
//! See `nacre_fuzz::device_label`.

nacre_fuzz::fuzz_program!(device_label);
